//! Medians and quantiles of a few exact values: the only definition in weir, type 7 of Hyndman and
//! Fan, "Sample Quantiles in Statistical Packages" (The American Statistician 50, 1996), which is
//! the default of R, NumPy and spreadsheets. Latencies use histograms instead (`record::histogram`),
//! which do not keep the values.

use std::cmp::Ordering;

/// Returns the median; `None` for an empty slice.
pub fn median(values: &[f64]) -> Option<f64> {
    quantile(values, 0.5)
}

/// Computes [`median`] of values that may be reordered, which is quicker: for resampling.
#[must_use]
pub fn median_in_place(values: &mut [f64]) -> Option<f64> {
    median_in_place_by(values, f64::total_cmp)
}

/// Computes the same for values of any type, in the order of `compare`.
#[must_use]
pub fn median_in_place_by<T: Copy + Into<f64>>(
    values: &mut [T],
    compare: impl Fn(&T, &T) -> Ordering,
) -> Option<f64> {
    let (length, middle) = (values.len(), values.len() / 2);
    if length == 0 {
        return None;
    }
    let (below, middle_value, _) = values.select_nth_unstable_by(middle, &compare);
    let last_below = below.iter().copied().max_by(&compare);
    let middle_value = (*middle_value).into();
    match last_below.filter(|_| length.is_multiple_of(2)) {
        Some(other) => Some(f64::midpoint(other.into(), middle_value)),
        None => Some(middle_value),
    }
}

/// Returns the quantile `q` (0 to 1) by linear interpolation between the closest ranks; `None` for
/// an empty slice.
pub fn quantile(values: &[f64], q: f64) -> Option<f64> {
    quantile_of_sorted(&ascending(values.iter().copied()), q)
}

/// Computes [`quantile`] of sorted values.
pub fn quantile_of_sorted(sorted: &[f64], q: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    let rank = q.clamp(0.0, 1.0) * last as f64;
    let below = rank.floor() as usize;
    let above = (below + 1).min(last);
    Some(sorted[below] + (rank - below as f64) * (sorted[above] - sorted[below]))
}

pub fn ascending(values: impl IntoIterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assert_close(a: f64, b: f64) {
        assert!((a - b).abs() < 1e-12, "{a} is not {b}");
    }

    #[test]
    fn quantiles_are_those_of_r_and_numpy() {
        // R: quantile(c(1, 2, 3, 4, 10), c(0.1, 0.25, 0.5, 0.9)); numpy.percentile gives the same.
        let values = [10.0, 1.0, 4.0, 2.0, 3.0];
        assert_close(quantile(&values, 0.1).unwrap(), 1.4);
        assert_close(quantile(&values, 0.25).unwrap(), 2.0);
        assert_close(median(&values).unwrap(), 3.0);
        assert_close(quantile(&values, 0.9).unwrap(), 7.6);
        assert_close(quantile(&values, 1.0).unwrap(), 10.0);
        assert_close(median(&[1.0, 2.0]).unwrap(), 1.5);
        assert_eq!(median(&[]), None);
        let four = ascending([40.0, 10.0, 30.0, 20.0]);
        let at = [0.0, 0.25, 0.5, 1.0].map(|q| quantile_of_sorted(&four, q).unwrap());
        assert_eq!(at, [10.0, 17.5, 25.0, 40.0]);
    }

    #[test]
    fn a_median_is_the_same_in_place() {
        for length in 0..9 {
            let mut values: Vec<f64> = (0..length).map(|n| f64::from(n * 5 % 7)).collect();
            assert_eq!(median(&values), median_in_place(&mut values), "{length}");
        }
        let median_of_counts = |values: &mut [u32]| median_in_place_by(values, Ord::cmp);
        assert_eq!(median_of_counts(&mut []), None);
        assert_eq!(median_of_counts(&mut [3]), Some(3.0));
        assert_eq!(median_of_counts(&mut [9, 1]), Some(5.0));
        assert_eq!(median_of_counts(&mut [9, 1, 2]), Some(2.0));
        assert_eq!(median_of_counts(&mut [u32::MAX, u32::MAX]), Some(f64::from(u32::MAX)));
    }
}
