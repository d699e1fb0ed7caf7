//! Figures of a cell (an arm under a load), with its trials merged; and the names of cells by the
//! levels of their factors.

use std::collections::{BTreeMap, BTreeSet};

use record::experiment::Experiment;
use record::sorted::CollectSorted;

use super::trials::{cell, merge_trials};
use crate::TrialRecords;

/// Quantiles of a cell, each with its name and its metric for trials without a histogram.
pub(crate) const QUANTILES: [(f64, &str, &str); 5] = [
    (0.5, "p50", "p50_ns"),
    (0.75, "p75", "p75_ns"),
    (0.9, "p90", "p90_ns"),
    (0.99, "p99", "p99_ns"),
    (1.0, "max", "max_ns"),
];

pub(crate) struct CellFigures {
    pub(crate) rate: Option<f64>,
    pub(crate) best_second: Option<f64>,
    pub(crate) latencies_ns: [Option<f64>; QUANTILES.len()],
    /// CPUs that the generator used: user and kernel.
    pub(crate) generator: Option<(f64, f64)>,
    /// CPUs that the subject used: user and kernel.
    pub(crate) subject: Option<(f64, f64)>,
    pub(crate) trials: usize,
}

impl CellFigures {
    /// Reads the figures from the records, and missing ones from the medians of the experiment. Adds
    /// the drivers of the trials.
    pub(crate) fn read(
        experiment: &Experiment,
        raw: &dyn TrialRecords,
        (arm, load): (&str, &str),
        drivers: &mut BTreeSet<String>,
    ) -> Self {
        let mut merged = merge_trials(experiment, raw, arm, load);
        drivers.append(&mut merged.drivers);
        let latencies = &merged.latencies;
        let spread = cell(experiment, arm, load);
        let median = |name: &str| spread?.metrics.get(name).map(|spread| spread.median);
        let latencies_ns = QUANTILES.map(|(quantile, _, name)| match latencies.is_empty() {
            true => median(name),
            false => Some(latencies.value_at_quantile(quantile) as f64),
        });
        let mean = |cpus: &[(f64, f64)]| {
            let (user, system): (Vec<f64>, Vec<f64>) = cpus.iter().copied().unzip();
            stats::mean(&user).zip(stats::mean(&system))
        };
        Self {
            rate: stats::mean(&merged.rates).or_else(|| median("responses_per_s")),
            best_second: merged.best_second,
            latencies_ns,
            generator: mean(&merged.generator),
            subject: mean(&merged.subject),
            trials: merged.trials + merged.trials_without_record,
        }
    }
}

pub(crate) fn factors<'a>(levels: impl Iterator<Item = &'a BTreeMap<String, String>>) -> BTreeSet<String> {
    levels.flat_map(|levels| levels.keys().cloned()).collect_set()
}

/// Returns the columns that name a row: its factors, or its name if it has none.
pub(crate) fn key_columns(factors: &BTreeSet<String>, what: &str) -> Vec<String> {
    if factors.is_empty() { vec![what.to_owned()] } else { factors.iter().cloned().collect() }
}

/// Returns the cells of these columns.
pub(crate) fn keys(factors: &BTreeSet<String>, levels: &BTreeMap<String, String>, name: &str) -> Vec<String> {
    if factors.is_empty() {
        return vec![name.to_owned()];
    }
    factors.iter().map(|factor| levels.get(factor).cloned().unwrap_or_default()).collect()
}
