//! Sums of sockets by port and end, converted to the record's types.
//!
//! No I/O. Each snapshot reuses the memory of the one before.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

use record::observed::{ConnectionEnd, EndQueues, ListenerQueue};
use stats::quantiles::median_in_place_by;

use super::tcp_socket::{TCP_STATES, TcpInfo, TcpSocket, TcpState};
use super::traffic::{LastSender, SocketCounters, SocketTraffic, TrafficTracker, is_active, last_sender};

/// Maximum number of destinations per port for which local ports are counted.
const MAX_DESTINATIONS: usize = 1_024;

/// Sums of the sockets at some ports.
#[derive(Debug, Default)]
pub(crate) struct SocketTotals {
    ports: Vec<PortTotals>,
    traffic: TrafficTracker,
    snapshot_s: f64,
    /// Time of the last snapshot with the sockets in TIME_WAIT.
    time_wait_counted_s: f64,
    /// Snapshot before: its time, and the sockets with figures of each end.
    previous: Option<PreviousSnapshot>,
}

/// Time in seconds, and the sockets with figures of each end at that time.
type PreviousSnapshot = (f64, HashMap<(u16, ConnectionEnd), u64>);

#[derive(Debug, Default)]
struct PortTotals {
    listener: ListenerQueue,
    server: EndTotals,
    client: EndTotals,
}

#[derive(Debug, Default)]
struct EndTotals {
    states: [u64; TCP_STATES.len()],
    sums: EndQueues,
    rtts_us: Vec<u32>,
    rtt_mins_us: Vec<u32>,
    awaiting_ms: Vec<u32>,
    pending_ms: Vec<u32>,
    /// Number of sockets with figures, and of new ones among them.
    counted_sockets: u64,
    new_sockets: u64,
    traffic: SocketCounters,
    /// Local ports in use by local address and destination: those in TIME_WAIT, and all others.
    local_ports: HashMap<(IpAddr, SocketAddr), [u64; 2]>,
}

/// Part of the last sums that is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CarryOver {
    Nothing,
    /// The number in TIME_WAIT: these sockets are not requested this time, and the ports are the
    /// same.
    TimeWait,
}

impl SocketTotals {
    /// Resets the sums for these ports; the snapshot is taken at `snapshot_s` of any clock.
    pub(crate) fn start(&mut self, ports: &[u16], carry_over: CarryOver, snapshot_s: f64) {
        self.snapshot_s = snapshot_s;
        if carry_over == CarryOver::Nothing {
            self.time_wait_counted_s = snapshot_s;
        }
        self.traffic.start();
        self.ports.resize_with(ports.len(), PortTotals::default);
        for (totals, port) in self.ports.iter_mut().zip(ports) {
            totals.listener = ListenerQueue { port: *port, ..ListenerQueue::default() };
            totals.server.start(*port, ConnectionEnd::Server, carry_over);
            totals.client.start(*port, ConnectionEnd::Client, carry_over);
        }
    }

    /// Counts a socket. A socket with a watched port at both ends counts at both.
    pub(crate) fn add(&mut self, socket: &TcpSocket) {
        let traffic = self.traffic.add(socket);
        for totals in &mut self.ports {
            if socket.local.port() == totals.listener.port {
                if socket.state == TcpState::Listen {
                    add_listener(&mut totals.listener, socket);
                } else {
                    totals.server.add(socket, traffic);
                }
            }
            if socket.remote.port() == totals.listener.port && socket.state != TcpState::Listen {
                totals.client.add(socket, traffic);
            }
        }
    }

    pub(crate) fn time_wait(&self) -> u64 {
        let time_wait_of = |end: &EndTotals| end.states[TcpState::TimeWait.index()];
        self.ports.iter().map(|port| time_wait_of(&port.server) + time_wait_of(&port.client)).sum()
    }

    /// Appends the sums; a port or an end without a socket is left out.
    pub(crate) fn append(&mut self, listeners: &mut Vec<ListenerQueue>, ends: &mut Vec<EndQueues>) {
        let mut counted_sockets = HashMap::new();
        let age_s = self.snapshot_s - self.time_wait_counted_s;
        for totals in &mut self.ports {
            if totals.listener.sockets > 0 {
                listeners.push(totals.listener);
            }
            for end in [&mut totals.server, &mut totals.client] {
                let key = (end.sums.port, end.sums.end);
                let has_old_count = age_s > 0.0 && end.states[TcpState::TimeWait.index()] > 0;
                end.sums.time_wait_age_s = has_old_count.then_some(age_s);
                counted_sockets.insert(key, end.counted_sockets);
                if let Some((then_s, previous)) = &self.previous
                    && let Some(sockets_before) = previous.get(&key)
                {
                    end.set_rates(self.snapshot_s - then_s, *sockets_before);
                }
                ends.extend(end.finish());
            }
        }
        self.previous = Some((self.snapshot_s, counted_sockets));
    }

