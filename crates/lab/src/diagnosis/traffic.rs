//! Sums over the sockets of several ports, and which ports carry requests at all. Not for thresholds of
//! verdicts.

use record::observed::{End, EndQueues};

use super::view::Machine;

/// Bytes per second on a port, of those on the busiest, from which on it is on the way of requests.
const BYTES_SHARE_MIN: f64 = 0.02;
/// Share of a port's connections that moved data within a second, from which on it is as well.
const ACTIVE_SHARE_MIN: f64 = 0.3;
/// Bytes per second below which a port is idle: health checks and keep-alive probes.
const IDLE_BYTES_PER_S: f64 = 1_000.0;

/// Of some ports that a role connects to, those on which data moves. All of them where the record does
/// not have it.
pub(super) fn carrying(machine: &Machine<'_>, ports: Vec<u16>) -> Vec<u16> {
    let used: Vec<PortUse> = ports.iter().map(|port| port_use(machine, *port)).collect();
    let Some(busiest) = used.iter().filter_map(|one| one.bytes_per_s).reduce(f64::max) else {
        return ports;
    };
    let carries = |one: &PortUse| match one.bytes_per_s {
        None => true,
        Some(bytes) if bytes < IDLE_BYTES_PER_S && one.active_share < ACTIVE_SHARE_MIN => false,
        Some(bytes) => bytes >= busiest * BYTES_SHARE_MIN || one.active_share >= ACTIVE_SHARE_MIN,
    };
    let pairs = ports.into_iter().zip(&used);
    pairs.filter(|(_, one)| carries(one)).map(|(port, _)| port).collect()
}

struct PortUse {
    /// Mean of both directions; `None` where it was not observed.
    bytes_per_s: Option<f64>,
    active_share: f64,
}

fn port_use(machine: &Machine<'_>, port: u16) -> PortUse {
    let snapshots = machine.snapshots();
    let ends = snapshots.iter().flat_map(|one| &one.ends);
    let ends: Vec<&EndQueues> =
        ends.filter(|one| one.port == port && one.end == End::Client).collect();
    let rates: Vec<f64> = ends
        .iter()
        .filter_map(|one| Some(one.bytes_received_per_s? + one.bytes_acked_per_s?))
        .collect();
    let established: u64 =
        ends.iter().filter_map(|one| one.states.get("established")).copied().sum();
    let active: u64 = ends.iter().map(|one| one.active).sum();
    PortUse {
        bytes_per_s: (!rates.is_empty()).then(|| rates.iter().sum::<f64>() / rates.len() as f64),
        active_share: active as f64 / established.max(1) as f64,
    }
}

/// The sum of two ends. Medians (round trips) are those of the end with more connections.
pub(super) fn add(sum: EndQueues, other: &EndQueues) -> EndQueues {
    let established = |ends: &EndQueues| ends.states.get("established").copied().unwrap_or(0);
    let typical = if established(other) > established(&sum) { other.clone() } else { sum.clone() };
    let optional = |one: Option<f64>, other: Option<f64>| match (one, other) {
        (Some(one), Some(other)) => Some(one + other),
        (one, other) => one.or(other),
    };
    let mut states = sum.states;
    for (state, count) in &other.states {
        *states.entry(state.clone()).or_default() += count;
    }
    EndQueues {
        states,
        with_unread: sum.with_unread + other.with_unread,
        unread_bytes: sum.unread_bytes + other.unread_bytes,
        with_unsent: sum.with_unsent + other.with_unsent,
        unsent_bytes: sum.unsent_bytes + other.unsent_bytes,
        unread_bytes_max: sum.unread_bytes_max.max(other.unread_bytes_max),
        not_sent_bytes: sum.not_sent_bytes + other.not_sent_bytes,
        busy_us: sum.busy_us + other.busy_us,
        receive_window_limited_us: sum.receive_window_limited_us + other.receive_window_limited_us,
        send_buffer_limited_us: sum.send_buffer_limited_us + other.send_buffer_limited_us,
        retransmitted: sum.retransmitted + other.retransmitted,
        delivery_bytes_per_s: sum.delivery_bytes_per_s + other.delivery_bytes_per_s,
        application_limited: sum.application_limited + other.application_limited,
        memory_bytes: sum.memory_bytes + other.memory_bytes,
        active: sum.active + other.active,
        awaiting_reply: sum.awaiting_reply + other.awaiting_reply,
        owed_reply: sum.owed_reply + other.owed_reply,
        tied: sum.tied + other.tied,
        segments_sent: sum.segments_sent + other.segments_sent,
        bytes_received_per_s: optional(sum.bytes_received_per_s, other.bytes_received_per_s),
        bytes_acked_per_s: optional(sum.bytes_acked_per_s, other.bytes_acked_per_s),
        segments_sent_per_s: optional(sum.segments_sent_per_s, other.segments_sent_per_s),
        retransmitted_per_s: optional(sum.retransmitted_per_s, other.retransmitted_per_s),
        local_ports_max: sum.local_ports_max.max(other.local_ports_max),
        ..typical
    }
}
