//! What has to be paid for asking more than one question of the same experiment.
//!
//! Not for choosing the questions: the plan does that, before the first trial.

/// Holm's step-down correction (Scandinavian Journal of Statistics 6, 1979) of several p, in their
/// order: each is what it would have to be below for its claim to hold with all the others looked at.
/// It holds whatever the p have to do with each other, unlike those that are smaller.
#[must_use]
pub fn holm(ps: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..ps.len()).collect();
    order.sort_by(|&a, &b| ps[a].total_cmp(&ps[b]));
    let mut adjusted = vec![0.0; ps.len()];
    let mut least = 0.0_f64;
    for (rank, &at) in order.iter().enumerate() {
        least = least.max((ps.len() - rank) as f64 * ps[at]).min(1.0);
        adjusted[at] = least;
    }
    adjusted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_what_r_says() {
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
