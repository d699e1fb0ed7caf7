//! Schema of one trial of an experiment, `weir.trial/1`: one arm under one load, run once with new
//! processes. The raw data of an experiment is one file per trial; none is ever overwritten.
//! Conclusions of an experiment are in [`crate::experiment`].

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::observed::{CallCount, MachineObservation, Neighbour, UnobservableMetric};
use crate::run::{Diagnosis, Run, WeirVersion};

pub const SCHEMA: &str = "weir.trial/1";

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ExperimentTrial {
    pub schema: String,
    /// Version of weir that wrote the record.
    pub weir: WeirVersion,
    #[serde(flatten)]
    pub position: TrialPosition,
    /// Start time of its load, RFC 3339.
    pub started_at: String,
    pub duration_s: f64,
    /// Duration of the unrecorded warm-up with the same load.
    pub warm_up_s: f64,
    /// Command lines as run, by role: `subject`, `origin`, `driver`.
    pub commands: BTreeMap<String, String>,
    /// Load generator.
    pub driver: TrialDriver,
    /// Record of the load; absent if the driver is another program.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub run: Option<Run>,
    /// Observations of the machine, if the driver is another program (otherwise they are in `run`).
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub observed: Option<MachineObservation>,
    /// Limit of the subject, if it could be determined.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub diagnosis: Option<Diagnosis>,
    /// Figures by the names of the plan's metrics; a figure that this driver or machine does not
    /// report is absent.
    pub metrics: BTreeMap<String, f64>,
    /// Possible disturbances, independent of its results.
    pub covariates: Covariates,
    /// Time at which its rate became steady.
    pub steady: SteadyState,
    /// Reason why it does not count; decided by covariates, never by its results.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub discarded: Option<DiscardReason>,
    /// Reason why there are no figures.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub failed: Option<String>,
    /// File with the folded stacks of its profile, beside this one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub folded: Option<String>,
    /// Calls of the function in question, if they were counted.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub calls: Option<FunctionCalls>,
    /// Requested figures that could not be observed: functions, calls.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub not_observable: Vec<UnobservableMetric>,
}

/// Calls of one function of the subject, counted for a part of the load, with the cost of counting.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FunctionCalls {
    /// Count; its `cost_cpus` is the cost of counting for the subject while it was on.
    #[serde(flatten)]
    pub count: CallCount,
    /// Description of the counted target: which allocator, in which file.
    pub target: String,
    pub cost_per_call_ns: f64,
    /// True if that cost was measured on this machine, and is not a known figure.
    pub cost_is_measured: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TrialPosition {
    /// Number in the order of running, from 1.
    pub number: u32,
    /// Number of the block, from 1: each has every arm under every load once. 0: the trial is never
    /// judged, and `kind` has its purpose.
    pub block: u32,
    /// Number of the attempt at that block under its load, from 1: after a discarded trial every
    /// arm is run again under the same load.
    pub attempt: u32,
    pub arm: String,
    pub load: String,
    #[serde(skip_serializing_if = "TrialKind::is_judged", default)]
    pub kind: TrialKind,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TrialKind {
    #[default]
    Judged,
    /// Trial that determines the necessary warm-up.
    Pilot,
    /// Trial in which calls are counted, which slows the subject down.
    Probe,
}

impl TrialKind {
    pub fn is_judged(&self) -> bool {
        *self == Self::Judged
    }
}

/// Load generator of a trial.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrialDriver {
    /// `weir`, `wrk`, `ab`, `h2load`, `h1load` or `oha`.
    pub program: String,
    pub version: String,
    /// Output of a driver other than weir.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub output: Option<String>,
    /// Figures that it does not report, or reports in an unusual way.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub notes: Vec<String>,
}

/// Possible disturbances of a trial. Figures that the machine does not report are absent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Covariates {
    /// Fraction of the machine's time that the hypervisor gave to other guests.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub steal_fraction: Option<f64>,
    /// CPUs used by processes outside the experiment.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub foreign_cpus: Option<f64>,
    /// Programs outside the experiment with the most CPU time, at most three.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub neighbours: Vec<Neighbour>,
    /// 99th percentile of the wake-up lag of a sleeping thread, on the worst CPU, in ns.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub wake_up_p99_ns: Option<u64>,
    /// 99th percentile of the generator's own lags behind the due times of an open loop, in ns.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub generator_lag_p99_ns: Option<u64>,
    /// Fraction of the median or the 99th percentile that was the generator's own part, the larger of both.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub generator_part_fraction: Option<f64>,
    /// Fraction of one core that the generator's busiest thread used.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub generator_busiest_fraction: Option<f64>,
    /// Fraction of the requests that failed or got a status of 400 or above.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub error_fraction: Option<f64>,
    /// Fraction of the periods in which a quota throttled the subject, if the experiment gave it
    /// none.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub throttled_fraction: Option<f64>,
    /// Change of the wall clock while it ran, in s.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub clock_step_s: Option<f64>,
}

/// Time at which a rate became steady.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SteadyState {
    /// Second from which on it was steady; absent: never, or there are no seconds to judge.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub from_s: Option<f64>,
    pub text: String,
}

/// Reason why a trial does not count.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiscardReason {
    /// Covariate: its name in [`Covariates`]; or [`BLOCK_RERUN`], [`BLOCK_INCOMPLETE`],
    /// [`BLOCK_RESTARTED`].
    pub code: String,
    /// Observation and limit.
    pub text: String,
}

/// Code of a trial whose block was, or must be, run again under its load.
pub const BLOCK_RERUN: &str = "block_rerun";
/// Code of a trial whose block was not completed.
pub const BLOCK_INCOMPLETE: &str = "block_incomplete";

/// Code of a trial whose block was open when the machine, weir or a program changed, and which
/// started again.
pub const BLOCK_RESTARTED: &str = "block_restarted";

impl DiscardReason {
    /// Returns true if only its block does not count, and nothing disturbed the trial itself.
    pub fn is_block_only(&self) -> bool {
        self.code == BLOCK_RERUN || self.code == BLOCK_INCOMPLETE
    }
}
