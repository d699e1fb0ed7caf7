//! The schema of one run, `weir.run/1`. Its names are fixed: scripts rely on them. Fields may be
//! added; what a field means never changes within a schema.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use crate::diagnosis::{
    Candidate, Confidence, Confirmation, Diagnosis, ResourceUse, TimeShare,
};
use crate::facts::HostFacts;
use crate::histogram::LatencySummary;
use crate::observed::Observed;
use crate::validity::Validity;

/// The name of this schema.
pub const SCHEMA: &str = "weir.run/1";

/// What one run did and what it means.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// [`SCHEMA`].
    pub schema: String,
    /// Which weir wrote it.
    pub weir: Weir,
    /// The command line.
    pub command: Vec<String>,
    /// When it began, RFC 3339.
    pub started_at: String,
    /// Length of the load, from the first due request to the end, without the drain.
    pub duration_s: f64,
    /// Whether it was ended early by hand (Ctrl-C): then this is what had been measured.
    #[serde(default)]
    pub partial: bool,
    /// The machine that drove the load.
    pub host: HostFacts,
    /// Everything that the run was asked for.
    pub plan: serde_json::Value,
    /// May it be believed?
    pub validity: Validity,
    /// The objectives, and whether they were met.
    pub objectives: Vec<Objective>,
    /// Counts over the whole run, ramp and drain included.
    pub totals: Totals,
    /// Rates over the measured window.
    pub rates: Rates,
    /// The window that rates and latencies are about.
    pub window: Window,
    /// Latencies by phase.
    pub latency: Latency,
    /// How the generator itself did.
    pub generator: Generator,
    /// Requests that were sent one at a time before the load: their latency without queueing.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub baseline: Option<Baseline>,
    /// Processor time of the generator.
    pub cpu: Cpu,
    /// One entry a second.
    pub intervals: Vec<Interval>,
    /// What was seen of the machines meanwhile, one entry each; the generator's own is the first.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub observed: Vec<Observed>,
    /// What limited the subject, where that was looked into.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub diagnosis: Option<Diagnosis>,
}

/// Which weir.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Weir {
    /// Its version.
    pub version: String,
    /// The commit it was built from, or `unknown`.
    pub commit: String,
}

/// One objective and its outcome.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Objective {
    /// As it was asked for.
    pub text: String,
    /// Whether it was met.
    pub met: bool,
    /// The value that was measured, in the objective's own unit (ns, a share, or 1/s).
    pub value: f64,
}

/// Counts over a whole run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Totals {
    /// Requests that were due and taken on; each ended as a response or an error.
    pub requests: u64,
    /// Requests that were sent whole to a server; its own count of requests.
    pub sent: u64,
    /// Complete final responses.
    pub responses: u64,
    /// Responses by status.
    pub status: BTreeMap<u16, u64>,
    /// Requests that failed, by kind. A time-out is an error.
    pub errors: BTreeMap<String, u64>,
    /// Time-outs by the phase they struck in; their sum is `errors.timeout`.
    pub timeouts_by_phase: BTreeMap<String, u64>,
    /// How old the requests were that timed out: the youngest and the oldest, in ns.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub timeout_age_ns: Option<(u64, u64)>,
    /// Requests that were due but never taken on: the line was full, or the run was cut short.
    pub dropped: u64,
    /// Requests still in flight when the drain ended; they are in `errors` too, as `unfinished`.
    pub unfinished: u64,
    /// Age of the oldest of those, in ns.
    pub unfinished_age_ns_max: u64,
    /// Bytes received from sockets.
    pub bytes_in: u64,
    /// Bytes written to sockets.
    pub bytes_out: u64,
    /// Connections.
    pub connections: Connections,
}

impl Totals {
    /// Requests that failed without a complete response.
    #[must_use]
    pub fn failed(&self) -> u64 {
        self.errors.values().sum()
    }
}

/// Counts of connections.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Connections {
    /// How many were asked for at a time.
    pub wanted: u64,
    /// The most that were open at a time.
    pub obtained: u64,
    /// How many were opened in all.
    pub opened: u64,
    /// How many attempts failed.
    pub failed: u64,
    /// How many were lost while a request was on them.
    pub lost: u64,
    /// How many the server closed while they were idle.
    pub closed_idle: u64,
}

/// Rates over the measured window.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Rates {
    /// Complete responses per second.
    pub responses_per_s: f64,
    /// Bytes received per second.
    pub bytes_in_per_s: f64,
    /// Requests due per second; open loop only.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub offered_per_s: Option<f64>,
}

