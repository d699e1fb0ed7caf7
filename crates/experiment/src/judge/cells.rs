//! Cells by themselves: the spread of the figures and the limit of every arm under every load.

use std::collections::BTreeMap;

use record::experiment::{ExperimentCell, ValueDistribution};

use super::judged_trials::JudgedTrials;
use stats::bootstrap::{Resampling, percentile_interval};
use stats::quantiles::{median_in_place, quantile_of_sorted};
use stats::signed_rank::PAIRS_MIN;

/// Maximum number of draws of a median's interval. Every metric of every cell has one, and none
/// decides.
const DRAWS_MAX: u32 = 2_000;
/// Prefix of the text of a [`record::trial::SteadyState`] that had too few seconds: such a trial
/// is not unsteady.
const UNDECIDED_PREFIX: &str = "undecided";

/// Returns the plan's cells, also those without a trial.
pub(super) fn summarize_cells(blocks: &JudgedTrials<'_>, draws: u32) -> Vec<ExperimentCell> {
    let plan = blocks.plan;
    let loads = plan.loads.iter();
    loads
        .flat_map(|load| plan.arms.iter().map(move |arm| (arm, load)))
        .map(|(arm, load)| summarize_cell(blocks, &arm.name, &load.name, draws))
        .collect()
}

fn summarize_cell(blocks: &JudgedTrials<'_>, arm: &str, load: &str, draws: u32) -> ExperimentCell {
    let mut cell = ExperimentCell { arm: arm.to_owned(), load: load.to_owned(), ..ExperimentCell::default() };
    let mut figures: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for trial in blocks.cell(arm, load) {
        cell.trials += 1;
        let is_decided = !trial.steady.text.starts_with(UNDECIDED_PREFIX);
        cell.unsteady += u32::from(trial.steady.from_s.is_none() && is_decided);
        if let Some(code) = &trial.verdict {
            *cell.verdicts.entry(code.clone()).or_insert(0) += 1;
        }
        for (name, value) in trial.metrics.iter().filter(|(_, value)| value.is_finite()) {
            figures.entry(name).or_default().push(*value);
        }
    }
    let draws = draws.min(DRAWS_MAX);
    let resampling = Resampling { draws, seed: blocks.plan.seed, confidence: blocks.plan.confidence };
    for (name, mut values) in figures {
        values.sort_unstable_by(f64::total_cmp);
        if let Some(spread) = value_spread(&values, resampling) {
            cell.metrics.insert(name.to_owned(), spread);
        }
    }
    cell
}

fn value_spread(sorted: &[f64], resampling: Resampling) -> Option<ValueDistribution> {
    let at = |q| quantile_of_sorted(sorted, q);
    let median_of = |values: &mut [f64]| median_in_place(values).unwrap_or(f64::NAN);
    let wide_enough = sorted.len() >= PAIRS_MIN;
    Some(ValueDistribution {
        min: at(0.0)?,
        p25: at(0.25)?,
        median: at(0.5)?,
        p75: at(0.75)?,
        max: at(1.0)?,
        median_interval: wide_enough.then(|| percentile_interval(sorted, median_of, resampling)).flatten(),
    })
}
