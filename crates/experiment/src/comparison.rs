//! Comparison of two experiments, two runs or two lists of runs that did not alternate.

mod differences;
mod patterns;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use record::experiment::{ComparisonOutcome, ExperimentMetric, ExperimentPlan, ONLY_LOAD, TrialSummary};
use record::run::Run;
use record::trial::ExperimentTrial;
use serde::Serialize;
use serde_json::{Value, json};

use self::differences::differences;
pub use self::patterns::expand_patterns;
use crate::engine::blocks::mark_discarded;
use crate::engine::experiment_dir::{ExperimentDir, ExperimentDirError};
use crate::format::count;
use crate::judge::{UnpairedSets, compare_unpaired};
use crate::judgement::unreadable_note;
use crate::trial::metrics;

pub const SCHEMA: &str = "weir.comparison/1";
/// Default of the smallest difference that matters; the same as in an experiment's file.
pub const EFFECT_DEFAULT: f64 = 0.02;
/// Confidence level of the intervals.
const CONFIDENCE: f64 = 0.95;

/// Caveats that every comparison here reports.
const TIME_CAVEAT: &str = "A and B were not interleaved: any other change between the two times (other work \
on the machine, its temperature, a neighbour, an update) is part of the difference, and no test can detect it. Run \
both as arms of one experiment to exclude it.";
const SINGLE_RUNS_CAVEAT: &str = "No test was made: the seconds of a run depend on each other, so they are one \
observation, not many, and one observation per side cannot be distinguished from chance. Repeat the runs, \
and name them with --a and --b.";
const MULTIPLE_COMPARISONS_CAVEAT: &str = "Each p is corrected for the number of compared metrics (Holm): those of the metric that \
decides among themselves, and all others among themselves. The JSON has the uncorrected p too.";

/// A comparison of two sides that did not alternate.
#[derive(Clone, Debug, Serialize)]
pub struct ComparisonReport {
    pub schema: &'static str,
    /// Baseline side of the ratios.
    pub a: ComparisonSide,
    pub b: ComparisonSide,
    /// Result of the primary metric as text, for each arm under each load; none for single runs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub summary: Vec<String>,
    /// Figures. Ratios are b / a.
    pub rows: Vec<ComparisonRow>,
    /// Differences between plans, programs and machines.
    pub differences: Vec<Difference>,
    pub notes: Vec<String>,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct ComparisonSide {
    pub path: String,
    /// Title of the experiment or of the runs.
    pub title: String,
    /// Start time; of several runs the first and the last.
    pub started_at: String,
}

/// One figure of both sides.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ComparisonRow {
    /// Arm; empty for runs.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub arm: String,
    /// Load; empty for runs.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub load: String,
    pub metric: String,
    pub title: String,
    pub unit: String,
    /// Number of trials or runs of each side.
    pub counts: (usize, usize),
    pub medians: (f64, f64),
    /// Ratio of the medians, b / a.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio: Option<f64>,
    /// Interval of the ratio, where there is enough data for one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval: Option<(f64, f64)>,
    /// Two-sided p of the Mann-Whitney test.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p: Option<f64>,
    /// p after Holm's correction for the number of compared figures; it decides, and it is shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p_adjusted: Option<f64>,
    /// Fraction of pairs in which b is better than a, where there are several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub better_fraction: Option<f64>,
    /// Outcome of b compared with a; absent where nothing was tested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<ComparisonOutcome>,
}

/// A fact that differs between the sides.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    pub path: String,
    /// Value on the first side; absent if it has no such fact.
    pub a: Option<String>,
    /// Value on the second side.
    pub b: Option<String>,
}

pub type NamedRun = (PathBuf, Run);

