//! Corrections for multiple comparisons in the same experiment.
//!
//! The plan chooses the comparisons before the first trial.

/// Applies Holm's step-down correction (Scandinavian Journal of Statistics 6, 1979) to several p,
/// in their order. A claim holds if its adjusted p is below the bound, with all others taken into
/// account. The correction holds for any dependence between the p, unlike less strict corrections.
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

#[cfg(test)]
mod tests {
    use super::*;

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
