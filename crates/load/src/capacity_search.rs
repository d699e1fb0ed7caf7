//! Capacity search of a subject: order of trials, judgement of a level, ladder. A [`TrialDriver`] runs the
//! trials, and their records come back; only [`Explorer`] and [`TrialRunner`] have a clock. The crate `stats`
//! fits the knee and the scaling law.

mod durations;
mod explorer;
mod failed_levels;
mod judge;
mod ladder;
mod options;
mod plans;
mod search;
mod settings;
mod trial_runner;

pub use record::capacity_search::SearchQuantity;

pub use durations::duration_ns;
pub use explorer::{Explorer, SearchActivity, SearchIdentity, SearchObserver};
pub use judge::{ACHIEVED_FRACTION, Judgement, judge, level_objectives, trial_record};
pub use ladder::{
    LADDER_FRACTIONS, added_latency, ladder_levels, observer_rate_per_s, operating_range,
    scaling_connections, scaling_points,
};
pub use options::SearchOptions;
pub use plans::{closed_loop_plan, observer_plan, trial_plan};
pub use search::{LevelSearch, SearchStep, TrialPurpose, TrialSpec};
pub use settings::SearchSettings;
pub use trial_runner::{CompletedTrial, DrivenLoad, TrialDriver, TrialRunner, TrialSetup};
