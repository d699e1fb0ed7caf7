//! Intervals by resampling: the values are drawn again with replacement, and the spread of the
//! statistic over the draws is its uncertainty. No shape of the noise is assumed.
//!
//! Do not use it alone for fewer than twenty or thirty values. With few values such intervals are
//! too narrow (they know nothing beyond the sample), so combine them with Student's ([`crate::effect::t_half_width`]).

use super::distribution::{normal_cdf, normal_quantile};
use super::mean;
use super::quantiles::quantile_of_sorted;

/// Number of draws of an interval: enough that its ends are stable to about a hundredth of its
/// width.
pub const DRAWS: u32 = 10_000;

/// Parameters of a resampled interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Resampling {
    pub draws: u32,
    /// Seed: the same values and seed give the same interval.
    pub seed: u64,
    /// Fraction of experiments whose interval should contain the true value: 0.95.
    pub confidence: f64,
}

/// Returns the percentile interval of a statistic (Efron, Annals of Statistics 7, 1979). The
/// statistic may reorder its argument. `None` for fewer than two values or if the statistic is not
/// finite.
#[must_use]
pub fn percentile_interval(
    values: &[f64],
    statistic: impl Fn(&mut [f64]) -> f64,
    resampling: Resampling,
) -> Option<(f64, f64)> {
    let drawn = resampled_statistics(values, &statistic, resampling)?;
    let tail = (1.0 - resampling.confidence) / 2.0;
    Some((quantile_of_sorted(&drawn, tail)?, quantile_of_sorted(&drawn, 1.0 - tail)?))
}

/// Returns the BCa interval of a statistic: percentiles shifted for the bias of the statistic and
/// for the change of its spread with its value (Efron, "Better Bootstrap Confidence Intervals",
/// JASA 82, 1987). The statistic may reorder its argument. `None` for fewer than two values or if
/// the statistic is not finite.
#[must_use]
pub fn bca_interval(
    values: &[f64],
    statistic: impl Fn(&mut [f64]) -> f64,
    resampling: Resampling,
) -> Option<(f64, f64)> {
    let drawn = resampled_statistics(values, &statistic, resampling)?;
    let observed = statistic(&mut values.to_vec());
    let (first, last) = (drawn.first()?, drawn.last()?);
    if first == last {
        return Some((observed, observed));
    }
    let below = drawn.partition_point(|value| *value < observed) as f64;
    let at_most = drawn.partition_point(|value| *value <= observed) as f64;
    let draws = drawn.len() as f64;
    // Quantiles of 0 and 1 would be infinite.
    let fraction = (f64::midpoint(below, at_most) / draws).clamp(0.5 / draws, 1.0 - 0.5 / draws);
    let bias = normal_quantile(fraction);
    let acceleration = acceleration(values, &statistic);
    let tail = (1.0 - resampling.confidence) / 2.0;
    let end = |z: f64| {
        let denominator = 1.0 - acceleration * (bias + z);
        // If it is not positive, the correction is outside its domain.
        let shifted = if denominator > 0.0 { bias + (bias + z) / denominator } else { 2.0 * bias + z };
        quantile_of_sorted(&drawn, normal_cdf(shifted))
    };
    let z = normal_quantile(tail);
    Some((end(z)?, end(-z)?))
}

/// Returns the statistic of every draw, sorted.
fn resampled_statistics(
    values: &[f64],
    statistic: &impl Fn(&mut [f64]) -> f64,
    resampling: Resampling,
) -> Option<Vec<f64>> {
    if values.len() < 2 || values.iter().any(|value| !value.is_finite()) {
        return None;
    }
    let mut random = fastrand::Rng::with_seed(resampling.seed);
    let mut sample = values.to_vec();
    let mut drawn = Vec::with_capacity(resampling.draws as usize);
    for _ in 0..resampling.draws {
        for slot in &mut sample {
            *slot = values[random.usize(..values.len())];
        }
        drawn.push(statistic(&mut sample));
    }
    drawn.sort_unstable_by(f64::total_cmp);
    drawn.iter().all(|value| value.is_finite()).then_some(drawn)
}

