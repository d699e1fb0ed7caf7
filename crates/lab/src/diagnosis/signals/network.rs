//! Signals of TCP and of links. Not for thresholds.

use record::observed::End;

use super::read::*;
use super::{BACKLOG_DROPS, Family, SQUEEZES, Signal, Unit, link, loss};
use crate::diagnosis::fingerprints;
use crate::diagnosis::view::{GENERATOR, SUBJECT};

signals! {
    // TCP.
    LISTEN_OVERFLOWS: Counters, PerSecond, "connections refused by a full accept queue",
        "drops of the subject's listening sockets; TcpExt ListenOverflows where nobody else listens",
        loss::listen_overflows;
    LISTENER_FULL: Queue, Share, "snapshots in which the accept queue was full",
        "sock_diag of the listening socket", listener_full;
    CONNECT_RETRIES: Latency, Share, "connections that stood only after a second or more",
        "connect times of the generator", |view| {
            Some(fingerprints::share_between(&view.connect, 900_000_000, u64::MAX / 2))
        };
    SYN_QUEUE: Counters, PerSecond, "SYN cookies and refusals of a full SYN queue",
        "TcpExt SyncookiesSent, TCPReqQFullDoCookies, TCPReqQFullDrop",
        |view| view.counter(SUBJECT, &[
            "TcpExt.SyncookiesSent", "TcpExt.TCPReqQFullDoCookies", "TcpExt.TCPReqQFullDrop",
        ]);
    OVERFLOWS_OVER_COOKIES: Counters, Times,
        "connections refused by a full accept queue over SYN cookies and refusals of the SYN queue",
        "drops of the listening sockets; TcpExt ListenOverflows, SyncookiesSent, TCPReqQFull*", |view| {
            let overflows = loss::listen_overflows(view)?;
            Some(overflows / (SYN_QUEUE.read)(view)?.max(0.1))
        };
    SYN_RECEIVED: Queue, Share, "half-open connections, of the listener's backlog",
        "sock_diag in SYN_RECV", |view| {
            let half = view.of_ends(SUBJECT, End::Server, |ends| state(ends, "syn-recv"))?;
            Some(half / backlog(view)?.max(1.0))
        };
    RETRANSMITTED: Connections, Share, "segments of the subject's traffic that were sent again",
        "TCP_INFO of its sockets; Tcp RetransSegs / OutSegs where nobody else is in the namespaces",
        loss::retransmitted;
    LOSS_COST: Latency, Share, "latency that retransmissions take",
        "retransmissions per response times a round trip, and timeouts of 200 ms", loss::cost;
    LOSS_RECOVERY: Counters, PerSecond, "losses that TCP had to recover from",
        "TcpExt TCPTimeouts, TCPSackRecovery, TCPLostRetransmit, TCPFastRetrans, TCPLossProbes",
        |view| both(view, &[
            "TcpExt.TCPTimeouts", "TcpExt.TCPSackRecovery", "TcpExt.TCPLostRetransmit",
            "TcpExt.TCPFastRetrans", "TcpExt.TCPLossProbes",
        ]);
    RETRANSMITTED_BY_CONNECTIONS: Connections, PerSecond, "segments sent again on the connections",
        "TCP_INFO total_retrans of both ends", |view| {
            let of = |role, end| growth(view, role, end, |ends| ends.retransmitted as f64);
            let ends = [of(SUBJECT, End::Server), of(GENERATOR, End::Client)];
            ends.into_iter().flatten().reduce(|sum, one| sum + one)
        };
    RETRANSMISSION_MODE: Latency, Share, "requests that took a retransmission's time (200 ms)",
        "the latency histogram", retransmission_mode;
    DELAYED_ACKS: Counters, PerResponse, "delayed acknowledgements per response",
        "TcpExt DelayedACKs", |view| {
            Some(both(view, &["TcpExt.DelayedACKs"])? / responses(view)?)
        };
    DELAYED_ACK_MODE: Latency, Share, "requests that took 39 to 48 ms, and gather there",
        "the latency histogram", |view| {
            Some(fingerprints::gathered(&view.last_byte, 39_000_000, 48_000_000).unwrap_or(0.0))
        };
    ROUND_TRIP: Connections, Times, "round-trip time over the least",
        "TCP_INFO rtt / min_rtt of the sending end", |view| {
            view.of_ends(SUBJECT, End::Server, |ends| {
                (ends.rtt_min_us > 0.0).then(|| ends.rtt_us / ends.rtt_min_us)
            })
        };
    ROUND_TRIP_EXCESS: Connections, Nanoseconds, "round-trip time beyond the least",
        "TCP_INFO rtt - min_rtt of the sending end", |view| {
            view.of_ends(SUBJECT, End::Server, |ends| {
                Some((ends.rtt_us - ends.rtt_min_us).max(0.0) * 1e3)
            })
        };
    RECEIVE_WINDOW: Connections, Share, "time with bytes to send in which the receiver's window was full",
        "TCP_INFO rwnd_limited / busy_time of the subject's sockets", |view| {
            limited(view, |ends| ends.receive_window_limited_us as f64)
        };
    SEND_BUSY: Connections, Share, "time in which the subject's sockets had bytes on their way",
        "TCP_INFO busy_time", |view| {
            let per_s = growth(view, SUBJECT, End::Server, |ends| ends.busy_us as f64)? / 1e6;
            let sockets = view.of_ends(SUBJECT, End::Server, |ends| state(ends, "established"))?;
            (sockets > 0.0).then(|| per_s / sockets)
        };
    NOT_SENT: Queue, Bytes, "bytes that the subject's sockets could not send yet",
        "TCP_INFO notsent_bytes", |view| {
            view.of_ends(SUBJECT, End::Server, |ends| Some(ends.not_sent_bytes as f64))
        };
    HELD_BACK: Queue, Bytes, "bytes that wait in a sender although the window is open",
        "TCP_INFO notsent_bytes of either end, median", |view| {
            let of = |role, end| view.of_ends(role, end, |ends| Some(ends.not_sent_bytes as f64));
            let client = of(GENERATOR, End::Client).unwrap_or(0.0);
            match of(SUBJECT, End::Server) {
                Some(server) => Some(server.max(client)),
                // That nothing waits in one end says nothing of the other.
                None => (client > 0.0).then_some(client),
            }
        };
    // Links.
    LINK: Link, Share, "busiest link, of its rate", "interface bytes; tbf rate or speed",
        link::link_share;
    LINK_SPREAD: Link, Share, "spread of the busiest link's bytes per second",
        "interface bytes, sample by sample", link::link_spread;
    LINK_QUEUE: Link, Nanoseconds, "time that the link's queue takes to send", "qdisc backlog / rate",
        link::queue_ns;
    OVERLIMITS: Link, PerSecond, "packets that had to wait for the link", "qdisc overlimits",
        link::overlimits;
    PACKETS_HELD: Link, PerSecond, "packets that had to wait, were dropped, or were left for later",
        "qdisc overlimits and drops, interface drops, softnet_stat columns 2 and 3", |view| {
            let of = [&OVERLIMITS, &LINK_DROPS, &SQUEEZES, &BACKLOG_DROPS];
            of.into_iter().filter_map(|signal| (signal.read)(view)).reduce(|sum, one| sum + one)
        };
    PACKET_BYTES: Link, Bytes, "bytes a packet on the link with the most packets",
        "interface counters", link::packet_bytes;
    LINK_DROPS: Link, PerSecond, "packets dropped by interfaces and their queues",
        "interface and qdisc drops", link::drops;
    PACKET_SPREAD: Link, Share, "spread of the packets per second on the link with the most",
        "interface counters, sample by sample", link::packet_spread;
}
