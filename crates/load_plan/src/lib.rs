//! Plan of a load ([`plan::RunPlan`]): text of flags, logs and archives in, every problem at once out.
//!
//! Pure. The crate is compiled for size, as most of it runs once. What the generator calls for each request is `#[inline]`
//! or generic, so that the crate `load` compiles it for speed.
#![forbid(unsafe_code)]

pub mod failure;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
pub mod malformation;
pub mod pace;
pub mod plan;
