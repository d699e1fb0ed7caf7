//! Turns an experiment's directory into a judgement and its reports. Connects the engine, the
//! judge and the report; decides nothing of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use experiment::definition::{EnvironmentChecks, ExperimentFile, ExperimentOptions};
use experiment::engine::experiment_dir::ExperimentDir;
use experiment::engine::{Conclusions, JudgeInput};
use experiment::judge::JudgeExtras;
use experiment::trial::metrics::METRICS;
use record::experiment::{Experiment, ExperimentMetric, ExperimentPlan, LoadPlan};
use record::file::write_atomically;
use record::problem::InputProblem;
use record::trial::ExperimentTrial;
use report::{ReportPage, TrialRecords};

use crate::exit::Failure;

/// File name of the report as a page; [`REPORT_MARKDOWN`] is the one for a pull request.
pub(in crate::commands) const REPORT_HTML: &str = "report.html";
/// See [`REPORT_HTML`].
pub(super) const REPORT_MARKDOWN: &str = "report.md";
/// Maximum number of records that a text names.
const NAMES_SHOWN_MAX: usize = 6;

/// Returns all metrics.
pub(super) fn metrics() -> Vec<ExperimentMetric> {
    METRICS.iter().map(experiment::trial::metrics::TrialMetric::metric).collect()
}

/// Parses an experiment's file.
pub(in crate::commands) fn parse(
    name: &str,
    text: &str,
    options: &ExperimentOptions,
    around: Option<&EnvironmentChecks<'_>>,
) -> Result<ExperimentFile, Vec<InputProblem>> {
    ExperimentFile::parse_with_checks(name, text, options, &metrics(), around)
}

/// Parses the file of an experiment that was begun, with the options of that time.
pub(in crate::commands) fn parse_stored(
    directory: &ExperimentDir,
    around: Option<&EnvironmentChecks<'_>>,
) -> Result<ExperimentFile, Vec<InputProblem>> {
    let plan = &directory.start().plan;
    // A file without a name in it was named after its file name.
    parse(&format!("{}.toml", plan.name), &plan.file, &ExperimentOptions::from_plan(plan), around)
}

/// Judges the trials; `file` is the experiment that they ran.
pub(in crate::commands) fn judge(file: &ExperimentFile, case: JudgeInput<'_>) -> Conclusions {
    let extras = extras(file, &case);
    let judged = experiment::judge::judge(case.plan, case.trials, &extras);
    Conclusions {
        scalings: judged.scalings,
        cells: judged.cells,
        comparisons: judged.comparisons,
        warnings: judged.warnings,
        answer: Some(experiment::judge::answer_of_summary(&judged.summary)),
        summary: judged.summary,
    }
}

fn extras(file: &ExperimentFile, case: &JudgeInput<'_>) -> JudgeExtras {
    JudgeExtras {
        environment_changes: case.changes.to_vec(),
        profiled: case.directory.profiled_trials(),
        begun: case.directory.begun_means(),
        counting_fractions: case.directory.counting_fractions(),
        closed_loads: closed_loads(file, case.plan),
        unavailable_metrics: unreported_metrics(file, case),
    }
}

/// Returns the metrics that trials never report, by what ran them.
fn unreported_metrics(
    file: &ExperimentFile,
    case: &JudgeInput<'_>,
) -> BTreeMap<(String, String, String), String> {
    let environment = &case.directory.start().environment;
    let mut unreported = BTreeMap::new();
    for (arm, load) in
        case.plan.arms.iter().flat_map(|arm| case.plan.loads.iter().map(move |load| (arm, load)))
    {
        let Some(setup) = file.setup(&arm.name, &load.name) else { continue };
        let program_output = environment.get(&format!("program {}", setup.tool.name()));
        for metric in &case.plan.metrics {
            let figure = experiment::trial::metrics::find_metric(&metric.name);
            let why = figure
                .and_then(|figure| figure.unavailable_reason(setup, program_output.map(String::as_str)));
            let key = || (arm.name.clone(), load.name.clone(), metric.name.clone());
            unreported.extend(why.map(|why| (key(), why)));
        }
    }
    unreported
}

/// Returns the closed-loop loads.
fn closed_loads(file: &ExperimentFile, plan: &ExperimentPlan) -> BTreeSet<String> {
    let is_closed =
        |load: &&LoadPlan| file.setup(&plan.baseline, &load.name).is_some_and(|setup| !setup.has_rate());
    plan.loads.iter().filter(is_closed).map(|load| load.name.clone()).collect()
}

/// Lists the unreadable records of a directory, which are in no figure, with the reason.
pub(super) fn unreadable_note(directory: &ExperimentDir) -> Option<String> {
    let broken = directory.broken_files();
    let named = broken.iter().take(NAMES_SHOWN_MAX).map(|one| match one.problem.contains(&one.file) {
        true => one.problem.clone(),
        false => format!("{} ({})", one.file, one.problem),
    });
    let named: Vec<String> = named.collect();
    let more = match broken.len().saturating_sub(NAMES_SHOWN_MAX) {
        0 => String::new(),
        more => format!("; and {more} more"),
    };
    let what = if broken.len() == 1 { "this record" } else { "these records" };
    (!named.is_empty()).then(|| {
        format!(
            "{what} cannot be read and is excluded: {}{more}. weir lab run --resume {} moves it \
             aside and repeats the missing trials.",
            named.join("; "),
            directory.path().display()
        )
    })
}

/// The records of the trials, for the report.
#[derive(Debug)]
pub(super) struct Records<'a>(pub(super) &'a ExperimentDir);

impl TrialRecords for Records<'_> {
    fn trial(&self, file: &str) -> Option<ExperimentTrial> {
        self.0.trial(file).ok()
    }

    fn folded_stacks(&self, trial_file: &str) -> Option<String> {
        self.0.folded(trial_file)
    }
}

/// Writes both reports into the experiment's directory.
pub(in crate::commands) fn write_reports(
    experiment: &Experiment,
    directory: &ExperimentDir,
) -> Result<(), Failure> {
    let raw = &Records(directory);
    write_page(&report::html(experiment, raw), &directory.path().join(REPORT_HTML))?;
    let words = report::markdown(experiment, raw);
    write_atomically(&directory.path().join(REPORT_MARKDOWN), words.as_bytes())?;
    Ok(())
}

/// Writes a page, and beside it the files that did not fit into it.
pub(super) fn write_page(page: &ReportPage, path: &Path) -> Result<(), Failure> {
    write_atomically(path, page.html.as_bytes())?;
    for file in &page.data_files {
        write_atomically(&path.with_file_name(&file.name), file.text.as_bytes())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_that_exceeds_a_page_goes_to_a_file_beside_it() {
        let directory = tempfile::tempdir().unwrap();
        let beside = report::DataFile { name: "a.heat-map.csv".to_owned(), text: "x\n".to_owned() };
        let page = ReportPage { html: "<html>".to_owned(), data_files: vec![beside] };
        write_page(&page, &directory.path().join("report.html")).unwrap();
        for (name, text) in [("report.html", "<html>"), ("a.heat-map.csv", "x\n")] {
            assert_eq!(std::fs::read_to_string(directory.path().join(name)).unwrap(), text);
        }
    }
}
