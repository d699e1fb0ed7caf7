//! How the generator of a run itself did: its lag, its stalls, its pauses, and how near it was to its own
//! limit.

use serde::{Deserialize, Serialize};

/// How the generator itself did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Generator {
    /// Threads that drove the load.
    pub threads: u32,
    /// What lag is: `send` (open loop: every due request, until it was sent or, without a free
    /// connection, until it was queued) or `loop` (closed loop: regular wake-ups, also missed ones).
    pub lag_of: String,
    /// Median lag.
    pub lag_p50_ns: u64,
    /// 99 % of lags are no longer.
    pub lag_p99_ns: u64,
    /// The longest lag.
    pub lag_max_ns: u64,
    /// Lags beyond the bound of 1 ms.
    pub late: u64,
    /// Times in which its threads did not run although they had to.
    #[serde(default)]
    pub stalls: Stalls,
    /// Requests of an open loop that waited while the generator paused after a failed connect.
    #[serde(default)]
    pub back_off: BackOff,
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

/// Requests of an open loop that waited for a connection while the one that took them paused, because
/// connecting had failed. Their response latency counts from the due time and so contains the pause,
/// which is the generator's. In a closed loop the next request is due behind the pause.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackOff {
    /// How many.
    pub requests: u64,
    /// The time that they waited so, in all.
    pub total_ns: u64,
    /// The longest such time.
    pub longest_ns: u64,
}

/// Times of at least 10 ms in which threads of the generator did not run although they had to, because the
/// process was stopped, its CPU was taken away, or one task held an event loop. From the window on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stalls {
    /// Number of stalls; two threads that stall together count twice.
    pub count: u64,
    /// Time of all threads in stalls.
    pub total_ns: u64,
    /// The longest.
    pub longest_ns: u64,
    /// Requests that were due in a stall.
    pub requests_due: u64,
    /// Requests that were in flight in a stall and answered right behind it.
    pub requests_in_flight: u64,
}

impl Stalls {
    /// Requests whose response latency has a stall in it.
    #[must_use]
    pub fn affected(&self) -> u64 {
        self.requests_due + self.requests_in_flight
    }
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
