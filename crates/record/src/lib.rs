//! Measurements in memory and on disk: histograms, units, the schemas of records, merging.
//!
//! Everything here is a value. This crate neither measures nor prints, apart from the text forms of
//! units.

#![forbid(unsafe_code)]

pub mod bounded_value;
pub mod breakdown;
pub mod capacity_search;
pub mod checks;
pub mod comparison;
pub mod control;
pub mod diagnosis;
pub mod digest;
pub mod document;
pub mod experiment;
pub mod facts;
pub mod failure;
pub mod file;
pub mod fleet;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
pub mod histogram;
pub mod interval_log;
pub mod merge;
pub mod observed;
pub mod problem;
pub mod run;
pub mod shell;
pub mod sorted;
pub mod trial;
pub mod units;
pub mod validity;
pub mod watch;
