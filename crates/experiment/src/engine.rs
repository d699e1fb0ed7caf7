//! Runs an experiment: every arm under every load, in blocks, until the stopping rule ends it. It
//! survives a kill at any moment.
//!
//! Decisions are pure functions of the plan and the files on the disk ([`schedule`], [`discard`],
//! [`blocks`], [`next_step`], [`warm_up`]). Input and output make no decisions ([`experiment_dir`],
//! [`environment`]). [`run`] joins both. Not for running a trial: the caller passes a [`Runner`].
//! Not for the statistics: [`EngineContext`] has them.

pub mod blocks;
mod check;
pub mod discard;
mod engine_context;
pub mod environment;
mod eta;
pub mod events;
pub mod experiment_dir;
pub mod next_step;
mod run;
pub mod schedule;
pub mod warm_up;
mod warnings;

#[cfg(test)]
mod simulated;
#[cfg(test)]
mod tests;

pub use check::check;
pub use engine_context::{
    Conclusions, EngineContext, EngineError, JudgeInput, Runner, TrialOutput, TrialParams, TrialRunError,
};
pub use eta::expected_duration_s;
pub use run::run;
pub use warnings::warnings;
