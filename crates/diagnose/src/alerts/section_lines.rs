//! Lines of each section, from one sample and one snapshot of the sockets.

use record::observed::{DiskUse, EndQueues, MachineSample, Role, RoleUse, ThreadCpuUse};
use record::units::{format_bit_rate, format_byte_rate, format_bytes, format_count, format_duration_ns};

use super::measurements::{PAGE_BYTES, accept_capacity, counter, cpus_allowed, link_rate};
use super::observation_window::{ObservationWindow, busy_fraction};
use super::{BarPart, ScreenCell, ScreenLine, ScreenSection, percent};

/// Maximum number of threads of each role with a line of their own.
pub(super) const THREADS_MAX: usize = 4;
/// Busy fraction of a CPU below which a thread has no line.
const THREAD_BUSY_MIN: f64 = 0.005;
/// Maximum number of CPUs with a line of their own, the busiest first.
const CPUS_MAX: usize = 64;
/// Maximum number of points of a line's history.
const HISTORY_POINTS: usize = 60;

/// Labels of lines; rules refer to lines by them.
pub(super) mod labels {
    use record::observed::{ConnectionEnd, EndQueues, LinkUse, NamespaceUse, Role, ThreadCpuUse};

    use crate::alerts::observation_window::ObservationWindow;

    /// The complete machine.
    pub(in crate::alerts) const MACHINE: &str = "all";
    /// Connection tracking.
    pub(in crate::alerts) const CONNTRACK: &str = "conntrack";
    /// Pressure stall information.
    pub(in crate::alerts) const PRESSURE: &str = "pressure";
    /// Cost of the observation.
    pub(in crate::alerts) const OBSERVATION_COST: &str = "observation cost";

    pub(in crate::alerts) fn cpu(number: u32) -> String {
        format!("cpu{number}")
    }

    pub(in crate::alerts) fn wakeup_probe(number: u32) -> String {
        format!("wakeup latency cpu{number}")
    }

    pub(in crate::alerts) fn thread(role: &Role, thread: &ThreadCpuUse) -> String {
        format!("{} thread {} {}", role.name, thread.tid, thread.name)
    }

    /// Returns the label of an interface. It contains the role if there are several network
    /// namespaces, in which names may be the same.
    pub(in crate::alerts) fn link(view: &ObservationWindow<'_>, link: &LinkUse) -> String {
        match link.role.as_str() {
            role if !role.is_empty() && view.mean.namespaces.len() > 1 => {
                format!("{} ({role})", link.name)
            }
            _ => link.name.clone(),
        }
    }

    pub(in crate::alerts) fn namespace(view: &ObservationWindow<'_>, namespace: &NamespaceUse) -> String {
        match view.mean.namespaces.len() {
            0 | 1 => "this network".to_owned(),
            _ if namespace.roles.is_empty() => "another network".to_owned(),
            _ => namespace.roles.join(" "),
        }
    }

    pub(in crate::alerts) fn listener(port: u16) -> String {
        format!("port {port}")
    }

    pub(in crate::alerts) fn end(end: &EndQueues) -> String {
        let which = match end.end {
            ConnectionEnd::Client => "client",
            ConnectionEnd::Server => "server",
        };
        format!("port {} {which}", end.port)
    }
}

/// Returns the lines of all sections but the first.
pub(super) fn all_lines(view: &ObservationWindow<'_>) -> Vec<ScreenLine> {
    let mut lines = Vec::new();
    if !view.observed.samples.is_empty() {
        cpu_lines(view, &mut lines);
        process_lines(view, &mut lines);
        link_lines(view, &mut lines);
        tcp_lines(view, &mut lines);
        socket_lines(view, &mut lines);
        machine_lines(view, &mut lines);
    }
    for missing in &view.observed.not_observable {
        let cells = vec![ScreenCell::new("", missing.reason.clone())];
        lines.push(ScreenLine::new(ScreenSection::NotObservable, missing.figure.clone(), cells));
    }
    lines
}

/// Returns a figure of each of the last samples.
fn history(view: &ObservationWindow<'_>, figure: impl Fn(&MachineSample) -> Option<f64>) -> Vec<f64> {
    let samples = &view.observed.samples;
    let skipped = samples.len().saturating_sub(HISTORY_POINTS);
    samples[skipped..].iter().map(|sample| figure(sample).unwrap_or(0.0)).collect()
}

