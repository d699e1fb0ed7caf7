//! Figures about the generator of a run: its lag, its stalls, its pauses, and its margin to its own
//! limit.

use serde::{Deserialize, Serialize};

/// Figures about the generator itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GeneratorStats {
    pub threads: u32,
    /// Definition of lag: `send` (open loop: every due request, until it was sent or, without a
    /// free connection, until it was queued) or `loop` (closed loop: regular wake-ups, also missed
    /// ones).
    pub lag_kind: String,
    pub lag_p50_ns: u64,
    /// 99th percentile of the lag.
    pub lag_p99_ns: u64,
    pub lag_max_ns: u64,
    /// Number of lags beyond the limit of 1 ms.
    pub late: u64,
    /// Times in which its threads could not run although they had work.
    #[serde(default)]
    pub stalls: StallTotals,
    /// Requests of an open loop that waited while the generator paused after a failed connect.
    #[serde(default)]
    pub back_off: BackOffTotals,
    /// Fraction of one core that the busiest of its threads used, in the window.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub busiest_thread_fraction: Option<f64>,
    /// Fraction of the window that its threads waited for a CPU.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub run_queue_wait_fraction: Option<f64>,
    /// Fraction of the window that one of its threads ran or waited for a CPU, of the thread with
    /// the most: near 1, it never waited for work.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub runnable_thread_fraction: Option<f64>,
    /// Mean number of requests in flight, as counted.
    pub in_flight_mean: f64,
    /// Requests in flight by Little's law, from rate and mean latency; should be equal.
    pub in_flight_by_littles_law: f64,
    /// Capacity of this machine by a stored calibration, for the nearest profile.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub calibrated: Option<CalibratedCapacity>,
}

impl GeneratorStats {
    /// Returns the fraction of the window that its busiest thread ran or waited for a CPU. Waiting is
    /// known in a record without `runnable_thread_fraction` if there is one thread.
    pub fn runnable_fraction(&self) -> Option<f64> {
        let of_single_thread = || {
            let waited = self.run_queue_wait_fraction.filter(|_| self.threads == 1);
            Some(self.busiest_thread_fraction? + waited.unwrap_or(0.0))
        };
        self.runnable_thread_fraction.or_else(of_single_thread).map(|fraction| fraction.min(1.0))
    }
}

/// Requests of an open loop that waited for a connection during a pause of its task after a failed
/// connect. Their response latency counts from the due time and so contains the pause, which is the
/// generator's. In a closed loop the next request is due after the pause.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackOffTotals {
    /// Number of such requests.
    pub requests: u64,
    /// Total time that they waited.
    pub total_ns: u64,
    /// Longest such time.
    pub longest_ns: u64,
}

/// Stalls of at least 10 ms, in which threads of the generator could not run although they had
/// work. The process was stopped, its CPU was taken away, or one task blocked an event loop.
/// Counted from the start of the window on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StallTotals {
    /// Number of stalls; two threads that stall together count twice.
    pub count: u64,
    /// Total time of all threads in stalls.
    pub total_ns: u64,
    pub longest_ns: u64,
    pub requests_due: u64,
    /// Requests that were in flight in a stall and got a response right after it.
    pub requests_in_flight: u64,
}

impl StallTotals {
    /// Returns the number of requests whose response latency contains a stall.
    pub fn affected_requests(&self) -> u64 {
        self.requests_due + self.requests_in_flight
    }
}

/// Stored calibration that a run was compared with.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CalibratedCapacity {
    /// Responses per second that the same threads can drive.
    pub responses_per_s: f64,
    pub used_fraction: f64,
    pub profile: String,
}
