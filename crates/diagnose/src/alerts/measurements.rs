//! Measurements of the rules: each function reads one figure of every line that has it, and adds a
//! reading for each. A figure that the machine does not provide gives no reading.

use record::observed::{
    ConnectionEnd, CpuUse, EndQueues, LinkUse, ListenerQueue, MachineSample, NamespaceUse, RoleUse,
    ThreadCpuUse, WakeupLag, format_neighbours,
};
use record::units::{format_bit_rate, format_byte_rate, format_bytes, format_count, format_duration_ns};

use super::places::{self, Place, Places, thread_label, threads};
use super::screen::{ScreenSection, percent};
use crate::figures as f;
use crate::window::events_per_s;

/// Bytes of a page in TCP's memory counters; 4 KiB on all supported machines.
pub(super) const PAGE_BYTES: f64 = 4096.0;
/// Maximum number of threads of each role with a line of their own.
pub(super) const THREADS_MAX: usize = 4;
/// Number of connections below which a fraction of them is not meaningful.
const CONNECTIONS_MIN: f64 = 4.0;
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
    pub(super) facts: [String; 2],
}

/// Measured figure with its facts; `None` if a place does not have it.
type Reading = Option<(f64, [String; 2])>;

fn no_facts() -> [String; 2] {
    [String::new(), String::new()]
}

fn push(section: ScreenSection, label: &str, reading: Reading, out: &mut Vec<Measurement>) {
    out.extend(reading.map(|(value, facts)| Measurement { section, label: label.to_owned(), value, facts }));
}

fn each<'a, P>(
    places: &[Place<'a, P>],
    section: ScreenSection,
    measure: impl Fn(&Place<'a, P>) -> Reading,
    out: &mut Vec<Measurement>,
) {
    places.iter().for_each(|place| push(section, &place.label, measure(place), out));
}

/// Reads the mean of a figure of each role.
pub(super) fn roles(view: &Places<'_>, figure: fn(&RoleUse) -> Option<f64>, out: &mut Vec<Measurement>) {
    each(&view.roles, ScreenSection::Processes, |role| Some((role.values.mean(figure)?, no_facts())), out);
}

/// Reads the mean of a figure of each CPU.
pub(super) fn cpus(view: &Places<'_>, figure: fn(&CpuUse) -> Option<f64>, out: &mut Vec<Measurement>) {
    each(&view.cpus, ScreenSection::Cpus, |cpu| Some((cpu.values.mean(figure)?, no_facts())), out);
}

/// Returns the mean of the sum of some counters of a namespace, per second.
pub(super) fn counter(space: &Place<'_, NamespaceUse>, names: &[&str]) -> f64 {
    space.values.mean_of(|space| events_per_s(space, names))
}

/// Reads the sum of some counters of each namespace.
pub(super) fn counters(view: &Places<'_>, names: &[&str], out: &mut Vec<Measurement>) {
    each(&view.namespaces, ScreenSection::Tcp, |space| Some((counter(space, names), no_facts())), out);
}

/// Reads the maximum of counters that count the same event from several sides.
pub(super) fn counters_max(view: &Places<'_>, names: &[&str], out: &mut Vec<Measurement>) {
    let max = |space: &Place<'_, _>| {
        let counts = names.iter().map(|name| counter(space, &[name]));
        Some((counts.fold(0.0, f64::max), no_facts()))
    };
    each(&view.namespaces, ScreenSection::Tcp, max, out);
}

fn ratio(view: &Places<'_>, numerator: &str, denominator: &str, out: &mut Vec<Measurement>) {
    let ratio = |space: &Place<'_, _>| {
        let (numerator, denominator) = (counter(space, &[numerator]), counter(space, &[denominator]));
        let facts = [numerator, denominator].map(|per_s| format!("{} per second", format_count(per_s)));
        (denominator >= SEGMENTS_MIN_PER_S).then_some((numerator / denominator, facts))
    };
    each(&view.namespaces, ScreenSection::Tcp, ratio, out);
}

pub(super) fn retransmits(view: &Places<'_>, out: &mut Vec<Measurement>) {
    ratio(view, "Tcp.RetransSegs", "Tcp.OutSegs", out);
}

