//! Size of a difference: shifts, and the probability that one side is larger.
//!
//! Tests and intervals decide whether there is a difference at all.

use super::distribution::t_quantile;
use super::{mean, median, standard_deviation};

/// Returns the fraction of pairings of a value of `a` with one of `b` in which `a`'s is larger;
/// ties count half. 0.5 means that neither tends to be larger. `None` if a set is empty.
pub fn larger_fraction(a: &[f64], b: &[f64]) -> Option<f64> {
    let pairings = a.len() * b.len();
    let wins = a.iter().flat_map(|x| b.iter().map(move |y| (x, y)));
    let wins: f64 = wins
        .map(|(x, y)| {
            if x > y {
                1.0
            } else if x < y {
                0.0
            } else {
                0.5
            }
        })
        .sum();
    (pairings > 0).then(|| wins / pairings as f64)
}

/// Returns the Hodges-Lehmann estimate of the shift from `b` to `a` (Annals of Mathematical
/// Statistics 34, 1963): the median of all differences. `None` if a set is empty.
pub fn hodges_lehmann_shift(a: &[f64], b: &[f64]) -> Option<f64> {
    let differences = a.iter().flat_map(|x| b.iter().map(move |y| x - y));
    median(&differences.collect::<Vec<f64>>())
}

/// Returns half the width of Student's interval of a mean; `None` for fewer than two values.
pub fn t_half_width(values: &[f64], confidence: f64) -> Option<f64> {
    let n = values.len() as f64;
    Some(t_factor(values.len(), confidence)? * standard_deviation(values)? / n.sqrt())
}

/// Returns Student's factor for the mean of `n` values; `None` for fewer than two.
pub fn t_factor(n: usize, confidence: f64) -> Option<f64> {
    (n > 1).then(|| t_quantile(f64::midpoint(1.0, confidence), (n - 1) as f64))
}

/// Returns Student's interval of the difference of two means whose sets may have different spreads
/// (Welch, Biometrika 34, 1947). `None` if a set has fewer than two values, or if neither has any
/// spread.
pub fn welch_interval(a: &[f64], b: &[f64], confidence: f64) -> Option<(f64, f64)> {
    let difference = mean(a)? - mean(b)?;
    let (x, y) =
        (standard_deviation(a)?.powi(2) / a.len() as f64, standard_deviation(b)?.powi(2) / b.len() as f64);
    let weight = x * x / (a.len() - 1) as f64 + y * y / (b.len() - 1) as f64;
    if weight <= 0.0 {
        return None;
    }
    let freedom = (x + y).powi(2) / weight;
    let half = t_quantile(f64::midpoint(1.0, confidence), freedom) * (x + y).sqrt();
    Some((difference - half, difference + half))
}

/// Position of a change relative to a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitPosition {
    /// The change and its complete interval are above the limit.
    Beyond,
    /// The change and its complete interval are at most the limit.
    Within,
    Open,
}

/// Returns the position of a change with its interval relative to a limit. All of weir's comparisons use it: whether an
/// effect matters, whether two sides are equivalent, and whether a change is a regression.
pub fn compare_with_limit(change: f64, (low, high): (f64, f64), limit: f64) -> LimitPosition {
    if low > limit && change > limit {
        LimitPosition::Beyond
    } else if high <= limit && change <= limit {
        LimitPosition::Within
    } else {
        LimitPosition::Open
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(a: f64, b: f64, within: f64) {
        assert!((a - b).abs() <= within, "{a} is not {b}");
    }

    #[test]
    fn an_interval_is_beyond_within_or_across_a_limit() {
        let positions = [(0.3, (0.2, 0.4)), (0.05, (0.0, 0.1)), (0.1, (0.05, 0.4)), (0.3, (0.05, 0.09))]
            .map(|(change, interval)| compare_with_limit(change, interval, 0.1));
        use LimitPosition::{Beyond, Open, Within};
        assert_eq!(positions, [Beyond, Within, Open, Open]);
    }

    #[test]
    fn wins_are_counted_with_half_the_ties() {
        near(larger_fraction(&[1.0, 2.0], &[1.0, 0.0]).unwrap(), 3.5 / 4.0, 1e-12);
        assert_eq!(larger_fraction(&[], &[1.0]), None);
    }

    #[test]
    fn the_hodges_lehmann_estimate_ignores_an_outlier() {
        near(hodges_lehmann_shift(&[5.0, 6.0, 900.0], &[1.0, 2.0, 3.0]).unwrap(), 4.0, 1e-12);
        assert_eq!(hodges_lehmann_shift(&[], &[1.0]), None);
    }

    #[test]
    fn students_interval_is_that_of_his_sleep_data() {
        // R: t.test(extra ~ group, data = sleep, paired = TRUE): -2.4598858 to -0.7001142.
        let a = [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0];
        let b = [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4];
        let differences: Vec<f64> = a.iter().zip(&b).map(|(a, b)| a - b).collect();
        let half = t_half_width(&differences, 0.95).unwrap();
        near(mean(&differences).unwrap() - half, -2.459_885_8, 1e-6);
        near(mean(&differences).unwrap() + half, -0.700_114_2, 1e-6);
        // R: t.test(extra ~ group, data = sleep): -3.3654832 to 0.2054832.
        let (low, high) = welch_interval(&a, &b, 0.95).unwrap();
        near(low, -3.365_483_2, 1e-6);
        near(high, 0.205_483_2, 1e-6);
    }
}
