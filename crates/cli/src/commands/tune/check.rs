//! `weir tune check`: reads the machine or files, and prints the findings.

use std::path::{Path, PathBuf};

use record::problem::InputProblem;
use tune::check::{check_machine, count_changes, judge_context};
use tune::foreign::{ForeignLine, judge_lines, parse_file};
use tune::observation::observe_machine;
use tune::report::{CheckReport, SCHEMA};

use super::parse_role;
use crate::commands::text_file::read_text_file;
use crate::exit::{Exit, Failure};
use crate::flags::CommandArgs;
use crate::output::file::write_json;
use crate::output::print;
use crate::output::tune::{format_lines, format_settings};

/// Maximum number of files of a directory.
const FILES_MAX: usize = 1000;

pub(super) fn run(args: CommandArgs<'_>) -> Result<Exit, Failure> {
    let json = args.text("json");
    crate::preflight::outputs(args, &["json"], &[])?;
    let (role, lines) = (parse_role(args), read_lines(&args.texts("file")));
    let (role, lines) = match (role, lines) {
        (Ok(role), Ok(lines)) => (role, lines),
        (role, lines) => {
            let mut problems: Vec<InputProblem> = role.err().into_iter().collect();
            problems.extend(lines.err().unwrap_or_default());
            return Err(problems.into());
        }
    };
    let state = observe_machine();
    let mut report = CheckReport {
        schema: SCHEMA.to_owned(),
        weir_version: env!("WEIR_VERSION").to_owned(),
        kernel: state.release.clone(),
        memory_bytes: state.memory_bytes,
        role,
        settings: Vec::new(),
        lines: Vec::new(),
        findings: 0,
    };
    if args.texts("file").is_empty() {
        report.settings = check_machine(&state, role);
        report.findings = count_changes(&report.settings);
    } else {
        let values = state.values();
        let context = judge_context(&state, &values, role);
        report.lines = judge_lines(&lines, &context, &host::tuning::sysctl_names());
        report.findings = report.lines.iter().filter(|line| line.is_finding).count();
    }
    if json.as_deref() != Some(crate::preflight::STDOUT) {
        let files = !args.texts("file").is_empty();
        print(&if files { format_lines(&report) } else { format_settings(&report, args.is_set("all")) });
    }
    write_json(&report, json.as_deref())?;
    Ok(if report.findings == 0 { Exit::Done } else { Exit::ObjectiveMissed })
}

/// Reads the lines of all files, in the order in which they take effect.
fn read_lines(paths: &[String]) -> Result<Vec<ForeignLine>, Vec<InputProblem>> {
    let (mut lines, mut problems) = (Vec::new(), Vec::new());
    for path in paths {
        match files_of(Path::new(path)) {
            Ok(files) => {
                for file in files {
                    let name = file.display().to_string();
                    match read_text_file(&name) {
                        Ok(text) => lines.extend(parse_file(&name, &text)),
                        Err(problem) => problems.push(problem),
                    }
                }
            }
            Err(problem) => problems.push(problem),
        }
    }
    if problems.is_empty() { Ok(lines) } else { Err(problems) }
}

/// Returns the file itself, or the `*.conf` files of a directory by name.
fn files_of(path: &Path) -> Result<Vec<PathBuf>, InputProblem> {
    let problem = |text: String| InputProblem::new("--file", format!("{}: {text}", path.display()));
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let entries = std::fs::read_dir(path).map_err(|error| problem(error.to_string()))?;
    let paths = entries.flatten().map(|entry| entry.path());
    let mut files: Vec<PathBuf> =
        paths.filter(|path| path.extension().is_some_and(|ending| ending == "conf")).collect();
    files.sort();
    if files.is_empty() {
        return Err(problem("no file *.conf in this directory".to_owned()));
    }
    if files.len() > FILES_MAX {
        return Err(problem(format!("{} files; the max is {FILES_MAX}", files.len())));
    }
    Ok(files)
}