    /// Forgets the last snapshot after a failure: the next one has nothing to compare with.
    pub(crate) fn discard_previous(&mut self) {
        self.previous = None;
    }
}

/// Adds a listening socket. The kernel accepts one connection more than the backlog
/// (`sk_acceptq_is_full`). But a queue that equals its backlog in each sample is full as well: the
/// accepting process removes a connection in between.
fn add_listener(sum: &mut ListenerQueue, socket: &TcpSocket) {
    let (waiting, backlog) = (socket.recv_queue, socket.send_queue);
    sum.waiting = sum.waiting.saturating_add(waiting);
    sum.backlog = sum.backlog.max(backlog);
    sum.full += u32::from(waiting > 0 && waiting >= backlog);
    sum.sockets += 1;
    sum.dropped += socket.memory.map_or(0, |memory| u64::from(memory.drops));
}

impl EndTotals {
    fn start(&mut self, port: u16, end: ConnectionEnd, carry_over: CarryOver) {
        let time_wait = TcpState::TimeWait.index();
        let carried_over = if carry_over == CarryOver::TimeWait { self.states[time_wait] } else { 0 };
        self.states.fill(0);
        self.states[time_wait] = carried_over;
        self.rtts_us.clear();
        self.rtt_mins_us.clear();
        self.awaiting_ms.clear();
        self.pending_ms.clear();
        (self.counted_sockets, self.new_sockets, self.traffic) = (0, 0, SocketCounters::default());
        if carry_over == CarryOver::TimeWait {
            self.local_ports.retain(|_, [time_wait, others]| {
                *others = 0;
                *time_wait > 0
            });
        } else {
            self.local_ports.clear();
        }
        self.sums = EndQueues { port, end, ..EndQueues::default() };
    }

    fn add(&mut self, socket: &TcpSocket, traffic: Option<SocketTraffic>) {
        self.states[socket.state.index()] += 1;
        if self.sums.end == ConnectionEnd::Client {
            self.add_local_port(socket);
        }
        if let Some(traffic) = traffic {
            self.counted_sockets += 1;
            self.new_sockets += u64::from(traffic.is_new);
            self.traffic.add(&traffic.counters);
        }
        self.sums.memory_bytes += socket.memory.map_or(0, |memory| memory.bytes);
        if socket.state != TcpState::Established {
            return;
        }
        let sums = &mut self.sums;
        let (unread, unsent) = (u64::from(socket.recv_queue), u64::from(socket.send_queue));
        sums.with_unread += u64::from(unread > 0);
        sums.unread_bytes += unread;
        sums.unread_bytes_max = sums.unread_bytes_max.max(unread);
        sums.with_unsent += u64::from(unsent > 0);
        sums.unsent_bytes += unsent;
        let Some(info) = socket.info else { return };
        self.add_exchange(socket, &info);
        let sums = &mut self.sums;
        sums.not_sent_bytes += u64::from(info.not_sent_bytes);
        // Figures from the kernel may be arbitrary: saturation is better than a wrong small number.
        sums.busy_us = sums.busy_us.saturating_add(info.busy_us);
        sums.receive_window_limited_us =
            sums.receive_window_limited_us.saturating_add(info.receive_window_limited_us);
        sums.send_buffer_limited_us = sums.send_buffer_limited_us.saturating_add(info.send_buffer_limited_us);
        sums.retransmitted += u64::from(info.retransmitted);
        sums.segments_sent += u64::from(info.segments_sent);
        add_optional(&mut sums.retransmitted_bytes, info.retransmitted_bytes);
        add_optional(&mut sums.duplicates, info.duplicates.map(u64::from));
        add_optional(&mut sums.reorderings, info.reorderings.map(u64::from));
        sums.delivery_bytes_per_s += info.delivery_bytes_per_s as f64;
        sums.application_limited += u64::from(info.application_limited);
        let measured = |us: &u32| *us != 0 && *us != u32::MAX;
        self.rtts_us.extend(Some(info.rtt_us).filter(measured));
        self.rtt_mins_us.extend(Some(info.rtt_min_us).filter(measured));
    }

    fn add_local_port(&mut self, socket: &TcpSocket) {
        let key = (socket.local.ip(), socket.remote);
        let in_time_wait = socket.state == TcpState::TimeWait;
        let has_room = self.local_ports.len() < MAX_DESTINATIONS;
        if has_room || self.local_ports.contains_key(&key) {
            self.local_ports.entry(key).or_default()[usize::from(!in_time_wait)] += 1;
        }
    }

