//! Adds sockets up by port and end, and makes the record's types of the sums.
//!
//! Pure. The memory is used again by the next snapshot.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

use record::observed::{End, EndQueues, ListenerQueue};

use super::movement::{Counters, Last, Moved, Movement, is_active, last};
use super::row::{Row, STATES, State, TcpInfo};

/// Destinations of a port for which local ports are counted.
const MAX_DESTINATIONS: usize = 1_024;

/// Sums of the sockets of some ports.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    ports: Vec<PortTally>,
    movement: Movement,
    /// The time of this snapshot.
    at_s: f64,
    /// The snapshot before: its time, and the sockets with figures of each end.
    before: Option<Before>,
}

/// A time in seconds, and the sockets with figures of each end at it.
type Before = (f64, HashMap<(u16, End), u64>);

/// Sums of one port.
#[derive(Debug, Default)]
struct PortTally {
    listener: ListenerQueue,
    server: EndTally,
    client: EndTally,
}

/// Sums of one end.
#[derive(Debug, Default)]
struct EndTally {
    states: [u64; STATES.len()],
    sums: EndQueues,
    rtts_us: Vec<u32>,
    rtt_mins_us: Vec<u32>,
    awaiting_ms: Vec<u32>,
    owed_ms: Vec<u32>,
    /// Sockets with figures, and those of them that are new.
    counted: u64,
    opened: u64,
    moved: Counters,
    /// Local ports in use by local address and destination: those in TIME_WAIT, and all others.
    local_ports: HashMap<(IpAddr, SocketAddr), [u64; 2]>,
}

/// What of the last sums stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keep {
    Nothing,
    /// How many are in TIME_WAIT: they are not looked at this time, and the ports are the same.
    TimeWait,
}

impl Tally {
    /// Empties it for these ports; the snapshot is taken at `at_s` of any clock.
    pub(crate) fn start(&mut self, ports: &[u16], keep: Keep, at_s: f64) {
        self.at_s = at_s;
        self.movement.start();
        self.ports.resize_with(ports.len(), PortTally::default);
        for (tally, port) in self.ports.iter_mut().zip(ports) {
            tally.listener = ListenerQueue { port: *port, ..ListenerQueue::default() };
            tally.server.start(*port, End::Server, keep);
            tally.client.start(*port, End::Client, keep);
        }
    }

    /// Counts a socket. One that has a port of ours at both ends counts at both.
    pub(crate) fn add(&mut self, row: &Row) {
        let moved = self.movement.add(row);
        for tally in &mut self.ports {
            if row.local.port() == tally.listener.port {
                if row.state == State::Listen {
                    add_listener(&mut tally.listener, row);
                } else {
                    tally.server.add(row, moved);
                }
            }
            if row.remote.port() == tally.listener.port && row.state != State::Listen {
                tally.client.add(row, moved);
            }
        }
    }

    /// Sockets in TIME_WAIT.
    pub(crate) fn time_wait(&self) -> u64 {
        let of = |end: &EndTally| end.states[State::TimeWait.at()];
        self.ports.iter().map(|port| of(&port.server) + of(&port.client)).sum()
    }

    /// Appends what was counted; a port or an end without a socket is left out.
    pub(crate) fn append(&mut self, listeners: &mut Vec<ListenerQueue>, ends: &mut Vec<EndQueues>) {
        let mut counted = HashMap::new();
        for tally in &mut self.ports {
            if tally.listener.sockets > 0 {
                listeners.push(tally.listener);
            }
            for end in [&mut tally.server, &mut tally.client] {
                let key = (end.sums.port, end.sums.end);
                counted.insert(key, end.counted);
                if let Some((then_s, before)) = &self.before
                    && let Some(before) = before.get(&key)
                {
                    end.set_rates(self.at_s - then_s, *before);
                }
                ends.extend(end.finish());
            }
        }
        self.before = Some((self.at_s, counted));
    }

    /// The snapshot failed: the next one has nothing to compare with.
    pub(crate) fn forget(&mut self) {
        self.before = None;
    }
}

