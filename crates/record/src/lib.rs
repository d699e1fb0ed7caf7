//! What was measured, in memory and on disk: histograms, units, the schema of a run, merging.
//!
//! Everything here is a value. Nothing here measures, and nothing here prints, apart from the text
//! forms of units.

#![forbid(unsafe_code)]

pub mod diagnosis;
pub mod digest;
pub mod edge;
pub mod experiment;
pub mod facts;
pub mod file;
pub mod histogram;
pub mod interval_log;
pub mod merge;
pub mod observed;
pub mod problem;
pub mod run;
pub mod trial;
pub mod units;
pub mod validity;
pub mod watch;