/// Formats a figure that the machine may not provide.
fn or_dash<T>(value: Option<T>, format: impl Fn(T) -> String) -> String {
    value.map_or_else(|| "-".to_owned(), format)
}

/// Formats a rate without insignificant digits.
fn rate_text(per_s: f64) -> String {
    match per_s {
        0.0 => "0".to_owned(),
        per_s if per_s < 10.0 => format!("{per_s:.1}"),
        per_s => format_count(per_s.round()),
    }
}

fn microseconds_text(us: f64) -> String {
    if us > 0.0 { format_duration_ns((us * 1e3) as u64) } else { "-".to_owned() }
}

fn cpu_lines(view: &ObservationWindow<'_>, lines: &mut Vec<ScreenLine>) {
    let count = view.mean.cpus.len();
    let busy_count = view.busy_cpus();
    let cells = vec![
        ScreenCell::new("busy", format!("{busy_count:.2} of {count}")),
        ScreenCell::new("other processes", or_dash(view.mean.foreign_cpus, |cpus| format!("{cpus:.2}"))),
        ScreenCell::new("runnable", or_dash(view.mean.runnable, |tasks| tasks.to_string())),
        ScreenCell::new("switches/s", or_dash(view.mean.context_switches_per_s, rate_text)),
    ];
    let busy_cpus = |sample: &MachineSample| {
        let busy: f64 = sample.cpus.iter().map(busy_fraction).sum();
        Some(busy / sample.cpus.len().max(1) as f64)
    };
    let utilization = (count > 0).then(|| busy_count / count as f64);
    let machine = ScreenLine::new(ScreenSection::Cpus, labels::MACHINE, cells).with_utilization(utilization);
    lines.push(machine.with_history(history(view, busy_cpus)));
    let mut cpus = view.mean.cpus.clone();
    cpus.sort_by(|one, other| busy_fraction(other).total_cmp(&busy_fraction(one)));
    cpus.truncate(CPUS_MAX);
    cpus.sort_by_key(|cpu| cpu.cpu);
    for cpu in &cpus {
        let cells = vec![
            ScreenCell::new("busy", percent(busy_fraction(cpu))),
            ScreenCell::new("user", percent(cpu.user)),
            ScreenCell::new("system", percent(cpu.system)),
            ScreenCell::new("softirq", percent(cpu.softirq)),
            ScreenCell::new("irq", percent(cpu.irq)),
            ScreenCell::new("steal", percent(cpu.steal)),
            ScreenCell::new("packets/s", rate_text(cpu.packets_per_s)),
            ScreenCell::new("net_rx/s", rate_text(cpu.net_rx_per_s)),
            ScreenCell::new("rps/s", rate_text(cpu.received_rps_per_s)),
            ScreenCell::new("interrupts/s", rate_text(cpu.interrupts_per_s)),
            ScreenCell::new("drops/s", rate_text(cpu.backlog_drops_per_s)),
            ScreenCell::new("squeezes/s", rate_text(cpu.time_squeezes_per_s)),
        ];
        let parts = vec![
            (BarPart::User, cpu.user),
            (BarPart::System, cpu.system),
            (BarPart::Interrupt, cpu.irq + cpu.softirq),
            (BarPart::Steal, cpu.steal),
        ];
        let busy_of_cpu =
            |sample: &MachineSample| sample.cpus.iter().find(|other| other.cpu == cpu.cpu).map(busy_fraction);
        let line = ScreenLine::new(ScreenSection::Cpus, labels::cpu(cpu.cpu), cells);
        lines.push(line.with_parts(parts).with_history(history(view, busy_of_cpu)));
    }
    if count > CPUS_MAX {
        let more = format!("{} less busy CPUs not shown", count - CPUS_MAX);
        lines.push(ScreenLine::new(ScreenSection::Cpus, "", vec![ScreenCell::new("", more)]));
    }
}

fn process_lines(view: &ObservationWindow<'_>, lines: &mut Vec<ScreenLine>) {
    for (index, (role, used)) in view.roles().enumerate() {
        let cpus =
            |sample: &MachineSample| sample.roles.get(index).map(|used| used.user_cpus + used.system_cpus);
        lines.push(process_line(role, used).with_history(history(view, cpus)));
    }
    let mut shown = 0;
    for (role, used) in view.roles() {
        let busy = used.threads.iter().filter(|thread| thread.busy > THREAD_BUSY_MIN);
        for thread in busy.take(THREADS_MAX) {
            lines.push(thread_line(role, thread));
            shown += 1;
        }
    }
    let total: u32 = view.roles().map(|(_, used)| used.threads_total).sum();
    if shown > 0 && u64::from(total) > shown {
        let more = format!("{} less busy threads not shown", u64::from(total) - shown);
        lines.push(ScreenLine::new(ScreenSection::Processes, "", vec![ScreenCell::new("", more)]));
    }
}

