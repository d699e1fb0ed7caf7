//! Universal Scalability Law (Gunther): X(N) = γN / (1 + α(N−1) + βN(N−1)), fitted by the
//! Gauss–Newton method with Levenberg's damping. α is contention, β coherency, γ the throughput of
//! one. There are no predictions beyond twice the measured maximum.

use super::fit::{
    Estimate, FitError, RESAMPLES, estimate_interval, least_squares, r_squared, residual_scale, solve_linear,
};

pub const SCALABILITY_POINTS_MIN: usize = 6;
/// Minimum number of different numbers that determine a law, without an interval.
pub const LAW_POINTS_MIN: usize = 3;
/// Maximum multiple of the highest measured number for predictions.
pub const EXTRAPOLATION_MAX: f64 = 2.0;
const FITTED_PARAMETERS: usize = 3;
const STEPS_MAX: u32 = 100;

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ScalabilityLaw {
    /// Contention: the fraction of work that cannot be done in parallel.
    pub alpha: f64,
    /// Coherency: the cost of each pair.
    pub beta: f64,
    /// Throughput of one, per second.
    pub gamma: f64,
}

impl ScalabilityLaw {
    /// Returns the throughput of `n`, in the unit of gamma. Coefficients that no fit returns may
    /// give a negative or infinite number.
    pub fn throughput(&self, n: f64) -> f64 {
        self.gamma * n / (1.0 + self.alpha * (n - 1.0) + self.beta * n * (n - 1.0))
    }

    /// Returns the number with the highest throughput; infinite if throughput never falls.
    pub fn peak(&self) -> f64 {
        if self.beta > 0.0 { ((1.0 - self.alpha).max(0.0) / self.beta).sqrt() } else { f64::INFINITY }
    }

    fn clamped(self) -> Self {
        Self { alpha: self.alpha.clamp(0.0, 1.0), beta: self.beta.max(0.0), gamma: self.gamma.max(1e-9) }
    }

    /// Returns the sum of squared relative errors: a point with little throughput weighs as much as
    /// others.
    fn squared_error(&self, points: &[(f64, f64)]) -> f64 {
        points.iter().map(|(n, x)| ((self.throughput(*n) - x) / x).powi(2)).sum()
    }
}

/// Law fitted to points.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ScalabilityFit {
    /// Contention, 0 to 1.
    pub alpha: Estimate,
    /// Coherency, 0 or more.
    pub beta: Estimate,
    /// Throughput of one, in the unit of the points.
    pub gamma: Estimate,
    /// Number with the highest throughput; absent if that is more than [`EXTRAPOLATION_MAX`] times
    /// the measured maximum.
    pub peak: Option<Estimate>,
    pub peak_throughput: Option<f64>,
    pub measured_max: f64,
    /// Fraction of the variance that the law explains.
    pub r_squared: f64,
    /// Points that were fitted: numbers with their throughput.
    pub points: Vec<(f64, f64)>,
}

/// Fits the law to `points`, numbers (connections, threads) with their throughput per second.
/// Points that are not positive are left out. The same points and `seed` give the same intervals.
///
/// # Errors
/// There are too few points, or they do not determine the law.
pub fn fit_scalability(points: &[(f64, f64)], seed: u64) -> Result<ScalabilityFit, FitError> {
    let points: Vec<(f64, f64)> = points.iter().copied().filter(|(n, x)| *n > 0.0 && *x > 0.0).collect();
    if points.len() < SCALABILITY_POINTS_MIN {
        return Err(FitError::TooFewPoints { points: points.len(), needed: SCALABILITY_POINTS_MIN });
    }
    let law = fit(&points).ok_or(FitError::Undetermined)?;
    let resampled = resample(&law, &points, seed);
    let degrees_of_freedom = points.len() - FITTED_PARAMETERS;
    let interval = |value: f64, pick: fn(&ScalabilityLaw) -> f64| {
        estimate_interval(value, resampled.iter().map(pick).collect(), degrees_of_freedom)
    };
    let measured_max = points.iter().map(|(n, _)| *n).fold(0.0, f64::max);
    let best = law.peak();
    let in_range = best <= EXTRAPOLATION_MAX * measured_max;
    Ok(ScalabilityFit {
        alpha: clamp_estimate(interval(law.alpha, |law| law.alpha), 1.0),
        beta: clamp_estimate(interval(law.beta, |law| law.beta), f64::INFINITY),
        gamma: clamp_estimate(interval(law.gamma, |law| law.gamma), f64::INFINITY),
        peak: in_range
            .then(|| clamp_estimate(interval(best, ScalabilityLaw::peak), EXTRAPOLATION_MAX * measured_max)),
        peak_throughput: in_range.then(|| law.throughput(best.max(1.0))),
        measured_max,
        r_squared: r_squared(&points, |n| law.throughput(n)),
        points,
    })
}

