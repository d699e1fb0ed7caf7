//! Intervals of fractions of counts (binomial).

use super::distribution::normal_quantile;

/// Returns the Wilson score interval (Wilson, JASA 22, 1927) of the fraction `hits` of `trials`,
/// with this confidence (0.95); from 0 to 1 without trials. It stays within 0 and 1, and covers
/// small counts and extreme fractions, which the normal approximation does not.
pub fn wilson_interval(hits: u32, trials: u32, confidence: f64) -> (f64, f64) {
    if trials == 0 {
        return (0.0, 1.0);
    }
    let z = normal_quantile(f64::midpoint(1.0, confidence));
    let (count, fraction) = (f64::from(trials), f64::from(hits) / f64::from(trials));
    let z_squared = z * z;
    let scale = 1.0 + z_squared / count;
    let centre = fraction + z_squared / (2.0 * count);
    let spread = z * (fraction * (1.0 - fraction) / count + z_squared / (4.0 * count * count)).sqrt();
    (((centre - spread) / scale).max(0.0), ((centre + spread) / scale).min(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_is_wilsons() {
        // Newcombe 1998, table I: 81 of 263, 15 of 148, 0 of 20, 1 of 29.
        for (hits, trials, low, high) in [
            (81, 263, 0.2553, 0.3662),
            (15, 148, 0.0624, 0.1605),
            (0, 20, 0.0, 0.1611),
            (1, 29, 0.0061, 0.1718),
        ] {
            let (is_low, is_high) = wilson_interval(hits, trials, 0.95);
            assert!((is_low - low).abs() < 1e-4 && (is_high - high).abs() < 1e-4, "{hits}/{trials}");
        }
        assert_eq!(wilson_interval(0, 0, 0.95), (0.0, 1.0));
    }
}
