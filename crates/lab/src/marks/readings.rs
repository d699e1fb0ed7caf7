//! What the rules measure: each function looks at one figure of every line that has it, and adds a
//! reading for each. A figure that the machine does not tell gives no reading.

use record::observed::{
    CgroupUse, End, EndQueues, LinkUse, NamespaceUse, Pressure, Role, RoleUse, ThreadUse,
};
use record::units::{format_bytes, format_count, format_duration_ns};

use super::view::{View, busy};
use super::{Section, percent};
use crate::marks::lines::label;

/// Bytes of a page where TCP counts its memory in pages; 4 KiB on the machines that we build for.
pub(super) const PAGE_BYTES: f64 = 4096.0;
/// Connections below which a share of them says little.
const CONNECTIONS_MIN: u64 = 4;
/// Processors that a role has to use before its ratios say anything.
const ROLE_CPUS_MIN: f64 = 0.05;
/// Idle share of the machine beside which one busy thread is a limit (V4).
const IDLE_ENOUGH: f64 = 0.3;
/// Softirq share that other processors stay below when one has all packets (V5).
const SOFTIRQ_OTHERS_MAX: f64 = 0.2;
/// Round-trip time below which its ratio to the least says little, in microseconds.
const RTT_MIN_US: f64 = 1000.0;
/// Segments per second below which shares of them say little.
const SEGMENTS_MIN_PER_S: f64 = 10.0;

/// What a rule measured of a line.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Reading {
    /// The line's section.
    pub(super) section: Section,
    /// The line's label.
    pub(super) label: String,
    /// The figure.
    pub(super) value: f64,
    /// What goes with it, as text.
    pub(super) facts: [String; 2],
}

fn add(out: &mut Vec<Reading>, section: Section, label: String, value: f64, facts: [String; 2]) {
    out.push(Reading { section, label, value, facts });
}

fn none() -> [String; 2] {
    [String::new(), String::new()]
}

/// The largest of some counters of each namespace, by the name that leads it.
pub(super) fn counters(view: &View<'_>, names: &[&str], out: &mut Vec<Reading>) {
    for namespace in &view.mean.namespaces {
        let value = names.iter().map(|name| counter(namespace, name)).sum();
        add(out, Section::Tcp, label::namespace(view, namespace), value, none());
    }
}

/// The same for counters that count the same event from several sides.
pub(super) fn counters_max(view: &View<'_>, names: &[&str], out: &mut Vec<Reading>) {
    for namespace in &view.mean.namespaces {
        let value = names.iter().map(|name| counter(namespace, name)).fold(0.0, f64::max);
        add(out, Section::Tcp, label::namespace(view, namespace), value, none());
    }
}

/// A counter of a namespace, per second; one that did not change is absent there.
pub(super) fn counter(namespace: &NamespaceUse, name: &str) -> f64 {
    namespace.counters.get(name).copied().unwrap_or(0.0)
}

/// A share of one counter in another.
fn ratio(view: &View<'_>, part: &str, whole: &str, out: &mut Vec<Reading>) {
    for namespace in &view.mean.namespaces {
        let (part, whole) = (counter(namespace, part), counter(namespace, whole));
        if whole >= SEGMENTS_MIN_PER_S {
            let facts = [
                format!("{} a second", format_count(part)),
                format!("{} a second", format_count(whole)),
            ];
            add(out, Section::Tcp, label::namespace(view, namespace), part / whole, facts);
        }
    }
}

pub(super) fn retransmits(view: &View<'_>, out: &mut Vec<Reading>) {
    ratio(view, "Tcp.RetransSegs", "Tcp.OutSegs", out);
}

pub(super) fn delayed_acks(view: &View<'_>, out: &mut Vec<Reading>) {
    ratio(view, "TcpExt.DelayedACKs", "Tcp.InSegs", out);
}

pub(super) fn tcp_memory(view: &View<'_>, out: &mut Vec<Reading>) {
    // The three figures of tcp_mem: no bound, pressure, most.
    let Some(pressure) = view.setting("net.ipv4.tcp_mem", 1).filter(|pages| *pages > 0.0) else {
        return;
    };
    for namespace in &view.mean.namespaces {
        let pages = namespace.tcp_memory_pages as f64;
        let facts = [format_bytes(pages * PAGE_BYTES), format_bytes(pressure * PAGE_BYTES)];
        add(out, Section::Tcp, label::namespace(view, namespace), pages / pressure, facts);
    }
}