/// Fits the law to `points` without intervals, for which few points suffice. Points that are not positive are
/// left out.
///
/// # Errors
/// There are fewer than [`LAW_POINTS_MIN`] different numbers, or they do not determine the law.
pub fn fit_law(points: &[(f64, f64)]) -> Result<ScalabilityLaw, FitError> {
    let points: Vec<(f64, f64)> = points.iter().copied().filter(|(n, x)| *n > 0.0 && *x > 0.0).collect();
    let mut numbers: Vec<f64> = points.iter().map(|(n, _)| *n).collect();
    numbers.sort_by(f64::total_cmp);
    numbers.dedup();
    if numbers.len() < LAW_POINTS_MIN {
        return Err(FitError::TooFewPoints { points: numbers.len(), needed: LAW_POINTS_MIN });
    }
    fit(&points).ok_or(FitError::Undetermined)
}

fn clamp_estimate(estimate: Estimate, max: f64) -> Estimate {
    let within = |value: f64| value.clamp(0.0, max);
    Estimate { high: within(estimate.high), low: within(estimate.low), ..estimate }
}

/// Returns laws of points with new relative errors: normal ones with the variance of the residuals.
/// Drawing from the few residuals themselves would miss the tails of values that depend on one
/// point, as γ does on the first.
fn resample(law: &ScalabilityLaw, points: &[(f64, f64)], seed: u64) -> Vec<ScalabilityLaw> {
    let residuals = points.iter().map(|(n, x)| x / law.throughput(*n) - 1.0);
    let mean_square = residuals.map(|r| r * r).sum::<f64>() / points.len().max(1) as f64;
    let deviation = mean_square.sqrt() * residual_scale(points.len(), FITTED_PARAMETERS);
    let mut random = fastrand::Rng::with_seed(seed);
    let laws = (0..RESAMPLES).filter_map(|_| {
        let mut error = || (1.0 + deviation * normal(&mut random)).max(1e-3);
        let drawn: Vec<(f64, f64)> = points.iter().map(|(n, _)| (*n, law.throughput(*n) * error())).collect();
        fit(&drawn)
    });
    laws.collect()
}

/// Returns a value of the standard normal distribution (Box and Muller 1958).
fn normal(random: &mut fastrand::Rng) -> f64 {
    let radius = (-2.0 * (1.0 - random.f64()).ln()).sqrt();
    radius * (std::f64::consts::TAU * random.f64()).cos()
}

fn fit(points: &[(f64, f64)]) -> Option<ScalabilityLaw> {
    let mut law = start(points)?.clamped();
    let (mut squares, mut damping) = (law.squared_error(points), 1e-3);
    for _ in 0..STEPS_MAX {
        let Some(next) = step(&law, points, damping) else {
            damping *= 10.0;
            continue;
        };
        let next_squares = next.squared_error(points);
        if next_squares < squares {
            let done = squares - next_squares < 1e-12 * squares;
            (law, squares, damping) = (next, next_squares, (damping / 10.0).max(1e-12));
            if done {
                break;
            }
        } else {
            damping *= 10.0;
            if damping > 1e12 {
                break;
            }
        }
    }
    squares.is_finite().then_some(law)
}

/// Returns a first estimate: N/X(N) is linear in 1/γ, α/γ and β/γ.
fn start(points: &[(f64, f64)]) -> Option<ScalabilityLaw> {
    // Weighted with X/N, so that relative errors are minimised.
    let rows = points.iter().map(|(n, x)| {
        let weight = x / n;
        ([weight, weight * (n - 1.0), weight * n * (n - 1.0)], 1.0)
    });
    let [inverse_gamma, alpha, beta] = least_squares(rows)?;
    let inverse_gamma = if inverse_gamma > 0.0 {
        inverse_gamma
    } else {
        points.iter().map(|(n, x)| n / x).fold(f64::MAX, f64::min)
    };
    Some(ScalabilityLaw {
        alpha: alpha / inverse_gamma,
        beta: beta / inverse_gamma,
        gamma: 1.0 / inverse_gamma,
    })
}

