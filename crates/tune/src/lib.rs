//! Host settings: a catalogue with assessments, checks of this machine and of other people's files, and the plan
//! and the journal of a change.
//!
//! Reading and writing the machine is in `host`; the command line and the output are in `cli`.

#![forbid(unsafe_code)]

pub mod ablation;
pub mod apply;
pub mod catalogue;
pub mod check;
pub mod foreign;
pub mod journal;
pub mod judge;
pub mod kernel;
pub mod kernel_value;
pub mod link;
pub mod observation;
pub mod profiles;
pub mod report;
pub mod scratch;
pub mod session;
pub mod setting;
pub mod settings_reference;
