//! Data for several charts: the trials that count, and the trials of a cell merged from their
//! records.

use std::collections::BTreeSet;

use experiment::format;
use record::experiment::{
    BlockPair, Comparison, ComparisonOutcome, Experiment, ExperimentCell, ExperimentMetric, LoadPlan,
    TrialSummary,
};
use record::histogram::LatencyHistogram;
use record::observed::MachineObservation;
use record::trial::ExperimentTrial;

use crate::TrialRecords;
use stats::median;
use stats::signed_rank::PAIRS_MIN;

/// Returns the judged trials of an arm under a load.
pub(crate) fn counted_trials<'a>(experiment: &'a Experiment, arm: &str, load: &str) -> Vec<&'a TrialSummary> {
    let matches_cell = |line: &&TrialSummary| line.position.arm == arm && line.position.load == load;
    experiment.trials.iter().filter(|line| line.is_counted()).filter(matches_cell).collect()
}

/// Returns the cell of an arm under a load.
pub(crate) fn cell<'a>(experiment: &'a Experiment, arm: &str, load: &str) -> Option<&'a ExperimentCell> {
    experiment.cells.iter().find(|cell| cell.arm == arm && cell.load == load)
}

/// Returns the metric with this name.
pub(crate) fn metric<'a>(experiment: &'a Experiment, name: &str) -> Option<&'a ExperimentMetric> {
    experiment.plan.metrics.iter().find(|metric| metric.name == name)
}

/// Returns a load's level of a factor, if it is a number.
pub(crate) fn level(load: &LoadPlan, factor: &str) -> Option<f64> {
    experiment::judge::parse_level(load.levels.get(factor)?)
}

/// Returns the word for the outcome of a comparison.
pub(crate) fn outcome(experiment: &Experiment, comparison: &Comparison) -> &'static str {
    comparison
        .outcome
        .as_str_for_unit(metric(experiment, &comparison.metric).map_or("", |metric| metric.unit.as_str()))
}

/// Returns whether a comparison has so few blocks that its result is mostly chance.
pub(crate) fn has_few_blocks(comparison: &Comparison) -> bool {
    comparison.outcome == ComparisonOutcome::Inconclusive && comparison.pairs.len() < PAIRS_MIN
}

/// Returns the change that a comparison found, or a replacement text.
pub(crate) fn change(experiment: &Experiment, comparison: &Comparison) -> String {
    match comparison.ratio {
        // With few blocks the difference of the baseline from itself means nothing.
        Some(_) if comparison.noise && has_few_blocks(comparison) => {
            format!("too few blocks ({} of {PAIRS_MIN})", comparison.pairs.len())
        }
        Some(ratio) => format::signed_change(ratio),
        None => change_without_ratio(experiment, comparison),
    }
}

/// Returns the text for a comparison without a ratio: both medians, since zero has no ratio.
fn change_without_ratio(experiment: &Experiment, comparison: &Comparison) -> String {
    let unit = metric(experiment, &comparison.metric).map_or("1", |metric| metric.unit.as_str());
    let middle = |pick: fn(&BlockPair) -> f64| {
        let all: Vec<f64> = comparison.pairs.iter().map(pick).collect();
        median(&all).map(|middle| format::value(middle, unit))
    };
    match middle(|pair| pair.arm).zip(middle(|pair| pair.baseline)) {
        Some((arm, baseline)) if arm == baseline => format!("{arm} in both"),
        Some((arm, baseline)) => format!("{arm}, {baseline}"),
        None => "no figures".to_owned(),
    }
}

/// Merged trials of a cell: counts are added, never averaged.
#[derive(Debug, Default)]
pub(crate) struct MergedTrials {
    /// Latency from the due time to the last byte of the response.
    pub(crate) latencies: LatencyHistogram,
    /// Number of merged trials.
    pub(crate) trials: usize,
    /// Number of trials that count but have no record of a load.
    pub(crate) trials_without_record: usize,
    /// Drivers of the trials.
    pub(crate) drivers: BTreeSet<String>,
    /// Responses per second of each trial.
    pub(crate) rates: Vec<f64>,
    /// Responses in the best second of all trials.
    pub(crate) best_second: Option<f64>,
    /// CPUs that the generator used in each trial: user and kernel.
    pub(crate) generator: Vec<(f64, f64)>,
    /// CPUs that the subject used in each trial: user and kernel.
    pub(crate) subject: Vec<(f64, f64)>,
}

