//! Schema of a capacity search, `weir.edge/1`: the capacity of a subject, all trials, the ladder,
//! the knee, and the scaling. Figures of one run are in [`crate::run`].

use std::path::Path;

use serde::{Deserialize, Serialize};
use stats::scalability::{EXTRAPOLATION_MAX, ScalabilityFit, ScalabilityLaw};

use crate::facts::HostFacts;
use crate::file::{ReadError, read_record};
use crate::invalid_value;
use crate::problem::InvalidValue;
use crate::run::{Answer, Baseline, Diagnosis, Run, WeirVersion};

pub const SCHEMA: &str = "weir.edge/1";

/// Capacity search and its results. A *level* is a value of the searched quantity: requests (or new
/// connections) per second, or connections.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CapacitySearch {
    pub schema: String,
    /// Version of weir that wrote the record.
    pub weir: WeirVersion,
    pub command: Vec<String>,
    /// Start time, RFC 3339.
    pub started_at: String,
    pub duration_s: f64,
    /// Machine that generated the load.
    pub host: HostFacts,
    /// Settings common to all trials.
    #[serde(deserialize_with = "crate::bounded_value::deserialize")]
    pub plan: serde_json::Value,
    /// Searched quantity: `rate`, `connections-per-second`, `connections` or `bandwidth`.
    pub quantity: String,
    /// Sequential requests before the search, with which every trial is diagnosed. Absent with
    /// `--no-baseline`, if no request got a response, and in records from older versions.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub baseline: Option<Baseline>,
    /// Baseline of the server behind the subject (`--direct`).
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub direct_baseline: Option<Baseline>,
    /// Objectives for a level; including the latency limit from the reference, if there is one.
    pub objectives: Vec<String>,
    pub conclusion: Conclusion,
    /// Result in words.
    pub summary: String,
    /// Result in three sentences; absent in records from older versions.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub answer: Option<Answer>,
    /// Decision: proof, change, sizes; absent in records from older versions.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub decision: Option<Decision>,
    /// Comparison with an earlier search (`--baseline`).
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub comparison: Option<SearchComparison>,
    /// Good responses per second in a closed loop with all connections, as often as it was measured; absent without
    /// the test of the limit.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub ceiling_per_s: Option<Estimate>,
    /// All trials, in the order of running.
    pub trials: Vec<SearchTrial>,
    /// Point at which latency begins to grow faster than load.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub knee: Option<Knee>,
    /// Recommended levels: 50 to 80 % of the knee, or of the edge if that is lower.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub operating_range: Option<(f64, f64)>,
    /// Growth of throughput with connections.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub scaling: Option<Scaling>,
    /// Latency that the subject adds to the server behind it, at each rate (`--direct`).
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub added_latency: Vec<AddedLatency>,
    /// Missing figures, with the reasons.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub notes: Vec<String>,
    /// Diagnosis of the run at the lowest level that did not hold, or of one a little above it, or in a closed loop
    /// with all connections (then a note says so).
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub stopped_by: Option<Diagnosis>,
    /// Complete run that `stopped_by` was computed from, so that the diagnosis is reproducible.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub stopped_run: Option<Box<Run>>,
    /// Complete run at the edge: the last that held it, or the lowest that did not if none did.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub at_edge: Option<Box<Run>>,
}

/// Reads the record of a search.
///
/// # Errors
/// The file cannot be read, is not such a record, or has another schema.
pub fn read_search(path: &Path) -> Result<CapacitySearch, ReadError> {
    read_record(path, SCHEMA)
}

/// Decision that a team takes from a search. The target and its sizes are those of `weir plan`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Decision {
    /// Test of the limit.
    pub proof: Proof,
    /// First change to make.
    pub change: ProposedChange,
    /// Rate that the sizes are for; `None` without a held rate.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub target_per_s: Option<f64>,
    pub sizes: Vec<PlannedSize>,
    /// Reason why there are no sizes.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub without_sizes: Option<String>,
    /// Command that proves the change, once it is made.
    pub prove: String,
}

/// Test of the limit by changes of the load.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Proof {
    pub outcome: ProofOutcome,
    /// Changes and their effects, or the reason why there was no test.
    pub text: String,
    /// Measured effect of each change.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub tests: Vec<TestedChange>,
}