/// The kernel lets one more in than the backlog says (`sk_acceptq_is_full`), but a queue that stands
/// at its backlog each time we look is full as well: the accepting program takes one out in between.
fn add_listener(sum: &mut ListenerQueue, row: &Row) {
    let (waiting, backlog) = (row.received, row.unacknowledged);
    sum.waiting = sum.waiting.saturating_add(waiting);
    sum.backlog = sum.backlog.max(backlog);
    sum.full += u32::from(waiting > 0 && waiting >= backlog);
    sum.sockets += 1;
    sum.dropped += row.memory.map_or(0, |memory| u64::from(memory.drops));
}

impl EndTally {
    fn start(&mut self, port: u16, end: End, keep: Keep) {
        let time_wait = State::TimeWait.at();
        let kept = if keep == Keep::TimeWait { self.states[time_wait] } else { 0 };
        self.states.fill(0);
        self.states[time_wait] = kept;
        self.rtts_us.clear();
        self.rtt_mins_us.clear();
        self.awaiting_ms.clear();
        self.owed_ms.clear();
        (self.counted, self.opened, self.moved) = (0, 0, Counters::default());
        if keep == Keep::TimeWait {
            self.local_ports.retain(|_, [time_wait, others]| {
                *others = 0;
                *time_wait > 0
            });
        } else {
            self.local_ports.clear();
        }
        self.sums = EndQueues { port, end, ..EndQueues::default() };
    }

    fn add(&mut self, row: &Row, moved: Option<Moved>) {
        self.states[row.state.at()] += 1;
        if self.sums.end == End::Client {
            self.add_local_port(row);
        }
        if let Some(moved) = moved {
            self.counted += 1;
            self.opened += u64::from(moved.opened);
            self.moved.add(&moved.counters);
        }
        self.sums.memory_bytes += row.memory.map_or(0, |memory| memory.bytes);
        if row.state != State::Established {
            return;
        }
        let sums = &mut self.sums;
        let (unread, unsent) = (u64::from(row.received), u64::from(row.unacknowledged));
        sums.with_unread += u64::from(unread > 0);
        sums.unread_bytes += unread;
        sums.unread_bytes_max = sums.unread_bytes_max.max(unread);
        sums.with_unsent += u64::from(unsent > 0);
        sums.unsent_bytes += unsent;
        let Some(info) = row.info else { return };
        self.add_exchange(row, &info);
        let sums = &mut self.sums;
        sums.not_sent_bytes += u64::from(info.not_sent_bytes);
        // Foreign figures of a sum: a bound that is never met beats a wrong small number.
        sums.busy_us = sums.busy_us.saturating_add(info.busy_us);
        sums.receive_window_limited_us =
            sums.receive_window_limited_us.saturating_add(info.receive_window_limited_us);
        sums.send_buffer_limited_us =
            sums.send_buffer_limited_us.saturating_add(info.send_buffer_limited_us);
        sums.retransmitted += u64::from(info.retransmitted);
        sums.segments_sent += u64::from(info.segments_sent);
        add(&mut sums.retransmitted_bytes, info.retransmitted_bytes);
        add(&mut sums.duplicates, info.duplicates.map(u64::from));
        add(&mut sums.reorderings, info.reorderings.map(u64::from));
        sums.delivery_bytes_per_s += info.delivery_bytes_per_s as f64;
        sums.application_limited += u64::from(info.application_limited);
        let measured = |us: &u32| *us != 0 && *us != u32::MAX;
        self.rtts_us.extend(Some(info.rtt_us).filter(measured));
        self.rtt_mins_us.extend(Some(info.rtt_min_us).filter(measured));
    }

    fn add_local_port(&mut self, row: &Row) {
        let key = (row.local.ip(), row.remote);
        let in_time_wait = row.state == State::TimeWait;
        let room = self.local_ports.len() < MAX_DESTINATIONS;
        if room || self.local_ports.contains_key(&key) {
            self.local_ports.entry(key).or_default()[usize::from(!in_time_wait)] += 1;
        }
    }

    /// Counts an established connection by whose turn it is.
    fn add_exchange(&mut self, row: &Row, info: &TcpInfo) {
        let client = self.sums.end == End::Client;
        self.sums.active += u64::from(is_active(info));
        if row.received > 0 {
            return;
        }
        match last(row, info, client) {
            Last::Sent(ms) if client => self.awaiting_ms.push(ms),
            Last::Received(ms) if !client => self.owed_ms.push(ms),
            Last::Tied => self.sums.tied += 1,
            _ => {}
        }
    }

