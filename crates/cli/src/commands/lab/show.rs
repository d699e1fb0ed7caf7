//! `weir lab show FOLDER`: an experiment judged again from its trials, in words and as reports.

use std::path::Path;

use lab::engine::Case;
use lab::engine::blocks::mark;
use lab::engine::folder::Folder;
use lab::words::count;
use record::experiment::{Experiment, SCHEMA, Stopped, TrialLine, Warning, blocks_counting};
use record::file::write_whole;
use record::problem::Problem;

use super::build;
use super::experiments::open;
use super::judging::{Records, judge, parse_again, unreadable, write_page};
use crate::exit::{Exit, Failure};
use crate::flags::Typed;
use crate::output::experiment::text;
use crate::output::file::write_json;
use crate::output::print;

pub(super) fn run(typed: Typed<'_>) -> Result<Exit, Failure> {
    let named = typed.values();
    let [path] = named.as_slice() else {
        return Err(vec![Problem::new("FOLDER", "give one: an experiment's folder")].into());
    };
    crate::preflight::outputs(typed, &["json", "markdown"], &["html"])?;
    let [html, markdown, json] = ["html", "markdown", "json"].map(|flag| typed.text(flag));
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
    // What was concluded before the last trials ran is not how it ended.
    let concluded = stored.filter(|stored| stored.trials.len() >= lines.len());
    let (stopped, partial) = concluded
        .map_or_else(|| (unfinished(&lines), true), |stored| (stored.stopped, stored.partial));
    let mut warnings = Vec::from_iter(not_read(folder));
    warnings.extend(judged.warnings);
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

/// Why there are not more blocks, of an experiment that nobody concluded.
fn unfinished(lines: &[TrialLine]) -> Stopped {
    let text = match blocks_counting(lines) {
        0 => "it was ended, or is running, before its first block was through".to_owned(),
        blocks => format!(
            "it was killed, or is running, after {} that can be compared",
            count(blocks, "block")
        ),
    };
    Stopped { code: "interrupted".to_owned(), text }
}

/// Records that stand in the folder and cannot be read: what is left out has to be known.
fn not_read(folder: &Folder) -> Option<Warning> {
    let text = unreadable(folder)?;
    Some(Warning { code: "broken_record".to_owned(), arm: None, text })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_an_unfinished_experiment_ended_is_what_its_trials_say() {
        let mut line = TrialLine::default();
        assert!(unfinished(&[line.clone()]).text.contains("before its first block"));
        line.place.block = 1;
        let text = unfinished(&[line]).text;
        assert!(text.ends_with("after 1 block that can be compared"), "{text}");
    }
}
