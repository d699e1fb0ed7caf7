//! The lab: names the limit of a run from its record, with the evidence; creates the scenarios that
//! prove it; and tests its own judgement.
//!
//! The lab uses only processes and records, never the internals of a server. It shares no code with
//! the servers that it judges.

#![forbid(unsafe_code)]

pub mod alerts;
pub mod counter_test;
pub mod cpu_throttle;
pub mod diagnosis;
pub mod engine;
pub mod experiment;
pub mod faulty_server;
pub mod format;
pub mod judge;
pub mod report;
pub mod scenario;
pub mod selftest;
pub mod trial;
pub mod trial_counts;
