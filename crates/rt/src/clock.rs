//! The one clock: nanoseconds of `CLOCK_MONOTONIC`, and a cheap coarse reading of it.
//!
//! Nothing else in weir reads a clock; what decides gets `now` as an argument.

use rustix::time::{ClockId, clock_gettime};

/// A second, in nanoseconds.
pub const SECOND_NS: u64 = 1_000_000_000;
/// A millisecond, in nanoseconds.
pub const MILLISECOND_NS: u64 = 1_000_000;

/// Now, in nanoseconds of `CLOCK_MONOTONIC` (clock_gettime(2)); about 25 ns a call, no system call.
#[inline]
pub fn now_ns() -> u64 {
    read(ClockId::Monotonic)
}

/// Now, as of the last timer tick of the kernel (1 to 10 ms old); about 5 ns a call.
/// For time-outs of seconds, never for a latency.
#[inline]
pub fn coarse_ns() -> u64 {
    read(ClockId::MonotonicCoarse)
}

/// Processor time of the calling thread. A system call: to be read when somebody asks, never in a
/// request.
pub fn thread_cpu_ns() -> u64 {
    read(ClockId::ThreadCPUTime)
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
    fn the_clock_goes_forward_and_the_coarse_one_lags_a_little() {
        let last_try_ns = now_ns() + 10 * SECOND_NS;
        loop {
            let first = now_ns();
            let coarse = coarse_ns();
            let second = now_ns();
            assert!(first <= second && coarse <= second);
            // Against the time before it: who reads the clock may be held up for long after it.
            if coarse + 100 * MILLISECOND_NS > first {
                break;
            }
            // A machine that is held up has no ticks meanwhile.
            assert!(first < last_try_ns, "{coarse} is long before {first}");
        }
    }
}
