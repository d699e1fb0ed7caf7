//! Distinguishes a standing queue from one that absorbs a burst. A queue stands when it has not
//! been short for a while. This is the window of CoDel (RFC 8289 §3), as in Facebook's "Fail at
//! Scale". A queue that clients leave before their turn is too long for them, even if its oldest
//! entry is young: it also stands while they leave. No I/O.
//!
//! ```text
//! oldest one's age |    short     __________________   short again
//!                  |    ____.----'                  \____
//!                  |---'    |<-- standing_after -->|stands|
//! ```

use rt::clock::MonotonicTime;

/// History of a queue's length.
#[derive(Clone, Copy, Debug)]
pub(super) struct StandingDetector {
    /// Time when the queue was last short.
    last_short: MonotonicTime,
    /// Time since which the queue stands; 0: it does not.
    standing_since: MonotonicTime,
    /// Times when clients left the queue before their turn, the latest first; 0: never.
    departures: [MonotonicTime; DEPARTURES_MIN],
    client_timeout: ClientTimeoutEstimate,
}

/// The longest wait after which a client left, in the current and in the previous window.
#[derive(Clone, Copy, Debug, Default)]
struct ClientTimeoutEstimate {
    window_start: MonotonicTime,
    longest_ns: u64,
    previous_longest_ns: u64,
}

impl ClientTimeoutEstimate {
    fn add(&mut self, waited_ns: u64, window_ns: u64, now: MonotonicTime) {
        let elapsed_ns = now.since(self.window_start);
        if elapsed_ns >= window_ns {
            let is_next_window = elapsed_ns < window_ns.saturating_mul(2);
            self.previous_longest_ns = if is_next_window { self.longest_ns } else { 0 };
            (self.window_start, self.longest_ns) = (now, 0);
        }
        self.longest_ns = self.longest_ns.max(waited_ns);
    }

    fn longest_ns(&self) -> u64 {
        self.longest_ns.max(self.previous_longest_ns)
    }
}

/// Clients that have to leave within the window: a single one may leave for its own reasons.
const DEPARTURES_MIN: usize = 3;

/// Margin on the average time of a response, as a divisor.
const SERVICE_MARGIN_DIVISOR: u64 = 8;

/// A queue is short if its oldest entry has waited for less than this part of the window.
const SHORT_DIVISOR: u64 = 10;

impl StandingDetector {
    /// Creates the history of an empty queue.
    pub(super) fn new() -> Self {
        Self {
            last_short: MonotonicTime::ZERO,
            standing_since: MonotonicTime::ZERO,
            departures: [MonotonicTime::ZERO; DEPARTURES_MIN],
            client_timeout: ClientTimeoutEstimate::default(),
        }
    }

    /// Records that a client left the queue before its turn, after a wait of `waited_ns`.
    pub(super) fn note_departure(&mut self, waited_ns: u64, window_ns: u64, now: MonotonicTime) {
        self.departures.rotate_right(1);
        self.departures[0] = now;
        self.client_timeout.add(waited_ns, window_ns, now);
    }

    /// Returns the arrival time of the oldest entry whose response, after `service_ns`, would still
    /// find its client; 0 without evidence of the contrary.
    ///
    /// The clients' timeout is estimated as the longest recent wait before a departure. An entry that has
    /// waited longer than that and still waits (`oldest_at`) shows that the timeout is longer.
    pub(super) fn useful_since(
        &self,
        oldest_at: MonotonicTime,
        service_ns: u64,
        window_ns: u64,
        now: MonotonicTime,
    ) -> MonotonicTime {
        if !self.has_departures(window_ns, now) {
            return MonotonicTime::ZERO;
        }
        let timeout_ns = self.client_timeout.longest_ns().max(now.since(oldest_at));
        let needed_ns = service_ns + service_ns / SERVICE_MARGIN_DIVISOR;
        match timeout_ns.checked_sub(needed_ns) {
            Some(wait_max_ns) => now.saturating_sub(wait_max_ns),
            // No response would be in time, so the estimate of the service time proves nothing.
            None => MonotonicTime::ZERO,
        }
    }

    /// Returns whether clients leave the queue.
    fn has_departures(&self, window_ns: u64, now: MonotonicTime) -> bool {
        let earliest = self.departures[DEPARTURES_MIN - 1];
        earliest > MonotonicTime::ZERO && now.since(earliest) < window_ns
    }

