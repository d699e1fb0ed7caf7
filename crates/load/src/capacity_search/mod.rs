//! Capacity search of a subject: order of trials, judgement of a level, ladder, knee, scaling law.
//! Pure: trials run elsewhere, and their records come back.

mod judge;
mod knee;
mod ladder;
mod plans;
mod scaling;
mod search;
mod settings;

pub use judge::{ACHIEVED_FRACTION, Judgement, judge, level_objectives, limit_kind, trial_record};
pub use knee::{KNEE_POINTS_MIN, find_knee};
pub use ladder::{
    LADDER_FRACTIONS, added_latency, ladder_levels, observer_rate_per_s, operating_range,
    scaling_connections, scaling_points,
};
pub use plans::{closed_loop_plan, observer_plan, trial_plan};
pub use scaling::{SCALING_POINTS_MIN, fit_scaling, predicted_per_s};
pub use search::{LevelSearch, SearchStep, TrialPurpose, TrialSpec};
pub use settings::{SearchQuantity, SearchSettings};

use record::quantiles::{ascending, quantile_of_sorted};

/// Number of resamples of a bootstrap.
const RESAMPLES: usize = 1_000;

/// Returns the 95 % interval of a bootstrap around `value`, for a fit with `degrees_of_freedom`
/// left. The quantiles of resamples assume a known variance; a variance from few points needs
/// Student's t.
fn estimate_interval(
    value: f64,
    resampled: Vec<f64>,
    degrees_of_freedom: usize,
) -> record::capacity_search::Estimate {
    let resampled = ascending(resampled.into_iter().filter(|value| value.is_finite()));
    let end = |q| quantile_of_sorted(&resampled, q).unwrap_or(value);
    let (low, high) = (end(0.025), end(0.975));
    let widening = t_975(degrees_of_freedom) / NORMAL_975;
    let (low, high) = (value - widening * (value - low), value + widening * (high - value));
    record::capacity_search::Estimate { value, low: low.min(value), high: high.max(value) }
}

/// Returns the factor that corrects residuals of a fit of `parameters` to `points`. Residuals are
/// smaller than the errors that caused them; with the factor they have the same variance.
fn residual_scale(points: usize, parameters: usize) -> f64 {
    (points as f64 / points.saturating_sub(parameters).max(1) as f64).sqrt()
}

/// 97.5 % quantile of the normal distribution.
const NORMAL_975: f64 = 1.959_964;

/// Returns the 97.5 % quantile of Student's distribution with `degrees_of_freedom`.
fn t_975(degrees_of_freedom: usize) -> f64 {
    const TABLE: [f64; 20] = [
        12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145,
        2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
    ];
    // Beyond the table, to better than 1 %.
    let beyond = NORMAL_975 + 2.5 / degrees_of_freedom.max(1) as f64;
    TABLE.get(degrees_of_freedom.max(1) - 1).copied().unwrap_or(beyond)
}
