//! Measurements of the rules: each function reads one figure of every line that has it, and adds a
//! reading for each. A figure that the machine does not provide gives no reading.

use record::observed::{
    CgroupUse, ConnectionEnd, EndQueues, LinkUse, ListenerQueue, NamespaceUse, Pressure, Role, RoleUse,
    ThreadCpuUse,
};
use record::units::{format_bit_rate, format_byte_rate, format_bytes, format_count, format_duration_ns};

use super::observation_window::{ObservationWindow, busy_fraction};
use super::{ScreenSection, percent};
use crate::alerts::section_lines::labels;

/// Bytes of a page in TCP's memory counters; 4 KiB on all supported machines.
pub(super) const PAGE_BYTES: f64 = 4096.0;
/// Number of connections below which a fraction of them is not meaningful.
const CONNECTIONS_MIN: u64 = 4;
/// CPUs that a role has to use before its ratios are meaningful.
const ROLE_CPUS_MIN: f64 = 0.05;
/// Idle fraction of the machine above which one busy thread is a limit (V4).
const IDLE_MIN: f64 = 0.3;
/// Maximum softirq fraction of the other CPUs if one CPU handles all packets (V5).
const SOFTIRQ_OTHERS_MAX: f64 = 0.2;
/// Round-trip time below which its ratio to the minimum is not meaningful, in microseconds.
const RTT_MIN_US: f64 = 1000.0;
/// Segments per second below which fractions of them are not meaningful.
const SEGMENTS_MIN_PER_S: f64 = 10.0;

/// Measurement of a rule on a line.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Measurement {
    pub(super) section: ScreenSection,
    pub(super) label: String,
    pub(super) value: f64,
    /// Additional facts, as text.
    pub(super) facts: [String; 2],
}

fn push(out: &mut Vec<Measurement>, section: ScreenSection, label: String, value: f64, facts: [String; 2]) {
    out.push(Measurement { section, label, value, facts });
}

fn no_facts() -> [String; 2] {
    [String::new(), String::new()]
}

/// Reads the sum of some counters of each namespace.
pub(super) fn counters(view: &ObservationWindow<'_>, names: &[&str], out: &mut Vec<Measurement>) {
    for namespace in &view.mean.namespaces {
        let value = names.iter().map(|name| counter(namespace, name)).sum();
        push(out, ScreenSection::Tcp, labels::namespace(view, namespace), value, no_facts());
    }
}

/// Reads the maximum of counters that count the same event from several sides.
pub(super) fn counters_max(view: &ObservationWindow<'_>, names: &[&str], out: &mut Vec<Measurement>) {
    for namespace in &view.mean.namespaces {
        let value = names.iter().map(|name| counter(namespace, name)).fold(0.0, f64::max);
        push(out, ScreenSection::Tcp, labels::namespace(view, namespace), value, no_facts());
    }
}

/// Returns a counter of a namespace, per second; 0 if it is absent because it did not change.
pub(super) fn counter(namespace: &NamespaceUse, name: &str) -> f64 {
    namespace.counters.get(name).copied().unwrap_or(0.0)
}

/// Reads the ratio of one counter to another.
fn ratio(view: &ObservationWindow<'_>, numerator: &str, denominator: &str, out: &mut Vec<Measurement>) {
    for namespace in &view.mean.namespaces {
        let (numerator, denominator) = (counter(namespace, numerator), counter(namespace, denominator));
        if denominator >= SEGMENTS_MIN_PER_S {
            let facts = [
                format!("{} per second", format_count(numerator)),
                format!("{} per second", format_count(denominator)),
            ];
            push(out, ScreenSection::Tcp, labels::namespace(view, namespace), numerator / denominator, facts);
        }
    }
}

pub(super) fn retransmits(view: &ObservationWindow<'_>, out: &mut Vec<Measurement>) {
    ratio(view, "Tcp.RetransSegs", "Tcp.OutSegs", out);
}

pub(super) fn delayed_acks(view: &ObservationWindow<'_>, out: &mut Vec<Measurement>) {
    ratio(view, "TcpExt.DelayedACKs", "Tcp.InSegs", out);
}

pub(super) fn tcp_memory(view: &ObservationWindow<'_>, out: &mut Vec<Measurement>) {
    // The three values of tcp_mem: low, pressure, maximum.
    let Some(pressure) = view.setting("net.ipv4.tcp_mem", 1).filter(|pages| *pages > 0.0) else {
        return;
    };
    for namespace in &view.mean.namespaces {
        let pages = namespace.tcp_memory_pages as f64;
        let facts = [format_bytes(pages * PAGE_BYTES), format_bytes(pressure * PAGE_BYTES)];
        push(out, ScreenSection::Tcp, labels::namespace(view, namespace), pages / pressure, facts);
    }
}

