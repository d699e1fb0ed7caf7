//! Rules that mark lines: a table. A rule measures a figure of each of its lines, and marks the lines
//! above its threshold.
//!
//! A source is shown to users: the kernel's documentation, a statistics file, or the threshold of the
//! verdict in the lab's catalogue. "Own threshold" is a judgement.

use record::sorted::{sort_by, sort_by_key};
use record::units::{format_bytes, format_count, format_duration_ns};

use super::measurements::{self as read, Measurement};
use super::places::Places;
use super::screen::{ScreenSection, Severity, percent};
use crate::figures as f;
use crate::unit::Unit;

/// Rule that marks lines.
#[derive(Debug)]
pub struct AlertRule {
    pub code: &'static str,
    pub description: &'static str,
    /// Threshold in the unit: the rule holds above it.
    pub threshold: f64,
    pub unit: Unit,
    pub source: &'static str,
    pub severity: Severity,
    /// Sentence for a newcomer: `{of}` is the line, `{value}` the measured figure, `{a}` and `{b}`
    /// the additional facts.
    pub sentence: &'static str,
    measure: MeasureFn,
}

/// Function that measures a figure of each line and adds the readings.
type MeasureFn = fn(&Places<'_>, &mut Vec<Measurement>);

impl PartialEq for AlertRule {
    fn eq(&self, other: &Self) -> bool {
        self.code == other.code
    }
}

const fn rule(
    code: &'static str,
    severity: Severity,
    unit: Unit,
    threshold: f64,
    source: &'static str,
) -> RuleHead {
    RuleHead { code, severity, unit, threshold, source }
}

/// First half of a row.
struct RuleHead {
    code: &'static str,
    severity: Severity,
    unit: Unit,
    threshold: f64,
    source: &'static str,
}

impl RuleHead {
    const fn measured_by(
        self,
        description: &'static str,
        measure: MeasureFn,
        sentence: &'static str,
    ) -> AlertRule {
        let Self { code, severity, unit, threshold, source } = self;
        AlertRule { code, description, threshold, unit, source, severity, sentence, measure }
    }
}

use Severity::{Alarm, Notice};
use Unit::{Bytes, Count, Fraction, Nanoseconds, PerSecond, Ratio};

/// All rules; findings are sorted by severity, then in this order.
pub const RULES: &[AlertRule] = &[
    // Losses and rejections.
    rule("accept_queue_overflow", Alarm, PerSecond, 0.0, "kernel docs: networking/snmp_counter").measured_by(
        "TcpExt.ListenOverflows",
        |view, out| read::counters(view, &["TcpExt.ListenOverflows"], out),
        "{value} new connections per second ({of}) overflow the accept queue, so clients retry after \
         1 s or more: accept faster, or raise the backlog and net.core.somaxconn.",
    ),
    rule("accept_queue_full", Alarm, Count, 0.0, "sock_diag").measured_by(
        "listening sockets with a full accept queue",
        read::full_accept_queues,
        "full accept queues at {of}: {value} ({a} connections, backlog {b}); the server does not \
         accept fast enough.",
    ),
    rule("syn_queue_overflow", Alarm, PerSecond, 0.0, "kernel docs: networking/ip-sysctl").measured_by(
        "TcpExt.SyncookiesSent, TCPReqQFullDoCookies, TCPReqQFullDrop",
        |view, out| read::counters_max(view, &f::SYN_QUEUE_COUNTERS, out),
        "{value} handshakes per second ({of}) overflow the SYN queue (SYN cookies or drops): raise \
         the listen backlog and net.core.somaxconn, or check for a SYN flood.",
    ),
    rule("syn_queue_full", Alarm, Fraction, 0.999, "sock_diag").measured_by(
        "half-open connections / backlog",
        read::half_open,
        "{of} has {a} half-open connections and a backlog of {b}: handshakes do not complete, \
         because packets are lost or clients do not finish them.",
    ),
    rule("fd_limit", Alarm, Fraction, 0.95, "threshold of the diagnosis").measured_by(
        "open file descriptors / limit",
        read::descriptors,
        "{of} has {a} of {b} file descriptors open ({value}): new connections will be refused or \
         wait; raise the limit (ulimit -n, LimitNOFILE).",
    ),
    rule("ended", Alarm, Count, 0.0, "the process has exited").measured_by(
        "running processes",
        read::ended_processes,
        "{of} has 0 processes left: it has exited, or was restarted with another PID.",
    ),
    rule("conntrack_full", Alarm, Fraction, 0.95, "threshold of the diagnosis").measured_by(
        "entries / nf_conntrack_max",
        read::conntrack_fill,
        "the connection tracking table has {a} of {b} entries ({value}): packets of new connections \
         will be dropped; raise nf_conntrack_max, or exempt the ports (notrack).",
    ),
    rule("conntrack_drops", Alarm, PerSecond, 0.0, "threshold of the diagnosis").measured_by(
        "drop, early_drop and insert_failed of nf_conntrack",
        read::conntrack_drops,
        "connection tracking drops {value} packets or entries per second: its table is full, or it \
         has too few buckets.",
    ),
    rule("ports_exhausted", Alarm, Fraction, 0.9, "threshold of the diagnosis").measured_by(
        "sockets to one port / ip_local_port_range",
        read::local_port_fill,
        "{a} connections at {of}, open or in TIME_WAIT, use {value} of {b} local ports: use \
         keep-alive, more source addresses, or a wider net.ipv4.ip_local_port_range.",
    ),
    rule("backlog_drops", Alarm, PerSecond, 0.0, "softnet_stat column 2").measured_by(
        "packets dropped before the network stack, per CPU",
        |view, out| read::cpus(view, f::BACKLOG_DROPS.read, out),
        "{of} drops {value} packets per second because its input queue is full (limit: \
         net.core.netdev_max_backlog); TCP retransmits them. Spread the receive path over CPUs (RPS), \
         or raise the limit.",
    ),
    rule("allowance_exceeded", Alarm, PerSecond, 0.0, "ethtool -S").measured_by(
        "*_allowance_exceeded of the driver",
        read::exceeded_allowances,
        "the cloud provider delays or drops {value} packets per second of {of} ({a}): the allowance \
         of the instance is exceeded; use a larger instance, or more of them.",
    ),
    rule("out_of_memory", Alarm, PerSecond, 0.0, "kernel docs: networking/snmp_counter").measured_by(
        "TCPMemoryPressures, TCPAbortOnMemory",
        |view, out| read::counters(view, &f::TCP_MEMORY_COUNTERS, out),
        "TCP of {of} runs out of buffer memory {value} times per second and drops data or \
         connections: raise net.ipv4.tcp_mem, or limit the buffers per connection.",
    ),
    rule("tcp_memory", Alarm, Fraction, 1.0, "kernel docs: networking/ip-sysctl tcp_mem").measured_by(
        "TCP memory pages / pressure threshold of tcp_mem",
        read::tcp_memory,
        "TCP of {of} uses {a} of buffer memory, {value} of the pressure threshold of tcp_mem ({b}): \
         it shrinks windows and drops packets.",
    ),
    rule("memory_limit", Alarm, Fraction, 0.95, "threshold of the diagnosis").measured_by(
        "resident memory / memory.max",
        read::memory_limit_fill,
        "{of} uses {a} of the {b} that its cgroup allows ({value}): it waits while pages are \
         reclaimed, and is then killed (OOM).",
    ),
    rule("memory_limit_hits", Alarm, PerSecond, 0.0, "threshold of the diagnosis").measured_by(
        "cgroup memory.max events",
        |view, out| read::roles(view, f::MEMORY_LIMIT_HITS.read, out),
        "{of} hits the memory limit of its cgroup {value} times per second and waits for page \
         reclaim.",
    ),
    rule("throttled", Alarm, Fraction, 0.05, "kernel docs: scheduler/sched-bwc").measured_by(
        "throttled periods of the cgroup",
        read::throttled,
        "{of} is throttled in {value} of its cgroup periods (quota {a} CPUs, period {b}): raise the \
         quota, or run fewer threads.",
    ),
    rule("link_saturated", Alarm, Fraction, 0.95, "threshold of the diagnosis").measured_by(
        "bit rate / link speed or shaper rate",
        read::link_fill,
        "{of} carries {a} of max {b} ({value}): the link is the limit; send less (compression) or \
         use a faster link.",
    ),
    rule("queue_delay", Alarm, Nanoseconds, 1e8, "100 ms of the link").measured_by(
        "backlog of the queueing discipline / its rate",
        read::queue_delay,
        "{a} wait in the {b} queue of {of}, which needs {value} to send them: this adds to the \
         latency of every request.",
    ),
    rule("softirq_one_cpu", Alarm, Fraction, 0.6, "one above 60 %, the others below 20 %").measured_by(
        "softirq time of one CPU, compared with the others",
        read::softirq_on_one_cpu,
        "{of} spends {value} of its time in softirqs, the other CPUs {a}: the receive path runs on \
         one CPU; spread it (RSS queues, RPS).",
    ),
    rule("steal", Alarm, Fraction, 0.1, "own threshold").measured_by(
        "steal",
        |view, out| read::cpus(view, f::CPU_STEAL.read, out),
        "the hypervisor stole {value} of {of}: current measurements are not valid for this machine; \
         repeat them on a quiet host.",
    ),
    rule("one_thread", Alarm, Fraction, 0.95, "idle above 30 %").measured_by(
        "the busiest thread while the machine has idle CPUs",
        read::single_busy_thread,
        "{of} is {value} busy while {a} of the machine is idle: one thread is the limit; use more \
         workers, or spread its connections.",
    ),
    rule("disk_limit", Alarm, Fraction, 0.9, "threshold of the diagnosis").measured_by(
        "disk writes / io.max of the cgroup",
        read::disk_limit_fill,
        "{of} writes {a} to disk, and its cgroup allows {b} ({value}): writers wait.",
    ),
    // Unusual figures.
    rule("thread_busy", Notice, Fraction, 0.95, "threshold of the diagnosis").measured_by(
        "the busiest thread",
        read::busy_thread,
        "{of} is {value} busy: the thread is at its limit, and its connections wait.",
    ),
    rule("process_busy", Notice, Fraction, 0.9, "90 % of the allowed CPUs").measured_by(
        "used CPUs / affinity and quota",
        read::cpu_limit_fill,
        "{of} uses {a} of its {b} allowed CPUs ({value}): its own work is the limit; weir lab \
         profile shows the functions.",
    ),
    rule("machine_busy", Notice, Fraction, 0.95, "threshold of the diagnosis").measured_by(
        "all CPUs",
        read::machine_busy,
        "all {a} CPUs together are {value} busy: additional work slows down the rest.",
    ),
    rule("run_queue", Notice, Ratio, 0.2, "waiting above 0.2 of running").measured_by(
        "run-queue wait / running time (schedstat)",
        read::run_queue,
        "the threads of {of} wait in the run queue for {value} their running time: there are more \
         runnable threads than CPUs.",
    ),
    rule("unread_server", Notice, Fraction, 0.5, "31 of 32 when the server was the limit").measured_by(
        "connections with unread bytes at the server",
        read::unread_server,
        "{of} has unread bytes on {a} of {b} connections ({value}): the server does not keep up.",
    ),
    rule("unread_client", Notice, Fraction, 0.5, "32 of 32 when the client was the limit").measured_by(
        "connections with unread bytes at the client",
        read::unread_client,
        "{of} has unread bytes on {a} of {b} connections ({value}): the client does not keep up.",
    ),
    rule("accept_queue_half_full", Notice, Fraction, 0.5, "own threshold").measured_by(
        "connections in the accept queue / backlog",
        read::accept_queue_fill,
        "the accept queue of {of} has {a} connections, max {b} ({value}).",
    ),
    rule("retransmits", Notice, Fraction, 0.001, "0.1 % of the segments").measured_by(
        "Tcp.RetransSegs / Tcp.OutSegs",
        read::retransmits,
        "TCP of {of} retransmits {value} of its segments ({a} of {b}): packets are lost, and each \
         loss costs its connection at least one round trip.",
    ),
    rule("timeouts", Notice, PerSecond, 0.0, "200 ms each").measured_by(
        "TcpExt.TCPTimeouts",
        |view, out| read::counters(view, &["TcpExt.TCPTimeouts"], out),
        "{value} retransmission timers per second expire ({of}): each stalls a connection for 200 ms \
         or more, which shows in the tail latency.",
    ),
    rule("resets", Notice, PerSecond, 1.0, "own threshold").measured_by(
        "Tcp.EstabResets, AttemptFails",
        |view, out| read::counters(view, &["Tcp.EstabResets", "Tcp.AttemptFails"], out),
        "{value} connections per second ({of}) are reset or refused: a peer aborts, or no process \
         listens; current measurements may be invalid.",
    ),
    rule("time_wait_overflow", Notice, PerSecond, 0.0, "threshold of the diagnosis").measured_by(
        "TcpExt.TCPTimeWaitOverflow",
        |view, out| read::counters(view, &["TcpExt.TCPTimeWaitOverflow"], out),
        "{value} connections per second ({of}) skip TIME_WAIT because there are too many: raise \
         net.ipv4.tcp_max_tw_buckets, or use keep-alive.",
    ),
    rule("receive_queue_drops", Notice, PerSecond, 0.0, "local, not the network").measured_by(
        "TcpExt.TCPBacklogDrop, TCPRcvQDrop",
        |view, out| read::counters(view, &["TcpExt.TCPBacklogDrop", "TcpExt.TCPRcvQDrop"], out),
        "{value} segments per second ({of}) are dropped because a receive queue was full: a process \
         reads too slowly, or its receive buffer is too small.",
    ),
    rule("delayed_acks", Notice, Fraction, 0.01, "more than 1 %").measured_by(
        "TcpExt.DelayedACKs / Tcp.InSegs",
        read::delayed_acks,
        "{value} of the segments received by {of} got a delayed ACK ({a}): a sender that waits for \
         one loses 40 ms; check the latencies (TCP_NODELAY, one write per message).",
    ),
    rule("link_drops", Notice, PerSecond, 0.0, "threshold of the diagnosis").measured_by(
        "drops of the interface and its queues",
        read::link_drops,
        "{of} drops {value} packets per second ({a}): TCP retransmits them.",
    ),
    rule("time_squeeze", Notice, PerSecond, 0.0, "softnet_stat column 3").measured_by(
        "receive rounds that ran out of budget (time_squeeze)",
        |view, out| read::cpus(view, f::TIME_SQUEEZES.read, out),
        "{of} uses up its packet budget {value} times per second (net.core.netdev_budget): it does \
         not keep up with the network.",
    ),
    rule("steal_notice", Notice, Fraction, 0.02, "threshold of the diagnosis").measured_by(
        "steal",
        |view, out| read::cpus(view, f::CPU_STEAL.read, out),
        "the hypervisor stole {value} of {of}: measured times are longer than on a dedicated machine.",
    ),
    rule("window_limited", Notice, Fraction, 0.2, "threshold of the diagnosis").measured_by(
        "time limited by the receive window / time with data to send",
        read::receive_window,
        "connections at {of} are limited by the receive window for {value} of their sending time: \
         the peer reads too slowly, or its receive buffer is too small.",
    ),
    rule("send_buffer_limited", Notice, Fraction, 0.2, "threshold of the diagnosis").measured_by(
        "time limited by the send buffer / time with data to send",
        read::send_buffer,
        "connections at {of} are limited by the send buffer for {value} of their sending time: raise \
         net.ipv4.tcp_wmem.",
    ),
    rule("bufferbloat", Notice, Ratio, 5.0, "five times the minimum, above 1 ms (own threshold)")
        .measured_by(
            "round-trip time / its minimum, with unsent bytes",
            read::bufferbloat,
            "round trips at {of} take {a}, {value} the minimum of {b}, with unsent bytes: a queue on the \
             path is full.",
        ),
    rule("fd_limit_near", Notice, Fraction, 0.8, "own threshold").measured_by(
        "open file descriptors / limit",
        read::descriptors,
        "{of} has {a} of {b} file descriptors open ({value}).",
    ),
    rule("disk_sleep", Notice, Count, 0.25, "own threshold").measured_by(
        "threads in uninterruptible sleep",
        |view, out| read::roles(view, f::DISK_SLEEP.read, out),
        "{value} threads of {of} are in uninterruptible sleep (disk): their requests wait.",
    ),
    rule("disk_pressure", Notice, Fraction, 0.1, "own threshold").measured_by(
        "io pressure (full)",
        |view, out| read::pressure(view, f::DISK_PRESSURE_FULL.read, out),
        "for {value} of the time, all runnable tasks waited for a disk.",
    ),
    rule("memory_pressure", Notice, Fraction, 0.1, "own threshold").measured_by(
        "memory pressure (some)",
        |view, out| read::pressure(view, f::MEMORY_PRESSURE.read, out),
        "for {value} of the time, some task waited for memory: the machine has too little.",
    ),
    rule("major_faults", Notice, PerSecond, 10.0, "own threshold").measured_by(
        "major page faults",
        |view, out| read::roles(view, f::MAJOR_FAULTS.read, out),
        "{of} reads pages from disk {value} times per second (major page faults): it does not fit \
         into memory.",
    ),
    rule("other_processes", Notice, Fraction, 0.2, "own threshold").measured_by(
        "CPUs used by other processes",
        read::other_processes,
        "other processes use {a} of {b} ({value}): they disturb current measurements.",
    ),
    rule("wakeup_latency", Notice, Nanoseconds, 4e6, "4 ms is one tick").measured_by(
        "99th percentile of the wakeup latency of a thread that sleeps for 1 ms",
        read::wakeup_latency,
        "{of}: a runnable thread starts up to {value} late (p99; max {a}), because another process \
         or the hypervisor uses the CPU.",
    ),
    rule("receive_buffer_full", Notice, PerSecond, 0.0, "kernel docs: networking/snmp_counter").measured_by(
        "PruneCalled, RcvPruned, TCPRcvQDrop",
        |view, out| read::counters(view, &f::RECEIVE_BUFFER_COUNTERS, out),
        "receive buffers of single sockets of {of} overflow {value} times per second: their process reads \
         too slowly; the machine has enough TCP memory (read faster, or raise net.ipv4.tcp_rmem).",
    ),
    rule("send_queue_large", Notice, Bytes, 16.0 * 1024.0 * 1024.0, "own threshold").measured_by(
        "bytes written but not yet sent (Send-Q)",
        read::not_sent_bytes,
        "{value} in the send queues of {of} are not sent yet: the path to the peer is slower than \
         the sender.",
    ),
];

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Finding {
    pub(super) rule: &'static AlertRule,
    pub(super) section: ScreenSection,
    pub(super) label: String,
    pub(super) sentence: String,
}

/// Returns the findings of the rules, the worst rule first. Within a rule, the line that is
/// furthest above its threshold comes first. Of two rules about one line and figure, only the worse
/// is kept.
pub(super) fn evaluate_rules(view: &Places<'_>) -> Vec<Finding> {
    let mut findings: Vec<Finding> = Vec::new();
    let mut readings = Vec::new();
    for rule in RULES {
        readings.clear();
        (rule.measure)(view, &mut readings);
        sort_by(&mut readings, |left, right| right.value.total_cmp(&left.value));
        for reading in readings.iter().filter(|reading| reading.value > rule.threshold) {
            if !findings.iter().any(|other| is_covered(other, rule, reading)) {
                findings.push(to_finding(rule, reading));
            }
        }
    }
    sort_by_key(&mut findings, |finding| std::cmp::Reverse(finding.rule.severity));
    findings
}

/// Returns whether a worse rule has already reported the same figure of the same line: alarms come
/// first in the table.
fn is_covered(other: &Finding, rule: &AlertRule, reading: &Measurement) -> bool {
    /// Pairs of rules: if the first holds, the second adds nothing.
    const COVERED: &[(&str, &str)] = &[
        ("steal", "steal_notice"),
        ("fd_limit", "fd_limit_near"),
        ("accept_queue_full", "accept_queue_half_full"),
        ("one_thread", "thread_busy"),
    ];
    other.section == reading.section
        && other.label == reading.label
        && COVERED.contains(&(other.rule.code, rule.code))
}

fn to_finding(rule: &'static AlertRule, reading: &Measurement) -> Finding {
    let sentence = rule
        .sentence
        .replace("{of}", &reading.label)
        .replace("{value}", &value_text(rule.unit, reading.value))
        .replace("{a}", &reading.facts[0])
        .replace("{b}", &reading.facts[1]);
    Finding { rule, section: reading.section, label: reading.label.clone(), sentence }
}

fn value_text(unit: Unit, value: f64) -> String {
    match unit {
        Fraction => percent(value),
        PerSecond if value < 0.05 => "less than 0.1".to_owned(),
        PerSecond if value < 10.0 => format!("{value:.1}"),
        PerSecond => format_count(value.round()),
        Count | Unit::Cpus | Unit::PerResponse => format_count(value),
        Ratio => format!("{value:.1} times"),
        Nanoseconds => format_duration_ns(value as u64),
        Bytes => format_bytes(value),
    }
}