pub(super) fn delayed_acks(view: &Places<'_>, out: &mut Vec<Measurement>) {
    ratio(view, "TcpExt.DelayedACKs", "Tcp.InSegs", out);
}

pub(super) fn tcp_memory(view: &Places<'_>, out: &mut Vec<Measurement>) {
    // The three values of tcp_mem: low, pressure, maximum.
    let pressure = view.window.setting("net.ipv4.tcp_mem", 1).filter(|pages| *pages > 0.0);
    let memory = |space: &Place<'_, NamespaceUse>| {
        let (pages, pressure) = (space.last.tcp_memory_pages as f64, pressure?);
        Some((pages / pressure, [pages, pressure].map(|pages| format_bytes(pages * PAGE_BYTES))))
    };
    each(&view.namespaces, ScreenSection::Tcp, memory, out);
}

/// Reads the fullest moment of each accept queue.
pub(super) fn full_accept_queues(view: &Places<'_>, out: &mut Vec<Measurement>) {
    let full = |place: &Place<'_, _>| {
        let full = place.values.max(|queue: &ListenerQueue| Some(f64::from(queue.full)))?;
        let waiting = place.values.max(|queue| Some(f64::from(queue.waiting)))?;
        Some((full, [format_count(waiting), place.last.backlog.to_string()]))
    };
    each(&view.listeners, ScreenSection::Sockets, full, out);
}

pub(super) fn accept_queue_fill(view: &Places<'_>, out: &mut Vec<Measurement>) {
    let fill = |place: &Place<'_, ListenerQueue>| {
        let waiting = place.values.max(|queue| Some(f64::from(queue.waiting)))?;
        let facts = [waiting, f::accept_capacity(place.last)].map(format_count);
        Some((place.values.max(f::ACCEPT_QUEUE.read)?, facts))
    };
    each(&view.listeners, ScreenSection::Sockets, fill, out);
}

/// Half-open connections appear at the server's end.
pub(super) fn half_open(view: &Places<'_>, out: &mut Vec<Measurement>) {
    let half_open = |place: &Place<'_, EndQueues>| {
        let mut listeners = view.listeners.iter().map(|listener| listener.last);
        let listener = listeners.find(|listener| listener.port == place.last.port && listener.backlog > 0)?;
        let half_open = in_state(place, "syn-recv");
        let facts = [format_count(half_open), listener.backlog.to_string()];
        (place.last.end == ConnectionEnd::Server).then_some((half_open / f::accept_capacity(listener), facts))
    };
    each(&view.ends, ScreenSection::Sockets, half_open, out);
}

/// Returns the median number of connections in a state.
pub(super) fn in_state(place: &Place<'_, EndQueues>, state: &str) -> f64 {
    place.values.median_of(|end| end.count_in_state(state) as f64)
}

pub(super) fn local_port_fill(view: &Places<'_>, out: &mut Vec<Measurement>) {
    let port_fill = |place: &Place<'_, EndQueues>| {
        let available = view.window.local_port_count()?;
        let used = place.values.median(f::LOCAL_PORTS.read)?;
        let facts = [format!("{used:.0}"), format!("{available:.0}")];
        (place.last.end == ConnectionEnd::Client).then_some((used / available, facts))
    };
    each(&view.ends, ScreenSection::Sockets, port_fill, out);
}

fn unread(view: &Places<'_>, side: ConnectionEnd, out: &mut Vec<Measurement>) {
    let unread = |place: &Place<'_, EndQueues>| {
        let established = in_state(place, "established");
        let with_unread = place.values.median_of(|end| end.with_unread as f64);
        let facts = [format!("{with_unread:.0}"), format!("{established:.0}")];
        let is_meant = place.last.end == side && established >= CONNECTIONS_MIN;
        is_meant.then_some((place.values.median(f::UNREAD.read)?, facts))
    };
    each(&view.ends, ScreenSection::Sockets, unread, out);
}

pub(super) fn unread_server(view: &Places<'_>, out: &mut Vec<Measurement>) {
    unread(view, ConnectionEnd::Server, out);
}

pub(super) fn unread_client(view: &Places<'_>, out: &mut Vec<Measurement>) {
    unread(view, ConnectionEnd::Client, out);
}

