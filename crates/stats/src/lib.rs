//! Pure statistics and queueing formulas: one definition of each in weir. No I/O; randomness comes
//! from a seed, so that the same values always give the same figures.
//!
//! | Task | Module | Method |
//! | --- | --- | --- |
//! | median and quantiles of a few exact values | [`quantiles`] | type 7 of Hyndman and Fan 1996 |
//! | mean, deviation, outliers | this one | median absolute deviation |
//! | interval of any statistic | [`bootstrap`] | percentile and BCa, Efron 1979 and 1987 |
//! | interval of a difference between two series over time | [`block_bootstrap`] | moving blocks, Künsch 1989 |
//! | interval of a mean, size of a difference | [`effect`] | Student, Welch, Hodges and Lehmann |
//! | interval of a fraction | [`proportion`] | Wilson 1927 |
//! | paired and unpaired tests | [`signed_rank`], [`rank_sum`] | Wilcoxon 1945, Mann and Whitney 1947, exact |
//! | several tests | [`multiple_comparisons`] | Holm 1979 |
//! | arms against a baseline after each block | [`sequential`] | Student and signs, error spent over looks |
//! | latency over load | [`knee`] | two lines with a free breakpoint |
//! | throughput over concurrency | [`scalability`] | Universal Scalability Law, Gunther 1993 |
//! | waiting in a queue | [`erlang`] | Erlang B and C, Erlang 1917 |
//! | normal and Student's t distribution | [`distribution`] | the crate `statrs` |
//!
//! The tests and intervals are for a few values, each from a complete trial. They are not valid for
//! the thousands of latencies inside one trial, which depend on each other: the crate `record`
//! keeps those in histograms.
//!
//! If a value cannot be computed (too few values, or one that is not finite) the result is `None`
//! or an error, never a placeholder number.

#![forbid(unsafe_code)]

pub mod block_bootstrap;
pub mod bootstrap;
pub mod distribution;
pub mod effect;
pub mod erlang;
pub mod fit;
pub mod knee;
pub mod multiple_comparisons;
pub mod proportion;
pub mod quantiles;
pub mod rank_sum;
pub mod ranks;
pub mod scalability;
pub mod sequential;
pub mod signed_rank;

pub use quantiles::{median, quantile};

/// Returns the mean; `None` without values.
pub fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// Returns the standard deviation of a sample (divided by n - 1); `None` for fewer than two values.
pub fn standard_deviation(values: &[f64]) -> Option<f64> {
    let mean = mean(values).filter(|_| values.len() > 1)?;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    Some((squares / (values.len() - 1) as f64).sqrt())
}

/// Returns the standard deviation divided by the mean (the coefficient of variation); `None` for
/// fewer than two values, or if the mean is not positive.
pub fn relative_deviation(values: &[f64]) -> Option<f64> {
    let mean = mean(values).filter(|mean| *mean > 0.0)?;
    Some(standard_deviation(values)? / mean)
}

/// Returns the median of the distances from the median (MAD), unscaled; `None` without values.
pub fn median_absolute_deviation(values: &[f64]) -> Option<f64> {
    let center = median(values)?;
    let distances: Vec<f64> = values.iter().map(|value| (value - center).abs()).collect();
    median(&distances)
}

/// Returns the signed distance of each value from the median, in median deviations. An outlier
/// moves neither the median nor the deviation, so it cannot hide in this Z-score (Iglewicz and
/// Hoaglin, "How to Detect and Handle Outliers", 1993, without their factor of 0.6745). `None` if
/// half of the values or more are the same: then there is no scale.
pub fn modified_z_scores(values: &[f64]) -> Option<Vec<f64>> {
    let center = median(values)?;
    let scale = median_absolute_deviation(values).filter(|&scale| scale > 0.0)?;
    Some(values.iter().map(|value| (value - center) / scale).collect())
}

/// Number of median deviations beyond which a value is flagged: ten standard deviations of a normal
/// distribution, the bound of hyperfine (`outlier_detection.rs`).
pub const OUTLIER_Z: f64 = 14.826;

#[cfg(test)]
mod tests {
    use super::*;

    fn near(a: f64, b: f64) {
        assert!((a - b).abs() < 1e-12, "{a} is not {b}");
    }

    #[test]
    fn an_outlier_moves_neither_the_median_nor_its_deviation() {
        let values = [1.0, 2.0, 3.0, 4.0, 1e9];
        near(median_absolute_deviation(&values).unwrap(), 1.0);
        let scores = modified_z_scores(&values).unwrap();
        near(scores[0], -2.0);
        assert!(scores[4] > OUTLIER_Z && scores[3] < OUTLIER_Z);
        assert_eq!(modified_z_scores(&[5.0, 5.0, 5.0, 9.0]), None);
    }

    #[test]
    fn a_deviation_needs_two_values() {
        assert_eq!(standard_deviation(&[1.0]), None);
        near(standard_deviation(&[1.0, 3.0]).unwrap(), 2.0_f64.sqrt());
    }
}