/// Compares two experiments: arms of the same name under loads of the same name.
///
/// # Errors
/// A directory has no experiment, or cannot be read.
pub fn compare_experiments(a: &Path, b: &Path, effect: f64) -> Result<ComparisonReport, ExperimentDirError> {
    let (first, second) = (ExperimentDir::read(a)?, ExperimentDir::read(b)?);
    let (first_lines, second_lines) = (lines_with_discards(&first), lines_with_discards(&second));
    let (plan_a, plan_b) = (&first.start().plan, &second.start().plan);
    let (mut rows, mut sets) = (Vec::new(), Vec::new());
    for load in plan_a.loads.iter().map(|load| load.name.as_str()) {
        for arm in plan_a.arms.iter().filter(|arm| arm.repeats.is_none()) {
            for metric in &plan_a.metrics {
                let values = |lines: &[TrialSummary]| values(lines, &arm.name, load, &metric.name);
                let (a, b) = (values(&first_lines), values(&second_lines));
                if a.is_empty() || b.is_empty() {
                    continue;
                }
                let load = if load == ONLY_LOAD { "" } else { load };
                rows.push(ComparisonRow {
                    arm: arm.name.clone(),
                    load: load.to_owned(),
                    ..ComparisonRow::default()
                });
                let primary = plan_a.primary().is_some_and(|primary| primary.name == metric.name);
                sets.push(UnpairedSets { a, b, metric, is_primary: primary });
            }
        }
    }
    let mut summary = fill_rows(&mut rows, &sets, effect);
    let mut notes = Vec::new();
    if rows.is_empty() {
        summary = vec![no_common_trials([(plan_a, &first_lines), (plan_b, &second_lines)])];
    } else {
        notes.extend([TIME_CAVEAT, MULTIPLE_COMPARISONS_CAVEAT].map(str::to_owned));
    }
    notes.extend([&first, &second].into_iter().filter_map(unreadable_note));
    let differing = differences("", &facts(&first, plan_a), &facts(&second, plan_b));
    let side = |directory: &ExperimentDir, path: &Path| ComparisonSide {
        path: path.display().to_string(),
        title: directory.start().plan.title.clone(),
        started_at: directory.start().started_at.clone(),
    };
    let (a, b) = (side(&first, a), side(&second, b));
    Ok(ComparisonReport { schema: SCHEMA, a, b, summary, rows, differences: differing, notes })
}

/// Explains why there is nothing to compare, and lists what each side has.
fn no_common_trials(sides: [(&ExperimentPlan, &[TrialSummary]); 2]) -> String {
    let list = |names: Vec<&str>| names.join(", ");
    let [a, b] = sides.map(|(plan, lines)| {
        let arms = plan.arms.iter().filter(|arm| arm.repeats.is_none());
        let counting = lines.iter().filter(|line| line.is_counted()).count();
        format!(
            "arms {} under the loads {}, {} {}",
            list(arms.map(|arm| arm.name.as_str()).collect()),
            list(plan.loads.iter().map(|load| load.name.as_str()).collect()),
            count(counting, "trial"),
            if counting == 1 { "counts" } else { "count" }
        )
    });
    format!(
        "Nothing to compare: no arm and load of the same name has counted trials in both. A: {a}. \
         B: {b}."
    )
}

/// Returns the trials of a directory, with the discarded ones marked.
fn lines_with_discards(directory: &ExperimentDir) -> Vec<TrialSummary> {
    let mut lines = directory.trials().to_vec();
    mark_discarded(&directory.start().plan, &mut lines, &directory.environment_changes());
    lines
}

fn values(lines: &[TrialSummary], arm: &str, load: &str, metric: &str) -> Vec<f64> {
    let matching = lines
        .iter()
        .filter(|line| line.is_counted() && line.position.arm == arm && line.position.load == load);
    matching.filter_map(|line| line.metrics.get(metric).copied()).collect()
}

/// Returns the facts that may differ between two experiments, except their start times and the
/// seeds of their orders.
fn facts(directory: &ExperimentDir, plan: &ExperimentPlan) -> Value {
    let start = directory.start();
    let mut plan = json!(plan);
    if let Some(fields) = plan.as_object_mut() {
        // The other fields contain the file's content; names, titles and the definitions of the figures do
        // not affect the run.
        for name in ["file", "seed", "name", "title", "metrics"] {
            fields.remove(name);
        }
    }
    json!({
        "settings": plan,
        "machine": start.host,
        "environment": start.environment,
        "weir": start.weir,
    })
}

