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
}

/// Clients that have to leave within the window: a single one may leave for its own reasons.
const DEPARTURES_MIN: usize = 3;

/// A queue is short if its oldest entry has waited for less than this part of the window.
const SHORT_DIVISOR: u64 = 10;

impl StandingDetector {
    /// Creates the history of an empty queue.
    pub(super) fn new() -> Self {
        Self { last_short_ns: 0, standing_since_ns: 0, departures_ns: [0; DEPARTURES_MIN] }
    }

    /// Records that a client left the queue before its turn.
    pub(super) fn note_departure(&mut self, now_ns: u64) {
        self.departures_ns.rotate_right(1);
        self.departures_ns[0] = now_ns;
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
            detector.note_departure(now_ns);
            assert!(!detector.update(Some(now_ns), AFTER, now_ns));
        }
        detector.note_departure(1_020);
        // Its oldest has just come.
        assert!(detector.update(Some(1_020), AFTER, 1_020));
        assert!(detector.update(Some(1_090), AFTER, 1_099));
        assert!(!detector.update(Some(1_100), AFTER, 1_100));
        assert_eq!(detector.standing_ns(1_099), 0);
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
