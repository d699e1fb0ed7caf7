//! The schema of one trial of an experiment, `weir.trial/1`: one arm under one load, run once with fresh
//! programs. The raw data of an experiment is a file of these each; none is ever written over.
//! Not for what an experiment concludes: that is in [`crate::experiment`].

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::observed::{CallCount, Missing, Observed};
use crate::run::{Diagnosis, Run, Weir};

/// The name of this schema.
pub const SCHEMA: &str = "weir.trial/1";

/// One trial.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Trial {
    /// [`SCHEMA`].
    pub schema: String,
    /// Which weir wrote it.
    pub weir: Weir,
    /// Where it stands in its experiment.
    #[serde(flatten)]
    pub place: Place,
    /// When its load began, RFC 3339.
    pub started_at: String,
    /// Length of the load.
    pub duration_s: f64,
    /// How long the same load ran before, unrecorded.
    pub warm_up_s: f64,
    /// Command lines as they were run, by role: `subject`, `origin`, `driver`.
    pub commands: BTreeMap<String, String>,
    /// What drove the load.
    pub driver: Driver,
    /// The load's record; absent where the driver is another program.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub run: Option<Run>,
    /// What was seen of the machine, where the driver is another program (else it is in `run`).
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub observed: Option<Observed>,
    /// What limited it, where that could be said.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub diagnosis: Option<Diagnosis>,
    /// Its figures by the names of the plan's metrics; one that this driver or machine does not tell is
    /// absent.
    pub metrics: BTreeMap<String, f64>,
    /// What could have disturbed it, whatever it measured.
    pub covariates: Covariates,
    /// When its rate became steady.
    pub steady: Steady,
    /// Why it does not count; decided by covariates, never by what it measured.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub discarded: Option<Discarded>,
    /// Why there are no figures.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub failed: Option<String>,
    /// The file with the folded stacks of its profile, beside this one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub folded: Option<String>,
    /// Calls of the function that the experiment asks about, where they were counted.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub calls: Option<Calls>,
    /// What was asked for and could not be looked at: functions, calls.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub not_observable: Vec<Missing>,
}

/// Calls of one function of the subject that were counted for a part of the load, and what that cost.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Calls {
    /// The count; its `cost_cpus` is what counting took of the subject while it was on.
    #[serde(flatten)]
    pub count: CallCount,
    /// What exactly was counted: which allocator, in which file.
    pub of: String,
    /// Cost of one counted call, in ns.
    pub hit_ns: f64,
    /// Whether that cost was measured on this machine, and not taken from others.
    pub hit_is_measured: bool,
}

/// Where a trial stands in its experiment.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Place {
    /// Its number in the order of running, from 1.
    pub number: u32,
    /// Its block, from 1: each has every arm under every load once. 0: it is never judged, and `kind`
    /// says what it is for.
    pub block: u32,
    /// Which try at that block under its load, from 1: with a discarded trial every arm is run again under
    /// the same load.
    pub attempt: u32,
    /// Its arm.
    pub arm: String,
    /// Its load.
    pub load: String,
    /// What it is for.
    #[serde(skip_serializing_if = "Kind::is_judged", default)]
    pub kind: Kind,
}

/// What a trial is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// It is judged.
    #[default]
    Judged,
    /// It finds out how long a warm-up has to be.
    Pilot,
    /// Calls are counted in it, which slows the subject down.
    Probe,
}

impl Kind {
    /// Whether it is of those that are judged.
    #[must_use]
    pub fn is_judged(&self) -> bool {
        *self == Self::Judged
    }
}

/// What drove a load.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Driver {
    /// `weir`, `wrk`, `ab`, `h2load`, `h1load` or `oha`.
    pub program: String,
    /// What it says its version is.
    pub version: String,
    /// What another program than weir printed.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub output: Option<String>,
    /// What it does not tell, or tells in a way that has to be known to read it.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub notes: Vec<String>,
}

/// What could have disturbed a trial. What the machine does not tell is absent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Covariates {
    /// Share of the machine's time that the hypervisor gave to others.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub steal_share: Option<f64>,
    /// Processors used by programs that are not the experiment's.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub foreign_cpus: Option<f64>,
    /// How late a sleeping thread wakes up: 99 % of it, the worst of the processors, in ns.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub wake_up_p99_ns: Option<u64>,
    /// 99 % of the generator's own lags behind the due times of an open loop, in ns.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub generator_lag_p99_ns: Option<u64>,
    /// Share of one processor that the generator's busiest thread used.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub generator_busiest_share: Option<f64>,
    /// Share of the requests that failed or were answered with 400 and above.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub error_share: Option<f64>,
    /// Share of the periods in which a quota stopped the subject, where the experiment gave it none.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub throttled_share: Option<f64>,
    /// By how much the wall clock was set while it ran, in s.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub clock_step_s: Option<f64>,
}

/// When a rate became steady.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Steady {
    /// The second from which on it was; absent: it never was, or there are no seconds to tell from.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub from_s: Option<f64>,
    /// In words.
    pub text: String,
}

/// Why a trial does not count.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Discarded {
    /// The covariate: its name in [`Covariates`]; or [`BLOCK_RERUN`], [`BLOCK_NOT_WHOLE`], [`BEGUN_ANEW`].
    pub code: String,
    /// What was seen, and the bound.
    pub text: String,
}

/// The code of a trial whose block was, or has to be, run again under its load.
pub const BLOCK_RERUN: &str = "block_rerun";
/// The code of a trial whose block has not been run to its end.
pub const BLOCK_NOT_WHOLE: &str = "block_not_whole";

/// The code of a trial whose block was open when the machine, weir or a program changed: it began anew.
pub const BEGUN_ANEW: &str = "begun_anew";

impl Discarded {
    /// Whether nothing disturbed the trial itself: its block is what does not count.
    #[must_use]
    pub fn is_of_its_block(&self) -> bool {
        self.code == BLOCK_RERUN || self.code == BLOCK_NOT_WHOLE
    }
}
