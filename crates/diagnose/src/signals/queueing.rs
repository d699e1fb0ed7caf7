//! Queueing: the latency under load compared with the latency without it, and the fraction of it
//! that requests spend at the origins. Operational laws: Little's law for each location, U = X · D.
//! Thresholds are elsewhere.

use record::observed::{ConnectionEnd, EndQueues, QueueSnapshot};

use super::compute::{connections_in_state, cpus};
use super::network;
use crate::figures as f;
use crate::run_view::RunView;
use crate::time_split::median_fraction_at;
use crate::window::{MachineWindow, ORIGIN, SUBJECT, median};

/// Minimum number of good responses of a meaningful baseline.
const BASELINE_GOOD_MIN: u64 = 2;
/// Maximum fraction of connections with an unknown order of last send and receive. Beyond it the
/// split is meaningless: data moves faster than the kernel's clock ticks.
const UNKNOWN_ORDER_FRACTION_MAX: f64 = 0.3;
/// CPU time of the origins below which they are not full, whatever is left on the machine.
const BUSY_CPUS_MIN: f64 = 0.5;
/// Ratio of the origins' CPU time to the subject's, below which they are not the limit if both
/// share CPUs.
const OVER_SUBJECT_CPU_RATIO_MIN: f64 = 0.7;

/// Returns R(1): the latency of a request without queueing, in ns. A closed loop of one request at a time is its
/// own baseline.
pub(crate) fn unloaded_latency_ns(view: &RunView<'_>) -> Option<f64> {
    let (good, mean_ns, p50_ns) = match &view.run.baseline {
        Some(baseline) => (baseline.good, baseline.mean_ns, baseline.p50_ns),
        None if view.run.request_slots() == 1.0 && view.run.plan["pace"]["loop"].as_str() != Some("open") => {
            let latency = &view.run.latency.last_byte.service;
            (view.run.totals.good(), latency.mean_ns, latency.p50_ns)
        }
        None => return None,
    };
    // A garbage collection does not move the median; the mean is right for a mix of slow and fast.
    let unloaded_ns = mean_ns.min(p50_ns as f64 * 3.0);
    (good >= BASELINE_GOOD_MIN && unloaded_ns > 0.0).then_some(unloaded_ns)
}

pub(super) fn queueing_fraction(view: &RunView<'_>) -> Option<f64> {
    let loaded_ns = working_ns(view, view.run.latency.last_byte.service.mean_ns);
    let unloaded_ns = working_ns(view, unloaded_latency_ns(view)?);
    (loaded_ns > 0.0).then(|| (1.0 - unloaded_ns / loaded_ns).max(0.0))
}

/// Returns a latency without the part in which the server has written the head, and its kernel waits for the client's
/// acknowledgement before it sends the body: no worker is occupied then.
pub(crate) fn working_ns(view: &RunView<'_>, latency_ns: f64) -> f64 {
    let working_ns = latency_ns - network::acknowledgement_stall_ns(view).unwrap_or(0.0);
    // The first requests of a connection may be acknowledged at once, so that alone there is no such part.
    if working_ns > 0.0 { working_ns } else { latency_ns }
}

/// Returns the waiting before the first byte, of the time until then, of responses that a delayed acknowledgement
/// divides; `None` for others.
pub(super) fn queueing_before_stall(view: &RunView<'_>) -> Option<f64> {
    network::acknowledgement_stall_ns(view)?;
    queueing_fraction(view)
}

/// Returns the median latency over that of the fastest response. Of a load without a baseline, only the fastest
/// responses show the latency of a request that waits for no other.
pub(super) fn latency_over_fastest(view: &RunView<'_>) -> Option<f64> {
    let fastest_ns = view.last_byte.min_ns();
    let is_known = fastest_ns > 0 && unloaded_latency_ns(view).is_none();
    is_known.then(|| view.run.latency.last_byte.service.p50_ns as f64 / fastest_ns as f64)
}

/// Returns the fraction of a client's cycle (response and think time) that it would take without
/// queueing: the client gets this fraction of its possible rate.
pub(super) fn cycle_fraction(view: &RunView<'_>) -> Option<f64> {
    let think_ns = view.run.plan["pace"]["think_ns"].as_u64()? as f64;
    let loaded_ns = view.run.latency.last_byte.service.mean_ns;
    let unloaded_ns = unloaded_latency_ns(view)?.min(loaded_ns);
    (loaded_ns > 0.0).then(|| (unloaded_ns + think_ns) / (loaded_ns + think_ns))
}

/// Returns rate × R(1).
pub(super) fn parallelism(view: &RunView<'_>) -> Option<f64> {
    Some(view.goodput() * working_ns(view, unloaded_latency_ns(view)?) / 1e9)
}

