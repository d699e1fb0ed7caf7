//! The lines of each section, from one sample and one snapshot of the sockets.

use record::observed::{DiskUse, EndQueues, Role, RoleUse, Sample, ThreadUse};
use record::units::{format_bytes, format_count, format_duration_ns};

use super::readings::{PAGE_BYTES, counter, cpus_allowed, link_rate, state};
use super::view::{View, busy};
use super::{Cell, Line, PartKind, Section, percent};

/// Threads of each role that have a line of their own.
pub(super) const THREADS_SHOWN: usize = 4;
/// Share of a processor below which a thread has no line.
const THREAD_BUSY_MIN: f64 = 0.005;
/// Processors that have a line of their own; of more, the busiest.
const CPUS_SHOWN: usize = 64;
/// Points of a line's history.
const HISTORY_POINTS: usize = 60;

/// How lines are called; rules name them by these.
pub(super) mod label {
    use record::observed::{End, EndQueues, LinkUse, NamespaceUse, Role, ThreadUse};

    use crate::marks::view::View;

    /// The machine as a whole.
    pub(in crate::marks) const MACHINE: &str = "all";
    /// Connection tracking.
    pub(in crate::marks) const CONNTRACK: &str = "conntrack";
    /// Pressure stall information.
    pub(in crate::marks) const PRESSURE: &str = "pressure";
    /// The cost of watching.
    pub(in crate::marks) const COST: &str = "watching";

    pub(in crate::marks) fn cpu(number: u32) -> String {
        format!("cpu{number}")
    }

    pub(in crate::marks) fn canary(number: u32) -> String {
        format!("wake-up lag cpu{number}")
    }

    pub(in crate::marks) fn thread(role: &Role, thread: &ThreadUse) -> String {
        format!("{} thread {} {}", role.name, thread.tid, thread.name)
    }

    /// With its role where there are several network namespaces, in which names may be the same.
    pub(in crate::marks) fn link(view: &View<'_>, link: &LinkUse) -> String {
        match link.of_role.as_str() {
            role if !role.is_empty() && view.mean.namespaces.len() > 1 => {
                format!("{} ({role})", link.name)
            }
            _ => link.name.clone(),
        }
    }

    pub(in crate::marks) fn namespace(view: &View<'_>, namespace: &NamespaceUse) -> String {
        match view.mean.namespaces.len() {
            0 | 1 => "this network".to_owned(),
            _ if namespace.roles.is_empty() => "another network".to_owned(),
            _ => namespace.roles.join(" "),
        }
    }

    pub(in crate::marks) fn listener(port: u16) -> String {
        format!("port {port}")
    }

    pub(in crate::marks) fn end(end: &EndQueues) -> String {
        let which = match end.end {
            End::Client => "client",
            End::Server => "server",
        };
        format!("port {} {which}", end.port)
    }
}

/// All sections but the first.
pub(super) fn all(view: &View<'_>) -> Vec<Line> {
    let mut lines = Vec::new();
    if !view.observed.samples.is_empty() {
        processors(view, &mut lines);
        programs(view, &mut lines);
        links(view, &mut lines);
        tcp(view, &mut lines);
        sockets(view, &mut lines);
        machine(view, &mut lines);
    }
    for missing in &view.observed.not_observable {
        let cells = vec![Cell::new("", missing.why.clone())];
        lines.push(Line::new(Section::NotObservable, missing.what.clone(), cells));
    }
    lines
}

/// A figure of each of the last samples.
fn history(view: &View<'_>, of: impl Fn(&Sample) -> Option<f64>) -> Vec<f64> {
    let samples = &view.observed.samples;
    let skipped = samples.len().saturating_sub(HISTORY_POINTS);
    samples[skipped..].iter().map(|sample| of(sample).unwrap_or(0.0)).collect()
}

/// A figure that the machine may not tell.
fn or_dash<T>(value: Option<T>, text: impl Fn(T) -> String) -> String {
    value.map_or_else(|| "-".to_owned(), text)
}

