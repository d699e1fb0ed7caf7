//! Losses of the subject's own traffic. The counters of a namespace include all of its processes,
//! so they count only if it has no unwatched sockets. Thresholds are elsewhere.

use record::observed::{ConnectionEnd, EndQueues};

use super::compute::{
    connections_in_state, counter_of_both_ends, growth_per_s, responses_per_s, retransmission_mode,
    user_retransmission_mode,
};
use crate::run_view::RunView;
use crate::window::{GENERATOR, SUBJECT};

/// The shortest retransmission timeout of Linux (TCP_RTO_MIN), in ns.
const TIMEOUT_NS: f64 = 200e6;
/// The shortest one of TCP in user space (RFC 6298 §2.4), in ns.
const USER_TIMEOUT_NS: f64 = 1e9;

/// Returns true if the subject's namespace has sockets of unwatched processes.
fn has_unwatched_sockets(view: &RunView<'_>) -> bool {
    let samples = view.machine(SUBJECT).map(|machine| machine.samples()).unwrap_or_default();
    let spaces = samples.iter().flat_map(|sample| &sample.namespaces);
    let unwatched = spaces.filter_map(|space| space.unwatched_sockets.as_ref());
    unwatched.into_iter().any(|sockets| sockets.established + sockets.half_open + sockets.listening > 0)
}

/// Returns segments sent, and retransmitted, per second: of the sockets of both ends.
fn socket_segments(view: &RunView<'_>) -> Option<(f64, f64)> {
    let sum_growth = |figure: fn(&EndQueues) -> f64| {
        let ends = [(SUBJECT, ConnectionEnd::Server), (GENERATOR, ConnectionEnd::Client)];
        let growths = ends.into_iter().filter_map(|(role, end)| growth_per_s(view, role, end, figure));
        growths.reduce(|sum, growth| sum + growth)
    };
    let sent = sum_growth(|ends| ends.segments_sent as f64).filter(|sent| *sent > 0.0)?;
    Some((sent, sum_growth(|ends| ends.retransmitted as f64)?))
}

fn namespace_segments(view: &RunView<'_>) -> Option<(f64, f64)> {
    let sent = counter_of_both_ends(view, &["Tcp.OutSegs"]).filter(|sent| *sent > 0.0)?;
    Some((sent, counter_of_both_ends(view, &["Tcp.RetransSegs"])?))
}

/// Returns true if most connections of the subject live shorter than the time between two
/// snapshots: their sockets close before they are sampled.
fn are_short_lived(view: &RunView<'_>) -> bool {
    let connections = &view.run.totals.connections;
    let established = view
        .ends_median(SUBJECT, ConnectionEnd::Server, |ends| connections_in_state(ends, "established"))
        .unwrap_or_default();
    let opened_per_s = connections.opened as f64 / view.run.duration_s.max(1e-3);
    opened_per_s > 5.0 * established.max(1.0)
}

/// Returns the segments of TCP in user space, sent and retransmitted per second. Zero for a load over the kernel's TCP.
fn user_segments(view: &RunView<'_>) -> (f64, f64) {
    let duration_s = view.run.duration_s.max(1e-3);
    let transport = view.run.transport.as_ref();
    transport.map_or((0.0, 0.0), |counts| {
        (counts.sent as f64 / duration_s, counts.retransmitted as f64 / duration_s)
    })
}

fn sent_and_retransmitted_per_s(view: &RunView<'_>) -> Option<(f64, f64)> {
    let (sent, retransmitted) = user_segments(view);
    match kernel_segments(view) {
        Some(kernel) if !view.misses_kernel_tcp() => Some((kernel.0 + sent, kernel.1 + retransmitted)),
        _ => (sent > 0.0).then_some((sent, retransmitted)),
    }
}

fn kernel_segments(view: &RunView<'_>) -> Option<(f64, f64)> {
    let sockets = socket_segments(view).filter(|_| !are_short_lived(view));
    match has_unwatched_sockets(view) {
        true => sockets,
        // Both cover only this traffic; the counters also include closed sockets.
        false => namespace_segments(view).or(sockets),
    }
}

pub(super) fn retransmitted_fraction(view: &RunView<'_>) -> Option<f64> {
    let (sent, retransmitted) = sent_and_retransmitted_per_s(view)?;
    Some(retransmitted / sent)
}

/// Returns the fraction of a request's latency that losses take: each retransmitted segment costs
/// at least a round trip, and each timeout 200 ms, or 1 s in user space.
pub(super) fn loss_latency_fraction(view: &RunView<'_>) -> Option<f64> {
    let (_, retransmitted_per_s) = sent_and_retransmitted_per_s(view)?;
    let latency_ns = view.run.latency.last_byte.service.mean_ns;
    let round_trip_ns = view
        .ends_median(SUBJECT, ConnectionEnd::Server, |ends| (ends.rtt_us > 0.0).then_some(ends.rtt_us * 1e3))
        .unwrap_or(0.0);
    let recoveries_ns = retransmitted_per_s / responses_per_s(view)? * round_trip_ns;
    // Without retransmissions, requests that took 200 ms waited for something else.
    let lost = retransmitted_per_s > 0.0;
    let timeouts = if lost { retransmission_mode(view).unwrap_or(0.0) } else { 0.0 };
    // There are at most as many timeouts as retransmitted segments.
    let timeouts = timeouts.min(retransmitted_per_s / responses_per_s(view)?);
    let in_user_space = user_retransmission_mode(view).min(timeouts);
    let timeouts_ns = in_user_space * USER_TIMEOUT_NS + (timeouts - in_user_space) * TIMEOUT_NS;
    (latency_ns > 0.0).then(|| ((recoveries_ns + timeouts_ns) / latency_ns).min(1.0))
}

/// Returns the connections that the subject's own listening sockets dropped, per second.
pub(super) fn listen_overflows(view: &RunView<'_>) -> Option<f64> {
    let overflows = view.counter(SUBJECT, &["TcpExt.ListenOverflows"]);
    if !has_unwatched_sockets(view) {
        return overflows;
    }
    let machine = view.machine(SUBJECT)?;
    let (from_s, to_s) = (view.run.window.from_s, view.run.window.to_s);
    let ports = machine.observed.ports_served_by(SUBJECT);
    let drops = ports
        .iter()
        .filter_map(|port| machine.observed.listener_drops_per_s(*port, from_s, to_s))
        .reduce(|sum, drops| sum + drops);
    // Connections that the listeners dropped for other reasons are no overflow.
    drops.map(|drops| overflows.map_or(drops, |counted| counted.min(drops)))
}
