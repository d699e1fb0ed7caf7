//! Self-test of the analyser: known causes, induced in random order, and the first verdict reported each time.
//!
//! ```text
//! induced, foreign (files) -> case_file -> cases -> selection -> order -> self_test: experiment::trial
//!                                                     outcomes -> matrix, reliability -> text, markdown
//! ```
//! [`faulty_server`] is the server whose faults the induced cases use. Not for the diagnosis: it is in the records.

#![forbid(unsafe_code)]

mod case_file;
pub mod case_part;
pub mod cases;
pub mod faulty_server;
pub mod foreign;
pub mod induced;
pub mod markdown;
pub mod matrix;
pub mod order;
pub mod outcome;
pub mod reliability;
pub mod selection;
pub mod self_test;
pub mod sum;
pub mod text;
