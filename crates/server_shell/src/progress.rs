//! Minimum progress of a peer: how long it may hold memory or a slot while it does too little. No I/O
//! and no clock: both servers ask with the current time.
//!
//! ```text
//! stopped --owes something--> running --bytes_min more--> running, with a new interval
//!    ^                           |  |
//!    '-----owes nothing----------'  '--interval_ns without them--> stalled
//! ```
//! Only bytes of the protected resource count: content that was passed on, or bytes of a response that
//! the peer acknowledged. So a resource of n bytes is held for at most `n / bytes_min + 1` intervals.

use rt::clock::MonotonicTime;

/// Minimum progress: so many bytes in each interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProgressRule {
    /// Maximum time without `bytes_min` bytes.
    pub interval_ns: u64,
    /// Bytes in each interval; at least 1.
    pub bytes_min: u64,
}

/// Progress of a peer in the current interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProgressTimer {
    /// Bytes at the begin of the interval, from any start.
    bytes: u64,
    /// Begin of the interval; [`MonotonicTime::ZERO`]: the peer owes nothing.
    since: MonotonicTime,
}

/// Minimum rate of the body of a request: 16 KiB in 30 s.
pub const BODY_RATE_MIN: u64 = 546;
/// Minimum rate of the receiver of a response: 4 KiB in 30 s.
pub const WRITE_RATE_MIN: u64 = 136;

/// Number of bytes that is far below each other one.
const UNKNOWN_BYTES: u64 = 0_u64.wrapping_sub(1 << 62);

/// Number of checks in an interval, for progress that nothing reports.
const CHECKS: u64 = 8;

impl ProgressRule {
    /// Creates a rule; without bytes, any byte is enough.
    #[must_use]
    pub fn new(interval_ns: u64, bytes_min: u64) -> Self {
        Self { interval_ns, bytes_min: bytes_min.max(1) }
    }

    /// Creates the rule of a minimum rate.
    #[must_use]
    pub fn from_rate(interval_ns: u64, bytes_per_s: u64) -> Self {
        let bytes = u128::from(interval_ns) * u128::from(bytes_per_s) / 1_000_000_000;
        Self::new(interval_ns, u64::try_from(bytes).unwrap_or(u64::MAX))
    }

    /// Returns the same rule for `count` resources at a time.
    #[must_use]
    pub fn times(self, count: u64) -> Self {
        Self { bytes_min: self.bytes_min.saturating_mul(count), ..self }
    }

    /// Returns the time between two checks of progress that nothing reports: a stall lasts at most so
    /// much longer than the interval.
    pub fn check_interval_ns(self) -> u64 {
        (self.interval_ns / CHECKS).max(1)
    }
}

impl ProgressTimer {
    /// Stops the timer: the peer owes nothing.
    #[inline]
    pub fn stop(&mut self) {
        self.since = MonotonicTime::ZERO;
    }

    /// Returns whether the peer owes something.
    #[inline]
    pub fn is_running(&self) -> bool {
        self.since != MonotonicTime::ZERO
    }

    /// Notes the number of bytes so far, from any start. Starts the timer if it is stopped.
    #[inline]
    pub fn note(&mut self, rule: ProgressRule, bytes: u64, now: MonotonicTime) {
        // A number that the kernel reports may also decrease.
        let progress = bytes.wrapping_sub(self.bytes) as i64;
        if !self.is_running() || progress >= i64::try_from(rule.bytes_min).unwrap_or(i64::MAX) {
            self.restart(bytes, now);
        }
    }

    /// Begins an interval with a number of bytes that is not known: the first number that is noted begins
    /// it again.
    #[inline]
    pub fn begin(&mut self, now: MonotonicTime) {
        self.restart(UNKNOWN_BYTES, now);
    }

    /// Begins a new interval, because the peer was not the one that others waited for.
    #[inline]
    pub fn restart(&mut self, bytes: u64, now: MonotonicTime) {
        *self = Self { bytes, since: now };
    }

    /// Returns the end of the interval.
    #[inline]
    pub fn due(&self, rule: ProgressRule) -> MonotonicTime {
        match self.is_running() {
            true => self.since.saturating_add(rule.interval_ns),
            false => MonotonicTime::MAX,
        }
    }

    /// Notes the number of bytes so far. Returns whether the interval has passed with too few.
    #[must_use]
    pub fn is_stalled(&mut self, rule: ProgressRule, bytes: u64, now: MonotonicTime) -> bool {
        self.note(rule, bytes, now);
        self.due(rule) <= now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULE: ProgressRule = ProgressRule { interval_ns: 100, bytes_min: 10 };

    fn at(ns: u64) -> MonotonicTime {
        MonotonicTime::from_ns(ns)
    }

    #[test]
    fn too_few_bytes_prolong_nothing() {
        let mut timer = ProgressTimer::default();
        assert!(!timer.is_stalled(RULE, 1_000, at(1)));
        for step in 1..10 {
            assert!(!timer.is_stalled(RULE, 1_000 + step, at(1 + 10 * step)), "{step}");
        }
        assert!(timer.is_stalled(RULE, 1_009, at(101)));
        assert!(!timer.is_stalled(RULE, 1_010, at(101)));
    }

    #[test]
    fn a_peer_with_the_minimum_rate_is_never_stalled() {
        let mut timer = ProgressTimer::default();
        for step in 0..1_000 {
            assert!(!timer.is_stalled(RULE, step, at(1 + 10 * step)), "{step}");
        }
    }

    #[test]
    fn a_stopped_timer_begins_with_a_complete_interval() {
        let mut timer = ProgressTimer::default();
        timer.note(RULE, 0, at(1));
        timer.stop();
        assert_eq!(timer.due(RULE), MonotonicTime::MAX);
        assert!(!timer.is_stalled(RULE, 0, at(500)));
        assert_eq!(timer.due(RULE), at(600));
    }

    #[test]
    fn the_first_known_number_begins_the_interval() {
        let mut timer = ProgressTimer::default();
        timer.begin(at(1));
        assert_eq!(timer.due(RULE), at(101));
        timer.note(RULE, 0_u64.wrapping_sub(7), at(50));
        timer.note(RULE, 2, at(60));
        assert_eq!(timer.due(RULE), at(150));
    }

    #[test]
    fn fewer_confirmed_bytes_are_no_progress() {
        let mut timer = ProgressTimer::default();
        timer.note(RULE, 5, at(1));
        timer.note(RULE, u64::MAX - 5, at(50));
        assert_eq!(timer.due(RULE), at(101));
    }

    #[test]
    fn a_rate_has_at_least_one_byte_in_each_interval() {
        assert_eq!(ProgressRule::from_rate(30_000_000_000, BODY_RATE_MIN).bytes_min, 16_380);
        assert_eq!(ProgressRule::from_rate(1_000, BODY_RATE_MIN).bytes_min, 1);
        assert_eq!(ProgressRule::from_rate(u64::MAX, u64::MAX).bytes_min, u64::MAX);
    }
}