    /// Counts an established connection by the end that must act next.
    fn add_exchange(&mut self, socket: &TcpSocket, info: &TcpInfo) {
        let client = self.sums.end == ConnectionEnd::Client;
        self.sums.active += u64::from(is_active(info));
        if socket.recv_queue > 0 {
            return;
        }
        match last_sender(socket, info, client) {
            LastSender::Sent(ms) if client => self.awaiting_ms.push(ms),
            LastSender::Received(ms) if !client => self.pending_ms.push(ms),
            LastSender::OrderUnknown => self.sums.order_unknown += 1,
            _ => {}
        }
    }

    /// Computes rates of the traffic in `seconds`; `sockets_before` is the earlier number of
    /// sockets.
    fn set_rates(&mut self, seconds: f64, sockets_before: u64) {
        let (sums, traffic) = (&mut self.sums, &self.traffic);
        let rate = |count: u64| Some(count as f64 / seconds.max(1e-3));
        sums.since_s = Some(seconds);
        sums.opened = Some(self.new_sockets);
        sums.closed = Some((sockets_before + self.new_sockets).saturating_sub(self.counted_sockets));
        sums.bytes_received_per_s = rate(traffic.bytes_received);
        sums.bytes_acked_per_s = rate(traffic.bytes_acked);
        sums.segments_sent_per_s = rate(traffic.segments_sent);
        sums.retransmitted_per_s = rate(traffic.retransmitted);
    }

    /// Returns the sums, if any. The sums must be started again afterwards.
    fn finish(&mut self) -> Option<EndQueues> {
        if self.states == [0; TCP_STATES.len()] {
            return None;
        }
        let median_if_any = |ms: &mut Vec<u32>| (!ms.is_empty()).then(|| median(ms));
        self.sums.awaiting_response = self.awaiting_ms.len() as u64;
        self.sums.pending_response = self.pending_ms.len() as u64;
        self.sums.awaiting_response_ms = median_if_any(&mut self.awaiting_ms);
        self.sums.pending_response_ms = median_if_any(&mut self.pending_ms);
        if self.sums.end == ConnectionEnd::Client {
            let taken = self.local_ports.values().map(|states| states.iter().sum());
            self.sums.local_ports_max = taken.max();
            let mut remotes: Vec<_> = self.local_ports.keys().map(|(_, remote)| remote).collect();
            remotes.sort_unstable();
            remotes.dedup();
            self.sums.destinations = Some(remotes.len() as u64);
        }
        self.sums.rtt_us = median(&mut self.rtts_us);
        self.sums.rtt_min_us = median(&mut self.rtt_mins_us);
        let counted = TCP_STATES.iter().zip(self.states).filter(|(_, count)| *count > 0);
        self.sums.states = counted.map(|((_, name), count)| ((*name).to_owned(), count)).collect();
        Some(std::mem::take(&mut self.sums))
    }
}

/// Adds a figure that an older kernel lacks.
fn add_optional(sum: &mut Option<u64>, figure: Option<u64>) {
    if let Some(figure) = figure {
        *sum = Some(sum.unwrap_or(0).saturating_add(figure));
    }
}

