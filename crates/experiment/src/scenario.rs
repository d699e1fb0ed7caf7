//! Scenarios: known faults of network, CPU, disk or limits, made on one machine and undone again.
//! They allow tests of a verdict against a known bottleneck.
//!
//! A plan comes from a `[scenario]` block or from code ([`plan::Scenario`]); [`testbed::Testbed`] sets it up.
//! Everything made has the run in its name, and is written to a journal first, so that the next
//! start removes the remains of a killed run.
//!
//! Not for judging the results of a run.

pub mod cgroups;
mod common_keys;
mod delay_link;
pub mod errors;
mod experiment_keys;
pub mod extra;
mod fault_injection;
mod flood;
mod interfaces;
pub mod journal;
pub mod keys;
pub mod machines;
mod network;
pub(crate) mod placeholders;
pub mod plan;
pub mod program;
mod quotas;
pub(crate) mod read;
mod run_directory;
pub mod setup;
pub(crate) mod system_commands;
pub mod testbed;
