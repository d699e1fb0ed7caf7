//! Throughput by the number of cores: the Universal Scalability Law,
//! X(N) = γN / (1 + α(N−1) + βN(N−1)), fitted to measured points.

use serde::Serialize;

/// Minimum number of points for a fit.
pub const POINTS_MIN: usize = 3;
/// Number of points from which a fit is more than an indication.
pub const POINTS_SURE: usize = 6;
/// Maximum multiple of the highest measured number for predictions.
pub const EXTRAPOLATION_MAX: f64 = 2.0;

/// Fitted law.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ScalingLaw {
    /// Contention: the fraction of work that cannot be done in parallel.
    pub alpha: f64,
    /// Coherency: the cost of each pair.
    pub beta: f64,
    /// Throughput of one, per second.
    pub gamma_per_s: f64,
    /// Highest measured number.
    pub measured_max: f64,
}

impl ScalingLaw {
    /// Fits the law to points (number, rate per second) by least squares of N / X, which is linear
    /// in the parameters. `None` if there are fewer than [`POINTS_MIN`] points with different numbers, or
    /// they do not determine the law.
    #[must_use]
    pub fn fit(points: &[(f64, f64)]) -> Option<Self> {
        let mut numbers: Vec<f64> = points.iter().map(|(number, _)| *number).collect();
        numbers.sort_by(f64::total_cmp);
        numbers.dedup();
        if numbers.len() < POINTS_MIN {
            return None;
        }
        let measured_max = *numbers.last()?;
        // N/X = 1/γ + (α/γ)(N−1) + (β/γ)N(N−1); a term below 0 is left out.
        let terms = [true, true, true];
        let fitted = [terms, [true, false, true], [true, true, false], [true, false, false]];
        fitted.iter().find_map(|used| Self::fit_terms(points, *used, measured_max))
    }

    fn fit_terms(points: &[(f64, f64)], used: [bool; 3], measured_max: f64) -> Option<Self> {
        let mut matrix = [[0.0; 4]; 3];
        for &(n, x) in points {
            let terms = [1.0, n - 1.0, n * (n - 1.0)];
            let weight = (x / n).powi(2);
            for (row, line) in matrix.iter_mut().enumerate() {
                for (column, cell) in line.iter_mut().enumerate().take(3) {
                    *cell += weight * terms[row] * terms[column];
                }
                line[3] += weight * terms[row] * n / x;
            }
        }
        for (row, is_used) in used.iter().enumerate() {
            if !is_used {
                matrix[row] = [0.0; 4];
                matrix[row][row] = 1.0;
                matrix.iter_mut().enumerate().filter(|(other, _)| *other != row).for_each(|(_, line)| {
                    line[row] = 0.0;
                });
            }
        }
        let [first, contention, coherency] = solve(matrix)?;
        let law = Self {
            alpha: contention / first,
            beta: coherency / first,
            gamma_per_s: 1.0 / first,
            measured_max,
        };
        let is_valid = first > 0.0 && law.alpha >= 0.0 && law.beta >= 0.0;
        is_valid.then_some(law)
    }

    /// Returns the rate of `number`, per second.
    #[must_use]
    pub fn rate_per_s(&self, number: f64) -> f64 {
        self.gamma_per_s * number / (1.0 + self.alpha * (number - 1.0) + self.beta * number * (number - 1.0))
    }

    /// Returns the number with the highest rate; infinite if the rate never falls.
    #[must_use]
    pub fn peak(&self) -> f64 {
        if self.beta > 0.0 {
            ((1.0 - self.alpha).max(0.0) / self.beta).sqrt().max(1.0)
        } else {
            f64::INFINITY
        }
    }

    /// Returns the smallest whole number that reaches a rate, up to [`EXTRAPOLATION_MAX`] times the
    /// measured maximum; `None` if none does.
    #[must_use]
    pub fn number_for(&self, rate_per_s: f64) -> Option<u64> {
        let max = (self.measured_max * EXTRAPOLATION_MAX) as u64;
        (1..=max).find(|number| self.rate_per_s(*number as f64) >= rate_per_s)
    }

    /// Returns the highest rate of a whole number that the law may predict.
    #[must_use]
    pub fn max_rate_per_s(&self) -> f64 {
        let max = (self.measured_max * EXTRAPOLATION_MAX) as u64;
        (1..=max).map(|number| self.rate_per_s(number as f64)).fold(0.0, f64::max)
    }
}

/// Solves three linear equations by elimination with pivots.
fn solve(mut matrix: [[f64; 4]; 3]) -> Option<[f64; 3]> {
    for column in 0..3 {
        let pivot =
            (column..3).max_by(|a, b| matrix[*a][column].abs().total_cmp(&matrix[*b][column].abs()))?;
        matrix.swap(column, pivot);
        if matrix[column][column].abs() < 1e-12 {
            return None;
        }
        let pivot_row = matrix[column];
        for (_, line) in matrix.iter_mut().enumerate().filter(|(row, _)| *row != column) {
            let factor = line[column] / pivot_row[column];
            line.iter_mut().zip(pivot_row).for_each(|(cell, pivot)| *cell -= factor * pivot);
        }
    }
    Some([0, 1, 2].map(|row| matrix[row][3] / matrix[row][row]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_law_is_found_again_in_its_points() {
        let law = ScalingLaw { alpha: 0.05, beta: 0.002, gamma_per_s: 10_000.0, measured_max: 16.0 };
        let points: Vec<_> = [1.0, 2.0, 4.0, 8.0, 16.0].map(|n| (n, law.rate_per_s(n))).into();
        let fitted = ScalingLaw::fit(&points).unwrap();
        assert!((fitted.alpha - 0.05).abs() < 1e-6 && (fitted.beta - 0.002).abs() < 1e-7, "{fitted:?}");
        assert!((law.peak() - 21.79).abs() < 0.01);
        assert_eq!(fitted.number_for(30_000.0), Some(4));
        assert_eq!(fitted.number_for(1e9), None);
    }

    #[test]
    fn too_few_points_determine_nothing_and_negative_terms_are_left_out() {
        assert_eq!(ScalingLaw::fit(&[(1.0, 10.0), (2.0, 19.0), (2.0, 20.0)]), None);
        let linear = ScalingLaw::fit(&[(1.0, 10.0), (2.0, 20.5), (4.0, 42.0), (8.0, 85.0)]).unwrap();
        assert_eq!((linear.alpha, linear.beta), (0.0, 0.0));
        assert!(linear.peak().is_infinite());
    }
}
