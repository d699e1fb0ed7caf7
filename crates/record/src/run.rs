//! Schema of one run, `weir.run/1`. Its names are fixed: scripts rely on them. Fields may be added;
//! the meaning of a field never changes within a schema.

mod fleet;
mod generator;
mod http2;
mod live;
mod tls;
mod transport;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use crate::diagnosis::{
    AlternativeVerdict, Answer, Confidence, Confirmation, Diagnosis, RateBound, ResourceUse, SaturationRate,
    TimeFraction,
};
pub use generator::{BackOffTotals, CalibratedCapacity, GeneratorStats, StallTotals, UndelayedLatency};
pub use http2::Http2Totals;
pub(crate) use live::add_counts;
pub use live::{EventStreamTotals, WebSocketTotals};
pub use tls::TlsSessions;
pub use transport::{PeerWindows, RoundTripTimes, UserTransport};

pub use crate::breakdown::{RequestResult, StageResult};
pub use crate::checks::{CheckSample, RateChange};
use crate::comparison::BaselineComparison;
use crate::facts::HostFacts;
use crate::fleet::Fleet;
pub use crate::histogram::LatencyPair;
use crate::histogram::LatencySummary;
use crate::observed::MachineObservation;
use crate::units::{format_duration_ns, format_rate};
use crate::validity::{Validity, ValidityLevel};

pub const SCHEMA: &str = "weir.run/1";

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    pub schema: String,
    /// Version of weir that wrote the record.
    pub weir: WeirVersion,
    pub command: Vec<String>,
    /// Start time, RFC 3339.
    pub started_at: String,
    /// Identities of the run; empty in records from older versions.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub identities: Vec<RunIdentity>,
    /// Length of the load, from the first due request to the end, without the drain.
    pub duration_s: f64,
    /// True if the user stopped the run early (Ctrl-C); then this is the partial result.
    #[serde(default)]
    pub partial: bool,
    /// Machine that generated the load.
    pub host: HostFacts,
    #[serde(deserialize_with = "crate::bounded_value::deserialize")]
    pub plan: serde_json::Value,
    pub validity: Validity,
    pub objectives: Vec<ObjectiveResult>,
    /// Counts over the complete run, including ramp and drain.
    pub totals: RunTotals,
    /// Samples of responses that failed a check.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub check_samples: Vec<CheckSample>,
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub rate_changes: Vec<RateChange>,
    /// Results of the stages that began (`--stages`).
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub stages: Vec<StageResult>,
    /// Results of the requests of a plan with 2 to 100 requests.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub requests: Vec<RequestResult>,
    /// Rates over the measured window.
    pub rates: Rates,
    /// Window that rates and latencies cover.
    pub window: MeasuredWindow,
    pub latency: PhaseLatencies,
    /// Sessions of TLS; absent without TLS.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub tls: Option<TlsSessions>,
    /// Counts of HTTP/2; absent without HTTP/2.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub http2: Option<Http2Totals>,
    /// Counts of WebSocket; absent without it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub websocket: Option<WebSocketTotals>,
    /// Counts of event streams; absent without them.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub event_stream: Option<EventStreamTotals>,
    /// TCP of the load if it is not that of the kernel.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub transport: Option<UserTransport>,
    /// Figures about the generator itself.
    pub generator: GeneratorStats,
    /// Sequential requests before the load: their latency without queueing.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub baseline: Option<Baseline>,
    pub cpu: GeneratorCpu,
    /// Intervals, one per second.
    pub intervals: Vec<Interval>,
    /// Observations of the machines meanwhile, one entry each; the generator's own is the first.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub observed: Vec<MachineObservation>,
    /// Result in three sentences; absent in records from older versions.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub answer: Option<Answer>,
    /// Comparison with an earlier run (`--baseline`, `load report A B`).
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub comparison: Option<BaselineComparison>,
    /// Limit of the subject, if it was diagnosed.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub diagnosis: Option<Diagnosis>,
    /// Agents of a run of `weir fleet`, of whose records this one is the sum.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub fleet: Option<Fleet>,
}

