//! Experiments: scenarios with their processes, trials, the engine that runs them interleaved, and the
//! judge of their results.
//!
//! Read in the order of the data: [`definition`] reads the file of an experiment, [`scenario`] what
//! each of its cells starts, [`engine`] decides what runs next and keeps the directory, [`trial`] runs
//! one cell once, [`judge`] compares the arms.
//!
//! Uses only processes and records, never the internals of a server, and shares no code with the
//! servers that it judges.

#![forbid(unsafe_code)]

pub mod comparison;
pub mod cpu_throttle;
pub mod definition;
pub mod engine;
pub mod format;
pub mod judge;
pub mod judgement;
pub mod list;
pub mod scenario;
pub mod trial;
pub mod trial_counts;
