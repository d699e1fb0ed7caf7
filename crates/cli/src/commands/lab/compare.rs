//! `weir lab compare A B`: compares two experiments, two runs or two lists of runs that did not
//! alternate.

use std::path::PathBuf;

use experiment::comparison::{NamedRun, compare_experiments, compare_runs, expand_patterns};
use record::file::read_run;
use record::invalid_value;
use record::problem::InputProblem;
use report::text::comparison::format_comparison;

use super::experiments::directory_failure;
use crate::exit::{Exit, Failure};
use crate::flags::{CommandArgs, CommandFlags, CompareFlags, FlagReader};
use crate::output::file::write_json;
use crate::output::print;

/// The two sides to compare.
enum CompareInputs {
    Experiments(PathBuf, PathBuf),
    Runs(Vec<PathBuf>, Vec<PathBuf>),
}

pub(super) fn run(args: CommandArgs<'_>) -> Result<Exit, Failure> {
    let (inputs, flags) = parse_options(args)?;
    let effect = flags.effect;
    crate::preflight::destinations(&[&flags.json], &[])?;
    let compared = match inputs {
        CompareInputs::Experiments(a, b) => compare_experiments(&a, &b, effect).map_err(directory_failure)?,
        CompareInputs::Runs(a, b) => {
            let (a, b) = read_sides(&a, &b)?;
            compare_runs(&a, &b, effect)
        }
    };
    if !flags.json.is_stdout() {
        print(&format_comparison(&compared));
    }
    write_json(&compared, flags.json.path())?;
    Ok(Exit::Done)
}

/// Returns everything that is wrong with the flags.
#[cfg(test)]
pub(super) fn check(args: CommandArgs<'_>) -> Result<(), Vec<InputProblem>> {
    CompareFlags::parse(args).map(|_| ())
}

fn parse_options(args: CommandArgs<'_>) -> Result<(CompareInputs, CompareFlags), Vec<InputProblem>> {
    let mut reader = FlagReader::new(args);
    let flags = CompareFlags::read(&mut reader);
    let mut problems = reader.problems;
    let values = args.values();
    let (a, b) = (&flags.a[..], &flags.b[..]);
    let inputs = if a.is_empty() && b.is_empty() {
        parse_sides(&values, &mut problems)
    } else {
        if !values.is_empty() {
            problems.push(InputProblem::new("A B", "give either two values, or --a and --b"));
        }
        let mut files = |flag: &str, patterns: &[String]| {
            let matched = match patterns {
                [] => Err(invalid_value!("give both, --a and --b")),
                some => expand_patterns(some),
            };
            matched.map_err(|why| problems.push(InputProblem::new(flag, why))).unwrap_or_default()
        };
        Some(CompareInputs::Runs(files("--a", a), files("--b", b)))
    };
    match inputs {
        Some(inputs) if problems.is_empty() => Ok((inputs, flags)),
        _ => Err(problems),
    }
}

/// Parses the two directories or two files.
fn parse_sides(sides: &[String], problems: &mut Vec<InputProblem>) -> Option<CompareInputs> {
    let [a, b] = sides else {
        let text = "name two experiment directories, or two records of weir load";
        problems.push(InputProblem::new("A B", text));
        return None;
    };
    let (a, b) = (PathBuf::from(a), PathBuf::from(b));
    for path in [&a, &b] {
        if !path.exists() {
            problems.push(InputProblem::new(path.display().to_string(), "no such file or directory"));
        }
    }
    match (a.is_dir(), b.is_dir()) {
        _ if !problems.is_empty() => None,
        (true, true) => Some(CompareInputs::Experiments(a, b)),
        (false, false) => Some(CompareInputs::Runs(vec![a], vec![b])),
        _ => {
            let text = "one is a directory and one a file (name two experiments, or two records)";
            problems.push(InputProblem::new("A B", text));
            None
        }
    }
}

fn read_sides(a: &[PathBuf], b: &[PathBuf]) -> Result<(Vec<NamedRun>, Vec<NamedRun>), Vec<InputProblem>> {
    let mut problems = Vec::new();
    let mut read = |files: &[PathBuf]| {
        let mut runs = Vec::new();
        for file in files {
            match read_run(file) {
                Ok(run) => runs.push((file.clone(), run)),
                Err(error) => problems.push(InputProblem::from_file_error(error)),
            }
        }
        runs
    };
    let (a, b) = (read(a), read(b));
    if problems.is_empty() { Ok((a, b)) } else { Err(problems) }
}
