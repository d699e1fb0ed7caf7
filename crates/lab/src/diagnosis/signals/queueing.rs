//! Queueing: the latency under load against the latency without it, and the share of it that requests
//! spend at the origins. Operational laws: Little's law for each place, U = X · D. Not for thresholds.

use record::observed::{End, EndQueues, QueueSnapshot};

use super::read::{busiest, cpus, idle, state, used};
use crate::diagnosis::split::share_at;
use crate::diagnosis::view::{ORIGIN, SUBJECT, View, median};

/// A baseline of fewer good responses than this says nothing.
const BASELINE_GOOD_MIN: u64 = 2;
/// A share of connections beyond which "sent last or received last" cannot be told makes the split
/// meaningless: data moves faster than the kernel's clock ticks.
const TIED_MAX: f64 = 0.3;
/// CPU time of the origins below which they are not full, whatever is left on the machine.
const BUSY_CPUS_MIN: f64 = 0.5;
/// CPU time of the origins over the subject's, below which they are not the limit where both share CPUs.
const OVER_SUBJECT_MIN: f64 = 0.7;

/// R(1): the latency of a request without queueing, in ns.
fn alone_ns(view: &View<'_>) -> Option<f64> {
    let baseline = view.run.baseline?;
    // The median is not moved by a garbage collection; the mean is right for a mix of slow and fast.
    let typical = baseline.mean_ns.min(baseline.p50_ns as f64 * 3.0);
    (baseline.good >= BASELINE_GOOD_MIN && typical > 0.0).then_some(typical)
}

pub(super) fn queueing_share(view: &View<'_>) -> Option<f64> {
    let loaded_ns = view.run.latency.last_byte.service.mean_ns;
    let alone_ns = alone_ns(view)?;
    (loaded_ns > 0.0).then(|| (1.0 - alone_ns / loaded_ns).max(0.0))
}

/// The share of the time of a client's cycle (response and think time) that it would take without
/// queueing: as much of the rate it gets.
pub(super) fn cycle_share(view: &View<'_>) -> Option<f64> {
    let think_ns = view.run.plan["pace"]["think_ns"].as_u64()? as f64;
    let loaded_ns = view.run.latency.last_byte.service.mean_ns;
    let alone_ns = alone_ns(view)?.min(loaded_ns);
    (loaded_ns > 0.0).then(|| (alone_ns + think_ns) / (loaded_ns + think_ns))
}

pub(super) fn parallelism(view: &View<'_>) -> Option<f64> {
    Some(view.goodput() * alone_ns(view)? / 1e9)
}

/// Established connections to the origins that carry requests, in each snapshot: of TCP, and to unix
/// sockets.
pub(super) fn pool_sizes(view: &View<'_>) -> Vec<f64> {
    let Some(machine) = view.machine(SUBJECT) else {
        return Vec::new();
    };
    let tcp = machine.ends_in_time(SUBJECT, End::Client);
    let paths: Vec<&str> = machine
        .seen
        .unix
        .iter()
        .filter(|one| one.used_by.as_deref() == Some(SUBJECT))
        .map(|one| one.path.as_str())
        .collect();
    let size = |snapshot: &QueueSnapshot| {
        let own = tcp.iter().find(|(time_s, _)| *time_s == snapshot.time_s);
        let own = own.and_then(|(_, ends)| state(ends, "established"));
        let unix = snapshot.unix.iter().filter(|one| paths.contains(&one.path.as_str()));
        let unix = unix.map(|one| one.client.established as f64).reduce(|sum, one| sum + one);
        own.into_iter().chain(unix).reduce(|sum, one| sum + one)
    };
    machine.snapshots().into_iter().filter_map(size).collect()
}

/// The median of it.
pub(super) fn pool(view: &View<'_>) -> Option<f64> {
    median(pool_sizes(view)).filter(|size| *size > 0.0)
}

/// A count of connections to the origins, of all of them; `None` where too many are tied.
fn of_pool(view: &View<'_>, count: fn(&EndQueues) -> u64) -> Option<f64> {
    view.of_ends(SUBJECT, End::Client, |ends| {
        let all = state(ends, "established").filter(|all| *all > 0.0)?;
        // Records from older versions have none of these.
        let known = ends.active + ends.awaiting_reply + ends.owed_reply + ends.tied > 0
            || ends.bytes_acked_per_s.is_some();
        (known && ends.tied as f64 <= all * TIED_MAX).then(|| count(ends) as f64 / all)
    })
}

pub(super) fn pool_busy(view: &View<'_>) -> Option<f64> {
    of_pool(view, |ends| ends.awaiting_reply + ends.with_unread)
}

pub(super) fn at_origin(view: &View<'_>) -> Option<f64> {
    of_pool(view, |ends| ends.awaiting_reply)?;
    share_at(view, |at| at.at_origins)
}

/// The part of the latency that requests wait at the origins: their time there by Little's law, beyond
/// all of R(1).
pub(super) fn origin_queueing(view: &View<'_>) -> Option<f64> {
    let at_origin = at_origin(view)?;
    let loaded_ns = view.run.latency.last_byte.service.mean_ns;
    let alone_ns = alone_ns(view)?;
    (loaded_ns > 0.0).then(|| (at_origin - alone_ns / loaded_ns).max(0.0))
}

/// The use of what the origins have: their busiest thread, their CPUs, their quota. 0 where the subject
/// needs more CPU time than they do: they would use more if they got it.
pub(super) fn origin_at_limit(view: &View<'_>) -> Option<f64> {
    let thread = view.of_role(ORIGIN, busiest)?;
    let all = cpus(view, ORIGIN)?;
    if cpus(view, SUBJECT).is_some_and(|subject| all < subject * OVER_SUBJECT_MIN) {
        return Some(0.0);
    }
    let left = view.of_samples(ORIGIN, |sample| Some(idle(sample)));
    let of_machine = left.filter(|_| all >= BUSY_CPUS_MIN).map(|left| all / (all + left));
    let of_quota =
        view.of_role(ORIGIN, |role| Some(used(role)? / role.cgroup.as_ref()?.quota_cpus?));
    [Some(thread), of_machine, of_quota].into_iter().flatten().reduce(f64::max)
}
