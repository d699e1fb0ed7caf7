//! TCP in user space of a load: the opening of its interface, and its part of the record.

use std::collections::HashMap;

use record::run::{PeerWindows, RoundTripTimes, UserTransport};
use record::units::MILLISECOND_NS;
use rt::address::Address;
use rt::clock::now_ns;
use rt::user_tcp::{UserTcpPort, UserTcpRoutes, UserTcpSurvey};
use rt::xdp::stack::{CONNECTIONS_MAX, RoundTrips};

use crate::core_state::CoreState;
use crate::measurement::RunError;
use crate::plan::{RunPlan, tcp_targets};

/// Maximum time in which the servers may close the connections after the load, besides that of each connection.
const CLOSE_NS_MAX: u64 = 200 * MILLISECOND_NS;
const CLOSE_NS_PER_CONNECTION: u64 = 20_000;

/// Reads the interface of a load and checks what it would take from the kernel; `None`: the load uses the kernel's TCP.
///
/// # Errors
/// A name cannot be resolved, an address is not of TCP, or there is no such interface.
pub fn survey(plan: &RunPlan) -> Result<Option<UserTcpSurvey>, RunError> {
    if plan.xdp.is_none() {
        return Ok(None);
    }
    let addresses = plan.authorities().into_iter().map(|authority| plan.addresses_of(authority));
    let addresses: Vec<Vec<Address>> = addresses.collect::<Result<_, _>>().map_err(RunError::Resolve)?;
    survey_addresses(plan, &addresses)
}

fn survey_addresses(plan: &RunPlan, addresses: &[Vec<Address>]) -> Result<Option<UserTcpSurvey>, RunError> {
    let Some(xdp) = &plan.xdp else { return Ok(None) };
    let failed = |text: String| RunError::Io(std::io::Error::other(text));
    let targets = tcp_targets(addresses.iter().flatten())
        .map_err(|address| failed(format!("--xdp has TCP only, and {address} is a unix socket")))?;
    let survey = UserTcpSurvey::for_client(&xdp.settings(plan.threads), &targets, &plan.sources)
        .map_err(|error| failed(error.to_string()))?;
    // An interface that cannot be used has no ports to count.
    if survey.problems.is_empty() {
        check_connections(plan, &plan.authority_order(), addresses, survey.port_count() as u64)
            .map_err(|error| failed(error.to_string()))?;
    }
    Ok(Some(survey))
}

/// Reason that a load has more connections than there can be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
enum ConnectionsError {
    /// The stacks of all threads have room for this number.
    #[error("--xdp has {0} connections: use fewer, or more queues and threads")]
    TooMany(u64),
    /// Too many connections have the same two addresses.
    #[error(
        "--xdp has {ports} ports between two addresses, and {largest} of the {connections} connections have the same: use \
         fewer; or further addresses of the interface (--source 10.0.0.2-10.0.0.4) or of the target (a URL for each); or \
         another net.ipv4.ip_local_port_range"
    )]
    Ports {
        /// Ports of this machine.
        ports: u64,
        /// Connections of one pair of addresses.
        largest: u64,
        /// All connections.
        connections: u64,
    },
}

/// Checks that each connection can have a port of its own. Each thread has as many of the `ports` as the others.
///
/// # Errors
/// There are too few, and what to do.
fn check_connections(
    plan: &RunPlan,
    order: &[usize],
    addresses: &[Vec<Address>],
    ports: u64,
) -> Result<(), ConnectionsError> {
    let threads = plan.threads as u64;
    if plan.connections.div_ceil(threads) > CONNECTIONS_MAX as u64 {
        let all = CONNECTIONS_MAX as u64 * threads;
        return Err(ConnectionsError::TooMany(all));
    }
    // Connections take sources and targets in turns: each pair repeats after the same number of them.
    let mut by_pair = HashMap::new();
    let mut largest = 0;
    for client in 0..plan.connections as usize {
        let pair = place(client, order, addresses, plan.sources.len());
        let connections = by_pair.entry(pair).or_insert(0_u64);
        *connections += 1;
        largest = largest.max(*connections);
    }
    if largest.div_ceil(threads) <= ports / threads {
        return Ok(());
    }
    Err(ConnectionsError::Ports { ports, largest, connections: plan.connections })
}

/// Returns the authority, the number of its address, and the number of the source of a client.
fn place(
    client: usize,
    order: &[usize],
    addresses: &[Vec<Address>],
    sources: usize,
) -> (usize, usize, usize) {
    let authority = order[client % order.len()];
    let address = client / order.len() % addresses[authority].len();
    (authority, address, client % sources.max(1))
}

/// Takes the packets of the targets from the kernel, if the plan has TCP in user space: returns a port for each core.
///
/// # Errors
/// Those of [`survey`]; every problem of the interface.
pub(crate) fn open(
    plan: &RunPlan,
    addresses: &[Vec<Address>],
) -> Result<(Vec<UserTcpPort>, UserTcpRoutes), RunError> {
    let Some(survey) = survey_addresses(plan, addresses)? else { return Ok(Default::default()) };
    match survey.open(usize::MAX) {
        Ok(opened) => Ok(opened),
        Err(problems) => {
            let texts: Vec<String> = problems.iter().map(ToString::to_string).collect();
            Err(RunError::Io(std::io::Error::other(texts.join("; "))))
        }
    }
}