pub(super) fn full_accept_queues(view: &ObservationWindow<'_>, out: &mut Vec<Measurement>) {
    for listener in &view.queues.listeners {
        let facts = [listener.waiting.to_string(), listener.backlog.to_string()];
        let value = f64::from(listener.full);
        push(out, ScreenSection::Sockets, labels::listener(listener.port), value, facts);
    }
}

/// Returns the number of connections that all accept queues of a port can hold.
pub(super) fn accept_capacity(listener: &ListenerQueue) -> f64 {
    f64::from(listener.backlog) * f64::from(listener.sockets.max(1))
}

pub(super) fn accept_queue_fill(view: &ObservationWindow<'_>, out: &mut Vec<Measurement>) {
    for listener in view.queues.listeners.iter().filter(|listener| listener.backlog > 0) {
        let capacity = accept_capacity(listener);
        let facts = [listener.waiting.to_string(), format_count(capacity)];
        let value = f64::from(listener.waiting) / capacity;
        push(out, ScreenSection::Sockets, labels::listener(listener.port), value, facts);
    }
}

/// Half-open connections appear at the server's end.
pub(super) fn half_open(view: &ObservationWindow<'_>, out: &mut Vec<Measurement>) {
    for end in view.queues.ends.iter().filter(|end| end.end == ConnectionEnd::Server) {
        let listener = view.queues.listeners.iter().find(|listener| listener.port == end.port);
        let Some(listener) = listener.filter(|listener| listener.backlog > 0) else { continue };
        let half_open = end.count_in_state("syn-recv") as f64;
        let facts = [format_count(half_open), listener.backlog.to_string()];
        let value = half_open / accept_capacity(listener);
        push(out, ScreenSection::Sockets, labels::end(end), value, facts);
    }
}

pub(super) fn local_port_fill(view: &ObservationWindow<'_>, out: &mut Vec<Measurement>) {
    let name = "net.ipv4.ip_local_port_range";
    let Some((low, high)) = view.setting(name, 0).zip(view.setting(name, 1)) else {
        return;
    };
    let range = (high - low + 1.0).max(1.0);
    for end in view.queues.ends.iter().filter(|end| end.end == ConnectionEnd::Client) {
        let used_ports: u64 = end.states.values().sum();
        let facts = [used_ports.to_string(), format!("{range:.0}")];
        push(out, ScreenSection::Sockets, labels::end(end), used_ports as f64 / range, facts);
    }
}

fn unread(view: &ObservationWindow<'_>, side: ConnectionEnd, out: &mut Vec<Measurement>) {
    for end in view.queues.ends.iter().filter(|end| end.end == side) {
        let established = end.count_in_state("established");
        if established >= CONNECTIONS_MIN {
            let facts = [end.with_unread.to_string(), established.to_string()];
            let value = end.with_unread as f64 / established as f64;
            push(out, ScreenSection::Sockets, labels::end(end), value, facts);
        }
    }
}

pub(super) fn unread_server(view: &ObservationWindow<'_>, out: &mut Vec<Measurement>) {
    unread(view, ConnectionEnd::Server, out);
}

pub(super) fn unread_client(view: &ObservationWindow<'_>, out: &mut Vec<Measurement>) {
    unread(view, ConnectionEnd::Client, out);
}

fn limited(view: &ObservationWindow<'_>, limited_us: fn(&EndQueues) -> u64, out: &mut Vec<Measurement>) {
    for end in view.queues.ends.iter().filter(|end| end.busy_us > 0) {
        let value = limited_us(end) as f64 / end.busy_us as f64;
        push(out, ScreenSection::Sockets, labels::end(end), value, no_facts());
    }
}

pub(super) fn receive_window(view: &ObservationWindow<'_>, out: &mut Vec<Measurement>) {
    limited(view, |end| end.receive_window_limited_us, out);
}

pub(super) fn send_buffer(view: &ObservationWindow<'_>, out: &mut Vec<Measurement>) {
    limited(view, |end| end.send_buffer_limited_us, out);
}

pub(super) fn bufferbloat(view: &ObservationWindow<'_>, out: &mut Vec<Measurement>) {
    for end in &view.queues.ends {
        if end.rtt_us > RTT_MIN_US && end.rtt_min_us > 0.0 && end.not_sent_bytes > 0 {
            let time = |us: f64| format_duration_ns((us * 1e3) as u64);
            let facts = [time(end.rtt_us), time(end.rtt_min_us)];
            push(out, ScreenSection::Sockets, labels::end(end), end.rtt_us / end.rtt_min_us, facts);
        }
    }
}

