//! Local ports of outgoing connections: those in use, those that a new connection cannot take, and the
//! search for a free one. Thresholds of verdicts are elsewhere.

use record::observed::{ConnectionEnd, MachineSample, QueueSnapshot};

use super::compute::{CPUS_RESOLVED_MIN, connections_in_state};
use crate::run_view::RunView;
use crate::window::{GENERATOR, MachineWindow, SUBJECT, events_per_s, median, namespace};

/// Returns the ports in use to one server, as a fraction of all pairs of local address and port: of
/// the generators to the subject, or of the subject to its origin, whichever is more.
pub(super) fn ports_used_fraction(view: &RunView<'_>) -> Option<f64> {
    let used_ports =
        |machine: &MachineWindow<'_>, role: &str| {
            machine.ends_median(role, ConnectionEnd::Client, |ends| {
                Some(ends.states.values().sum::<u64>() as f64)
            })
        };
    let sources = view.run.plan["sources"].as_array().map_or(1, |all| all.len().max(1)) as f64;
    let generators = view.machines(GENERATOR).into_iter().enumerate().filter_map(|(at, machine)| {
        // The facts of a record describe the machine of its first generator. Settings are the
        // subject's on a machine with a subject.
        let by_settings = || match machine.observed.role_index(SUBJECT) {
            None => machine.local_port_count(),
            Some(_) => None,
        };
        let count = |(first, last): (u16, u16)| (f64::from(last) - f64::from(first) + 1.0).max(1.0);
        let facts = view.run.host.limits.port_range.map(count);
        let ports = if at == 0 { facts.or_else(by_settings) } else { by_settings().or(facts) };
        Some(used_ports(&machine, GENERATOR)? / (ports? * sources))
    });
    generators.chain(subject_ports_used_fraction(view)).reduce(f64::max)
}

/// Fraction of a proxy's local ports in use to its origins from which on new connections fail.
pub(super) const UPSTREAM_PORTS_USED_MIN: f64 = 0.9;

/// Returns the subject's local ports in use to one origin, as a fraction of the available ones.
pub(super) fn subject_ports_used_fraction(view: &RunView<'_>) -> Option<f64> {
    let machine = view.machine(SUBJECT)?;
    let used_fraction = |snapshot: &QueueSnapshot| {
        let ports = machine.observed.local_ports(SUBJECT, snapshot)?;
        (ports.available > 0).then(|| ports.used as f64 / ports.available as f64)
    };
    median(machine.snapshots().into_iter().filter_map(used_fraction).collect())
        .or_else(|| time_wait_ports_fraction(&machine))
}

/// Returns the connections in TIME_WAIT outside the watched ports, as a fraction of the local
/// ports. This is the only trace of a subject that found no port for a connection to its origin.
fn time_wait_ports_fraction(machine: &MachineWindow<'_>) -> Option<f64> {
    let time_wait_connections = |snapshot: &QueueSnapshot| {
        Some(snapshot.ends.iter().filter_map(|end| connections_in_state(end, "time-wait")).sum::<f64>())
    };
    let watched = median(machine.snapshots().into_iter().filter_map(time_wait_connections).collect())?;
    let counts = machine.samples().into_iter().filter_map(|sample| namespace(sample, SUBJECT));
    let all = median(counts.map(|space| space.time_wait as f64).collect())?;
    let used_fraction = (all - watched) / machine.local_port_count()?;
    // Fewer may belong to any process, to many servers.
    (used_fraction >= UPSTREAM_PORTS_USED_MIN).then_some(used_fraction)
}

/// Duration of TIME_WAIT in seconds (TCP_TIMEWAIT_LEN).
const TIME_WAIT_S: f64 = 60.0;
/// `net.ipv4.tcp_tw_reuse_delay` of kernels without this setting, in milliseconds.
const REUSE_DELAY_MS: f64 = 1_000.0;

/// Returns the connections that the subject opened in a sample, per second. In the generator's namespace
/// they are the rest without the generator's, unless those are in user space and not counted.
pub(super) fn outgoing_per_s(view: &RunView<'_>, sample: &MachineSample) -> Option<f64> {
    let space = namespace(sample, SUBJECT)?;
    let has_generator = view.run.transport.is_none() && space.roles.iter().any(|role| role == GENERATOR);
    let generator_per_s = view.run.totals.connections.opened as f64 / view.run.duration_s.max(1e-3);
    let all_per_s = events_per_s(space, &["Tcp.ActiveOpens"]);
    Some(if has_generator { (all_per_s - generator_per_s).max(0.0) } else { all_per_s })
}

/// Local ports of the subject towards the origin with the most of them, at the time of a count.
struct PortCount {
    snapshot_s: f64,
    counted_s: f64,
    available: f64,
    in_time_wait: f64,
    in_other_states: f64,
    /// Fraction of the subject's outgoing connections that go to this origin.
    to_origin_fraction: f64,
}

impl PortCount {
    fn read(machine: &MachineWindow<'_>, snapshot: &QueueSnapshot) -> Option<Self> {
        let ports = machine.observed.local_ports(SUBJECT, snapshot)?;
        let ends = machine.observed.client_ends(SUBJECT, snapshot);
        let to_origin_fraction = ports.used as f64 / (ends.states.values().sum::<u64>() as f64).max(1.0);
        let in_time_wait = ends.count_in_state("time-wait") as f64 * to_origin_fraction;
        Some(Self {
            snapshot_s: snapshot.time_s,
            counted_s: snapshot.time_s - ends.time_wait_age_s.unwrap_or(0.0),
            available: ports.available as f64,
            in_time_wait,
            in_other_states: (ports.used as f64 - in_time_wait).max(0.0),
            to_origin_fraction,
        })
    }
}

