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

/// The 95 % interval of a bootstrap around `value`.
fn estimate(value: f64, resampled: Vec<f64>) -> record::edge::Estimate {
    let resampled = ascending(resampled.into_iter().filter(|value| value.is_finite()));
    let (low, high) = match resampled.is_empty() {
        true => (value, value),
        false => (quantile(&resampled, 0.025), quantile(&resampled, 0.975)),
    };
    record::edge::Estimate { value, low: low.min(value), high: high.max(value) }
}
