//! An embedded origin behind a virtual link, both with TCP in user space: for a calibration of it.
//!
//! The link is a veth pair between two network namespaces without names. The calling process is in one of them for a
//! while, by a thread that ends with it; the origin is in the other. So nothing is left behind, also by a crash.

use std::process::{Command, Stdio};

use host::sandbox::namespace::run_in_new_netns;
use host::sandbox::programs::find_program;

use super::Origin;
use crate::failure::Failure;

pub const CLIENT_INTERFACE: &str = "to-origin";
const ORIGIN_INTERFACE: &str = "to-client";
// Addresses for tests of network devices (RFC 2544), in namespaces that nobody else has.
const CLIENT_NETWORK: &str = "198.18.0.1/30";
const ORIGIN_NETWORK: &str = "198.18.0.2/30";
const ORIGIN_LISTEN: &str = "198.18.0.2:8000";

/// Starts an origin behind a virtual link, and runs `body` where [`CLIENT_INTERFACE`] leads to it.
///
/// # Errors
/// Not permitted, no program `ip`, or the origin did not start. Then `body` did not run.
pub fn with_virtual_link<T: Send>(
    uses_tls: bool,
    body: impl FnOnce(&Origin) -> T + Send,
) -> Result<T, Failure> {
    let failed = |error: std::io::Error| Failure::cannot("the virtual link of --xdp", error);
    let run = || {
        let thread = rustix::thread::gettid().as_raw_nonzero();
        let namespace = format!("/proc/{}/task/{thread}/ns/net", std::process::id());
        let origin = run_in_new_netns(|| start_origin(&namespace, uses_tls)).map_err(failed)??;
        ip(&["address", "add", CLIENT_NETWORK, "dev", CLIENT_INTERFACE])?;
        ip(&["link", "set", CLIENT_INTERFACE, "up"])?;
        Ok(body(&origin))
    };
    run_in_new_netns(run).map_err(failed)?
}

/// Makes the link from this namespace to another one, and starts the origin at this end.
fn start_origin(client_namespace: &str, uses_tls: bool) -> Result<Origin, Failure> {
    let peer = ["peer", "name", CLIENT_INTERFACE, "netns", client_namespace];
    ip(&[&["link", "add", ORIGIN_INTERFACE, "type", "veth"][..], &peer].concat())?;
    ip(&["address", "add", ORIGIN_NETWORK, "dev", ORIGIN_INTERFACE])?;
    ip(&["link", "set", ORIGIN_INTERFACE, "up"])?;
    Origin::spawn(&["--listen", ORIGIN_LISTEN, "--xdp", ORIGIN_INTERFACE], uses_tls)
}

fn ip(arguments: &[&str]) -> Result<(), Failure> {
    let failed = |why: &dyn std::fmt::Display| {
        Failure::cannot("the virtual link of --xdp", format_args!("ip {}: {why}", arguments.join(" ")))
    };
    let run = |program| Command::new(program).args(arguments).stdin(Stdio::null()).output();
    let output = find_program("ip").and_then(run).map_err(|error| failed(&error))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(failed(&String::from_utf8_lossy(&output.stderr).trim())),
    }
}
