//! Usual latency of a response, which decides whether a queued request is still sent.
//!
//! It uses the estimator of RFC 6298 for retransmission timeouts: a smoothed mean and mean
//! deviation. No I/O.

/// Usual latency of one core's requests, from the time when a client takes one.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LatencyEstimator {
    /// Smoothed mean and mean deviation, in ns; `None` before the first response.
    smoothed: Option<(f64, f64)>,
}

impl LatencyEstimator {
    /// Records a response after this time.
    #[inline]
    pub(crate) fn record_response(&mut self, latency_ns: u64) {
        let latency_ns = latency_ns as f64;
        self.smoothed = Some(match self.smoothed {
            None => (latency_ns, latency_ns / 2.0),
            Some((mean_ns, deviation_ns)) => (
                mean_ns + (latency_ns - mean_ns) / 8.0,
                deviation_ns + ((mean_ns - latency_ns).abs() - deviation_ns) / 4.0,
            ),
        });
    }

    /// Records a request that was given up after this time; a response would have taken longer.
    pub(crate) fn record_given_up(&mut self, after_ns: u64) {
        // With less than the usual time left it says nothing about the server.
        if self.smoothed.is_none_or(|(mean_ns, _)| after_ns as f64 > mean_ns) {
            self.record_response(after_ns);
        }
    }

    /// Returns the time within which nearly all responses come: the mean and four deviations, but
    /// at least 1.25 times the mean. 0 while nothing is known.
    pub(crate) fn estimate_ns(&self) -> u64 {
        let estimate =
            |(mean_ns, deviation_ns): (f64, f64)| mean_ns + (4.0 * deviation_ns).max(mean_ns / 4.0);
        self.smoothed.map_or(0, |smoothed| estimate(smoothed) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steady_responses_need_a_quarter_more_than_their_mean_and_others_four_deviations() {
        let mut estimator = LatencyEstimator::default();
        assert_eq!(estimator.estimate_ns(), 0);
        estimator.record_response(1_000);
        assert_eq!(estimator.estimate_ns(), 3_000);
        (0..100).for_each(|_| estimator.record_response(1_000));
        assert_eq!(estimator.estimate_ns(), 1_250);
        (0..100).for_each(|index| estimator.record_response(500 + 1_000 * (index % 2)));
        assert!((2_800..3_300).contains(&estimator.estimate_ns()), "{}", estimator.estimate_ns());
    }

    #[test]
    fn a_request_that_was_given_up_counts_where_it_had_time() {
        let mut estimator = LatencyEstimator::default();
        (0..100).for_each(|_| estimator.record_response(1_000));
        estimator.record_given_up(400);
        assert_eq!(estimator.estimate_ns(), 1_250);
        estimator.record_given_up(5_000);
        assert!(estimator.estimate_ns() > 5_000);
    }
}
