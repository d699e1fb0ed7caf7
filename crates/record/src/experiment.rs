//! The schema of an experiment, `weir.experiment/1`: arms under loads in blocks, and what they say of each
//! other. All that a report needs in words and figures; the trials' raw records lie beside it
//! ([`crate::trial`]).

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::facts::HostFacts;
use crate::run::Weir;
use crate::trial::{Covariates, Discarded, Place, Steady};

/// The name of this schema.
pub const SCHEMA: &str = "weir.experiment/1";

/// The load that has no name: an experiment without `[loads]` has this one.
pub const ONLY_LOAD: &str = "load";

/// An experiment and what came of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Experiment {
    /// [`SCHEMA`].
    pub schema: String,
    /// Which weir wrote it.
    pub weir: Weir,
    /// The command line.
    pub command: Vec<String>,
    /// When it began, RFC 3339.
    pub started_at: String,
    /// How long its trials took, pauses between a kill and a resume left out.
    pub duration_s: f64,
    /// Whether it was ended before its rule said so.
    pub partial: bool,
    /// How often it was taken up again after it had been ended.
    pub resumed: u32,
    /// The machine.
    pub host: HostFacts,
    /// What else is known of the machine and the programs: versions, settings.
    pub environment: BTreeMap<String, String>,
    /// What was fixed before the first trial.
    pub plan: Plan,
    /// Why there are not more blocks.
    pub stopped: Stopped,
    /// Every trial, the discarded and the failed ones too, in the order of running.
    pub trials: Vec<TrialLine>,
    /// Every arm under every load.
    pub cells: Vec<Cell>,
    /// Every arm against the baseline, by load and metric; the A/A ones are those with `noise`.
    pub comparisons: Vec<Comparison>,
    /// What has to be known before the comparisons are believed.
    pub warnings: Vec<Warning>,
    /// How throughput grows along a factor of numbers, by load.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub scalings: Vec<ScalingLine>,
    /// What came of it, in words: the first sentence is the answer.
    pub summary: Vec<String>,
}

/// What was fixed before the first trial.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Its short name: letters, digits, `-`.
    pub name: String,
    /// What is asked, in a line.
    pub title: String,
    /// The file, as it was.
    pub file: String,
    /// Texts that were given in place of the file's own parameters, by their names.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub parameters: BTreeMap<String, String>,
    /// Seed of every order and resampling.
    pub seed: u64,
    /// The arm that others are held against.
    pub baseline: String,
    /// The arms, the baseline first and then the baseline again (the A/A arm).
    pub arms: Vec<Arm>,
    /// The loads.
    pub loads: Vec<LoadPlan>,
    /// What is measured, the primary metric first.
    pub metrics: Vec<Metric>,
    /// The smallest effect that matters, as a share: 0.02 is 2 %.
    pub effect: f64,
    /// Of intervals: 0.95.
    pub confidence: f64,
    /// Fewest blocks.
    pub blocks_min: u32,
    /// Most blocks.
    pub blocks_max: u32,
    /// How often the arms of a block under a load may be run again because of a covariate, as a share of
    /// all of these.
    pub reruns_max_share: f64,
    /// Length of each load.
    pub duration_s: f64,
    /// How long each load runs before, unrecorded; absent: to be found out by pilots. An experiment's
    /// record has what they found.
    pub warm_up_s: Option<f64>,
    /// Bounds of the covariates, by their names; beyond it a trial is discarded.
    pub discard: BTreeMap<String, f64>,
    /// Whether the subject's functions are sampled.
    pub profile: bool,
    /// What calls of the subject are counted (`allocations`, `malloc`, `futex`), in trials of their own.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub calls: Option<String>,
}

impl Plan {
    /// The metric that decides.
    #[must_use]
    pub fn primary(&self) -> Option<&Metric> {
        self.metrics.first()
    }

