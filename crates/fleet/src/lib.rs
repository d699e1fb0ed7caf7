//! One load on many machines: agents that run `weir` as a child process, and a coordinator that gives each
//! of them a slice, starts them at the same time and collects their records.
//!
//! [`agent::AgentMachine`] and [`coordinator::Coordinator`] decide, and are pure: an event and the time in,
//! actions out. [`agent::service`], [`coordinator::service`] and [`transport`] do the I/O and decide nothing.
//!
//! [`fleet_load`], [`machines`] and [`search_driver`] are what commands run on a fleet: a load, the programs around
//! it, and the trials of a search.
//!
//! # Protocol
//!
//! Messages ([`message`]) are JSON with a version, on the subjects of [`subjects`]. Both sides send states
//! again and again instead of single transitions: an agent reports its complete [`message::AgentStatus`]
//! after each change and each second, and the coordinator repeats a command until the status shows its
//! effect. So a lost message, a restarted server or a partition needs no recovery of its own. Records travel
//! in numbered parts ([`message::StoredRun`]) and stay on the agent's disk until they are acknowledged.
//!
//! # Clocks
//!
//! Times between machines are those of `CLOCK_MONOTONIC`, whose offset to the coordinator's is measured by
//! round trips ([`clock`]). A wall clock that is wrong, or set during a run, has no effect.
//!
//! # Another kind of job
//!
//! A [`message::Job`] names a role and the arguments of a command of `weir`. The agent checks both with the
//! function that [`agent::service::AgentConfig::validate`] is: it belongs to the command line, so that a
//! plan over the network gets the same errors as one that was typed.

#![forbid(unsafe_code)]

pub mod agent;
pub mod clock;
pub mod coordinator;
pub mod embedded;
pub mod fleet_load;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
pub mod local_agent;
pub mod machines;
pub mod message;
mod nats;
pub mod plan_file;
pub mod result;
pub mod role;
pub mod run_files;
pub mod run_store;
pub mod search_driver;
pub mod session;
pub mod split;
pub mod storage;
pub mod subjects;
pub mod transport;
