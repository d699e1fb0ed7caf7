//! Capacity search of a subject: order of trials, judgement of a level, ladder. Pure:
//! trials run elsewhere, and their records come back. The crate `stats` fits the knee and the
//! scaling law.

mod judge;
mod ladder;
mod plans;
mod search;
mod settings;

pub use judge::{ACHIEVED_FRACTION, Judgement, judge, level_objectives, limit_kind, trial_record};
pub use ladder::{
    LADDER_FRACTIONS, added_latency, ladder_levels, observer_rate_per_s, operating_range,
    scaling_connections, scaling_points,
};
pub use plans::{closed_loop_plan, observer_plan, trial_plan};
pub use search::{LevelSearch, SearchStep, TrialPurpose, TrialSpec};
pub use settings::{SearchQuantity, SearchSettings};
