//! The origin: planned answers at the least cost.
//!
//! Text → [`Plan`] → [`start`] → [`Stats`]. What a request gets is written in its target, in
//! httpterm's language ([`language`], [`reference_markdown`]); nothing is looked up and nothing is
//! stored. One thread a core, one task a connection, one read and one write a request.
//!
//! It speaks no TLS, and it never judges a measurement: it counts. Beside it are [`pages`], a small server for
//! people, which shares nothing with the origin.

#![forbid(unsafe_code)]

mod answer;
mod body;
mod cache;
mod conn;
mod core;
mod date;
pub mod distribution;
mod help;
pub mod language;
mod log;
mod make;
mod output;
pub mod pages;
pub mod plan;
mod run;
mod slow;
pub mod stats;
mod work;

pub use help::reference_markdown;
pub use plan::{Plan, PlanText};
pub use run::{Running, start, start_alone};
pub use stats::Stats;
