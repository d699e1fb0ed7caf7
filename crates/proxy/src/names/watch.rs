//! When a name is looked up again, and what holds until then. Pure: answers and times in.

use super::Found;
use crate::plan::ResolvePlan;

/// What is known of one name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Watch {
    found: Vec<Found>,
    /// When it was answered last.
    answered_ns: Option<u64>,
    /// Look-ups in a row that failed.
    failures: u32,
}

/// What has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum News {
    Nothing,
    /// There are other servers now.
    Changed,
    /// There is no answer any more; what was known holds.
    Held,
    /// What was known does not hold any longer.
    Dropped,
    /// There are answers again, and they are the same.
    Back,
}

impl Watch {
    pub(super) fn found(&self) -> &[Found] {
        &self.found
    }

    pub(super) fn is_failing(&self) -> bool {
        self.failures > 0
    }

    /// There is an answer; `found` is in order.
    pub(super) fn note_answer(&mut self, found: Vec<Found>, now_ns: u64) -> News {
        self.answered_ns = Some(now_ns);
        let failed = std::mem::take(&mut self.failures) > 0;
        if self.found != found {
            self.found = found;
            return News::Changed;
        }
        if failed { News::Back } else { News::Nothing }
    }

    /// There is none, or none with an address.
    pub(super) fn note_failure(&mut self, plan: &ResolvePlan, now_ns: u64) -> News {
        self.failures = self.failures.saturating_add(1);
        let held_ns = self.answered_ns.map_or(u64::MAX, |then_ns| now_ns.saturating_sub(then_ns));
        if !self.found.is_empty() && held_ns >= plan.hold_ns {
            self.found.clear();
            return News::Dropped;
        }
        if self.failures == 1 { News::Held } else { News::Nothing }
    }

    /// How long until the next look-up; `ttl_ns` is that of the answer.
    pub(super) fn wait_ns(&self, plan: &ResolvePlan, ttl_ns: u64) -> u64 {
        match self.failures {
            0 => ttl_ns.clamp(plan.interval_min_ns, plan.interval_ns),
            // Twice as long each time.
            failures => {
                let factor = 1_u64 << (failures - 1).min(30);
                plan.interval_min_ns.saturating_mul(factor).min(plan.interval_ns)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> ResolvePlan {
        ResolvePlan::default()
    }

    fn found(last: u8) -> Vec<Found> {
        vec![Found { address: ([10, 0, 0, last], 80).into(), weight: None }]
    }

    #[test]
    fn what_was_known_holds_for_a_while() {
        let mut watch = Watch::default();
        assert_eq!(watch.note_failure(&plan(), 0), News::Held);
        assert_eq!(watch.note_answer(found(1), 5), News::Changed);
        assert_eq!(watch.note_answer(found(1), 10), News::Nothing);
        assert_eq!(watch.note_failure(&plan(), 20), News::Held);
        assert_eq!(watch.note_failure(&plan(), 1_009), News::Nothing);
        assert_eq!(watch.note_answer(found(1), 1_009), News::Back);
        assert_eq!(watch.note_failure(&plan(), 2_000), News::Held);
        assert_eq!(watch.found(), found(1));
        assert_eq!(watch.note_failure(&plan(), 2_009), News::Dropped);
        assert_eq!((watch.found(), watch.is_failing()), (&[][..], true));
        assert_eq!(watch.note_failure(&plan(), 9_999), News::Nothing);
        assert_eq!(watch.note_answer(found(2), 10_000), News::Changed);
    }

    #[test]
    fn the_ttl_counts_between_its_bounds() {
        let mut watch = Watch::default();
        let wait = |watch: &Watch, ttl_ns| watch.wait_ns(&plan(), ttl_ns);
        assert_eq!([0, 10, 50, 100, 101].map(|ttl| wait(&watch, ttl)), [10, 10, 50, 100, 100]);
        let mut waits = Vec::new();
        for _ in 0..6 {
            watch.note_failure(&plan(), 0);
            waits.push(wait(&watch, 50));
        }
        assert_eq!(waits, [10, 20, 40, 80, 100, 100]);
    }
}