/// Merges the counting trials of a cell from their records.
pub(crate) fn merge_trials(
    experiment: &Experiment,
    raw: &dyn TrialRecords,
    arm: &str,
    load: &str,
) -> MergedTrials {
    let mut merged = MergedTrials::default();
    for line in counted_trials(experiment, arm, load) {
        let added = raw.trial(&line.file).and_then(|trial| add_trial(&mut merged, &trial));
        match added {
            Some(()) => merged.trials += 1,
            None => merged.trials_without_record += 1,
        }
    }
    merged
}

fn add_trial(merged: &mut MergedTrials, trial: &ExperimentTrial) -> Option<()> {
    merged.drivers.insert(trial.driver.program.clone());
    let window = trial.run.as_ref().map(|run| (run.window.from_s, run.window.to_s));
    let window = window.unwrap_or((0.0, trial.duration_s));
    let of_run = trial.run.iter().flat_map(|run| &run.observed);
    let mut machines = of_run.chain(&trial.observed);
    merged.subject.extend(machines.find_map(|observed| role_cpus(observed, "subject", window)));
    let run = trial.run.as_ref()?;
    let latencies = LatencyHistogram::decode(&run.latency.last_byte.response.hdr).ok()?;
    merged.latencies.add(&latencies);
    merged.rates.push(run.goodput_per_s());
    let window_s = run.window.length_s();
    if window_s > 0.0 {
        merged.generator.push((run.cpu.user_s / window_s, run.cpu.system_s / window_s));
    }
    // A partial second at the end does not count.
    let full_seconds = run.intervals.iter().filter(|interval| interval.measured && interval.length_s > 0.9);
    let best =
        full_seconds.map(|interval| interval.good.unwrap_or(interval.responses) as f64 / interval.length_s);
    merged.best_second =
        best.fold(merged.best_second, |best, rate| Some(best.map_or(rate, |best| best.max(rate))));
    Some(())
}

/// Returns the mean number of CPUs of a role over the samples of the load, user and kernel,
/// weighted by sample length.
fn role_cpus(observed: &MachineObservation, role: &str, (from_s, to_s): (f64, f64)) -> Option<(f64, f64)> {
    let index = observed.role_index(role)?;
    let (mut user_s, mut system_s, mut all_s) = (0.0, 0.0, 0.0);
    for sample in observed.samples_in_range(from_s, to_s) {
        let Some(role) = sample.roles.get(index) else { continue };
        user_s += role.user_cpus * sample.length_s;
        system_s += role.system_cpus * sample.length_s;
        all_s += sample.length_s;
    }
    (all_s > 0.0).then(|| (user_s / all_s, system_s / all_s))
}

/// Returns the mean; `None` without values.
pub(crate) fn mean(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let (sum, count) = values.into_iter().fold((0.0, 0_u32), |(sum, count), value| (sum + value, count + 1));
    (count > 0).then(|| sum / f64::from(count))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic::{ARMS, BLOCKS, LOADS, NoRecords, synthetic_experiment};

    #[test]
    fn histograms_are_added_and_only_of_trials_that_count() {
        let (experiment, raw) = synthetic_experiment();
        let cell = merge_trials(&experiment, &raw, ARMS[0], LOADS[0]);
        assert_eq!((cell.trials, cell.trials_without_record), (BLOCKS as usize, 0));
        assert_eq!(cell.latencies.count(), u64::from(BLOCKS) * 4_000);
        assert!(cell.best_second.unwrap() > mean(cell.rates).unwrap() * 0.98);
        assert_eq!(cell.subject.len(), BLOCKS as usize);
        let nothing = merge_trials(&experiment, &NoRecords, ARMS[0], LOADS[0]);
        assert_eq!((nothing.trials, nothing.trials_without_record), (0, BLOCKS as usize));
    }

    #[test]
    fn a_level_is_a_number_or_none() {
        let load = |text: &str| LoadPlan {
            levels: [("rate".to_owned(), text.to_owned())].into(),
            ..LoadPlan::default()
        };
        assert_eq!(level(&load("10k/s"), "rate"), Some(10_000.0));
        assert_eq!(level(&load("many"), "rate"), None);
        assert_eq!(level(&load("1"), "connections"), None);
    }
}
