//! The rules that mark lines: a table. A rule measures something for each line that it is about, and
//! marks those that are above its threshold.
//!
//! Sources: `V…` is the verdict of that number in the lab's catalogue, whose threshold it is where
//! nothing else is said; `K:` is a file of the kernel's documentation. "Ours" is a judgement.

use super::readings::{self as read, Reading};
use super::view::View;
use super::{Finding, Mark, percent};
use record::units::{format_bytes, format_count, format_duration_ns};

/// How the measured figure of a rule is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A share, 0 to 1.
    Share,
    /// Events per second.
    PerSecond,
    /// A number of things.
    Count,
    /// A ratio.
    Times,
    /// Nanoseconds.
    Nanoseconds,
    /// Bytes.
    Bytes,
}

/// A rule.
#[derive(Debug)]
pub struct Rule {
    /// Its fixed code.
    pub code: &'static str,
    /// What it looks at.
    pub looks_at: &'static str,
    /// It holds above this, in the unit.
    pub above: f64,
    /// The unit of what it measures.
    pub unit: Unit,
    /// Where the threshold comes from.
    pub source: &'static str,
    /// How much it matters.
    pub mark: Mark,
    /// One sentence for a newcomer: `{of}` is the line, `{value}` what was measured, `{a}` and `{b}`
    /// what goes with it.
    pub sentence: &'static str,
    measure: fn(&View<'_>, &mut Vec<Reading>),
}

impl PartialEq for Rule {
    fn eq(&self, other: &Self) -> bool {
        self.code == other.code
    }
}

const fn rule(code: &'static str, mark: Mark, unit: Unit, above: f64, source: &'static str) -> Row {
    Row { code, mark, unit, above, source }
}

/// The first half of a row.
struct Row {
    code: &'static str,
    mark: Mark,
    unit: Unit,
    above: f64,
    source: &'static str,
}

impl Row {
    const fn of(
        self,
        looks_at: &'static str,
        measure: fn(&View<'_>, &mut Vec<Reading>),
        sentence: &'static str,
    ) -> Rule {
        let Self { code, mark, unit, above, source } = self;
        Rule { code, looks_at, above, unit, source, mark, sentence, measure }
    }
}

use Mark::{Alarm, Notice};
use Unit::{Bytes, Count, Nanoseconds, PerSecond, Share, Times};

/// All rules; what they find is sorted by mark, then in this order.
pub const RULES: &[Rule] = &[
    // What is lost or refused.
    rule("accept_queue_overflow", Alarm, PerSecond, 0.0, "V10, K:networking/snmp_counter").of(
        "TcpExt.ListenOverflows",
        |view, out| read::counters(view, &["TcpExt.ListenOverflows"], out),
        "{value} new clients a second ({of}) find the queue of a listening socket full and have to try \
         again after 1 s or more: accept faster, or raise the backlog and net.core.somaxconn.",
    ),
    rule("accept_queue_full", Alarm, Count, 0.0, "V10, sock_diag").of(
        "listening sockets with a full queue",
        read::full_listeners,
        "{value} of the listening sockets of {of} was full: {a} connections waited to be accepted \
         where {b} may; the server does not accept fast enough.",
    ),
    rule("syn_queue_overflow", Alarm, PerSecond, 0.0, "V11, K:networking/ip-sysctl").of(
        "TcpExt.SyncookiesSent, TCPReqQFullDoCookies, TCPReqQFullDrop",
        |view, out| {
            let names =
                ["TcpExt.SyncookiesSent", "TcpExt.TCPReqQFullDoCookies", "TcpExt.TCPReqQFullDrop"];
            read::counters_max(view, &names, out);
        },
        "{value} handshakes a second ({of}) find the queue of half-open connections full (SYN cookies or \
         drops): raise the listen backlog and somaxconn, or this is an attack.",
    ),
    rule("syn_queue_full", Alarm, Share, 0.999, "V11, sock_diag").of(
        "half-open connections against the backlog",
        read::half_open,
        "{of} has {a} half-open connections where its backlog is {b}: handshakes do not come to \
         their end, because answers get lost or clients do not finish them.",
    ),
    rule("descriptors_gone", Alarm, Share, 0.95, "V13").of(
        "open descriptors against the limit",
        read::descriptors,
        "{of} has {a} of its {b} file descriptors open ({value}): the next connections are refused \
         or wait; raise its limit (ulimit -n, LimitNOFILE).",
    ),
    rule("ended", Alarm, Count, 0.0, "a program that is not there").of(
        "processes of a program",
        read::ended,
        "{of} has 0 processes left: it has ended, or was started anew under another number.",
    ),
    rule("conntrack_full", Alarm, Share, 0.95, "V25").of(
        "entries against nf_conntrack_max",
        read::conntrack_fill,
        "{a} of {b} entries of connection tracking are taken ({value}): packets of new connections \
         are dropped soon; raise nf_conntrack_max, or exempt the service's ports (notrack).",
    ),
    rule("conntrack_drops", Alarm, PerSecond, 0.0, "V25").of(
        "drop, early_drop and insert_failed of nf_conntrack",
        read::conntrack_drops,
        "connection tracking drops {value} packets or entries a second: its table is full or its \
         buckets are too few.",
    ),
    rule("ports_gone", Alarm, Share, 0.9, "V12").of(
        "sockets towards one port against ip_local_port_range",
        read::ports,
        "{a} connections at {of}, open or in TIME_WAIT, use up {value} of the {b} source ports: \
         keep connections alive, use more source addresses, or widen the range.",
    ),
    rule("backlog_drops", Alarm, PerSecond, 0.0, "V5, V15; softnet_stat column 2").of(
        "packets dropped before a processor took them",
        read::backlog_drops,
        "{of} drops {value} packets a second because its backlog queue is full: it is the loss that TCP \
         repairs; spread the receive path, or raise net.core.netdev_max_backlog.",
    ),
    rule("allowance_exceeded", Alarm, PerSecond, 0.0, "V6, V7; ethtool -S").of(
        "*_allowance_exceeded of the driver",
        read::allowances,
        "the cloud holds back or drops {value} packets a second of {of} ({a}): the instance's allowance is \
         used up; take a larger instance or more of them.",
    ),
    rule("out_of_memory", Alarm, PerSecond, 0.0, "V14, K:networking/snmp_counter").of(
        "TCPMemoryPressures, TCPAbortOnMemory, PruneCalled, RcvPruned",
        |view, out| {
            let names = [
                "TcpExt.TCPMemoryPressures",
                "TcpExt.TCPAbortOnMemory",
                "TcpExt.PruneCalled",
                "TcpExt.RcvPruned",
            ];
            read::counters(view, &names, out);
        },
        "TCP of {of} ran out of memory for its buffers {value} times a second: it throws away what it received or ends \
         connections; raise net.ipv4.tcp_mem, or bound what connections may hold.",
    ),
    rule("tcp_memory", Alarm, Share, 1.0, "V14, K:networking/ip-sysctl tcp_mem").of(
        "pages of TCP memory against the pressure mark of tcp_mem",
        read::tcp_memory,
        "TCP of {of} holds {a} in its buffers, {value} of what tcp_mem calls pressure ({b}): it shrinks \
         windows and drops packets.",
    ),
    rule("memory_bound", Alarm, Share, 0.95, "V14").of(
        "memory of the control group against its bound",
        read::memory_bound,
        "{of} uses {a} of the {b} that its control group allows ({value}): pages are reclaimed \
         while it waits, then it is killed.",
    ),
    rule("memory_bound_hits", Alarm, PerSecond, 0.0, "V14").of(
        "times the control group hit its bound of memory",
        read::memory_hits,
        "{of} hits the memory bound of its control group {value} times a second: it waits for pages to be \
         reclaimed.",
    ),
    rule("throttled", Alarm, Share, 0.05, "V23, K:scheduler/sched-bwc").of(
        "throttled periods of the control group",
        read::throttled,
        "{of} is stopped in {value} of its quota's periods: it may use {a} processors and is held \
         for the rest of each period of {b}; raise the quota or run fewer threads.",
    ),
    rule("link_full", Alarm, Share, 0.95, "V6").of(
        "bits per second against the speed or the shaper's rate",
        read::link_fill,
        "{of} carries {a} of at most {b} ({value}): the link is the limit; send less (compression) \
         or get a faster one.",
    ),
    rule("queue_delay", Alarm, Nanoseconds, 1e8, "V14: 100 ms of the link").of(
        "backlog of the queueing discipline over its rate",
        read::queue_delay,
        "{a} wait in the {b} queue of {of}, which takes {value} to send: that much latency is \
         added to every request.",
    ),
    rule("softirq_one_cpu", Alarm, Share, 0.6, "V5: one above 60 %, the others below 20 %").of(
        "softirq share of one processor against the others",
        read::softirq_alone,
        "{of} spends {value} of its time on packets while the others spend {a}: the receive path \
         runs on one processor; spread it (RSS queues, RPS).",
    ),
    rule("steal", Alarm, Share, 0.1, "V22; this height is ours").of(
        "steal",
        read::steal,
        "the hypervisor gave {value} of {of} to other machines: times that are measured now are \
         not this machine's; repeat it on a quiet host.",
    ),
    rule("one_thread", Alarm, Share, 0.95, "V4: idle above 30 %").of(
        "the busiest thread while the machine has idle processors",
        read::lone_thread,
        "{of} runs {value} of the time while {a} of the machine is idle: one thread is the limit; \
         use more workers or spread its connections.",
    ),
    rule("disk_bound", Alarm, Share, 0.9, "V18").of(
        "bytes written to disks against the control group's bound",
        read::disk_bound,
        "{of} writes {a} to disk where its control group allows {b} ({value}): who writes waits.",
    ),
    // What is unusual.
    rule("thread_busy", Notice, Share, 0.95, "V1, V4").of(
        "the busiest thread",
        read::busy_thread,
        "{of} runs {value} of the time: it is at its limit, and what it serves waits.",
    ),
    rule("program_busy", Notice, Share, 0.9, "V2: 90 % of what it may use").of(
        "processors used against affinity and quota",
        read::role_fill,
        "{of} uses {a} of the {b} processors that it may use ({value}): its own work is the limit; \
         a profile shows on what.",
    ),
    rule("machine_busy", Notice, Share, 0.95, "V1, V2").of(
        "all processors",
        read::machine_busy,
        "all {a} processors together are {value} busy: whatever is added takes from the rest.",
    ),
    rule("run_queue", Notice, Times, 0.2, "V22: waiting above 0.2 of running").of(
        "time ready and waiting over time running (schedstat)",
        read::run_queue,
        "the threads of {of} wait for a processor {value} as long as they run: more threads want \
         to run than there are processors.",
    ),
    rule("unread_server", Notice, Share, 0.5, "V2: 31 of 32 when the server was the limit").of(
        "connections whose server has not read what came",
        read::unread_server,
        "{of} has not read what came on {a} of its {b} connections ({value}): the server does not \
         keep up.",
    ),
    rule("unread_client", Notice, Share, 0.5, "V1: 32 of 32 when the client was the limit").of(
        "connections whose client has not read what came",
        read::unread_client,
        "{of} has not read what came on {a} of its {b} connections ({value}): the client does not \
         keep up.",
    ),
    rule("backlog_half", Notice, Share, 0.5, "V10; half is ours").of(
        "connections that wait to be accepted",
        read::listener_fill,
        "{a} connections wait to be accepted on {of} where {b} may ({value}).",
    ),
    rule("retransmits", Notice, Share, 0.001, "V15: 0.1 % of what is sent").of(
        "Tcp.RetransSegs over Tcp.OutSegs",
        read::retransmits,
        "TCP of {of} sends {value} of its segments again ({a} of {b}): packets get lost, and each \
         costs its connection a round trip or more.",
    ),
    rule("timeouts", Notice, PerSecond, 0.0, "V15: 200 ms each").of(
        "TcpExt.TCPTimeouts",
        |view, out| read::counters(view, &["TcpExt.TCPTimeouts"], out),
        "{value} retransmission timers a second run out ({of}): each is a pause of 200 ms or more for somebody, \
         and a tail in the latencies.",
    ),
    rule("resets", Notice, PerSecond, 1.0, "V28; one a second is ours").of(
        "Tcp.EstabResets, AttemptFails",
        |view, out| read::counters(view, &["Tcp.EstabResets", "Tcp.AttemptFails"], out),
        "{value} connections a second ({of}) are reset or refused: somebody gives up or nobody listens; results \
         that are taken meanwhile may be worthless.",
    ),
    rule("time_wait_overflow", Notice, PerSecond, 0.0, "V12").of(
        "TcpExt.TCPTimeWaitOverflow",
        |view, out| read::counters(view, &["TcpExt.TCPTimeWaitOverflow"], out),
        "{value} connections a second ({of}) cannot go to TIME_WAIT because there are too many: raise \
         net.ipv4.tcp_max_tw_buckets, or keep connections alive.",
    ),
    rule("receive_queue_drops", Notice, PerSecond, 0.0, "V15; local, not the network").of(
        "TcpExt.TCPBacklogDrop, TCPRcvQDrop",
        |view, out| read::counters(view, &["TcpExt.TCPBacklogDrop", "TcpExt.TCPRcvQDrop"], out),
        "{value} segments a second ({of}) are dropped because a socket's queue was full: a program reads too \
         slowly, or its receive buffer is too small.",
    ),
    rule("delayed_acks", Notice, Share, 0.01, "V16: more than 1 %").of(
        "TcpExt.DelayedACKs over Tcp.InSegs",
        read::delayed_acks,
        "{value} of the segments that came to {of} were acknowledged late ({a}): a sender that \
         waits for that loses 40 ms; look for it in the latencies (TCP_NODELAY, one write).",
    ),
    rule("link_drops", Notice, PerSecond, 0.0, "V15").of(
        "drops of the interface and its queues",
        read::link_drops,
        "{of} drops {value} packets a second ({a}): TCP sends them again.",
    ),
    rule("time_squeeze", Notice, PerSecond, 0.0, "V5; softnet_stat column 3").of(
        "receive rounds that ran out of budget",
        read::time_squeezes,
        "{of} has more packets than it may handle in one go {value} times a second: it does not keep up with \
         the network.",
    ),
    rule("steal_some", Notice, Share, 0.02, "V22").of(
        "steal",
        read::steal,
        "the hypervisor gave {value} of {of} to other machines: times are longer than they would \
         be alone.",
    ),
    rule("window_limited", Notice, Share, 0.2, "V27").of(
        "time with a full receive window over time with something to send",
        read::receive_window,
        "connections at {of} spend {value} of their sending time before a full receive window: the \
         other end reads too slowly, or its receive buffer is too small.",
    ),
    rule("send_buffer_limited", Notice, Share, 0.2, "V27").of(
        "time with a full send buffer over time with something to send",
        read::send_buffer,
        "connections at {of} spend {value} of their sending time with a full send buffer: raise \
         net.ipv4.tcp_wmem.",
    ),
    rule("bufferbloat", Notice, Times, 5.0, "V14: five times the least, above 1 ms (ours)").of(
        "round-trip time over its minimum, with bytes that wait",
        read::bloat,
        "round trips at {of} take {a}, {value} the least of {b}, with bytes waiting to be sent: a \
         queue on the way is full.",
    ),
    rule("descriptors_few", Notice, Share, 0.8, "V13; this height is ours").of(
        "open descriptors against the limit",
        read::descriptors,
        "{of} has {a} of its {b} file descriptors open ({value}).",
    ),
    rule("disk_sleep", Notice, Count, 0.0, "V18").of(
        "threads in uninterruptible sleep",
        read::disk_sleep,
        "threads of {of} that wait for a disk: {value}; requests that they serve wait with them.",
    ),
    rule("disk_pressure", Notice, Share, 0.1, "V18; this height is ours").of(
        "pressure io full",
        |view, out| read::pressure(view, |pressure| pressure.io_full, out),
        "for {value} of the time every task that could run waited for a disk.",
    ),
    rule("memory_pressure", Notice, Share, 0.1, "V14; this height is ours").of(
        "pressure memory some",
        |view, out| read::pressure(view, |pressure| pressure.memory_some, out),
        "for {value} of the time some task waited for memory: the machine has too little.",
    ),
    rule("major_faults", Notice, PerSecond, 10.0, "V14; this height is ours").of(
        "page faults that read a disk",
        read::major_faults,
        "{of} waits for pages from a disk {value} times a second: what it needs was pushed out of memory.",
    ),
    rule("others", Notice, Share, 0.2, "V22; this height is ours").of(
        "processors used by programs that are not watched",
        read::others,
        "programs that are not watched use {a} of {b} processors ({value}): what is measured now \
         is not the watched programs alone.",
    ),
    rule("wake_up_lag", Notice, Nanoseconds, 4e6, "V22, fingerprints: 4 ms is one tick").of(
        "99 % of the wake-ups of a thread that sleeps for 1 ms",
        read::wake_up_lag,
        "{of}: a thread that should run starts up to {value} late (99 %; the latest {a}), because \
         the processor is taken, by another program or by the hypervisor.",
    ),
    rule("watching_costs", Notice, Share, 0.01, "the budget of watching: 1 % of one core").of(
        "processor time of the watching",
        read::cost,
        "watching costs {value} of one core: watch less often (--every).",
    ),
    rule("unsent_much", Notice, Bytes, 16.0 * 1024.0 * 1024.0, "V14, V27; this height is ours").of(
        "bytes that programs wrote and the kernel could not send yet",
        read::not_sent,
        "{value} that were written to connections at {of} are not sent yet: the way to the other \
         end is slower than the program.",
    ),
];

/// What the rules find, the worst rule first, and of a rule the line that is furthest above its
/// threshold. Of two rules about one line and figure, the worse.
pub(super) fn find(view: &View<'_>) -> Vec<Finding> {
    let mut findings: Vec<Finding> = Vec::new();
    let mut readings = Vec::new();
    for rule in RULES {
        readings.clear();
        (rule.measure)(view, &mut readings);
        readings.sort_by(|one, other| other.value.total_cmp(&one.value));
        for reading in readings.iter().filter(|reading| reading.value > rule.above) {
            if !findings.iter().any(|other| says_it_already(other, rule, reading)) {
                findings.push(finding(rule, reading));
            }
        }
    }
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.rule.mark));
    findings
}