pub(super) fn not_sent_bytes(view: &ObservationWindow<'_>, out: &mut Vec<Measurement>) {
    for end in &view.queues.ends {
        push(out, ScreenSection::Sockets, labels::end(end), end.not_sent_bytes as f64, no_facts());
    }
}

/// Reads 1 for a process that has ended.
pub(super) fn ended_processes(view: &ObservationWindow<'_>, out: &mut Vec<Measurement>) {
    for (role, used) in view.roles() {
        let value = if used.processes == 0 { 1.0 } else { 0.0 };
        push(out, ScreenSection::Processes, role.name.clone(), value, no_facts());
    }
}

pub(super) fn descriptors(view: &ObservationWindow<'_>, out: &mut Vec<Measurement>) {
    for (role, used) in view.roles() {
        if let Some((open, max)) = used.descriptors.zip(used.descriptors_max) {
            let facts = [open.to_string(), max.to_string()];
            let value = open as f64 / max.max(1) as f64;
            push(out, ScreenSection::Processes, role.name.clone(), value, facts);
        }
    }
}

/// Reads a figure from the cgroup of each role.
fn cgroups(
    view: &ObservationWindow<'_>,
    measure: impl Fn(&RoleUse, &CgroupUse) -> Option<(f64, [String; 2])>,
    out: &mut Vec<Measurement>,
) {
    for (role, used) in view.roles() {
        let measured = used.cgroup.as_ref().and_then(|cgroup| measure(used, cgroup));
        if let Some((value, facts)) = measured {
            push(out, ScreenSection::Processes, role.name.clone(), value, facts);
        }
    }
}

pub(super) fn memory_limit_fill(view: &ObservationWindow<'_>, out: &mut Vec<Measurement>) {
    let memory_fill = |_: &RoleUse, cgroup: &CgroupUse| {
        let (used, max) = cgroup.memory_bytes.zip(cgroup.memory_max_bytes)?;
        let facts = [format_bytes(used as f64), format_bytes(max as f64)];
        Some((used as f64 / max.max(1) as f64, facts))
    };
    cgroups(view, memory_fill, out);
}

pub(super) fn memory_limit_hits(view: &ObservationWindow<'_>, out: &mut Vec<Measurement>) {
    cgroups(view, |_, cgroup| Some((cgroup.memory_max_hits_per_s?, no_facts())), out);
}

pub(super) fn throttled(view: &ObservationWindow<'_>, out: &mut Vec<Measurement>) {
    let throttling = |_: &RoleUse, cgroup: &CgroupUse| {
        let period_ns = cgroup.period_s.unwrap_or(0.1) * 1e9;
        let quota = cgroup.quota_cpus.map_or_else(|| "-".to_owned(), |cpus| format!("{cpus:.2}"));
        Some((cgroup.throttled_periods?, [quota, format_duration_ns(period_ns as u64)]))
    };
    cgroups(view, throttling, out);
}

pub(super) fn disk_limit_fill(view: &ObservationWindow<'_>, out: &mut Vec<Measurement>) {
    let disk_fill = |used: &RoleUse, cgroup: &CgroupUse| {
        let (written, max) = used.disk_write_bytes_per_s.zip(cgroup.disk_write_max_bytes_per_s)?;
        let per_s = format_byte_rate;
        Some((written / max.max(1.0), [per_s(written), per_s(max)]))
    };
    cgroups(view, disk_fill, out);
}

pub(super) fn disk_sleep(view: &ObservationWindow<'_>, out: &mut Vec<Measurement>) {
    for (role, used) in view.roles() {
        let value = used.threads_in_disk_sleep;
        push(out, ScreenSection::Processes, role.name.clone(), value, no_facts());
    }
}

pub(super) fn major_faults(view: &ObservationWindow<'_>, out: &mut Vec<Measurement>) {
    for (role, used) in view.roles() {
        push(out, ScreenSection::Processes, role.name.clone(), used.major_faults_per_s, no_facts());
    }
}

/// Returns the CPUs that a role may use: its affinity, or less if its quota is lower.
pub(super) fn cpus_allowed(role: &Role, used: &RoleUse) -> f64 {
    let quota = used.cgroup.as_ref().and_then(|cgroup| cgroup.quota_cpus);
    quota.unwrap_or(f64::INFINITY).min(f64::from(role.cpus_allowed.max(1)))
}

