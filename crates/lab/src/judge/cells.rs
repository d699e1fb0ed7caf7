//! Every arm under every load by itself: how its figures are spread, and what limited it.

use std::collections::BTreeMap;

use record::experiment::{Cell, Spread};

use super::blocks::Blocks;
use crate::statistics::bootstrap::{Resampling, percentile};
use crate::statistics::signed_rank::PAIRS_MIN;
use crate::statistics::{median_in_place, quantile_of_sorted};

/// Draws of a median's interval: it is there for every metric of every cell, and decides nothing.
const DRAWS_MAX: u32 = 2_000;
/// How the text of a [`record::trial::Steady`] begins where there were no seconds to tell from: such a
/// trial is not unsteady.
const NOT_TOLD: &str = "not told";

/// The plan's cells, those without a trial too.
pub(super) fn cells(blocks: &Blocks<'_>, draws: u32) -> Vec<Cell> {
    let plan = blocks.plan;
    let loads = plan.loads.iter();
    loads
        .flat_map(|load| plan.arms.iter().map(move |arm| (arm, load)))
        .map(|(arm, load)| cell(blocks, &arm.name, &load.name, draws))
        .collect()
}

fn cell(blocks: &Blocks<'_>, arm: &str, load: &str, draws: u32) -> Cell {
    let mut cell = Cell { arm: arm.to_owned(), load: load.to_owned(), ..Cell::default() };
    let mut figures: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for trial in blocks.cell(arm, load) {
        cell.trials += 1;
        let told = !trial.steady.text.starts_with(NOT_TOLD);
        cell.unsteady += u32::from(trial.steady.from_s.is_none() && told);
        if let Some(code) = &trial.verdict {
            *cell.verdicts.entry(code.clone()).or_insert(0) += 1;
        }
        for (name, value) in trial.metrics.iter().filter(|(_, value)| value.is_finite()) {
            figures.entry(name).or_default().push(*value);
        }
    }
    let draws = draws.min(DRAWS_MAX);
    let resampling =
        Resampling { draws, seed: blocks.plan.seed, confidence: blocks.plan.confidence };
    for (name, mut values) in figures {
        values.sort_unstable_by(f64::total_cmp);
        if let Some(spread) = spread(&values, resampling) {
            cell.metrics.insert(name.to_owned(), spread);
        }
    }
    cell
}

fn spread(sorted: &[f64], resampling: Resampling) -> Option<Spread> {
    let at = |q| quantile_of_sorted(sorted, q);
    let middle = |values: &mut [f64]| median_in_place(values).unwrap_or(f64::NAN);
    let wide_enough = sorted.len() >= PAIRS_MIN;
    Some(Spread {
        min: at(0.0)?,
        p25: at(0.25)?,
        median: at(0.5)?,
        p75: at(0.75)?,
        max: at(1.0)?,
        median_interval: wide_enough.then(|| percentile(sorted, middle, resampling)).flatten(),
    })
}
