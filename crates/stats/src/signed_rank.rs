//! Wilcoxon's signed-rank test, two-sided: a test whether differences of pairs lie about zero. It
//! assumes that they are as likely to be above as below, and no shape.
//!
//! For unpaired values use [`super::rank_sum`].

use super::distribution::normal_upper_tail;
use super::ranks::{doubled_ranks, tie_term, two_sided_p};

/// Maximum number of differences for an exact p: 2^25 signs are counted by sums, without
/// approximation.
pub const EXACT_MAX: usize = 25;
/// Minimum number of pairs; fewer can never give p < 0.05: 2 / 2^5 is 0.0625.
pub const PAIRS_MIN: usize = 6;

/// Returns the two-sided p of Wilcoxon's signed-rank test (Biometrics Bulletin 1, 1945) over
/// differences. Differences of zero are left out, as Wilcoxon did. Up to [`EXACT_MAX`] it is exact,
/// also with ties: the distribution of the sum over all signs of the given ranks, by dynamic
/// programming. Beyond, it is the normal approximation with corrections for ties and continuity.
/// `None` without a difference that is not zero, or with one that is not finite.
pub fn p_value(differences: &[f64]) -> Option<f64> {
    let moved: Vec<f64> = differences.iter().copied().filter(|value| *value != 0.0).collect();
    if moved.is_empty() || moved.iter().any(|value| !value.is_finite()) {
        return None;
    }
    let sizes: Vec<f64> = moved.iter().map(|value| value.abs()).collect();
    let ranks = doubled_ranks(&sizes);
    let positive = ranks.iter().zip(&moved).filter(|(_, value)| **value > 0.0);
    let positive: usize = positive.map(|(rank, _)| rank).sum();
    if moved.len() <= EXACT_MAX {
        return Some(two_sided_p(&rank_sum_counts(&ranks), positive));
    }
    Some(normal_approximation(&sizes, positive as f64 / 2.0))
}

/// Returns the number of ways in which signs give each sum of the positive (doubled) ranks.
fn rank_sum_counts(ranks: &[usize]) -> Vec<f64> {
    let mut counts = vec![0.0; ranks.iter().sum::<usize>() + 1];
    counts[0] = 1.0;
    for &rank in ranks {
        for sum in (rank..counts.len()).rev() {
            counts[sum] += counts[sum - rank];
        }
    }
    counts
}

fn normal_approximation(sizes: &[f64], positive: f64) -> f64 {
    let n = sizes.len() as f64;
    let mean = n * (n + 1.0) / 4.0;
    let variance = n * (n + 1.0) * (2.0 * n + 1.0) / 24.0 - tie_term(sizes) / 48.0;
    let z = ((positive - mean).abs() - 0.5).max(0.0) / variance.sqrt();
    (2.0 * normal_upper_tail(z)).min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The differences of Darwin's plants, the example of scipy.stats.wilcoxon.
    const PLANTS: [f64; 15] =
        [6.0, 8.0, 14.0, 16.0, 23.0, 24.0, 28.0, 29.0, 41.0, -48.0, 49.0, 56.0, 60.0, -67.0, 75.0];

    fn near(a: f64, b: f64) {
        assert!((a - b).abs() < 1e-9, "{a} is not {b}");
    }

    #[test]
    fn the_example_of_scipy_is_reproduced() {
        // scipy: statistic=24.0, pvalue=0.041259765625.
        near(p_value(&PLANTS).unwrap(), 0.041_259_765_625);
    }

    /// Returns the smallest p that `pairs` pairs can give: all on one side.
    fn p_min(pairs: usize) -> f64 {
        2.0_f64.powf(1.0 - pairs as f64)
    }

    #[test]
    fn it_needs_six_pairs() {
        for n in 1..=10 {
            let one_sided: Vec<f64> = (1..=n).map(f64::from).collect();
            near(p_value(&one_sided).unwrap(), p_min(one_sided.len()));
        }
        assert!(p_min(PAIRS_MIN) < 0.05 && p_min(PAIRS_MIN - 1) > 0.05);
    }

    #[test]
    fn ties_are_counted_over_all_signs() {
        // Ranks 1.5, 1.5, 3, 4, one of the lowest below zero: of 16 signs those with a sum of
        // positive ranks of 8.5 or more are 10 (one), 8.5 (two): p = 2 * 3/16.
        near(p_value(&[-1.0, 1.0, 2.0, 3.0]).unwrap(), 0.375);
        // By brute force over all signs.
        let values = [0.5, -0.5, 0.5, 2.0, -3.0, 3.0, 4.0, 4.0, 9.0];
        let sizes: Vec<f64> = values.iter().map(|v: &f64| v.abs()).collect();
        let ranks = doubled_ranks(&sizes);
        let sum = |signs: u32| -> usize {
            (0..ranks.len()).filter(|at| signs >> at & 1 == 1).map(|at| ranks[at]).sum()
        };
        let observed = sum((0..9).filter(|at| values[*at] > 0.0).map(|at| 1 << at).sum());
        let above = (0..512).filter(|&signs| sum(signs) >= observed).count() as f64;
        let below = (0..512).filter(|&signs| sum(signs) <= observed).count() as f64;
        near(p_value(&values).unwrap(), (2.0 * above.min(below) / 512.0).min(1.0));
    }

    #[test]
    fn zeros_are_left_out_and_nothing_is_no_p() {
        assert_eq!(p_value(&[0.0, 0.0]), None);
        assert_eq!(p_value(&[f64::NAN, 1.0]), None);
        near(p_value(&[0.0, 1.0, 2.0, 3.0, 0.0]).unwrap(), 0.25);
    }

    #[test]
    fn the_approximation_meets_the_exact_value() {
        // R: wilcox.test(plants, exact = FALSE): p = 0.0438 with the correction for continuity.
        let sizes: Vec<f64> = PLANTS.iter().map(|v| v.abs()).collect();
        assert!((normal_approximation(&sizes, 96.0) - 0.0438).abs() < 1e-4);
        // At the switch from one to the other they agree.
        let values: Vec<f64> =
            (1..=25).map(|n| if n % 3 == 0 { -f64::from(n) } else { f64::from(n) }).collect();
        let sizes: Vec<f64> = values.iter().map(|v| v.abs()).collect();
        let positive = values.iter().filter(|v| **v > 0.0).sum::<f64>();
        assert!((p_value(&values).unwrap() - normal_approximation(&sizes, positive)).abs() < 0.003);
    }
}