fn per_s(bytes: f64) -> String {
    format!("{}/s", format_bytes(bytes))
}

/// A rate, without digits that say nothing.
fn rate(per_s: f64) -> String {
    match per_s {
        0.0 => "0".to_owned(),
        per_s if per_s < 10.0 => format!("{per_s:.1}"),
        per_s => format_count(per_s.round()),
    }
}

fn microseconds(us: f64) -> String {
    if us > 0.0 { format_duration_ns((us * 1e3) as u64) } else { "-".to_owned() }
}

fn processors(view: &View<'_>, lines: &mut Vec<Line>) {
    let count = view.mean.cpus.len();
    let all = view.busy_cpus();
    let cells = vec![
        Cell::new("busy", format!("{all:.2} of {count}")),
        Cell::new("others", or_dash(view.mean.foreign_cpus, |cpus| format!("{cpus:.2}"))),
        Cell::new("runnable", or_dash(view.mean.runnable, |tasks| tasks.to_string())),
        Cell::new("switches/s", or_dash(view.mean.context_switches_per_s, rate)),
    ];
    let busy_cpus = |sample: &Sample| {
        let busy: f64 = sample.cpus.iter().map(busy).sum();
        Some(busy / sample.cpus.len().max(1) as f64)
    };
    let share = (count > 0).then(|| all / count as f64);
    let machine = Line::new(Section::Processors, label::MACHINE, cells).share(share);
    lines.push(machine.history(history(view, busy_cpus)));
    let mut cpus = view.mean.cpus.clone();
    cpus.sort_by(|one, other| busy(other).total_cmp(&busy(one)));
    cpus.truncate(CPUS_SHOWN);
    cpus.sort_by_key(|cpu| cpu.cpu);
    for cpu in &cpus {
        let cells = vec![
            Cell::new("busy", percent(busy(cpu))),
            Cell::new("user", percent(cpu.user)),
            Cell::new("system", percent(cpu.system)),
            Cell::new("softirq", percent(cpu.softirq)),
            Cell::new("irq", percent(cpu.irq)),
            Cell::new("steal", percent(cpu.steal)),
            Cell::new("packets/s", rate(cpu.packets_per_s)),
            Cell::new("net_rx/s", rate(cpu.net_rx_per_s)),
            Cell::new("rps/s", rate(cpu.received_rps_per_s)),
            Cell::new("interrupts/s", rate(cpu.interrupts_per_s)),
            Cell::new("drops/s", rate(cpu.backlog_drops_per_s)),
            Cell::new("squeezes/s", rate(cpu.time_squeezes_per_s)),
        ];
        let parts = vec![
            (PartKind::User, cpu.user),
            (PartKind::System, cpu.system),
            (PartKind::Interrupt, cpu.irq + cpu.softirq),
            (PartKind::Steal, cpu.steal),
        ];
        let of = |sample: &Sample| sample.cpus.iter().find(|other| other.cpu == cpu.cpu).map(busy);
        let line = Line::new(Section::Processors, label::cpu(cpu.cpu), cells);
        lines.push(line.parts(parts).history(history(view, of)));
    }
    if count > CPUS_SHOWN {
        let more = format!("less busy processors that are not shown: {}", count - CPUS_SHOWN);
        lines.push(Line::new(Section::Processors, "", vec![Cell::new("", more)]));
    }
}

fn programs(view: &View<'_>, lines: &mut Vec<Line>) {
    for (at, (role, used)) in view.roles().enumerate() {
        let cpus =
            |sample: &Sample| sample.roles.get(at).map(|used| used.user_cpus + used.system_cpus);
        lines.push(program(role, used).history(history(view, cpus)));
    }
    let mut shown = 0;
    for (role, used) in view.roles() {
        let busy = used.threads.iter().filter(|thread| thread.busy > THREAD_BUSY_MIN);
        for thread in busy.take(THREADS_SHOWN) {
            lines.push(thread_line(role, thread));
            shown += 1;
        }
    }
    let total: u32 = view.roles().map(|(_, used)| used.threads_total).sum();
    if shown > 0 && u64::from(total) > shown {
        let more = format!("less busy threads that are not shown: {}", u64::from(total) - shown);
        lines.push(Line::new(Section::Programs, "", vec![Cell::new("", more)]));
    }
}

