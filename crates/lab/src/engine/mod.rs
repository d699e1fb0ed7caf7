//! Runs an experiment: every arm under every load, in blocks, until its rule says that it is enough; and
//! survives being killed at any moment.
//!
//! What decides is pure and sees only the plan and what is on the disk ([`schedule`], [`discard`],
//! [`blocks`], [`next`], [`warm_up`]); what reads and writes decides nothing ([`folder`], [`environment`]);
//! [`run`] joins them. Not for what a trial does: a [`Runner`] is passed in; nor for the statistics:
//! [`Hooks`] has them.

pub mod blocks;
mod check;
pub mod discard;
pub mod environment;
pub mod events;
pub mod folder;
mod hooks;
pub mod next;
mod outlook;
mod run;
pub mod schedule;
pub mod warm_up;
mod warnings;

#[cfg(test)]
mod simulated;
#[cfg(test)]
mod tests;

pub use check::check;
pub use hooks::{Ask, Case, EngineError, Hooks, Judged, NotRun, Ran, Runner};
pub use outlook::expected_s;
pub use run::run;
pub use warnings::warnings;