    /// The arm with this name.
    #[must_use]
    pub fn arm(&self, name: &str) -> Option<&Arm> {
        self.arms.iter().find(|arm| arm.name == name)
    }
}

/// One side of a comparison.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arm {
    /// Its name.
    pub name: String,
    /// What it is, in a line.
    pub title: String,
    /// What it has in place of the file's own values, by key: `subject.env.LD_PRELOAD`. Flags of the load and
    /// separate places of a file each by itself: `load.flags -c`, `files.nginx.conf line 12`.
    pub changes: BTreeMap<String, String>,
    /// The arm that this one repeats, if it is there to show the noise (A/A).
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub again: Option<String>,
    /// Its place along factors, by their names.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub levels: BTreeMap<String, String>,
}

/// One load.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadPlan {
    /// Its name; [`ONLY_LOAD`] when there is only one without a name.
    pub name: String,
    /// What it is, in a line.
    pub title: String,
    /// What it has in place of the file's own values, by key.
    pub changes: BTreeMap<String, String>,
    /// Its place along factors, by their names: connections, a rate.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub levels: BTreeMap<String, String>,
}

/// Which way is good.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    /// More is.
    Higher,
    /// Less is.
    #[default]
    Lower,
}

/// One metric.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Metric {
    /// Its name: `responses_per_s`.
    pub name: String,
    /// In words.
    pub title: String,
    /// `1/s`, `ns`, `us`, `bytes`, `share`, `cpus` or `1` for a plain number.
    pub unit: String,
    /// Which way is good.
    pub better: Better,
}

/// Why there are not more blocks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stopped {
    /// `precise` (every primary interval is narrow enough), `most_blocks`, `reruns` (too much had
    /// to be run again), `failed` (a program does not run) or `interrupted`.
    pub code: String,
    /// In words.
    pub text: String,
}

impl ScalingLine {
    /// In words, with the arm and the load that it is of.
    #[must_use]
    pub fn said(&self) -> String {
        let who = [&*self.arm, &*self.load].into_iter().filter(|name| !name.is_empty());
        let who: Vec<&str> = who.collect();
        if who.is_empty() {
            self.text.clone()
        } else {
            format!("{}: {}", who.join(", "), self.text)
        }
    }
}

/// What the report says of one trial.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TrialLine {
    /// Where it stands.
    #[serde(flatten)]
    pub place: Place,
    /// When it began.
    pub started_at: String,
    /// Its record, below the experiment's folder.
    pub file: String,
    /// Its figures.
    pub metrics: BTreeMap<String, f64>,
    /// What could have disturbed it.
    pub covariates: Covariates,
    /// When it became steady.
    pub steady: Steady,
    /// What limited it: a verdict's code, where one was given.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub verdict: Option<String>,
    /// Why it does not count.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub discarded: Option<Discarded>,
    /// Why it has no figures.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub failed: Option<String>,
}

impl TrialLine {
    /// Whether it is judged: not a pilot, not failed, not discarded, and its block counts.
    #[must_use]
    pub fn counts(&self) -> bool {
        self.place.block > 0 && self.discarded.is_none() && self.failed.is_none()
    }
}

/// How many blocks have a trial that counts.
#[must_use]
pub fn blocks_counting<'a>(trials: impl IntoIterator<Item = &'a TrialLine>) -> usize {
    let counting = trials.into_iter().filter(|trial| trial.counts());
    counting.map(|trial| trial.place.block).collect::<BTreeSet<_>>().len()
}

/// An arm under a load.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// The arm.
    pub arm: String,
    /// The load.
    pub load: String,
    /// Trials that count.
    pub trials: u32,
    /// Each metric over those trials.
    pub metrics: BTreeMap<String, Spread>,
    /// Verdicts of its trials, by code, with how many had it.
    pub verdicts: BTreeMap<String, u32>,
    /// Trials whose rate never became steady.
    pub unsteady: u32,
}

