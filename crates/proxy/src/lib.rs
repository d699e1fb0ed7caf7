//! The reverse proxy: HTTP/1.1, HTTP/2 and TCP from listeners to pools of servers.
//!
//! Text becomes a [`plan::Plan`] (`config`), a plan runs on cores (`run`), and each request ends as
//! one `outcome::Outcome`, the only input of log, metrics and admin. Decisions (routing, balancing,
//! the queue, the rewriting of heads) are pure; code that does I/O decides nothing.
#![forbid(unsafe_code)]

mod acme;
mod admin;
mod admin_backend;
mod admission;
mod balance;
mod capacity;
pub mod config;
mod config_generation;
mod conn;
mod control;
mod core;
pub mod ctl;
mod deadline;
mod dial;
mod dns;
mod exchange;
mod file_watch;
mod forward;
#[doc(hidden)]
pub mod fuzzing;
mod h2;
pub mod handover;
mod health;
mod ipv4_fmt;
mod listeners;
mod log;
pub mod metrics;
mod outcome;
mod outlier;
pub mod plan;
mod pool;
mod profile;
mod reference;
mod relay;
mod route;
mod run;
mod sandbox;
mod session;
#[cfg(test)]
mod simulation;
mod start_check;
mod tunnel;

pub use control::{ProxyExit, RunningProxy, start};
pub use file_watch::{FileWatch, PathStates};
pub use listeners::ListenAddressInfo;
pub use reference::reference;
pub use route::{ExplainRequest, Explanation, explain};
pub use sandbox::SandboxPaths;
pub use start_check::check_start;
