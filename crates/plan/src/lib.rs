//! Capacity planning: from inputs with their sources to sizes with their formulas. The sizes are
//! connections, limits, queues, descriptors, ports, memory, link, cores and machines, and the time of
//! a recovery.
//!
//! Pure: no file, no socket, no clock. [`inputs`] is the table of the inputs, [`sizing`] computes,

#![forbid(unsafe_code)]

pub mod backend;
pub mod config;
pub mod drain;
pub mod file;
pub mod finding;
pub mod inputs;
pub mod queueing;
pub mod records;
pub mod scaling;
pub mod sizing;
pub mod subject_queue;
pub mod verification;
