//! Latencies as they would be without the delays that some of them had.
//!
//! The measured distribution is that of the undelayed values with a fraction of it smeared upwards: `M(x) =
//! (1 - f) U(x) + f mean(U(x - t))`, for delays t that are uniform up to a longest one. The mean is over values below x,
//! so U follows in ascending order. A fraction that would have left more values beyond the slowest undelayed one than
//! were measured there is impossible: the shape bounds the fraction. Values that one wait delayed together tell of one
//! delay only.

use super::LatencyHistogram;

/// Largest fraction for which the equation is solved: above it errors of U grow from one longest delay to the next.
const FRACTION_MAX: f64 = 0.5;
/// Halvings of the range in which the largest possible fraction is.
const SEARCH_STEPS: u32 = 10;

/// Delays that some of the values may have had.
#[derive(Clone, Copy, Debug)]
pub struct Delays {
    /// Largest fraction of the values that were delayed, 0 to 1.
    pub fraction_max: f64,
    /// Longest delay, in ns; all times up to it are equally frequent.
    pub longest_ns: f64,
    /// Number of values that one wait delayed together, at least 1.
    pub together: f64,
}

impl LatencyHistogram {
    /// Returns the latency at `quantile` (0 to 1) as it would be, in ns, if a fraction of the values, whichever they are,
    /// had not been delayed. The measured quantile at most. Of the fractions up to the largest given the largest counts
    /// that the distribution can have; if nothing bounds it, all of them were delayed by the longest time.
    pub fn quantile_before_delays(&self, quantile: f64, delays: Delays) -> f64 {
        let measured_ns = self.value_at_quantile(quantile) as f64;
        if self.is_empty() || delays.fraction_max <= 0.0 || delays.longest_ns <= 0.0 {
            return measured_ns;
        }
        let measured = self.inner.iter_recorded();
        let measured: Vec<Step> = measured
            .map(|step| Step { value_ns: step.value_iterated_to() as f64, count: step.count_at_value() })
            .collect();
        let undelayed = largest_possible(&measured, delays);
        let earliest_ns = (measured_ns - delays.longest_ns).max(self.min_ns() as f64);
        match undelayed.fraction < FRACTION_MAX {
            true => undelayed.quantile(quantile).unwrap_or(measured_ns).clamp(earliest_ns, measured_ns),
            false => earliest_ns,
        }
    }
}

/// Number of values at a latency.
struct Step {
    value_ns: f64,
    count: u64,
}

/// Returns the undelayed distribution for the largest possible fraction.
fn largest_possible(measured: &[Step], delays: Delays) -> Undelayed {
    let mut impossible = delays.fraction_max.min(FRACTION_MAX);
    let undelayed_at_max = Undelayed::new(measured, impossible, delays);
    if undelayed_at_max.is_possible {
        return undelayed_at_max;
    }
    let mut possible = 0.0;
    for _ in 0..SEARCH_STEPS {
        let middle = f64::midpoint(possible, impossible);
        match Undelayed::new(measured, middle, delays).is_possible {
            true => possible = middle,
            false => impossible = middle,
        }
    }
    Undelayed::new(measured, impossible, delays)
}

/// Distribution function of the undelayed values, which grows in steps.
struct Undelayed {
    /// Fraction of the values that were delayed.
    fraction: f64,
    /// False if more values would be beyond the slowest undelayed one than were measured there.
    is_possible: bool,
    /// Values in ascending order, and the function from each of them on.
    values_ns: Vec<f64>,
    levels: Vec<f64>,
}

impl Undelayed {
    fn new(measured: &[Step], fraction: f64, delays: Delays) -> Self {
        let total: u64 = measured.iter().map(|step| step.count).sum();
        let mut undelayed = Self { fraction, is_possible: true, values_ns: Vec::new(), levels: Vec::new() };
        // Integral of the function up to each value.
        let mut integrals: Vec<f64> = Vec::with_capacity(measured.len());
        let (mut beyond, mut level, mut below) = (total, 0.0_f64, 0);
        for step in measured {
            beyond -= step.count;
            let integral = match (integrals.last(), undelayed.values_ns.last()) {
                (Some(integral), Some(value_ns)) => integral + level * (step.value_ns - value_ns),
                _ => 0.0,
            };
            let from_ns = step.value_ns - delays.longest_ns;
            while undelayed.values_ns.get(below).is_some_and(|value_ns| *value_ns <= from_ns) {
                below += 1;
            }
            let integral_below = below
                .checked_sub(1)
                .map_or(0.0, |at| integrals[at] + undelayed.levels[at] * (from_ns - undelayed.values_ns[at]));
            let smeared = (integral - integral_below) / delays.longest_ns;
            let share = 1.0 - beyond as f64 / total as f64;
            let exact = (share - fraction * smeared) / (1.0 - fraction);
            if exact > 1.0 {
                let expected_beyond = total as f64 * fraction * (1.0 - smeared);
                undelayed.is_possible &= expected_beyond <= count_max(beyond as f64, delays.together);
            }
            level = exact.clamp(level, 1.0);
            undelayed.values_ns.push(step.value_ns);
            undelayed.levels.push(level);
            integrals.push(integral);
        }
        undelayed
    }

