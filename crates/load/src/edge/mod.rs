//! How much a subject takes: which trial comes next, what a trial says of its level, the ladder, the
//! knee, the law of scaling. Pure: trials are run elsewhere, and their records come back.

mod judge;
mod knee;
mod ladder;
mod plans;
mod scaling;
mod search;
mod settings;

pub use judge::{ACHIEVED_SHARE, Judgement, goal, judge, limit_of, trial};
pub use knee::{KNEE_POINTS_MIN, knee};
pub use ladder::{
    RUNGS, added, observer_rate_per_s, operating_range, rungs, scaling_connections, scaling_points,
};
pub use plans::{closed_plan, observer_plan, trial_plan};
pub use scaling::{SCALING_POINTS_MIN, predicted_per_s, scaling};
pub use search::{Ask, Purpose, Search, Step};
pub use settings::{Find, Settings};

use crate::quantiles::{ascending, quantile};

/// Resamples of a bootstrap.
const RESAMPLES: usize = 1_000;

/// The 95 % interval of a bootstrap around `value`, of a fit with `freedom` degrees of freedom left. The
/// quantiles of resamples are those of a known variance; a variance from few points takes Student's t.
fn estimate(value: f64, resampled: Vec<f64>, freedom: usize) -> record::edge::Estimate {
    let resampled = ascending(resampled.into_iter().filter(|value| value.is_finite()));
    let (low, high) = match resampled.is_empty() {
        true => (value, value),
        false => (quantile(&resampled, 0.025), quantile(&resampled, 0.975)),
    };
    let wider = t_975(freedom) / NORMAL_975;
    let (low, high) = (value - wider * (value - low), value + wider * (high - value));
    record::edge::Estimate { value, low: low.min(value), high: high.max(value) }
}

/// Residuals of a fit of `parameters` to `points` are smaller than the errors that made them; times this
/// they have the same variance.
fn residual_scale(points: usize, parameters: usize) -> f64 {
    (points as f64 / points.saturating_sub(parameters).max(1) as f64).sqrt()
}

/// 97.5 % of a normal distribution are below this.
const NORMAL_975: f64 = 1.959_964;

/// 97.5 % of Student's distribution with so many degrees of freedom are below this.
fn t_975(freedom: usize) -> f64 {
    const TABLE: [f64; 20] = [
        12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
        2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
    ];
    // Beyond the table, to better than 1 %.
    let beyond = NORMAL_975 + 2.5 / freedom.max(1) as f64;
    TABLE.get(freedom.max(1) - 1).copied().unwrap_or(beyond)
}