pub(super) fn cpu_limit_fill(view: &ObservationWindow<'_>, out: &mut Vec<Measurement>) {
    for (role, used) in view.roles() {
        let allowed = cpus_allowed(role, used);
        let cpus = used.user_cpus + used.system_cpus;
        let facts = [format!("{cpus:.2}"), format!("{allowed:.2}").replace(".00", "")];
        push(out, ScreenSection::Processes, role.name.clone(), cpus / allowed, facts);
    }
}

pub(super) fn run_queue(view: &ObservationWindow<'_>, out: &mut Vec<Measurement>) {
    for (role, used) in view.roles() {
        let running: f64 = used.threads.iter().map(|thread| thread.busy).sum();
        let waiting: Option<f64> = used.threads.iter().map(|thread| thread.waiting).sum();
        if let Some(waiting) = waiting.filter(|_| running > ROLE_CPUS_MIN) {
            push(out, ScreenSection::Processes, role.name.clone(), waiting / running, no_facts());
        }
    }
}

fn threads(
    view: &ObservationWindow<'_>,
    facts_of: impl Fn(&RoleUse, &ThreadCpuUse) -> Option<[String; 2]>,
    out: &mut Vec<Measurement>,
) {
    for (role, used) in view.roles() {
        for thread in used.threads.iter().take(super::section_lines::THREADS_MAX) {
            if let Some(facts) = facts_of(used, thread) {
                push(out, ScreenSection::Processes, labels::thread(role, thread), thread.busy, facts);
            }
        }
    }
}

pub(super) fn busy_thread(view: &ObservationWindow<'_>, out: &mut Vec<Measurement>) {
    threads(view, |_, _| Some(no_facts()), out);
}

/// Reads a busy thread while the machine and the other threads of its process are idle.
pub(super) fn single_busy_thread(view: &ObservationWindow<'_>, out: &mut Vec<Measurement>) {
    let cpus = view.mean.cpus.len() as f64;
    let idle = if cpus > 1.0 { 1.0 - view.busy_cpus() / cpus } else { 0.0 };
    let is_single = |used: &RoleUse, thread: &ThreadCpuUse| {
        let mut others = used.threads.iter().filter(|other| other.tid != thread.tid);
        let limited = idle > IDLE_MIN && others.all(|other| other.busy < thread.busy * 0.7);
        limited.then(|| [percent(idle), String::new()])
    };
    threads(view, is_single, out);
}

pub(super) fn machine_busy(view: &ObservationWindow<'_>, out: &mut Vec<Measurement>) {
    let cpus = view.mean.cpus.len();
    if cpus > 0 {
        let facts = [cpus.to_string(), String::new()];
        let value = view.busy_cpus() / cpus as f64;
        push(out, ScreenSection::Cpus, labels::MACHINE.to_owned(), value, facts);
    }
}

pub(super) fn other_processes(view: &ObservationWindow<'_>, out: &mut Vec<Measurement>) {
    let cpus = view.mean.cpus.len();
    if let (Some(other_cpus), true) = (view.mean.foreign_cpus, cpus > 0) {
        let facts = [format!("{other_cpus:.2}"), cpus.to_string()];
        let value = other_cpus / cpus as f64;
        push(out, ScreenSection::Cpus, labels::MACHINE.to_owned(), value, facts);
    }
}

pub(super) fn steal(view: &ObservationWindow<'_>, out: &mut Vec<Measurement>) {
    for cpu in &view.mean.cpus {
        push(out, ScreenSection::Cpus, labels::cpu(cpu.cpu), cpu.steal, no_facts());
    }
}

pub(super) fn backlog_drops(view: &ObservationWindow<'_>, out: &mut Vec<Measurement>) {
    for cpu in &view.mean.cpus {
        push(out, ScreenSection::Cpus, labels::cpu(cpu.cpu), cpu.backlog_drops_per_s, no_facts());
    }
}

pub(super) fn time_squeezes(view: &ObservationWindow<'_>, out: &mut Vec<Measurement>) {
    for cpu in &view.mean.cpus {
        push(out, ScreenSection::Cpus, labels::cpu(cpu.cpu), cpu.time_squeezes_per_s, no_facts());
    }
}

pub(super) fn softirq_on_one_cpu(view: &ObservationWindow<'_>, out: &mut Vec<Measurement>) {
    for cpu in &view.mean.cpus {
        let others = view.mean.cpus.iter().filter(|other| other.cpu != cpu.cpu);
        let max = others.map(|other| other.softirq + other.irq).reduce(f64::max);
        if let Some(max) = max.filter(|max| *max < SOFTIRQ_OTHERS_MAX) {
            let facts = [format!("max {}", percent(max)), percent(busy_fraction(cpu))];
            push(out, ScreenSection::Cpus, labels::cpu(cpu.cpu), cpu.softirq + cpu.irq, facts);
        }
    }
}

