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

/// History of a queue's length.
#[derive(Clone, Copy, Debug)]
pub(super) struct StandingDetector {
    /// Time when the queue was last short.
    last_short_ns: u64,
    /// Time since which the queue stands; 0: it does not.
    standing_since_ns: u64,
    /// Times when clients left the queue before their turn, the latest first; 0: never.
    departures_ns: [u64; DEPARTURES_MIN],
    client_timeout: ClientTimeoutEstimate,
}

/// The longest wait after which a client left, in the current and in the previous window.
#[derive(Clone, Copy, Debug, Default)]
struct ClientTimeoutEstimate {
    window_start_ns: u64,
    longest_ns: u64,
    previous_longest_ns: u64,
}

impl ClientTimeoutEstimate {
    fn add(&mut self, waited_ns: u64, window_ns: u64, now_ns: u64) {
        let elapsed_ns = now_ns.saturating_sub(self.window_start_ns);
        if elapsed_ns >= window_ns {
            let is_next_window = elapsed_ns < window_ns.saturating_mul(2);
            self.previous_longest_ns = if is_next_window { self.longest_ns } else { 0 };
            (self.window_start_ns, self.longest_ns) = (now_ns, 0);
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
            last_short_ns: 0,
            standing_since_ns: 0,
            departures_ns: [0; DEPARTURES_MIN],
            client_timeout: ClientTimeoutEstimate::default(),
        }
    }

    /// Records that a client left the queue before its turn, after a wait of `waited_ns`.
    pub(super) fn note_departure(&mut self, waited_ns: u64, window_ns: u64, now_ns: u64) {
        self.departures_ns.rotate_right(1);
        self.departures_ns[0] = now_ns;
        self.client_timeout.add(waited_ns, window_ns, now_ns);
    }

    /// Returns the arrival time of the oldest entry whose response, after `service_ns`, would still
    /// find its client; 0 without evidence of the contrary.
    ///
    /// The clients' timeout is estimated as the longest recent wait before a departure. An entry that has
    /// waited longer than that and still waits (`oldest_ns`) shows that the timeout is longer.
    pub(super) fn useful_since_ns(
        &self,
        oldest_ns: u64,
        service_ns: u64,
        window_ns: u64,
        now_ns: u64,
    ) -> u64 {
        if !self.has_departures(window_ns, now_ns) {
            return 0;
        }
        let timeout_ns = self.client_timeout.longest_ns().max(now_ns.saturating_sub(oldest_ns));
        let needed_ns = service_ns + service_ns / SERVICE_MARGIN_DIVISOR;
        match timeout_ns.checked_sub(needed_ns) {
            Some(wait_max_ns) => now_ns.saturating_sub(wait_max_ns),
            // No response would be in time, so the estimate of the service time proves nothing.
            None => 0,
        }
    }

    /// Returns whether clients leave the queue.
    fn has_departures(&self, window_ns: u64, now_ns: u64) -> bool {
        let earliest_ns = self.departures_ns[DEPARTURES_MIN - 1];
        earliest_ns > 0 && now_ns.saturating_sub(earliest_ns) < window_ns
    }

    /// Updates the history and returns whether the queue stands. `oldest_ns` is the arrival time of
    /// the oldest entry, `None` if the queue is empty.
    pub(super) fn update(&mut self, oldest_ns: Option<u64>, standing_after_ns: u64, now_ns: u64) -> bool {
        let short_ns = standing_after_ns / SHORT_DIVISOR;
        let is_short = oldest_ns.is_none_or(|arrival_ns| now_ns.saturating_sub(arrival_ns) < short_ns);
        if is_short {
            (self.last_short_ns, self.standing_since_ns) = (now_ns, 0);
            return self.has_departures(standing_after_ns, now_ns);
        }
        // The queue was short as long as its oldest entry was young, even between two updates.
        let was_short_ns = oldest_ns.map_or(now_ns, |arrival_ns| arrival_ns + short_ns);
        if self.last_short_ns == 0 {
            self.last_short_ns = was_short_ns;
        }
        let is_standing = now_ns.saturating_sub(self.last_short_ns) >= standing_after_ns;
        if is_standing && self.standing_since_ns == 0 {
            self.standing_since_ns = self.last_short_ns + standing_after_ns;
        }
        is_standing || self.has_departures(standing_after_ns, now_ns)
    }