pub(super) fn full_listeners(view: &View<'_>, out: &mut Vec<Reading>) {
    for listener in &view.queues.listeners {
        let facts = [listener.waiting.to_string(), listener.backlog.to_string()];
        let value = f64::from(listener.full);
        add(out, Section::Sockets, label::listener(listener.port), value, facts);
    }
}

pub(super) fn listener_fill(view: &View<'_>, out: &mut Vec<Reading>) {
    for listener in view.queues.listeners.iter().filter(|listener| listener.backlog > 0) {
        let room = f64::from(listener.backlog) * f64::from(listener.sockets.max(1));
        let facts = [listener.waiting.to_string(), format_count(room)];
        let value = f64::from(listener.waiting) / room;
        add(out, Section::Sockets, label::listener(listener.port), value, facts);
    }
}

/// Half-open connections are shown at the server's end.
pub(super) fn half_open(view: &View<'_>, out: &mut Vec<Reading>) {
    for end in view.queues.ends.iter().filter(|end| end.end == End::Server) {
        let listener = view.queues.listeners.iter().find(|listener| listener.port == end.port);
        let Some(listener) = listener.filter(|listener| listener.backlog > 0) else { continue };
        let half_open = state(end, "syn-recv") as f64;
        let facts = [format_count(half_open), listener.backlog.to_string()];
        let room = f64::from(listener.backlog) * f64::from(listener.sockets.max(1));
        add(out, Section::Sockets, label::end(end), half_open / room, facts);
    }
}

pub(super) fn ports(view: &View<'_>, out: &mut Vec<Reading>) {
    let name = "net.ipv4.ip_local_port_range";
    let Some((low, high)) = view.setting(name, 0).zip(view.setting(name, 1)) else {
        return;
    };
    let range = (high - low + 1.0).max(1.0);
    for end in view.queues.ends.iter().filter(|end| end.end == End::Client) {
        let taken: u64 = end.states.values().sum();
        let facts = [taken.to_string(), format!("{range:.0}")];
        add(out, Section::Sockets, label::end(end), taken as f64 / range, facts);
    }
}

/// Sockets of an end in a state.
pub(super) fn state(end: &EndQueues, name: &str) -> u64 {
    end.states.get(name).copied().unwrap_or(0)
}

fn unread(view: &View<'_>, of: End, out: &mut Vec<Reading>) {
    for end in view.queues.ends.iter().filter(|end| end.end == of) {
        let established = state(end, "established");
        if established >= CONNECTIONS_MIN {
            let facts = [end.with_unread.to_string(), established.to_string()];
            let value = end.with_unread as f64 / established as f64;
            add(out, Section::Sockets, label::end(end), value, facts);
        }
    }
}

pub(super) fn unread_server(view: &View<'_>, out: &mut Vec<Reading>) {
    unread(view, End::Server, out);
}

pub(super) fn unread_client(view: &View<'_>, out: &mut Vec<Reading>) {
    unread(view, End::Client, out);
}

fn limited(view: &View<'_>, of: fn(&EndQueues) -> u64, out: &mut Vec<Reading>) {
    for end in view.queues.ends.iter().filter(|end| end.busy_us > 0) {
        let value = of(end) as f64 / end.busy_us as f64;
        add(out, Section::Sockets, label::end(end), value, none());
    }
}

pub(super) fn receive_window(view: &View<'_>, out: &mut Vec<Reading>) {
    limited(view, |end| end.receive_window_limited_us, out);
}

pub(super) fn send_buffer(view: &View<'_>, out: &mut Vec<Reading>) {
    limited(view, |end| end.send_buffer_limited_us, out);
}

pub(super) fn bloat(view: &View<'_>, out: &mut Vec<Reading>) {
    for end in &view.queues.ends {
        if end.rtt_us > RTT_MIN_US && end.rtt_min_us > 0.0 && end.not_sent_bytes > 0 {
            let time = |us: f64| format_duration_ns((us * 1e3) as u64);
            let facts = [time(end.rtt_us), time(end.rtt_min_us)];
            add(out, Section::Sockets, label::end(end), end.rtt_us / end.rtt_min_us, facts);
        }
    }
}