/// Time that a role's threads waited for a processor, as a share of the time.
fn waiting(used: &RoleUse) -> Option<f64> {
    used.threads.iter().map(|thread| thread.waiting).sum()
}

fn program(role: &Role, used: &RoleUse) -> Line {
    let allowed = cpus_allowed(role, used);
    let cpus = used.user_cpus + used.system_cpus;
    let of_limit = used.descriptors.zip(used.descriptors_max);
    let cgroup = used.cgroup.as_ref();
    let bound = cgroup.and_then(|cgroup| cgroup.memory_max_bytes);
    let memory = or_dash(used.resident_bytes, |bytes| format_bytes(bytes as f64));
    let cells = vec![
        Cell::new("cpus", format!("{cpus:.2} of {}", format!("{allowed:.2}").replace(".00", ""))),
        Cell::new("user", format!("{:.2}", used.user_cpus)),
        Cell::new("system", format!("{:.2}", used.system_cpus)),
        Cell::new("waits", or_dash(waiting(used), percent)),
        Cell::new("throttled", or_dash(cgroup.and_then(|group| group.throttled_periods), percent)),
        Cell::new("fds", or_dash(of_limit, |(open, most)| format!("{open} of {most}"))),
        Cell::new("memory", memory),
        Cell::new("of bound", or_dash(bound, |bytes| format_bytes(bytes as f64))),
        Cell::new("switches/s", rate(used.voluntary_switches_per_s)),
        Cell::new("forced/s", rate(used.involuntary_switches_per_s)),
        Cell::new("faults/s", rate(used.minor_faults_per_s + used.major_faults_per_s)),
        Cell::new("written", or_dash(used.written_bytes_per_s, per_s)),
        Cell::new("to disk", or_dash(used.disk_write_bytes_per_s, per_s)),
        Cell::new("disk of group", or_dash(cgroup.and_then(|group| group.disk), disk)),
        Cell::new("processes", used.processes.to_string()),
        Cell::new("threads", used.threads_total.to_string()),
    ];
    let parts = vec![
        (PartKind::User, used.user_cpus / allowed),
        (PartKind::System, used.system_cpus / allowed),
    ];
    Line::new(Section::Programs, role.name.clone(), cells).parts(parts)
}

fn disk(used: DiskUse) -> String {
    let (read, written) = (per_s(used.read_bytes_per_s), per_s(used.written_bytes_per_s));
    format!("{read} read {written} written")
}

fn thread_line(role: &Role, thread: &ThreadUse) -> Line {
    let cells = vec![
        Cell::new("busy", percent(thread.busy)),
        Cell::new("waits", or_dash(thread.waiting, percent)),
        Cell::new("on", label::cpu(thread.cpu)),
    ];
    Line::new(Section::Programs, label::thread(role, thread), cells).share(Some(thread.busy))
}

