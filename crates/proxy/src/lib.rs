//! The reverse proxy: HTTP/1.1 and TCP from listeners to pools of servers.
//!
//! Text becomes a [`plan::Plan`] (`config`), a plan runs on cores (`run`), each request ends as one
//! `outcome::Outcome`, and log, metrics and admin only read that. What decides (routing, balancing,
//! the queue, the rewriting of heads) is pure; what does I/O decides nothing.
#![forbid(unsafe_code)]

mod admin;
mod admission;
mod asker;
mod balance;
mod capacity;
pub mod config;
mod conn;
mod control;
mod core;
pub mod ctl;
mod deadline;
mod doors;
mod dotted;
mod exchange;
mod forward;
#[doc(hidden)]
pub mod fuzzing;
pub mod handover;
mod health;
mod live;
mod log;
pub mod metrics;
mod names;
mod outcome;
mod outlier;
pub mod plan;
mod pool;
mod profile;
mod proxy_protocol;
mod reach;
mod reference;
mod relay;
mod route;
mod run;
mod session;
#[cfg(test)]
mod simulation;
mod start_check;
mod tunnel;

pub use control::{Ended, Running, start};
pub use doors::Opened;
pub use reach::Reach;
pub use reference::reference;
pub use route::{ExplainRequest, Explanation, explain};
pub use start_check::check_start;