pub(super) fn not_sent(view: &View<'_>, out: &mut Vec<Reading>) {
    for end in &view.queues.ends {
        add(out, Section::Sockets, label::end(end), end.not_sent_bytes as f64, none());
    }
}

/// 1 for a program that has ended.
pub(super) fn ended(view: &View<'_>, out: &mut Vec<Reading>) {
    for (role, used) in view.roles() {
        let value = if used.processes == 0 { 1.0 } else { 0.0 };
        add(out, Section::Programs, role.name.clone(), value, none());
    }
}

pub(super) fn descriptors(view: &View<'_>, out: &mut Vec<Reading>) {
    for (role, used) in view.roles() {
        if let Some((open, most)) = used.descriptors.zip(used.descriptors_max) {
            let facts = [open.to_string(), most.to_string()];
            let value = open as f64 / most.max(1) as f64;
            add(out, Section::Programs, role.name.clone(), value, facts);
        }
    }
}

/// Something of the control group of each role.
fn cgroups(
    view: &View<'_>,
    of: impl Fn(&RoleUse, &CgroupUse) -> Option<(f64, [String; 2])>,
    out: &mut Vec<Reading>,
) {
    for (role, used) in view.roles() {
        let found = used.cgroup.as_ref().and_then(|cgroup| of(used, cgroup));
        if let Some((value, facts)) = found {
            add(out, Section::Programs, role.name.clone(), value, facts);
        }
    }
}

pub(super) fn memory_bound(view: &View<'_>, out: &mut Vec<Reading>) {
    let of = |_: &RoleUse, cgroup: &CgroupUse| {
        let (used, most) = cgroup.memory_bytes.zip(cgroup.memory_max_bytes)?;
        let facts = [format_bytes(used as f64), format_bytes(most as f64)];
        Some((used as f64 / most.max(1) as f64, facts))
    };
    cgroups(view, of, out);
}

pub(super) fn memory_hits(view: &View<'_>, out: &mut Vec<Reading>) {
    cgroups(view, |_, cgroup| Some((cgroup.memory_max_hits_per_s?, none())), out);
}

pub(super) fn throttled(view: &View<'_>, out: &mut Vec<Reading>) {
    let of = |_: &RoleUse, cgroup: &CgroupUse| {
        let period_ns = cgroup.period_s.unwrap_or(0.1) * 1e9;
        let quota = cgroup.quota_cpus.map_or_else(|| "-".to_owned(), |cpus| format!("{cpus:.2}"));
        Some((cgroup.throttled_periods?, [quota, format_duration_ns(period_ns as u64)]))
    };
    cgroups(view, of, out);
}

pub(super) fn disk_bound(view: &View<'_>, out: &mut Vec<Reading>) {
    let of = |used: &RoleUse, cgroup: &CgroupUse| {
        let (written, most) = used.disk_write_bytes_per_s.zip(cgroup.disk_write_max_bytes_per_s)?;
        let per_s = |bytes| format!("{}/s", format_bytes(bytes));
        Some((written / most.max(1.0), [per_s(written), per_s(most)]))
    };
    cgroups(view, of, out);
}

pub(super) fn disk_sleep(view: &View<'_>, out: &mut Vec<Reading>) {
    for (role, used) in view.roles() {
        let value = f64::from(used.threads_in_disk_sleep);
        add(out, Section::Programs, role.name.clone(), value, none());
    }
}

pub(super) fn major_faults(view: &View<'_>, out: &mut Vec<Reading>) {
    for (role, used) in view.roles() {
        add(out, Section::Programs, role.name.clone(), used.major_faults_per_s, none());
    }
}

/// Processors that a role may use: its affinity, or less by its quota.
pub(super) fn cpus_allowed(role: &Role, used: &RoleUse) -> f64 {
    let quota = used.cgroup.as_ref().and_then(|cgroup| cgroup.quota_cpus);
    quota.unwrap_or(f64::INFINITY).min(f64::from(role.cpus_allowed.max(1)))
}

