//! One run, from its plan to its record: the parts that a load, a capacity search, an agent of a fleet and the
//! verification of a capacity plan share. The command line and the output belong to `cli`.

#![forbid(unsafe_code)]

pub mod calibration;
pub mod confirm;
pub mod embedded;
pub mod failure;
pub mod load_run;
pub mod local_driver;
pub mod observation;
pub mod preflight;
pub mod run_record;
pub mod search_proof;
pub mod store;
pub mod subjects;
pub mod verify;
pub mod watch;
pub mod watcher;