/// Returns the number of established connections to the origins that carry requests, in each
/// snapshot: of TCP, and to unix sockets.
pub(super) fn pool_sizes(view: &RunView<'_>) -> Vec<f64> {
    let Some(machine) = view.machine(SUBJECT) else {
        return Vec::new();
    };
    let tcp = machine.ends_by_time(SUBJECT, ConnectionEnd::Client);
    let paths = origin_paths(&machine);
    let size = |snapshot: &QueueSnapshot| {
        let tcp_established = tcp.iter().find(|(time_s, _)| *time_s == snapshot.time_s);
        let tcp_established = tcp_established.and_then(|(_, ends)| connections_in_state(ends, "established"));
        let unix = snapshot.unix.iter().filter(|socket| paths.contains(&socket.path.as_str()));
        let unix = unix.map(|socket| socket.client.established as f64).reduce(|sum, count| sum + count);
        tcp_established.into_iter().chain(unix).reduce(|sum, count| sum + count)
    };
    machine.snapshots().into_iter().filter_map(size).collect()
}

/// The unix sockets that the subject connects to.
fn origin_paths<'a>(machine: &MachineWindow<'a>) -> Vec<&'a str> {
    let used = machine.observed.unix.iter().filter(|socket| socket.used_by.as_deref() == Some(SUBJECT));
    used.map(|socket| socket.path.as_str()).collect()
}

/// Returns the median of these numbers.
pub(super) fn pool_size(view: &RunView<'_>) -> Option<f64> {
    median(pool_sizes(view)).filter(|size| *size > 0.0)
}

/// Returns a count of connections to the origins as a fraction of all; `None` if too many are tied.
fn pool_fraction(view: &RunView<'_>, count: fn(&EndQueues) -> u64) -> Option<f64> {
    view.ends_median(SUBJECT, ConnectionEnd::Client, |ends| {
        let all = connections_in_state(ends, "established").filter(|all| *all > 0.0)?;
        // Records from older versions lack all of these.
        let has_activity = ends.active + ends.awaiting_response + ends.pending_response + ends.order_unknown
            > 0
            || ends.bytes_acked_per_s.is_some();
        (has_activity && ends.order_unknown as f64 <= all * UNKNOWN_ORDER_FRACTION_MAX)
            .then(|| count(ends) as f64 / all)
    })
}

pub(super) fn busy_pool_fraction(view: &RunView<'_>) -> Option<f64> {
    pool_fraction(view, |ends| ends.awaiting_response + ends.with_unread)
}

pub(super) fn at_origin_fraction(view: &RunView<'_>) -> Option<f64> {
    pool_fraction(view, |ends| ends.awaiting_response)?;
    median_fraction_at(view, |at| at.at_origins)
}

/// The requests in flight whose connections an origin has not accepted yet, of TCP and of unix sockets:
/// the median over the snapshots. `None` where no listening socket of an origin is observed.
pub(super) fn origin_accept_queue(view: &RunView<'_>) -> Option<f64> {
    let machine = view.machine(SUBJECT)?;
    let in_flight = view.run.generator.in_flight_mean;
    let ports = machine.observed.ports_used_by(SUBJECT);
    let paths = origin_paths(&machine);
    let waiting = |snapshot: &QueueSnapshot| {
        let tcp = snapshot.listeners.iter().filter(|listener| ports.contains(&listener.port));
        let tcp = tcp.map(|listener| f64::from(listener.waiting));
        let unix = snapshot.unix.iter().filter(|socket| paths.contains(&socket.path.as_str()));
        tcp.chain(unix.map(|socket| f64::from(socket.waiting))).reduce(|sum, count| sum + count)
    };
    let waiting = median(machine.snapshots().into_iter().filter_map(waiting).collect())?;
    (in_flight > 0.0).then_some(waiting / in_flight)
}

/// Returns the fraction of the latency that requests wait at the origins: their time there by
/// Little's law, minus all of R(1).
pub(super) fn origin_queueing(view: &RunView<'_>) -> Option<f64> {
    let at_origin = at_origin_fraction(view)?;
    let loaded_ns = view.run.latency.last_byte.service.mean_ns;
    let unloaded_ns = unloaded_latency_ns(view)?;
    (loaded_ns > 0.0).then(|| (at_origin - unloaded_ns / loaded_ns).max(0.0))
}

/// Returns the time of a request at the origins by Little's law, over all of R(1): how much slower they answer
/// under the load.
pub(super) fn origin_slowdown(view: &RunView<'_>) -> Option<f64> {
    let at_origins = at_origin_fraction(view)? * view.run.generator.in_flight_mean;
    let served_at_a_time = parallelism(view)?;
    (served_at_a_time > 0.0).then(|| at_origins / served_at_a_time)
}

/// Returns the utilisation of the origins: their busiest thread, their CPUs, their quota. 0 if the
/// subject needs more CPU time than they do: they would use more if they got it.
pub(super) fn origin_utilization(view: &RunView<'_>) -> Option<f64> {
    let thread = view.role_median(ORIGIN, f::BUSIEST_THREAD.read)?;
    let all = cpus(view, ORIGIN)?;
    if cpus(view, SUBJECT).is_some_and(|subject| all < subject * OVER_SUBJECT_CPU_RATIO_MIN) {
        return Some(0.0);
    }
    let idle = view.sample_median(ORIGIN, f::IDLE_CPUS.read);
    let machine_utilization = idle.filter(|_| all >= BUSY_CPUS_MIN).map(|left| all / (all + left));
    let quota_utilization = view.role_median(ORIGIN, f::QUOTA_USED.read);
    [Some(thread), machine_utilization, quota_utilization].into_iter().flatten().reduce(f64::max)
}
