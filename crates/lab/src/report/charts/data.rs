//! What several charts read: which trials count, and the trials of a cell merged from their records.
//! Not for drawing.

use std::collections::BTreeSet;

use record::experiment::{
    Cell, Comparison, Experiment, LoadPlan, Metric, Outcome, Pair, TrialLine,
};
use record::histogram::Latencies;
use record::observed::Observed;
use record::trial::Trial;

use crate::report::Raw;
use crate::statistics::median;
use crate::statistics::signed_rank::PAIRS_MIN;
use crate::words;

/// The trials of an arm under a load that are judged.
pub(in crate::report) fn counting<'a>(
    experiment: &'a Experiment,
    arm: &str,
    load: &str,
) -> Vec<&'a TrialLine> {
    let is_of = |line: &&TrialLine| line.place.arm == arm && line.place.load == load;
    experiment.trials.iter().filter(|line| line.counts()).filter(is_of).collect()
}

/// The cell of an arm under a load.
pub(in crate::report) fn cell<'a>(
    experiment: &'a Experiment,
    arm: &str,
    load: &str,
) -> Option<&'a Cell> {
    experiment.cells.iter().find(|cell| cell.arm == arm && cell.load == load)
}

/// The metric with this name.
pub(in crate::report) fn metric<'a>(experiment: &'a Experiment, name: &str) -> Option<&'a Metric> {
    experiment.plan.metrics.iter().find(|metric| metric.name == name)
}

/// A load's level along a factor, where it is a number.
pub(in crate::report) fn level(load: &LoadPlan, factor: &str) -> Option<f64> {
    crate::judge::level(load.levels.get(factor)?)
}

/// The word for what came of a comparison.
pub(in crate::report) fn outcome(experiment: &Experiment, one: &Comparison) -> &'static str {
    one.outcome.of(metric(experiment, &one.metric).map_or("", |metric| metric.unit.as_str()))
}

/// Whether a comparison is of so few blocks that what it says is mostly chance.
pub(in crate::report) fn is_of_few(one: &Comparison) -> bool {
    one.outcome == Outcome::Inconclusive && one.pairs.len() < PAIRS_MIN
}

/// The change that a comparison found, or what stands in its place.
pub(in crate::report) fn change(experiment: &Experiment, one: &Comparison) -> String {
    match one.ratio {
        // How far the same is from itself in a few blocks means nothing.
        Some(_) if one.noise && is_of_few(one) => {
            format!("too few blocks ({} of {PAIRS_MIN})", one.pairs.len())
        }
        Some(ratio) => words::signed(ratio),
        None => without_ratio(experiment, one),
    }
}

/// What stands where there is no ratio: both medians, since there is none to zero.
fn without_ratio(experiment: &Experiment, one: &Comparison) -> String {
    let unit = metric(experiment, &one.metric).map_or("1", |metric| metric.unit.as_str());
    let middle = |pick: fn(&Pair) -> f64| {
        let all: Vec<f64> = one.pairs.iter().map(pick).collect();
        median(&all).map(|middle| words::value(middle, unit))
    };
    match middle(|pair| pair.arm).zip(middle(|pair| pair.baseline)) {
        Some((arm, baseline)) if arm == baseline => format!("{arm} in both"),
        Some((arm, baseline)) => format!("{arm}, {baseline}"),
        None => "no figures".to_owned(),
    }
}

/// The trials of a cell, merged: counts are added, never averaged.
#[derive(Debug, Default)]
pub(in crate::report) struct Merged {
    /// Response latency of the last byte, from the due time.
    pub(in crate::report) latencies: Latencies,
    /// Trials that are in it.
    pub(in crate::report) trials: usize,
    /// Trials that count but have no record of a load.
    pub(in crate::report) without: usize,
    /// What drove them.
    pub(in crate::report) drivers: BTreeSet<String>,
    /// Responses per second of each.
    pub(in crate::report) rates: Vec<f64>,
    /// Responses of the best second of all.
    pub(in crate::report) best_second: Option<f64>,
    /// Processors that the generator used, of each: user and kernel.
    pub(in crate::report) generator: Vec<(f64, f64)>,
    /// Processors that the subject used, of each: user and kernel.
    pub(in crate::report) subject: Vec<(f64, f64)>,
}