/// The part of a run that its rates and latencies are about.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Window {
    /// Where it starts, after the start of the run: the end of the ramp.
    pub from_s: f64,
    /// Where it ends.
    pub to_s: f64,
    /// Requests due before it: the ramp.
    pub excluded_ramp: u64,
    /// Requests due after it: the last partial second.
    pub excluded_tail: u64,
    /// What was left out, in words.
    pub text: String,
}

impl Window {
    /// Its length, in seconds.
    #[must_use]
    pub fn length_s(&self) -> f64 {
        self.to_s - self.from_s
    }
}

/// Latencies by phase.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// Until the connection stood.
    pub connect: Pair,
    /// Until the first byte of the response.
    pub first_byte: Pair,
    /// Until the last byte of the response.
    pub last_byte: Pair,
}

/// One phase, measured from two starts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pair {
    /// From the send (or the start of the connect): what the server did.
    pub service: LatencySummary,
    /// From the due time: what a user saw.
    pub response: LatencySummary,
}

/// Requests on one connection, one at a time, before the load. R(1), the latency without queueing,
/// against which the latency under load shows how much of it is waiting (Denning and Buzen, 1978).
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Baseline {
    /// Length, in seconds.
    pub duration_s: f64,
    /// Requests sent.
    pub requests: u64,
    /// Good responses among them.
    pub good: u64,
    /// Shortest service latency to the last byte.
    pub min_ns: u64,
    /// Median of it.
    pub p50_ns: u64,
    /// Mean of it without the slowest request, which is often the first.
    pub mean_ns: f64,
}

/// How the generator itself did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Generator {
    /// Threads that drove the load.
    pub threads: u32,
    /// What lag is: `send` (send after due, open loop) or `loop` (wake-up after due, closed loop).
    pub lag_of: String,
    /// Median lag.
    pub lag_p50_ns: u64,
    /// 99 % of lags are no longer.
    pub lag_p99_ns: u64,
    /// The longest lag.
    pub lag_max_ns: u64,
    /// Lags beyond the bound of 1 ms.
    pub late: u64,
    /// Share of one core that the busiest of its threads used, in the window.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub busiest_thread_share: Option<f64>,
    /// Share of the window that its threads waited for a processor.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub run_queue_wait_share: Option<f64>,
    /// Mean number of requests in flight, counted.
    pub in_flight_mean: f64,
    /// What Little's law makes of rate and mean latency; should be the same.
    pub in_flight_by_littles_law: f64,
    /// What a stored calibration says this machine can drive, for the nearest profile.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub calibrated: Option<Calibrated>,
}

/// A stored calibration that a run was held against.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Calibrated {
    /// Responses per second that the same threads can drive.
    pub responses_per_s: f64,
    /// Share of it that this run used.
    pub used_share: f64,
    /// Which profile it was made with.
    pub profile: String,
}

/// Processor time of the generator in the window.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Cpu {
    /// In user mode.
    pub user_s: f64,
    /// In the kernel.
    pub system_s: f64,
    /// Share of one core that each thread used.
    pub per_core: Vec<f64>,
    /// Processors that the subject used, when it runs on this machine.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub subject_cpus: Option<f64>,
    /// Processors that others used.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub foreign_cpus: Option<f64>,
    /// Share of the machine's time that the hypervisor gave to others.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub steal_share: Option<f64>,
}

/// What happened in one second.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// Its end, after the start of the run.
    pub time_s: f64,
    /// Its length; 1 but for the last.
    pub length_s: f64,
    /// Connections open at its end.
    pub connections: u64,
    /// Connections opened in it.
    pub connections_opened: u64,
    /// Responses completed in it.
    pub responses: u64,
    /// Errors in it, by kind; kinds without one are absent.
    pub errors: BTreeMap<String, u64>,
    /// Responses by class: 1xx to 5xx.
    pub status_classes: [u64; 5],
    /// Bytes received.
    pub bytes_in: u64,
    /// Bytes written.
    pub bytes_out: u64,
    /// Requests in flight at its end.
    pub in_flight: u64,
    /// Requests waiting for a connection at its end.
    pub waiting: u64,
    /// Requests dropped in it, because the line was full.
    pub dropped: u64,
    /// Mean time to the first byte (service), in ns.
    pub first_byte_mean_ns: f64,
    /// Mean time to the last byte (service), in ns.
    pub last_byte_mean_ns: f64,
    /// Median of the response latency, last byte; absent in a merged record.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub p50_ns: Option<u64>,
    /// 99 %; absent in a merged record.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub p99_ns: Option<u64>,
    /// The longest.
    pub max_ns: u64,
    /// 99 % of the generator's lags were no longer; absent in a merged record.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub lag_p99_ns: Option<u64>,
    /// Processors that the generator used.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub own_cpus: Option<f64>,
    /// Whether it lies in the measured window.
    pub measured: bool,
}