    /// Returns for how long the queue has stood.
    pub(super) fn standing_ns(&self, now_ns: u64) -> u64 {
        if self.standing_since_ns == 0 { 0 } else { now_ns.saturating_sub(self.standing_since_ns) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AFTER: u64 = 100;

    #[test]
    fn it_stands_once_it_was_not_short_for_the_window() {
        let mut detector = StandingDetector::new();
        assert!(!detector.update(None, AFTER, 1_000));
        // The oldest came at 1000, so it was short until 1010.
        assert!(!detector.update(Some(1_000), AFTER, 1_005));
        assert!(!detector.update(Some(1_000), AFTER, 1_104));
        assert!(detector.update(Some(1_000), AFTER, 1_105));
        assert!(detector.update(Some(1_090), AFTER, 1_150));
        assert_eq!(detector.standing_ns(1_150), 45);
    }

    #[test]
    fn a_queue_that_clients_leave_stands_while_they_do() {
        let mut detector = StandingDetector::new();
        for now_ns in [1_000, 1_010] {
            detector.note_departure(1, AFTER, now_ns);
            assert!(!detector.update(Some(now_ns), AFTER, now_ns));
        }
        detector.note_departure(1, AFTER, 1_020);
        // Its oldest has just come.
        assert!(detector.update(Some(1_020), AFTER, 1_020));
        assert!(detector.update(Some(1_090), AFTER, 1_099));
        assert!(!detector.update(Some(1_100), AFTER, 1_100));
        assert_eq!(detector.standing_ns(1_099), 0);
    }

    #[test]
    fn departures_show_which_responses_would_be_late() {
        let mut detector = StandingDetector::new();
        let useful = |detector: &StandingDetector, oldest_ns, now_ns| {
            detector.useful_since_ns(oldest_ns, 16, AFTER, now_ns)
        };
        // Two departures are no evidence.
        for now_ns in [1_000, 1_010] {
            detector.note_departure(30, AFTER, now_ns);
            assert_eq!(useful(&detector, now_ns, now_ns), 0);
        }
        detector.note_departure(28, AFTER, 1_020);
        // Clients stay for 30, and a response takes 16 and a margin of 2.
        assert_eq!(useful(&detector, 1_000, 1_020), 1_020 - 12);
        // One waits for 60 already.
        assert_eq!(useful(&detector, 960, 1_020), 1_020 - 42);
        // The last departures are over.
        assert_eq!(useful(&detector, 1_200, 1_200), 0);
        // Responses that take longer than any client waits.
        assert_eq!(detector.useful_since_ns(1_020, 200, AFTER, 1_020), 0);
    }

    #[test]
    fn waits_before_departures_are_forgotten_after_two_windows() {
        let mut estimate = ClientTimeoutEstimate::default();
        estimate.add(30, AFTER, 1_000);
        estimate.add(10, AFTER, 1_110);
        assert_eq!(estimate.longest_ns(), 30);
        estimate.add(12, AFTER, 1_215);
        assert_eq!(estimate.longest_ns(), 12);
        estimate.add(5, AFTER, 2_000);
        assert_eq!(estimate.longest_ns(), 5);
    }

    #[test]
    fn one_update_with_a_short_queue_ends_it() {
        let mut detector = StandingDetector::new();
        assert!(!detector.update(None, AFTER, 1_000));
        assert!(detector.update(Some(1_000), AFTER, 2_000));
        assert!(!detector.update(Some(1_995), AFTER, 2_000));
        assert_eq!(detector.standing_ns(2_000), 0);
        assert!(!detector.update(Some(1_995), AFTER, 2_050));
        assert!(!detector.update(None, AFTER, 2_060));
        assert!(!detector.update(Some(2_060), AFTER, 2_100));
    }
}