/// Outcome of the test of a limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProofOutcome {
    /// Every change had the predicted effect.
    Confirmed,
    /// A change did not have the predicted effect.
    Refuted,
    /// There was no test, or it decided nothing.
    #[default]
    Untested,
}

/// Measured effect of a change of the load.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TestedChange {
    /// The change: `twice the connections`.
    pub change: String,
    /// Throughput with the change, as a multiple of that without; the range is that of the pairs.
    pub factor: Estimate,
}

/// Change of the subject, with its expected gain.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProposedChange {
    pub text: String,
    /// Expected gain; `None` if it cannot be predicted.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub expected: Option<ExpectedGain>,
    /// Reason why no gain is predicted.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub without_prediction: Option<String>,
}

/// Expected throughput after a change.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ExpectedGain {
    /// Good responses per second without the change, at full load.
    pub before_per_s: f64,
    /// Good responses per second with the change.
    pub after_per_s: Estimate,
    /// Figures that it is computed from.
    pub basis: String,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PlannedSize {
    /// Name in `weir plan`: `maxconn`.
    pub name: String,
    /// Value: time in s, sizes in bytes; `None` if infinite.
    pub value: Option<f64>,
    pub text: String,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SearchComparison {
    /// File of the earlier search.
    pub baseline: String,
    /// Held level before and after, if both have one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub level: Option<ComparedLevel>,
    /// Throughput at full load before and after, if both have one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub ceiling: Option<ComparedLevel>,
    /// Gain that the earlier search predicted, as a factor.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub predicted_factor: Option<Estimate>,
    /// Settings in which the loads differ.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub plan_differences: Vec<String>,
}

/// Figure before and after a change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ComparedLevel {
    /// Figure of the earlier search.
    pub before: f64,
    /// Figure of this search.
    pub after: f64,
    /// Ratio, with the range that the bounds of both searches leave.
    pub factor: Estimate,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SearchEnd {
    /// The edge was found and verified.
    Found,
    /// Not even the lowest level held the objectives.
    BelowLowest,
    /// The generator, or its machine, was the limit: the edge is at least `lower`.
    GeneratorLimit,
    /// The highest requested level held: the edge is at least that.
    MaxLevel,
    /// A level held in short trials, but neither it nor 90 % of it held in long ones.
    NotVerified,
    /// A verified level no longer held at the end, and no level is known that did.
    Drifted,
    #[default]
    Stopped,
}

/// Result of a search.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Conclusion {
    pub end: SearchEnd,
    /// Highest verified level; after a drift the one that held at the end, in one trial.
    pub level: Option<f64>,
    /// Highest level that held when the search ended.
    pub lower: Option<f64>,
    /// Lowest level that did not hold.
    pub upper: Option<f64>,
    /// Verifying trials at `level` that held.
    pub verified: u32,
    /// Verifying trials at `level`.
    pub verifications: u32,
    /// Change during the search, in words.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub drift: Option<String>,
    /// Level at which the generator was the limit.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub limited_at: Option<f64>,
    /// Reasons why `upper` did not hold, or the generator's limits.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub reasons: Vec<String>,
}

/// Result of a trial for its level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LevelOutcome {
    /// Every objective was met.
    Held,
    /// At least one objective was missed.
    Missed,
    /// The generator was the limit, so the trial says nothing about the subject.
    #[default]
    #[serde(rename = "no_verdict")]
    Undecided,
}