/// Returns the time in which the sockets of an end were limited, as a fraction of their busy time.
pub(super) fn limited_fraction(
    place: &Place<'_, EndQueues>,
    limited_us: fn(&EndQueues) -> u64,
) -> Option<f64> {
    let busy_us = place.values.growth(|end| end.busy_us as f64);
    (busy_us > 0.0).then(|| place.values.growth(|end| limited_us(end) as f64) / busy_us)
}

fn limited(view: &Places<'_>, limited_us: fn(&EndQueues) -> u64, out: &mut Vec<Measurement>) {
    let limited = |place: &Place<'_, _>| Some((limited_fraction(place, limited_us)?, no_facts()));
    each(&view.ends, ScreenSection::Sockets, limited, out);
}

pub(super) fn receive_window(view: &Places<'_>, out: &mut Vec<Measurement>) {
    limited(view, |end| end.receive_window_limited_us, out);
}

pub(super) fn send_buffer(view: &Places<'_>, out: &mut Vec<Measurement>) {
    limited(view, |end| end.send_buffer_limited_us, out);
}

pub(super) fn bufferbloat(view: &Places<'_>, out: &mut Vec<Measurement>) {
    let round_trip = |place: &Place<'_, EndQueues>| {
        let (rtt_us, min_us) =
            (place.values.median_of(|end| end.rtt_us), place.values.median_of(|end| end.rtt_min_us));
        let has_queue = rtt_us > RTT_MIN_US && place.values.median(f::NOT_SENT.read)? > 0.0;
        let facts = [rtt_us, min_us].map(|us| format_duration_ns((us * 1e3) as u64));
        has_queue.then_some((place.values.median(f::ROUND_TRIP.read)?, facts))
    };
    each(&view.ends, ScreenSection::Sockets, round_trip, out);
}

pub(super) fn not_sent_bytes(view: &Places<'_>, out: &mut Vec<Measurement>) {
    let not_sent = |place: &Place<'_, _>| Some((place.values.median(f::NOT_SENT.read)?, no_facts()));
    each(&view.ends, ScreenSection::Sockets, not_sent, out);
}

/// Reads 1 for a process that has ended.
pub(super) fn ended_processes(view: &Places<'_>, out: &mut Vec<Measurement>) {
    let has_ended =
        |role: &Place<'_, RoleUse>| Some((f64::from(u8::from(role.last.processes == 0)), no_facts()));
    each(&view.roles, ScreenSection::Processes, has_ended, out);
}

pub(super) fn descriptors(view: &Places<'_>, out: &mut Vec<Measurement>) {
    let fill = |role: &Place<'_, RoleUse>| {
        let facts = [role.last.descriptors?.to_string(), role.last.descriptors_max?.to_string()];
        Some(((f::DESCRIPTORS.read)(role.last)?, facts))
    };
    each(&view.roles, ScreenSection::Processes, fill, out);
}

pub(super) fn memory_limit_fill(view: &Places<'_>, out: &mut Vec<Measurement>) {
    let fill = |role: &Place<'_, RoleUse>| {
        let max = role.last.cgroup.as_ref()?.memory_max_bytes?;
        let facts = [f::charged_bytes(role.last)?, max].map(|bytes| format_bytes(bytes as f64));
        Some(((f::MEMORY_USED.read)(role.last)?, facts))
    };
    each(&view.roles, ScreenSection::Processes, fill, out);
}

pub(super) fn throttled(view: &Places<'_>, out: &mut Vec<Measurement>) {
    let throttling = |role: &Place<'_, RoleUse>| {
        let cgroup = role.last.cgroup.as_ref()?;
        let period_ns = cgroup.period_s.unwrap_or(0.1) * 1e9;
        let quota = cgroup.quota_cpus.map_or_else(|| "-".to_owned(), |cpus| format!("{cpus:.2}"));
        let facts = [quota, format_duration_ns(period_ns as u64)];
        Some((role.values.mean(f::THROTTLED_PERIODS.read)?, facts))
    };
    each(&view.roles, ScreenSection::Processes, throttling, out);
}

pub(super) fn disk_limit_fill(view: &Places<'_>, out: &mut Vec<Measurement>) {
    let fill = |role: &Place<'_, RoleUse>| {
        let max = role.last.cgroup.as_ref()?.disk_write_max_bytes_per_s?;
        let facts = [role.values.mean(f::DISK_WRITES.read)?, max].map(format_byte_rate);
        Some((role.values.mean(f::DISK_USED.read)?, facts))
    };
    each(&view.roles, ScreenSection::Processes, fill, out);
}

