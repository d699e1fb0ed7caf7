//! One socket as reported by `sock_diag`: `struct inet_diag_msg` (`include/uapi/linux/inet_diag.h`)
//! and, behind it, `struct tcp_info` (`include/uapi/linux/tcp.h`) and the memory figures of
//! `include/uapi/linux/sock_diag.h`.
//!
//! No I/O. Kernels only ever add to `tcp_info`. In a shorter one, missing figures that every kernel
//! of the last ten years has are zero, and the other missing ones are `None`. Additional figures of
//! a longer one are ignored.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::netlink::message::{NetlinkAttributes, u32_at, u64_at};

const INET_DIAG_MSG_BYTES: usize = 72;
const INET_DIAG_INFO: u16 = 2;
const INET_DIAG_SKMEMINFO: u16 = 7;
/// `AF_INET` and `AF_INET6` as in the row.
const IPV4: u8 = libc::AF_INET as u8;
const IPV6: u8 = libc::AF_INET6 as u8;

/// States of TCP (`include/net/tcp_states.h`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum TcpState {
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

/// All states, with their names in `ss`.
pub(crate) const TCP_STATES: [(TcpState, &str); 11] = [
    (TcpState::Established, "established"),
    (TcpState::SynSent, "syn-sent"),
    (TcpState::SynReceived, "syn-recv"),
    (TcpState::FinWait1, "fin-wait-1"),
    (TcpState::FinWait2, "fin-wait-2"),
    (TcpState::TimeWait, "time-wait"),
    (TcpState::Close, "close"),
    (TcpState::CloseWait, "close-wait"),
    (TcpState::LastAck, "last-ack"),
    (TcpState::Listen, "listening"),
    (TcpState::Closing, "closing"),
];

impl TcpState {
    /// Returns the kernel's number of the state.
    pub(crate) fn number(self) -> u8 {
        self as u8
    }

    /// Returns the state's index in [`STATES`].
    pub(crate) fn index(self) -> usize {
        usize::from(self.number()) - 1
    }

    fn from_number(number: u8) -> Option<Self> {
        let at = usize::from(number).checked_sub(1)?;
        TCP_STATES.get(at).map(|(state, _)| *state)
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct TcpSocket {
    pub(crate) local: SocketAddr,
    pub(crate) remote: SocketAddr,
    pub(crate) state: TcpState,
    /// Bytes that the process has not read; for a listening socket, the waiting connections.
    pub(crate) recv_queue: u32,
    /// Bytes that the other end has not acknowledged; for a listening socket, the backlog.
    pub(crate) send_queue: u32,
    /// 0 if no process holds the socket any more.
    pub(crate) inode: u32,
    /// The kernel's unique identifier of the socket, never reused.
    pub(crate) cookie: u64,
    pub(crate) info: Option<TcpInfo>,
    pub(crate) memory: Option<SocketMemory>,
}

/// Figures kept from `struct tcp_info`; times in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TcpInfo {
    /// Smoothed round-trip time; 0 before the first.
    pub(crate) rtt_us: u32,
    /// Minimum round-trip time; `u32::MAX` before the first.
    pub(crate) rtt_min_us: u32,
    pub(crate) not_sent_bytes: u32,
    /// Segments retransmitted since the socket was opened.
    pub(crate) retransmitted: u32,
    /// Bytes retransmitted; this and the next two exist since Linux 4.19.
    pub(crate) retransmitted_bytes: Option<u64>,
    /// Duplicate segments reported by the other end.
    pub(crate) duplicates: Option<u32>,
    pub(crate) reorderings: Option<u32>,
    /// Latest delivery rate, bytes per second.
    pub(crate) delivery_bytes_per_s: u64,
    pub(crate) application_limited: bool,
    pub(crate) busy_us: u64,
    pub(crate) receive_window_limited_us: u64,
    pub(crate) send_buffer_limited_us: u64,
    /// Milliseconds since the socket last sent data, in steps of a kernel tick.
    pub(crate) last_data_sent_ms: u32,
    /// Milliseconds since the socket last received data.
    pub(crate) last_data_recv_ms: u32,
    pub(crate) bytes_acked: u64,
    pub(crate) bytes_received: u64,
    /// Segments with data since the socket was opened; the sent ones include retransmissions.
    pub(crate) segments_received: u32,
    pub(crate) segments_sent: u32,
}

/// Figures kept from `SK_MEMINFO_*`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SocketMemory {
    /// Memory of both queues including the kernel's overhead and reserved memory.
    pub(crate) bytes: u64,
    /// Packets dropped at this socket; for a listening socket, connections.
    pub(crate) drops: u32,
}

/// Parses the body of one message. `None` if it is too short, neither IPv4 nor IPv6, or in an
/// unknown state.
pub(crate) fn parse(body: &[u8]) -> Option<TcpSocket> {
    let fixed = body.get(..INET_DIAG_MSG_BYTES)?;
    let mut socket = TcpSocket {
        local: address(fixed, 8, 4)?,
        remote: address(fixed, 24, 6)?,
        state: TcpState::from_number(fixed[1])?,
        recv_queue: u32_at(fixed, 56)?,
        send_queue: u32_at(fixed, 60)?,
        inode: u32_at(fixed, 68)?,
        cookie: u64::from(u32_at(fixed, 44)?) | u64::from(u32_at(fixed, 48)?) << 32,
        info: None,
        memory: None,
    };
    for (kind, value) in NetlinkAttributes::new(body, INET_DIAG_MSG_BYTES) {
        match kind {
            INET_DIAG_INFO => socket.info = Some(parse_info(value)),
            INET_DIAG_SKMEMINFO => socket.memory = Some(parse_memory(value)),
            _ => {}
        }
    }
    Some(socket)
}

/// Returns the address at offset `ip` with the port at offset `port`, both in network order.
fn address(message: &[u8], ip: usize, port: usize) -> Option<SocketAddr> {
    let ip = match message[0] {
        IPV4 => IpAddr::from(Ipv4Addr::from(*message[ip..].first_chunk::<4>()?)),
        IPV6 => IpAddr::from(Ipv6Addr::from(*message[ip..].first_chunk::<16>()?)),
        _ => return None,
    };
    Some(SocketAddr::new(ip, u16::from_be_bytes([message[port], message[port + 1]])))
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
        last_data_sent_ms: word(44),
        last_data_recv_ms: word(52),
        bytes_acked: long(120),
        bytes_received: long(128),
        segments_received: word(152),
        segments_sent: word(156),
    }
}

fn parse_memory(value: &[u8]) -> SocketMemory {
    let word = |at: usize| u32_at(value, at * 4).unwrap_or(0);
    // SK_MEMINFO_RMEM_ALLOC, _WMEM_QUEUED, _FWD_ALLOC, _OPTMEM; _DROPS.
    let bytes = [0, 5, 4, 6].map(|at| u64::from(word(at))).iter().sum();
    SocketMemory { bytes, drops: word(8) }
}
