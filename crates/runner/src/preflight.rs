//! Checks of a load against the limits of this machine before anything starts: descriptors, source ports and source
//! addresses. A run that cannot get its connections is rejected before it, not after it.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, UdpSocket};

use host::budget::{FdBudget, PortBudget, PortCheckResult};
use load::pace::Pace;
use load::plan::RunPlan;
use record::problem::InputProblem;

use crate::failure::Failure;

/// Raises the descriptor limit and checks the plan against the limits of the machine. Returns why
/// source ports are tight, if they are.
///
/// # Errors
/// The limits allow fewer connections than the plan has, or an address is not of this machine.
pub fn check(plan: &RunPlan) -> Result<Option<String>, Failure> {
    check_sources(plan)?;
    if plan.xdp.is_some() {
        // TCP in user space has neither descriptors nor ports of the kernel; it checks its own.
        return Ok(None);
    }
    check_descriptors(plan.connections)?;
    if plan.unix.is_some() {
        return Ok(None);
    }
    let mut scarce = None;
    let authorities = plan.authorities();
    for authority in &authorities {
        let addresses = plan.addresses_of(authority).map_err(Failure::cannot_run)?;
        // The connections to several addresses share the ports of none of them.
        let Some(rt::address::Address::Tcp(target)) = addresses.first().cloned() else {
            continue;
        };
        match port_budget(plan, target, authorities.len()).map(|budget| budget.check()) {
            Some(PortCheckResult::Impossible { reason: why }) => {
                return Err(Failure::CannotRun(format!("not started: {why}")));
            }
            Some(PortCheckResult::Tight { reason: why }) => scarce = Some(why),
            Some(PortCheckResult::Fits) | None => {}
        }
    }
    Ok(scarce)
}

/// Rejects source addresses that do not belong to this machine.
///
/// # Errors
/// The first such address.
pub fn check_sources(plan: &RunPlan) -> Result<(), Failure> {
    // A bind decides, as for the connection itself: routes and settings may allow an address that
    // no device has.
    let is_foreign = |address: &&IpAddr| {
        let bound = UdpSocket::bind((**address, 0));
        bound.is_err_and(|error| error.kind() == ErrorKind::AddrNotAvailable)
    };
    let Some(first) = plan.sources.iter().find(is_foreign) else { return Ok(()) };
    let text = format!("{first} is not an address of this machine (`ip address` lists them)");
    Err(vec![InputProblem::new("--source", text)].into())
}

/// Raises the descriptor limit to the maximum of the kernel, and checks the connections against it.
///
/// # Errors
/// There are too few descriptors.
pub fn check_descriptors(connections: u64) -> Result<(), Failure> {
    let limit = rt::limits::raise_descriptor_limit();
    FdBudget::client(connections, limit.current)
        .check()
        .map_err(|shortage| Failure::CannotRun(format!("not started: {}", shortage.text)))
}

/// Returns the ports that the plan needs towards one target; `None` if the port range of the host
/// is unknown.
fn port_budget(plan: &RunPlan, target: SocketAddr, targets: usize) -> Option<PortBudget> {
    let limits = host::limits::read();
    let port_range = limits.port_range?;
    let usable = limits.usable_ports()?;
    let new_connections_per_s = match (plan.pace, plan.requests_per_connection) {
        (Pace::Open { rate_per_s, .. }, Some(each)) => Some(rate_per_s / each as f64 / targets as f64),
        _ => None,
    };
    let mut budget = PortBudget {
        connections: plan.connections.div_ceil(targets as u64),
        new_connections_per_s,
        duration_s: Some(plan.end.duration_ns as f64 / 1e9),
        source_addresses: u32::try_from(plan.sources.len().max(1)).unwrap_or(u32::MAX),
        reserved_ports: (u32::from(port_range.1) + 1 - u32::from(port_range.0)).saturating_sub(usable),
        port_range,
        // An unknown count is treated as too high: then the table itself is read.
        ports_in_use: socket_count().unwrap_or_else(|| u32::MAX.into()),
        tw_reuse: limits.tcp_tw_reuse.unwrap_or(0),
        reuse_delay_ms: limits.tcp_tw_reuse_delay_ms.unwrap_or(1000),
        timestamps: limits.tcp_timestamps.is_none_or(|setting| setting != 0),
        loopback: target.ip().is_loopback(),
    };
    // Reading the socket table costs a microsecond per socket, so it is read only when it matters.
    if !matches!(budget.check(), PortCheckResult::Fits) {
        let connections = host::sockets::count_connections_to(target).ok();
        budget.ports_in_use = connections.map_or(0, |towards| towards.time_wait + towards.established);
    }
    Some(budget)
}

/// Returns the number of TCP sockets of this network namespace: an upper bound of those towards one
/// target.
fn socket_count() -> Option<u64> {
    let counts = host::sockets::SockStatReader::open().ok()?.sample().ok()?;
    Some(counts.tcp_time_wait + counts.tcp_alloc)
}