    fn quantile(&self, quantile: f64) -> Option<f64> {
        let at = self.levels.iter().position(|level| *level >= quantile)?;
        self.values_ns.get(at).copied()
    }
}

/// Returns the largest mean of a Poisson variable that gives `count` or fewer with a probability above about 1 in 40
/// (Garwood's interval, with the square root of the count as its width), if `together` values each count as one.
fn count_max(count: f64, together: f64) -> f64 {
    count + 3.0 * together + 2.0 * (count * together).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns values before and after a fraction of them was delayed.
    fn delayed(values: &[u64], fraction: f64, delay_max_ns: u64) -> [LatencyHistogram; 2] {
        let (mut before, mut after) = (LatencyHistogram::new(), LatencyHistogram::new());
        for (at, value) in values.iter().enumerate() {
            before.record(*value);
            let uniform = |step: u64| random(at as u64 * 2 + step) as f64 / u64::MAX as f64;
            let is_delayed = uniform(0) < fraction;
            let delay = delay_max_ns as f64 * uniform(1);
            after.record(value + if is_delayed { delay as u64 } else { 0 });
        }
        [before, after]
    }

    /// Returns a number of a fixed sequence that looks like chance (SplitMix64).
    fn random(at: u64) -> u64 {
        let mixed = (at + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn up_to(fraction_max: f64) -> Delays {
        Delays { fraction_max, longest_ns: 4e6, together: 1.0 }
    }

    fn uniform(from: u64, to: u64) -> Vec<u64> {
        (0..40_000u64).map(|at| from + at * 7_919 % 40_000 * (to - from) / 40_000).collect()
    }

    fn tailed(median: f64, exponent: f64) -> Vec<u64> {
        let u = |at: u64| (at * 7_919 % 40_000) as f64 / 40_000.0;
        (0..40_000u64).map(|at| (median * (2.0 * (1.0 - u(at))).powf(-exponent)) as u64).collect()
    }

    fn worlds() -> [(&'static str, Vec<u64>); 5] {
        [
            ("uniform", uniform(2_000_000, 40_000_000)),
            ("narrow", uniform(9_500_000, 10_500_000)),
            ("short", uniform(50_000, 400_000)),
            ("long tail", tailed(5e6, 0.5)),
            ("short tail", tailed(5e6, 0.1)),
        ]
    }

    #[test]
    fn delays_of_some_values_are_taken_out_of_a_quantile() {
        for (name, values) in worlds() {
            for fraction in [0.005, 0.02, 0.08, 0.25, 0.45] {
                let [before, after] = delayed(&values, fraction, 4_000_000);
                let estimated = after.quantile_before_delays(0.99, up_to(fraction));
                assert!(estimated <= after.value_at_quantile(0.99) as f64);
                let share = estimated / before.value_at_quantile(0.99) as f64;
                assert!((0.9..1.05).contains(&share), "{name}, {fraction}: {share}");
            }
        }
        assert_eq!(LatencyHistogram::new().quantile_before_delays(0.99, up_to(0.1)), 0.0);
    }

    #[test]
    fn the_shape_bounds_the_fraction() {
        // Ten times as many may have been delayed as were: a distribution with an end shows that they were not.
        for (name, values) in worlds().into_iter().filter(|(name, _)| !name.contains("tail")) {
            let [before, after] = delayed(&values, 0.02, 4_000_000);
            let estimated = after.quantile_before_delays(0.99, up_to(0.2));
            let share = estimated / before.value_at_quantile(0.99) as f64;
            assert!((0.95..1.02).contains(&share), "{name}: {share}");
        }
        let mut constant = LatencyHistogram::new();
        constant.record_count(5_000_000, 1_000);
        for fraction in [0.0, 0.5, 1.0] {
            assert!(constant.quantile_before_delays(0.99, up_to(fraction)) >= 5e6, "{fraction}");
        }
    }

    #[test]
    fn values_that_were_delayed_together_tell_of_one_delay() {
        // Three waits of 2 ms delayed twenty values each, none longer.
        let mut waves = LatencyHistogram::new();
        waves.record_count(8_000_000, 1_940);
        for delay_ns in [1_500_000, 2_000_000, 2_500_000] {
            waves.record_count(8_000_000 + delay_ns, 20);
        }
        let p99 = |together| waves.quantile_before_delays(0.99, Delays { together, ..up_to(0.2) });
        assert!(p99(20.0) < 8.1e6, "{}", p99(20.0));
        assert!(p99(1.0) > 9e6, "{}", p99(1.0));
    }

    #[test]
    fn values_that_may_all_be_delayed_lose_the_longest_delay_at_most() {
        // A long tail hides every delay, and a few values show nothing.
        let [before, after] = delayed(&tailed(5e6, 0.5), 0.02, 4_000_000);
        let estimated = after.quantile_before_delays(0.99, up_to(1.0));
        assert!(estimated >= after.value_at_quantile(0.99) as f64 - 4e6);
        assert!(estimated <= before.value_at_quantile(0.99) as f64);
        let mut few = LatencyHistogram::new();
        few.record_count(3_000_000, 2);
        assert_eq!(few.quantile_before_delays(0.99, up_to(1.0)), few.min_ns() as f64);
    }
}