/// Compares two lists of runs, each with at least one run.
pub fn compare_runs(a: &[NamedRun], b: &[NamedRun], effect: f64) -> ComparisonReport {
    let figures = |runs: &[NamedRun]| -> Vec<BTreeMap<String, f64>> {
        runs.iter().map(|(_, run)| figures(run)).collect()
    };
    let (first, second) = (figures(a), figures(b));
    let is_single = a.len() == 1 && b.len() == 1;
    // Where the rate is fixed, the throughput shows no difference.
    let has_rate = a.iter().chain(b).any(|(_, run)| run.rates.offered_per_s.is_some());
    let primary_metric = if has_rate { "p99_ns" } else { "responses_per_s" };
    let all: Vec<ExperimentMetric> = metrics::METRICS.iter().map(metrics::TrialMetric::metric).collect();
    let mut sets = Vec::new();
    for metric in &all {
        let values = |figures: &[BTreeMap<String, f64>]| -> Vec<f64> {
            figures.iter().filter_map(|run_figures| run_figures.get(&metric.name).copied()).collect()
        };
        let (a, b) = (values(&first), values(&second));
        if a.is_empty() || b.is_empty() {
            continue;
        }
        sets.push(UnpairedSets { a, b, metric, is_primary: metric.name == primary_metric });
    }
    let mut rows = vec![ComparisonRow::default(); sets.len()];
    let mut summary = fill_rows(&mut rows, &sets, effect);
    if is_single {
        summary.clear();
        let untested = |row: &ComparisonRow| ComparisonRow {
            interval: None,
            p: None,
            p_adjusted: None,
            better_fraction: None,
            outcome: None,
            ..row.clone()
        };
        rows = rows.iter().map(untested).collect();
    }
    let mut notes = Vec::new();
    if rows.is_empty() {
        let text = "A and B have no metric in common: nothing to compare.";
        summary = vec![text.to_owned()];
    } else {
        notes.push(TIME_CAVEAT.to_owned());
        notes.push(if is_single { SINGLE_RUNS_CAVEAT } else { MULTIPLE_COMPARISONS_CAVEAT }.to_owned());
    }
    let differing = match (a.first(), b.first()) {
        (Some((_, a)), Some((_, b))) => differences("", &run_facts(a), &run_facts(b)),
        _ => Vec::new(),
    };
    for (letter, runs) in [("A", a), ("B", b)] {
        notes.extend(plan_difference_note(letter, runs));
    }
    let (a, b) = (runs_side(a), runs_side(b));
    ComparisonReport { schema: SCHEMA, a, b, summary, rows, differences: differing, notes }
}

/// Reports that the runs of one list have different plans; `None` if they have the same.
fn plan_difference_note(letter: &str, runs: &[NamedRun]) -> Option<String> {
    let ((_, first), others) = runs.split_first()?;
    let (path, _) = others.iter().find(|(_, run)| run.plan != first.plan)?;
    let path = path.display();
    Some(format!("The runs of {letter} are not all of one plan: {path} differs from the first."))
}

/// Returns the facts that may differ between two runs.
fn run_facts(run: &Run) -> Value {
    json!({"settings": run.plan, "machine": run.host, "weir": run.weir})
}

fn runs_side(runs: &[NamedRun]) -> ComparisonSide {
    let names: Vec<String> = runs.iter().map(|(path, _)| path.display().to_string()).collect();
    let times = runs.iter().map(|(_, run)| run.started_at.as_str());
    let (first, last) = (times.clone().min().unwrap_or(""), times.max().unwrap_or(""));
    ComparisonSide {
        path: names.join(" "),
        title: count(runs.len(), "run"),
        started_at: if first == last { first.to_owned() } else { format!("{first} to {last}") },
    }
}

