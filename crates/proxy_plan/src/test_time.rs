//! Times of a simulated clock, for tests.

use rt::clock::MonotonicTime;

/// Returns the time `ns` nanoseconds after the start of the clock.
pub const fn at(ns: u64) -> MonotonicTime {
    MonotonicTime::from_ns(ns)
}