pub(super) fn role_fill(view: &View<'_>, out: &mut Vec<Reading>) {
    for (role, used) in view.roles() {
        let allowed = cpus_allowed(role, used);
        let cpus = used.user_cpus + used.system_cpus;
        let facts = [format!("{cpus:.2}"), format!("{allowed:.2}").replace(".00", "")];
        add(out, Section::Programs, role.name.clone(), cpus / allowed, facts);
    }
}

pub(super) fn run_queue(view: &View<'_>, out: &mut Vec<Reading>) {
    for (role, used) in view.roles() {
        let running: f64 = used.threads.iter().map(|thread| thread.busy).sum();
        let waiting: Option<f64> = used.threads.iter().map(|thread| thread.waiting).sum();
        if let Some(waiting) = waiting.filter(|_| running > ROLE_CPUS_MIN) {
            add(out, Section::Programs, role.name.clone(), waiting / running, none());
        }
    }
}

fn threads(
    view: &View<'_>,
    of: impl Fn(&RoleUse, &ThreadUse) -> Option<[String; 2]>,
    out: &mut Vec<Reading>,
) {
    for (role, used) in view.roles() {
        for thread in used.threads.iter().take(super::lines::THREADS_SHOWN) {
            if let Some(facts) = of(used, thread) {
                add(out, Section::Programs, label::thread(role, thread), thread.busy, facts);
            }
        }
    }
}

pub(super) fn busy_thread(view: &View<'_>, out: &mut Vec<Reading>) {
    threads(view, |_, _| Some(none()), out);
}

/// A busy thread while the machine is idle, and so are the others of its program.
pub(super) fn lone_thread(view: &View<'_>, out: &mut Vec<Reading>) {
    let cpus = view.mean.cpus.len() as f64;
    let idle = if cpus > 1.0 { 1.0 - view.busy_cpus() / cpus } else { 0.0 };
    let alone = |used: &RoleUse, thread: &ThreadUse| {
        let mut others = used.threads.iter().filter(|other| other.tid != thread.tid);
        let limited = idle > IDLE_ENOUGH && others.all(|other| other.busy < thread.busy * 0.7);
        limited.then(|| [percent(idle), String::new()])
    };
    threads(view, alone, out);
}

pub(super) fn machine_busy(view: &View<'_>, out: &mut Vec<Reading>) {
    let cpus = view.mean.cpus.len();
    if cpus > 0 {
        let facts = [cpus.to_string(), String::new()];
        let value = view.busy_cpus() / cpus as f64;
        add(out, Section::Processors, label::MACHINE.to_owned(), value, facts);
    }
}

pub(super) fn others(view: &View<'_>, out: &mut Vec<Reading>) {
    let cpus = view.mean.cpus.len();
    if let (Some(foreign), true) = (view.mean.foreign_cpus, cpus > 0) {
        let facts = [format!("{foreign:.2}"), cpus.to_string()];
        let value = foreign / cpus as f64;
        add(out, Section::Processors, label::MACHINE.to_owned(), value, facts);
    }
}

pub(super) fn steal(view: &View<'_>, out: &mut Vec<Reading>) {
    for cpu in &view.mean.cpus {
        add(out, Section::Processors, label::cpu(cpu.cpu), cpu.steal, none());
    }
}

pub(super) fn backlog_drops(view: &View<'_>, out: &mut Vec<Reading>) {
    for cpu in &view.mean.cpus {
        add(out, Section::Processors, label::cpu(cpu.cpu), cpu.backlog_drops_per_s, none());
    }
}

pub(super) fn time_squeezes(view: &View<'_>, out: &mut Vec<Reading>) {
    for cpu in &view.mean.cpus {
        add(out, Section::Processors, label::cpu(cpu.cpu), cpu.time_squeezes_per_s, none());
    }
}

pub(super) fn softirq_alone(view: &View<'_>, out: &mut Vec<Reading>) {
    for cpu in &view.mean.cpus {
        let others = view.mean.cpus.iter().filter(|other| other.cpu != cpu.cpu);
        let most = others.map(|other| other.softirq + other.irq).reduce(f64::max);
        if let Some(most) = most.filter(|most| *most < SOFTIRQ_OTHERS_MAX) {
            let facts = [format!("at most {}", percent(most)), percent(busy(cpu))];
            add(out, Section::Processors, label::cpu(cpu.cpu), cpu.softirq + cpu.irq, facts);
        }
    }
}

