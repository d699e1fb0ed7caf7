//! Traffic of sockets between two snapshots, by the counters of each socket, and the end of a
//! connection that sent last.
//!
//! Pure: it reads no sockets.

use std::collections::HashMap;

use super::tcp_socket::{TcpInfo, TcpSocket};

/// Maximum time since the last data of an active socket.
const ACTIVE_MS: u32 = 1_000;

/// Counters of one socket since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SocketCounters {
    pub(crate) bytes_received: u64,
    pub(crate) bytes_acked: u64,
    pub(crate) segments_sent: u64,
    pub(crate) retransmitted: u64,
}

impl SocketCounters {
    pub(crate) fn of(info: &TcpInfo) -> Self {
        Self {
            bytes_received: info.bytes_received,
            bytes_acked: info.bytes_acked,
            segments_sent: info.segments_sent.into(),
            retransmitted: info.retransmitted.into(),
        }
    }

    fn since(&self, then: &Self) -> Self {
        Self {
            bytes_received: self.bytes_received.saturating_sub(then.bytes_received),
            bytes_acked: self.bytes_acked.saturating_sub(then.bytes_acked),
            segments_sent: self.segments_sent.saturating_sub(then.segments_sent),
            retransmitted: self.retransmitted.saturating_sub(then.retransmitted),
        }
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.bytes_received = self.bytes_received.saturating_add(other.bytes_received);
        self.bytes_acked = self.bytes_acked.saturating_add(other.bytes_acked);
        self.segments_sent = self.segments_sent.saturating_add(other.segments_sent);
        self.retransmitted = self.retransmitted.saturating_add(other.retransmitted);
    }
}

/// Traffic of one socket since the snapshot before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SocketTraffic {
    pub(crate) counters: SocketCounters,
    /// True if the socket is new since the snapshot before; the counters cover its lifetime.
    pub(crate) is_new: bool,
}

/// Counters of each socket in this snapshot and in the one before.
#[derive(Debug, Default)]
pub(crate) struct TrafficTracker {
    now: HashMap<u64, SocketCounters>,
    then: HashMap<u64, SocketCounters>,
}

impl TrafficTracker {
    pub(crate) fn start(&mut self) {
        std::mem::swap(&mut self.now, &mut self.then);
        self.now.clear();
    }

    /// Records a socket; `None` if the kernel reports no counters for it.
    pub(crate) fn add(&mut self, socket: &TcpSocket) -> Option<SocketTraffic> {
        let counters = SocketCounters::of(socket.info.as_ref()?);
        self.now.insert(socket.cookie, counters);
        Some(match self.then.get(&socket.cookie) {
            Some(then) => SocketTraffic { counters: counters.since(then), is_new: false },
            None => SocketTraffic { counters, is_new: true },
        })
    }
}

/// End of a connection that sent data last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LastSender {
    /// Nothing was sent yet in either direction.
    Nothing,
    /// This end sent last, with milliseconds since.
    Sent(u32),
    /// The other end sent last, with milliseconds since.
    Received(u32),
    /// Both ends sent within one tick, in unknown order.
    OrderUnknown,
}

/// Returns whether data moved in the last second.
pub(crate) fn is_active(info: &TcpInfo) -> bool {
    let sent = info.segments_sent > 0 && info.last_data_sent_ms <= ACTIVE_MS;
    sent || info.segments_received > 0 && info.last_data_recv_ms <= ACTIVE_MS
}

/// Determines which end sent last. Times are in kernel ticks. If both are in the same tick, it is
/// this end when the other has not acknowledged its data. Otherwise the counts of segments decide:
/// `is_client` states that this end sends first. A proxy with a queue sends the next request in the tick of a
/// response.
pub(crate) fn last_sender(socket: &TcpSocket, info: &TcpInfo, is_client: bool) -> LastSender {
    let sent = u64::from(info.segments_sent).saturating_sub(info.retransmitted.into());
    let received = u64::from(info.segments_received);
    match (sent, received) {
        (0, 0) => return LastSender::Nothing,
        (_, 0) => return LastSender::Sent(info.last_data_sent_ms),
        (0, _) => return LastSender::Received(info.last_data_recv_ms),
        _ => {}
    }
    match info.last_data_sent_ms.cmp(&info.last_data_recv_ms) {
        std::cmp::Ordering::Less => return LastSender::Sent(info.last_data_sent_ms),
        std::cmp::Ordering::Greater => return LastSender::Received(info.last_data_recv_ms),
        std::cmp::Ordering::Equal if socket.send_queue > 0 => {
            return LastSender::Sent(info.last_data_sent_ms);
        }
        std::cmp::Ordering::Equal => {}
    }
    let (requests, responses) = if is_client { (sent, received) } else { (received, sent) };
    match are_all_answered(requests, responses) {
        Some(answered) if answered == is_client => LastSender::Received(info.last_data_recv_ms),
        Some(_) => LastSender::Sent(info.last_data_sent_ms),
        None => LastSender::OrderUnknown,
    }
}

