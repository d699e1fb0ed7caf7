//! Places of a machine that have a line or an alert: its CPUs, roles, links, network namespaces and sockets,
//! each with its values in the last samples.

use std::collections::BTreeMap;

use record::observed::{
    ConnectionEnd, CpuUse, EndQueues, LinkUse, ListenerQueue, MachineObservation, MachineSample,
    NamespaceUse, RoleUse, ThreadCpuUse, WakeupLag,
};
use record::sorted::sort_by;

use crate::figures as f;
use crate::window::{MachineWindow, Series};

pub(super) const MACHINE: &str = "all";
pub(super) const NEIGHBOURS: &str = "others";
/// Label of connection tracking.
pub(super) const CONNTRACK: &str = "conntrack";
/// Label of pressure stall information.
pub(super) const PRESSURE: &str = "pressure";
pub(super) const OBSERVATION_COST: &str = "observation cost";

/// Place with its values, the newest last.
#[derive(Debug)]
pub(super) struct Place<'a, P> {
    /// Label of its line; rules refer to lines by it.
    pub(super) label: String,
    pub(super) last: &'a P,
    pub(super) values: Series<'a, P>,
}

#[derive(Debug)]
pub(super) struct Places<'a> {
    pub(super) window: MachineWindow<'a>,
    pub(super) machine: Series<'a, MachineSample>,
    pub(super) cpus: Vec<Place<'a, CpuUse>>,
    pub(super) roles: Vec<Place<'a, RoleUse>>,
    pub(super) namespaces: Vec<Place<'a, NamespaceUse>>,
    pub(super) links: Vec<Place<'a, LinkUse>>,
    pub(super) wakeup_lags: Vec<Place<'a, WakeupLag>>,
    pub(super) listeners: Vec<Place<'a, ListenerQueue>>,
    pub(super) ends: Vec<Place<'a, EndQueues>>,
}

impl<'a> Places<'a> {
    /// Takes the last `span_s` seconds of an observation, at least one sample.
    pub(super) fn over_last(observed: &'a MachineObservation, span_s: f64) -> Self {
        let window = MachineWindow::over_last(observed, span_s);
        let samples: Vec<_> = window.samples().into_iter().map(|sample| (sample.length_s, sample)).collect();
        let snapshots: Vec<_> =
            window.snapshots().into_iter().map(|snapshot| (snapshot.time_s, snapshot)).collect();
        let spaces = samples.last().map_or(0, |(_, sample)| sample.namespaces.len());
        let in_namespace = |link: &LinkUse| match link.role.as_str() {
            // Names may be the same in several namespaces.
            role if !role.is_empty() && spaces > 1 => format!("{} ({role})", link.name),
            _ => link.name.clone(),
        };
        let namespace = |space: &NamespaceUse| match spaces {
            0 | 1 => "this network".to_owned(),
            _ if space.roles.is_empty() => "another network".to_owned(),
            _ => space.roles.join(" "),
        };
        Self {
            window,
            machine: window.series(),
            cpus: places(&samples, |sample| &sample.cpus, |a, b| a.cpu == b.cpu, |cpu| cpu_label(cpu.cpu)),
            roles: roles(&window),
            namespaces: places(&samples, |sample| &sample.namespaces, |a, b| a.roles == b.roles, namespace),
            links: places(
                &samples,
                |sample| &sample.links,
                |a, b| a.name == b.name && a.role == b.role,
                in_namespace,
            ),
            wakeup_lags: places(
                &samples,
                |sample| &sample.wakeup_lags,
                |a, b| a.cpu == b.cpu,
                |probe| format!("wakeup latency {}", cpu_label(probe.cpu)),
            ),
            listeners: places(
                &snapshots,
                |snapshot| &snapshot.listeners,
                |a, b| a.port == b.port,
                |listener| format!("port {}", listener.port),
            ),
            ends: places(
                &snapshots,
                |snapshot| &snapshot.ends,
                |a, b| a.port == b.port && a.end == b.end,
                end_label,
            ),
        }
    }

    /// Returns the CPUs that a role may use: its affinity, or less if its quota is lower.
    pub(super) fn cpus_allowed(&self, role: &Place<'_, RoleUse>) -> f64 {
        let by_affinity = self.window.cpus_by_affinity(&role.label).unwrap_or(1.0);
        (f::QUOTA.read)(role.last).unwrap_or(f64::INFINITY).min(by_affinity)
    }

    /// Returns the mean of the busy CPUs that belong to no role.
    pub(super) fn foreign_cpus(&self) -> Option<f64> {
        self.machine.mean(|sample| self.window.foreign_cpus(sample))
    }
}

/// Returns the places in the last of some samples or snapshots.
fn places<'a, T, P>(
    samples: &[(f64, &'a T)],
    list: impl Fn(&'a T) -> &'a [P],
    is_same: impl Fn(&P, &P) -> bool,
    label: impl Fn(&P) -> String,
) -> Vec<Place<'a, P>> {
    let Some((_, newest)) = samples.last() else { return Vec::new() };
    let place = |last: &'a P| {
        let values = samples
            .iter()
            .filter_map(|(at, sample)| Some((*at, list(sample).iter().find(|value| is_same(value, last))?)));
        Place { label: label(last), last, values: values.collect() }
    };
    list(newest).iter().map(place).collect()
}

fn roles<'a>(window: &MachineWindow<'a>) -> Vec<Place<'a, RoleUse>> {
    let roles = window.observed.roles.iter().enumerate();
    let place = |(index, role): (usize, &record::observed::Role)| {
        let values = window.series_of(|sample| sample.roles.get(index));
        Some(Place { label: role.name.clone(), last: values.last()?, values })
    };
    roles.filter_map(place).collect()
}

/// Returns the threads of a role that existed at any time, the busiest first.
pub(super) fn threads(role: &Place<'_, RoleUse>) -> Vec<ThreadCpuUse> {
    let mut by_tid: BTreeMap<i32, ThreadCpuUse> = BTreeMap::new();
    let length_s: f64 = role.values.weighted().map(|(length_s, _)| length_s).sum();
    for (one_s, used) in role.values.weighted() {
        let weight = one_s / length_s.max(f64::MIN_POSITIVE);
        for thread in &used.threads {
            let sum = by_tid.entry(thread.tid).or_default();
            let waiting = match (sum.waiting, thread.waiting) {
                (None, None) => None,
                (before, now) => Some(before.unwrap_or(0.0) + now.unwrap_or(0.0) * weight),
            };
            let busy = sum.busy + thread.busy * weight;
            *sum = ThreadCpuUse { busy, waiting, ..thread.clone() };
        }
    }
    let mut threads: Vec<ThreadCpuUse> = by_tid.into_values().collect();
    sort_by(&mut threads, |left, right| right.busy.total_cmp(&left.busy));
    threads
}

pub(super) fn cpu_label(number: u32) -> String {
    format!("cpu{number}")
}

pub(super) fn thread_label(role: &Place<'_, RoleUse>, thread: &ThreadCpuUse) -> String {
    format!("{} thread {} {}", role.label, thread.tid, thread.name)
}

fn end_label(end: &EndQueues) -> String {
    let which = match end.end {
        ConnectionEnd::Client => "client",
        ConnectionEnd::Server => "server",
    };
    format!("port {} {which}", end.port)
}