/// Returns the time that the threads of a role waited for a CPU, as a fraction of the time.
fn cpu_wait_fraction(used: &RoleUse) -> Option<f64> {
    used.threads.iter().map(|thread| thread.waiting).sum()
}

fn process_line(role: &Role, used: &RoleUse) -> ScreenLine {
    let allowed = cpus_allowed(role, used);
    let cpus = used.user_cpus + used.system_cpus;
    let open_and_max = used.descriptors.zip(used.descriptors_max);
    let cgroup = used.cgroup.as_ref();
    let memory_max = cgroup.and_then(|cgroup| cgroup.memory_max_bytes);
    let memory = or_dash(used.resident_bytes, |bytes| format_bytes(bytes as f64));
    let cells = vec![
        ScreenCell::new("cpus", format!("{cpus:.2} of {}", format!("{allowed:.2}").replace(".00", ""))),
        ScreenCell::new("user", format!("{:.2}", used.user_cpus)),
        ScreenCell::new("system", format!("{:.2}", used.system_cpus)),
        ScreenCell::new("run-queue wait", or_dash(cpu_wait_fraction(used), percent)),
        ScreenCell::new("throttled", or_dash(cgroup.and_then(|group| group.throttled_periods), percent)),
        ScreenCell::new("fds", or_dash(open_and_max, |(open, max)| format!("{open} of {max}"))),
        ScreenCell::new("memory", memory),
        ScreenCell::new("memory max", or_dash(memory_max, |bytes| format_bytes(bytes as f64))),
        ScreenCell::new("switches/s", rate_text(used.voluntary_switches_per_s)),
        ScreenCell::new("involuntary/s", rate_text(used.involuntary_switches_per_s)),
        ScreenCell::new("faults/s", rate_text(used.minor_faults_per_s + used.major_faults_per_s)),
        ScreenCell::new("written", or_dash(used.written_bytes_per_s, format_byte_rate)),
        ScreenCell::new("to disk", or_dash(used.disk_write_bytes_per_s, format_byte_rate)),
        ScreenCell::new("cgroup io", or_dash(cgroup.and_then(|group| group.disk), disk_text)),
        ScreenCell::new("processes", used.processes.to_string()),
        ScreenCell::new("threads", used.threads_total.to_string()),
    ];
    let parts =
        vec![(BarPart::User, used.user_cpus / allowed), (BarPart::System, used.system_cpus / allowed)];
    ScreenLine::new(ScreenSection::Processes, role.name.clone(), cells).with_parts(parts)
}

fn disk_text(used: DiskUse) -> String {
    let (read, written) =
        (format_byte_rate(used.read_bytes_per_s), format_byte_rate(used.written_bytes_per_s));
    format!("{read} read {written} written")
}

fn thread_line(role: &Role, thread: &ThreadCpuUse) -> ScreenLine {
    let cells = vec![
        ScreenCell::new("busy", percent(thread.busy)),
        ScreenCell::new("run-queue wait", or_dash(thread.waiting, percent)),
        ScreenCell::new("on", labels::cpu(thread.cpu)),
    ];
    ScreenLine::new(ScreenSection::Processes, labels::thread(role, thread), cells)
        .with_utilization(Some(thread.busy))
}

