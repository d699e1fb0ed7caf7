//! The control plane of the reverse proxy: start and end, reloads, the control socket and the admin pages, health checks,
//! name resolution, and automatic certificates.
//!
//! The cores of the crate `proxy` never wait for it: they receive commands, and read what it publishes.
#![forbid(unsafe_code)]

#[macro_use(code_table)]
extern crate proxy_plan;

mod acme;
mod control;
mod dns;
mod health;
mod reference;

use proxy::{
    caching, dial, log, maintenance, metrics, outcome, outlier, pool, profile, run, session, tracing,
};
use proxy_config::{config, private_file};
#[cfg(test)]
use proxy_plan::test_time;
use proxy_plan::{auth, http_client, maps, percent, plan, split, stored_certificate, template};

pub use control::{
    FileWatch, ListenAddressInfo, PathStates, ProxyExit, RunningProxy, SandboxPaths, check_start, ctl,
    handover, start, supervisor,
};
pub use reference::reference;
