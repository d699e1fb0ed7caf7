//! Interval of the difference between two series over time: blocks of consecutive values are drawn again with
//! replacement, because a slow second is often followed by another (Künsch, Annals of Statistics 17, 1989).

use super::bootstrap::Resampling;
use super::distribution::normal_quantile;
use super::effect::t_factor;
use super::quantiles::quantile_of_sorted;

/// Returns the interval of `difference(figure(a), figure(b))`. `figure` may reorder its argument. The interval of
/// the draws is widened by Student's factor for the number of blocks, because few blocks know little about their
/// spread. `None` for fewer than two blocks in a series, or if a difference is not finite.
#[must_use]
pub fn difference_interval<T: Copy>(
    a: &[T],
    b: &[T],
    figure: impl Fn(&mut [T]) -> f64,
    difference: impl Fn(f64, f64) -> f64,
    resampling: Resampling,
) -> Option<(f64, f64)> {
    let blocks = block_count(a.len()).min(block_count(b.len()));
    let tail = (1.0 - resampling.confidence) / 2.0;
    let widening = t_factor(blocks, resampling.confidence)? / normal_quantile(1.0 - tail);
    let observed = difference(figure(&mut a.to_vec()), figure(&mut b.to_vec()));
    let mut random = fastrand::Rng::with_seed(resampling.seed);
    let mut buffer = Vec::with_capacity(a.len().max(b.len()));
    let mut draw = |values: &[T]| {
        fill_with_blocks(&mut buffer, values, &mut random);
        figure(&mut buffer)
    };
    let mut drawn: Vec<f64> = (0..resampling.draws).map(|_| difference(draw(a), draw(b))).collect();
    if !observed.is_finite() || drawn.iter().any(|value| !value.is_finite()) {
        return None;
    }
    drawn.sort_unstable_by(f64::total_cmp);
    let (low, high) = (quantile_of_sorted(&drawn, tail)?, quantile_of_sorted(&drawn, 1.0 - tail)?);
    // The observed difference may lie beside the draws.
    let (low, high) = (low.min(observed), high.max(observed));
    Some((observed - (observed - low) * widening, observed + (high - observed) * widening))
}

/// Returns the length of a block: the cube root of the length of the series.
fn block_length(values: usize) -> usize {
    ((values as f64).cbrt().round() as usize).max(1)
}

fn block_count(values: usize) -> usize {
    values / block_length(values)
}

/// Fills a buffer with as many values as the series has, from random blocks of it.
fn fill_with_blocks<T: Copy>(buffer: &mut Vec<T>, values: &[T], random: &mut fastrand::Rng) {
    let length = block_length(values.len());
    buffer.clear();
    while buffer.len() < values.len() {
        let start = random.usize(..=values.len() - length);
        let missing = values.len() - buffer.len();
        buffer.extend_from_slice(&values[start..start + length.min(missing)]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::median;

    const RESAMPLING: Resampling = Resampling { draws: 200, seed: 1, confidence: 0.95 };

    fn interval(a: &[f64], b: &[f64]) -> Option<(f64, f64)> {
        let median = |values: &mut [f64]| median(values).unwrap_or(f64::NAN);
        difference_interval(a, b, median, |a, b| b - a, RESAMPLING)
    }

    /// Returns a series whose values follow the ones before them.
    fn series(random: &mut fastrand::Rng, length: usize, memory: f64, mean: f64) -> Vec<f64> {
        let mut value = 0.0;
        let mut next = || {
            value = memory * value + random.f64() - 0.5;
            mean + value
        };
        (0..length).map(|_| next()).collect()
    }

    #[test]
    fn the_interval_contains_the_true_difference_about_as_often_as_it_says() {
        let mut random = fastrand::Rng::with_seed(5);
        for memory in [0.0, 0.5] {
            for length in [10, 30] {
                let contained = (0..100).filter(|_| {
                    let a = series(&mut random, length, memory, 3.0);
                    let b = series(&mut random, length, memory, 5.0);
                    interval(&a, &b).is_some_and(|(low, high)| low <= 2.0 && 2.0 <= high)
                });
                let contained = contained.count();
                assert!(contained >= 86, "memory {memory}, {length} values: {contained} of 100");
            }
        }
    }

    #[test]
    fn a_large_difference_is_seen_and_none_is_not_invented() {
        let mut random = fastrand::Rng::with_seed(9);
        let a = series(&mut random, 20, 0.2, 10.0);
        let (low, high) = interval(&a, &series(&mut random, 20, 0.2, 12.0)).unwrap();
        assert!(low > 1.0 && high < 3.0, "{low} {high}");
        let (low, high) = interval(&a, &series(&mut random, 20, 0.2, 10.0)).unwrap();
        assert!(low < 0.0 && high > 0.0, "{low} {high}");
        assert_eq!(interval(&[1.0; 9], &[2.0; 9]), Some((1.0, 1.0)));
    }

    #[test]
    fn too_few_values_have_no_interval() {
        assert_eq!(interval(&[1.0], &[1.0, 2.0, 3.0, 4.0]), None);
        assert_eq!(interval(&[], &[]), None);
        assert_eq!(interval(&[1.0, f64::NAN, 2.0, 3.0], &[1.0; 4]), None);
    }
}
