//! Next limits: each resource with a limit, its used fraction, and the rate at which it is full, by
//! operational analysis (Denning and Buzen 1978; Jain 1991, chapters 33 and 34).
//!
//! Utilisation law: U = X · D, so a resource is full at X / U = 1 / D, and the lowest of these
//! rates limits the throughput. A demand D that is measured far below saturation is an upper bound:
//! with more load, work comes in larger batches and with fewer wake-ups. So the rate is a lower
//! bound there. Connections of the generator limit the rate by N / (R(1) + Z). The use of tables,
//! queues and memory is not proportional to the rate: for them only the fraction is known.

use record::run::{RateBound, ResourceUse, Run, SaturationRate};
use record::sorted::sort_by;

use crate::run_view::RunView;
use crate::signals as s;
use crate::signals::Signal;

/// Name of the CPUs of the machine, which other programs use as well.
const ALL_CPUS: &str = "all CPUs";
/// CPUs of other programs from which they are named.
const FOREIGN_CPUS_SHOWN: f64 = 0.1;

const RESOURCES: &[Resource] = &[
    resource("generator's busiest thread", &s::GENERATOR_THREAD, ResourceKind::Thread { only: |_| true }),
    resource(
        "subject's busiest thread",
        &s::SUBJECT_THREAD,
        ResourceKind::Thread { only: s::is_single_threaded },
    ),
    resource("subject's CPUs", &s::SUBJECT_OVER_ALLOWED, ResourceKind::Cpus),
    resource("subject's CPU quota", &s::SUBJECT_OVER_QUOTA, ResourceKind::Cpus),
    resource("origin's busiest thread or CPUs", &s::ORIGIN_AT_LIMIT, ResourceKind::Cpus),
    resource(ALL_CPUS, &s::ALL_CPUS, ResourceKind::Machine),
    resource("busiest CPU", &s::BUSIEST_CPU, ResourceKind::Level),
    resource("generator's connections", &s::IN_FLIGHT_FRACTION, ResourceKind::Loop),
    resource("busiest link", &s::LINK, ResourceKind::Bytes),
    resource("subject's descriptors", &s::DESCRIPTORS, ResourceKind::Level),
    resource("local ports", &s::PORTS, ResourceKind::Level),
    resource("connection tracking", &s::CONNTRACK, ResourceKind::Level),
    resource("subject's accept queue", &s::ACCEPT_QUEUE, ResourceKind::Level),
    resource("subject's memory", &s::MEMORY_USED, ResourceKind::Level),
    resource("subject's writes to a disk", &s::DISK_USED, ResourceKind::Bytes),
];

struct Resource {
    name: &'static str,
    used: &'static Signal,
    kind: ResourceKind,
}

