//! One socket as `sock_diag` tells it: `struct inet_diag_msg` (`include/uapi/linux/inet_diag.h`) and,
//! behind it, `struct tcp_info` (`include/uapi/linux/tcp.h`) and the memory figures of
//! `include/uapi/linux/sock_diag.h`.
//!
//! Pure. Kernels only ever add to `tcp_info`: of what a shorter one does not have, what every kernel of
//! the last ten years has is zero here and the rest is `None`; what a longer one has more is not looked at.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::netlink::message::{Attributes, u32_at, u64_at};

/// `struct inet_diag_msg`.
const ROW_BYTES: usize = 72;
const INFO: u16 = 2;
const SOCKET_MEMORY: u16 = 7;
/// `AF_INET` and `AF_INET6` as they stand in the row.
const IPV4: u8 = libc::AF_INET as u8;
const IPV6: u8 = libc::AF_INET6 as u8;

/// States of TCP (`include/net/tcp_states.h`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum State {
    Established = 1,
    SynSent,
    SynReceived,
    FinWait1,
    FinWait2,
    TimeWait,
    Close,
    CloseWait,
    LastAck,
    Listen,
    Closing,
}

/// All of them, with the names that `ss` has for them.
pub(crate) const STATES: [(State, &str); 11] = [
    (State::Established, "established"),
    (State::SynSent, "syn-sent"),
    (State::SynReceived, "syn-recv"),
    (State::FinWait1, "fin-wait-1"),
    (State::FinWait2, "fin-wait-2"),
    (State::TimeWait, "time-wait"),
    (State::Close, "close"),
    (State::CloseWait, "close-wait"),
    (State::LastAck, "last-ack"),
    (State::Listen, "listening"),
    (State::Closing, "closing"),
];

impl State {
    /// The kernel's number of it.
    pub(crate) fn number(self) -> u8 {
        self as u8
    }

    /// Its place in [`STATES`].
    pub(crate) fn at(self) -> usize {
        usize::from(self.number()) - 1
    }

    fn of(number: u8) -> Option<Self> {
        let at = usize::from(number).checked_sub(1)?;
        STATES.get(at).map(|(state, _)| *state)
    }
}

/// A socket.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Row {
    pub(crate) local: SocketAddr,
    pub(crate) remote: SocketAddr,
    pub(crate) state: State,
    /// Bytes that the program has not read; connections that wait, where it listens.
    pub(crate) received: u32,
    /// Bytes that the other end has not acknowledged; the most that may wait, where it listens.
    pub(crate) unacknowledged: u32,
    /// 0 when no process holds it any more.
    pub(crate) inode: u32,
    /// The kernel's identifier of the socket, which no other socket ever gets.
    pub(crate) cookie: u64,
    pub(crate) info: Option<TcpInfo>,
    pub(crate) memory: Option<Memory>,
}

/// What is kept of `struct tcp_info`; times in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TcpInfo {
    /// Smoothed round-trip time; 0 before the first.
    pub(crate) rtt_us: u32,
    /// The least of it; `u32::MAX` before the first.
    pub(crate) rtt_min_us: u32,
    pub(crate) not_sent_bytes: u32,
    /// Segments sent again since it was opened.
    pub(crate) retransmitted: u32,
    /// Bytes of them; this and the next two are there since Linux 4.19.
    pub(crate) retransmitted_bytes: Option<u64>,
    /// Segments that the other end reported to have had twice.
    pub(crate) duplicates: Option<u32>,
    /// Times that segments turned out to be out of order.
    pub(crate) reorderings: Option<u32>,
    /// Latest delivery rate, bytes per second.
    pub(crate) delivery_bytes_per_s: u64,
    pub(crate) application_limited: bool,
    pub(crate) busy_us: u64,
    pub(crate) receive_window_limited_us: u64,
    pub(crate) send_buffer_limited_us: u64,
    /// Milliseconds since it last sent data, in steps of a kernel tick.
    pub(crate) sent_ms_ago: u32,
    /// Milliseconds since it last received data.
    pub(crate) received_ms_ago: u32,
    pub(crate) bytes_acked: u64,
    pub(crate) bytes_received: u64,
    /// Segments with data, since it was opened; the sent ones with those sent again.
    pub(crate) segments_received: u32,
    pub(crate) segments_sent: u32,
}

