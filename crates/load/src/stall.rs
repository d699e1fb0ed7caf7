//! Stalls of one core: times in which its event loop had to run and did not, because the process was
//! stopped, its CPU was taken away, or one task held the loop. Pure: times in, stalls out.
//!
//! The ticker promises when the loop runs next. Whatever happens first after that ends the delay, so a
//! loop that is busy with other tasks never counts as stalled.

use record::units::MILLISECOND_NS;

/// A shorter delay is ordinary scheduling and counts as lag only.
pub const STALL_NS_MIN: u64 = 10 * MILLISECOND_NS;

/// What stalls did to the requests of a run. Counted over all cores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stalls {
    /// Number of stalls.
    pub count: u64,
    /// Their time in all, in ns.
    pub total_ns: u64,
    /// The longest, in ns.
    pub longest_ns: u64,
    /// Requests that were due in one.
    pub due: u64,
    /// Requests sent before the end of one and answered right behind it, within its length: the
    /// response may have lain there meanwhile.
    pub answered: u64,
}

impl Stalls {
    /// Adds the stalls of another core.
    pub fn add(&mut self, other: &Self) {
        self.count += other.count;
        self.total_ns += other.total_ns;
        self.longest_ns = self.longest_ns.max(other.longest_ns);
        self.due += other.due;
        self.answered += other.answered;
    }

    /// Requests whose latency has a stall in it.
    #[must_use]
    pub fn affected(&self) -> u64 {
        self.due + self.answered
    }
}

/// One stall.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stall {
    pub(crate) from_ns: u64,
    pub(crate) to_ns: u64,
}

impl Stall {
    pub(crate) fn length_ns(self) -> u64 {
        self.to_ns - self.from_ns
    }

    fn holds_due(self, due_ns: u64) -> bool {
        self.from_ns <= due_ns && due_ns < self.to_ns
    }

    fn delayed(self, sent_ns: u64, answered_ns: u64) -> bool {
        let behind = self.to_ns..=self.to_ns + self.length_ns();
        sent_ns < self.to_ns && behind.contains(&answered_ns)
    }
}

/// Finds the stalls of one core.
#[derive(Clone, Debug)]
pub(crate) struct StallDetector {
    /// The loop runs at this time at the latest.
    expected_ns: u64,
    /// When it ran last.
    seen_ns: u64,
    last: Stall,
}

impl StallDetector {
    /// A detector that finds nothing before `from_ns`.
    pub(crate) fn new(from_ns: u64) -> Self {
        Self { expected_ns: u64::MAX, seen_ns: from_ns, last: Stall::default() }
    }

    /// The loop will run at `at_ns` or before.
    pub(crate) fn expect(&mut self, at_ns: u64) {
        self.expected_ns = at_ns;
    }

    /// The loop runs; the stall that this ends, if it ends one.
    #[inline]
    pub(crate) fn runs(&mut self, now_ns: u64) -> Option<Stall> {
        let from_ns = self.expected_ns.max(self.seen_ns);
        self.seen_ns = self.seen_ns.max(now_ns);
        if now_ns.saturating_sub(from_ns) < STALL_NS_MIN {
            return None;
        }
        self.last = Stall { from_ns, to_ns: now_ns };
        Some(self.last)
    }

    /// Whether a request was due in the last stall.
    #[inline]
    pub(crate) fn holds_due(&self, due_ns: u64) -> bool {
        self.last.holds_due(due_ns)
    }

    /// Whether a response was delayed by the last stall, and its request not due in it.
    #[inline]
    pub(crate) fn delayed(&self, due_ns: u64, sent_ns: u64, answered_ns: u64) -> bool {
        self.last.delayed(sent_ns, answered_ns) && !self.last.holds_due(due_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = MILLISECOND_NS;

    #[test]
    fn a_loop_that_does_not_run_when_it_has_to_is_stalled() {
        let mut detector = StallDetector::new(0);
        assert_eq!(detector.runs(500 * MS), None, "nothing was expected");
        detector.expect(510 * MS);
        assert_eq!(detector.runs(505 * MS), None);
        assert_eq!(detector.runs(519 * MS), None, "late, but not by a stall");
        // A loop that is busy with other tasks runs, though its ticker does not.
        assert!((520..600).all(|ms| detector.runs(ms * MS).is_none()));
        assert_eq!(detector.runs(999 * MS), Some(Stall { from_ns: 599 * MS, to_ns: 999 * MS }));
        assert_eq!(detector.runs(999 * MS), None, "a stall ends once");
        detector.expect(1000 * MS);
        assert_eq!(detector.runs(1001 * MS), None);
        detector.expect(1010 * MS);
        let late = detector.runs(1410 * MS).unwrap();
        assert_eq!(late, Stall { from_ns: 1010 * MS, to_ns: 1410 * MS });
    }

    #[test]
    fn requests_due_in_a_stall_and_responses_right_behind_it_are_affected() {
        let mut detector = StallDetector::new(0);
        detector.expect(100 * MS);
        detector.runs(500 * MS).unwrap();
        let due = [99, 100, 499, 500].map(|ms| detector.holds_due(ms * MS));
        assert_eq!(due, [false, true, true, false]);
        let delayed = |due, sent, answered| detector.delayed(due * MS, sent * MS, answered * MS);
        assert!(delayed(90, 95, 500) && delayed(90, 95, 900));
        assert!(!delayed(90, 95, 901), "such a response had not come by then");
        assert!(!delayed(510, 511, 520), "sent behind the stall");
        assert!(!delayed(200, 501, 502), "counted as due in it");
    }
}