/// Unique identity of a run; a merged record has one for each of its runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunIdentity {
    pub id: String,
    /// Name of the machine that generated the load.
    pub host: String,
    /// ID of the process that generated the load.
    pub pid: u32,
    /// Start of the load by the wall clock, in ns since 1970, UTC. Intervals count from this time.
    pub start_unix_ns: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WeirVersion {
    pub version: String,
    /// Commit that it was built from, or `unknown`.
    pub commit: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ObjectiveResult {
    pub text: String,
    pub met: bool,
    /// Measured value, in the objective's own unit (ns, a fraction, or 1/s). `null` in JSON,
    /// infinite here: more requests had no good response than the objective leaves out.
    #[serde(with = "infinite_as_null")]
    pub value: f64,
    /// Validity of the outcome as to the generator and other programs; absent in records from older versions.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub validity: Option<ValidityLevel>,
}

/// Outcome of an objective, by its figure and its validity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectiveOutcome {
    Met,
    Missed,
    /// The generator or other programs may have decided it.
    NotProven,
}

impl ObjectiveResult {
    /// Returns the outcome. A missed objective is one only if nothing else can be why; a met one that is suspect
    /// counts as met.
    pub fn outcome(&self) -> ObjectiveOutcome {
        use ValidityLevel::{Invalid, Suspect};
        match (self.met, self.validity) {
            (false, Some(Suspect | Invalid)) | (true, Some(Invalid)) => ObjectiveOutcome::NotProven,
            (true, _) => ObjectiveOutcome::Met,
            (false, _) => ObjectiveOutcome::Missed,
        }
    }

    pub fn value_text(&self) -> String {
        if self.text.starts_with("errors") {
            format!("{:.3} %", self.value * 100.0)
        } else if self.text.starts_with("rate") {
            format_rate(self.value)
        } else if self.value.is_finite() {
            format_duration_ns(self.value as u64)
        } else {
            "too many requests had no good response".to_owned()
        }
    }
}

/// Encodes infinity as null, because JSON has no infinity.
mod infinite_as_null {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
        Some(*value).filter(|value| value.is_finite()).serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
        Ok(Option::deserialize(deserializer)?.unwrap_or(f64::INFINITY))
    }
}

/// Counts over a complete run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunTotals {
    /// Requests that were due and accepted; each ended as a response or an error.
    pub requests: u64,
    /// Requests that were sent completely to a server; comparable with the server's own count.
    pub sent: u64,
    /// Complete final responses, except those that failed a check (`errors.check`).
    pub responses: u64,
    /// Good responses: complete, with an expected status (`--expect-status`; below 400 by default),
    /// and every check passed. Absent in records from older versions; see [`RunTotals::good`].
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub good: Option<u64>,
    /// Bad responses: complete and not good. Each is either in `responses` or in `errors.check`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub bad: Option<u64>,
    pub status: BTreeMap<u16, u64>,
    /// Number of failed requests, by kind. A timeout is an error.
    pub errors: BTreeMap<String, u64>,
    /// Parse errors by reason; the sum of their counts is `errors.parse`. Absent in records from older versions.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub parse_errors: BTreeMap<String, ParseErrorCount>,
    /// Number of failed checks by check; their sum is `errors.check`. A response counts once, with the
    /// first check that it failed.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub failed_checks: BTreeMap<String, u64>,
    /// Number of timeouts by phase; their sum is `errors.timeout`.
    pub timeouts_by_phase: BTreeMap<String, u64>,
    /// Age of the youngest and of the oldest request that timed out, in ns.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub timeout_age_ns: Option<(u64, u64)>,
    /// Requests that were due but never accepted: the queue was full, or the run was cut short.
    pub dropped: u64,
    /// Requests still in flight when the drain ended; they are in `errors` too, as `unfinished`.
    pub unfinished: u64,
    /// Age of the oldest of those, in ns.
    pub unfinished_age_ns_max: u64,
    /// Bytes received from sockets; with TLS their decrypted content.
    pub bytes_in: u64,
    /// Bytes of the bodies of complete responses, without heads and framing; 0 in older records.
    #[serde(default)]
    pub body_bytes: u64,
    /// Bytes written to sockets; with TLS their content before encryption.
    pub bytes_out: u64,
    pub connections: ConnectionTotals,
}

/// Responses that were malformed for one reason.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ParseErrorCount {
    /// Number of failed requests.
    pub count: u64,
    /// Description of the reason, with its source.
    pub text: String,
}

impl RunTotals {
    /// Returns the number of requests that failed without a complete response.
    pub fn failed(&self) -> u64 {
        self.errors.values().sum()
    }