    /// Makes rates of what moved in `seconds`; `before` sockets were counted then.
    fn set_rates(&mut self, seconds: f64, before: u64) {
        let (sums, moved) = (&mut self.sums, &self.moved);
        let rate = |count: u64| Some(count as f64 / seconds.max(1e-3));
        sums.since_s = Some(seconds);
        sums.opened = Some(self.opened);
        sums.closed = Some((before + self.opened).saturating_sub(self.counted));
        sums.bytes_received_per_s = rate(moved.bytes_received);
        sums.bytes_acked_per_s = rate(moved.bytes_acked);
        sums.segments_sent_per_s = rate(moved.segments_sent);
        sums.retransmitted_per_s = rate(moved.retransmitted);
    }

    /// What was counted, if anything was. It has to be started again then.
    fn finish(&mut self) -> Option<EndQueues> {
        if self.states == [0; STATES.len()] {
            return None;
        }
        let some = |ms: &mut Vec<u32>| (!ms.is_empty()).then(|| median(ms));
        self.sums.awaiting_reply = self.awaiting_ms.len() as u64;
        self.sums.owed_reply = self.owed_ms.len() as u64;
        self.sums.awaiting_reply_ms = some(&mut self.awaiting_ms);
        self.sums.owed_reply_ms = some(&mut self.owed_ms);
        if self.sums.end == End::Client {
            let taken = self.local_ports.values().map(|states| states.iter().sum());
            self.sums.local_ports_max = taken.max();
            let mut remotes: Vec<_> = self.local_ports.keys().map(|(_, remote)| remote).collect();
            remotes.sort_unstable();
            remotes.dedup();
            self.sums.destinations = Some(remotes.len() as u64);
        }
        self.sums.rtt_us = median(&mut self.rtts_us);
        self.sums.rtt_min_us = median(&mut self.rtt_mins_us);
        let counted = STATES.iter().zip(self.states).filter(|(_, count)| *count > 0);
        self.sums.states = counted.map(|((_, name), count)| ((*name).to_owned(), count)).collect();
        Some(std::mem::take(&mut self.sums))
    }
}

/// Adds a figure that an older kernel does not have.
fn add(sum: &mut Option<u64>, figure: Option<u64>) {
    if let Some(figure) = figure {
        *sum = Some(sum.unwrap_or(0).saturating_add(figure));
    }
}

