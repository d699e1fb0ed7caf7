//! Lines of each section, from the values of a machine's places.

use record::observed::{
    CpuUse, DiskUse, EndQueues, LinkUse, MachineSample, NamespaceUse, Pressure, RoleUse, ThreadCpuUse,
    format_neighbours,
};
use record::sorted::{sort_by, sort_by_key};
use record::units::{format_bit_rate, format_byte_rate, format_bytes, format_count, format_duration_ns};

use super::measurements::{PAGE_BYTES, THREADS_MAX, counter, driver_counters, in_state, limited_fraction};
use super::places::{self, Place, Places, cpu_label, thread_label, threads};
use super::screen::{BarPart, ScreenCell, ScreenLine, ScreenSection, percent};
use crate::figures as f;

/// Busy fraction of a CPU below which a thread has no line.
const THREAD_BUSY_MIN: f64 = 0.005;
/// Maximum number of CPUs with a line of their own, the busiest first.
const CPUS_MAX: usize = 64;
/// Maximum number of points of a line's history.
const HISTORY_POINTS: usize = 60;

/// Returns the lines of all sections but the first.
pub(super) fn all_lines(view: &Places<'_>) -> Vec<ScreenLine> {
    let mut lines = Vec::new();
    if view.machine.last().is_some() {
        cpu_lines(view, &mut lines);
        process_lines(view, &mut lines);
        view.links.iter().for_each(|link| link_lines(view, link, &mut lines));
        lines.extend(view.namespaces.iter().map(|space| tcp_line(view, space)));
        socket_lines(view, &mut lines);
        machine_lines(view, &mut lines);
    }
    for missing in &view.window.observed.not_observable {
        let cells = vec![ScreenCell::new("", missing.reason.clone())];
        lines.push(ScreenLine::new(ScreenSection::NotObservable, missing.figure.clone(), cells));
    }
    lines
}

