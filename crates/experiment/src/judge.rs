//! Judgement of trials: pairs by block, ratios with their intervals, one of four outcomes,
//! warnings, and a summary in words. Pure: the same trials and the same plan give the same
//! judgement.
//!
//! The method, and the reasons for it:
//! - A trial is one value. The latencies within a trial depend on each other, so thousands of them
//!   are not thousands of observations (Kalibera and Jones, "Rigorous Benchmarking in Reasonable
//!   Time", ISMM 2013).
//! - Arms are compared within blocks, with the mean of both runs of the baseline: a drift that is slower
//!   than a block cancels out.
//! - The rule is [`stats::sequential`]: after each block from the fourth on it looks at every claim, and the error is
//!   spent over the looks and the claims. A conclusion is final, and the experiment ends when every claim in the
//!   primary metric has one. `docs/judgement.md` has the simulated errors and the power.
//! - The estimate is exp(mean of the contrasts). A median needs half as many blocks again for the same
//!   width. Outliers are flagged and widen the interval, which is honest.
//! - Disturbances count relative to the effect: a factor of 1.9 is not explained by a neighbour on a tenth of a CPU.
//!   The difference of the baseline from itself (A/A) is part of the rule, and a warning.
//!
//! Running trials and drawing charts are elsewhere.

mod arm_titles;
mod bottleneck;
mod cells;
mod compare;
mod decide;
mod finish;
mod judged_trials;
mod ladder;
mod phrases;
mod scaling;
mod sentence;
mod summary;
mod unpaired;
pub mod warnings;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use record::experiment::{
    Comparison, ExperimentCell, ExperimentPlan, FinishStep, ScalingSummary, TrialSummary, Warning,
    primary_claims,
};
use stats::bootstrap::DRAWS;

use arm_titles::ArmTitles;
pub use arm_titles::arm_title;
use judged_trials::JudgedTrials;
pub use ladder::parse_level;
use record::sorted::CollectSorted;
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
    /// Number of the machine's CPUs; 0 if unknown: disturbances are then unknown, too.
    pub cpus: f64,
    /// Mean duration of a block with everything around its trials, in seconds.
    pub block_s: Option<f64>,
    /// Command line that resumes the experiment, and the code of the reason why it stopped.
    pub resume: Option<(String, String)>,
    /// Reason why no trial of an arm under a load can have a metric: by arm, load and metric.
    pub unavailable_metrics: BTreeMap<(String, String, String), String>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct ExperimentJudgement {
    /// Every arm under every load, in the plan's order.
    pub cells: Vec<ExperimentCell>,
    /// Every arm against the baseline: by load, then metric, then arm.
    pub comparisons: Vec<Comparison>,
    pub warnings: Vec<Warning>,
    /// Pairs of arm and load in which the load generator was the limit.
    pub generator_limited: BTreeSet<(String, String)>,
    /// Scaling of the primary metric along each factor with numeric levels.
    pub scalings: Vec<ScalingSummary>,
    /// Summary in sentences; the first one is the result.
    pub summary: Vec<String>,
    pub finish: Option<FinishStep>,
}

/// Judges an experiment, complete or still running. Its sentences have the titles of the arms, its fields their names.
pub fn judge(plan: &ExperimentPlan, trials: &[TrialSummary], extras: &JudgeExtras) -> ExperimentJudgement {
    let titles = ArmTitles::new(plan);
    if titles.is_empty() {
        return judge_arms(plan, trials, extras);
    }
    let (plan, trials) = (titles.titled_plan(plan), titles.titled_trials(trials));
    titles.with_names(judge_arms(&plan, &trials, &titles.titled_extras(extras)))
}

fn judge_arms(plan: &ExperimentPlan, trials: &[TrialSummary], extras: &JudgeExtras) -> ExperimentJudgement {
    let blocks = JudgedTrials::new(plan, trials, extras.cpus);
    let cells = cells::summarize_cells(&blocks, DRAWS);
    let comparisons = compare::compare_all(&blocks, &plan.metrics, &cells, extras.block_s);
    let input = warnings::WarningInput { blocks: &blocks, cells: &cells, comparisons: &comparisons, extras };
    let warnings = warnings::all_warnings(&input);
    let finish = finish::finish_step(&input);
    let summary = summary::summary(&input, &warnings, finish.as_ref(), DRAWS);
    let limited = cells.iter().filter(|cell| generator_limit(&blocks, cell).is_some());
    let generator_limited: BTreeSet<_> =
        limited.map(|cell| (cell.arm.clone(), cell.load.clone())).collect_set();
    let scalings = scaling::fit_factors(plan, trials, &generator_limited);
    ExperimentJudgement { cells, comparisons, warnings, generator_limited, scalings, summary, finish }
}

/// Returns whether the experiment has its conclusions: the stopping rule, checked after each complete block. `cpus` is
/// the number of the machine's CPUs.
pub fn is_concluded(plan: &ExperimentPlan, trials: &[TrialSummary], cpus: f64) -> bool {
    let blocks = JudgedTrials::new(plan, trials, cpus);
    let metrics = &plan.metrics[..plan.metrics.len().min(1)];
    let comparisons = compare::compare_all(&blocks, metrics, &[], None);
    let mut claims = primary_claims(&comparisons).peekable();
    claims.peek().is_some() && claims.all(|claim| claim.concluded_after.is_some())
}
