//! Figures about the generator of a run: its lag, its stalls, its pauses, and its margin to its own
//! limit.

use serde::{Deserialize, Serialize};

use crate::histogram::LatencySummary;

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
    /// Response latency without the generator's own part; absent if nothing of it is known.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub undelayed: Option<UndelayedLatency>,
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
        let single_thread_fraction = || {
            let waited = self.run_queue_wait_fraction.filter(|_| self.threads == 1);
            Some(self.busiest_thread_fraction? + waited.unwrap_or(0.0))
        };
        self.runnable_thread_fraction.or_else(single_thread_fraction).map(|fraction| fraction.min(1.0))
    }
}

/// Response latency without the generator's own part, of a sample of the connections: each begins when the request was
/// sent, or when it began to wait for a connection, and ends when the response arrived in the kernel (`SO_TIMESTAMPNS`,
/// socket(7)).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UndelayedLatency {
    /// Good responses in the sample.
    pub requests: u64,
    /// Median.
    pub p50_ns: u64,
    /// 90th percentile.
    pub p90_ns: u64,
    /// 99th percentile.
    pub p99_ns: u64,
    /// 99.9th percentile.
    pub p999_ns: u64,
    /// The complete sample, as [`LatencySummary::hdr`]. Empty in an older record.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub hdr: String,
}

/// Latencies of a sample beyond a percentile that it needs to tell something about it.
const SAMPLES_BEYOND_MIN: f64 = 10.0;

impl UndelayedLatency {
    /// Returns a percentile of the sample: the 0.5, 0.9, 0.99 or 0.999 quantile. `None` for another one, and if the
    /// sample has too few latencies beyond it.
    #[must_use]
    pub fn at(&self, quantile: f64) -> Option<u64> {
        let known = [(0.5, self.p50_ns), (0.9, self.p90_ns), (0.99, self.p99_ns), (0.999, self.p999_ns)];
        let (quantile, value_ns) = known.into_iter().find(|(known, _)| (known - quantile).abs() < 1e-9)?;
        (self.requests >= Self::requests_needed(quantile)).then_some(value_ns)
    }

    /// Returns the minimum number of latencies in a sample that tells something about a quantile.
    #[must_use]
    pub fn requests_needed(quantile: f64) -> u64 {
        // Rounded so that 0.9 needs 100, whatever its binary fraction is.
        (SAMPLES_BEYOND_MIN / (1.0 - quantile)).round() as u64
    }

    /// Returns the largest part of median and 99th percentile that was the generator's own, as a fraction of them.
    /// `None` if neither is known.
    #[must_use]
    pub fn generator_part(&self, response: &LatencySummary) -> Option<f64> {
        let parts = [(0.5, response.p50_ns), (0.99, response.p99_ns)].into_iter().filter_map(
            |(quantile, value_ns)| {
                let own_ns = value_ns.saturating_sub(self.at(quantile)?);
                Some(own_ns as f64 / value_ns.max(1) as f64)
            },
        );
        parts.reduce(f64::max)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::histogram::LatencyHistogram;

    #[test]
    fn a_percentile_needs_latencies_beyond_it() {
        let sample = |requests| UndelayedLatency {
            requests,
            p50_ns: 5,
            p90_ns: 9,
            p99_ns: 10,
            p999_ns: 11,
            hdr: String::new(),
        };
        assert_eq!(
            [0.5, 0.9, 0.99, 0.999, 0.95].map(|at| sample(10_000).at(at)),
            [Some(5), Some(9), Some(10), Some(11), None]
        );
        assert_eq!([0.5, 0.9, 0.99].map(|at| sample(100).at(at)), [Some(5), Some(9), None]);
        assert_eq!(sample(19).at(0.5), None);
    }

    #[test]
    fn the_part_of_the_generator_is_the_larger_of_two() {
        let response = LatencySummary { p50_ns: 1_000, p99_ns: 10_000, ..LatencyHistogram::new().summary() };
        let part = |requests, p50_ns, p99_ns| {
            UndelayedLatency { requests, p50_ns, p99_ns, ..UndelayedLatency::default() }
                .generator_part(&response)
        };
        assert_eq!(part(1_000, 900, 8_000), Some(0.2));
        assert_eq!(part(100, 900, 8_000), Some(0.1), "too few for the p99");
        assert_eq!(part(10, 900, 8_000), None);
        assert_eq!(part(1_000, 1_200, 11_000), Some(0.0));
    }
}
