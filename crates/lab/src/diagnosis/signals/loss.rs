//! Losses of the subject's own traffic. The counters of a namespace are of everybody in it, so they count
//! only where no stranger's sockets are. Not for thresholds.

use record::observed::{End, EndQueues};

use super::read::{both, growth, responses, retransmission_mode, state};
use crate::diagnosis::view::{GENERATOR, SUBJECT, View};

/// The shortest retransmission timeout of Linux (TCP_RTO_MIN), in ns.
const TIMEOUT_NS: f64 = 200e6;

/// Whether sockets of others are in the subject's namespace.
fn has_strangers(view: &View<'_>) -> bool {
    let samples = view.machine(SUBJECT).map(|machine| machine.samples()).unwrap_or_default();
    let spaces = samples.iter().flat_map(|sample| &sample.namespaces);
    let strangers = spaces.filter_map(|space| space.strangers.as_ref());
    strangers.into_iter().any(|one| one.established + one.half_open + one.listening > 0)
}

/// Segments sent, and sent again, per second: of the sockets of both ends.
fn of_sockets(view: &View<'_>) -> Option<(f64, f64)> {
    let of = |figure: fn(&EndQueues) -> f64| {
        let ends = [(SUBJECT, End::Server), (GENERATOR, End::Client)];
        let each = ends.into_iter().filter_map(|(role, end)| growth(view, role, end, figure));
        each.reduce(|sum, one| sum + one)
    };
    let sent = of(|ends| ends.segments_sent as f64).filter(|sent| *sent > 0.0)?;
    Some((sent, of(|ends| ends.retransmitted as f64)?))
}

/// The same of the namespaces of both ends.
fn of_namespaces(view: &View<'_>) -> Option<(f64, f64)> {
    let sent = both(view, &["Tcp.OutSegs"]).filter(|sent| *sent > 0.0)?;
    Some((sent, both(view, &["Tcp.RetransSegs"])?))
}

/// Whether most connections of the subject live shorter than the time between two snapshots: their
/// sockets are gone before they are seen.
fn are_short_lived(view: &View<'_>) -> bool {
    let connections = &view.run.totals.connections;
    let established =
        view.of_ends(SUBJECT, End::Server, |ends| state(ends, "established")).unwrap_or_default();
    let opened_per_s = connections.opened as f64 / view.run.duration_s.max(1e-3);
    opened_per_s > 5.0 * established.max(1.0)
}

fn segments(view: &View<'_>) -> Option<(f64, f64)> {
    let sockets = of_sockets(view).filter(|_| !are_short_lived(view));
    match has_strangers(view) {
        true => sockets,
        // Both are of this traffic alone; the counters see sockets that are gone, too.
        false => of_namespaces(view).or(sockets),
    }
}

pub(super) fn retransmitted(view: &View<'_>) -> Option<f64> {
    let (sent, again) = segments(view)?;
    Some(again / sent)
}

/// The part of a request's latency that losses take: each segment sent again costs a round trip at
/// least, and each timeout 200 ms.
pub(super) fn cost(view: &View<'_>) -> Option<f64> {
    let (_, again_per_s) = segments(view)?;
    let latency_ns = view.run.latency.last_byte.service.mean_ns;
    let round_trip_ns = view
        .of_ends(SUBJECT, End::Server, |ends| (ends.rtt_us > 0.0).then_some(ends.rtt_us * 1e3))
        .unwrap_or(0.0);
    let recoveries_ns = again_per_s / responses(view)? * round_trip_ns;
    // Without anything sent again, requests that took 200 ms waited for something else.
    let lost = again_per_s > 0.0;
    let timeouts = if lost { retransmission_mode(view).unwrap_or(0.0) } else { 0.0 };
    // No more timeouts than segments sent again.
    let timeouts = timeouts.min(again_per_s / responses(view)?);
    (latency_ns > 0.0).then(|| ((recoveries_ns + timeouts * TIMEOUT_NS) / latency_ns).min(1.0))
}

/// Connections that the subject's own listening sockets dropped, per second.
pub(super) fn listen_overflows(view: &View<'_>) -> Option<f64> {
    let counted = view.counter(SUBJECT, &["TcpExt.ListenOverflows"]);
    if !has_strangers(view) {
        return counted;
    }
    let machine = view.machine(SUBJECT)?;
    let (from_s, to_s) = (view.run.window.from_s, view.run.window.to_s);
    let ports = machine.seen.ports_served_by(SUBJECT);
    let drops = ports
        .iter()
        .filter_map(|port| machine.seen.listener_drops_per_s(*port, from_s, to_s))
        .reduce(|sum, one| sum + one);
    // What the listeners dropped for other reasons is no overflow.
    drops.map(|drops| counted.map_or(drops, |counted| counted.min(drops)))
}