/// Local ports of the subject towards the origin with the most of them, at a sample.
struct PortUse<'a> {
    sample: &'a MachineSample,
    /// Ports that a new connection cannot take, as a fraction of the available ones.
    held_fraction: f64,
    available: f64,
}

impl PortUse<'_> {
    /// Returns the number of ports that connect(2) tries. It starts behind the last one that it took, and
    /// tries the even ports first: if half of all ports are held, each of them.
    fn tried(&self) -> f64 {
        if self.held_fraction < 0.5 { 1.0 } else { self.available / 2.0 }
    }
}

/// Returns the use of local ports at each sample.
///
/// Many sockets in TIME_WAIT are counted rarely, because each count costs milliseconds. The connections
/// opened since are added to a count, as far as connections ended in TIME_WAIT before it.
fn port_uses<'a>(view: &RunView<'a>) -> Option<Vec<PortUse<'a>>> {
    let machine = view.machine(SUBJECT)?;
    let snapshots = machine.snapshots().into_iter();
    let counts: Vec<PortCount> =
        snapshots.filter_map(|snapshot| PortCount::read(&machine, snapshot)).collect();
    let reuse_delay_s = time_wait_reuse_delay_s(&machine);
    let port_use = |sample: &'a MachineSample| {
        let count = counts.iter().rfind(|count| count.snapshot_s <= sample.time_s)?;
        let opened =
            |from_s: f64, to_s: f64| opened_between(view, &machine, from_s, to_s) * count.to_origin_fraction;
        let to_time_wait_fraction =
            (count.in_time_wait / opened(f64::NEG_INFINITY, count.counted_s).max(1.0)).min(1.0);
        let growth = |from_s: f64| opened(from_s, sample.time_s) * to_time_wait_fraction;
        let in_time_wait = count.in_time_wait + growth(count.counted_s.max(sample.time_s - TIME_WAIT_S));
        let not_reusable = match reuse_delay_s {
            Some(delay_s) => in_time_wait.min(growth(sample.time_s - delay_s)),
            None => in_time_wait,
        };
        let held_fraction = ((count.in_other_states + not_reusable) / count.available.max(1.0)).min(1.0);
        Some(PortUse { sample, held_fraction, available: count.available })
    };
    Some(machine.samples().into_iter().filter_map(port_use).collect())
}

/// Returns the local ports that a new connection of the subject to its origin cannot take, as a fraction
/// of the available ones.
pub(super) fn subject_ports_held_fraction(view: &RunView<'_>) -> Option<f64> {
    median(port_uses(view)?.iter().map(|ports| ports.held_fraction).collect())
}

/// Returns the ports that the subject's connects tried, per second of its CPU time.
pub(super) fn ports_tried_per_cpu_s(view: &RunView<'_>) -> Option<f64> {
    let role_index = view.machine(SUBJECT)?.observed.role_index(SUBJECT)?;
    let tried_per_cpu_s = |ports: &PortUse<'_>| {
        let cpus = ports.sample.roles.get(role_index)?.cpus();
        let connects_per_s = outgoing_per_s(view, ports.sample)?;
        (cpus >= CPUS_RESOLVED_MIN).then(|| connects_per_s * ports.tried() / cpus)
    };
    median(port_uses(view)?.iter().filter_map(tried_per_cpu_s).collect())
}

/// Returns the number of connections that the subject opened between two times.
fn opened_between(view: &RunView<'_>, machine: &MachineWindow<'_>, from_s: f64, to_s: f64) -> f64 {
    let samples = machine.samples().into_iter();
    let opened = samples.filter_map(|sample| {
        let start_s = from_s.max(sample.time_s - sample.length_s);
        let overlap_s = (to_s.min(sample.time_s) - start_s).max(0.0);
        Some(outgoing_per_s(view, sample)? * overlap_s)
    });
    opened.sum()
}

/// Returns the time after which a new connection of the subject may take a port from one in TIME_WAIT;
/// `None` if it never may.
fn time_wait_reuse_delay_s(machine: &MachineWindow<'_>) -> Option<f64> {
    let observed = machine.observed;
    let mut origins = observed.origins.iter().filter(|origin| origin.used_by == SUBJECT).peekable();
    let is_loopback = |address: &str| {
        address.parse::<std::net::SocketAddr>().is_ok_and(|address| address.ip().is_loopback())
    };
    let has_timestamps = machine.setting("net.ipv4.tcp_timestamps", 0) != Some(0.0);
    let is_reused = match machine.setting("net.ipv4.tcp_tw_reuse", 0) {
        Some(0.0) => false,
        Some(1.0) => true,
        // The default: only on loopback.
        _ => origins.peek().is_some() && origins.all(|origin| is_loopback(&origin.address)),
    };
    let delay_ms = machine.setting("net.ipv4.tcp_tw_reuse_delay", 0).unwrap_or(REUSE_DELAY_MS);
    (is_reused && has_timestamps).then_some(delay_ms / 1e3)
}