/// Returns the part of the record that is known before the load.
pub(crate) fn describe_transport(port: &UserTcpPort) -> UserTransport {
    let facts = port.facts();
    UserTransport {
        kind: "xdp".to_owned(),
        interface: facts.name.clone(),
        driver: facts.driver.clone(),
        mode: port.mode().name().to_owned(),
        mtu: facts.mtu,
        queues: facts.queues,
        verifies_checksums: facts.verifies_checksums(),
        received: 0,
        sent: 0,
        retransmitted: 0,
        unusable: 0,
        receive_ring_full: 0,
        fill_ring_empty: 0,
        dropped: 0,
        transmit_ring_full: 0,
        zero_windows: 0,
        handshakes: RoundTripTimes::default(),
        round_trips: RoundTripTimes::default(),
        windows: PeerWindows::default(),
        expired: 0,
        invalid: 0,
        handed_over: 0,
        restarted: 0,
        connections_peak: 0,
        connections_memory_bytes_max: 0,
    }
}

/// Closes the connections of a core, and adds its counts.
pub(crate) async fn end_transport(
    core: &CoreState,
    transport: Option<UserTransport>,
) -> Option<Box<UserTransport>> {
    let (tcp, transport) = (core.user_tcp.as_ref()?, transport?);
    let connections = tcp.counts().connections_peak;
    let limit_ns = CLOSE_NS_MAX + connections * CLOSE_NS_PER_CONNECTION;
    tcp.wait_until_closed(&core.timers, now_ns() + limit_ns).await;
    let counts = tcp.counts();
    Some(Box::new(UserTransport {
        received: counts.port.received,
        sent: counts.stack.sent,
        retransmitted: counts.stack.retransmitted,
        unusable: counts.stack.malformed + counts.stack.unknown,
        receive_ring_full: counts.kernel.ring_full,
        fill_ring_empty: counts.kernel.fill_empty,
        dropped: counts.kernel.dropped + counts.stack.handover_full,
        transmit_ring_full: counts.port.unsent,
        zero_windows: counts.stack.zero_windows,
        handshakes: recorded(&counts.stack.handshakes),
        round_trips: recorded(&counts.stack.round_trips),
        windows: PeerWindows {
            min_bytes: counts.stack.windows.min_bytes,
            max_bytes: counts.stack.windows.max_bytes,
        },
        expired: counts.stack.expired,
        invalid: counts.port.invalid + counts.kernel.invalid,
        handed_over: counts.stack.handed_over,
        restarted: counts.stack.restarted,
        connections_peak: counts.connections_peak,
        connections_memory_bytes_max: counts.connections_memory_bytes_max(),
        ..transport
    }))
}

fn recorded(times: &RoundTrips) -> RoundTripTimes {
    RoundTripTimes {
        count: times.count,
        mean_ns: times.mean_ns(),
        min_ns: times.min_ns,
        max_ns: times.max_ns,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{LoadFlags, XdpFlags};

    fn check(
        connections: &str,
        threads: &str,
        urls: &[&str],
        sources: &str,
        ports: u64,
    ) -> Result<(), ConnectionsError> {
        let text = LoadFlags {
            urls: urls.iter().map(ToString::to_string).collect(),
            connections: Some(connections.into()),
            threads: Some(threads.into()),
            sources: if sources.is_empty() { Vec::new() } else { vec![sources.into()] },
            xdp: XdpFlags { interface: Some("eth1".into()), exposed: false },
            ..LoadFlags::default()
        };
        let plan = RunPlan::parse(&text, 2).unwrap();
        let addresses: Vec<_> =
            plan.authorities().iter().map(|authority| plan.addresses_of(authority).unwrap()).collect();
        check_connections(&plan, &plan.authority_order(), &addresses, ports)
    }

    #[test]
    fn each_connection_needs_a_port_between_its_two_addresses() {
        let (one_url, two_urls) = (&["http://10.0.0.1/"][..], &["http://10.0.0.1/", "http://10.0.0.2/"][..]);
        for (connections, threads, urls, sources, ports, fits) in [
            ("1000", "1", one_url, "", 1_000, true),
            ("1001", "1", one_url, "", 1_000, false),
            ("3000", "1", one_url, "10.0.0.3-10.0.0.5", 1_000, true),
            ("3001", "1", one_url, "10.0.0.3-10.0.0.5", 1_000, false),
            ("2000", "1", two_urls, "", 1_000, true),
            ("2001", "1", two_urls, "", 1_000, false),
            // Sources and targets in turns: with three and two there are six pairs, with two and two there are two.
            ("6000", "1", two_urls, "10.0.0.3-10.0.0.5", 1_000, true),
            ("2001", "1", two_urls, "10.0.0.3-10.0.0.4", 1_000, false),
            ("1000", "2", one_url, "", 1_000, true),
            ("1001", "2", one_url, "", 1_000, false),
            ("64000", "1", one_url, "10.0.0.3-10.0.0.5", 22_768, true),
        ] {
            let result = check(connections, threads, urls, sources, ports);
            assert_eq!(result.is_ok(), fits, "{connections} {urls:?} {sources}: {result:?}");
        }
        let error = check("65537", "1", one_url, "10.0.0.3-10.0.0.6", 22_768).unwrap_err();
        assert_eq!(error, ConnectionsError::TooMany(65_536));
    }
}