fn links(view: &View<'_>, lines: &mut Vec<Line>) {
    for link in &view.mean.links {
        let waiting: u64 = link.queues.iter().map(|queue| queue.backlog_bytes).sum();
        let dropped: f64 = link.queues.iter().map(|queue| queue.drops_per_s).sum();
        let speed = link_rate(link);
        let cells = vec![
            Cell::new("in", per_s(link.rx_bytes_per_s)),
            Cell::new("out", per_s(link.tx_bytes_per_s)),
            Cell::new("packets in/s", rate(link.rx_packets_per_s)),
            Cell::new("out/s", rate(link.tx_packets_per_s)),
            Cell::new("drops/s", rate(link.rx_drops_per_s + link.tx_drops_per_s.max(dropped))),
            Cell::new("waiting", format_bytes(waiting as f64)),
            Cell::new("speed", or_dash(speed, |bits| format!("{}bit/s", format_count(bits)))),
        ];
        let most = link.rx_bytes_per_s.max(link.tx_bytes_per_s) * 8.0;
        let of = |sample: &Sample| {
            let same = sample
                .links
                .iter()
                .find(|other| other.name == link.name && other.of_role == link.of_role)?;
            let most = same.rx_bytes_per_s.max(same.tx_bytes_per_s);
            Some(speed.map_or(most, |speed| most * 8.0 / speed))
        };
        let line = Line::new(Section::Links, label::link(view, link), cells);
        lines.push(line.share(speed.map(|speed| most / speed)).history(history(view, of)));
        for (name, per_s) in &link.driver {
            let label = format!("{} {name}", link.name);
            let cells = vec![Cell::new("", format!("{} a second", rate(*per_s)))];
            lines.push(Line::new(Section::Links, label, cells));
        }
    }
}

fn tcp(view: &View<'_>, lines: &mut Vec<Line>) {
    for namespace in &view.mean.namespaces {
        let of = |name: &str| counter(namespace, name);
        let sum = |names: &[&str]| rate(names.iter().map(|name| of(name)).sum());
        let sent = of("Tcp.OutSegs");
        let again = if sent > 0.0 { of("Tcp.RetransSegs") / sent } else { 0.0 };
        let cookies = ["TcpExt.SyncookiesSent", "TcpExt.TCPReqQFullDrop"];
        let pressure = ["TcpExt.TCPMemoryPressures", "TcpExt.PruneCalled", "TcpExt.RcvPruned"];
        let cells = vec![
            Cell::new("opened/s", sum(&["Tcp.ActiveOpens"])),
            Cell::new("accepted/s", sum(&["Tcp.PassiveOpens"])),
            Cell::new("in use", namespace.tcp_in_use.to_string()),
            Cell::new("sent again", percent(again)),
            Cell::new("timeouts/s", sum(&["TcpExt.TCPTimeouts"])),
            Cell::new("overflows/s", sum(&["TcpExt.ListenOverflows"])),
            Cell::new("cookies/s", sum(&cookies)),
            Cell::new("resets/s", sum(&["Tcp.EstabResets", "Tcp.AttemptFails"])),
            Cell::new("segments in/s", sum(&["Tcp.InSegs"])),
            Cell::new("out/s", sum(&["Tcp.OutSegs"])),
            Cell::new("time-wait", namespace.time_wait.to_string()),
            Cell::new("orphans", namespace.orphans.to_string()),
            Cell::new("memory", format_bytes(namespace.tcp_memory_pages as f64 * PAGE_BYTES)),
            Cell::new("pressure/s", sum(&pressure)),
            Cell::new("late acks/s", sum(&["TcpExt.DelayedACKs"])),
        ];
        let of = |sample: &Sample| {
            let mut all = sample.namespaces.iter();
            let same = all.find(|other| other.roles == namespace.roles)?;
            Some(counter(same, "Tcp.OutSegs"))
        };
        let line = Line::new(Section::Tcp, label::namespace(view, namespace), cells);
        lines.push(line.history(history(view, of)));
    }
}