/// Returns the acceleration, from the skewness of the statistic with each value left out (the
/// jackknife).
fn acceleration(values: &[f64], statistic: &impl Fn(&mut [f64]) -> f64) -> f64 {
    let without: Vec<f64> = (0..values.len())
        .map(|out| {
            let mut rest = values.to_vec();
            rest.swap_remove(out);
            statistic(&mut rest)
        })
        .collect();
    let mean = mean(&without).unwrap_or(0.0);
    let squares: f64 = without.iter().map(|value| (mean - value).powi(2)).sum();
    let cubes: f64 = without.iter().map(|value| (mean - value).powi(3)).sum();
    let skewness = cubes / (6.0 * squares.powf(1.5));
    if skewness.is_finite() { skewness } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::median;

    /// Table 14.1 of Efron and Tibshirani, "An Introduction to the Bootstrap" (1993): spatial test
    /// A.
    const SPATIAL: [f64; 26] = [
        48.0, 36.0, 20.0, 29.0, 42.0, 42.0, 20.0, 42.0, 22.0, 41.0, 45.0, 14.0, 6.0, 0.0, 33.0, 28.0, 34.0,
        4.0, 32.0, 24.0, 47.0, 41.0, 24.0, 26.0, 30.0, 41.0,
    ];

    fn variance(values: &mut [f64]) -> f64 {
        let center = mean(values).unwrap();
        values.iter().map(|value| (value - center).powi(2)).sum::<f64>() / values.len() as f64
    }

    fn resampling(confidence: f64) -> Resampling {
        Resampling { draws: DRAWS, seed: 7, confidence }
    }

    #[test]
    fn the_spatial_test_has_the_intervals_of_the_book() {
        // Table 14.2, with 2,000 draws: percentile (100.8, 233.9), BCa (115.8, 259.6), and an
        // acceleration of 0.061.
        let (low, high) = percentile_interval(&SPATIAL, variance, resampling(0.9)).unwrap();
        assert!((low - 100.8).abs() < 4.0 && (high - 233.9).abs() < 4.0, "{low} {high}");
        let (low, high) = bca_interval(&SPATIAL, variance, resampling(0.9)).unwrap();
        assert!((low - 115.8).abs() < 4.0 && (high - 259.6).abs() < 6.0, "{low} {high}");
        assert!((acceleration(&SPATIAL, &variance) - 0.061).abs() < 0.001);
    }

    #[test]
    fn the_same_seed_gives_the_same_interval() {
        let median_of = |values: &mut [f64]| median(values).unwrap();
        let once = percentile_interval(&SPATIAL, median_of, resampling(0.95)).unwrap();
        assert_eq!(percentile_interval(&SPATIAL, median_of, resampling(0.95)).unwrap(), once);
        assert!(once.0 <= 30.0 && once.1 >= 32.0, "{once:?}");
    }

    #[test]
    fn values_that_are_all_the_same_have_no_width() {
        let mean_of = |values: &mut [f64]| mean(values).unwrap();
        assert_eq!(bca_interval(&[2.0; 8], mean_of, resampling(0.95)), Some((2.0, 2.0)));
        assert_eq!(bca_interval(&[2.0], mean_of, resampling(0.95)), None);
        assert_eq!(bca_interval(&[2.0, f64::NAN], mean_of, resampling(0.95)), None);
    }

    #[test]
    fn thirty_values_are_covered_about_as_often_as_it_says() {
        let mut random = fastrand::Rng::with_seed(3);
        let small = Resampling { draws: 600, seed: 1, confidence: 0.95 };
        let mut covered = 0;
        for _ in 0..600 {
            let values: Vec<f64> = (0..30).map(|_| random.f64() + random.f64()).collect();
            let mean_of = |values: &mut [f64]| values.iter().sum::<f64>() / values.len() as f64;
            let (low, high) = bca_interval(&values, mean_of, small).unwrap();
            covered += u32::from(low <= 1.0 && high >= 1.0);
        }
        // 95 % of 600 are 570; bootstraps of thirty have about 94 %.
        assert!((545..=588).contains(&covered), "{covered}");
    }
}