pub(super) fn cpu_limit_fill(view: &Places<'_>, out: &mut Vec<Measurement>) {
    let fill = |role: &Place<'_, RoleUse>| {
        let (cpus, allowed) = (role.values.mean(f::CPUS.read)?, view.cpus_allowed(role));
        let facts = [format!("{cpus:.2}"), format!("{allowed:.2}").replace(".00", "")];
        Some((cpus / allowed, facts))
    };
    each(&view.roles, ScreenSection::Processes, fill, out);
}

pub(super) fn run_queue(view: &Places<'_>, out: &mut Vec<Measurement>) {
    let wait_ratio = |role: &Place<'_, RoleUse>| {
        let running = role.values.mean(f::RUNNING.read).filter(|running| *running > ROLE_CPUS_MIN)?;
        Some((role.values.mean(f::WAITING.read)? / running, no_facts()))
    };
    each(&view.roles, ScreenSection::Processes, wait_ratio, out);
}

fn measure_threads(
    view: &Places<'_>,
    facts_of: impl Fn(&[ThreadCpuUse], &ThreadCpuUse) -> Option<[String; 2]>,
    out: &mut Vec<Measurement>,
) {
    for role in &view.roles {
        let all = threads(role);
        for thread in all.iter().take(THREADS_MAX) {
            let reading = facts_of(&all, thread).map(|facts| (thread.busy, facts));
            push(ScreenSection::Processes, &thread_label(role, thread), reading, out);
        }
    }
}

pub(super) fn busy_thread(view: &Places<'_>, out: &mut Vec<Measurement>) {
    measure_threads(view, |_, _| Some(no_facts()), out);
}

/// Reads a busy thread while the machine and the other threads of its process are idle.
pub(super) fn single_busy_thread(view: &Places<'_>, out: &mut Vec<Measurement>) {
    let busy = view.machine.mean(f::ALL_CPUS.read).filter(|_| view.cpus.len() > 1);
    let idle = 1.0 - busy.unwrap_or(1.0);
    let is_single = |all: &[ThreadCpuUse], thread: &ThreadCpuUse| {
        let mut others = all.iter().filter(|other| other.tid != thread.tid);
        let limited = idle > IDLE_MIN && others.all(|other| other.busy < thread.busy * 0.7);
        limited.then(|| [percent(idle), String::new()])
    };
    measure_threads(view, is_single, out);
}

pub(super) fn machine_busy(view: &Places<'_>, out: &mut Vec<Measurement>) {
    let facts = [view.cpus.len().to_string(), String::new()];
    let reading = view.machine.mean(f::ALL_CPUS.read).map(|busy| (busy, facts));
    push(ScreenSection::Cpus, places::MACHINE, reading, out);
}

pub(super) fn other_processes(view: &Places<'_>, out: &mut Vec<Measurement>) {
    let count = view.cpus.len();
    let foreign = view.foreign_cpus().filter(|_| count > 0);
    let named = format_neighbours(&view.window.observed.neighbours);
    let of =
        if named.is_empty() { format!("{count} CPUs") } else { format!("{count} CPUs, above all {named}") };
    let reading = foreign.map(|cpus| (cpus / count as f64, [format!("{cpus:.2}"), of]));
    push(ScreenSection::Cpus, places::MACHINE, reading, out);
}

pub(super) fn softirq_on_one_cpu(view: &Places<'_>, out: &mut Vec<Measurement>) {
    let softirq = |cpu: &Place<'_, _>| {
        let others = view.cpus.iter().filter(|other| other.label != cpu.label);
        let max = others.filter_map(|other| other.values.mean(f::SOFTIRQ.read)).reduce(f64::max)?;
        let facts = [format!("max {}", percent(max)), percent(cpu.values.mean(f::CPU_USED.read)?)];
        (max < SOFTIRQ_OTHERS_MAX).then_some((cpu.values.mean(f::SOFTIRQ.read)?, facts))
    };
    each(&view.cpus, ScreenSection::Cpus, softirq, out);
}

