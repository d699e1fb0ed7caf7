//! Statistics over a few values each of which is a whole trial: medians, intervals, rank tests. Pure;
//! randomness comes as a seed, so that the same trials always give the same figures.
//!
//! Not for the thousands of latencies inside one trial (they depend on each other, and none of these
//! methods allows that: histograms of the `record` crate keep them), and not for what a figure means:
//! that is [`crate::judge`]'s.
//!
//! Where a value cannot be had (too few values, one that is not finite) the answer is `None`, never a
//! number that looks like one.

pub mod bootstrap;
pub mod distribution;
pub mod effect;
pub mod many;
pub mod rank_sum;
pub mod ranks;
pub mod signed_rank;

/// The mean; `None` of nothing.
#[must_use]
pub fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// The standard deviation of a sample (divided by n - 1); `None` of fewer than two values.
#[must_use]
pub fn deviation(values: &[f64]) -> Option<f64> {
    let mean = mean(values).filter(|_| values.len() > 1)?;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    Some((squares / (values.len() - 1) as f64).sqrt())
}

/// The median; `None` of nothing.
#[must_use]
pub fn median(values: &[f64]) -> Option<f64> {
    quantile(values, 0.5)
}

/// [`median`] of values that may be reordered, which is quicker: for resampling.
#[must_use]
pub fn median_in_place(values: &mut [f64]) -> Option<f64> {
    let (length, middle) = (values.len(), values.len() / 2);
    if length == 0 {
        return None;
    }
    let (below, at, _) = values.select_nth_unstable_by(middle, f64::total_cmp);
    let last_below = below.iter().copied().max_by(f64::total_cmp);
    match last_below.filter(|_| length.is_multiple_of(2)) {
        Some(other) => Some(f64::midpoint(other, *at)),
        None => Some(*at),
    }
}

/// The quantile `q` (0 to 1) by linear interpolation between the closest ranks: type 7 of Hyndman and
/// Fan, "Sample Quantiles in Statistical Packages" (The American Statistician 50, 1996), which R, NumPy
/// and spreadsheets have as their default. `None` of nothing.
#[must_use]
pub fn quantile(values: &[f64], q: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    quantile_of_sorted(&sorted, q)
}

/// [`quantile`] of values that are in order already.
#[must_use]
pub fn quantile_of_sorted(sorted: &[f64], q: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    let at = q.clamp(0.0, 1.0) * last as f64;
    let below = at.floor() as usize;
    let above = (below + 1).min(last);
    Some(sorted[below] + (at - below as f64) * (sorted[above] - sorted[below]))
}

/// The median of the distances from the median (MAD), unscaled; `None` of nothing.
#[must_use]
pub fn median_deviation(values: &[f64]) -> Option<f64> {
    let middle = median(values)?;
    let distances: Vec<f64> = values.iter().map(|value| (value - middle).abs()).collect();
    median(&distances)
}

/// How many median deviations each value is from the median, with its sign: a Z-score that an outlier
/// cannot hide in, because it moves neither of both (Iglewicz and Hoaglin, "How to Detect and Handle
/// Outliers", 1993, without their factor of 0.6745). `None` where half of the values or more are the
/// same: then there is no scale.
#[must_use]
pub fn modified_z(values: &[f64]) -> Option<Vec<f64>> {
    let middle = median(values)?;
    let scale = median_deviation(values).filter(|&scale| scale > 0.0)?;
    Some(values.iter().map(|value| (value - middle) / scale).collect())
}

/// Beyond so many median deviations a value is flagged: ten standard deviations of a normal
/// distribution, the bound that hyperfine has (`outlier_detection.rs`).
pub const OUTLIER_Z: f64 = 14.826;

#[cfg(test)]
mod tests {
    use super::*;

    fn near(a: f64, b: f64) {
        assert!((a - b).abs() < 1e-12, "{a} is not {b}");
    }

    #[test]
    fn quantiles_are_those_of_r_and_numpy() {
        // R: quantile(c(1, 2, 3, 4, 10), c(0.1, 0.25, 0.5, 0.9)); numpy.percentile says the same.
        let values = [10.0, 1.0, 4.0, 2.0, 3.0];
        near(quantile(&values, 0.1).unwrap(), 1.4);
        near(quantile(&values, 0.25).unwrap(), 2.0);
        near(median(&values).unwrap(), 3.0);
        near(quantile(&values, 0.9).unwrap(), 7.6);
        near(quantile(&values, 1.0).unwrap(), 10.0);
        near(median(&[1.0, 2.0]).unwrap(), 1.5);
        assert_eq!(median(&[]), None);
        for length in 0..9 {
            let mut values: Vec<f64> = (0..length).map(|n| f64::from(n * 5 % 7)).collect();
            assert_eq!(median(&values), median_in_place(&mut values), "{length}");
        }
    }

    #[test]
    fn an_outlier_moves_neither_the_median_nor_its_deviation() {
        let values = [1.0, 2.0, 3.0, 4.0, 1e9];
        near(median_deviation(&values).unwrap(), 1.0);
        let scores = modified_z(&values).unwrap();
        near(scores[0], -2.0);
        assert!(scores[4] > OUTLIER_Z && scores[3] < OUTLIER_Z);
        assert_eq!(modified_z(&[5.0, 5.0, 5.0, 9.0]), None);
    }

    #[test]
    fn a_deviation_needs_two_values() {
        assert_eq!(deviation(&[1.0]), None);
        near(deviation(&[1.0, 3.0]).unwrap(), 2.0_f64.sqrt());
    }
}