/// Relation of a resource's use to the rate.
#[derive(Clone, Copy)]
enum ResourceKind {
    /// CPU time of the busiest thread. It grows with the rate, but less than proportionally if work
    /// is batched, or if other threads may take some of it (`only` returns false).
    Thread { only: fn(&RunView<'_>) -> bool },
    /// CPU time of several CPUs.
    Cpus,
    /// CPU time of all CPUs of the machine; the part of other processes is independent of the rate.
    Machine,
    /// Bytes: proportional to the rate.
    Bytes,
    /// Connections of the generator.
    Loop,
    /// Level that is not proportional to the rate.
    Level,
}

const fn resource(name: &'static str, used: &'static Signal, kind: ResourceKind) -> Resource {
    Resource { name, used, kind }
}

/// Minimum utilisation at which a CPU time demand is that of a full resource.
const NEAR_FULL: f64 = 0.9;
/// Minimum utilisation for a measurement: below it a process's constant work (timers, logs) is a
/// large part.
const MEASURED_UTILIZATION_MIN: f64 = 0.05;
/// Minimum busy time in the window for a measurement: clocks tick every 10 ms.
const MEASURED_BUSY_S_MIN: f64 = 0.2;
/// Maximum fraction of bad responses: beyond it the time per good response is mostly that of bad
/// ones.
const BAD_FRACTION_MAX: f64 = 0.1;
/// Minimum used fraction at which a level counts as full now.
const LEVEL_FULL: f64 = 0.9;

/// Resource with a limit, and its use.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ResourceHeadroom {
    pub resource: &'static str,
    /// Used fraction: 1 is all of it. Samples of inexact length may make it slightly more.
    pub used_fraction: f64,
    /// Rate of good responses at which it is full; `None` if the use does not follow the rate, or
    /// is too small to be measured well.
    pub full_at: Option<SaturationRate>,
    /// Its time per good response (the service demand D), in ns; only for CPU time.
    pub demand_ns: Option<f64>,
}

impl ResourceHeadroom {
    /// Returns the rate at which it limits, for sorting; infinite if unknown.
    fn limiting_rate_per_s(&self, rate_per_s: f64) -> f64 {
        match self.full_at {
            Some(full) => full.rate_per_s,
            None if self.used_fraction >= LEVEL_FULL => rate_per_s,
            None => f64::INFINITY,
        }
    }
}

/// Returns the used fraction of each resource with a limit, the fullest first: the next limits. A
/// resource without figures in the record is absent.
pub fn headroom(run: &Run) -> Vec<ResourceHeadroom> {
    measure_headroom(&RunView::new(run))
}

/// Returns the observable resources: those that limit at the lowest rate first, then the fullest
/// first.
pub(super) fn measure_headroom(view: &RunView<'_>) -> Vec<ResourceHeadroom> {
    let rate_per_s = view.goodput();
    let mut used: Vec<ResourceHeadroom> = RESOURCES
        .iter()
        .filter_map(|row| {
            let used_fraction = row.used.value(view)?;
            Some(ResourceHeadroom {
                resource: row.name,
                used_fraction,
                full_at: full_at(row.kind, used_fraction, view),
                demand_ns: demand_ns(row.kind, used_fraction, view),
            })
        })
        .filter(|headroom| headroom.used_fraction.is_finite() && headroom.used_fraction > 0.0)
        .collect();
    let in_order = |a: &ResourceHeadroom, b: &ResourceHeadroom| {
        let (a_at, b_at) = (a.limiting_rate_per_s(rate_per_s), b.limiting_rate_per_s(rate_per_s));
        a_at.total_cmp(&b_at).then(b.used_fraction.total_cmp(&a.used_fraction))
    };
    sort_by(&mut used, in_order);
    used
}

fn full_at(kind: ResourceKind, used_fraction: f64, view: &RunView<'_>) -> Option<SaturationRate> {
    let rate_per_s = Some(view.goodput()).filter(|rate| *rate > 0.0)?;
    if view.run.totals.error_fraction() > BAD_FRACTION_MAX {
        return None;
    }
    // The use of other processes stays constant: X · D fills the rest.
    let utilisation = match kind {
        ResourceKind::Level => return None,
        ResourceKind::Loop => return connections_full_at(used_fraction, rate_per_s, view),
        ResourceKind::Machine => s::machine_cpus(view).map(|cpus| cpus.load / cpus.available)?,
        _ => used_fraction,
    };
    // Inexact samples may give more than 1.
    let utilisation = utilisation.min(1.0);
    let busy_s = utilisation * view.run.window.length_s();
    if utilisation < MEASURED_UTILIZATION_MIN || busy_s < MEASURED_BUSY_S_MIN {
        return None;
    }
    let is_demand_at_capacity = match kind {
        ResourceKind::Bytes => true,
        ResourceKind::Thread { only } => utilisation >= NEAR_FULL && only(view),
        _ => utilisation >= NEAR_FULL,
    };
    let bound = if is_demand_at_capacity { RateBound::About } else { RateBound::AtLeast };
    Some(SaturationRate { rate_per_s: rounded(rate_per_s / utilisation), bound })
}

/// Rounds to thousandths: a value read from a file may differ in the last bit.
fn rounded(rate_per_s: f64) -> f64 {
    (rate_per_s * 1e3).round() / 1e3
}

/// Returns the limit of the generator's connections, or of their streams: N of them carry at most N /
/// (R(1) + Z), because no request is faster than without load. In an open loop R is that of the run, which only
/// grows with the load.
fn connections_full_at(used_fraction: f64, rate_per_s: f64, view: &RunView<'_>) -> Option<SaturationRate> {
    let at_most = |rate_per_s| SaturationRate { rate_per_s: rounded(rate_per_s), bound: RateBound::AtMost };
    if view.run.plan["pace"]["loop"].as_str() == Some("open") {
        let measured = used_fraction >= MEASURED_UTILIZATION_MIN;
        return measured.then(|| at_most(rate_per_s / used_fraction.min(1.0)));
    }
    let think_ns = view.run.plan["pace"]["think_ns"].as_u64()? as f64;
    let bound = view.run.request_slots() * 1e9 / (s::unloaded_latency_ns(view)? + think_ns);
    // A disturbed baseline gives no limit.
    (bound >= rate_per_s).then(|| at_most(bound))
}

fn demand_ns(kind: ResourceKind, used_fraction: f64, view: &RunView<'_>) -> Option<f64> {
    let rate_per_s = Some(view.goodput()).filter(|rate| *rate > 0.0)?;
    let busy = match kind {
        ResourceKind::Thread { .. } => used_fraction,
        ResourceKind::Machine => s::machine_cpus(view)?.load,
        _ => return None,
    };
    // An integer: a value read from a file may differ in the last bit.
    Some((busy * 1e9 / rate_per_s).round())
}

pub(super) fn resources(view: &RunView<'_>) -> Vec<ResourceUse> {
    measure_headroom(view)
        .into_iter()
        .map(|headroom| ResourceUse {
            resource: headroom.resource.to_owned(),
            utilisation: headroom.used_fraction,
            demand_ns: headroom.demand_ns,
            full_at: headroom.full_at,
        })
        .collect()
}

pub(super) fn next_limits(view: &RunView<'_>) -> Vec<String> {
    let line = |headroom: ResourceHeadroom| {
        let digits = if headroom.used_fraction >= 0.01 { 0 } else { 2 };
        let mut used = format!("{}: {:.*} % used", headroom.resource, digits, headroom.used_fraction * 100.0);
        if headroom.resource == ALL_CPUS {
            used += &used_by_others(view);
        }
        match headroom.full_at {
            Some(full) => format!("{used}, full at {full}"),
            None => used,
        }
    };
    measure_headroom(view).into_iter().map(line).collect()
}

/// Formats the CPUs that other programs use, if they matter: " (1.94 CPUs by other programs)".
pub(crate) fn used_by_others(view: &RunView<'_>) -> String {
    let others = (s::FOREIGN_CPUS.read)(view).filter(|others| *others >= FOREIGN_CPUS_SHOWN);
    others.map_or_else(String::new, |others| format!(" ({others:.2} CPUs by other programs)"))
}
