//! Signals of TCP and of links. Thresholds are elsewhere.

use record::observed::ConnectionEnd;

use super::compute::*;
use super::cpu::{BACKLOG_DROPS, TIME_SQUEEZES};
use super::latency_range::LatencyRange;
use super::signal::{Signal, SignalFamily};
use super::{http2, link, loss};
use crate::figures as f;
use crate::run_view::RunView;
use crate::unit::Unit;
use crate::window::{GENERATOR, SUBJECT};

/// Time of a delayed acknowledgement of Linux (TCP_DELACK_MIN, 40 ms), and a timer's tick on either side.
const DELAYED_ACK: LatencyRange = LatencyRange { from_ns: 39_000_000, to_ns: 48_000_000 };

signals! {
    // TCP.
    LISTEN_OVERFLOWS: Counters, PerSecond, "connections refused by a full accept queue",
        "drops of the subject's listening sockets; TcpExt ListenOverflows if no other process listens",
        loss::listen_overflows;
    LISTENER_FULL: Queue, Fraction, "snapshots in which the accept queue was full",
        "sock_diag of the listening socket", full_snapshot_fraction;
    CONNECT_RETRIES: Latency, Fraction, "connections that took a second or more to establish",
        "connect times of the generator", |view| {
            Some(LatencyRange { from_ns: 900_000_000, to_ns: u64::MAX / 2 }.fraction_of(&view.connect))
        };
    SYN_QUEUE: Counters, PerSecond, "SYN cookies and drops of a full SYN queue",
        "TcpExt SyncookiesSent, TCPReqQFullDoCookies, TCPReqQFullDrop",
        |view| view.counter(SUBJECT, &f::SYN_QUEUE_COUNTERS);
    OVERFLOWS_OVER_COOKIES: Counters, Ratio,
        "connections refused by a full accept queue over SYN cookies and drops of the SYN queue",
        "drops of the listening sockets; TcpExt ListenOverflows, SyncookiesSent, TCPReqQFull*", |view| {
            let overflows = loss::listen_overflows(view)?;
            Some(overflows / (SYN_QUEUE.read)(view)?.max(0.1))
        };
    SYN_RECEIVED: Queue, Fraction, "half-open connections, of the listener's backlog",
        "sock_diag in SYN_RECV", |view| {
            let half = view.ends_median(SUBJECT, ConnectionEnd::Server, |ends| connections_in_state(ends, "syn-recv"))?;
            Some(half / backlog(view)?.max(1.0))
        };
    RETRANSMITTED: Connections, Fraction, "retransmitted segments of the subject's traffic",
        "TCP_INFO of its sockets; Tcp RetransSegs / OutSegs if no other process uses the namespaces; the counts of TCP in \
         user space",
        loss::retransmitted_fraction;
    LOSS_COST: Latency, Fraction, "time for retransmissions, of the latency",
        "retransmissions per response × round trip, and timeouts of 200 ms, of 1 s in user space", loss::loss_latency_fraction;
    LOSS_RECOVERY: Counters, PerSecond, "losses that TCP recovered from",
        "TcpExt TCPTimeouts, TCPSackRecovery, TCPLostRetransmit, TCPFastRetrans, TCPLossProbes",
        |view| counter_of_both_ends(view, &[
            "TcpExt.TCPTimeouts", "TcpExt.TCPSackRecovery", "TcpExt.TCPLostRetransmit",
            "TcpExt.TCPFastRetrans", "TcpExt.TCPLossProbes",
        ]);
    RETRANSMITTED_BY_CONNECTIONS: Connections, PerSecond, "retransmitted segments of the connections",
        "TCP_INFO total_retrans of both ends", |view| {
            let retransmissions = |role, end| growth_per_s(view, role, end, |ends| ends.retransmitted as f64);
            let ends = [retransmissions(SUBJECT, ConnectionEnd::Server), retransmissions(GENERATOR, ConnectionEnd::Client)];
            ends.into_iter().flatten().reduce(|sum, rate| sum + rate)
        };
    RETRANSMISSION_MODE: Latency, Fraction, "requests delayed by a retransmission timeout (200 ms, 1 s in user space)",
        "the latency histogram", retransmission_mode;
    DELAYED_ACKS: Counters, PerResponse, "delayed acknowledgements per response",
        "TcpExt DelayedACKs", |view| {
            Some(counter_of_both_ends(view, &["TcpExt.DelayedACKs"])? / responses_per_s(view)?)
        };
    DELAYED_ACK_MODE: Latency, Fraction, "requests that took 39 to 48 ms, while few took 30 to 39 ms",
        "the latency histogram", |view| {
            Some(DELAYED_ACK.starting_fraction_of(&view.last_byte).unwrap_or(0.0))
        };
    TRANSFER_STALL: Latency, Fraction, "39 to 48 ms from the first byte to the last, of the latency",
        "medians of the latency histograms", |view| {
            let total_ns = view.run.latency.last_byte.service.p50_ns as f64;
            Some(stall_long_transfer_ns(view).map_or(0.0, |stall_ns| stall_ns / total_ns))
        };
    ROUND_TRIP: Connections, Ratio, "round-trip time over its minimum",
        "TCP_INFO rtt / min_rtt of the sending end", |view| {
            view.ends_median(SUBJECT, ConnectionEnd::Server, f::ROUND_TRIP.read)
        };
    ROUND_TRIP_EXCESS: Connections, Nanoseconds, "round-trip time beyond its minimum",
        "TCP_INFO rtt - min_rtt of the sending end", |view| {
            view.ends_median(SUBJECT, ConnectionEnd::Server, |ends| {
                Some((ends.rtt_us - ends.rtt_min_us).max(0.0) * 1e3)
            })
        };
    RECEIVE_WINDOW: Connections, Fraction, "time with bytes to send in which the receive window was full",
        "TCP_INFO rwnd_limited / busy_time of the subject's sockets; of the generator's for uploads",
        receive_window_full_fraction;
    ROUND_TRIP_MIN: Connections, Nanoseconds, "minimum round-trip time", "TCP_INFO min_rtt of the sending end",
        http2::round_trip_ns;
    HTTP2_WINDOW: Generator, Fraction, "HTTP/2 window that arrives per round trip",
        "bytes per connection × TCP_INFO min_rtt / the receiver's windows (SETTINGS, WINDOW_UPDATE)",
        http2::window_used_fraction;
    SEND_BUSY: Connections, Fraction, "time in which the sender's sockets had unacknowledged bytes",
        "TCP_INFO busy_time", send_busy_fraction;
    NOT_SENT: Queue, Bytes, "bytes that the subject's sockets could not send yet",
        "TCP_INFO notsent_bytes", |view| {
            view.ends_median(SUBJECT, ConnectionEnd::Server, f::NOT_SENT.read)
        };
    UNSENT_WITH_OPEN_WINDOW: Queue, Bytes, "unsent bytes although the window is open",
        "TCP_INFO notsent_bytes of either end, median", |view| {
            let not_sent_bytes = |role, end| view.ends_median(role, end, f::NOT_SENT.read);
            let client = not_sent_bytes(GENERATOR, ConnectionEnd::Client).unwrap_or(0.0);
            match not_sent_bytes(SUBJECT, ConnectionEnd::Server) {
                Some(server) => Some(server.max(client)),
                // An empty queue at one end says nothing about the other end.
                None => (client > 0.0).then_some(client),
            }
        };
    // Links.
    LINK: Link, Fraction, "busiest link, of its rate", "interface bytes; tbf rate or speed",
        link::link_utilization;
    LINK_SPREAD: Link, Fraction, "spread of the busiest link's bytes per second",
        "interface bytes of each sample", link::link_spread;
    LINK_QUEUE: Link, Nanoseconds, "time to drain the link's queue", "qdisc backlog / rate",
        link::queue_ns;
    OVERLIMITS: Link, PerSecond, "packets that waited for the link", "qdisc overlimits",
        link::overlimits;
    PACKETS_DELAYED: Link, PerSecond, "packets that waited, were dropped or were deferred",
        "qdisc overlimits and drops, interface drops, softnet_stat columns 2 and 3", |view| {
            let signals = [&OVERLIMITS, &LINK_DROPS, &TIME_SQUEEZES, &BACKLOG_DROPS];
            signals.into_iter().filter_map(|signal| (signal.read)(view)).reduce(|sum, value| sum + value)
        };
    PACKET_BYTES: Link, Bytes, "bytes per packet on the link with the most packets",
        "interface counters", link::packet_bytes;
    LINK_DROPS: Link, PerSecond, "packets dropped by interfaces and their queues",
        "interface and qdisc drops", link::drops;
    PACKET_SPREAD: Link, Fraction, "spread of the packets per second on the link with the most packets",
        "interface counters of each sample", link::packet_spread;
}

/// Returns the time from the first byte to the last if it is a stall: a response in two writes, of which Nagle's
/// algorithm holds the second back. A server that only takes as long between its parts has nothing to send meanwhile.
pub(super) fn acknowledgement_stall_ns(view: &RunView<'_>) -> Option<f64> {
    UNSENT_WITH_OPEN_WINDOW.value(view).filter(|bytes| *bytes >= 1.0)?;
    stall_long_transfer_ns(view)
}

/// Returns the time from the first byte to the last, if it is as long as a delayed acknowledgement.
fn stall_long_transfer_ns(view: &RunView<'_>) -> Option<f64> {
    let latency = &view.run.latency;
    let (first_ns, last_ns) = (latency.first_byte.service.p50_ns, latency.last_byte.service.p50_ns);
    let transfer_ns = last_ns.saturating_sub(first_ns);
    (DELAYED_ACK.from_ns..DELAYED_ACK.to_ns).contains(&transfer_ns).then_some(transfer_ns as f64)
}
