//! The knee: where latency begins to grow faster than load. Two lines that meet, fitted to the logarithm
//! of p99 over the level; where they meet is the knee, and resampled residuals say how sure that is.
//!
//! The logarithm, because past the edge latencies are a thousand times those below, and only the last
//! two points would count.

use record::edge::{Estimate, Knee};

use super::{RESAMPLES, estimate, residual_scale, t_975};

/// Fewer points than this have no knee.
pub const KNEE_POINTS_MIN: usize = 6;
/// What is fitted: two slopes, a height, and where they meet.
const PARAMETERS: usize = 4;
/// How many places between the first and the last level are tried.
const PLACES: usize = 200;
/// Below this share of explained variance the points do not look like two lines.
const R_SQUARED_MIN: f64 = 0.5;
/// The second line has to rise by this factor at the least, from the knee to the last point.
const RISE_MIN: f64 = 1.5;

/// The knee of `points`, levels with their p99 in ns, or why there is none.
///
/// # Errors
/// There are too few points, or they have no knee.
pub fn knee(points: &[(f64, f64)], seed: u64) -> Result<Knee, String> {
    let mut points: Vec<(f64, f64)> =
        points.iter().filter(|(_, ns)| *ns > 0.0).map(|(level, ns)| (*level, ns.ln())).collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    if points.len() < KNEE_POINTS_MIN {
        let text = format!("no knee: {} points, {KNEE_POINTS_MIN} are needed", points.len());
        return Err(text);
    }
    let best = fit(&points);
    let mean = points.iter().map(|(_, y)| y).sum::<f64>() / points.len() as f64;
    let total: f64 = points.iter().map(|(_, y)| (y - mean).powi(2)).sum();
    let r_squared = if total > 0.0 { 1.0 - best.squares / total } else { 0.0 };
    let last = points.last().map_or(0.0, |(level, _)| *level);
    let rise = best.bend * (last - best.at);
    if r_squared < R_SQUARED_MIN || rise < RISE_MIN.ln() {
        return Err("no knee: latency grows evenly within what was driven".to_owned());
    }
    let freedom = points.len() - PARAMETERS;
    let scale = residual_scale(points.len(), PARAMETERS);
    let residuals: Vec<f64> = points.iter().map(|(x, y)| scale * (y - best.at_level(*x))).collect();
    let mut random = fastrand::Rng::with_seed(seed);
    let resampled = (0..RESAMPLES).map(|_| {
        let drawn: Vec<(f64, f64)> = points
            .iter()
            .map(|(x, _)| (*x, best.at_level(*x) + residuals[random.usize(..residuals.len())]))
            .collect();
        fit(&drawn).at
    });
    let level = estimate(best.at, resampled.collect(), freedom);
    let (from, to) = as_good(&points, &best, freedom);
    let first = points.first().map_or(0.0, |(level, _)| *level);
    let level = Estimate {
        low: level.low.min(from).max(first),
        high: level.high.max(to).min(last),
        ..level
    };
    Ok(Knee { level, r_squared, points: points.len() as u32 })
}

/// y = start + slope·x + bend·max(0, x − at).
#[derive(Clone, Copy, Debug)]
struct Lines {
    at: f64,
    start: f64,
    slope: f64,
    bend: f64,
    squares: f64,
}

impl Lines {
    fn at_level(&self, x: f64) -> f64 {
        self.start + self.slope * x + self.bend * (x - self.at).max(0.0)
    }
}

/// The two lines with the least squares; the second one is never flatter than the first.
fn fit(points: &[(f64, f64)]) -> Lines {
    let first = points.first().map_or(0.0, |point| point.0);
    let last = points.last().map_or(0.0, |point| point.0);
    let flat = Lines { at: last, start: 0.0, slope: 0.0, bend: 0.0, squares: f64::INFINITY };
    let places = (1..PLACES).map(|place| first + (last - first) * place as f64 / PLACES as f64);
    let fits = places.filter_map(|at| fit_at(points, at)).filter(|lines| lines.bend > 0.0);
    fits.fold(flat, |best, lines| if lines.squares < best.squares { lines } else { best })
}

/// The places whose lines fit no worse than chance would have it, by the F test with one and `freedom`
/// degrees of freedom, whose bound is the square of Student's.
fn as_good(points: &[(f64, f64)], best: &Lines, freedom: usize) -> (f64, f64) {
    let most = best.squares * (1.0 + t_975(freedom).powi(2) / freedom as f64);
    let (first, last) = (points[0].0, points[points.len() - 1].0);
    let places = (1..PLACES).map(|place| first + (last - first) * place as f64 / PLACES as f64);
    let fits = places.filter_map(|at| fit_at(points, at));
    let good = fits.filter(|lines| lines.bend > 0.0 && lines.squares <= most);
    good.fold((best.at, best.at), |(low, high), lines| (low.min(lines.at), high.max(lines.at)))
}

