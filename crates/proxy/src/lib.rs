//! The reverse proxy: HTTP/1.1, HTTP/2 and TCP from listeners to pools of servers.
//!
//! Text becomes a [`plan::Plan`] (`config`), a plan runs on cores (`run`), and each request ends as
//! one `outcome::Outcome`, the only input of log, metrics and admin. Decisions (routing, balancing,
//! the queue, the rewriting of heads) are pure; code that does I/O decides nothing.
#![forbid(unsafe_code)]

#[macro_use]
mod code_table;

mod accept;
mod acme;
mod admission;
mod auth;
mod balance;
mod bandwidth;
mod cache_store;
mod caching;
mod client_stream;
pub mod config;
mod config_generation;
mod conn;
mod control;
mod cookies;
mod core;
mod deadline;
mod dial;
mod dns;
mod exchange;
mod exchange_state;
mod explain;
mod field_names;
mod forward;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod h2_front;
mod health;
mod http_client;
mod ipv4_fmt;
mod key_digest;
mod latency_window;
mod log;
pub mod maintenance;
mod maps;
pub mod metrics;
mod mirror;
mod outcome;
mod outlier;
mod percent;
pub mod plan;
mod pool;
mod private_file;
mod profile;
mod recoding;
mod reference;
mod relay;
mod request_view;
mod route;
mod run;
mod server_conn;
mod session;
#[cfg(test)]
mod simulation;
mod split;
mod stored_certificate;
mod suspended_request;
mod template;
#[cfg(test)]
mod test_time;
mod trace_context;
mod tracing;
mod tunnel;
mod uri;

pub use control::{
    FileWatch, ListenAddressInfo, PathStates, ProxyExit, RunningProxy, SandboxPaths, check_start, ctl,
    handover, start, supervisor,
};
pub use explain::{ExplainRequest, Explanation, explain};
pub use reference::reference;