fn link_lines(view: &ObservationWindow<'_>, lines: &mut Vec<ScreenLine>) {
    for link in &view.mean.links {
        let waiting: u64 = link.queues.iter().map(|queue| queue.backlog_bytes).sum();
        let dropped: f64 = link.queues.iter().map(|queue| queue.drops_per_s).sum();
        let speed = link_rate(link);
        let cells = vec![
            ScreenCell::new("in", format_byte_rate(link.rx_bytes_per_s)),
            ScreenCell::new("out", format_byte_rate(link.tx_bytes_per_s)),
            ScreenCell::new("packets in/s", rate_text(link.rx_packets_per_s)),
            ScreenCell::new("out/s", rate_text(link.tx_packets_per_s)),
            ScreenCell::new("drops/s", rate_text(link.rx_drops_per_s + link.tx_drops_per_s.max(dropped))),
            ScreenCell::new("waiting", format_bytes(waiting as f64)),
            ScreenCell::new("speed", or_dash(speed, format_bit_rate)),
        ];
        let max_bits_per_s = link.rx_bytes_per_s.max(link.tx_bytes_per_s) * 8.0;
        let link_load = |sample: &MachineSample| {
            let same =
                sample.links.iter().find(|other| other.name == link.name && other.role == link.role)?;
            let max_bytes_per_s = same.rx_bytes_per_s.max(same.tx_bytes_per_s);
            Some(speed.map_or(max_bytes_per_s, |speed| max_bytes_per_s * 8.0 / speed))
        };
        let line = ScreenLine::new(ScreenSection::Links, labels::link(view, link), cells);
        lines.push(
            line.with_utilization(speed.map(|speed| max_bits_per_s / speed))
                .with_history(history(view, link_load)),
        );
        for (name, per_s) in &link.driver {
            let label = format!("{} {name}", link.name);
            let cells = vec![ScreenCell::new("", format!("{} per second", rate_text(*per_s)))];
            lines.push(ScreenLine::new(ScreenSection::Links, label, cells));
        }
    }
}

fn tcp_lines(view: &ObservationWindow<'_>, lines: &mut Vec<ScreenLine>) {
    for namespace in &view.mean.namespaces {
        let counter_of = |name: &str| counter(namespace, name);
        let sum = |names: &[&str]| rate_text(names.iter().map(|name| counter_of(name)).sum());
        let sent = counter_of("Tcp.OutSegs");
        let retransmit_fraction = if sent > 0.0 { counter_of("Tcp.RetransSegs") / sent } else { 0.0 };
        let cookies = ["TcpExt.SyncookiesSent", "TcpExt.TCPReqQFullDrop"];
        let pressure = ["TcpExt.TCPMemoryPressures", "TcpExt.PruneCalled", "TcpExt.RcvPruned"];
        let cells = vec![
            ScreenCell::new("opened/s", sum(&["Tcp.ActiveOpens"])),
            ScreenCell::new("accepted/s", sum(&["Tcp.PassiveOpens"])),
            ScreenCell::new("in use", namespace.tcp_in_use.to_string()),
            ScreenCell::new("retransmits", percent(retransmit_fraction)),
            ScreenCell::new("timeouts/s", sum(&["TcpExt.TCPTimeouts"])),
            ScreenCell::new("overflows/s", sum(&["TcpExt.ListenOverflows"])),
            ScreenCell::new("cookies/s", sum(&cookies)),
            ScreenCell::new("resets/s", sum(&["Tcp.EstabResets", "Tcp.AttemptFails"])),
            ScreenCell::new("segments in/s", sum(&["Tcp.InSegs"])),
            ScreenCell::new("out/s", sum(&["Tcp.OutSegs"])),
            ScreenCell::new("time-wait", namespace.time_wait.to_string()),
            ScreenCell::new("orphans", namespace.orphans.to_string()),
            ScreenCell::new("memory", format_bytes(namespace.tcp_memory_pages as f64 * PAGE_BYTES)),
            ScreenCell::new("pressure/s", sum(&pressure)),
            ScreenCell::new("delayed acks/s", sum(&["TcpExt.DelayedACKs"])),
        ];
        let segments_out = |sample: &MachineSample| {
            let mut all = sample.namespaces.iter();
            let same = all.find(|other| other.roles == namespace.roles)?;
            Some(counter(same, "Tcp.OutSegs"))
        };
        let line = ScreenLine::new(ScreenSection::Tcp, labels::namespace(view, namespace), cells);
        lines.push(line.with_history(history(view, segments_out)));
    }
}