    /// Returns the reasons of the parse errors, the most frequent first.
    pub fn parse_errors_by_count(&self) -> Vec<(&str, &ParseErrorCount)> {
        let mut all: Vec<_> = self.parse_errors.iter().map(|(code, error)| (code.as_str(), error)).collect();
        all.sort_by_key(|(_, error)| std::cmp::Reverse(error.count));
        all
    }

    /// Returns the good responses; derived from statuses in records from older versions.
    pub fn good(&self) -> u64 {
        self.good.unwrap_or_else(|| match self.errors.contains_key(ERROR_KIND_CHECK) {
            true => self.responses,
            false => self.responses.saturating_sub(self.responses_from_400()),
        })
    }

    /// Returns the bad responses; derived from statuses in records from older versions.
    pub fn bad(&self) -> u64 {
        self.bad.unwrap_or_else(|| match self.errors.get(ERROR_KIND_CHECK) {
            Some(checks) => *checks,
            None => self.responses_from_400().min(self.responses),
        })
    }

    /// Returns the fraction of requests without a good response.
    pub fn error_fraction(&self) -> f64 {
        let not_good = self.requests.saturating_sub(self.good());
        if self.requests == 0 { 0.0 } else { not_good as f64 / self.requests as f64 }
    }

    fn responses_from_400(&self) -> u64 {
        self.status.range(400..).map(|(_, count)| count).sum()
    }
}

/// Kind of error of a complete response that failed a check.
pub const ERROR_KIND_CHECK: &str = "check";

impl Run {
    /// Returns the good responses per second in the window; in records from older versions from the
    /// fraction of good responses over the complete run.
    pub fn goodput_per_s(&self) -> f64 {
        self.rates.goodput_per_s.unwrap_or_else(|| {
            let (good, all) = (self.totals.good(), self.totals.responses);
            let fraction = if all == 0 { 1.0 } else { (good as f64 / all as f64).min(1.0) };
            self.rates.responses_per_s * fraction
        })
    }

    /// Returns the number of requests that the open connections can carry at a time: one each, and
    /// with HTTP/2 one on each stream that the server allows.
    pub fn request_slots(&self) -> f64 {
        let connections = self.totals.connections.max_open as f64;
        let Some(http2) = &self.http2 else { return connections };
        let streams = http2.streams_allowed.map_or(http2.streams, |allowed| allowed.min(http2.streams));
        let fraction = self.plan["http2"]["fraction"].as_f64().unwrap_or(1.0);
        connections * (1.0 - fraction + fraction * streams as f64)
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnectionTotals {
    pub requested: u64,
    pub max_open: u64,
    pub opened: u64,
    pub failed: u64,
    /// Number of connections lost during a request.
    pub lost: u64,
    /// Number of idle connections closed by the server.
    pub closed_idle: u64,
    /// Number of pipelined requests that were sent again, because a response before theirs ended the connection
    /// (RFC 9112 §9.6). They count once in `totals`. Absent in records from older versions.
    #[serde(default)]
    pub resent: u64,
}

/// Rates over the measured window.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Rates {
    /// Complete responses per second, good and bad.
    pub responses_per_s: f64,
    /// Good responses per second; see [`Run::goodput_per_s`] for records from older versions.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub goodput_per_s: Option<f64>,
    pub bytes_in_per_s: f64,
    /// Requests due per second; open loop only.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub offered_per_s: Option<f64>,
    /// Fraction of the requests due in the window that got a response: not dropped, not failed, and
    /// not in a backlog that grew over the window. The constant number in flight at a steady server
    /// is not missing. Open loop with a complete second only; absent in records from older versions.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub answered_fraction: Option<f64>,
}

impl Rates {
    /// Returns the fraction of an open loop's requests that got a response. In a record from an
    /// older version it is responses within the window divided by requests due in it.
    pub fn answered_fraction(&self) -> Option<f64> {
        let ratio = |offered: f64| (self.responses_per_s / offered.max(1e-9)).min(1.0);
        self.answered_fraction.or_else(|| self.offered_per_s.map(ratio))
    }
}

/// Part of a run that its rates and latencies cover.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MeasuredWindow {
    /// Start, after the start of the run: the end of the ramp.
    pub from_s: f64,
    pub to_s: f64,
    /// Requests due before it: the ramp.
    pub excluded_ramp: u64,
    /// Requests due after it: the last partial second.
    pub excluded_tail: u64,
    /// Requests due in it that had no good response: bad responses, failures and dropped requests.
    /// Objectives of latency count them as infinitely slow.
    #[serde(default)]
    pub not_good: u64,
    /// Description of the excluded part.
    pub text: String,
}

