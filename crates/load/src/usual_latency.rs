//! How long a response usually takes: what decides whether a request that has waited is still sent.
//!
//! The estimator of RFC 6298 for retransmission time-outs: a smoothed mean and mean deviation. Pure.

/// The usual latency of one core's requests, from the moment a client takes one on.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct UsualLatency {
    /// Smoothed mean and mean deviation, in ns; `None` before the first response.
    smoothed: Option<(f64, f64)>,
}

impl UsualLatency {
    /// A response came after this time.
    #[inline]
    pub(crate) fn answered(&mut self, latency_ns: u64) {
        let latency_ns = latency_ns as f64;
        self.smoothed = Some(match self.smoothed {
            None => (latency_ns, latency_ns / 2.0),
            Some((mean_ns, deviation_ns)) => (
                mean_ns + (latency_ns - mean_ns) / 8.0,
                deviation_ns + ((mean_ns - latency_ns).abs() - deviation_ns) / 4.0,
            ),
        });
    }

    /// A request was given up after this time, which a response takes at least.
    pub(crate) fn given_up(&mut self, after_ns: u64) {
        // With less than the usual time left it says nothing of the server.
        if self.smoothed.is_none_or(|(mean_ns, _)| after_ns as f64 > mean_ns) {
            self.answered(after_ns);
        }
    }

    /// The time within which nearly all responses come: the mean and four deviations, or a quarter of
    /// the mean where it hardly varies. 0 while nothing is known.
    pub(crate) fn needed_ns(&self) -> u64 {
        let needed =
            |(mean_ns, deviation_ns): (f64, f64)| mean_ns + (4.0 * deviation_ns).max(mean_ns / 4.0);
        self.smoothed.map_or(0, |smoothed| needed(smoothed) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steady_responses_need_a_quarter_more_than_their_mean_and_others_four_deviations() {
        let mut usual = UsualLatency::default();
        assert_eq!(usual.needed_ns(), 0);
        usual.answered(1_000);
        assert_eq!(usual.needed_ns(), 3_000);
        (0..100).for_each(|_| usual.answered(1_000));
        assert_eq!(usual.needed_ns(), 1_250);
        (0..100).for_each(|index| usual.answered(500 + 1_000 * (index % 2)));
        assert!((2_800..3_300).contains(&usual.needed_ns()), "{}", usual.needed_ns());
    }

    #[test]
    fn a_request_that_was_given_up_counts_where_it_had_time() {
        let mut usual = UsualLatency::default();
        (0..100).for_each(|_| usual.answered(1_000));
        usual.given_up(400);
        assert_eq!(usual.needed_ns(), 1_250);
        usual.given_up(5_000);
        assert!(usual.needed_ns() > 5_000);
    }
}