pub(super) fn link_fill(view: &Places<'_>, out: &mut Vec<Measurement>) {
    for direction in [f::link_use_sent, f::link_use_received] {
        let fill = |link: &Place<'_, _>| {
            let bits_per_s = link.values.mean(|link_use| Some(direction(link_use)?.bits_per_s))?;
            let facts = [bits_per_s, direction(link.last)?.max_bits_per_s].map(format_bit_rate);
            Some((link.values.mean(|link_use| Some(direction(link_use)?.used_fraction()))?, facts))
        };
        each(&view.links, ScreenSection::Links, fill, out);
    }
}

pub(super) fn queue_delay(view: &Places<'_>, out: &mut Vec<Measurement>) {
    for link in &view.links {
        for (index, queue) in link.last.queues.iter().enumerate() {
            let bytes = link.values.mean(|link_use| Some(link_use.queues.get(index)?.backlog_bytes as f64));
            let delay_ns = link.values.mean(|link_use| (f::QUEUE_DELAY.read)(link_use.queues.get(index)?));
            let reading = delay_ns.zip(bytes);
            let reading = reading.map(|(ns, bytes)| (ns, [format_bytes(bytes), queue.kind.clone()]));
            push(ScreenSection::Links, &link.label, reading, out);
        }
    }
}

pub(super) fn link_drops(view: &Places<'_>, out: &mut Vec<Measurement>) {
    let drops = |link: &Place<'_, LinkUse>| {
        let received = link.values.mean_of(|link_use| link_use.rx_drops_per_s);
        let sent = link.values.mean_of(f::sent_drops_per_s);
        let text = format!("{} received, {} sent", format_count(received), format_count(sent));
        Some((link.values.mean(f::LINK_DROPS.read)?, [text, String::new()]))
    };
    each(&view.links, ScreenSection::Links, drops, out);
}

pub(super) fn exceeded_allowances(view: &Places<'_>, out: &mut Vec<Measurement>) {
    for link in &view.links {
        for (name, per_s) in driver_counters(link) {
            if name.ends_with("_allowance_exceeded") {
                push(ScreenSection::Links, &link.label, Some((per_s, [name.to_owned(), String::new()])), out);
            }
        }
    }
}

/// Returns the means of the driver's counters; samples omit those that did not change.
pub(super) fn driver_counters<'a>(link: &Place<'a, LinkUse>) -> Vec<(&'a str, f64)> {
    let mut names: Vec<&str> =
        link.values.values().flat_map(|link_use| link_use.driver.keys()).map(String::as_str).collect();
    names.sort_unstable();
    names.dedup();
    let mean = |name: &str| link.values.mean_of(|link_use| link_use.driver.get(name).copied().unwrap_or(0.0));
    names.into_iter().map(|name| (name, mean(name))).collect()
}

pub(super) fn conntrack_fill(view: &Places<'_>, out: &mut Vec<Measurement>) {
    let fill = |last: &MachineSample| {
        let table = last.conntrack?;
        let facts = [table.entries, table.entries_max].map(|count| count.to_string());
        Some(((f::CONNTRACK_USED.read)(last)?, facts))
    };
    push(ScreenSection::Machine, places::CONNTRACK, view.machine.last().and_then(fill), out);
}

pub(super) fn conntrack_drops(view: &Places<'_>, out: &mut Vec<Measurement>) {
    let reading = view.machine.mean(f::CONNTRACK_DROPS.read).map(|drops| (drops, no_facts()));
    push(ScreenSection::Machine, places::CONNTRACK, reading, out);
}

pub(super) fn pressure(
    view: &Places<'_>,
    figure: fn(&MachineSample) -> Option<f64>,
    out: &mut Vec<Measurement>,
) {
    let reading = view.machine.mean(figure).map(|fraction| (fraction, no_facts()));
    push(ScreenSection::Machine, places::PRESSURE, reading, out);
}

/// Reads the median of the percentiles: they cannot be averaged.
pub(super) fn wakeup_latency(view: &Places<'_>, out: &mut Vec<Measurement>) {
    let lag = |probe: &Place<'_, WakeupLag>| {
        let max_ns = probe.values.values().map(|lag| lag.lag_max_ns).max()?;
        Some((probe.values.median(f::WAKE_UP_LAG.read)?, [format_duration_ns(max_ns), String::new()]))
    };
    each(&view.wakeup_lags, ScreenSection::Machine, lag, out);
}