/// Whether a worse rule of the same figure has spoken of the same line: alarms come first in the table.
fn says_it_already(other: &Finding, rule: &Rule, reading: &Reading) -> bool {
    /// Pairs of rules: where the first holds, the second adds nothing.
    const COVERED: &[(&str, &str)] = &[
        ("steal", "steal_some"),
        ("descriptors_gone", "descriptors_few"),
        ("accept_queue_full", "backlog_half"),
        ("one_thread", "thread_busy"),
    ];
    other.section == reading.section
        && other.label == reading.label
        && COVERED.contains(&(other.rule.code, rule.code))
}

fn finding(rule: &'static Rule, reading: &Reading) -> Finding {
    let sentence = rule
        .sentence
        .replace("{of}", &reading.label)
        .replace("{value}", &text(rule.unit, reading.value))
        .replace("{a}", &reading.facts[0])
        .replace("{b}", &reading.facts[1]);
    Finding { rule, section: reading.section, label: reading.label.clone(), sentence }
}

fn text(unit: Unit, value: f64) -> String {
    match unit {
        Share => percent(value),
        PerSecond if value < 0.05 => "less than 0.1".to_owned(),
        PerSecond if value < 10.0 => format!("{value:.1}"),
        PerSecond => format_count(value.round()),
        Count => format_count(value),
        Times => format!("{value:.1} times"),
        Nanoseconds => format_duration_ns(value as u64),
        Bytes => format_bytes(value),
    }
}