fn step(law: &ScalabilityLaw, points: &[(f64, f64)], damping: f64) -> Option<ScalabilityLaw> {
    let mut matrix = [[0.0; 4]; 3];
    for &(n, x) in points {
        let below = 1.0 + law.alpha * (n - 1.0) + law.beta * n * (n - 1.0);
        let value = law.gamma * n / below;
        // Derivatives with respect to α, β and γ, each divided by x.
        let row = [-value / below * (n - 1.0) / x, -value / below * n * (n - 1.0) / x, n / below / x];
        let error = (x - value) / x;
        for i in 0..3 {
            for j in 0..3 {
                matrix[i][j] += row[i] * row[j];
            }
            matrix[i][3] += row[i] * error;
        }
    }
    for (i, row) in matrix.iter_mut().enumerate() {
        row[i] += damping * row[i] + 1e-30;
    }
    let [alpha, beta, gamma] = solve_linear(matrix)?;
    let next = ScalabilityLaw { alpha: law.alpha + alpha, beta: law.beta + beta, gamma: law.gamma + gamma };
    Some(next.clamped())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NUMBERS: [u32; 8] = [1, 2, 3, 6, 11, 20, 35, 64];

    fn points(law: ScalabilityLaw, max: u32, noise: f64, seed: u64) -> Vec<(f64, f64)> {
        let mut random = fastrand::Rng::with_seed(seed);
        let ns = NUMBERS.into_iter().filter(|n| *n <= max);
        ns.map(|n| {
            let noisy = 1.0 + noise * (2.0 * random.f64() - 1.0);
            (f64::from(n), law.throughput(f64::from(n)) * noisy)
        })
        .collect()
    }

    #[test]
    fn a_law_is_found_again() {
        let law = ScalabilityLaw { alpha: 0.05, beta: 0.001, gamma: 1000.0 };
        let exact = fit_scalability(&points(law, 64, 0.0, 1), 1).unwrap();
        assert!((exact.alpha.value - 0.05).abs() < 1e-4, "{exact:?}");
        assert!((exact.beta.value - 0.001).abs() < 1e-5, "{exact:?}");
        assert!((exact.gamma.value - 1000.0).abs() < 1.0, "{exact:?}");
        let best = exact.peak.unwrap();
        assert!((best.value - law.peak()).abs() < 0.1 && exact.r_squared > 0.999);
    }

    #[test]
    fn few_points_give_a_law_without_an_interval() {
        let law = ScalabilityLaw { alpha: 0.05, beta: 0.002, gamma: 10_000.0 };
        let fitted = fit_law(&points(law, 3, 0.0, 1)).unwrap();
        assert!((fitted.alpha - 0.05).abs() < 1e-4 && (fitted.beta - 0.002).abs() < 1e-5, "{fitted:?}");
        // Throughput above the proportional one has no law; the proportional one is the nearest.
        let linear = fit_law(&[(1.0, 10.0), (2.0, 20.5), (4.0, 42.0), (8.0, 85.0)]).unwrap();
        assert!(linear.alpha < 1e-9 && linear.beta < 1e-9, "{linear:?}");
        assert!(fit_law(&[(1.0, 10.0), (2.0, 19.0), (2.0, 20.0)]).is_err());
    }

    #[test]
    fn an_interval_has_the_truth_in_it_as_a_rule() {
        let law = ScalabilityLaw { alpha: 0.05, beta: 0.001, gamma: 1000.0 };
        let searches = 400;
        let (mut alpha, mut gamma) = (0, 0);
        for seed in 0..searches {
            let fitted = fit_scalability(&points(law, 64, 0.05, seed), 1).unwrap();
            let has = |estimate: Estimate, truth| estimate.low <= truth && truth <= estimate.high;
            alpha += usize::from(has(fitted.alpha, 0.05));
            gamma += usize::from(has(fitted.gamma, 1000.0));
        }
        let enough = 93 * searches as usize / 100;
        assert!(alpha >= enough && gamma >= enough, "{alpha} and {gamma} of {searches}");
    }

    #[test]
    fn no_peak_is_predicted_beyond_twice_the_measured_maximum() {
        let law = ScalabilityLaw { alpha: 0.01, beta: 1e-6, gamma: 1000.0 };
        let fitted = fit_scalability(&points(law, 64, 0.0, 1), 1).unwrap();
        assert_eq!((fitted.peak, fitted.peak_throughput), (None, None));
    }

    #[test]
    fn a_flat_subject_is_all_contention_and_too_few_points_are_refused() {
        let flat: Vec<(f64, f64)> = [1.0, 2.0, 3.0, 6.0, 11.0, 20.0].map(|n| (n, 500.0)).to_vec();
        let fitted = fit_scalability(&flat, 1).unwrap();
        assert!(fitted.alpha.value > 0.95, "{fitted:?}");
        assert!(fit_scalability(&flat[..5], 1).unwrap_err().to_string().contains("5 points"));
        let silent: Vec<(f64, f64)> = flat.iter().map(|(n, _)| (*n, 0.0)).collect();
        assert!(fit_scalability(&silent, 1).is_err());
    }
}
