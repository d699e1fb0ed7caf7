//! Ranks with ties, and the exact distribution of their sums, for [`super::signed_rank`] and
//! [`super::rank_sum`].

/// Returns twice the rank of each value, from 2 on. Equal values get the middle of their ranks;
/// doubling keeps these whole numbers.
pub fn doubled_ranks(values: &[f64]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|&a, &b| values[a].total_cmp(&values[b]));
    let mut ranks = vec![0; values.len()];
    let mut from = 0;
    while from < order.len() {
        let differs = |&at: &usize| values[order[at]] != values[order[from]];
        let end = (from..order.len()).find(differs).unwrap_or(order.len());
        for &at in &order[from..end] {
            // Twice the mean of the ranks from + 1 to end.
            ranks[at] = from + 1 + end;
        }
        from = end;
    }
    ranks
}

/// Returns the sum of t³ - t over the groups of t equal values: the reduction of a rank test's
/// variance by ties.
pub fn tie_term(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let groups = sorted.chunk_by(|a, b| a == b);
    groups.map(|group| group.len() as f64).map(|t| t * t * t - t).sum()
}

/// Returns the two-sided p of a sum in a distribution of counts by sum: twice the smaller tail, at
/// most 1.
pub fn two_sided_p(counts: &[f64], sum: usize) -> f64 {
    let all: f64 = counts.iter().sum();
    let below: f64 = counts.iter().take(sum + 1).sum();
    let above: f64 = counts.iter().skip(sum).sum();
    (2.0 * below.min(above) / all).min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_values_share_their_ranks() {
        assert_eq!(doubled_ranks(&[3.0, 1.0, 2.0]), [6, 2, 4]);
        // Ranks 1, 2.5, 2.5, 4.
        assert_eq!(doubled_ranks(&[1.0, 2.0, 2.0, 9.0]), [2, 5, 5, 8]);
        assert_eq!(doubled_ranks(&[7.0, 7.0, 7.0]), [4, 4, 4]);
        assert!(doubled_ranks(&[]).is_empty());
    }

    #[test]
    fn ties_are_counted_by_group() {
        assert_eq!(tie_term(&[1.0, 2.0, 3.0]), 0.0);
        assert_eq!(tie_term(&[1.0, 2.0, 2.0, 5.0, 5.0, 5.0]), 6.0 + 24.0);
    }
}