/// Returns the figures of a run by the names of an experiment's metrics.
fn figures(run: &Run) -> BTreeMap<String, f64> {
    metrics::read_metrics(&ExperimentTrial { run: Some(run.clone()), ..ExperimentTrial::default() })
}

/// Puts the figures of all sets into their rows. Returns the result of the primary metric as text.
fn fill_rows(rows: &mut [ComparisonRow], sets: &[UnpairedSets<'_>], effect: f64) -> Vec<String> {
    let mut summary = Vec::new();
    for ((row, set), result) in rows.iter_mut().zip(sets).zip(compare_unpaired(sets, effect, CONFIDENCE)) {
        if set.is_primary {
            let sentence = &result.text;
            summary.push(match (row.arm.as_str(), row.load.as_str()) {
                ("", _) => sentence.clone(),
                (arm, "") => format!("{arm}: {sentence}"),
                (arm, load) => format!("{arm} under {load}: {sentence}"),
            });
        }
        *row = ComparisonRow {
            arm: std::mem::take(&mut row.arm),
            load: std::mem::take(&mut row.load),
            metric: set.metric.name.clone(),
            title: set.metric.title.clone(),
            unit: set.metric.unit.clone(),
            counts: (set.a.len(), set.b.len()),
            medians: (result.a_median.unwrap_or(0.0), result.b_median.unwrap_or(0.0)),
            ratio: result.ratio,
            interval: result.interval,
            p: result.p,
            p_adjusted: result.p_adjusted,
            better_fraction: result.better_fraction,
            outcome: Some(result.outcome),
        };
    }
    summary
}

#[cfg(test)]
mod tests {
    use record::experiment::{Arm, ComparisonOutcome, LoadPlan};

    use super::*;

    #[test]
    fn no_common_trials_are_reported_with_both_sides() {
        let arm = |name: &str| Arm { name: name.to_owned(), ..Arm::default() };
        let plan = |arms: &[&str]| ExperimentPlan {
            arms: arms.iter().map(|name| arm(name)).collect(),
            loads: vec![LoadPlan { name: ONLY_LOAD.to_owned(), ..LoadPlan::default() }],
            ..ExperimentPlan::default()
        };
        let mut line = TrialSummary::default();
        line.position.block = 1;
        let (plan_a, plan_b) = (plan(&["x", "y"]), plan(&["z"]));
        let sentence = no_common_trials([(&plan_a, &[line]), (&plan_b, &[])]);
        let (_, sides) = sentence.split_once("A: ").unwrap();
        let (a, b) = sides.split_once("B: ").unwrap();
        for (side, parts) in [(a, ["x, y", ONLY_LOAD, "1 trial "]), (b, ["z ", ONLY_LOAD, "0 trials"])] {
            assert!(parts.iter().all(|part| side.contains(part)), "{side}");
        }
    }

    #[test]
    fn rows_that_do_not_decide_are_corrected_for_each_other() {
        let metric = ExperimentMetric {
            name: "p50_ns".to_owned(),
            unit: "ns".to_owned(),
            ..ExperimentMetric::default()
        };
        let set = |primary| UnpairedSets {
            a: (0..6).map(|n| 100.0 + 0.1 * f64::from(n)).collect(),
            b: (0..6).map(|n| 90.0 + 0.1 * f64::from(n)).collect(),
            metric: &metric,
            is_primary: primary,
        };
        let mut sets = vec![set(true)];
        sets.extend((0..40).map(|_| set(false)));
        let mut rows = vec![ComparisonRow { arm: "x".to_owned(), ..ComparisonRow::default() }; sets.len()];
        let summary = fill_rows(&mut rows, &sets, EFFECT_DEFAULT);
        assert_eq!(summary.len(), 1);
        assert!(summary[0].starts_with("x: "), "{summary:?}");
        assert_eq!((rows[0].outcome, rows[0].p), (Some(ComparisonOutcome::Faster), rows[0].p_adjusted));
        assert_eq!((rows[1].outcome, rows[1].p), (Some(ComparisonOutcome::Inconclusive), rows[0].p));
        assert!(rows[1].p_adjusted > rows[1].p);
    }
}
