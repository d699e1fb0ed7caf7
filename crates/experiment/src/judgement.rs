//! Judgement of the trials in an experiment's directory, by the file that they ran. Connects the engine and the
//! judge; decides nothing of its own.

use std::collections::{BTreeMap, BTreeSet};

use record::experiment::{ExperimentMetric, ExperimentPlan, LoadPlan};
use record::problem::InputProblem;
use record::sorted::CollectSorted;

use crate::definition::{EnvironmentChecks, ExperimentFile, ExperimentOptions};
use crate::engine::experiment_dir::ExperimentDir;
use crate::engine::{Conclusions, JudgeInput};
use crate::judge::JudgeExtras;
use crate::trial::metrics::METRICS;

/// Maximum number of records that a text names.
const NAMES_SHOWN_MAX: usize = 6;

pub fn metrics() -> Vec<ExperimentMetric> {
    METRICS.iter().map(crate::trial::metrics::TrialMetric::metric).collect()
}

/// Parses an experiment's file.
///
/// # Errors
/// Everything that is wrong with it.
pub fn parse(
    name: &str,
    text: &str,
    options: &ExperimentOptions,
    around: Option<&EnvironmentChecks<'_>>,
) -> Result<ExperimentFile, Vec<InputProblem>> {
    ExperimentFile::parse_with_checks(name, text, options, &metrics(), around)
}

/// Parses the file of an experiment that was begun, with the options of that time.
///
/// # Errors
/// Everything that is wrong with it.
pub fn parse_stored(
    directory: &ExperimentDir,
    around: Option<&EnvironmentChecks<'_>>,
) -> Result<ExperimentFile, Vec<InputProblem>> {
    let plan = &directory.start().plan;
    // A file without a name in it was named after its file name.
    parse(&format!("{}.toml", plan.name), &plan.file, &ExperimentOptions::from_plan(plan), around)
}

/// Judges the trials; `file` is the experiment that they ran.
pub fn judge(file: &ExperimentFile, case: JudgeInput<'_>) -> Conclusions {
    let extras = extras(file, &case);
    let judged = crate::judge::judge(case.plan, case.trials, &extras);
    Conclusions {
        scalings: judged.scalings,
        cells: judged.cells,
        comparisons: judged.comparisons,
        warnings: judged.warnings,
        answer: Some(crate::judge::answer_of_summary(&judged.summary)),
        summary: judged.summary,
        finish: judged.finish,
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
        cpus: machine_cpus(case.directory),
        block_s: block_duration_s(case),
        resume: Some((resume_command(case.directory), case.stopped.code.clone())),
    }
}

/// Returns the number of CPUs of the machine of an experiment; 0 if it is unknown.
pub fn machine_cpus(directory: &ExperimentDir) -> f64 {
    f64::from(directory.start().host.cpus)
}

/// Returns the mean duration of a block, with everything around its trials, from all trials so far.
fn block_duration_s(case: &JudgeInput<'_>) -> Option<f64> {
    let all_s: f64 = case.directory.sessions().iter().map(|session| session.duration_s).sum();
    let cells = (case.plan.arms.len() * case.plan.loads.len()) as f64;
    let trials = case.trials.len() as f64;
    (trials > 0.0 && all_s > 0.0).then(|| all_s / trials * cells)
}

/// Returns the command that resumes an experiment: that of the command that began it.
fn resume_command(directory: &ExperimentDir) -> String {
    let words = &directory.start().command;
    let is_tuning = words.get(1..3).is_some_and(|words| words == ["tune", "trial"]);
    let command = if is_tuning { "weir tune trial" } else { "weir lab run" };
    format!("{command} --resume {}", directory.path().display())
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
            let figure = crate::trial::metrics::find_metric(&metric.name);
            let why = figure
                .and_then(|figure| figure.unavailable_reason(setup, program_output.map(String::as_str)));
            let key = || (arm.name.clone(), load.name.clone(), metric.name.clone());
            unreported.extend(why.map(|why| (key(), why)));
        }
    }
    unreported
}

fn closed_loads(file: &ExperimentFile, plan: &ExperimentPlan) -> BTreeSet<String> {
    let is_closed =
        |load: &&LoadPlan| file.setup(&plan.baseline, &load.name).is_some_and(|setup| !setup.has_rate());
    plan.loads.iter().filter(is_closed).map(|load| load.name.clone()).collect_set()
}

/// Lists the unreadable records of a directory, which are in no figure, with the reason.
pub fn unreadable_note(directory: &ExperimentDir) -> Option<String> {
    let broken = directory.broken_files();
    let named = broken.iter().take(NAMES_SHOWN_MAX).map(|broken_file| {
        match broken_file.problem.contains(&broken_file.file) {
            true => broken_file.problem.clone(),
            false => format!("{} ({})", broken_file.file, broken_file.problem),
        }
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