/// Merges the counting trials of a cell from their records.
pub(in crate::report) fn merged(
    experiment: &Experiment,
    raw: &dyn Raw,
    arm: &str,
    load: &str,
) -> Merged {
    let mut merged = Merged::default();
    for line in counting(experiment, arm, load) {
        let added = raw.trial(&line.file).and_then(|trial| add(&mut merged, &trial));
        match added {
            Some(()) => merged.trials += 1,
            None => merged.without += 1,
        }
    }
    merged
}

fn add(merged: &mut Merged, trial: &Trial) -> Option<()> {
    merged.drivers.insert(trial.driver.program.clone());
    let window = trial.run.as_ref().map(|run| (run.window.from_s, run.window.to_s));
    let window = window.unwrap_or((0.0, trial.duration_s));
    let of_run = trial.run.iter().flat_map(|run| &run.observed);
    let mut machines = of_run.chain(&trial.observed);
    merged.subject.extend(machines.find_map(|seen| role_cpus(seen, "subject", window)));
    let run = trial.run.as_ref()?;
    let latencies = Latencies::decode(&run.latency.last_byte.response.hdr).ok()?;
    merged.latencies.add(&latencies);
    merged.rates.push(run.goodput_per_s());
    let window_s = run.window.length_s();
    if window_s > 0.0 {
        merged.generator.push((run.cpu.user_s / window_s, run.cpu.system_s / window_s));
    }
    // A partial second at the end is no second.
    let whole =
        run.intervals.iter().filter(|interval| interval.measured && interval.length_s > 0.9);
    let best = whole
        .map(|interval| interval.good.unwrap_or(interval.responses) as f64 / interval.length_s);
    merged.best_second =
        best.fold(merged.best_second, |best, rate| Some(best.map_or(rate, |best| best.max(rate))));
    Some(())
}

/// Mean processors of a role over the samples of the load, user and kernel; longer samples weigh more.
fn role_cpus(seen: &Observed, role: &str, (from_s, to_s): (f64, f64)) -> Option<(f64, f64)> {
    let index = seen.role_at(role)?;
    let (mut user_s, mut system_s, mut all_s) = (0.0, 0.0, 0.0);
    for sample in seen.samples_within(from_s, to_s) {
        let Some(role) = sample.roles.get(index) else { continue };
        user_s += role.user_cpus * sample.length_s;
        system_s += role.system_cpus * sample.length_s;
        all_s += sample.length_s;
    }
    (all_s > 0.0).then(|| (user_s / all_s, system_s / all_s))
}

/// The mean; none of nothing.
pub(in crate::report) fn mean(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let (sum, count) =
        values.into_iter().fold((0.0, 0_u32), |(sum, count), value| (sum + value, count + 1));
    (count > 0).then(|| sum / f64::from(count))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample::{ARMS, BLOCKS, LOADS, NoRaw, sample};

    #[test]
    fn histograms_are_added_and_only_of_trials_that_count() {
        let (experiment, raw) = sample();
        let cell = merged(&experiment, &raw, ARMS[0], LOADS[0]);
        assert_eq!((cell.trials, cell.without), (BLOCKS as usize, 0));
        assert_eq!(cell.latencies.count(), u64::from(BLOCKS) * 4_000);
        assert!(cell.best_second.unwrap() > mean(cell.rates).unwrap() * 0.98);
        assert_eq!(cell.subject.len(), BLOCKS as usize);
        let nothing = merged(&experiment, &NoRaw, ARMS[0], LOADS[0]);
        assert_eq!((nothing.trials, nothing.without), (0, BLOCKS as usize));
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