fn socket_lines(view: &ObservationWindow<'_>, lines: &mut Vec<ScreenLine>) {
    for listener in &view.queues.listeners {
        let capacity = accept_capacity(listener);
        let cells = vec![
            ScreenCell::new("to accept", listener.waiting.to_string()),
            ScreenCell::new("backlog", listener.backlog.to_string()),
            ScreenCell::new("full", format!("{} of {}", listener.full, listener.sockets)),
        ];
        let utilization = (capacity > 0.0).then(|| f64::from(listener.waiting) / capacity);
        lines.push(
            ScreenLine::new(ScreenSection::Sockets, labels::listener(listener.port), cells)
                .with_utilization(utilization),
        );
    }
    for end in &view.queues.ends {
        let established = end.count_in_state("established");
        let known = ["established", "time-wait"];
        let others: Vec<String> = end
            .states
            .iter()
            .filter(|(state, count)| !known.contains(&state.as_str()) && **count > 0)
            .map(|(state, count)| format!("{state} {count}"))
            .collect();
        let limited = |us: u64| or_dash((end.busy_us > 0).then(|| us as f64 / end.busy_us as f64), percent);
        let cells = vec![
            ScreenCell::new("open", established.to_string()),
            ScreenCell::new("unread on", end.with_unread.to_string()),
            ScreenCell::new("unread", format_bytes(end.unread_bytes as f64)),
            ScreenCell::new("in flight", format_bytes(end.unsent_bytes as f64)),
            ScreenCell::new("rtt", microseconds_text(end.rtt_us)),
            ScreenCell::new("min", microseconds_text(end.rtt_min_us)),
            ScreenCell::new("time-wait", end.count_in_state("time-wait").to_string()),
            ScreenCell::new("not sent", format_bytes(end.not_sent_bytes as f64)),
            ScreenCell::new("window full", limited(end.receive_window_limited_us)),
            ScreenCell::new("buffer full", limited(end.send_buffer_limited_us)),
            ScreenCell::new("retransmits", retransmit_text(end)),
            ScreenCell::new("other states", if others.is_empty() { "-".into() } else { others.join(" ") }),
        ];
        let utilization = (established > 0).then(|| end.with_unread as f64 / established as f64);
        lines.push(
            ScreenLine::new(ScreenSection::Sockets, labels::end(end), cells).with_utilization(utilization),
        );
    }
}

/// Formats retransmitted segments, with the details from newer kernels.
fn retransmit_text(end: &EndQueues) -> String {
    let mut text = end.retransmitted.to_string();
    if let Some(bytes) = end.retransmitted_bytes.filter(|bytes| *bytes > 0) {
        text += &format!(" of {}", format_bytes(bytes as f64));
    }
    if let Some(duplicates) = end.duplicates.filter(|count| *count > 0) {
        text += &format!(", {duplicates} spurious");
    }
    text
}

fn machine_lines(view: &ObservationWindow<'_>, lines: &mut Vec<ScreenLine>) {
    if let Some(pressure) = &view.mean.pressure {
        let cells = vec![
            ScreenCell::new("cpu some", percent(pressure.cpu_some)),
            ScreenCell::new("memory some", percent(pressure.memory_some)),
            ScreenCell::new("full", percent(pressure.memory_full)),
            ScreenCell::new("io some", percent(pressure.io_some)),
            ScreenCell::new("full", percent(pressure.io_full)),
        ];
        lines.push(ScreenLine::new(ScreenSection::Machine, labels::PRESSURE, cells));
    }
    if let Some(table) = view.mean.conntrack {
        let utilization = table.entries as f64 / table.entries_max.max(1) as f64;
        let failures = table.early_drops_per_s + table.insert_failures_per_s;
        let cells = vec![
            ScreenCell::new("entries", format!("{} of {}", table.entries, table.entries_max)),
            ScreenCell::new("drops/s", rate_text(table.drops_per_s)),
            ScreenCell::new("failures/s", rate_text(failures)),
        ];
        lines.push(
            ScreenLine::new(ScreenSection::Machine, labels::CONNTRACK, cells)
                .with_utilization(Some(utilization)),
        );
    }
    for probe in view.mean.wakeup_lags.iter().take(CPUS_MAX) {
        let cells = vec![
            ScreenCell::new("median", format_duration_ns(probe.lag_p50_ns)),
            ScreenCell::new("99 %", format_duration_ns(probe.lag_p99_ns)),
            ScreenCell::new("max", format_duration_ns(probe.lag_max_ns)),
        ];
        let lag = |sample: &MachineSample| {
            let same = sample.wakeup_lags.iter().find(|other| other.cpu == probe.cpu);
            same.map(|probe| probe.lag_p99_ns as f64)
        };
        let line = ScreenLine::new(ScreenSection::Machine, labels::wakeup_probe(probe.cpu), cells);
        lines.push(line.with_history(history(view, lag)));
    }
    let cost = format!("{} of one core", percent(view.observed.cost_cpus));
    lines.push(ScreenLine::new(
        ScreenSection::Machine,
        labels::OBSERVATION_COST,
        vec![ScreenCell::new("", cost)],
    ));
}
