//! Fraction of an open-loop run's requests that the server kept up with. A steady number in flight at
//! the end is normal (Little's law); only a growing backlog counts as unanswered. No I/O.

use crate::measurement::RunMeasurement;

/// Backlog of one open-loop run in its measured window.
#[derive(Clone, Debug, Default)]
pub(crate) struct Backlog {
    /// Number of requests that were due and had no outcome yet, at the end of each second.
    pub(crate) at_second_end: Vec<u64>,
    /// Number of requests in flight on a connection at the end of the last second.
    pub(crate) in_flight: u64,
    /// Requests due per second.
    pub(crate) rate_per_s: f64,
    /// First percentile of the good responses' latency from the due time: about the latency without
    /// queueing.
    pub(crate) latency_p1_s: f64,
}

impl Backlog {
    /// Returns the growth of the backlog in the window, in requests; 0 if it is not significant, that is
    /// within three standard deviations of Poisson noise.
    pub(crate) fn growth(&self) -> f64 {
        let Some(&last) = self.at_second_end.last() else { return 0.0 };
        let last = last as f64;
        let seconds = self.at_second_end.len();
        let middle = seconds / 2;
        // One second cannot show growth: then only requests that wait for a connection count.
        let (before, after) = match middle {
            0 => (self.in_flight as f64, 1),
            _ => (self.at_second_end[middle - 1] as f64, seconds - middle),
        };
        // Little's law: the mean number in flight is rate times latency.
        let normal = before.max(self.rate_per_s * self.latency_p1_s);
        let grown = last - normal;
        // The standard deviation of a Poisson count is its square root.
        if grown <= 1.0 + 3.0 * normal.sqrt() {
            return 0.0;
        }
        // Extrapolates to the complete window: the growth before the middle was as fast.
        (grown * seconds as f64 / after as f64).min(last)
    }
}

impl RunMeasurement {
    /// Returns the fraction of the requests due in the window that were answered: not dropped, not
    /// failed, and not part of a growing backlog. A complete response counts whatever its status, and
    /// also if it fails a check. `None` in a closed loop and without a complete second.
    pub fn answered_fraction(&self) -> Option<f64> {
        if !self.plan.is_open_loop() || !self.has_complete_second || self.window_requests == 0 {
            return None;
        }
        let due = self.window_requests as f64;
        let response = &self.latencies.last_byte.response;
        let mut measured = self.intervals.iter().zip(&self.backlog).filter(|(second, _)| second.measured);
        let backlog = Backlog {
            at_second_end: measured.clone().map(|(_, backlog)| *backlog).collect(),
            in_flight: measured.next_back().map_or(0, |(second, _)| second.in_flight),
            rate_per_s: due / self.window_length_s(),
            latency_p1_s: response.value_at_quantile(0.01) as f64 / 1e9,
        };
        let answered = (response.count() + self.latencies.bad.response.count()) as f64 / due;
        Some(answered.min(1.0 - backlog.growth() / due).clamp(0.0, 1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn growth(rate_per_s: f64, latency_p1_s: f64, at_second_end: &[u64]) -> f64 {
        Backlog { at_second_end: at_second_end.to_vec(), in_flight: 0, rate_per_s, latency_p1_s }.growth()
    }

    #[test]
    fn what_is_always_in_flight_is_not_missing() {
        // 300 ms at 50/s for 8 s, and at 20/s; 5 s of latency in 8 s; none at all.
        assert_eq!(growth(50.0, 0.3, &[15; 8]), 0.0);
        assert_eq!(growth(20.0, 0.3, &[6, 6, 5, 6, 6, 7, 6, 6]), 0.0);
        assert_eq!(growth(10.0, 5.0, &[10, 20, 30, 40, 50, 50, 50, 50]), 0.0);
        assert_eq!(growth(1000.0, 0.0, &[]), 0.0);
        assert_eq!(growth(1000.0, 0.0, &[0, 1, 0, 0]), 0.0);
    }

    #[test]
    fn a_backlog_that_grows_is_missing() {
        // 400/s offered and 200/s answered, over 8, 3 and 2 s.
        let missing = |seconds: u64| {
            let at_second_end: Vec<u64> = (1..=seconds).map(|second| 200 * second).collect();
            growth(400.0, 0.05, &at_second_end) / (400.0 * seconds as f64)
        };
        assert!([8, 3, 2].iter().all(|seconds| (missing(*seconds) - 0.5).abs() < 1e-9));
        let five_percent: Vec<u64> = (1..=10).map(|second| 50 * second).collect();
        assert!((growth(1000.0, 0.01, &five_percent) - 500.0).abs() < 1e-9);
    }

    #[test]
    fn within_one_second_only_the_queue_is_missing() {
        let fast = Backlog { at_second_end: vec![210], in_flight: 10, rate_per_s: 400.0, latency_p1_s: 0.02 };
        assert_eq!(fast.growth(), 200.0);
        let slow = Backlog { at_second_end: vec![15], in_flight: 15, rate_per_s: 50.0, latency_p1_s: 0.3 };
        assert_eq!(slow.growth(), 0.0);
    }
}