impl SearchTrial {
    /// Returns the good responses per second; computed from the error fraction in records from
    /// older versions.
    pub fn goodput_per_s(&self) -> f64 {
        self.goodput_per_s.unwrap_or(self.responses_per_s * (1.0 - self.error_fraction))
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SearchTrial {
    /// Number, from 1.
    pub number: u32,
    /// `reference`, `grow`, `shrink`, `narrow`, `confirm`, `verify`, `recheck`, `ladder`, `direct`,
    /// `scaling`, `diagnosis`, or `full` (closed loop with all connections, for the test of the limit).
    pub purpose: String,
    /// Start, in seconds after the start of the search.
    pub begin_s: f64,
    pub length_s: f64,
    pub level: f64,
    pub connections: u64,
    pub outcome: LevelOutcome,
    /// Reasons why the level did not hold, or why there is no result.
    pub reasons: Vec<String>,
    /// Requests due per second; open loop only.
    pub offered_per_s: Option<f64>,
    /// Responses per second, good and bad.
    pub responses_per_s: f64,
    /// Good responses per second; absent in records from older versions.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub goodput_per_s: Option<f64>,
    pub bytes_in_per_s: f64,
    /// Fraction of requests without a good response.
    pub error_fraction: f64,
    /// Response latency, last byte: mean.
    pub mean_ns: f64,
    /// Median response latency.
    pub p50_ns: u64,
    /// 99th percentile of the response latency.
    pub p99_ns: u64,
    /// Mean number of requests in flight, as counted.
    pub in_flight_mean: f64,
    /// Requests in flight by Little's law, from rate and mean latency.
    pub in_flight_by_littles_law: f64,
    /// True if these two agree to 5 %, or to a hundredth of a request.
    pub littles_law_holds: bool,
    /// Fraction of a core that the generator's busiest thread used.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub generator_busy: Option<f64>,
    /// True if an objective was missed inside of a disturbance, so that the miss proves nothing.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub is_unproven: bool,
    /// Results of a low-rate load beside it, on its own connections.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub observer: Option<ObserverLoad>,
    /// File with the complete record (`--keep`).
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub record: Option<String>,
}

/// Low-rate load beside the main load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ObserverLoad {
    /// Rate; the main load is reduced by it.
    pub rate_per_s: f64,
    pub responses_per_s: f64,
    pub responses: u64,
    /// Median of its response latency.
    pub p50_ns: u64,
    /// 99th percentile of the response latency.
    pub p99_ns: u64,
}

/// Value with a 95 % interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    pub value: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
}

impl Estimate {
    /// Returns whether the interval is narrow enough for the value to be a figure: within a factor of two.
    pub fn is_narrow(&self) -> bool {
        self.low > 0.0 && self.high <= 2.0 * self.low
    }
}

impl From<stats::fit::Estimate> for Estimate {
    fn from(fitted: stats::fit::Estimate) -> Self {
        let stats::fit::Estimate { value, low, high } = fitted;
        Self { value, low, high }
    }
}

/// Intersection of the two lines that best fit the logarithm of p99 against the level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Knee {
    pub level: Estimate,
    /// Fraction of the variance that the two lines explain.
    pub r_squared: f64,
    pub points: u32,
}

impl From<stats::knee::Knee> for Knee {
    fn from(fitted: stats::knee::Knee) -> Self {
        Self { level: fitted.level.into(), r_squared: fitted.r_squared, points: fitted.points as u32 }
    }
}

/// The Universal Scalability Law, X(N) = γN / (1 + α(N−1) + βN(N−1)), over connections.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Scaling {
    /// Contention: the fraction of work that cannot be done in parallel.
    pub alpha: Estimate,
    /// Coherency: the cost of each pair.
    pub beta: Estimate,
    /// Responses per second of one connection.
    pub gamma_per_s: Estimate,
    /// Number of connections with the highest throughput; absent if that is more than twice the
    /// measured maximum.
    pub best_connections: Option<Estimate>,
    /// Throughput with that many connections.
    pub best_per_s: Option<f64>,
    pub measured_max: u64,
    /// Fraction of the variance that the law explains.
    pub r_squared: f64,
    /// Connections and responses per second, as measured in a closed loop.
    pub points: Vec<(f64, f64)>,
}

impl From<ScalabilityFit> for Scaling {
    fn from(fitted: ScalabilityFit) -> Self {
        Self {
            alpha: fitted.alpha.into(),
            beta: fitted.beta.into(),
            gamma_per_s: fitted.gamma.into(),
            best_connections: fitted.peak.map(Into::into),
            best_per_s: fitted.peak_throughput,
            measured_max: fitted.measured_max as u64,
            r_squared: fitted.r_squared,
            points: fitted.points,
        }
    }
}