/// The rate that bounds a link, in bits per second: its own or that of its slowest shaper.
pub(super) fn link_rate(link: &LinkUse) -> Option<f64> {
    let shapers = link.queues.iter().filter_map(|queue| queue.rate_bits_per_s);
    shapers.chain(link.speed_bits_per_s).reduce(f64::min).filter(|rate| *rate > 0.0)
}

pub(super) fn link_fill(view: &View<'_>, out: &mut Vec<Reading>) {
    for link in &view.mean.links {
        // A shaper bounds what is sent only.
        let sent = link_rate(link).map(|rate| (link.tx_bytes_per_s * 8.0, rate));
        let received = link.speed_bits_per_s.map(|rate| (link.rx_bytes_per_s * 8.0, rate));
        for (bits, rate) in sent.into_iter().chain(received).filter(|(_, rate)| *rate > 0.0) {
            let per_s = |bits| format!("{}bit/s", format_count(bits));
            let facts = [per_s(bits), per_s(rate)];
            add(out, Section::Links, label::link(view, link), bits / rate, facts);
        }
    }
}

pub(super) fn queue_delay(view: &View<'_>, out: &mut Vec<Reading>) {
    for link in &view.mean.links {
        for queue in &link.queues {
            let Some(rate) = queue.rate_bits_per_s.filter(|rate| *rate > 0.0) else { continue };
            let value = queue.backlog_bytes as f64 * 8.0 / rate * 1e9;
            let facts = [format_bytes(queue.backlog_bytes as f64), queue.kind.clone()];
            add(out, Section::Links, label::link(view, link), value, facts);
        }
    }
}

pub(super) fn link_drops(view: &View<'_>, out: &mut Vec<Reading>) {
    for link in &view.mean.links {
        let queues: f64 = link.queues.iter().map(|queue| queue.drops_per_s).sum();
        // The device may count what its queue dropped as well.
        let sent = link.tx_drops_per_s.max(queues);
        let facts = [
            format!(
                "{} received, {} to be sent",
                format_count(link.rx_drops_per_s),
                format_count(sent)
            ),
            String::new(),
        ];
        add(out, Section::Links, label::link(view, link), link.rx_drops_per_s + sent, facts);
    }
}

pub(super) fn allowances(view: &View<'_>, out: &mut Vec<Reading>) {
    for link in &view.mean.links {
        for (name, per_s) in &link.driver {
            if name.ends_with("_allowance_exceeded") {
                let facts = [name.clone(), String::new()];
                add(out, Section::Links, label::link(view, link), *per_s, facts);
            }
        }
    }
}

pub(super) fn conntrack_fill(view: &View<'_>, out: &mut Vec<Reading>) {
    if let Some(table) = view.mean.conntrack {
        let facts = [table.entries.to_string(), table.entries_max.to_string()];
        let value = table.entries as f64 / table.entries_max.max(1) as f64;
        add(out, Section::Machine, label::CONNTRACK.to_owned(), value, facts);
    }
}

pub(super) fn conntrack_drops(view: &View<'_>, out: &mut Vec<Reading>) {
    if let Some(table) = view.mean.conntrack {
        let value = table.drops_per_s + table.early_drops_per_s + table.insert_failures_per_s;
        add(out, Section::Machine, label::CONNTRACK.to_owned(), value, none());
    }
}

pub(super) fn pressure(view: &View<'_>, of: fn(&Pressure) -> f64, out: &mut Vec<Reading>) {
    if let Some(pressure) = &view.mean.pressure {
        add(out, Section::Machine, label::PRESSURE.to_owned(), of(pressure), none());
    }
}

pub(super) fn wake_up_lag(view: &View<'_>, out: &mut Vec<Reading>) {
    for canary in &view.mean.canaries {
        let facts = [format_duration_ns(canary.lag_max_ns), String::new()];
        let value = canary.lag_p99_ns as f64;
        add(out, Section::Machine, label::canary(canary.cpu), value, facts);
    }
}

pub(super) fn cost(view: &View<'_>, out: &mut Vec<Reading>) {
    add(out, Section::Machine, label::COST.to_owned(), view.observed.cost_cpus, none());
}
