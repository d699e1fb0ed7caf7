//! Stalls of one core: times in which its event loop had to run and did not, because the process
//! was stopped, its CPU was taken away, or one task held the loop. Pure: times in, stalls out.
//!
//! The ticker announces the next run of the loop. The first event after that time ends the delay,
//! so a loop that is busy with other tasks never counts as stalled.

use record::units::MILLISECOND_NS;

/// Minimum length of a stall; a shorter delay is ordinary scheduling and counts as lag only.
pub const STALL_NS_MIN: u64 = 10 * MILLISECOND_NS;

/// Effects of stalls on the requests of a run, over all cores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StallCounters {
    pub count: u64,
    pub total_ns: u64,
    pub longest_ns: u64,
    /// Requests that were due after the last run of the loop before a stall, and so waited for its end.
    pub requests_due: u64,
    /// Requests sent before the end of a stall and answered right after it, within its length.
    /// Their responses may have waited during the stall.
    pub requests_in_flight: u64,
}

impl StallCounters {
    pub fn add(&mut self, other: &Self) {
        self.count += other.count;
        self.total_ns += other.total_ns;
        self.longest_ns = self.longest_ns.max(other.longest_ns);
        self.requests_due += other.requests_due;
        self.requests_in_flight += other.requests_in_flight;
    }

    pub fn affected_requests(&self) -> u64 {
        self.requests_due + self.requests_in_flight
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stall {
    /// Latest run of the loop before it. What was due since then had to wait for the end.
    run_before_ns: u64,
    pub(crate) from_ns: u64,
    pub(crate) to_ns: u64,
}

impl Stall {
    pub(crate) fn length_ns(self) -> u64 {
        self.to_ns - self.from_ns
    }

    fn contains_due(self, due_ns: u64) -> bool {
        self.run_before_ns < due_ns && due_ns < self.to_ns
    }

    fn has_delayed(self, sent_ns: u64, answered_ns: u64) -> bool {
        let after = self.to_ns..=self.to_ns + self.length_ns();
        sent_ns < self.to_ns && after.contains(&answered_ns)
    }
}

#[derive(Clone, Debug)]
pub(crate) struct StallDetector {
    /// Latest time of the next run of the loop.
    expected_ns: u64,
    last_run_ns: u64,
    last_stall: Stall,
}

impl StallDetector {
    /// Returns a detector that finds nothing before `from_ns`.
    pub(crate) fn new(from_ns: u64) -> Self {
        Self { expected_ns: u64::MAX, last_run_ns: from_ns, last_stall: Stall::default() }
    }

    /// Records that the loop will run at `at_ns` or before.
    pub(crate) fn expect_run(&mut self, at_ns: u64) {
        self.expected_ns = at_ns;
    }

    /// Records a run of the loop. Returns the stall that this ends, if any.
    #[inline]
    pub(crate) fn record_run(&mut self, now_ns: u64) -> Option<Stall> {
        let run_before_ns = self.last_run_ns;
        let from_ns = self.expected_ns.max(run_before_ns);
        self.last_run_ns = self.last_run_ns.max(now_ns);
        if now_ns.saturating_sub(from_ns) < STALL_NS_MIN {
            return None;
        }
        self.last_stall = Stall { run_before_ns, from_ns, to_ns: now_ns };
        Some(self.last_stall)
    }

    /// Returns whether a request was due in the last stall.
    #[inline]
    pub(crate) fn contains_due(&self, due_ns: u64) -> bool {
        self.last_stall.contains_due(due_ns)
    }

    /// Returns whether the last stall delayed a response.
    #[inline]
    pub(crate) fn has_delayed(&self, sent_ns: u64, answered_ns: u64) -> bool {
        self.last_stall.has_delayed(sent_ns, answered_ns)
    }

    /// Returns whether the last stall delayed a response whose request was not due in it.
    #[inline]
    pub(crate) fn has_only_delayed(&self, due_ns: u64, sent_ns: u64, answered_ns: u64) -> bool {
        self.has_delayed(sent_ns, answered_ns) && !self.last_stall.contains_due(due_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = MILLISECOND_NS;

    #[test]
    fn a_loop_that_does_not_run_when_it_has_to_is_stalled() {
        let mut detector = StallDetector::new(0);
        assert_eq!(detector.record_run(500 * MS), None, "nothing was expected");
        detector.expect_run(510 * MS);
        assert_eq!(detector.record_run(505 * MS), None);
        assert_eq!(detector.record_run(519 * MS), None, "late, but not by a stall");
        // A loop that is busy with other tasks runs, even if its ticker does not.
        assert!((520..600).all(|ms| detector.record_run(ms * MS).is_none()));
        let stalled = Stall { run_before_ns: 599 * MS, from_ns: 599 * MS, to_ns: 999 * MS };
        assert_eq!(detector.record_run(999 * MS), Some(stalled));
        assert_eq!(detector.record_run(999 * MS), None, "a stall ends once");
        detector.expect_run(1000 * MS);
        assert_eq!(detector.record_run(1001 * MS), None);
        detector.expect_run(1010 * MS);
        let late = detector.record_run(1410 * MS).unwrap();
        assert_eq!(late, Stall { run_before_ns: 1001 * MS, from_ns: 1010 * MS, to_ns: 1410 * MS });
    }

    #[test]
    fn requests_due_in_a_stall_and_responses_right_behind_it_are_affected() {
        let mut detector = StallDetector::new(0);
        detector.expect_run(100 * MS);
        detector.record_run(96 * MS);
        detector.record_run(500 * MS).unwrap();
        // At 97 ms the loop did not run any more, although its next tick was due later.
        let due = [96, 97, 499, 500].map(|ms| detector.contains_due(ms * MS));
        assert_eq!(due, [false, true, true, false]);
        let delayed = |due, sent, answered| detector.has_only_delayed(due * MS, sent * MS, answered * MS);
        assert!(delayed(90, 95, 500) && delayed(90, 95, 900));
        assert!(!delayed(90, 95, 901), "such a response had not come by then");
        assert!(!delayed(510, 511, 520), "sent behind the stall");
        assert!(!delayed(200, 501, 502), "counted as due in it");
    }
}
