//! Quantiles of a histogram on the axis 1 / (1 − q), with equal room for each further nine.

use record::histogram::LatencyHistogram;

/// Points in each decade of 1 / (1 − q).
const POINTS_PER_DECADE: u8 = 12;
/// Maximum number of decades of 1 / (1 − q): further nines.
pub(crate) const NINES_MAX: u8 = 7;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct QuantilePoint {
    pub(crate) quantile: f64,
    /// The latency that it does not exceed.
    pub(crate) latency_ns: u64,
    /// Number of responses that took longer.
    pub(crate) beyond: f64,
}

/// Returns points from the fastest response to the slowest.
pub(crate) fn quantile_points(latencies: &LatencyHistogram) -> Vec<QuantilePoint> {
    let count = latencies.count() as f64;
    let steps = (0..=POINTS_PER_DECADE * NINES_MAX).map(f64::from);
    // The median and three quarters are not steps of a decade.
    let steps = steps.map(|step| 10f64.powf(step / f64::from(POINTS_PER_DECADE))).chain([2.0, 4.0]);
    let mut steps: Vec<f64> = steps.filter(|beyond| *beyond <= count).collect();
    steps.sort_by(f64::total_cmp);
    let point = |beyond: f64| {
        let quantile = 1.0 - 1.0 / beyond;
        QuantilePoint { quantile, latency_ns: latencies.value_at_quantile(quantile), beyond: count / beyond }
    };
    steps.into_iter().map(point).collect()
}

/// Formats a quantile in percent, with enough digits to differ from 100.
pub(crate) fn percentile(quantile: f64) -> String {
    let digits = (1.0 / (1.0 - quantile)).log10().floor().clamp(0.0, 8.0) as usize;
    let text = format!("{:.digits$}", quantile * 100.0);
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_end_where_the_responses_end() {
        let mut latencies = LatencyHistogram::new();
        (1..=10_000u64).for_each(|index| latencies.record(index * 1_000));
        let points = quantile_points(&latencies);
        assert!(points.windows(2).all(|pair| pair[0].latency_ns <= pair[1].latency_ns));
        let last = points.last().unwrap();
        assert!((last.quantile - 0.9999).abs() < 1e-9, "{last:?}");
        let median = points.iter().find(|point| point.quantile == 0.5).unwrap();
        assert!((median.latency_ns as f64 / 5e6 - 1.0).abs() < 0.001);
    }

    #[test]
    fn a_percentile_has_the_digits_that_tell_it() {
        for (quantile, text) in [(0.5, "50"), (0.9, "90"), (0.999, "99.9"), (0.99999, "99.999")] {
            assert_eq!(percentile(quantile), text);
        }
    }
}
