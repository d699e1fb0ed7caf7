//! What sockets moved between two snapshots, by the counters of each socket, and which end of a
//! connection spoke last.
//!
//! Pure: not for reading sockets.

use std::collections::HashMap;

use super::row::{Row, TcpInfo};

/// Sockets that moved data within this time are active.
const ACTIVE_MS: u32 = 1_000;

/// The counters of one socket since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counters {
    pub(crate) bytes_received: u64,
    pub(crate) bytes_acked: u64,
    pub(crate) segments_sent: u64,
    pub(crate) retransmitted: u64,
}

impl Counters {
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

/// What one socket moved since the snapshot before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Moved {
    pub(crate) counters: Counters,
    /// It was not there in the snapshot before; the counters are of its whole life.
    pub(crate) opened: bool,
}

/// The counters of each socket in this snapshot and in the one before.
#[derive(Debug, Default)]
pub(crate) struct Movement {
    now: HashMap<u64, Counters>,
    then: HashMap<u64, Counters>,
}

impl Movement {
    /// Begins a snapshot.
    pub(crate) fn start(&mut self) {
        std::mem::swap(&mut self.now, &mut self.then);
        self.now.clear();
    }

    /// Notes a socket; `None` where the kernel tells nothing of it.
    pub(crate) fn add(&mut self, row: &Row) -> Option<Moved> {
        let counters = Counters::of(row.info.as_ref()?);
        self.now.insert(row.cookie, counters);
        Some(match self.then.get(&row.cookie) {
            Some(then) => Moved { counters: counters.since(then), opened: false },
            None => Moved { counters, opened: true },
        })
    }
}

/// Which end of a connection sent data last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Last {
    /// Nothing was sent yet, either way.
    Nothing,
    /// This end sent, and milliseconds since.
    Sent(u32),
    /// The other end sent, and milliseconds since.
    Received(u32),
    /// Both within one tick, in an order that cannot be seen.
    Tied,
}

/// Whether data moved in the last second.
pub(crate) fn is_active(info: &TcpInfo) -> bool {
    let sent = info.segments_sent > 0 && info.sent_ms_ago <= ACTIVE_MS;
    sent || info.segments_received > 0 && info.received_ms_ago <= ACTIVE_MS
}

/// Tells which end sent last. Times are in kernel ticks; where both are in the same one, it is this end
/// when the other has not acknowledged its data, and otherwise the counts of segments decide, where
/// each message was one segment so far: `connected` says that this end speaks first.
pub(crate) fn last(row: &Row, info: &TcpInfo, connected: bool) -> Last {
    let sent = u64::from(info.segments_sent).saturating_sub(info.retransmitted.into());
    let received = u64::from(info.segments_received);
    match (sent, received) {
        (0, 0) => return Last::Nothing,
        (_, 0) => return Last::Sent(info.sent_ms_ago),
        (0, _) => return Last::Received(info.received_ms_ago),
        _ => {}
    }
    match info.sent_ms_ago.cmp(&info.received_ms_ago) {
        std::cmp::Ordering::Less => return Last::Sent(info.sent_ms_ago),
        std::cmp::Ordering::Greater => return Last::Received(info.received_ms_ago),
        std::cmp::Ordering::Equal if row.unacknowledged > 0 => {
            return Last::Sent(info.sent_ms_ago);
        }
        std::cmp::Ordering::Equal => {}
    }
    let (first, second) = if connected { (sent, received) } else { (received, sent) };
    match first.checked_sub(second) {
        // The one that speaks first is one ahead, or both have said the same number of things.
        Some(1) if connected => Last::Sent(info.sent_ms_ago),
        Some(1) => Last::Received(info.received_ms_ago),
        Some(0) if connected => Last::Received(info.received_ms_ago),
        Some(0) => Last::Sent(info.sent_ms_ago),
        _ => Last::Tied,
    }
}

#[cfg(test)]
mod tests {
    use super::super::row::State;
    use super::*;

    fn row(info: TcpInfo) -> Row {
        Row {
            local: ([127, 0, 0, 1], 80).into(),
            remote: ([127, 0, 0, 1], 5000).into(),
            state: State::Established,
            received: 0,
            unacknowledged: 0,
            inode: 1,
            cookie: 7,
            info: Some(info),
            memory: None,
        }
    }

    fn info(sent: (u32, u32), received: (u32, u32)) -> TcpInfo {
        TcpInfo {
            segments_sent: sent.0,
            sent_ms_ago: sent.1,
            segments_received: received.0,
            received_ms_ago: received.1,
            ..TcpInfo::default()
        }
    }

    #[test]
    fn the_later_one_spoke_last_and_a_tie_goes_by_what_was_said() {
        let of = |sent, received, connected| {
            let info = info(sent, received);
            last(&row(info), &info, connected)
        };
        for connected in [true, false] {
            assert_eq!(of((0, 9), (0, 9), connected), Last::Nothing);
            assert_eq!(of((3, 4), (9, 8), connected), Last::Sent(4));
            assert_eq!(of((3, 8), (9, 4), connected), Last::Received(4));
            assert_eq!(of((1, 4), (0, 4), connected), Last::Sent(4));
            assert_eq!(of((3, 4), (9, 4), connected), Last::Tied);
        }
        // A client's third request is out; its third reply is there.
        assert_eq!(of((3, 4), (2, 4), true), Last::Sent(4));
        assert_eq!(of((3, 4), (3, 4), true), Last::Received(4));
        // A server's third request has come; it has replied.
        assert_eq!(of((2, 4), (3, 4), false), Last::Received(4));
        assert_eq!(of((3, 4), (3, 4), false), Last::Sent(4));
        // What was sent again was said once.
        let again = TcpInfo { retransmitted: 2, ..info((5, 4), (2, 4)) };
        assert_eq!(last(&row(again), &again, true), Last::Sent(4));
        let unacknowledged = Row { unacknowledged: 9, ..row(info((3, 4), (9, 4))) };
        assert_eq!(last(&unacknowledged, &info((3, 4), (9, 4)), false), Last::Sent(4));
    }

    #[test]
    fn a_connection_is_active_for_a_second() {
        assert!(is_active(&info((1, 1000), (0, 0))) && is_active(&info((1, 5000), (1, 0))));
        assert!(!is_active(&info((1, 1001), (1, 5000))));
        assert!(!is_active(&info((0, 0), (0, 0))), "it was only opened");
    }

    #[test]
    fn movement_is_of_each_socket() {
        let with = |cookie, bytes_received| Row {
            cookie,
            ..row(TcpInfo { bytes_received, ..TcpInfo::default() })
        };
        let mut movement = Movement::default();
        movement.start();
        assert!(movement.add(&with(1, 100)).unwrap().opened);
        movement.add(&with(2, 900));
        movement.start();
        let moved = movement.add(&with(1, 150)).unwrap();
        assert_eq!((moved.counters.bytes_received, moved.opened), (50, false));
        // The other one has closed, and its port may be another socket's.
        let moved = movement.add(&with(3, 20)).unwrap();
        assert_eq!((moved.counters.bytes_received, moved.opened), (20, true));
        movement.start();
        assert!(movement.add(&with(2, 900)).unwrap().opened);
        assert_eq!(movement.add(&Row { info: None, ..with(1, 0) }), None);
    }
}
