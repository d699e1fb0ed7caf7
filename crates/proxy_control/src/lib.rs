//! The control plane of the reverse proxy: start and end, reloads, the control socket and the admin pages, health checks,
//! name resolution, and automatic certificates.
//!
//! The cores of the crate `proxy` never wait for it: they receive commands, and read what it publishes.
#![forbid(unsafe_code)]

#[macro_use(code_table)]
extern crate proxy_config;

mod acme;
mod control;
mod dns;
mod health;
mod reference;

use proxy::{
    caching, dial, log, maintenance, metrics, outcome, outlier, pool, profile, run, session, tracing,
};
#[cfg(test)]
use proxy_config::test_time;
use proxy_config::{
    auth, config, http_client, maps, percent, plan, private_file, split, stored_certificate, template,
};

pub use control::{
    FileWatch, ListenAddressInfo, PathStates, ProxyExit, RunningProxy, SandboxPaths, check_start, ctl,
    handover, start, supervisor,
};
pub use reference::reference;
