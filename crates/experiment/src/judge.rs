//! Judgement of trials: pairs by block, ratios with their intervals, one of four outcomes,
//! warnings, and a summary in words. Pure: the same trials and the same plan give the same
//! judgement.
//!
//! The method, and the reasons for it:
//! - A trial is one value. The latencies within a trial depend on each other, so thousands of them
//!   are not thousands of observations (Kalibera and Jones, "Rigorous Benchmarking in Reasonable
//!   Time", ISMM 2013).
//! - Arms are compared within blocks: r = ln(arm / baseline). A drift that is slower than a block
//!   cancels out.
//! - The estimate is exp(mean of r). A median needs half as many blocks again for the same width,
//!   and its interval from ten blocks can only end at one of the ten. Outliers are flagged and
//!   widen the interval, which is honest.
//! - The interval is the wider at each end of the BCa bootstrap's and Student's. With six to ten
//!   blocks a bootstrap alone contains the true value in 85 to 90 % instead of 95 % of experiments:
//!   it knows no noise beyond its sample.
//! - Faster and slower need three things: an interval without 1, Wilcoxon's signed-rank p below 1 -
//!   confidence after Holm's correction over arms and loads, and a difference larger than that of
//!   the baseline from itself (A/A).
//! - The stopping rule uses the interval's width alone, never its position. Checking after every
//!   block until a difference appears would sooner or later find one in every A/A comparison.
//!
//! `simulation.rs` verifies the error rates.
//!
//! Running trials and drawing charts are elsewhere.

mod bottleneck;
mod cells;
mod compare;
mod decide;
mod judged_trials;
mod ladder;
mod phrases;
mod scaling;
mod sentence;
mod summary;
mod unpaired;
pub mod warnings;

#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use record::experiment::{Comparison, ExperimentCell, ExperimentPlan, ScalingSummary, TrialSummary, Warning};
use stats::bootstrap::DRAWS;
use stats::multiple_comparisons::can_conclude;

use crate::definition::tested_comparisons;
use judged_trials::JudgedTrials;
pub use ladder::parse_level;
pub use summary::answer_of_summary;
pub use unpaired::{UnpairedComparison, UnpairedSets, compare_unpaired};
use warnings::limits::generator_limit;

/// Facts that the judge cannot derive from the plan and the trials' figures. Unknown facts keep
/// their defaults; the warnings that need them are then omitted, or report that they are unknown.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JudgeExtras {
    /// Fraction of the subject's CPU time that counting its calls took, by trial number, for trials
    /// that counted any.
    pub counting_fractions: BTreeMap<u32, f64>,
    /// Numbers of the trials during which functions were sampled.
    pub profiled: BTreeSet<u32>,
    /// Names of the loads that are closed loops at full speed, without a fixed rate.
    pub closed_loads: BTreeSet<String>,
    /// Mean number of requests begun and without their response, by trial number, if the driver reports
    /// it. They count from the due time, as latencies do. The check with Little's law uses it.
    pub begun: BTreeMap<u32, f64>,
    /// Changes of the machine or its settings during the experiment, one a line.
    pub environment_changes: Vec<String>,
    /// Reason why no trial of an arm under a load can have a metric: by arm, load and metric.
    pub unavailable_metrics: BTreeMap<(String, String, String), String>,
}

/// Judgement of an experiment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ExperimentJudgement {
    /// Every arm under every load, in the plan's order.
    pub cells: Vec<ExperimentCell>,
    /// Every arm against the baseline: by load, then metric, then arm.
    pub comparisons: Vec<Comparison>,
    /// Warnings that limit the trust in the comparisons.
    pub warnings: Vec<Warning>,
    /// Pairs of arm and load in which the load generator was the limit.
    pub generator_limited: BTreeSet<(String, String)>,
    /// Scaling of the primary metric along each factor with numeric levels.
    pub scalings: Vec<ScalingSummary>,
    /// Summary in sentences; the first one is the result.
    pub summary: Vec<String>,
}

/// Judges an experiment, complete or still running.
#[must_use]
pub fn judge(plan: &ExperimentPlan, trials: &[TrialSummary], extras: &JudgeExtras) -> ExperimentJudgement {
    judge_with(plan, trials, extras, DRAWS)
}

fn judge_with(
    plan: &ExperimentPlan,
    trials: &[TrialSummary],
    extras: &JudgeExtras,
    draws: u32,
) -> ExperimentJudgement {
    let blocks = JudgedTrials::new(plan, trials);
    let cells = cells::summarize_cells(&blocks, draws);
    let comparisons = compare::compare_all(&blocks, &cells, draws);
    let input = warnings::WarningInput { blocks: &blocks, cells: &cells, comparisons: &comparisons, extras };
    let warnings = warnings::all_warnings(&input);
    let summary = summary::summary(&input, &warnings, draws);
    let limited = cells.iter().filter(|cell| generator_limit(&blocks, cell).is_some());
    let generator_limited: BTreeSet<_> = limited.map(|cell| (cell.arm.clone(), cell.load.clone())).collect();
    let scalings = scaling::fit_factors(plan, trials, &generator_limited);
    ExperimentJudgement { cells, comparisons, warnings, generator_limited, scalings, summary }
}

/// Returns whether there are enough blocks: the stopping rule, fixed before the first block and
/// checked after each complete one. It holds from `blocks_min` on, if half the width of the
/// logarithmic interval of every comparison in the primary metric (including A/A) is below half of
/// the smallest effect that matters. The position of the intervals plays no part.
#[must_use]
pub fn is_precise_enough(plan: &ExperimentPlan, trials: &[TrialSummary]) -> bool {
    is_precise_enough_with(plan, trials, DRAWS)
}

fn is_precise_enough_with(plan: &ExperimentPlan, trials: &[TrialSummary], draws: u32) -> bool {
    let blocks = JudgedTrials::new(plan, trials);
    let Some(metric) = plan.primary() else { return false };
    let tested = tested_comparisons(plan);
    let half_width_max = decide::effect_log(plan.effect) / 2.0;
    let mut any = false;
    for load in &plan.loads {
        for arm in blocks.arms() {
            let pairs = blocks.pairs(&arm.name, &load.name, &metric.name);
            let few =
                pairs.len() < plan.blocks_min as usize || !can_conclude(tested, pairs.len(), plan.confidence);
            let narrow = !few
                && judged_trials::log_ratios(&pairs)
                    .is_some_and(|logs| compare::is_narrow(&logs, plan, draws, half_width_max));
            if !narrow {
                return false;
            }
            any = true;
        }
    }
    any
}
