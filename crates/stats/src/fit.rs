//! Common parts of the fits ([`crate::knee`], [`crate::scalability`]): values with their intervals,
//! least squares (also of a line), and the reasons for no fit.

use super::distribution::{normal_quantile, t_quantile};
use super::quantiles::{ascending, quantile_of_sorted};

pub(crate) const RESAMPLES: usize = 1_000;
/// Upper fraction of a two-sided 95 % interval.
pub(crate) const UPPER_95: f64 = 0.975;

/// Fitted value with its 95 % interval, in the unit of the fitted points.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Estimate {
    pub value: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FitError {
    #[error("{points} points, {needed} are needed")]
    TooFewPoints {
        points: usize,
        /// Minimum number.
        needed: usize,
    },
    /// Several laws fit the points equally well.
    #[error("the points do not determine it")]
    Undetermined,
    #[error("latency grows evenly within the tested rates")]
    NoKnee,
}

/// Returns the 95 % interval of a bootstrap around `value`, for a fit with `degrees_of_freedom`
/// left. The quantiles of resamples assume a known variance; a variance from few points needs
/// Student's t.
pub(crate) fn estimate_interval(value: f64, resampled: Vec<f64>, degrees_of_freedom: usize) -> Estimate {
    let resampled = ascending(resampled.into_iter().filter(|value| value.is_finite()));
    let end = |q| quantile_of_sorted(&resampled, q).unwrap_or(value);
    let (low, high) = (end(1.0 - UPPER_95), end(UPPER_95));
    let widening = t_quantile(UPPER_95, degrees_of_freedom.max(1) as f64) / normal_quantile(UPPER_95);
    let (low, high) = (value - widening * (value - low), value + widening * (high - value));
    Estimate { value, low: low.min(value), high: high.max(value) }
}

/// Returns the factor that corrects residuals of a fit of `parameters` to `points`. Residuals are
/// smaller than the errors that caused them; with the factor they have the same variance.
pub(crate) fn residual_scale(points: usize, parameters: usize) -> f64 {
    (points as f64 / points.saturating_sub(parameters).max(1) as f64).sqrt()
}

/// Returns the fraction of the variance of `points` (x, y) that a fitted `curve` explains; 0 if they
/// have no variance.
pub(crate) fn r_squared(points: &[(f64, f64)], curve: impl Fn(f64) -> f64) -> f64 {
    let mean = points.iter().map(|(_, y)| y).sum::<f64>() / points.len().max(1) as f64;
    let total: f64 = points.iter().map(|(_, y)| (y - mean).powi(2)).sum();
    let left: f64 = points.iter().map(|(x, y)| (curve(*x) - y).powi(2)).sum();
    if total > 0.0 { 1.0 - left / total } else { 0.0 }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Line {
    /// Change of y per unit of x.
    pub slope: f64,
    /// Value at x = 0.
    pub intercept: f64,
}

/// Fits a line to `points` (x, y) by least squares. `None` without two different values of x, or with a
/// value that is not finite.
pub fn fit_line(points: &[(f64, f64)]) -> Option<Line> {
    let count = points.len() as f64;
    let mean_x = points.iter().map(|(x, _)| x).sum::<f64>() / count;
    let mean_y = points.iter().map(|(_, y)| y).sum::<f64>() / count;
    let variance: f64 = points.iter().map(|(x, _)| (x - mean_x).powi(2)).sum();
    let covariance: f64 = points.iter().map(|(x, y)| (x - mean_x) * (y - mean_y)).sum();
    if !(variance > 0.0 && variance.is_finite() && covariance.is_finite()) {
        return None;
    }
    let slope = covariance / variance;
    Some(Line { slope, intercept: mean_y - slope * mean_x })
}

/// Returns the three coefficients that fit rows of three values best; `None` if they are not
/// determined.
pub(crate) fn least_squares(rows: impl Iterator<Item = ([f64; 3], f64)>) -> Option<[f64; 3]> {
    let mut matrix = [[0.0; 4]; 3];
    for (row, y) in rows {
        for i in 0..3 {
            for j in 0..3 {
                matrix[i][j] += row[i] * row[j];
            }
            matrix[i][3] += row[i] * y;
        }
    }
    solve_linear(matrix)
}

/// Solves three equations by Gaussian elimination with pivots.
pub(crate) fn solve_linear(mut matrix: [[f64; 4]; 3]) -> Option<[f64; 3]> {
    for column in 0..3 {
        let below = column..3;
        let pivot = below.max_by(|a, b| matrix[*a][column].abs().total_cmp(&matrix[*b][column].abs()))?;
        matrix.swap(column, pivot);
        let top = matrix[column];
        if top[column].abs() < 1e-300 {
            return None;
        }
        for (_, row) in matrix.iter_mut().enumerate().filter(|(index, _)| *index != column) {
            let factor = row[column] / top[column];
            for (cell, above) in row.iter_mut().zip(top) {
                *cell -= factor * above;
            }
        }
    }
    let solution = [0, 1, 2].map(|row: usize| matrix[row][3] / matrix[row][row]);
    solution.iter().all(|value| value.is_finite()).then_some(solution)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_fits_its_points() {
        assert_eq!(fit_line(&[(0.0, 1.0), (2.0, 5.0)]), Some(Line { slope: 2.0, intercept: 1.0 }));
        // By hand: means 2 and 4, covariance 3, variance 2.
        let fitted = fit_line(&[(1.0, 2.0), (2.0, 5.0), (3.0, 5.0)]);
        assert_eq!(fitted, Some(Line { slope: 1.5, intercept: 1.0 }));
    }

    #[test]
    fn points_without_a_line_have_none() {
        for points in [&[][..], &[(1.0, 2.0)], &[(1.0, 2.0), (1.0, 3.0)], &[(0.0, f64::NAN), (1.0, 1.0)]] {
            assert_eq!(fit_line(points), None, "{points:?}");
        }
    }
}