    /// Updates the history and returns whether the queue stands. `oldest_at` is the arrival time of
    /// the oldest entry, `None` if the queue is empty.
    pub(super) fn update(
        &mut self,
        oldest_at: Option<MonotonicTime>,
        standing_after_ns: u64,
        now: MonotonicTime,
    ) -> bool {
        let short_ns = standing_after_ns / SHORT_DIVISOR;
        let is_short = oldest_at.is_none_or(|arrival| now.since(arrival) < short_ns);
        if is_short {
            (self.last_short, self.standing_since) = (now, MonotonicTime::ZERO);
            return self.has_departures(standing_after_ns, now);
        }
        // The queue was short as long as its oldest entry was young, even between two updates.
        let was_short = oldest_at.map_or(now, |arrival| arrival + short_ns);
        if self.last_short == MonotonicTime::ZERO {
            self.last_short = was_short;
        }
        let is_standing = now.since(self.last_short) >= standing_after_ns;
        if is_standing && self.standing_since == MonotonicTime::ZERO {
            self.standing_since = self.last_short + standing_after_ns;
        }
        is_standing || self.has_departures(standing_after_ns, now)
    }

    /// Returns for how long the queue has stood.
    pub(super) fn standing_ns(&self, now: MonotonicTime) -> u64 {
        if self.standing_since == MonotonicTime::ZERO { 0 } else { now.since(self.standing_since) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_time::at;

    const AFTER: u64 = 100;

    #[test]
    fn it_stands_once_it_was_not_short_for_the_window() {
        let mut detector = StandingDetector::new();
        assert!(!detector.update(None, AFTER, at(1_000)));
        // The oldest came at 1000, so it was short until 1010.
        assert!(!detector.update(Some(at(1_000)), AFTER, at(1_005)));
        assert!(!detector.update(Some(at(1_000)), AFTER, at(1_104)));
        assert!(detector.update(Some(at(1_000)), AFTER, at(1_105)));
        assert!(detector.update(Some(at(1_090)), AFTER, at(1_150)));
        assert_eq!(detector.standing_ns(at(1_150)), 45);
    }

    #[test]
    fn a_queue_that_clients_leave_stands_while_they_do() {
        let mut detector = StandingDetector::new();
        for now in [at(1_000), at(1_010)] {
            detector.note_departure(1, AFTER, now);
            assert!(!detector.update(Some(now), AFTER, now));
        }
        detector.note_departure(1, AFTER, at(1_020));
        // Its oldest has just come.
        assert!(detector.update(Some(at(1_020)), AFTER, at(1_020)));
        assert!(detector.update(Some(at(1_090)), AFTER, at(1_099)));
        assert!(!detector.update(Some(at(1_100)), AFTER, at(1_100)));
        assert_eq!(detector.standing_ns(at(1_099)), 0);
    }

    #[test]
    fn departures_show_which_responses_would_be_late() {
        let mut detector = StandingDetector::new();
        let useful =
            |detector: &StandingDetector, oldest_at, now| detector.useful_since(oldest_at, 16, AFTER, now);
        // Two departures are no evidence.
        for now in [at(1_000), at(1_010)] {
            detector.note_departure(30, AFTER, now);
            assert_eq!(useful(&detector, now, now), MonotonicTime::ZERO);
        }
        detector.note_departure(28, AFTER, at(1_020));
        // Clients stay for 30, and a response takes 16 and a margin of 2.
        assert_eq!(useful(&detector, at(1_000), at(1_020)), at(1_020 - 12));
        // One waits for 60 already.
        assert_eq!(useful(&detector, at(960), at(1_020)), at(1_020 - 42));
        // The last departures are over.
        assert_eq!(useful(&detector, at(1_200), at(1_200)), at(0));
        // Responses that take longer than any client waits.
        assert_eq!(detector.useful_since(at(1_020), 200, AFTER, at(1_020)), at(0));
    }

    #[test]
    fn waits_before_departures_are_forgotten_after_two_windows() {
        let mut estimate = ClientTimeoutEstimate::default();
        estimate.add(30, AFTER, at(1_000));
        estimate.add(10, AFTER, at(1_110));
        assert_eq!(estimate.longest_ns(), 30);
        estimate.add(12, AFTER, at(1_215));
        assert_eq!(estimate.longest_ns(), 12);
        estimate.add(5, AFTER, at(2_000));
        assert_eq!(estimate.longest_ns(), 5);
    }

    #[test]
    fn one_update_with_a_short_queue_ends_it() {
        let mut detector = StandingDetector::new();
        assert!(!detector.update(None, AFTER, at(1_000)));
        assert!(detector.update(Some(at(1_000)), AFTER, at(2_000)));
        assert!(!detector.update(Some(at(1_995)), AFTER, at(2_000)));
        assert_eq!(detector.standing_ns(at(2_000)), 0);
        assert!(!detector.update(Some(at(1_995)), AFTER, at(2_050)));
        assert!(!detector.update(None, AFTER, at(2_060)));
        assert!(!detector.update(Some(at(2_060)), AFTER, at(2_100)));
    }
}