impl Scaling {
    pub fn law(&self) -> ScalabilityLaw {
        ScalabilityLaw { alpha: self.alpha.value, beta: self.beta.value, gamma: self.gamma_per_s.value }
    }

    /// Returns whether the law is within 15 % of each measured point.
    pub fn follows_points(&self) -> bool {
        let law = self.law();
        let is_near = |(connections, per_s): &(f64, f64)| {
            (law.throughput(*connections) / per_s.max(1e-9) - 1.0).abs() <= 0.15
        };
        self.points.iter().all(is_near)
    }

    /// Returns the throughput of the law for `connections`, in responses per second; `None` beyond
    /// twice the measured maximum.
    pub fn predicted_per_s(&self, connections: f64) -> Option<f64> {
        let in_range = connections <= EXTRAPOLATION_MAX * self.measured_max as f64;
        in_range.then(|| self.law().throughput(connections))
    }
}

/// Latency that the subject adds to the server behind it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AddedLatency {
    /// Rate of both loads.
    pub level: f64,
    /// Difference of the mean latencies. A difference of percentiles is not a latency.
    pub mean_ns: i64,
    /// Median through the subject.
    pub through_p50_ns: u64,
    /// 99th percentile through the subject.
    pub through_p99_ns: u64,
    /// Median of the direct load.
    pub direct_p50_ns: u64,
    /// 99th percentile of the direct load.
    pub direct_p99_ns: u64,
    /// True if the direct load held the objectives at this rate.
    pub direct_held: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SearchQuantity {
    /// Requests per second.
    Rate,
    ConnectionsPerSecond,
    /// Concurrent connections, each with a request now and then.
    Connections,
    /// Bytes per second, of the URL's body.
    Bandwidth,
    /// TLS handshakes per second: new connections with one request on each.
    Handshakes,
    /// Concurrent streams of each HTTP/2 connection, in a closed loop.
    Streams,
}

impl SearchQuantity {
    pub const ALL: [(Self, &'static str, &'static str); 6] = [
        (Self::Rate, "rate", "requests per second"),
        (Self::ConnectionsPerSecond, "connections-per-second", "new connections per second"),
        (Self::Connections, "connections", "concurrent connections"),
        (Self::Bandwidth, "bandwidth", "bytes per second of the URL's body"),
        (Self::Handshakes, "handshakes", "TLS handshakes per second"),
        (Self::Streams, "streams", "concurrent streams of each connection"),
    ];

    pub fn name(self) -> &'static str {
        Self::ALL[self as usize].1
    }

    /// Parses a name.
    ///
    /// # Errors
    /// The name is unknown.
    pub fn parse(text: &str) -> Result<Self, InvalidValue> {
        let matched = Self::ALL.iter().find(|(_, name, _)| *name == text);
        matched.map(|(quantity, _, _)| *quantity).ok_or_else(|| {
            let names: Vec<_> = Self::ALL.iter().map(|(_, name, _)| *name).collect();
            invalid_value!("'{text}' cannot be searched for; write {}", names.join(", "))
        })
    }

    /// Returns the level at the start of the search, and the lowest level that it tries.
    #[must_use]
    pub fn start(self) -> (f64, f64) {
        match self {
            Self::Rate => (100.0, 1.0),
            Self::ConnectionsPerSecond => (50.0, 1.0),
            Self::Connections => (64.0, 1.0),
            Self::Bandwidth => (10.0, 0.1),
            Self::Handshakes => (20.0, 1.0),
            Self::Streams => (1.0, 1.0),
        }
    }

    /// Returns whether levels are whole numbers of connections or streams, not rates.
    pub fn is_count(self) -> bool {
        matches!(self, Self::Connections | Self::Streams)
    }
}

/// Returns the kind of limit that the reasons of a trial without a verdict name, for a summary. It
/// is the generator, unless every reason concerns something else of its machine.
pub fn limit_kind(reasons: &[String]) -> &'static str {
    let starts = |code: &str| reasons.iter().any(|reason| reason.starts_with(code));
    if starts("ports") {
        "out of source ports"
    } else if starts("descriptors") {
        "out of descriptors"
    } else if ["client_bound", "send_lag", "run_queue_wait", "generator_stalled"].into_iter().any(starts) {
        "client-bound"
    } else {
        "not measurable"
    }
}
