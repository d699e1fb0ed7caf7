//! Schedule of lookups of a name, and the result that holds in between. Pure: answers and times
//! in.

use rt::clock::MonotonicTime;

use super::ResolvedServer;
use crate::plan::ResolvePlan;

/// Resolution state of one name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct LookupState {
    servers: Vec<ResolvedServer>,
    /// Time of the last answer.
    answered: Option<MonotonicTime>,
    /// Number of consecutive failed lookups.
    failures: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LookupChange {
    Unchanged,
    Changed,
    /// The first failure after an answer; the known servers are kept.
    Held,
    Expired,
    /// Answers have resumed, with the same servers.
    Recovered,
}

impl LookupState {
    pub(super) fn servers(&self) -> &[ResolvedServer] {
        &self.servers
    }

    pub(super) fn is_failing(&self) -> bool {
        self.failures > 0
    }

    /// Records an answer; `found` is in order.
    pub(super) fn record_answer(&mut self, servers: Vec<ResolvedServer>, now: MonotonicTime) -> LookupChange {
        self.answered = Some(now);
        let was_failing = std::mem::take(&mut self.failures) > 0;
        if self.servers != servers {
            self.servers = servers;
            return LookupChange::Changed;
        }
        if was_failing { LookupChange::Recovered } else { LookupChange::Unchanged }
    }

    /// Records a failed lookup, or an answer without an address.
    pub(super) fn record_failure(&mut self, plan: &ResolvePlan, now: MonotonicTime) -> LookupChange {
        self.failures = self.failures.saturating_add(1);
        let age_ns = self.answered.map_or(u64::MAX, |answered| now.since(answered));
        if !self.servers.is_empty() && age_ns >= plan.hold_ns {
            self.servers.clear();
            return LookupChange::Expired;
        }
        if self.failures == 1 { LookupChange::Held } else { LookupChange::Unchanged }
    }

    /// Returns the wait time until the next lookup; `ttl_ns` is the TTL of the answer.
    pub(super) fn next_wait_ns(&self, plan: &ResolvePlan, ttl_ns: u64) -> u64 {
        match self.failures {
            0 => ttl_ns.clamp(plan.interval_min_ns, plan.interval_ns),
            // Exponential backoff: doubled each time.
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
    use crate::test_time::at;

    fn plan() -> ResolvePlan {
        ResolvePlan::default()
    }

    fn found(last: u8) -> Vec<ResolvedServer> {
        vec![ResolvedServer { address: ([10, 0, 0, last], 80).into(), weight: None }]
    }

    #[test]
    fn resolved_servers_hold_for_a_while() {
        let mut state = LookupState::default();
        assert_eq!(state.record_failure(&plan(), at(0)), LookupChange::Held);
        assert_eq!(state.record_answer(found(1), at(5)), LookupChange::Changed);
        assert_eq!(state.record_answer(found(1), at(10)), LookupChange::Unchanged);
        assert_eq!(state.record_failure(&plan(), at(20)), LookupChange::Held);
        assert_eq!(state.record_failure(&plan(), at(1_009)), LookupChange::Unchanged);
        assert_eq!(state.record_answer(found(1), at(1_009)), LookupChange::Recovered);
        assert_eq!(state.record_failure(&plan(), at(2_000)), LookupChange::Held);
        assert_eq!(state.servers(), found(1));
        assert_eq!(state.record_failure(&plan(), at(2_009)), LookupChange::Expired);
        assert_eq!((state.servers(), state.is_failing()), (&[][..], true));
        assert_eq!(state.record_failure(&plan(), at(9_999)), LookupChange::Unchanged);
        assert_eq!(state.record_answer(found(2), at(10_000)), LookupChange::Changed);
    }

    #[test]
    fn the_ttl_counts_between_its_bounds() {
        let mut state = LookupState::default();
        let wait = |state: &LookupState, ttl_ns| state.next_wait_ns(&plan(), ttl_ns);
        assert_eq!([0, 10, 50, 100, 101].map(|ttl| wait(&state, ttl)), [10, 10, 50, 100, 100]);
        let mut waits = Vec::new();
        for _ in 0..6 {
            state.record_failure(&plan(), at(0));
            waits.push(wait(&state, 50));
        }
        assert_eq!(waits, [10, 20, 40, 80, 100, 100]);
    }
}
