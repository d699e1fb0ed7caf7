//! The schema of a search for the edge, `weir.edge/1`: how much a subject takes, every trial that says
//! so, the ladder, the knee, and how it scales. Not for one run's figures: those are in [`crate::run`].

use serde::{Deserialize, Serialize};

use crate::facts::HostFacts;
use crate::run::{Diagnosis, Run, Weir};

/// The name of this schema.
pub const SCHEMA: &str = "weir.edge/1";

/// A search and what it found. A *level* is what was searched for: requests (or new connections) per
/// second, or connections.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Edge {
    /// [`SCHEMA`].
    pub schema: String,
    /// Which weir wrote it.
    pub weir: Weir,
    /// The command line.
    pub command: Vec<String>,
    /// When it began, RFC 3339.
    pub started_at: String,
    /// How long it took.
    pub duration_s: f64,
    /// The machine that drove the load.
    pub host: HostFacts,
    /// What every trial had in common.
    pub plan: serde_json::Value,
    /// What was searched for: `rate`, `connections-per-second`, `connections` or `bandwidth`.
    pub find: String,
    /// What a level had to hold; with the bound on latency that came from the reference, if it did.
    pub objectives: Vec<String>,
    /// What came of it.
    pub conclusion: Conclusion,
    /// What came of it, in words.
    pub words: String,
    /// Every trial, in the order in which they were run.
    pub trials: Vec<Trial>,
    /// Where latency begins to grow faster than load.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub knee: Option<Knee>,
    /// The levels at which to run it: 50 to 80 % of the knee, or of the edge where that is lower.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub operating_range: Option<(f64, f64)>,
    /// How throughput grows with connections.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub scaling: Option<Scaling>,
    /// What the subject adds to what stands behind it, at each rate (`--direct`).
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub added: Vec<Added>,
    /// What is not there, and why.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub notes: Vec<String>,
    /// What stops it there: the diagnosis of the run at the lowest level that did not hold, or of one a
    /// little above it (then a note says so).
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub stopped_by: Option<Diagnosis>,
    /// The run that `stopped_by` was worked out from, whole, so that it can be again.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub stopped_run: Option<Box<Run>>,
    /// The run at the edge, whole: the last that held it, or the lowest that did not where none did.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub at_edge: Option<Box<Run>>,
}

/// How a search ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// The edge was found and verified.
    Found,
    /// Not even the lowest level held the objectives.
    BelowLowest,
    /// The generator, or its machine, was the limit: the edge is at least `lower`.
    GeneratorLimit,
    /// The highest level that was asked for held: the edge is at least that.
    Top,
    /// A level held in short trials, and neither it nor 90 % of it in long ones.
    NotVerified,
    /// A level was verified and did not hold any more at the end, nor is one known that did.
    Drifted,
    /// Ended by hand.
    #[default]
    Stopped,
}

/// What a search found.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Conclusion {
    /// How it ended.
    pub end: End,
    /// The highest level that was verified; after a drift the one that held at the end, in one trial.
    pub level: Option<f64>,
    /// The highest level that held when the search ended.
    pub lower: Option<f64>,
    /// The lowest level that did not hold.
    pub upper: Option<f64>,
    /// Verifying trials at `level` that held.
    pub verified: u32,
    /// Verifying trials at `level`.
    pub verifications: u32,
    /// What changed while the search went on, in words.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub drift: Option<String>,
    /// The level at which the generator was the limit.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub limited_at: Option<f64>,
    /// Why `upper` did not hold, or what limited the generator.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub reasons: Vec<String>,
}

/// What a trial says of its level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Every objective was met.
    Held,
    /// One was missed.
    Missed,
    /// The generator was the limit, so nothing is said of the subject.
    #[default]
    NoVerdict,
}

impl Trial {
    /// Good responses per second; in records from older versions from the share of errors.
    #[must_use]
    pub fn goodput_per_s(&self) -> f64 {
        self.goodput_per_s.unwrap_or(self.responses_per_s * (1.0 - self.error_share))
    }
}

