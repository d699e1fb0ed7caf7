//! Scenarios: a known illness of network, processors, disk or limits, made on one machine and undone
//! again, so that a verdict can be tested against what is known to be the limit.
//!
//! A plan comes from a `[scenario]` block or from code ([`plan::Scenario`]); [`kit::Kit`] makes it.
//! Everything made is named by run and stands in a journal before it is made, so that the next start
//! removes what a killed run left.
//!
//! Not for judging what a run showed.

pub mod extra;
mod flood;
mod forward;
pub mod groups;
mod illness;
pub mod journal;
pub mod keys;
pub mod kit;
mod network;
pub(crate) mod placeholders;
pub mod plan;
pub(crate) mod programs;
pub mod read;
mod run_folder;
pub mod setup;
