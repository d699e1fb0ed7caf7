//! What is checked before a load starts: descriptors and source ports. A run that cannot get its
//! connections is refused here, with the figures, instead of measuring something else.

use std::net::SocketAddr;

use host::budget::{FdBudget, PortBudget, PortVerdict};
use load::pace::Pace;
use load::plan::Plan;

use crate::exit::Failure;

/// Raises the descriptor limit and holds the plan against what the machine has. Returns why source
/// ports are tight, if they are.
pub(crate) fn check(plan: &Plan) -> Result<Option<String>, Failure> {
    check_descriptors(plan.connections)?;
    if plan.unix.is_some() {
        return Ok(None);
    }
    let mut tight = None;
    let authorities = plan.authorities();
    for authority in &authorities {
        let address = authority.resolve().map_err(Failure::CannotRun)?;
        let rt::address::Address::Tcp(target) = address else {
            continue;
        };
        match port_budget(plan, target, authorities.len()).map(|budget| budget.check()) {
            Some(PortVerdict::Impossible { why }) => {
                return Err(Failure::CannotRun(format!("not started: {why}")));
            }
            Some(PortVerdict::Tight { why }) => tight = Some(why),
            Some(PortVerdict::Fits) | None => {}
        }
    }
    Ok(tight)
}

/// Raises the descriptor limit as far as the kernel allows, and holds the connections against it.
pub(crate) fn check_descriptors(connections: u64) -> Result<(), Failure> {
    let limit = rt::limits::raise_descriptor_limit();
    FdBudget::client(connections, limit.now)
        .check()
        .map_err(|shortage| Failure::CannotRun(format!("not started: {}", shortage.text)))
}

/// The ports that the plan needs towards one target; `None` where the host does not tell its range.
fn port_budget(plan: &Plan, target: SocketAddr, targets: usize) -> Option<PortBudget> {
    let limits = host::limits::read();
    let port_range = limits.port_range?;
    let usable = limits.usable_ports()?;
    let new_connections_per_s = match (plan.pace, plan.requests_per_connection) {
        (Pace::Open { rate_per_s, .. }, Some(each)) => {
            Some(rate_per_s / each as f64 / targets as f64)
        }
        _ => None,
    };
    let mut budget = PortBudget {
        connections: plan.connections.div_ceil(targets as u64),
        new_connections_per_s,
        duration_s: Some(plan.end.duration_ns as f64 / 1e9),
        source_addresses: u32::try_from(plan.sources.len().max(1)).unwrap_or(u32::MAX),
        reserved_ports: (u32::from(port_range.1) + 1 - u32::from(port_range.0))
            .saturating_sub(usable),
        port_range,
        // Unknown is as good as too many: then the table itself is asked.
        taken_now: all_sockets().unwrap_or_else(|| u32::MAX.into()),
        tw_reuse: limits.tcp_tw_reuse.unwrap_or(0),
        reuse_delay_ms: limits.tcp_tw_reuse_delay_ms.unwrap_or(1000),
        timestamps: limits.tcp_timestamps.is_none_or(|setting| setting != 0),
        loopback: target.ip().is_loopback(),
    };
    // A walk through the table of sockets costs a microsecond each, so it is made when it matters.
    if !matches!(budget.check(), PortVerdict::Fits) {
        let towards = host::sockets::towards(target).ok();
        budget.taken_now = towards.map_or(0, |towards| towards.time_wait + towards.established);
    }
    Some(budget)
}

/// TCP sockets of this network namespace, towards anybody: never fewer than towards one target.
fn all_sockets() -> Option<u64> {
    let counts = host::sockets::SockStatReader::open().ok()?.sample().ok()?;
    Some(counts.tcp_time_wait + counts.tcp_alloc)
}