/// Computes the median; 0 for an empty slice. Changes the order.
fn median(values: &mut [u32]) -> f64 {
    median_in_place_by(values, Ord::cmp).unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sock_diag::tcp_socket::SocketMemory;

    fn row(local: u16, remote: u16, state: TcpState) -> TcpSocket {
        TcpSocket {
            local: ([127, 0, 0, 1], local).into(),
            remote: ([127, 0, 0, 1], remote).into(),
            state,
            recv_queue: 0,
            send_queue: 0,
            inode: 1,
            cookie: 0,
            info: None,
            memory: None,
        }
    }

    fn tally(ports: &[u16], rows: &[TcpSocket]) -> (Vec<ListenerQueue>, Vec<EndQueues>) {
        let (mut listeners, mut ends) = (vec![], vec![]);
        let mut tally = SocketTotals::default();
        // Earlier contents must not matter.
        tally.start(&[1, 2, 3], CarryOver::Nothing, 0.0);
        rows.iter().for_each(|row| tally.add(row));
        tally.start(ports, CarryOver::Nothing, 1.0);
        rows.iter().for_each(|row| tally.add(row));
        tally.append(&mut listeners, &mut ends);
        (listeners, ends)
    }

    #[test]
    fn listeners_of_a_port_are_one_entry() {
        let memory = Some(SocketMemory { bytes: 0, drops: 3 });
        let listen = row(80, 0, TcpState::Listen);
        let (listeners, ends) = tally(
            &[80, 81],
            &[
                TcpSocket { recv_queue: 9, send_queue: 8, memory, ..listen },
                TcpSocket { recv_queue: 1, send_queue: 511, memory, ..listen },
                // An empty queue with a backlog of 0 is not full.
                listen,
            ],
        );
        let expected = ListenerQueue { port: 80, waiting: 10, backlog: 511, full: 1, sockets: 3, dropped: 6 };
        assert_eq!((listeners, ends), (vec![expected], vec![]));
    }

    #[test]
    fn both_ends_are_separated_and_unwatched_sockets_left_out() {
        let server = TcpSocket { recv_queue: 100, ..row(80, 5000, TcpState::Established) };
        let client = TcpSocket { send_queue: 7, ..row(5000, 80, TcpState::Established) };
        let (listeners, ends) = tally(
            &[80, 5001],
            &[
                server,
                TcpSocket { recv_queue: 50, ..server },
                client,
                row(80, 5002, TcpState::SynReceived),
                row(5003, 80, TcpState::SynSent),
                row(9, 10, TcpState::Established),
            ],
        );
        assert_eq!((listeners.len(), ends.len()), (0, 2));
        let (at_server, at_client) = (&ends[0], &ends[1]);
        assert_eq!(
            (at_server.port, at_server.end, at_client.end),
            (80, ConnectionEnd::Server, ConnectionEnd::Client)
        );
        let sums = (at_server.with_unread, at_server.unread_bytes, at_server.unread_bytes_max);
        assert_eq!(sums, (2, 150, 100));
        assert_eq!(at_server.states, [("established".into(), 2), ("syn-recv".into(), 1)].into());
        assert_eq!((at_client.with_unsent, at_client.unsent_bytes), (1, 7));
        assert_eq!(at_client.states, [("established".into(), 1), ("syn-sent".into(), 1)].into());
    }

    #[test]
    fn only_established_sockets_that_have_measured_count_for_a_median() {
        let with = |rtt_us, rtt_min_us, state| TcpSocket {
            info: Some(TcpInfo { rtt_us, rtt_min_us, busy_us: u64::MAX, ..TcpInfo::default() }),
            ..row(80, 5000, state)
        };
        let (_, ends) = tally(
            &[80],
            &[
                with(10, 5, TcpState::Established),
                with(30, u32::MAX, TcpState::Established),
                with(0, u32::MAX, TcpState::Established),
                with(99_999, 1, TcpState::FinWait1),
            ],
        );
        assert_eq!((ends[0].rtt_us, ends[0].rtt_min_us, ends[0].busy_us), (20.0, 5.0, u64::MAX));
    }

    #[test]
    fn missing_counters_of_an_older_kernel_are_none() {
        let reported = TcpInfo {
            retransmitted_bytes: Some(3000),
            duplicates: Some(1),
            reorderings: Some(0),
            ..TcpInfo::default()
        };
        let with_info = |info| TcpSocket { info: Some(info), ..row(80, 5000, TcpState::Established) };
        let sums = |rows: &[TcpSocket]| {
            let (_, ends) = tally(&[80], rows);
            (ends[0].retransmitted_bytes, ends[0].duplicates, ends[0].reorderings)
        };
        assert_eq!(sums(&[with_info(reported), with_info(reported)]), (Some(6000), Some(2), Some(0)));
        assert_eq!(sums(&[with_info(TcpInfo::default())]), (None, None, None));
    }

    #[test]
    fn time_wait_counts_may_be_carried_over() {
        let mut tally = SocketTotals::default();
        tally.start(&[80], CarryOver::Nothing, 0.0);
        tally.add(&row(80, 5000, TcpState::TimeWait));
        tally.add(&row(80, 5001, TcpState::Established));
        assert_eq!(tally.time_wait(), 1);
        let (mut listeners, mut ends) = (vec![], vec![]);
        tally.append(&mut listeners, &mut ends);
        assert_eq!(ends[0].time_wait_age_s, None);
        let snapshots = [
            (1.0, CarryOver::TimeWait, 1, Some(1.0)),
            (2.5, CarryOver::TimeWait, 1, Some(2.5)),
            (3.0, CarryOver::Nothing, 0, None),
        ];
        for (time_s, keep, expected, age_s) in snapshots {
            tally.start(&[80], keep, time_s);
            ends.clear();
            tally.append(&mut listeners, &mut ends);
            let time_wait: u64 = ends.iter().map(|end| end.states["time-wait"]).sum();
            assert_eq!(time_wait, expected);
            assert_eq!(ends.first().and_then(|end| end.time_wait_age_s), age_s);
        }
    }

    fn exchange(cookie: u64, sent: (u32, u32), received: (u32, u32)) -> TcpSocket {
        let info = TcpInfo {
            segments_sent: sent.0,
            last_data_sent_ms: sent.1,
            segments_received: received.0,
            last_data_recv_ms: received.1,
            bytes_acked: u64::from(sent.0) * 100,
            bytes_received: u64::from(received.0) * 1000,
            ..TcpInfo::default()
        };
        TcpSocket { cookie, info: Some(info), ..row(80, 5000, TcpState::Established) }
    }

    #[test]
    fn requests_are_attributed_by_the_last_sender() {
        let server = [
            exchange(1, (4, 500), (9, 20)),
            // Unread: the data is in the buffer and not with the process.
            TcpSocket { recv_queue: 7, ..exchange(2, (4, 500), (9, 20)) },
            exchange(3, (4, 20), (9, 500)),
            exchange(4, (4, 8), (9, 8)),
            exchange(5, (4, 90_000), (9, 80_000)),
            exchange(6, (0, 0), (0, 0)),
        ];
        let client = server.map(|row| TcpSocket { local: row.remote, remote: row.local, ..row });
        let rows: Vec<TcpSocket> = server.into_iter().chain(client).collect();
        let (_, ends) = tally(&[80], &rows);
        let (at_server, at_client) = (&ends[0], &ends[1]);
        assert_eq!((at_server.pending_response, at_server.pending_response_ms), (2, Some(40_010.0)));
        assert_eq!((at_client.awaiting_response, at_client.awaiting_response_ms), (1, Some(20.0)));
        assert_eq!((at_server.active, at_server.order_unknown, at_server.awaiting_response), (4, 1, 0));
        assert_eq!((at_client.active, at_client.order_unknown, at_client.pending_response), (4, 1, 0));
        assert_eq!(at_server.segments_sent, 20);
    }

    #[test]
    fn rates_are_differences_of_the_same_sockets() {
        let mut tally = SocketTotals::default();
        let mut snapshot = |ports: &[u16], at_s, rows: &[TcpSocket]| {
            tally.start(ports, CarryOver::Nothing, at_s);
            rows.iter().for_each(|row| tally.add(row));
            let mut ends = vec![];
            tally.append(&mut vec![], &mut ends);
            ends
        };
        let first = snapshot(&[80], 10.0, &[exchange(1, (5, 0), (5, 0)), exchange(2, (70, 0), (70, 0))]);
        assert_eq!((first[0].since_s, first[0].bytes_acked_per_s, first[0].opened), (None, None, None));
        // One socket has closed, one has opened, one remains.
        let rows = [exchange(1, (9, 0), (6, 0)), exchange(3, (1, 0), (1, 0))];
        let second = snapshot(&[79, 80], 10.5, &rows);
        assert_eq!(second.len(), 1);
        let end = &second[0];
        assert_eq!((end.since_s, end.opened, end.closed), (Some(0.5), Some(1), Some(1)));
        let rates = (end.bytes_acked_per_s, end.bytes_received_per_s, end.segments_sent_per_s);
        assert_eq!(rates, (Some(1000.0), Some(4000.0), Some(10.0)));
        assert_eq!(end.retransmitted_per_s, Some(0.0));
        // A new port has nothing to compare with.
        let other = TcpSocket { cookie: 9, ..row(81, 5000, TcpState::Established) };
        let third = snapshot(&[80, 81], 11.0, &[rows[0], TcpSocket { info: rows[0].info, ..other }]);
        assert_eq!((third[0].closed, third[1].since_s), (Some(1), None));
    }

    #[test]
    fn local_ports_are_counted_by_destination_in_every_state() {
        let to = |last: u8, local: u16, state| TcpSocket {
            remote: ([127, 0, 0, last], 80).into(),
            ..row(local, 80, state)
        };
        let rows = [
            to(1, 5000, TcpState::Established),
            to(1, 5001, TcpState::TimeWait),
            to(1, 5002, TcpState::SynSent),
            to(2, 5000, TcpState::Established),
        ];
        let (_, ends) = tally(&[80], &rows);
        assert_eq!((ends[0].local_ports_max, ends[0].destinations), (Some(3), Some(2)));
        let (_, ends) = tally(&[80], &[row(80, 5000, TcpState::Established)]);
        assert_eq!((ends[0].end, ends[0].local_ports_max), (ConnectionEnd::Server, None));
    }
}