/// Returns the rate that bounds a link, in bits per second: its own or that of its slowest shaper.
pub(super) fn link_rate(link: &LinkUse) -> Option<f64> {
    let shapers = link.queues.iter().filter_map(|queue| queue.rate_bits_per_s);
    shapers.chain(link.speed_bits_per_s).reduce(f64::min).filter(|rate| *rate > 0.0)
}

pub(super) fn link_fill(view: &ObservationWindow<'_>, out: &mut Vec<Measurement>) {
    for link in &view.mean.links {
        // A shaper bounds sent data only.
        let sent = link_rate(link).map(|rate| (link.tx_bytes_per_s * 8.0, rate));
        let received = link.speed_bits_per_s.map(|rate| (link.rx_bytes_per_s * 8.0, rate));
        for (bits, rate) in sent.into_iter().chain(received).filter(|(_, rate)| *rate > 0.0) {
            let per_s = format_bit_rate;
            let facts = [per_s(bits), per_s(rate)];
            push(out, ScreenSection::Links, labels::link(view, link), bits / rate, facts);
        }
    }
}

pub(super) fn queue_delay(view: &ObservationWindow<'_>, out: &mut Vec<Measurement>) {
    for link in &view.mean.links {
        for queue in &link.queues {
            let Some(rate) = queue.rate_bits_per_s.filter(|rate| *rate > 0.0) else { continue };
            let value = queue.backlog_bytes as f64 * 8.0 / rate * 1e9;
            let facts = [format_bytes(queue.backlog_bytes as f64), queue.kind.clone()];
            push(out, ScreenSection::Links, labels::link(view, link), value, facts);
        }
    }
}

pub(super) fn link_drops(view: &ObservationWindow<'_>, out: &mut Vec<Measurement>) {
    for link in &view.mean.links {
        let queues: f64 = link.queues.iter().map(|queue| queue.drops_per_s).sum();
        // The device may also count the drops of its queue.
        let sent = link.tx_drops_per_s.max(queues);
        let facts = [
            format!("{} received, {} sent", format_count(link.rx_drops_per_s), format_count(sent)),
            String::new(),
        ];
        push(out, ScreenSection::Links, labels::link(view, link), link.rx_drops_per_s + sent, facts);
    }
}

pub(super) fn exceeded_allowances(view: &ObservationWindow<'_>, out: &mut Vec<Measurement>) {
    for link in &view.mean.links {
        for (name, per_s) in &link.driver {
            if name.ends_with("_allowance_exceeded") {
                let facts = [name.clone(), String::new()];
                push(out, ScreenSection::Links, labels::link(view, link), *per_s, facts);
            }
        }
    }
}

pub(super) fn conntrack_fill(view: &ObservationWindow<'_>, out: &mut Vec<Measurement>) {
    if let Some(table) = view.mean.conntrack {
        let facts = [table.entries.to_string(), table.entries_max.to_string()];
        let value = table.entries as f64 / table.entries_max.max(1) as f64;
        push(out, ScreenSection::Machine, labels::CONNTRACK.to_owned(), value, facts);
    }
}

pub(super) fn conntrack_drops(view: &ObservationWindow<'_>, out: &mut Vec<Measurement>) {
    if let Some(table) = view.mean.conntrack {
        let value = table.drops_per_s + table.early_drops_per_s + table.insert_failures_per_s;
        push(out, ScreenSection::Machine, labels::CONNTRACK.to_owned(), value, no_facts());
    }
}

pub(super) fn pressure(
    view: &ObservationWindow<'_>,
    fraction: fn(&Pressure) -> f64,
    out: &mut Vec<Measurement>,
) {
    if let Some(pressure) = &view.mean.pressure {
        push(out, ScreenSection::Machine, labels::PRESSURE.to_owned(), fraction(pressure), no_facts());
    }
}

pub(super) fn wakeup_latency(view: &ObservationWindow<'_>, out: &mut Vec<Measurement>) {
    for probe in &view.mean.wakeup_lags {
        let facts = [format_duration_ns(probe.lag_max_ns), String::new()];
        let value = probe.lag_p99_ns as f64;
        push(out, ScreenSection::Machine, labels::wakeup_probe(probe.cpu), value, facts);
    }
}

pub(super) fn observation_cost(view: &ObservationWindow<'_>, out: &mut Vec<Measurement>) {
    push(
        out,
        ScreenSection::Machine,
        labels::OBSERVATION_COST.to_owned(),
        view.observed.cost_cpus,
        no_facts(),
    );
}