/// One trial.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Trial {
    /// From 1.
    pub number: u32,
    /// `reference`, `grow`, `shrink`, `narrow`, `confirm`, `verify`, `recheck`, `ladder`, `direct` or
    /// `scaling`.
    pub purpose: String,
    /// Its begin, after that of the search.
    pub begin_s: f64,
    /// Its length.
    pub length_s: f64,
    /// What was tried.
    pub level: f64,
    /// Connections of the load.
    pub connections: u64,
    /// What it says of the level.
    pub outcome: Outcome,
    /// Why it did not hold, or why nothing is said.
    pub reasons: Vec<String>,
    /// Requests due per second; open loop only.
    pub offered_per_s: Option<f64>,
    /// Responses per second, good and bad.
    pub responses_per_s: f64,
    /// Good responses per second; absent in records from older versions.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub goodput_per_s: Option<f64>,
    /// Bytes received per second.
    pub bytes_in_per_s: f64,
    /// Share of requests that had no good response.
    pub error_share: f64,
    /// Response latency, last byte: mean.
    pub mean_ns: f64,
    /// Its median.
    pub p50_ns: u64,
    /// 99 % are no longer.
    pub p99_ns: u64,
    /// Requests in flight, counted.
    pub in_flight_mean: f64,
    /// What Little's law makes of rate and mean latency.
    pub in_flight_by_littles_law: f64,
    /// Whether these two agree to 5 %, or to a hundredth of a request.
    pub littles_law_holds: bool,
    /// Share of a core that the generator's busiest thread used.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub generator_busy: Option<f64>,
    /// What a load of few requests beside it saw, on connections of its own.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub observer: Option<Observer>,
    /// The file that has its whole record (`--keep`).
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub record: Option<String>,
}

/// A load of few requests beside another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Observer {
    /// Its rate; the main load has that much less.
    pub rate_per_s: f64,
    /// Its good responses per second.
    pub responses_per_s: f64,
    /// Latencies that were counted.
    pub responses: u64,
    /// Median of its response latency.
    pub p50_ns: u64,
    /// 99 % are no longer.
    pub p99_ns: u64,
}

/// A value with an interval of 95 %.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// The value.
    pub value: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// Where two lines meet that fit the logarithm of p99 against the level best.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Knee {
    /// The level.
    pub level: Estimate,
    /// Share of the variance that the two lines explain.
    pub r_squared: f64,
    /// Points that it was fitted to.
    pub points: u32,
}

/// The Universal Scalability Law, X(N) = γN / (1 + α(N−1) + βN(N−1)), over connections.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Scaling {
    /// Contention: the share of work that cannot be done side by side.
    pub alpha: Estimate,
    /// Coherency: what each pair costs.
    pub beta: Estimate,
    /// Responses per second of one connection.
    pub gamma_per_s: Estimate,
    /// Connections with the highest throughput; absent where that would be beyond twice the most that
    /// was measured.
    pub best_connections: Option<Estimate>,
    /// Throughput with them.
    pub best_per_s: Option<f64>,
    /// The most connections that were measured.
    pub measured_max: u64,
    /// Share of the variance that the law explains.
    pub r_squared: f64,
    /// Connections and responses per second, as measured in a closed loop.
    pub points: Vec<(f64, f64)>,
}

/// What the subject adds to what stands behind it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Added {
    /// The rate of both.
    pub level: f64,
    /// Difference of the mean latencies. Percentiles have no difference that is one.
    pub mean_ns: i64,
    /// Median through the subject.
    pub through_p50_ns: u64,
    /// 99 % through the subject are no longer.
    pub through_p99_ns: u64,
    /// Median of the direct load.
    pub direct_p50_ns: u64,
    /// 99 % of the direct load are no longer.
    pub direct_p99_ns: u64,
    /// Whether the direct load held the objectives at this rate.
    pub direct_held: bool,
}