/// How a figure is spread over trials.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// The least.
    pub min: f64,
    /// A quarter is no larger.
    pub p25: f64,
    /// Half is no larger.
    pub median: f64,
    /// Three quarters are no larger.
    pub p75: f64,
    /// The largest.
    pub max: f64,
    /// Interval of the median, by bootstrap over trials; absent with fewer than six.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub median_interval: Option<(f64, f64)>,
}

/// What a comparison says. Better and worse follow the metric's direction; for a metric of speed they are
/// said as faster and slower.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// Better by more than chance explains.
    Faster,
    /// Worse by more than chance explains.
    Slower,
    /// Whatever difference there is, it is smaller than the smallest that matters.
    Equivalent,
    /// Nothing can be said: never "no difference".
    #[default]
    Inconclusive,
}

impl Outcome {
    /// The word for it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Faster => "faster",
            Self::Slower => "slower",
            Self::Equivalent => "equivalent",
            Self::Inconclusive => "inconclusive",
        }
    }

    /// The word for it in a metric of this unit: only a speed is faster or slower, other results are better
    /// or worse.
    #[must_use]
    pub fn of(self, unit: &str) -> &'static str {
        let is_speed = matches!(unit, "1/s" | "ns");
        match self {
            Self::Faster if !is_speed => "better",
            Self::Slower if !is_speed => "worse",
            _ => self.word(),
        }
    }
}

/// One arm against the baseline, in one metric, under one load. Ratios are arm / baseline.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// The arm.
    pub arm: String,
    /// What it is held against.
    pub baseline: String,
    /// The load.
    pub load: String,
    /// The metric.
    pub metric: String,
    /// Whether it is the metric that decides.
    pub primary: bool,
    /// Whether both are the same thing: how far apart their results are is noise.
    pub noise: bool,
    /// The blocks.
    pub pairs: Vec<Pair>,
    /// Ratio of the arm to the baseline; absent without pairs.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub ratio: Option<f64>,
    /// Its interval, at the plan's confidence; absent with too few pairs.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub interval: Option<(f64, f64)>,
    /// Two-sided, Wilcoxon's signed-rank test over the blocks.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub p: Option<f64>,
    /// The same after Holm's correction for how many comparisons were made.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub p_adjusted: Option<f64>,
    /// Probability that a trial of the arm is better than one of the baseline, ties count half.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub better_share: Option<f64>,
    /// Cliff's delta, -1 to 1, positive when the arm is better.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub cliffs_delta: Option<f64>,
    /// What it says.
    pub outcome: Outcome,
    /// Why the ratio is only a bound, where it is: both arms were stopped by different things.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub bound: Option<String>,
    /// In words, with its figures.
    pub text: String,
}

/// Both arms of one block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Pair {
    /// The block.
    pub block: u32,
    /// The baseline's figure.
    pub baseline: f64,
    /// The arm's.
    pub arm: f64,
}

/// What has to be known before a comparison is believed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Warning {
    /// A fixed name: `two_factors`, `different_bottlenecks`, `probe_overhead`, `noise_floor`, `unsteady`, …
    pub code: String,
    /// The arm that it is about, if one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub arm: Option<String>,
    /// What was seen, and what it means.
    pub text: String,
}

/// The Universal Scalability Law along a factor of numbers, under one load.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ScalingLine {
    /// The factor.
    pub factor: String,
    /// The load; empty when the loads themselves are the factor's levels.
    pub load: String,
    /// The arm; empty when the arms themselves are.
    pub arm: String,
    /// What was measured: level, and the median of the primary metric.
    pub points: Vec<(f64, f64)>,
    /// The fit; absent with too few points, and then `text` says so.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub fit: Option<crate::edge::Scaling>,
    /// Where p99 begins to grow faster along the factor; absent where it does not, or with too few points.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub knee: Option<crate::edge::Knee>,
    /// In words.
    pub text: String,
}
