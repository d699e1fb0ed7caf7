//! Limits of wrong passwords, of a source and of a user, so that guessing is slow. Pure.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::net::IpAddr;

use rt::clock::MonotonicTime;

/// Maximum number of sources and users with failures; beyond it, those whose failures are oldest are forgotten.
const ENTRIES_MAX: usize = 65_536;

/// Limit of failures: a number in a time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FailureLimit {
    pub count: u32,
    pub period_ns: u64,
}

/// Failures of sources and users.
#[derive(Default)]
pub(super) struct Failures {
    hasher: RandomState,
    /// By a keyed hash of the source or the user: the time at which its failures are forgotten.
    forgotten_at: HashMap<u64, MonotonicTime>,
}

/// Source or user of a failure.
#[derive(Clone, Copy, Debug, Hash)]
pub(super) enum Offender<'a> {
    Source(IpAddr),
    User(&'a str),
}

impl<'a> Offender<'a> {
    /// Returns the source of an address: one of IPv6 has a /64.
    pub(super) fn source(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V6(address) => {
                Self::Source(IpAddr::V6((u128::from(address) & !u128::from(u64::MAX)).into()))
            }
            address => Self::Source(address),
        }
    }
}

impl Failures {
    /// Returns the time in nanoseconds until the next password of an offender is checked; 0: now.
    pub(super) fn wait_ns(&self, whose: Offender<'_>, limit: FailureLimit, now: MonotonicTime) -> u64 {
        let Some(&forgotten_at) = self.forgotten_at.get(&self.hasher.hash_one(whose)) else { return 0 };
        // Each failure is forgotten after its part of the period; one more must fit into it.
        let each_ns = limit.period_ns / u64::from(limit.count.max(1));
        (forgotten_at.since(now) + each_ns).saturating_sub(limit.period_ns)
    }

    /// Notes a failure.
    pub(super) fn add(&mut self, whose: Offender<'_>, limit: FailureLimit, now: MonotonicTime) {
        if self.forgotten_at.len() >= ENTRIES_MAX {
            self.make_room(now);
        }
        let each_ns = limit.period_ns / u64::from(limit.count.max(1));
        let forgotten_at = self.forgotten_at.entry(self.hasher.hash_one(whose)).or_insert(now);
        *forgotten_at = (*forgotten_at).max(now).saturating_add(each_ns);
    }

    /// Takes back a failure that was none.
    pub(super) fn take_back(&mut self, whose: Offender<'_>, limit: FailureLimit) {
        let each_ns = limit.period_ns / u64::from(limit.count.max(1));
        if let Some(forgotten_at) = self.forgotten_at.get_mut(&self.hasher.hash_one(whose)) {
            *forgotten_at = MonotonicTime::ZERO.saturating_add(forgotten_at.as_ns().saturating_sub(each_ns));
        }
    }

    /// Forgets what has no effect any more, and the half that is forgotten first if that is not enough.
    fn make_room(&mut self, now: MonotonicTime) {
        self.forgotten_at.retain(|_, forgotten_at| *forgotten_at > now);
        if self.forgotten_at.len() >= ENTRIES_MAX / 2 {
            let mut times: Vec<MonotonicTime> = self.forgotten_at.values().copied().collect();
            let middle = times.len() / 2;
            let (_, median, _) = times.select_nth_unstable(middle);
            let median = *median;
            self.forgotten_at.retain(|_, forgotten_at| *forgotten_at > median);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_time::at;

    const LIMIT: FailureLimit = FailureLimit { count: 10, period_ns: 600 };

    #[test]
    fn an_offender_has_ten_failures_in_its_period() {
        let mut failures = Failures::default();
        let source = Offender::source([10, 0, 0, 1].into());
        for _ in 0..10 {
            assert_eq!(failures.wait_ns(source, LIMIT, at(1_000)), 0);
            failures.add(source, LIMIT, at(1_000));
        }
        assert_eq!(failures.wait_ns(source, LIMIT, at(1_000)), 60);
        assert_eq!(failures.wait_ns(Offender::source([10, 0, 0, 2].into()), LIMIT, at(1_000)), 0);
        assert_eq!(failures.wait_ns(Offender::User("a"), LIMIT, at(1_000)), 0);
        assert_eq!(failures.wait_ns(source, LIMIT, at(1_060)), 0);
        failures.add(source, LIMIT, at(1_060));
        assert_eq!(failures.wait_ns(source, LIMIT, at(1_060)), 60);
        assert_eq!(failures.wait_ns(source, LIMIT, at(9_000)), 0);
    }

    #[test]
    fn sources_of_ipv6_are_networks_and_mapped_ones_ipv4() {
        let mut failures = Failures::default();
        let limit = FailureLimit { count: 1, period_ns: 100 };
        failures.add(Offender::source("2001:db8::1".parse().unwrap()), limit, at(1));
        assert!(failures.wait_ns(Offender::source("2001:db8::ffff:2".parse().unwrap()), limit, at(1)) > 0);
        failures.add(Offender::source("::ffff:10.0.0.1".parse().unwrap()), limit, at(1));
        assert!(failures.wait_ns(Offender::source("10.0.0.1".parse().unwrap()), limit, at(1)) > 0);
    }

    #[test]
    fn the_table_is_bounded() {
        let mut failures = Failures::default();
        for number in 0..3 * ENTRIES_MAX as u32 {
            failures.add(Offender::source(IpAddr::V4(number.into())), LIMIT, at(u64::from(number) + 1));
            assert!(failures.forgotten_at.len() <= ENTRIES_MAX);
        }
    }
}
