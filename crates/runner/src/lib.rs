//! One run, from its plan to its record: the parts that a load, a capacity search, an agent of a fleet and the
//! verification of a capacity plan share. The command line and the output belong to `cli`.

#![forbid(unsafe_code)]

pub mod embedded;
pub mod failure;
pub mod observation;
pub mod store;