fn sockets(view: &View<'_>, lines: &mut Vec<Line>) {
    for listener in &view.queues.listeners {
        let room = f64::from(listener.backlog) * f64::from(listener.sockets.max(1));
        let cells = vec![
            Cell::new("to accept", listener.waiting.to_string()),
            Cell::new("backlog", listener.backlog.to_string()),
            Cell::new("full", format!("{} of {}", listener.full, listener.sockets)),
        ];
        let share = (room > 0.0).then(|| f64::from(listener.waiting) / room);
        lines.push(Line::new(Section::Sockets, label::listener(listener.port), cells).share(share));
    }
    for end in &view.queues.ends {
        let established = state(end, "established");
        let known = ["established", "time-wait"];
        let others: Vec<String> = end
            .states
            .iter()
            .filter(|(state, count)| !known.contains(&state.as_str()) && **count > 0)
            .map(|(state, count)| format!("{state} {count}"))
            .collect();
        let limited =
            |us: u64| or_dash((end.busy_us > 0).then(|| us as f64 / end.busy_us as f64), percent);
        let cells = vec![
            Cell::new("open", established.to_string()),
            Cell::new("unread on", end.with_unread.to_string()),
            Cell::new("unread", format_bytes(end.unread_bytes as f64)),
            Cell::new("in flight", format_bytes(end.unsent_bytes as f64)),
            Cell::new("rtt", microseconds(end.rtt_us)),
            Cell::new("least", microseconds(end.rtt_min_us)),
            Cell::new("time-wait", state(end, "time-wait").to_string()),
            Cell::new("not sent", format_bytes(end.not_sent_bytes as f64)),
            Cell::new("window full", limited(end.receive_window_limited_us)),
            Cell::new("buffer full", limited(end.send_buffer_limited_us)),
            Cell::new("sent again", sent_again(end)),
            Cell::new(
                "other states",
                if others.is_empty() { "-".into() } else { others.join(" ") },
            ),
        ];
        let share = (established > 0).then(|| end.with_unread as f64 / established as f64);
        lines.push(Line::new(Section::Sockets, label::end(end), cells).share(share));
    }
}

/// Segments, with what newer kernels tell of them.
fn sent_again(end: &EndQueues) -> String {
    let mut text = end.retransmitted.to_string();
    if let Some(bytes) = end.retransmitted_bytes.filter(|bytes| *bytes > 0) {
        text += &format!(" of {}", format_bytes(bytes as f64));
    }
    if let Some(duplicates) = end.duplicates.filter(|count| *count > 0) {
        text += &format!(", {duplicates} for nothing");
    }
    text
}

fn machine(view: &View<'_>, lines: &mut Vec<Line>) {
    if let Some(pressure) = &view.mean.pressure {
        let cells = vec![
            Cell::new("cpu some", percent(pressure.cpu_some)),
            Cell::new("memory some", percent(pressure.memory_some)),
            Cell::new("full", percent(pressure.memory_full)),
            Cell::new("io some", percent(pressure.io_some)),
            Cell::new("full", percent(pressure.io_full)),
        ];
        lines.push(Line::new(Section::Machine, label::PRESSURE, cells));
    }
    if let Some(table) = view.mean.conntrack {
        let share = table.entries as f64 / table.entries_max.max(1) as f64;
        let failures = table.early_drops_per_s + table.insert_failures_per_s;
        let cells = vec![
            Cell::new("entries", format!("{} of {}", table.entries, table.entries_max)),
            Cell::new("drops/s", rate(table.drops_per_s)),
            Cell::new("failures/s", rate(failures)),
        ];
        lines.push(Line::new(Section::Machine, label::CONNTRACK, cells).share(Some(share)));
    }
    for canary in view.mean.canaries.iter().take(CPUS_SHOWN) {
        let cells = vec![
            Cell::new("median", format_duration_ns(canary.lag_p50_ns)),
            Cell::new("99 %", format_duration_ns(canary.lag_p99_ns)),
            Cell::new("most", format_duration_ns(canary.lag_max_ns)),
        ];
        let of = |sample: &Sample| {
            let same = sample.canaries.iter().find(|other| other.cpu == canary.cpu);
            same.map(|canary| canary.lag_p99_ns as f64)
        };
        let line = Line::new(Section::Machine, label::canary(canary.cpu), cells);
        lines.push(line.history(history(view, of)));
    }
    let cost = format!("costs {} of one core", percent(view.observed.cost_cpus));
    lines.push(Line::new(Section::Machine, label::COST, vec![Cell::new("", cost)]));
}
