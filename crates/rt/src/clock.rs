//! Clocks of weir: nanoseconds of `CLOCK_MONOTONIC`.
//!
//! No other module reads a clock; code that decides gets `now` as an argument.

use std::ops::{Add, AddAssign, Sub};

use rustix::time::{ClockId, clock_gettime};

pub const SECOND_NS: u64 = 1_000_000_000;
pub const MILLISECOND_NS: u64 = 1_000_000;

/// Returns the time in nanoseconds of `CLOCK_MONOTONIC` (clock_gettime(2)); about 25 ns a call, no
/// system call.
#[inline]
pub fn now_ns() -> u64 {
    read(ClockId::Monotonic)
}

/// A point in time of `CLOCK_MONOTONIC`. Spans are numbers of nanoseconds: a time plus a span is a time,
/// and the difference of two times is a span. Two times cannot be added.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct MonotonicTime(u64);

impl MonotonicTime {
    /// The start of the clock, before every time that it returns.
    pub const ZERO: Self = Self(0);
    /// A time that never comes.
    pub const MAX: Self = Self(u64::MAX);

    #[inline]
    pub fn now() -> Self {
        Self(now_ns())
    }

    #[inline]
    pub const fn from_ns(ns: u64) -> Self {
        Self(ns)
    }

    #[inline]
    pub const fn as_ns(self) -> u64 {
        self.0
    }

    /// Returns the span since `earlier`; 0 if that is later.
    #[inline]
    pub const fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// Returns the time after a span, at most [`MonotonicTime::MAX`].
    #[inline]
    pub const fn saturating_add(self, span_ns: u64) -> Self {
        Self(self.0.saturating_add(span_ns))
    }

    /// Returns the time before a span, at least [`MonotonicTime::ZERO`].
    #[inline]
    pub const fn saturating_sub(self, span_ns: u64) -> Self {
        Self(self.0.saturating_sub(span_ns))
    }
}

impl Add<u64> for MonotonicTime {
    type Output = Self;

    #[inline]
    fn add(self, span_ns: u64) -> Self {
        Self(self.0 + span_ns)
    }
}

impl AddAssign<u64> for MonotonicTime {
    #[inline]
    fn add_assign(&mut self, span_ns: u64) {
        self.0 += span_ns;
    }
}

impl Sub for MonotonicTime {
    type Output = u64;

    #[inline]
    fn sub(self, earlier: Self) -> u64 {
        self.0 - earlier.0
    }
}

impl Sub<u64> for MonotonicTime {
    type Output = Self;

    #[inline]
    fn sub(self, span_ns: u64) -> Self {
        Self(self.0 - span_ns)
    }
}

/// Returns the CPU time of the calling thread. It is a system call: for reports, never within a
/// request.
pub fn thread_cpu_ns() -> u64 {
    read(ClockId::ThreadCPUTime)
}

/// Returns the CPU time of all threads of the process. It is a system call.
pub fn process_cpu_ns() -> u64 {
    read(ClockId::ProcessCPUTime)
}

/// Returns the time of day, in nanoseconds since 1970. Only for display: it may jump.
pub fn unix_ns() -> u64 {
    read(ClockId::Realtime)
}

#[inline]
fn read(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    (time.tv_sec as u64) * SECOND_NS + time.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_goes_forward() {
        let first = now_ns();
        assert!(first > 0 && first <= now_ns());
    }

    #[test]
    fn spans_do_not_go_below_zero_or_beyond_the_end() {
        let (early, late) = (MonotonicTime::from_ns(5), MonotonicTime::from_ns(8));
        assert_eq!((late - early, late.since(early), early.since(late)), (3, 3, 0));
        assert_eq!((early + 3, late - 3), (late, early));
        assert_eq!(late.saturating_add(u64::MAX), MonotonicTime::MAX);
        assert_eq!(early.saturating_sub(6), MonotonicTime::ZERO);
    }
}
