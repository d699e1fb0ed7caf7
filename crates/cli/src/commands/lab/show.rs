//! `weir lab show DIR`: judges an experiment again from its trials; prints text and writes
//! reports.

use std::path::Path;

use experiment::engine::JudgeInput;
use experiment::engine::blocks::mark_discarded;
use experiment::engine::experiment_dir::ExperimentDir;
use experiment::format::count;
use experiment::judgement::{judge, parse_stored, unreadable_note};
use record::experiment::{Experiment, SCHEMA, StopReason, TrialSummary, Warning, counted_blocks};
use record::problem::InputProblem;
use report::text::experiment::format_experiment;
use report::text::junit_suite::experiment_junit;

use super::experiments::open;
use super::report_files::{Records, write_page};
use crate::commands::weir_version;
use crate::exit::{Exit, Failure};
use crate::flags::{CommandArgs, CommandFlags, ShowFlags};
use crate::output::file::{write_json, write_text};
use crate::output::print;

pub(super) fn run(args: CommandArgs<'_>) -> Result<Exit, Failure> {
    let paths = args.values();
    let [path] = paths.as_slice() else {
        return Err(vec![InputProblem::new("DIR", "name one experiment directory")].into());
    };
    let ShowFlags { html, markdown, json, junit } = ShowFlags::parse(args)?;
    let texts = [&json, &markdown, &junit];
    crate::preflight::destinations(&texts, &[&html])?;
    let directory = open(Path::new(path))?;
    let experiment = rejudge(&directory)?;
    if let Some(to) = html.path() {
        write_page(&report::html(&experiment, &Records(&directory)), Path::new(to))?;
    }
    write_text(&report::markdown(&experiment, &Records(&directory)), markdown.path())?;
    write_text(&experiment_junit(&experiment), junit.path())?;
    if !texts.iter().any(|text| text.is_stdout()) {
        print(&format_experiment(&experiment, &Records(&directory)));
    }
    write_json(&experiment, json.path())?;
    Ok(Exit::Done)
}

/// Returns the experiment, with everything computed again from the trials on the disk.
fn rejudge(directory: &ExperimentDir) -> Result<Experiment, Failure> {
    let start = directory.start();
    let file = parse_stored(directory, None)?;
    let stored = directory.experiment().ok();
    let mut plan = start.plan.clone();
    plan.warm_up_s = plan.warm_up_s.or_else(|| directory.warm_up().map(|it| it.warm_up_s));
    let mut lines = directory.trials().to_vec();
    mark_discarded(&plan, &mut lines, &directory.environment_changes());
    let changes = directory.change_descriptions();
    // A conclusion from before the last trials is outdated.
    let concluded = stored.filter(|stored| stored.trials.len() >= lines.len());
    let (stopped, partial) = concluded
        .map_or_else(|| (unfinished_reason(&lines), true), |stored| (stored.stopped, stored.partial));
    let case = JudgeInput { plan: &plan, trials: &lines, directory, changes: &changes, stopped: &stopped };
    let judged = judge(&file, case);
    let mut warnings = Vec::from_iter(unreadable_warning(directory));
    warnings.extend(judged.warnings);
    warnings.extend(experiment::engine::warnings(directory, &plan, &lines));
    Ok(Experiment {
        schema: SCHEMA.to_owned(),
        weir: weir_version(),
        command: start.command.clone(),
        started_at: start.started_at.clone(),
        duration_s: directory.sessions().iter().map(|session| session.duration_s).sum(),
        partial,
        resumed: (directory.sessions().len() as u32).saturating_sub(1),
        host: start.host.clone(),
        environment: start.environment.clone(),
        plan,
        stopped,
        trials: lines,
        cells: judged.cells,
        comparisons: judged.comparisons,
        warnings,
        scalings: judged.scalings,
        answer: judged.answer,
        finish: judged.finish,
        summary: judged.summary,
    })
}

/// Explains why an experiment without a conclusion has no more blocks.
fn unfinished_reason(lines: &[TrialSummary]) -> StopReason {
    let text = match counted_blocks(lines) {
        0 => "no block has finished".to_owned(),
        blocks => format!("{} can be compared", count(blocks, "block")),
    };
    let text = format!("incomplete: {text}; still running, or interrupted: continue with --resume");
    StopReason { code: "interrupted".to_owned(), text }
}

/// Warns about unreadable records in the directory, which are left out.
fn unreadable_warning(directory: &ExperimentDir) -> Option<Warning> {
    let text = unreadable_note(directory)?;
    Some(Warning { code: "broken_record".to_owned(), arm: None, text })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_an_unfinished_experiment_follows_from_its_trials() {
        let mut line = TrialSummary::default();
        let without_blocks = unfinished_reason(&[line.clone()]);
        assert_eq!(without_blocks.code, "interrupted");
        assert!(!without_blocks.text.contains(char::is_numeric), "{without_blocks:?}");
        line.position.block = 1;
        let with_a_block = unfinished_reason(&[line]);
        assert_eq!(with_a_block.code, "interrupted");
        assert!(with_a_block.text.contains("1 block "), "{with_a_block:?}");
    }
}
