//! Schema of an experiment, `weir.experiment/1`: arms under loads in blocks, and their comparisons.
//! It has everything for a report in words and figures; the trials' raw records are stored beside
//! it ([`crate::trial`]).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::facts::HostFacts;
use crate::run::{Answer, WeirVersion};
use crate::sorted::CollectSorted;
use crate::trial::{Covariates, DiscardReason, SteadyState, TrialPosition};

pub const SCHEMA: &str = "weir.experiment/1";

/// Name of an unnamed load: an experiment without `[loads]` has only this one.
pub const ONLY_LOAD: &str = "load";

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Experiment {
    pub schema: String,
    /// Version of weir that wrote the record.
    pub weir: WeirVersion,
    pub command: Vec<String>,
    /// Start time, RFC 3339.
    pub started_at: String,
    /// Duration of its trials, without pauses between a kill and a resume.
    pub duration_s: f64,
    /// True if it was stopped before its stopping rule applied.
    pub partial: bool,
    /// Number of times that it was resumed after a stop.
    pub resumed: u32,
    /// Machine that it ran on.
    pub host: HostFacts,
    /// Other facts about the machine and the programs: versions, settings.
    pub environment: BTreeMap<String, String>,
    /// Settings fixed before the first trial.
    pub plan: ExperimentPlan,
    /// Reason why there are not more blocks.
    pub stopped: StopReason,
    /// All trials, including discarded and failed ones, in the order of running.
    pub trials: Vec<TrialSummary>,
    /// All arms under all loads.
    pub cells: Vec<ExperimentCell>,
    /// Comparisons of each arm with the baseline, by load and metric; those with `noise` are the
    /// A/A ones.
    pub comparisons: Vec<Comparison>,
    /// Facts to know before the comparisons are believed.
    pub warnings: Vec<Warning>,
    /// Growth of throughput along a numeric factor, by load.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub scalings: Vec<ScalingSummary>,
    /// Result in words: the first sentence answers the experiment's question.
    pub summary: Vec<String>,
    /// Result in three sentences; absent in records from older versions.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub answer: Option<Answer>,
    /// Step that would finish it; absent if every comparison in the primary metric has its conclusion.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub finish: Option<FinishStep>,
}

impl Experiment {
    /// Returns true if every arm has a conclusion in the primary metric under every load.
    pub fn is_concluded(&self) -> bool {
        let mut claims = primary_claims(&self.comparisons).peekable();
        claims.peek().is_some() && claims.all(|claim| claim.outcome != ComparisonOutcome::Inconclusive)
    }
}

/// Returns the comparisons in the primary metric that an experiment has to conclude: of every arm, and of the baseline
/// with itself if there is no other.
pub fn primary_claims(comparisons: &[Comparison]) -> impl Iterator<Item = &Comparison> {
    let has_arms = comparisons.iter().any(|comparison| comparison.primary && !comparison.noise);
    comparisons.iter().filter(move |comparison| comparison.primary && comparison.noise != has_arms)
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FinishStep {
    pub command: String,
    /// Estimated number of further blocks.
    pub blocks: u32,
    /// Estimated duration; absent before the first trial.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub duration_s: Option<f64>,
}

/// Settings fixed before the first trial.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ExperimentPlan {
    /// Short name: letters, digits, `-`.
    pub name: String,
    /// Question of the experiment, in a line.
    pub title: String,
    pub file: String,
    /// Texts given in place of the file's own parameters, by parameter name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub parameters: BTreeMap<String, String>,
    /// Seed of all orders and of resampling.
    pub seed: u64,
    /// Arm that the others are compared with.
    pub baseline: String,
    /// Arms: the baseline first, then the baseline again (the A/A arm).
    pub arms: Vec<Arm>,
    pub loads: Vec<LoadPlan>,
    /// Loads of the file that the machine cannot run.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub left_out: Vec<LeftOutLoad>,
    /// Metrics, the primary one first.
    pub metrics: Vec<ExperimentMetric>,
    /// Smallest effect that matters, as a fraction: 0.02 is 2 %.
    pub effect: f64,
    /// Confidence level of the intervals: 0.95.
    pub confidence: f64,
    pub blocks_min: u32,
    pub blocks_max: u32,
    /// Maximum number of reruns because of a covariate. One rerun is all arms of a block under a
    /// load; the number is a fraction of all such groups.
    pub reruns_max_fraction: f64,
    /// Duration of each load.
    pub duration_s: f64,
    /// Duration of the unrecorded warm-up before each load; absent: pilots determine it. An
    /// experiment's record has the result of the pilots.
    pub warm_up_s: Option<f64>,
    /// Limits of the covariates, by name; a trial beyond a limit is discarded.
    pub discard: BTreeMap<String, f64>,
    /// True if the subject's functions are sampled.
    pub profile: bool,
    /// Counted calls of the subject (`allocations`, `malloc`, `futex`), in separate trials.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub calls: Option<String>,
}

