//! The Mann-Whitney U test, two-sided: a test whether the values of one set tend to be larger than
//! those of another, unpaired set.
//!
//! For blocks, in which both were measured next to each other, [`super::signed_rank`] has more
//! power.

use super::distribution::normal_upper_tail;
use super::ranks::{doubled_ranks, tie_term, two_sided_p};

/// Maximum number of values in both sets together for an exact p; the counts still fit a float
/// without loss.
pub const EXACT_MAX: usize = 50;

/// Returns the two-sided p of the Mann-Whitney U test (Annals of Mathematical Statistics 18, 1947).
/// Up to [`EXACT_MAX`] values in all it is exact, also with ties: over all choices of the given
/// ranks. Beyond, it is the normal approximation with corrections for ties and continuity. `None`
/// if a set is empty or a value is not finite.
pub fn p_value(a: &[f64], b: &[f64]) -> Option<f64> {
    let all: Vec<f64> = a.iter().chain(b).copied().collect();
    if a.is_empty() || b.is_empty() || all.iter().any(|value| !value.is_finite()) {
        return None;
    }
    let ranks = doubled_ranks(&all);
    let sum: usize = ranks[..a.len()].iter().sum();
    if all.len() <= EXACT_MAX {
        return Some(two_sided_p(&rank_sum_counts(&ranks, a.len()), sum));
    }
    Some(normal_approximation(&all, a.len(), sum))
}

/// Returns the number of ways in which `chosen` of the (doubled) ranks give each sum.
fn rank_sum_counts(ranks: &[usize], chosen: usize) -> Vec<f64> {
    let sums = ranks.iter().sum::<usize>() + 1;
    let mut counts = vec![vec![0.0; sums]; chosen + 1];
    counts[0][0] = 1.0;
    for (index, &rank) in ranks.iter().enumerate() {
        for taken in (1..=chosen.min(index + 1)).rev() {
            let (fewer, rest) = counts.split_at_mut(taken);
            for sum in rank..sums {
                rest[0][sum] += fewer[taken - 1][sum - rank];
            }
        }
    }
    counts.swap_remove(chosen)
}

fn normal_approximation(all: &[f64], a_count: usize, doubled_sum: usize) -> f64 {
    let (n, m) = (a_count as f64, (all.len() - a_count) as f64);
    let total = n + m;
    let u = doubled_sum as f64 / 2.0 - n * (n + 1.0) / 2.0;
    let ties = tie_term(all) / (total * (total - 1.0));
    let variance = n * m / 12.0 * (total + 1.0 - ties);
    if variance <= 0.0 {
        return 1.0;
    }
    let z = ((u - n * m / 2.0).abs() - 0.5).max(0.0) / variance.sqrt();
    (2.0 * normal_upper_tail(z)).min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ages at diagnosis, the example of scipy.stats.mannwhitneyu.
    const MALES: [f64; 5] = [19.0, 22.0, 16.0, 29.0, 24.0];
    const FEMALES: [f64; 4] = [20.0, 11.0, 17.0, 12.0];

    fn near(a: f64, b: f64) {
        assert!((a - b).abs() < 1e-9, "{a} is not {b}");
    }

    #[test]
    fn the_example_of_scipy_is_reproduced() {
        // scipy: exact 0.1111111111111111, asymptotic 0.11134688653314041.
        near(p_value(&MALES, &FEMALES).unwrap(), 0.111_111_111_111_111_1);
        near(p_value(&FEMALES, &MALES).unwrap(), 0.111_111_111_111_111_1);
        let all: Vec<f64> = MALES.iter().chain(&FEMALES).copied().collect();
        let sum = doubled_ranks(&all)[..5].iter().sum();
        near(normal_approximation(&all, 5, sum), 0.111_346_886_533_140_41);
    }

    #[test]
    fn few_values_limit_p() {
        // The table in golang/perf's benchmath: 3 -> 0.1, 4 -> 0.029, 5 -> 0.0079.
        for (n, p_min) in [(3, 0.1), (4, 0.029), (5, 0.0079)] {
            let a: Vec<f64> = (0..n).map(f64::from).collect();
            let b: Vec<f64> = (100..100 + n).map(f64::from).collect();
            assert!((p_value(&a, &b).unwrap() - p_min).abs() < 0.0005, "{n}");
        }
    }

    #[test]
    fn ties_are_counted_over_all_choices() {
        // All the same: every choice has the same sum.
        near(p_value(&[1.0, 1.0], &[1.0, 1.0, 1.0]).unwrap(), 1.0);
        // Ranks 1, 2.5 | 2.5, 4: of 6 choices of two those with a sum of 3.5 or less are 2.
        near(p_value(&[1.0, 2.0], &[2.0, 3.0]).unwrap(), 2.0 * 2.0 / 6.0);
        assert_eq!(p_value(&[], &[1.0]), None);
        assert_eq!(p_value(&[f64::INFINITY], &[1.0]), None);
    }

    #[test]
    fn the_approximation_meets_the_exact_value() {
        let a: Vec<f64> = (0..25).map(|n| f64::from(n) * 1.03).collect();
        let b: Vec<f64> = (0..25).map(|n| f64::from(n) + 4.5).collect();
        let all: Vec<f64> = a.iter().chain(&b).copied().collect();
        let sum = doubled_ranks(&all)[..25].iter().sum();
        assert!((p_value(&a, &b).unwrap() - normal_approximation(&all, 25, sum)).abs() < 0.003);
    }
}
