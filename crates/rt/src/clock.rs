//! Clocks of weir: nanoseconds of `CLOCK_MONOTONIC`.
//!
//! No other module reads a clock; code that decides gets `now` as an argument.

use rustix::time::{ClockId, clock_gettime};

/// A second, in nanoseconds.
pub const SECOND_NS: u64 = 1_000_000_000;
/// A millisecond, in nanoseconds.
pub const MILLISECOND_NS: u64 = 1_000_000;

/// Returns the time in nanoseconds of `CLOCK_MONOTONIC` (clock_gettime(2)); about 25 ns a call, no
/// system call.
#[inline]
pub fn now_ns() -> u64 {
    read(ClockId::Monotonic)
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
}
