//! Data for several charts: the trials that count, and the trials of a cell merged from their
//! records.

use std::collections::BTreeSet;

use record::experiment::{
    Experiment, ExperimentCell, ExperimentMetric, ExperimentPlan, LoadPlan, TrialSummary,
};
use record::histogram::LatencyHistogram;
use record::observed::MachineObservation;
use record::trial::ExperimentTrial;

use crate::TrialRecords;
use crate::plot::NOISE_SERIES;

/// Returns the number of an arm's series, which is its colour in every chart: the position among
/// the arms, without the A/A arm, which is grey.
pub(crate) fn series_index(plan: &ExperimentPlan, arm: &str) -> usize {
    let own = plan.arms.iter().filter(|arm| arm.repeats.is_none());
    own.enumerate().find(|(_, own)| own.name == arm).map_or(NOISE_SERIES, |(index, _)| index)
}

/// Returns whether there are several loads, so that a chart has to name them.
pub(crate) fn has_several_loads(plan: &ExperimentPlan) -> bool {
    plan.loads.len() > 1
}

/// Returns the judged trials of an arm under a load.
pub(crate) fn counted_trials<'a>(experiment: &'a Experiment, arm: &str, load: &str) -> Vec<&'a TrialSummary> {
    let matches_cell = |line: &&TrialSummary| line.position.arm == arm && line.position.load == load;
    experiment.trials.iter().filter(|line| line.is_counted()).filter(matches_cell).collect()
}

/// Returns the cell of an arm under a load.
pub(crate) fn cell<'a>(experiment: &'a Experiment, arm: &str, load: &str) -> Option<&'a ExperimentCell> {
    experiment.cells.iter().find(|cell| cell.arm == arm && cell.load == load)
}

pub(crate) fn metric<'a>(experiment: &'a Experiment, name: &str) -> Option<&'a ExperimentMetric> {
    experiment.plan.metrics.iter().find(|metric| metric.name == name)
}

/// Returns the unit of a metric; empty if it is unknown.
pub(crate) fn metric_unit<'a>(experiment: &'a Experiment, name: &str) -> &'a str {
    metric(experiment, name).map_or("", |metric| metric.unit.as_str())
}

/// Returns a load's level of a factor, if it is a number.
pub(crate) fn level(load: &LoadPlan, factor: &str) -> Option<f64> {
    experiment::judge::parse_level(load.levels.get(factor)?)
}

/// Merged trials of a cell: counts are added, never averaged.
#[derive(Debug, Default)]
pub(crate) struct MergedTrials {
    /// Latency from the due time to the last byte of the response.
    pub(crate) latencies: LatencyHistogram,
    pub(crate) trials: usize,
    /// Number of trials that count but have no record of a load.
    pub(crate) trials_without_record: usize,
    pub(crate) drivers: BTreeSet<String>,
    /// Responses per second of each trial.
    pub(crate) rates: Vec<f64>,
    pub(crate) best_second: Option<f64>,
    /// CPUs that the generator used in each trial: user and kernel.
    pub(crate) generator: Vec<(f64, f64)>,
    /// CPUs that the subject used in each trial: user and kernel.
    pub(crate) subject: Vec<(f64, f64)>,
}

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
    let run_observations = trial.run.iter().flat_map(|run| &run.observed);
    let mut machines = run_observations.chain(&trial.observed);
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
        assert!(cell.best_second.unwrap() > stats::mean(&cell.rates).unwrap() * 0.98);
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
