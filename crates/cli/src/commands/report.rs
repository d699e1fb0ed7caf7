//! `weir load report`.

use std::path::Path;

use load::report::objectives_of;
use record::file::read_run;
use record::merge::merge;
use record::problem::Problem;
use record::run::Run;

use crate::exit::{Exit, Failure};
use crate::flags::Typed;
use crate::output::compare::compare;
use crate::output::file::write_json;
use crate::output::summary::summary;
use crate::output::{colour, print};
use crate::preflight;

pub(super) fn run(typed: Typed<'_>) -> Result<Exit, Failure> {
    let files = typed.values();
    let (mut runs, mut problems) = (Vec::new(), Vec::new());
    for file in &files {
        match read_run(Path::new(file)) {
            Ok(run) => runs.push((file.clone(), run)),
            Err(error) => problems.push(Problem::new("FILE", error.to_string())),
        }
    }
    if files.is_empty() {
        problems.push(Problem::new("FILE", "there is none; name records of weir load --json"));
    }
    let json = typed.text("json");
    if json.is_some() && !typed.is_set("merge") {
        problems.push(Problem::new("--json", "only a merged record is written; add --merge"));
    }
    if !problems.is_empty() {
        return Err(problems.into());
    }
    preflight::outputs(typed, &["json"], &[])?;
    if typed.is_set("merge") {
        let runs: Vec<Run> = runs.into_iter().map(|(_, run)| run).collect();
        let mut merged =
            merge(&runs).map_err(|error| vec![Problem::new("--merge", error.to_string())])?;
        merged.objectives = objectives_of(&merged)
            .map_err(|error| vec![Problem::new("--merge", error.to_string())])?;
        return show(&merged, json.as_deref());
    }
    match runs.as_slice() {
        [(_, only)] => show(only, None),
        several => {
            print(&compare(several, colour()));
            Ok(Exit::Done)
        }
    }
}

fn show(run: &Run, json: Option<&str>) -> Result<Exit, Failure> {
    if json != Some("-") {
        print(&summary(run, colour()));
    }
    write_json(run, json)?;
    Ok(Exit::of_run(run))
}