impl MeasuredWindow {
    pub fn length_s(&self) -> f64 {
        self.to_s - self.from_s
    }
}

/// Latencies by phase, of good responses.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PhaseLatencies {
    /// Time to the established connection.
    pub connect: LatencyPair,
    /// Time of the TLS handshake after that (service), and from the due time to its end (response);
    /// absent without TLS.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub tls_handshake: Option<LatencyPair>,
    /// Time of full TLS handshakes, from the established connection; absent if there was none.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub tls_full: Option<LatencySummary>,
    /// Time of TLS handshakes that resumed a session; absent if there was none.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub tls_resumed: Option<LatencySummary>,
    /// Time to the first byte of the final response: of its status line, behind interim responses
    /// (1xx).
    pub first_byte: LatencyPair,
    /// Time to the last byte of the response.
    pub last_byte: LatencyPair,
    /// Time to the last byte of bad responses; absent if there was none.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub last_byte_bad: Option<LatencyPair>,
}

/// Sequential requests on one connection before the load. Their latency R(1) is without queueing;
/// compared with it, the latency under load shows its waiting part (Denning and Buzen, 1978). In a
/// merged record these are the requests of all generators.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Baseline {
    pub duration_s: f64,
    pub requests: u64,
    /// Number of good responses among them.
    pub good: u64,
    /// Shortest service latency to the last byte.
    pub min_ns: u64,
    /// Median service latency to the last byte.
    pub p50_ns: u64,
    /// Mean service latency without the slowest request, which is often the first. In a merged
    /// record each generator is weighted by its good responses under load, as in the latency that
    /// this is compared with.
    pub mean_ns: f64,
    /// HdrHistogram of it, like those of [`crate::histogram::LatencySummary`]; empty in records
    /// from older versions.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub hdr: String,
}

/// CPU time of the generator in the window.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GeneratorCpu {
    /// CPU time in user mode.
    pub user_s: f64,
    /// CPU time in the kernel.
    pub system_s: f64,
    /// Fraction of one core that each thread used.
    pub per_core: Vec<f64>,
    /// CPUs that the subject used, if it runs on this machine.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub subject_cpus: Option<f64>,
    /// CPUs that other processes used.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub foreign_cpus: Option<f64>,
    /// Fraction of the machine's time that the hypervisor gave to other guests.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub steal_fraction: Option<f64>,
}

/// Counts of one second.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// End time, after the start of the run.
    pub time_s: f64,
    /// Length; 1 except for the last.
    pub length_s: f64,
    /// Connections open at its end.
    pub connections: u64,
    pub connections_opened: u64,
    /// Responses completed in it, good and bad.
    pub responses: u64,
    /// Good responses completed in it; absent in records from older versions.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub good: Option<u64>,
    /// Events of `--sse`, or messages of `--ws push`, received in it; absent for other loads.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub events: Option<u64>,
    /// Errors in it, by kind; kinds without one are absent.
    pub errors: BTreeMap<String, u64>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub parse_errors: BTreeMap<String, u64>,
    /// Responses by class: 1xx to 5xx.
    pub status_classes: [u64; 5],
    pub bytes_in: u64,
    pub bytes_out: u64,
    /// Requests in flight at its end.
    pub in_flight: u64,
    /// Requests waiting for a connection at its end.
    pub pending: u64,
    /// Requests dropped in it because the queue was full.
    pub dropped: u64,
    /// Mean time to the first byte (service), in ns.
    pub first_byte_mean_ns: f64,
    /// Mean time to the last byte (service), in ns.
    pub last_byte_mean_ns: f64,
    /// Median of the response latency, last byte; absent in a merged record.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub p50_ns: Option<u64>,
    /// 99th percentile of the response latency; absent in a merged record.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub p99_ns: Option<u64>,
    /// Maximum response latency.
    pub max_ns: u64,
    /// 99th percentile of the generator's lags; absent in a merged record.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub lag_p99_ns: Option<u64>,
    /// CPUs that the generator used.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub own_cpus: Option<f64>,
    /// Time in it during which generator threads stalled (`generator.stalls`).
    #[serde(skip_serializing_if = "is_zero", default)]
    pub stalled_ns: u64,
    /// True if it lies in the measured window.
    pub measured: bool,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}
