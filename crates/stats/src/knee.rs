//! Knee: the level from which latency grows faster than load. Two lines that meet are fitted to the
//! logarithm of p99 over the level. Their meeting point is the knee, and resampled residuals give
//! its confidence.
//!
//! The logarithm is needed because latencies past the edge are a thousand times those below.
//! Without it only the last two points would count.

use super::distribution::t_quantile;
use super::fit::{
    Estimate, FitError, RESAMPLES, UPPER_95, estimate_interval, least_squares, r_squared, residual_scale,
};

pub const KNEE_POINTS_MIN: usize = 6;
/// Number of fitted parameters: two slopes, a height, and the meeting point.
const FITTED_PARAMETERS: usize = 4;
/// Number of tried positions between the first and the last level.
const BREAKPOINTS_TRIED: usize = 200;
/// Fraction of explained variance below which the points do not look like two lines.
const R_SQUARED_MIN: f64 = 0.5;
/// Minimum factor by which the second line has to rise from the knee to the last point.
const RISE_MIN: f64 = 1.5;

/// Knee of a latency curve.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Knee {
    /// Level at which the two lines meet, in the unit of the levels.
    pub level: Estimate,
    /// Fraction of the variance that the two lines explain.
    pub r_squared: f64,
    pub points: usize,
}

/// Returns the knee of `points`, levels with their p99 in ns. Points without a latency are left
/// out. The same points and `seed` give the same interval.
///
/// # Errors
/// There are too few points, or they have no knee.
pub fn find_knee(points: &[(f64, f64)], seed: u64) -> Result<Knee, FitError> {
    let mut points: Vec<(f64, f64)> =
        points.iter().filter(|(_, ns)| *ns > 0.0).map(|(level, ns)| (*level, ns.ln())).collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    if points.len() < KNEE_POINTS_MIN {
        return Err(FitError::TooFewPoints { points: points.len(), needed: KNEE_POINTS_MIN });
    }
    let best = fit(&points);
    let r_squared = r_squared(&points, |level| best.value_at(level));
    let last = points.last().map_or(0.0, |(level, _)| *level);
    let rise = best.slope_change * (last - best.breakpoint);
    if r_squared < R_SQUARED_MIN || rise < RISE_MIN.ln() {
        return Err(FitError::NoKnee);
    }
    let degrees_of_freedom = points.len() - FITTED_PARAMETERS;
    let scale = residual_scale(points.len(), FITTED_PARAMETERS);
    let residuals: Vec<f64> = points.iter().map(|(x, y)| scale * (y - best.value_at(*x))).collect();
    let mut random = fastrand::Rng::with_seed(seed);
    let resampled = (0..RESAMPLES).map(|_| {
        let drawn: Vec<(f64, f64)> = points
            .iter()
            .map(|(x, _)| (*x, best.value_at(*x) + residuals[random.usize(..residuals.len())]))
            .collect();
        fit(&drawn).breakpoint
    });
    let level = estimate_interval(best.breakpoint, resampled.collect(), degrees_of_freedom);
    let (from, to) = breakpoint_interval(&points, &best, degrees_of_freedom);
    let first = points.first().map_or(0.0, |(level, _)| *level);
    let level = Estimate { low: level.low.min(from).max(first), high: level.high.max(to).min(last), ..level };
    Ok(Knee { level, r_squared, points: points.len() })
}

/// y = start + slope·x + bend·max(0, x − at).
#[derive(Clone, Copy, Debug)]
struct PiecewiseFit {
    breakpoint: f64,
    start: f64,
    slope: f64,
    slope_change: f64,
    squared_error: f64,
}

impl PiecewiseFit {
    fn value_at(&self, x: f64) -> f64 {
        self.start + self.slope * x + self.slope_change * (x - self.breakpoint).max(0.0)
    }
}

/// Returns the two lines with the least squares; the second one is never flatter than the first.
fn fit(points: &[(f64, f64)]) -> PiecewiseFit {
    let first = points.first().map_or(0.0, |point| point.0);
    let last = points.last().map_or(0.0, |point| point.0);
    let flat = PiecewiseFit {
        breakpoint: last,
        start: 0.0,
        slope: 0.0,
        slope_change: 0.0,
        squared_error: f64::INFINITY,
    };
    let breakpoints =
        (1..BREAKPOINTS_TRIED).map(|index| first + (last - first) * index as f64 / BREAKPOINTS_TRIED as f64);
    let fits =
        breakpoints.filter_map(|at| fit_with_breakpoint(points, at)).filter(|lines| lines.slope_change > 0.0);
    fits.fold(flat, |best, lines| if lines.squared_error < best.squared_error { lines } else { best })
}