/// Returns a figure of each of the last samples.
fn history(view: &Places<'_>, figure: impl Fn(&MachineSample) -> Option<f64>) -> Vec<f64> {
    let samples = &view.window.observed.samples;
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

fn cpu_lines(view: &Places<'_>, lines: &mut Vec<ScreenLine>) {
    let count = view.cpus.len();
    let busy_cpus = view.machine.mean(f::BUSY_CPUS.read).unwrap_or(0.0);
    let runnable = view.machine.last().and_then(|last| last.runnable);
    let switches = view.machine.mean(|sample| sample.context_switches_per_s);
    let cells = vec![
        ScreenCell::new("busy", format!("{busy_cpus:.2} of {count}")),
        ScreenCell::new("other processes", or_dash(view.foreign_cpus(), |cpus| format!("{cpus:.2}"))),
        ScreenCell::new("runnable", or_dash(runnable, |tasks| tasks.to_string())),
        ScreenCell::new("switches/s", or_dash(switches, rate_text)),
    ];
    let machine = ScreenLine::new(ScreenSection::Cpus, places::MACHINE, cells)
        .with_utilization(view.machine.mean(f::ALL_CPUS.read));
    lines.push(machine.with_history(history(view, f::ALL_CPUS.read)));
    lines.extend(neighbour_line(view));
    let used = |cpu: &Place<'_, _>| cpu.values.mean(f::CPU_USED.read).unwrap_or(0.0);
    let mut cpus: Vec<_> = view.cpus.iter().map(|cpu| (used(cpu), cpu)).collect();
    sort_by(&mut cpus, |left, right| right.0.total_cmp(&left.0));
    cpus.truncate(CPUS_MAX);
    sort_by_key(&mut cpus, |(_, cpu)| cpu.last.cpu);
    for (used, cpu) in cpus {
        let mean = |figure: fn(&CpuUse) -> f64| cpu.values.mean_of(figure);
        let [user, system, softirq, irq, steal] = [
            mean(|cpu| cpu.user),
            mean(|cpu| cpu.system),
            mean(|cpu| cpu.softirq),
            mean(|cpu| cpu.irq),
            mean(|cpu| cpu.steal),
        ];
        let cells = vec![
            ScreenCell::new("busy", percent(used)),
            ScreenCell::new("user", percent(user)),
            ScreenCell::new("system", percent(system)),
            ScreenCell::new("softirq", percent(softirq)),
            ScreenCell::new("irq", percent(irq)),
            ScreenCell::new("steal", percent(steal)),
            ScreenCell::new("packets/s", rate_text(mean(|cpu| cpu.packets_per_s))),
            ScreenCell::new("net_rx/s", rate_text(mean(|cpu| cpu.net_rx_per_s))),
            ScreenCell::new("rps/s", rate_text(mean(|cpu| cpu.received_rps_per_s))),
            ScreenCell::new("interrupts/s", rate_text(mean(|cpu| cpu.interrupts_per_s))),
            ScreenCell::new("drops/s", rate_text(mean(|cpu| cpu.backlog_drops_per_s))),
            ScreenCell::new("squeezes/s", rate_text(mean(|cpu| cpu.time_squeezes_per_s))),
        ];
        let parts = vec![
            (BarPart::User, user),
            (BarPart::System, system),
            (BarPart::Interrupt, irq + softirq),
            (BarPart::Steal, steal),
        ];
        let used_of_cpu = |sample: &MachineSample| {
            sample.cpus.iter().find(|other| other.cpu == cpu.last.cpu).and_then(f::CPU_USED.read)
        };
        let line = ScreenLine::new(ScreenSection::Cpus, cpu.label.clone(), cells);
        lines.push(line.with_parts(parts).with_history(history(view, used_of_cpu)));
    }
    if count > CPUS_MAX {
        let more = format!("{} less busy CPUs not shown", count - CPUS_MAX);
        lines.push(ScreenLine::new(ScreenSection::Cpus, "", vec![ScreenCell::new("", more)]));
    }
}

/// Returns the line with the programs beside the roles that use most CPU time.
fn neighbour_line(view: &Places<'_>) -> Option<ScreenLine> {
    let named = format_neighbours(&view.window.observed.neighbours);
    let cells = vec![ScreenCell::new("", named.clone())];
    (!named.is_empty()).then(|| ScreenLine::new(ScreenSection::Cpus, places::NEIGHBOURS, cells))
}

fn process_lines(view: &Places<'_>, lines: &mut Vec<ScreenLine>) {
    for role in &view.roles {
        let index = view.window.observed.role_index(&role.label);
        let cpus = |sample: &MachineSample| sample.roles.get(index?).and_then(f::CPUS.read);
        lines.push(process_line(view, role).with_history(history(view, cpus)));
    }
    let mut shown = 0;
    for role in &view.roles {
        let threads = threads(role);
        for thread in threads.iter().filter(|thread| thread.busy > THREAD_BUSY_MIN).take(THREADS_MAX) {
            lines.push(thread_line(role, thread));
            shown += 1;
        }
    }
    let total: u32 = view.roles.iter().map(|role| role.last.threads_total).sum();
    if shown > 0 && u64::from(total) > shown {
        let more = format!("{} less busy threads not shown", u64::from(total) - shown);
        lines.push(ScreenLine::new(ScreenSection::Processes, "", vec![ScreenCell::new("", more)]));
    }
}

fn process_line(view: &Places<'_>, role: &Place<'_, RoleUse>) -> ScreenLine {
    let allowed = view.cpus_allowed(role);
    let Place { last, values, .. } = role;
    let mean = |figure: fn(&RoleUse) -> f64| values.mean_of(figure);
    let (user, system) = (mean(|role| role.user_cpus), mean(|role| role.system_cpus));
    let open_and_max = last.descriptors.zip(last.descriptors_max);
    let memory_max = last.cgroup.as_ref().and_then(|cgroup| cgroup.memory_max_bytes);
    let memory = or_dash(last.resident_bytes, |bytes| format_bytes(bytes as f64));
    let faults = mean(|role| role.minor_faults_per_s + role.major_faults_per_s);
    let cells = vec![
        ScreenCell::new(
            "cpus",
            format!("{:.2} of {}", user + system, format!("{allowed:.2}").replace(".00", "")),
        ),
        ScreenCell::new("user", format!("{user:.2}")),
        ScreenCell::new("system", format!("{system:.2}")),
        ScreenCell::new("run-queue wait", or_dash(values.mean(f::WAITING.read), percent)),
        ScreenCell::new("throttled", or_dash(values.mean(f::THROTTLED_PERIODS.read), percent)),
        ScreenCell::new("fds", or_dash(open_and_max, |(open, max)| format!("{open} of {max}"))),
        ScreenCell::new("memory", memory),
        ScreenCell::new("memory max", or_dash(memory_max, |bytes| format_bytes(bytes as f64))),
        ScreenCell::new("switches/s", rate_text(mean(|role| role.voluntary_switches_per_s))),
        ScreenCell::new("involuntary/s", rate_text(mean(|role| role.involuntary_switches_per_s))),
        ScreenCell::new("faults/s", rate_text(faults)),
        ScreenCell::new("written", or_dash(values.mean(|role| role.written_bytes_per_s), format_byte_rate)),
        ScreenCell::new("to disk", or_dash(values.mean(f::DISK_WRITES.read), format_byte_rate)),
        ScreenCell::new("cgroup io", disk_text(role)),
        ScreenCell::new("processes", last.processes.to_string()),
        ScreenCell::new("threads", last.threads_total.to_string()),
    ];
    let parts = vec![(BarPart::User, user / allowed), (BarPart::System, system / allowed)];
    ScreenLine::new(ScreenSection::Processes, role.label.clone(), cells).with_parts(parts)
}

/// Formats the disk use of a role's cgroup.
fn disk_text(role: &Place<'_, RoleUse>) -> String {
    let mean = |figure: fn(&DiskUse) -> f64| {
        role.values.mean(|role_use| role_use.cgroup.as_ref()?.disk.as_ref().map(figure)).map(format_byte_rate)
    };
    let used = mean(|disk| disk.read_bytes_per_s).zip(mean(|disk| disk.written_bytes_per_s));
    or_dash(used, |(read, written)| format!("{read} read {written} written"))
}

fn thread_line(role: &Place<'_, RoleUse>, thread: &ThreadCpuUse) -> ScreenLine {
    let cells = vec![
        ScreenCell::new("busy", percent(thread.busy)),
        ScreenCell::new("run-queue wait", or_dash(thread.waiting, percent)),
        ScreenCell::new("on", cpu_label(thread.cpu)),
    ];
    ScreenLine::new(ScreenSection::Processes, thread_label(role, thread), cells)
        .with_utilization(Some(thread.busy))
}

fn link_lines(view: &Places<'_>, place: &Place<'_, LinkUse>, lines: &mut Vec<ScreenLine>) {
    let mean = |figure: fn(&LinkUse) -> f64| place.values.mean_of(figure);
    let (received, sent) = (mean(|link| link.rx_bytes_per_s), mean(|link| link.tx_bytes_per_s));
    let waiting = mean(|link| link.queues.iter().map(|queue| queue.backlog_bytes as f64).sum());
    let speed = f::link_rate(place.last);
    let cells = vec![
        ScreenCell::new("in", format_byte_rate(received)),
        ScreenCell::new("out", format_byte_rate(sent)),
        ScreenCell::new("packets in/s", rate_text(mean(|link| link.rx_packets_per_s))),
        ScreenCell::new("out/s", rate_text(mean(|link| link.tx_packets_per_s))),
        ScreenCell::new("drops/s", rate_text(place.values.mean(f::LINK_DROPS.read).unwrap_or(0.0))),
        ScreenCell::new("waiting", format_bytes(waiting)),
        ScreenCell::new("speed", or_dash(speed, format_bit_rate)),
    ];
    let is_same = |other: &&LinkUse| other.name == place.last.name && other.role == place.last.role;
    // Without a speed, bytes per second show at least the course.
    let link_load = |sample: &MachineSample| {
        let same = sample.links.iter().find(is_same)?;
        let bytes_per_s = same.rx_bytes_per_s.max(same.tx_bytes_per_s);
        (f::LINK_USED.read)(same).or(Some(bytes_per_s))
    };
    let line = ScreenLine::new(ScreenSection::Links, place.label.clone(), cells);
    lines.push(
        line.with_utilization(place.values.mean(f::LINK_USED.read)).with_history(history(view, link_load)),
    );
    for (name, per_s) in driver_counters(place) {
        let label = format!("{} {name}", place.last.name);
        let cells = vec![ScreenCell::new("", format!("{} per second", rate_text(per_s)))];
        lines.push(ScreenLine::new(ScreenSection::Links, label, cells));
    }
}

fn tcp_line(view: &Places<'_>, space: &Place<'_, NamespaceUse>) -> ScreenLine {
    let sum = |names: &[&str]| rate_text(counter(space, names));
    let sent = counter(space, &["Tcp.OutSegs"]);
    let retransmit_fraction = if sent > 0.0 { counter(space, &["Tcp.RetransSegs"]) / sent } else { 0.0 };
    let cookies = ["TcpExt.SyncookiesSent", "TcpExt.TCPReqQFullDrop"];
    let last = space.last;
    let cells = vec![
        ScreenCell::new("opened/s", sum(&["Tcp.ActiveOpens"])),
        ScreenCell::new("accepted/s", sum(&["Tcp.PassiveOpens"])),
        ScreenCell::new("in use", last.tcp_in_use.to_string()),
        ScreenCell::new("retransmits", percent(retransmit_fraction)),
        ScreenCell::new("timeouts/s", sum(&["TcpExt.TCPTimeouts"])),
        ScreenCell::new("overflows/s", sum(&["TcpExt.ListenOverflows"])),
        ScreenCell::new("cookies/s", sum(&cookies)),
        ScreenCell::new("resets/s", sum(&["Tcp.EstabResets", "Tcp.AttemptFails"])),
        ScreenCell::new("segments in/s", sum(&["Tcp.InSegs"])),
        ScreenCell::new("out/s", rate_text(sent)),
        ScreenCell::new("time-wait", last.time_wait.to_string()),
        ScreenCell::new("orphans", last.orphans.to_string()),
        ScreenCell::new("memory", format_bytes(last.tcp_memory_pages as f64 * PAGE_BYTES)),
        ScreenCell::new("pressure/s", sum(&f::TCP_MEMORY_COUNTERS)),
        ScreenCell::new("pruned/s", sum(&f::RECEIVE_BUFFER_COUNTERS)),
        ScreenCell::new("delayed acks/s", sum(&["TcpExt.DelayedACKs"])),
    ];
    let segments_out = |sample: &MachineSample| {
        let same = sample.namespaces.iter().find(|other| other.roles == last.roles)?;
        same.counters.get("Tcp.OutSegs").copied()
    };
    ScreenLine::new(ScreenSection::Tcp, space.label.clone(), cells).with_history(history(view, segments_out))
}

fn socket_lines(view: &Places<'_>, lines: &mut Vec<ScreenLine>) {
    for place in &view.listeners {
        let [waiting, full] = [
            place.values.max(|queue| Some(f64::from(queue.waiting))),
            place.values.max(|queue| Some(f64::from(queue.full))),
        ]
        .map(|count| format!("{:.0}", count.unwrap_or(0.0)));
        let cells = vec![
            ScreenCell::new("to accept", waiting),
            ScreenCell::new("backlog", place.last.backlog.to_string()),
            ScreenCell::new("full", format!("{full} of {}", place.last.sockets)),
        ];
        let line = ScreenLine::new(ScreenSection::Sockets, place.label.clone(), cells);
        lines.push(line.with_utilization(place.values.max(f::ACCEPT_QUEUE.read)));
    }
    lines.extend(view.ends.iter().map(end_line));
}

fn end_line(place: &Place<'_, EndQueues>) -> ScreenLine {
    let median = |figure: fn(&EndQueues) -> f64| place.values.median_of(figure);
    let known = ["established", "time-wait"];
    let others = place.last.states.keys().filter(|state| !known.contains(&state.as_str()));
    let others =
        others.map(|state| (state, in_state(place, state).round())).filter(|(_, count)| *count > 0.0);
    let others: Vec<String> = others.map(|(state, count)| format!("{state} {count}")).collect();
    let limited = |limited_us| or_dash(limited_fraction(place, limited_us), percent);
    let cells = vec![
        ScreenCell::new("open", format!("{:.0}", in_state(place, "established"))),
        ScreenCell::new("unread on", format!("{:.0}", median(|end| end.with_unread as f64))),
        ScreenCell::new("unread", format_bytes(median(|end| end.unread_bytes as f64))),
        ScreenCell::new("in flight", format_bytes(median(|end| end.unsent_bytes as f64))),
        ScreenCell::new("rtt", microseconds_text(median(|end| end.rtt_us))),
        ScreenCell::new("min", microseconds_text(median(|end| end.rtt_min_us))),
        ScreenCell::new("time-wait", format!("{:.0}", in_state(place, "time-wait"))),
        ScreenCell::new("not sent", format_bytes(median(|end| end.not_sent_bytes as f64))),
        ScreenCell::new("window full", limited(|end| end.receive_window_limited_us)),
        ScreenCell::new("buffer full", limited(|end| end.send_buffer_limited_us)),
        ScreenCell::new("retransmits", retransmit_text(place)),
        ScreenCell::new("other states", if others.is_empty() { "-".into() } else { others.join(" ") }),
    ];
    ScreenLine::new(ScreenSection::Sockets, place.label.clone(), cells)
        .with_utilization(place.values.median(f::UNREAD.read))
}

/// Formats retransmitted segments, with the details from newer kernels.
fn retransmit_text(place: &Place<'_, EndQueues>) -> String {
    let growth = |figure: fn(&EndQueues) -> u64| place.values.growth(|end| figure(end) as f64);
    let mut text = format!("{:.0}", growth(|end| end.retransmitted));
    let bytes = growth(|end| end.retransmitted_bytes.unwrap_or(0));
    if bytes > 0.0 {
        text += &format!(" of {}", format_bytes(bytes));
    }
    let duplicates = growth(|end| end.duplicates.unwrap_or(0));
    if duplicates > 0.0 {
        text += &format!(", {duplicates} spurious");
    }
    text
}

fn machine_lines(view: &Places<'_>, lines: &mut Vec<ScreenLine>) {
    let last = view.machine.last();
    if last.is_some_and(|last| last.pressure.is_some()) {
        let mean = |figure: fn(&Pressure) -> f64| {
            percent(view.machine.mean(|sample| sample.pressure.as_ref().map(figure)).unwrap_or(0.0))
        };
        let cells = vec![
            ScreenCell::new("cpu some", mean(|pressure| pressure.cpu_some)),
            ScreenCell::new("memory some", mean(|pressure| pressure.memory_some)),
            ScreenCell::new("full", mean(|pressure| pressure.memory_full)),
            ScreenCell::new("io some", mean(|pressure| pressure.io_some)),
            ScreenCell::new("full", mean(|pressure| pressure.io_full)),
        ];
        lines.push(ScreenLine::new(ScreenSection::Machine, places::PRESSURE, cells));
    }
    if let Some(table) = last.and_then(|last| last.conntrack) {
        let drops = view.machine.mean(f::CONNTRACK_DROPS.read).unwrap_or(0.0);
        let full = view.machine.mean(|sample| Some(sample.conntrack?.drops_per_s)).unwrap_or(0.0);
        let cells = vec![
            ScreenCell::new("entries", format!("{} of {}", table.entries, table.entries_max)),
            ScreenCell::new("drops/s", rate_text(full)),
            ScreenCell::new("failures/s", rate_text(drops - full)),
        ];
        let line = ScreenLine::new(ScreenSection::Machine, places::CONNTRACK, cells);
        lines.push(line.with_utilization(last.and_then(f::CONNTRACK_USED.read)));
    }
    for probe in view.wakeup_lags.iter().take(CPUS_MAX) {
        let max_ns = probe.values.values().map(|lag| lag.lag_max_ns).max().unwrap_or(0);
        let median_ns = probe.values.median_of(|lag| lag.lag_p50_ns as f64);
        let tail_ns = probe.values.median(f::WAKE_UP_LAG.read).unwrap_or(0.0);
        let cells = vec![
            ScreenCell::new("median", format_duration_ns(median_ns as u64)),
            ScreenCell::new("99 %", format_duration_ns(tail_ns as u64)),
            ScreenCell::new("max", format_duration_ns(max_ns)),
        ];
        let lag = |sample: &MachineSample| {
            let same = sample.wakeup_lags.iter().find(|other| other.cpu == probe.last.cpu);
            same.and_then(f::WAKE_UP_LAG.read)
        };
        let line = ScreenLine::new(ScreenSection::Machine, probe.label.clone(), cells);
        lines.push(line.with_history(history(view, lag)));
    }
    let cost = format!("{} of one core", percent(view.window.observed.cost_cpus));
    let cells = vec![ScreenCell::new("", cost)];
    lines.push(ScreenLine::new(ScreenSection::Machine, places::OBSERVATION_COST, cells));
}