fn fit_at(points: &[(f64, f64)], at: f64) -> Option<Lines> {
    let rows = points.iter().map(|(x, y)| ([1.0, *x, (x - at).max(0.0)], *y));
    let [start, slope, bend] = least_squares(rows)?;
    let mut lines = Lines { at, start, slope, bend, squares: 0.0 };
    lines.squares = points.iter().map(|(x, y)| (y - lines.at_level(*x)).powi(2)).sum();
    Some(lines)
}

/// The three coefficients that fit rows of three values best; `None` when they are not determined.
pub(super) fn least_squares(rows: impl Iterator<Item = ([f64; 3], f64)>) -> Option<[f64; 3]> {
    let mut matrix = [[0.0; 4]; 3];
    for (row, y) in rows {
        for i in 0..3 {
            for j in 0..3 {
                matrix[i][j] += row[i] * row[j];
            }
            matrix[i][3] += row[i] * y;
        }
    }
    solve(matrix)
}

/// Gauss's elimination with pivots, of three equations.
pub(super) fn solve(mut matrix: [[f64; 4]; 3]) -> Option<[f64; 3]> {
    for column in 0..3 {
        let below = column..3;
        let pivot =
            below.max_by(|a, b| matrix[*a][column].abs().total_cmp(&matrix[*b][column].abs()))?;
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
    fn two_lines_meet_where_they_were_made_to() {
        let mut random = fastrand::Rng::with_seed(7);
        let points: Vec<(f64, f64)> = (1..=12)
            .map(|step| {
                let level = f64::from(step) * 100.0;
                let ln = 13.0 + 0.0002 * level + 0.01 * (level - 800.0).max(0.0);
                (level, (ln + 0.05 * (random.f64() - 0.5)).exp())
            })
            .collect();
        let knee = knee(&points, 1).unwrap();
        assert!((knee.level.value - 800.0).abs() < 30.0, "{knee:?}");
        assert!(knee.level.low <= 800.0 && 800.0 <= knee.level.high, "{knee:?}");
        assert!(knee.level.high - knee.level.low < 150.0 && knee.r_squared > 0.95, "{knee:?}");
    }

    #[test]
    fn an_interval_has_the_knee_in_it_as_often_as_it_says() {
        let mut random = fastrand::Rng::with_seed(3);
        let normal = |random: &mut fastrand::Rng| (0..12).map(|_| random.f64()).sum::<f64>() - 6.0;
        let (mut within, mut found) = (0, 0);
        for seed in 0..200 {
            let points: Vec<(f64, f64)> = (1..=12)
                .map(|step| {
                    let level = f64::from(step) * 100.0;
                    let ln = 13.0 + 0.0002 * level + 0.006 * (level - 830.0).max(0.0);
                    (level, (ln + 0.15 * normal(&mut random)).exp())
                })
                .collect();
            let Ok(knee) = knee(&points, seed) else { continue };
            found += 1;
            within += usize::from(knee.level.low <= 830.0 && 830.0 <= knee.level.high);
        }
        assert!(found > 190 && within * 100 >= 93 * found, "{within} of {found}");
    }

    #[test]
    fn a_queue_bends_before_it_is_full() {
        let points: Vec<(f64, f64)> = super::super::rungs(900.0, f64::INFINITY)
            .iter()
            .map(|level| (*level, 1e6 / (1.0 - (level / 1000.0).min(0.999))))
            .collect();
        let level = knee(&points, 1).unwrap().level.value;
        assert!((700.0..990.0).contains(&level), "{level}");
    }

    #[test]
    fn what_does_not_bend_has_no_knee() {
        let even: Vec<(f64, f64)> = (1..=12).map(|x| (f64::from(x), 1e6)).collect();
        assert!(knee(&even, 1).unwrap_err().contains("evenly"));
        assert!(knee(&even[..5], 1).unwrap_err().contains("5 points"));
        assert!(knee(&[], 1).is_err());
        let line: Vec<(f64, f64)> =
            (1..=12).map(|x| (f64::from(x), (10.0 + 0.1 * f64::from(x)).exp())).collect();
        assert!(knee(&line, 1).is_err());
    }
}
