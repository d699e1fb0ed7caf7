//! The origin: configurable responses at minimum cost.
//!
//! Text → [`OriginPlan`] → [`start`] → [`OriginStats`]. The target of a request describes its response, in
//! httpterm's language ([`url_options`], [`reference_markdown`]). With a directory, a target is the path of
//! a file in it (`files`). One thread per core, one task per connection, one read and one write per request.
//!
//! It never judges a measurement: it counts.

#![forbid(unsafe_code)]

mod body;
mod burn;
mod cache;
mod conn;
mod conn_task;
mod core;
pub mod distribution;
mod files;
mod help;
mod http2;
mod log;
mod output;
pub mod plan;
mod recent;
mod respond;
mod response_spec;
mod run;
mod slow_path;
pub mod stats;
mod target_cache;
mod tls;
pub mod url_options;

pub use help::reference_markdown;
pub use plan::{OriginPlan, OriginPlanText};
pub use run::{RunningOrigin, StatsReader, UserTcpListeners, start, start_exclusive};
pub use stats::OriginStats;
