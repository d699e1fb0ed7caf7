//! The data path of the reverse proxy: HTTP/1.1, HTTP/2 and TCP from listeners to pools of servers.
//!
//! A [`plan::Plan`] (crate `proxy_plan`; `proxy_config` makes it of text) runs on cores ([`run`]), which the crate `proxy_control` starts,
//! and each request ends as one `outcome::Outcome`, the only input of log, metrics and admin. Decisions (routing, balancing,
//! the queue, the rewriting of heads) are pure; code that does I/O decides nothing.
#![forbid(unsafe_code)]

#[macro_use(code_table)]
extern crate proxy_plan;

mod accept;
pub mod acme_tokens;
mod admission;
mod auth_core;
mod balance;
pub mod caching;
pub mod check_state_machine;
mod client_http2;
mod client_stream;
mod config_generation;
mod conn;
mod cookies;
pub mod core;
mod deadline;
pub mod dial;
mod exchange;
mod exchange_state;
mod explain;
mod forward;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod ipv4_fmt;
mod latency_window;
pub mod log;
pub mod maintenance;
pub mod metrics;
mod mirror;
pub mod outcome;
pub mod outlier;
pub mod pool;
pub mod profile;
mod recoding;
mod relay;
mod request_view;
mod route;
pub mod run;
mod server_conn;
pub mod session;
#[cfg(test)]
mod simulation;
mod suspended_request;
mod trace_context;
pub mod tracing;
mod tunnel;

#[cfg(any(test, fuzzing))]
use proxy_config::config;
#[cfg(test)]
use proxy_plan::test_time;
use proxy_plan::{auth, bandwidth, field_names, http_client, key_digest, maps, plan, template, uri};

pub use explain::{ExplainRequest, Explanation, explain};