impl ExperimentPlan {
    pub fn primary(&self) -> Option<&ExperimentMetric> {
        self.metrics.first()
    }

    pub fn arm(&self, name: &str) -> Option<&Arm> {
        self.arms.iter().find(|arm| arm.name == name)
    }
}

/// Variant of the subject: one side of a comparison.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arm {
    pub name: String,
    /// Description in a line.
    pub title: String,
    /// Values that replace the file's own values, by key: `subject.env.LD_PRELOAD`. Each load flag
    /// and each position in a file has its own key: `load.flags -c`, `files.nginx.conf line 12`.
    pub changes: BTreeMap<String, String>,
    /// Arm that this one repeats, if it shows the noise (A/A).
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub repeats: Option<String>,
    /// Its levels of the factors, by factor name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub levels: BTreeMap<String, String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadPlan {
    /// Name of the load; [`ONLY_LOAD`] for a single unnamed load.
    pub name: String,
    /// Description in a line.
    pub title: String,
    /// Values that replace the file's own values, by key.
    pub changes: BTreeMap<String, String>,
    /// Its levels of the factors, by factor name: connections, a rate.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub levels: BTreeMap<String, String>,
}

/// Load of the file that is not a part of the plan.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOutLoad {
    /// Its name in the file, without levels of factors.
    pub name: String,
    /// Reason: "it needs 8 CPUs, and this machine has 2".
    pub reason: String,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BetterDirection {
    Higher,
    #[default]
    Lower,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExperimentMetric {
    /// Name: `responses_per_s`.
    pub name: String,
    pub title: String,
    /// `1/s`, `ns`, `us`, `bytes`, `share`, `cpus` or `1` for a plain number.
    pub unit: String,
    pub better: BetterDirection,
}

/// Reason why there are not more blocks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StopReason {
    /// `concluded` (every comparison in the primary metric has its conclusion), `max_blocks`, `reruns` (too
    /// many reruns were necessary), `failed` (a program does not run) or `interrupted`. Records of older
    /// versions also have `precise`: every primary interval was narrow enough.
    pub code: String,
    pub text: String,
}

impl ScalingSummary {
    /// Returns the text, prefixed with its arm and load.
    pub fn labelled_text(&self) -> String {
        let labels = [&*self.arm, &*self.load].into_iter().filter(|name| !name.is_empty());
        let labels: Vec<&str> = labels.collect();
        if labels.is_empty() { self.text.clone() } else { format!("{}: {}", labels.join(", "), self.text) }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TrialSummary {
    #[serde(flatten)]
    pub position: TrialPosition,
    pub started_at: String,
    /// File of its record, relative to the experiment's directory.
    pub file: String,
    pub metrics: BTreeMap<String, f64>,
    /// Possible disturbances.
    pub covariates: Covariates,
    /// Time at which the rate became steady.
    pub steady: SteadyState,
    /// Limit of the subject: a verdict's code, if there is one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub verdict: Option<String>,
    /// Reason why it does not count.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub discarded: Option<DiscardReason>,
    /// Reason why it has no figures.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub failed: Option<String>,
}

impl TrialSummary {
    /// Returns true if the trial is judged: not a pilot, not failed, not discarded, and its block
    /// counts.
    pub fn is_counted(&self) -> bool {
        self.position.block > 0 && self.discarded.is_none() && self.failed.is_none()
    }
}

pub fn counted_blocks<'a>(trials: impl IntoIterator<Item = &'a TrialSummary>) -> usize {
    let counted = trials.into_iter().filter(|trial| trial.is_counted());
    counted.map(|trial| trial.position.block).collect_set().len()
}

/// Results of one arm under one load.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ExperimentCell {
    pub arm: String,
    pub load: String,
    pub trials: u32,
    /// Distribution of each metric over those trials.
    pub metrics: BTreeMap<String, ValueDistribution>,
    /// Number of its trials with each verdict, by code.
    pub verdicts: BTreeMap<String, u32>,
    /// Number of trials whose rate never became steady.
    pub unsteady: u32,
}