/// Returns the range of meeting points whose lines fit no worse than chance allows, by the F test
/// with one and `degrees_of_freedom` degrees of freedom. Its bound is the square of Student's.
fn breakpoint_interval(points: &[(f64, f64)], best: &PiecewiseFit, degrees_of_freedom: usize) -> (f64, f64) {
    let max_squares = best.squared_error
        * (1.0 + t_quantile(UPPER_95, degrees_of_freedom as f64).powi(2) / degrees_of_freedom as f64);
    let (first, last) = (points[0].0, points[points.len() - 1].0);
    let breakpoints =
        (1..BREAKPOINTS_TRIED).map(|index| first + (last - first) * index as f64 / BREAKPOINTS_TRIED as f64);
    let fits = breakpoints.filter_map(|at| fit_with_breakpoint(points, at));
    let good = fits.filter(|lines| lines.slope_change > 0.0 && lines.squared_error <= max_squares);
    good.fold((best.breakpoint, best.breakpoint), |(low, high), lines| {
        (low.min(lines.breakpoint), high.max(lines.breakpoint))
    })
}

fn fit_with_breakpoint(points: &[(f64, f64)], at: f64) -> Option<PiecewiseFit> {
    let rows = points.iter().map(|(x, y)| ([1.0, *x, (x - at).max(0.0)], *y));
    let [start, slope, bend] = least_squares(rows)?;
    let mut lines = PiecewiseFit { breakpoint: at, start, slope, slope_change: bend, squared_error: 0.0 };
    lines.squared_error = points.iter().map(|(x, y)| (y - lines.value_at(*x)).powi(2)).sum();
    Some(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_lines_meet_where_they_were_made_to() {
        let mut random = fastrand::Rng::with_seed(7);
        let points: Vec<(f64, f64)> = (1..=12)
            .map(|step| {
                let level = f64::from(step) * 100.0;
                let ln = 13.0 + 0.0002 * level + 0.01 * (level - 800.0).max(0.0);
                (level, (ln + 0.05 * (random.f64() - 0.5)).exp())
            })
            .collect();
        let knee = find_knee(&points, 1).unwrap();
        assert!((knee.level.value - 800.0).abs() < 30.0, "{knee:?}");
        assert!(knee.level.low <= 800.0 && 800.0 <= knee.level.high, "{knee:?}");
        assert!(knee.level.high - knee.level.low < 150.0 && knee.r_squared > 0.95, "{knee:?}");
    }

    #[test]
    fn an_interval_has_the_knee_in_it_as_often_as_it_says() {
        let mut random = fastrand::Rng::with_seed(3);
        let normal = |random: &mut fastrand::Rng| (0..12).map(|_| random.f64()).sum::<f64>() - 6.0;
        let (mut within, mut fitted) = (0, 0);
        for seed in 0..200 {
            let points: Vec<(f64, f64)> = (1..=12)
                .map(|step| {
                    let level = f64::from(step) * 100.0;
                    let ln = 13.0 + 0.0002 * level + 0.006 * (level - 830.0).max(0.0);
                    (level, (ln + 0.15 * normal(&mut random)).exp())
                })
                .collect();
            let Ok(knee) = find_knee(&points, seed) else { continue };
            fitted += 1;
            within += usize::from(knee.level.low <= 830.0 && 830.0 <= knee.level.high);
        }
        assert!(fitted > 190 && within * 100 >= 93 * fitted, "{within} of {fitted}");
    }

    #[test]
    fn a_queue_bends_before_it_is_full() {
        let fractions = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0, 1.1];
        let levels = fractions.map(|fraction| 900.0 * fraction);
        let points = levels.map(|level| (level, 1e6 / (1.0 - (level / 1000.0_f64).min(0.999))));
        let level = find_knee(&points, 1).unwrap().level.value;
        assert!((700.0..990.0).contains(&level), "{level}");
    }

    #[test]
    fn what_does_not_bend_has_no_knee() {
        let even: Vec<(f64, f64)> = (1..=12).map(|x| (f64::from(x), 1e6)).collect();
        assert!(find_knee(&even, 1) == Err(FitError::NoKnee));
        assert!(find_knee(&even[..5], 1).unwrap_err().to_string().contains("5 points"));
        assert!(find_knee(&[], 1).is_err());
        let line: Vec<(f64, f64)> =
            (1..=12).map(|x| (f64::from(x), (10.0 + 0.1 * f64::from(x)).exp())).collect();
        assert!(find_knee(&line, 1).is_err());
    }
}
