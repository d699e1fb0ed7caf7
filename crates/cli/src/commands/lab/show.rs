//! `weir lab show FOLDER`: an experiment judged again from its trials, in words and as reports.

use std::path::Path;

use lab::engine::Case;
use lab::engine::blocks::mark;
use lab::engine::folder::Folder;
use record::experiment::{Experiment, SCHEMA, Stopped};
use record::file::write_whole;
use record::problem::Problem;

use super::experiments::{open, write_json};
use super::judging::{Records, judge, parse_again, write_page};
use super::{build, check_folder_of};
use crate::exit::{Exit, Failure};
use crate::flags::Typed;
use crate::output::experiment::text;
use crate::output::print;

pub(super) fn run(typed: Typed<'_>) -> Result<Exit, Failure> {
    let named = typed.values();
    let [path] = named.as_slice() else {
        return Err(vec![Problem::new("FOLDER", "give one: an experiment's folder")].into());
    };
    let outputs = ["html", "markdown", "json"].map(|flag| (flag, typed.text(flag)));
    for (flag, to) in &outputs {
        if let Some(to) = to.as_deref().filter(|to| *to != "-") {
            check_folder_of(flag, Path::new(to))?;
        }
    }
    let [(_, html), (_, markdown), (_, json)] = outputs;
    if markdown.as_deref() == Some("-") && json.as_deref() == Some("-") {
        let text = "stdout can take one of --markdown and --json";
        return Err(vec![Problem::new("--markdown", text)].into());
    }
    let folder = open(Path::new(path))?;
    let experiment = judged_again(&folder)?;
    if let Some(to) = html {
        write_page(&lab::report::html(&experiment, &Records(&folder)), Path::new(&to))?;
    }
    let words = lab::report::markdown(&experiment, &Records(&folder));
    match markdown.as_deref() {
        Some("-") => print(&words),
        Some(to) => write_whole(Path::new(to), words.as_bytes())?,
        None => {}
    }
    if markdown.as_deref() != Some("-") && json.as_deref() != Some("-") {
        print(&text(&experiment, &Records(&folder)));
    }
    write_json(&experiment, json.as_deref())?;
    Ok(Exit::Done)
}

/// The experiment, with everything worked out anew from the trials on the disk.
fn judged_again(folder: &Folder) -> Result<Experiment, Failure> {
    let start = folder.start();
    let file = parse_again(folder, None)?;
    let stored = folder.experiment().ok();
    let mut plan = start.plan.clone();
    plan.warm_up_s = plan.warm_up_s.or_else(|| folder.warm_up().map(|it| it.warm_up_s));
    let mut lines = folder.lines().to_vec();
    mark(&plan, &mut lines, &folder.changed_after());
    let changes = folder.changes();
    let case = Case { plan: &plan, lines: &lines, folder, changes: &changes };
    let judged = judge(&file, case);
    let unfinished = Stopped {
        code: "interrupted".to_owned(),
        text: "it was ended before its first block was whole".to_owned(),
    };
    let (stopped, partial) = stored
        .as_ref()
        .map_or((unfinished, true), |stored| (stored.stopped.clone(), stored.partial));
    let mut warnings = judged.warnings;
    warnings.extend(lab::engine::warnings(folder, &plan, &lines));
    Ok(Experiment {
        schema: SCHEMA.to_owned(),
        weir: build(),
        command: start.command.clone(),
        started_at: start.started_at.clone(),
        duration_s: folder.sessions().iter().map(|session| session.took_s).sum(),
        partial,
        resumed: (folder.sessions().len() as u32).saturating_sub(1),
        host: start.host.clone(),
        environment: start.environment.clone(),
        plan,
        stopped,
        trials: lines,
        cells: judged.cells,
        comparisons: judged.comparisons,
        warnings,
        scalings: judged.scalings,
        summary: judged.summary,
    })
}
