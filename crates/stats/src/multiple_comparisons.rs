//! Corrections for multiple comparisons in the same experiment.
//!
//! The plan chooses the comparisons before the first trial.

use super::signed_rank::{PAIRS_MIN, p_min};

/// Applies Holm's step-down correction (Scandinavian Journal of Statistics 6, 1979) to several p,
/// in their order. A claim holds if its adjusted p is below the bound, with all others taken into
/// account. The correction holds for any dependence between the p, unlike less strict corrections.
#[must_use]
pub fn holm(ps: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..ps.len()).collect();
    order.sort_by(|&a, &b| ps[a].total_cmp(&ps[b]));
    let mut adjusted = vec![0.0; ps.len()];
    let mut p_min = 0.0_f64;
    for (rank, &at) in order.iter().enumerate() {
        p_min = p_min.max((ps.len() - rank) as f64 * ps[at]).min(1.0);
        adjusted[at] = p_min;
    }
    adjusted
}

/// Returns the smallest p of a signed-rank test over `pairs` pairs after Holm's correction over
/// `tested` comparisons.
#[must_use]
pub fn p_adjusted_min(tested: usize, pairs: usize) -> f64 {
    (tested as f64 * p_min(pairs)).min(1.0)
}

/// Returns whether any values of this many pairs can give a p that is small enough.
#[must_use]
pub fn can_conclude(tested: usize, pairs: usize, confidence: f64) -> bool {
    p_adjusted_min(tested, pairs) < 1.0 - confidence
}

/// Returns the minimum number of pairs that can show a difference, with `tested` comparisons
/// corrected for each other.
#[must_use]
pub fn pairs_to_conclude(tested: usize, confidence: f64) -> u32 {
    let enough = |pairs: &usize| can_conclude(tested, *pairs, confidence);
    (PAIRS_MIN..PAIRS_MAX).find(enough).unwrap_or(PAIRS_MAX) as u32
}

/// Upper bound, enough for 2^50 comparisons.
const PAIRS_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_comparisons_take_more_pairs() {
        // 2/2^6 is 0.031, and over two comparisons 0.063.
        let cases = [(0, 6), (1, 6), (2, 7), (3, 7), (4, 8), (12, 9), (100, 12)];
        for (tested, pairs) in cases {
            assert_eq!(pairs_to_conclude(tested, 0.95), pairs, "{tested}");
        }
        assert_eq!(p_adjusted_min(2, 6), 0.0625);
        assert_eq!(pairs_to_conclude(1, 0.999), 11);
    }

    #[test]
    fn it_agrees_with_r() {
        // R: p.adjust(c(0.04, 0.01, 0.03, 0.02), "holm") is 0.06 0.04 0.06 0.06.
        let adjusted = holm(&[0.04, 0.01, 0.03, 0.02]);
        for (a, b) in adjusted.iter().zip([0.06, 0.04, 0.06, 0.06]) {
            assert!((a - b).abs() < 1e-12, "{adjusted:?}");
        }
        assert_eq!(holm(&[0.9, 0.8]), [1.0, 1.0]);
        assert_eq!(holm(&[0.03]), [0.03]);
        assert!(holm(&[]).is_empty());
    }
}
