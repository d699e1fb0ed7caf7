//! The lab: says from a record what limited a run, with its evidence; makes the scenarios in which
//! that can be proven; and tests its own judgement.
//!
//! It knows processes and records, never the insides of a server: the judge shares no code with the
//! judged.

#![forbid(unsafe_code)]

pub mod confirm;
pub mod cpu_throttle;
pub mod diagnosis;
pub mod engine;
pub mod experiment;
pub mod judge;
pub mod marks;
pub mod report;
pub mod scenario;
pub mod selftest;
pub mod sick;
pub mod statistics;
pub mod tally;
pub mod trial;
pub mod words;
