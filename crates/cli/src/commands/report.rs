//! `weir load report FILE...`: prints one record of `weir load`, compares several, or merges them
//! (`--merge`). `record::merge` does the merge.

use std::path::Path;

use load::report::reevaluate_objectives;
use load::validity::judge_merged;
use record::file::read_run;
use record::merge::merge;
use record::problem::InputProblem;
use record::run::Run;
use report::text::junit::junit;
use report::text::markdown::markdown;
use report::text::run_ratios::format_run_ratios;
use report::text::summary::summary;

use super::pages::{Baseline, conditions, exit_of_comparison, warn_of_undecided, write_run_page};
use crate::exit::{Exit, Failure, OnInvalid};
use crate::flags::CommandArgs;
use crate::output;
use crate::output::file::{write_json, write_text};
use crate::output::{is_coloured, print};
use crate::preflight;

pub(super) fn run(args: CommandArgs<'_>) -> Result<Exit, Failure> {
    let files = args.values();
    let (mut runs, mut problems) = (Vec::new(), Vec::new());
    for file in &files {
        match read_run(Path::new(file)) {
            Ok(run) => runs.push((file.clone(), run)),
            Err(error) => problems.push(InputProblem::from_file_error(error)),
        }
    }
    if files.is_empty() {
        problems.push(InputProblem::new("FILE", "missing file (name records of weir load --json)"));
    }
    let json = args.text("json");
    problems.extend(compare_problems(args, runs.len()));
    if !problems.is_empty() {
        return Err(problems.into());
    }
    preflight::outputs(args, STDOUT_FLAGS, &["html"])?;
    let quiet = preflight::writes_to_stdout(args, STDOUT_FLAGS);
    if args.is_set("merge") {
        let runs: Vec<Run> = runs.into_iter().map(|(_, run)| run).collect();
        let mut merged = merge(&runs).map_err(|error| vec![InputProblem::new("--merge", error)])?;
        merged.objectives =
            reevaluate_objectives(&merged).map_err(|error| vec![InputProblem::new("--merge", error)])?;
        judge_merged(&mut merged, &runs.iter().map(|run| &run.validity).collect::<Vec<_>>());
        return show(args, &merged, json.as_deref());
    }
    match runs.as_slice() {
        [(_, only)] => show(args, only, None),
        [(name, first), (_, second)] => {
            if !quiet {
                print(&format_run_ratios(&runs, is_coloured()));
            }
            let baseline = Baseline::new(name.clone(), first.clone(), conditions(args)?);
            let comparison = baseline.compare(second);
            if !quiet {
                print(&comparison.text());
            }
            let mut compared = second.clone();
            compared.comparison = Some(comparison.record(name));
            write_json(&compared, json.as_deref())?;
            write_text(&markdown(&compared), args.text("markdown").as_deref())?;
            write_text(&junit(&compared), args.text("junit").as_deref())?;
            write_run_page(args, second, Some((&baseline, &comparison)))?;
            warn_of_undecided(Some(&comparison));
            Ok(exit_of_comparison(Exit::Done, Some(&comparison), OnInvalid::Fail))
        }
        several => {
            print(&format_run_ratios(several, is_coloured()));
            Ok(Exit::Done)
        }
    }
}

/// Returns the problems of flags that need one or two records.
fn compare_problems(args: CommandArgs<'_>, records: usize) -> Vec<InputProblem> {
    let mut problems = Vec::new();
    let merged = args.is_set("merge");
    if args.is_given("fail-if") && (records != 2 || merged) {
        problems.push(InputProblem::new("--fail-if", "compares two records: name the baseline and the run"));
    }
    for flag in ["json", "markdown", "junit"] {
        let is_possible = merged || records == 2 || (records == 1 && flag != "json");
        if args.text(flag).is_some() && !is_possible && records > 0 {
            let text = "needs one result: name the baseline and the run, or add --merge";
            problems.push(InputProblem::new(format!("--{flag}"), text));
        }
    }
    if args.text("html").is_some() && records > 2 && !merged {
        let text = "shows one record, or two over each other: name at most two, or add --merge";
        problems.push(InputProblem::new("--html", text));
    }
    problems.extend(conditions(args).err().unwrap_or_default());
    problems
}

const STDOUT_FLAGS: &[&str] = &["json", "markdown", "junit"];

fn show(args: CommandArgs<'_>, run: &Run, json: Option<&str>) -> Result<Exit, Failure> {
    if !preflight::writes_to_stdout(args, STDOUT_FLAGS) {
        print(&summary(run, output::detail(args), is_coloured()));
    }
    write_json(run, json)?;
    write_text(&markdown(run), args.text("markdown").as_deref())?;
    write_text(&junit(run), args.text("junit").as_deref())?;
    write_run_page(args, run, None)?;
    Ok(Exit::from_run(run, OnInvalid::Fail))
}