/// The middle one, or the mean of the middle two; 0 of none. Changes the order.
fn median(values: &mut [u32]) -> f64 {
    if values.is_empty() {
        return 0.0;
    }
    let half = values.len() / 2;
    let even = values.len().is_multiple_of(2);
    let (below, middle, _) = values.select_nth_unstable(half);
    let middle = f64::from(*middle);
    match below.iter().max() {
        Some(other) if even => (f64::from(*other) + middle) / 2.0,
        _ => middle,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sock_diag::row::Memory;

    fn row(local: u16, remote: u16, state: State) -> Row {
        Row {
            local: ([127, 0, 0, 1], local).into(),
            remote: ([127, 0, 0, 1], remote).into(),
            state,
            received: 0,
            unacknowledged: 0,
            inode: 1,
            cookie: 0,
            info: None,
            memory: None,
        }
    }

    fn tally(ports: &[u16], rows: &[Row]) -> (Vec<ListenerQueue>, Vec<EndQueues>) {
        let (mut listeners, mut ends) = (vec![], vec![]);
        let mut tally = Tally::default();
        // What stood in it before must not matter.
        tally.start(&[1, 2, 3], Keep::Nothing, 0.0);
        rows.iter().for_each(|row| tally.add(row));
        tally.start(ports, Keep::Nothing, 1.0);
        rows.iter().for_each(|row| tally.add(row));
        tally.append(&mut listeners, &mut ends);
        (listeners, ends)
    }

    #[test]
    fn listeners_of_a_port_are_one_entry() {
        let memory = Some(Memory { bytes: 0, drops: 3 });
        let listen = row(80, 0, State::Listen);
        let (listeners, ends) = tally(
            &[80, 81],
            &[
                Row { received: 9, unacknowledged: 8, memory, ..listen },
                Row { received: 1, unacknowledged: 511, memory, ..listen },
                // A backlog of 0 with nothing in it is not full.
                listen,
            ],
        );
        let expected =
            ListenerQueue { port: 80, waiting: 10, backlog: 511, full: 1, sockets: 3, dropped: 6 };
        assert_eq!((listeners, ends), (vec![expected], vec![]));
    }

    #[test]
    fn both_ends_are_told_apart_and_strangers_left_out() {
        let server = Row { received: 100, ..row(80, 5000, State::Established) };
        let client = Row { unacknowledged: 7, ..row(5000, 80, State::Established) };
        let (listeners, ends) = tally(
            &[80, 5001],
            &[
                server,
                Row { received: 50, ..server },
                client,
                row(80, 5002, State::SynReceived),
                row(5003, 80, State::SynSent),
                row(9, 10, State::Established),
            ],
        );
        assert_eq!((listeners.len(), ends.len()), (0, 2));
        let (at_server, at_client) = (&ends[0], &ends[1]);
        assert_eq!((at_server.port, at_server.end, at_client.end), (80, End::Server, End::Client));
        let sums = (at_server.with_unread, at_server.unread_bytes, at_server.unread_bytes_max);
        assert_eq!(sums, (2, 150, 100));
        assert_eq!(at_server.states, [("established".into(), 2), ("syn-recv".into(), 1)].into());
        assert_eq!((at_client.with_unsent, at_client.unsent_bytes), (1, 7));
        assert_eq!(at_client.states, [("established".into(), 1), ("syn-sent".into(), 1)].into());
    }

    #[test]
    fn only_established_sockets_that_have_measured_count_for_a_median() {
        let with = |rtt_us, rtt_min_us, state| Row {
            info: Some(TcpInfo { rtt_us, rtt_min_us, busy_us: u64::MAX, ..TcpInfo::default() }),
            ..row(80, 5000, state)
        };
        let (_, ends) = tally(
            &[80],
            &[
                with(10, 5, State::Established),
                with(30, u32::MAX, State::Established),
                with(0, u32::MAX, State::Established),
                with(99_999, 1, State::FinWait1),
            ],
        );
        assert_eq!((ends[0].rtt_us, ends[0].rtt_min_us, ends[0].busy_us), (20.0, 5.0, u64::MAX));
    }

    #[test]
    fn what_an_older_kernel_does_not_tell_is_not_a_zero() {
        let told = TcpInfo {
            retransmitted_bytes: Some(3000),
            duplicates: Some(1),
            reorderings: Some(0),
            ..TcpInfo::default()
        };
        let of = |info| Row { info: Some(info), ..row(80, 5000, State::Established) };
        let sums = |rows: &[Row]| {
            let (_, ends) = tally(&[80], rows);
            (ends[0].retransmitted_bytes, ends[0].duplicates, ends[0].reorderings)
        };
        assert_eq!(sums(&[of(told), of(told)]), (Some(6000), Some(2), Some(0)));
        assert_eq!(sums(&[of(TcpInfo::default())]), (None, None, None));
    }

    #[test]
    fn what_is_in_time_wait_may_be_kept_from_before() {
        let mut tally = Tally::default();
        tally.start(&[80], Keep::Nothing, 0.0);
        tally.add(&row(80, 5000, State::TimeWait));
        tally.add(&row(80, 5001, State::Established));
        assert_eq!(tally.time_wait(), 1);
        let (mut listeners, mut ends) = (vec![], vec![]);
        tally.append(&mut listeners, &mut ends);
        for (keep, expected) in [(Keep::TimeWait, 1), (Keep::TimeWait, 1), (Keep::Nothing, 0)] {
            tally.start(&[80], keep, 1.0);
            ends.clear();
            tally.append(&mut listeners, &mut ends);
            let kept: u64 = ends.iter().map(|end| end.states["time-wait"]).sum();
            assert_eq!(kept, expected);
        }
    }

    #[test]
    fn medians() {
        assert_eq!(median(&mut []), 0.0);
        assert_eq!(median(&mut [3]), 3.0);
        assert_eq!(median(&mut [9, 1]), 5.0);
        assert_eq!(median(&mut [9, 1, 2]), 2.0);
        assert_eq!(median(&mut [u32::MAX, u32::MAX]), f64::from(u32::MAX));
    }

    fn exchange(cookie: u64, sent: (u32, u32), received: (u32, u32)) -> Row {
        let info = TcpInfo {
            segments_sent: sent.0,
            sent_ms_ago: sent.1,
            segments_received: received.0,
            received_ms_ago: received.1,
            bytes_acked: u64::from(sent.0) * 100,
            bytes_received: u64::from(received.0) * 1000,
            ..TcpInfo::default()
        };
        Row { cookie, info: Some(info), ..row(80, 5000, State::Established) }
    }

    #[test]
    fn requests_are_where_the_last_word_says_they_are() {
        let server = [
            exchange(1, (4, 500), (9, 20)),
            // Not read: it is in the buffer and not with the program.
            Row { received: 7, ..exchange(2, (4, 500), (9, 20)) },
            exchange(3, (4, 20), (9, 500)),
            exchange(4, (4, 8), (9, 8)),
            exchange(5, (4, 90_000), (9, 80_000)),
            exchange(6, (0, 0), (0, 0)),
        ];
        let client = server.map(|row| Row { local: row.remote, remote: row.local, ..row });
        let rows: Vec<Row> = server.into_iter().chain(client).collect();
        let (_, ends) = tally(&[80], &rows);
        let (at_server, at_client) = (&ends[0], &ends[1]);
        assert_eq!((at_server.owed_reply, at_server.owed_reply_ms), (2, Some(40_010.0)));
        assert_eq!((at_client.awaiting_reply, at_client.awaiting_reply_ms), (1, Some(20.0)));
        assert_eq!((at_server.active, at_server.tied, at_server.awaiting_reply), (4, 1, 0));
        assert_eq!((at_client.active, at_client.tied, at_client.owed_reply), (4, 1, 0));
        assert_eq!(at_server.segments_sent, 20);
    }

    #[test]
    fn rates_are_differences_of_the_same_sockets() {
        let mut tally = Tally::default();
        let mut look = |ports: &[u16], at_s, rows: &[Row]| {
            tally.start(ports, Keep::Nothing, at_s);
            rows.iter().for_each(|row| tally.add(row));
            let mut ends = vec![];
            tally.append(&mut vec![], &mut ends);
            ends
        };
        let first =
            look(&[80], 10.0, &[exchange(1, (5, 0), (5, 0)), exchange(2, (70, 0), (70, 0))]);
        assert_eq!(
            (first[0].since_s, first[0].bytes_acked_per_s, first[0].opened),
            (None, None, None)
        );
        // One has closed, one has opened, one goes on.
        let rows = [exchange(1, (9, 0), (6, 0)), exchange(3, (1, 0), (1, 0))];
        let second = look(&[79, 80], 10.5, &rows);
        assert_eq!(second.len(), 1);
        let end = &second[0];
        assert_eq!((end.since_s, end.opened, end.closed), (Some(0.5), Some(1), Some(1)));
        let rates = (end.bytes_acked_per_s, end.bytes_received_per_s, end.segments_sent_per_s);
        assert_eq!(rates, (Some(1000.0), Some(4000.0), Some(10.0)));
        assert_eq!(end.retransmitted_per_s, Some(0.0));
        // A port that is new has nothing to be compared with.
        let other = Row { cookie: 9, ..row(81, 5000, State::Established) };
        let third = look(&[80, 81], 11.0, &[rows[0], Row { info: rows[0].info, ..other }]);
        assert_eq!((third[0].closed, third[1].since_s), (Some(1), None));
    }

    #[test]
    fn local_ports_are_counted_by_destination_in_every_state() {
        let to = |last: u8, local: u16, state| Row {
            remote: ([127, 0, 0, last], 80).into(),
            ..row(local, 80, state)
        };
        let rows = [
            to(1, 5000, State::Established),
            to(1, 5001, State::TimeWait),
            to(1, 5002, State::SynSent),
            to(2, 5000, State::Established),
        ];
        let (_, ends) = tally(&[80], &rows);
        assert_eq!((ends[0].local_ports_max, ends[0].destinations), (Some(3), Some(2)));
        let (_, ends) = tally(&[80], &[row(80, 5000, State::Established)]);
        assert_eq!((ends[0].end, ends[0].local_ports_max), (End::Server, None));
    }
}