/// What is kept of `SK_MEMINFO_*`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Memory {
    /// Both queues with what the kernel needs around the bytes, and what is set aside for them.
    pub(crate) bytes: u64,
    /// Packets that were dropped at this socket; connections, where it listens.
    pub(crate) drops: u32,
}

/// Parses the body of one message; `None` when it is too short, or neither IPv4 nor IPv6, or in a
/// state that this version does not know.
pub(crate) fn parse(body: &[u8]) -> Option<Row> {
    let fixed = body.get(..ROW_BYTES)?;
    let mut row = Row {
        local: address(fixed, 8, 4)?,
        remote: address(fixed, 24, 6)?,
        state: State::of(fixed[1])?,
        received: u32_at(fixed, 56)?,
        unacknowledged: u32_at(fixed, 60)?,
        inode: u32_at(fixed, 68)?,
        cookie: u64::from(u32_at(fixed, 44)?) | u64::from(u32_at(fixed, 48)?) << 32,
        info: None,
        memory: None,
    };
    for (kind, value) in Attributes::new(body, ROW_BYTES) {
        match kind {
            INFO => row.info = Some(parse_info(value)),
            SOCKET_MEMORY => row.memory = Some(parse_memory(value)),
            _ => {}
        }
    }
    Some(row)
}

/// The address at `ip` with the port at `port`, both in network order.
fn address(row: &[u8], ip: usize, port: usize) -> Option<SocketAddr> {
    let ip = match row[0] {
        IPV4 => IpAddr::from(Ipv4Addr::from(*row[ip..].first_chunk::<4>()?)),
        IPV6 => IpAddr::from(Ipv6Addr::from(*row[ip..].first_chunk::<16>()?)),
        _ => return None,
    };
    Some(SocketAddr::new(ip, u16::from_be_bytes([row[port], row[port + 1]])))
}

fn parse_info(value: &[u8]) -> TcpInfo {
    let word = |at| u32_at(value, at).unwrap_or(0);
    let long = |at| u64_at(value, at).unwrap_or(0);
    // The first of the bit fields in byte 7; compilers fill a byte from its low end on
    // little-endian machines and from its high end on big-endian ones.
    let application_limited = if cfg!(target_endian = "little") { 0x01 } else { 0x80 };
    TcpInfo {
        rtt_us: word(68),
        rtt_min_us: word(148),
        not_sent_bytes: word(144),
        retransmitted: word(100),
        retransmitted_bytes: u64_at(value, 208),
        duplicates: u32_at(value, 216),
        reorderings: u32_at(value, 220),
        delivery_bytes_per_s: long(160),
        application_limited: value.get(7).is_some_and(|byte| byte & application_limited != 0),
        busy_us: long(168),
        receive_window_limited_us: long(176),
        send_buffer_limited_us: long(184),
        sent_ms_ago: word(44),
        received_ms_ago: word(52),
        bytes_acked: long(120),
        bytes_received: long(128),
        segments_received: word(152),
        segments_sent: word(156),
    }
}

fn parse_memory(value: &[u8]) -> Memory {
    let word = |at: usize| u32_at(value, at * 4).unwrap_or(0);
    // SK_MEMINFO_RMEM_ALLOC, _WMEM_QUEUED, _FWD_ALLOC, _OPTMEM; _DROPS.
    let bytes = [0, 5, 4, 6].map(|at| u64::from(word(at))).iter().sum();
    Memory { bytes, drops: word(8) }
}
