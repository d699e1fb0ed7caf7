//! The schema of one run, `weir.run/1`. Its names are fixed: scripts rely on them. Fields may be
//! added; what a field means never changes within a schema.

mod generator;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use crate::diagnosis::{
    Candidate, Confidence, Confirmation, Diagnosis, ResourceUse, TimeShare,
};
pub use generator::{BackOff, Calibrated, Generator, Stalls};

use crate::facts::HostFacts;
use crate::histogram::LatencySummary;
use crate::observed::Observed;
use crate::units::{format_count, format_duration_ns};
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
    /// Which run it is; empty in records from older versions.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub identities: Vec<Identity>,
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

/// Tells one run from every other; a merged record has one for each of its runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// A random id.
    pub id: String,
    /// Name of the machine that drove the load.
    pub host: String,
    /// Id of the process that drove it.
    pub pid: u32,
    /// Start of the load by the wall clock, in ns since 1970, UTC. Intervals count from here.
    pub start_unix_ns: u64,
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
    /// The value that was measured, in the objective's own unit (ns, a share, or 1/s). `null` in JSON,
    /// infinite here: more requests had no good response than the objective leaves out.
    #[serde(with = "infinite_as_null")]
    pub value: f64,
}

impl Objective {
    /// The value with its unit.
    #[must_use]
    pub fn value_text(&self) -> String {
        if self.text.starts_with("errors") {
            format!("{:.3} %", self.value * 100.0)
        } else if self.text.starts_with("rate") {
            format!("{}/s", format_count(self.value))
        } else if self.value.is_finite() {
            format_duration_ns(self.value as u64)
        } else {
            "too many requests had no good response".to_owned()
        }
    }
}

/// JSON has no infinity.
mod infinite_as_null {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
        Some(*value).filter(|value| value.is_finite()).serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
        Ok(Option::deserialize(deserializer)?.unwrap_or(f64::INFINITY))
    }
}

/// Counts over a whole run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Totals {
    /// Requests that were due and taken on; each ended as a response or an error.
    pub requests: u64,
    /// Requests that were sent whole to a server; its own count of requests.
    pub sent: u64,
    /// Complete final responses, apart from those that failed a check (`errors.check`).
    pub responses: u64,
    /// Good responses: complete, with an expected status (`--expect-status`; below 400 if that is not
    /// given), and every check passed. Absent in records from older versions; see [`Totals::good`].
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub good: Option<u64>,
    /// Bad responses: complete and not good. Each is either in `responses` or in `errors.check`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub bad: Option<u64>,
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

    /// Good responses; derived from statuses in records from older versions.
    #[must_use]
    pub fn good(&self) -> u64 {
        self.good.unwrap_or_else(|| match self.errors.contains_key(CHECK) {
            true => self.responses,
            false => self.responses.saturating_sub(self.responses_from_400()),
        })
    }

    /// Bad responses; derived from statuses in records from older versions.
    #[must_use]
    pub fn bad(&self) -> u64 {
        self.bad.unwrap_or_else(|| match self.errors.get(CHECK) {
            Some(checks) => *checks,
            None => self.responses_from_400().min(self.responses),
        })
    }

    /// Share of requests that had no good response.
    #[must_use]
    pub fn error_share(&self) -> f64 {
        let not_good = self.requests.saturating_sub(self.good());
        if self.requests == 0 { 0.0 } else { not_good as f64 / self.requests as f64 }
    }

    fn responses_from_400(&self) -> u64 {
        self.status.range(400..).map(|(_, count)| count).sum()
    }
}

/// The kind of error of a complete response that failed a check.
pub const CHECK: &str = "check";

impl Run {
    /// Good responses per second in the window; in records from older versions from the share of good
    /// responses over the whole run.
    #[must_use]
    pub fn goodput_per_s(&self) -> f64 {
        self.rates.goodput_per_s.unwrap_or_else(|| {
            let (good, all) = (self.totals.good(), self.totals.responses);
            let share = if all == 0 { 1.0 } else { (good as f64 / all as f64).min(1.0) };
            self.rates.responses_per_s * share
        })
    }

    /// The share of requests without a good response beyond which the run is not valid; absent where
    /// the plan does not say (`plan.error_share_max`).
    #[must_use]
    pub fn error_share_max(&self) -> Option<f64> {
        self.plan.get("error_share_max")?.as_f64()
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
    /// Complete responses per second, good and bad.
    pub responses_per_s: f64,
    /// Good responses per second; see [`Run::goodput_per_s`] for records from older versions.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub goodput_per_s: Option<f64>,
    /// Bytes received per second.
    pub bytes_in_per_s: f64,
    /// Requests due per second; open loop only.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub offered_per_s: Option<f64>,
    /// The fraction of the requests due in the window that were answered: not dropped, not failed, and
    /// not of a backlog that grew over the window. What a steady server always has in flight is not
    /// missing. Open loop with a whole second only; absent in records from older versions.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub answered_share: Option<f64>,
}

impl Rates {
    /// The fraction of an open loop's requests that were answered; in a record from an older version
    /// what was answered within the window, of what was due in it.
    #[must_use]
    pub fn answered(&self) -> Option<f64> {
        let within = |offered: f64| (self.responses_per_s / offered.max(1e-9)).min(1.0);
        self.answered_share.or_else(|| self.offered_per_s.map(within))
    }
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
    /// Requests due in it that had no good response: bad responses, failures and dropped requests.
    /// Objectives of latency count them as infinitely slow.
    #[serde(default)]
    pub not_good: u64,
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

/// Latencies by phase, of good responses.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// Until the connection stood.
    pub connect: Pair,
    /// Until the first byte of the final response: of its status line, behind interim responses (1xx).
    pub first_byte: Pair,
    /// Until the last byte of the response.
    pub last_byte: Pair,
    /// Until the last byte of bad responses; absent where there was none.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub last_byte_bad: Option<Pair>,
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
    /// Responses completed in it, good and bad.
    pub responses: u64,
    /// Good responses completed in it; absent in records from older versions.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub good: Option<u64>,
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
    /// Time that generator threads stood still in it, of stalls (`generator.stalls`).
    #[serde(skip_serializing_if = "is_zero", default)]
    pub stalled_ns: u64,
    /// Whether it lies in the measured window.
    pub measured: bool,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}
