//! Quantiles of a few exact values: the one definition of this crate. Latencies have histograms
//! (`record::histogram`), which never keep their values.

/// The value at `fraction` (0 to 1) of ascending values, linearly interpolated between the two nearest
/// (Hyndman and Fan's type 7, as NumPy and R do by default); 0 without values.
pub(crate) fn quantile(ascending: &[f64], fraction: f64) -> f64 {
    let Some(last) = ascending.len().checked_sub(1) else { return 0.0 };
    let position = last as f64 * fraction.clamp(0.0, 1.0);
    let below = position.floor() as usize;
    let above = (below + 1).min(last);
    ascending[below] + (ascending[above] - ascending[below]) * (position - below as f64)
}

/// The median of values in any order; 0 without values.
pub(crate) fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    quantile(&ascending(values), 0.5)
}

/// The values in ascending order.
pub(crate) fn ascending(values: impl IntoIterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_interpolate_between_the_nearest_values() {
        let values = ascending([40.0, 10.0, 30.0, 20.0]);
        let at = [0.0, 0.25, 0.5, 1.0].map(|fraction| quantile(&values, fraction));
        assert_eq!(at, [10.0, 17.5, 25.0, 40.0]);
        assert_eq!((median([3.0, 1.0, 2.0]), median([]), median([7.0])), (2.0, 0.0, 7.0));
    }
}
