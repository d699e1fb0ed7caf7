//! Sums over the sockets of several ports, and the selection of ports that carry requests.
//! Thresholds of verdicts are elsewhere.

use record::observed::{ConnectionEnd, EndQueues, QueueSnapshot};

/// Minimum bytes per second of a request-carrying port, as a fraction of those on the busiest port.
const BYTES_FRACTION_MIN: f64 = 0.02;
/// Minimum fraction of connections with data within a second, which also makes a port
/// request-carrying.
const ACTIVE_FRACTION_MIN: f64 = 0.3;
/// Bytes per second below which a port is idle: health checks and keep-alive probes.
const IDLE_BYTES_PER_S: f64 = 1_000.0;

/// Returns the ports with traffic among those that a role connects to; all of them if the record
/// has no traffic figures, or if none stands out: connections of one request may be gone before a
/// snapshot sees their bytes.
pub(super) fn request_ports(snapshots: &[&QueueSnapshot], ports: Vec<u16>) -> Vec<u16> {
    let used: Vec<PortTraffic> = ports.iter().map(|port| port_traffic(snapshots, *port)).collect();
    let Some(busiest) = used.iter().filter_map(|traffic| traffic.bytes_per_s).reduce(f64::max) else {
        return ports;
    };
    let carries_requests = |traffic: &PortTraffic| match traffic.bytes_per_s {
        None => true,
        Some(bytes) if bytes < IDLE_BYTES_PER_S && traffic.active_fraction < ACTIVE_FRACTION_MIN => false,
        Some(bytes) => {
            bytes >= busiest * BYTES_FRACTION_MIN || traffic.active_fraction >= ACTIVE_FRACTION_MIN
        }
    };
    let pairs = ports.iter().zip(&used);
    let busy: Vec<u16> =
        pairs.filter(|(_, traffic)| carries_requests(traffic)).map(|(port, _)| *port).collect();
    if busy.is_empty() { ports } else { busy }
}

struct PortTraffic {
    /// Mean of both directions; `None` if it was not observed.
    bytes_per_s: Option<f64>,
    active_fraction: f64,
}

fn port_traffic(snapshots: &[&QueueSnapshot], port: u16) -> PortTraffic {
    let ends = snapshots.iter().flat_map(|snapshot| &snapshot.ends);
    let ends: Vec<&EndQueues> =
        ends.filter(|end| end.port == port && end.end == ConnectionEnd::Client).collect();
    let rates: Vec<f64> =
        ends.iter().filter_map(|end| Some(end.bytes_received_per_s? + end.bytes_acked_per_s?)).collect();
    let established: u64 = ends.iter().map(|end| end.count_in_state("established")).sum();
    let active: u64 = ends.iter().map(|end| end.active).sum();
    PortTraffic {
        bytes_per_s: (!rates.is_empty()).then(|| rates.iter().sum::<f64>() / rates.len() as f64),
        active_fraction: active as f64 / established.max(1) as f64,
    }
}