/// Distribution of a figure over trials.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ValueDistribution {
    pub min: f64,
    /// First quartile.
    pub p25: f64,
    pub median: f64,
    /// Third quartile.
    pub p75: f64,
    pub max: f64,
    /// Confidence interval of the median, by bootstrap over trials; absent with fewer than six.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub median_interval: Option<(f64, f64)>,
}

/// Result of a comparison. Better and worse follow the metric's direction; for a metric of speed
/// they are called faster and slower.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ComparisonOutcome {
    /// Better by more than chance explains.
    Faster,
    /// Worse by more than chance explains.
    Slower,
    /// Any difference is smaller than the smallest effect that matters.
    Equivalent,
    /// No conclusion is possible: this never means "no difference".
    #[default]
    Inconclusive,
}

impl ComparisonOutcome {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Faster => "faster",
            Self::Slower => "slower",
            Self::Equivalent => "equivalent",
            Self::Inconclusive => "inconclusive",
        }
    }

    /// Returns the word for the outcome in a metric of this unit: only speeds are faster or slower,
    /// other metrics are better or worse.
    pub fn as_str_for_unit(self, unit: &str) -> &'static str {
        let is_speed = matches!(unit, "1/s" | "ns");
        match self {
            Self::Faster if !is_speed => "better",
            Self::Slower if !is_speed => "worse",
            _ => self.as_str(),
        }
    }
}

/// Comparison of one arm with the baseline, in one metric, under one load. Ratios are arm /
/// baseline.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    pub arm: String,
    /// Name of the arm that it is compared with.
    pub baseline: String,
    pub load: String,
    pub metric: String,
    /// True for the metric that decides.
    pub primary: bool,
    /// True if both arms are identical: the difference of their results is noise.
    pub noise: bool,
    /// Paired figures, one pair per block.
    pub pairs: Vec<BlockPair>,
    /// Number of blocks after which the outcome stood; absent while it is open, and in records from older
    /// versions.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub concluded_after: Option<u32>,
    /// Numbers of blocks in which the arm was above, and below, every run of the baseline.
    #[serde(default)]
    pub beyond: (u32, u32),
    /// Blocks that are set aside, because the CPUs that other programs took could explain their difference.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub set_aside: Vec<u32>,
    /// Estimate of the number of blocks at which the present figures would conclude it; absent if it is
    /// concluded, or if no practical number would.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub blocks_needed: Option<u32>,
    /// Ratio of the arm to the baseline; absent without pairs.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub ratio: Option<f64>,
    /// Confidence interval of the ratio, which holds over all looks at the plan's confidence; absent with too few
    /// pairs.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub interval: Option<(f64, f64)>,
    /// Two-sided p-value over the blocks at the look with the smallest corrected one: Student's or that of the
    /// signs; without a ratio Wilcoxon's.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub p: Option<f64>,
    /// p-value corrected for the number of looks and of comparisons.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub p_adjusted: Option<f64>,
    /// Probability that a trial of the arm is better than one of the baseline; ties count half.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub better_fraction: Option<f64>,
    /// Cliff's delta, -1 to 1, positive if the arm is better.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub cliffs_delta: Option<f64>,
    pub outcome: ComparisonOutcome,
    /// Reason why the ratio is only a bound: the two arms had different bottlenecks.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub bound: Option<String>,
    /// Result in words, with its figures.
    pub text: String,
}

/// Figures of both arms in one block. The baseline's is the geometric mean of its two runs (the mean, if one is zero);
/// that of the A/A comparison is its first run. Records from older versions have the first run everywhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BlockPair {
    pub block: u32,
    pub baseline: f64,
    pub arm: f64,
}

/// Fact to know before a comparison is believed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Warning {
    /// Fixed name: `two_factors`, `different_bottlenecks`, `probe_overhead`, `noise_floor`,
    /// `unsteady`, …
    pub code: String,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub arm: Option<String>,
    /// Observation and its meaning.
    pub text: String,
}

/// Universal Scalability Law along a numeric factor, under one load.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ScalingSummary {
    pub factor: String,
    /// Name of the load; empty if the loads themselves are the factor's levels.
    pub load: String,
    /// Name of the arm; empty if the arms themselves are the factor's levels.
    pub arm: String,
    /// Measured points: level, and the median of the primary metric.
    pub points: Vec<(f64, f64)>,
    /// Fit; absent with too few points, and then `text` says so.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub fit: Option<crate::capacity_search::Scaling>,
    /// Level at which p99 begins to grow faster along the factor; absent if it does not, or with
    /// too few points.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub knee: Option<crate::capacity_search::Knee>,
    /// Result in words.
    pub text: String,
}
