//! What trials say of arms: pairs by block, ratios with their intervals, an outcome of four, what has to
//! be known before it is believed, and all of it in words. Pure: the same trials and the same plan give
//! the same judgement.
//!
//! The method, and why it is this one:
//! - A trial is one value. What happens within it depends on what happened a moment before, so that its
//!   thousands of latencies are not thousands of observations (Kalibera and Jones, "Rigorous Benchmarking
//!   in Reasonable Time", ISMM 2013).
//! - Arms are compared within blocks: r = ln(arm / baseline). What drifts slower than a block falls out.
//! - The estimate is exp(mean of r). A median needs half as many blocks again for the same width, and
//!   its interval from ten blocks can only end at one of the ten; outliers are flagged and widen the
//!   interval, which is honest.
//! - The interval is the wider at each end of the BCa bootstrap's and Student's. With six to ten blocks a
//!   bootstrap alone holds the true value in 85 to 90 % instead of 95 % of experiments: it knows no noise
//!   beyond what it saw.
//! - Faster and slower take three things: an interval without 1, Wilcoxon's signed-rank p below
//!   1 - confidence after Holm's correction over arms and loads, and a difference larger than that of the
//!   baseline from itself (A/A).
//! - When to stop is decided by the interval's width alone, never by where it lies: looking again after
//!   every block until something is there would find something in every A/A comparison, sooner or later.
//!
//! `simulation.rs` holds the rates at which this is wrong.
//!
//! Not for running trials, and not for pictures of them.

mod blocks;
mod bottleneck;
mod cells;
mod compare;
mod decide;
mod ladder;
mod said;
mod summary;
mod unpaired;
pub mod warnings;
mod words;

#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use record::experiment::{Cell, Comparison, Plan, TrialLine, Warning};

use crate::experiment::tested;
use crate::statistics::bootstrap::DRAWS;
use crate::statistics::many::can_conclude;
use blocks::Blocks;
pub use ladder::level;
pub use unpaired::{Set, Unpaired, unpaired};
use warnings::limits::generator_limit;

/// What the judge has to know and cannot see from the plan and the trials' figures. What is not known is
/// left as it is by default; the warnings that need it then say nothing, or that it is not known.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Extras {
    /// Share of the subject's processor time that counting its calls took, by the trial's number, where
    /// any were counted.
    pub counting_shares: BTreeMap<u32, f64>,
    /// Numbers of the trials during which functions were sampled.
    pub profiled: BTreeSet<u32>,
    /// Names of the loads that are closed loops at full speed: without a rate that they keep to.
    pub closed_loads: BTreeSet<String>,
    /// How many requests were in flight on average, by the trial's number, where the driver tells
    /// (`generator.in_flight_mean` of a run's record): what Little's law is audited with.
    pub in_flight: BTreeMap<u32, f64>,
    /// What of the machine or its settings changed while the experiment ran, a line each.
    pub environment_changes: Vec<String>,
    /// Why no trial of an arm under a load tells a metric, whatever comes of it: by arm, load and metric.
    pub untold: BTreeMap<(String, String, String), String>,
}

/// What trials say.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Judged {
    /// Every arm under every load, in the plan's order.
    pub cells: Vec<Cell>,
    /// Every arm against the baseline: by load, then metric, then arm.
    pub comparisons: Vec<Comparison>,
    /// What has to be known before they are believed.
    pub warnings: Vec<Warning>,
    /// The arms under loads of which the load generator was the limit.
    pub generator_limited: BTreeSet<(String, String)>,
    /// In words: the first sentence is the answer.
    pub summary: Vec<String>,
}

/// Judges an experiment, a whole one or what there is of it so far.
#[must_use]
pub fn judge(plan: &Plan, trials: &[TrialLine], extras: &Extras) -> Judged {
    judge_with(plan, trials, extras, DRAWS)
}

fn judge_with(plan: &Plan, trials: &[TrialLine], extras: &Extras, draws: u32) -> Judged {
    let blocks = Blocks::of(plan, trials);
    let cells = cells::cells(&blocks, draws);
    let comparisons = compare::compare(&blocks, &cells, draws);
    let case = warnings::Case { blocks: &blocks, cells: &cells, comparisons: &comparisons, extras };
    let warnings = warnings::all(&case);
    let summary = summary::summary(&case, &warnings, draws);
    let limited = cells.iter().filter(|cell| generator_limit(&blocks, cell).is_some());
    let generator_limited = limited.map(|cell| (cell.arm.clone(), cell.load.clone())).collect();
    Judged { cells, comparisons, warnings, generator_limited, summary }
}

/// Whether there are blocks enough: the stopping rule, to be asked after each whole block and fixed
/// before the first. From `blocks_min` on, once half the width of the logarithmic interval of every
/// comparison in the primary metric (the A/A ones too) is below half of the smallest effect that
/// matters. Where the intervals lie plays no part.
#[must_use]
pub fn settled(plan: &Plan, trials: &[TrialLine]) -> bool {
    settled_with(plan, trials, DRAWS)
}

fn settled_with(plan: &Plan, trials: &[TrialLine], draws: u32) -> bool {
    let blocks = Blocks::of(plan, trials);
    let Some(metric) = plan.primary() else { return false };
    let tested = tested(plan);
    let half_width_max = decide::effect_log(plan.effect) / 2.0;
    let mut any = false;
    for load in &plan.loads {
        for arm in blocks.arms() {
            let pairs = blocks.pairs(&arm.name, &load.name, &metric.name);
            let few = pairs.len() < plan.blocks_min as usize
                || !can_conclude(tested, pairs.len(), plan.confidence);
            let narrow = !few
                && compare::logs(&pairs)
                    .is_some_and(|logs| compare::is_narrow(&logs, plan, draws, half_width_max));
            if !narrow {
                return false;
            }
            any = true;
        }
    }
    any
}