/// Minimum number of requests for a quotient: of fewer, responses of unequal sizes may divide by chance.
const QUOTIENT_REQUESTS_MIN: u64 = 8;

/// Returns whether all requests are answered, and not all but one, from the number of segments of both: each
/// request is one segment, and each response the same number of them. `None` if neither or both fit.
fn are_all_answered(requests: u64, responses: u64) -> Option<bool> {
    match requests.checked_sub(responses) {
        Some(0) => return Some(true),
        Some(1) => return Some(false),
        _ if requests < QUOTIENT_REQUESTS_MIN => return None,
        _ => {}
    }
    match (responses.is_multiple_of(requests), responses.is_multiple_of(requests - 1)) {
        (true, false) => Some(true),
        (false, true) => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::tcp_socket::TcpState;
    use super::*;

    fn row(info: TcpInfo) -> TcpSocket {
        TcpSocket {
            local: ([127, 0, 0, 1], 80).into(),
            remote: ([127, 0, 0, 1], 5000).into(),
            state: TcpState::Established,
            recv_queue: 0,
            send_queue: 0,
            inode: 1,
            cookie: 7,
            info: Some(info),
            memory: None,
        }
    }

    fn info(sent: (u32, u32), received: (u32, u32)) -> TcpInfo {
        TcpInfo {
            segments_sent: sent.0,
            last_data_sent_ms: sent.1,
            segments_received: received.0,
            last_data_recv_ms: received.1,
            ..TcpInfo::default()
        }
    }

    #[test]
    fn the_later_sender_is_last_and_segment_counts_break_ties() {
        let last_sender_of = |sent, received, connected| {
            let info = info(sent, received);
            last_sender(&row(info), &info, connected)
        };
        for connected in [true, false] {
            assert_eq!(last_sender_of((0, 9), (0, 9), connected), LastSender::Nothing);
            assert_eq!(last_sender_of((3, 4), (9, 8), connected), LastSender::Sent(4));
            assert_eq!(last_sender_of((3, 8), (9, 4), connected), LastSender::Received(4));
            assert_eq!(last_sender_of((1, 4), (0, 4), connected), LastSender::Sent(4));
            assert_eq!(last_sender_of((3, 4), (9, 4), connected), LastSender::OrderUnknown);
        }
        // A client's third request is outstanding; its third response has arrived.
        assert_eq!(last_sender_of((3, 4), (2, 4), true), LastSender::Sent(4));
        assert_eq!(last_sender_of((3, 4), (3, 4), true), LastSender::Received(4));
        // A server's third request has arrived; it has responded.
        assert_eq!(last_sender_of((2, 4), (3, 4), false), LastSender::Received(4));
        assert_eq!(last_sender_of((3, 4), (3, 4), false), LastSender::Sent(4));
        // Responses of two segments each: the client's 37th request is outstanding, or answered.
        assert_eq!(last_sender_of((37, 4), (72, 4), true), LastSender::Sent(4));
        assert_eq!(last_sender_of((37, 4), (74, 4), true), LastSender::Received(4));
        assert_eq!(last_sender_of((72, 4), (37, 4), false), LastSender::Received(4));
        assert_eq!(last_sender_of((74, 4), (37, 4), false), LastSender::Sent(4));
        assert_eq!(last_sender_of((37, 4), (73, 4), true), LastSender::OrderUnknown);
        // A retransmitted segment counts once.
        let again = TcpInfo { retransmitted: 2, ..info((5, 4), (2, 4)) };
        assert_eq!(last_sender(&row(again), &again, true), LastSender::Sent(4));
        let unacknowledged = TcpSocket { send_queue: 9, ..row(info((3, 4), (9, 4))) };
        assert_eq!(last_sender(&unacknowledged, &info((3, 4), (9, 4)), false), LastSender::Sent(4));
    }

    #[test]
    fn a_connection_is_active_for_a_second() {
        assert!(is_active(&info((1, 1000), (0, 0))) && is_active(&info((1, 5000), (1, 0))));
        assert!(!is_active(&info((1, 1001), (1, 5000))));
        assert!(!is_active(&info((0, 0), (0, 0))), "it was only opened");
    }

    #[test]
    fn traffic_is_counted_by_socket() {
        let with = |cookie, bytes_received| TcpSocket {
            cookie,
            ..row(TcpInfo { bytes_received, ..TcpInfo::default() })
        };
        let mut tracker = TrafficTracker::default();
        tracker.start();
        assert!(tracker.add(&with(1, 100)).unwrap().is_new);
        tracker.add(&with(2, 900));
        tracker.start();
        let moved = tracker.add(&with(1, 150)).unwrap();
        assert_eq!((moved.counters.bytes_received, moved.is_new), (50, false));
        // The other socket has closed, and its port may be another socket's.
        let moved = tracker.add(&with(3, 20)).unwrap();
        assert_eq!((moved.counters.bytes_received, moved.is_new), (20, true));
        tracker.start();
        assert!(tracker.add(&with(2, 900)).unwrap().is_new);
        assert_eq!(tracker.add(&TcpSocket { info: None, ..with(1, 0) }), None);
    }
}
