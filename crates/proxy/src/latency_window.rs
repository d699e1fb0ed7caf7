//! Percentiles of the response times of the last seconds, in bounded memory. Pure: time is an argument.
//!
//! Times are counted in buckets whose width is an eighth of their power of two, so that a percentile is at most
//! 12.5 % too high. Two windows of [`WINDOW_NS`] take turns: percentiles are those of the current one and the one
//! before, that is, of 10 to 20 seconds.

use rt::clock::MonotonicTime;

const WINDOW_NS: u64 = 10_000_000_000;
/// Parts of a power of two.
const PARTS: u64 = 8;
/// Times below 2^13 ns (8 µs) are in the first bucket, and those from 2^37 ns (137 s) in the last one.
const FIRST_POWER: u32 = 13;
const POWERS: usize = 24;
const BUCKETS: usize = POWERS * PARTS as usize + 1;
/// Number of samples after which a percentile is computed again.
const SAMPLES_PER_UPDATE: u32 = 32;

/// Response times of the last seconds.
#[derive(Debug)]
pub(crate) struct LatencyWindow {
    current: Counts,
    previous: Counts,
    window_end: MonotonicTime,
    /// Last result, and the number of samples since it.
    computed: Option<u64>,
    uncomputed_samples: u32,
}

#[derive(Debug)]
struct Counts {
    buckets: Box<[u32; BUCKETS]>,
    total: u32,
}

impl Default for Counts {
    fn default() -> Self {
        Self { buckets: Box::new([0; BUCKETS]), total: 0 }
    }
}

impl Default for LatencyWindow {
    fn default() -> Self {
        Self {
            current: Counts::default(),
            previous: Counts::default(),
            window_end: MonotonicTime::ZERO,
            computed: None,
            uncomputed_samples: SAMPLES_PER_UPDATE,
        }
    }
}

impl Counts {
    fn clear(&mut self) {
        self.buckets.fill(0);
        self.total = 0;
    }
}

impl LatencyWindow {
    /// Adds a response time.
    pub(crate) fn record(&mut self, time_ns: u64, now: MonotonicTime) {
        self.advance(now);
        let count = &mut self.current.buckets[bucket_of(time_ns)];
        *count = count.saturating_add(1);
        self.current.total = self.current.total.saturating_add(1);
        self.uncomputed_samples += 1;
    }

    /// Returns the percentile, from 0 to 100; `None`: there are fewer than `samples_min` times.
    pub(crate) fn percentile_ns(
        &mut self,
        percentile: f64,
        samples_min: u32,
        now: MonotonicTime,
    ) -> Option<u64> {
        self.advance(now);
        let total = u64::from(self.current.total) + u64::from(self.previous.total);
        if total < u64::from(samples_min.max(1)) {
            return None;
        }
        if self.uncomputed_samples >= SAMPLES_PER_UPDATE || self.computed.is_none() {
            self.computed = Some(self.compute(percentile, total));
            self.uncomputed_samples = 0;
        }
        self.computed
    }

    fn compute(&self, percentile: f64, total: u64) -> u64 {
        // A fraction of the total, so it fits.
        let rank = ((total as f64 * percentile / 100.0).ceil() as u64).max(1);
        let mut sum = 0;
        let counts = self.current.buckets.iter().zip(self.previous.buckets.iter());
        for (bucket, (current, previous)) in counts.enumerate() {
            sum += u64::from(*current) + u64::from(*previous);
            if sum >= rank {
                return upper_bound_ns(bucket);
            }
        }
        upper_bound_ns(BUCKETS - 1)
    }

    fn advance(&mut self, now: MonotonicTime) {
        if now < self.window_end {
            return;
        }
        std::mem::swap(&mut self.current, &mut self.previous);
        self.current.clear();
        // After a pause, both windows are over.
        if now.since(self.window_end) >= WINDOW_NS {
            self.previous.clear();
        }
        self.window_end = now + WINDOW_NS;
        self.computed = None;
    }
}

fn bucket_of(time_ns: u64) -> usize {
    let Some(power) = time_ns.checked_ilog2().filter(|power| *power >= FIRST_POWER) else { return 0 };
    let part = (time_ns >> (power - 3)) - PARTS;
    // Both are small, and the last bucket takes the rest.
    ((power - FIRST_POWER) as usize * PARTS as usize + part as usize + 1).min(BUCKETS - 1)
}

/// Returns the first time above a bucket.
fn upper_bound_ns(bucket: usize) -> u64 {
    let (power, part) = (bucket / PARTS as usize, bucket as u64 % PARTS);
    (PARTS + part) << (FIRST_POWER as usize + power - 3)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_time::at;

    const MILLISECOND_NS: u64 = 1_000_000;

    #[test]
    fn every_time_is_below_the_bound_of_its_bucket_and_not_far() {
        let mut rng = fastrand::Rng::with_seed(1);
        let edges = [0, 1, (1 << 13) - 1, 1 << 13, (1 << 37) - 1];
        for time_ns in edges.into_iter().chain((0..10_000).map(|_| rng.u64(..) >> rng.u32(27..60))) {
            let bucket = bucket_of(time_ns);
            let bound_ns = upper_bound_ns(bucket);
            assert!(time_ns < bound_ns, "{time_ns} {bound_ns}");
            assert!(bucket == 0 || bound_ns - time_ns <= bound_ns / 8 + 1, "{time_ns} {bound_ns}");
        }
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn a_percentile_needs_samples_and_is_that_of_the_last_seconds() {
        let mut window = LatencyWindow::default();
        let percentile = |window: &mut LatencyWindow, seconds: u64| {
            window.percentile_ns(95.0, 100, at(seconds * 1_000_000_000)).map(|ns| ns / MILLISECOND_NS)
        };
        for number in 1..100 {
            window.record(number * MILLISECOND_NS, at(1_000_000_000));
        }
        assert_eq!(percentile(&mut window, 1), None);
        window.record(100 * MILLISECOND_NS, at(1_000_000_000));
        let p95 = percentile(&mut window, 1).unwrap();
        assert!((95..=107).contains(&p95), "{p95}");
        // They are still those of the window before.
        assert!(percentile(&mut window, 12).is_some());
        for _ in 0..100 {
            window.record(2 * MILLISECOND_NS, at(13_000_000_000));
        }
        assert!(percentile(&mut window, 13).unwrap() > 50);
        assert_eq!(percentile(&mut window, 23), Some(2));
        assert_eq!(percentile(&mut window, 60), None, "all are old");
    }
}
