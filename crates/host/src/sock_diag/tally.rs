//! Adds sockets up by port and end, and makes the record's types of the sums.
//!
//! Pure. The memory is used again by the next snapshot.

use record::observed::{End, EndQueues, ListenerQueue};

use super::row::{Row, STATES, State};

/// Sums of the sockets of some ports.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    ports: Vec<PortTally>,
}

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
}

/// What of the last sums stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keep {
    Nothing,
    /// How many are in TIME_WAIT: they are not looked at this time, and the ports are the same.
    TimeWait,
}

impl Tally {
    /// Empties it for these ports.
    pub(crate) fn start(&mut self, ports: &[u16], keep: Keep) {
        self.ports.resize_with(ports.len(), PortTally::default);
        for (tally, port) in self.ports.iter_mut().zip(ports) {
            tally.listener = ListenerQueue { port: *port, ..ListenerQueue::default() };
            tally.server.start(*port, End::Server, keep);
            tally.client.start(*port, End::Client, keep);
        }
    }

    /// Counts a socket. One that has a port of ours at both ends counts at both.
    pub(crate) fn add(&mut self, row: &Row) {
        for tally in &mut self.ports {
            if row.local.port() == tally.listener.port {
                if row.state == State::Listen {
                    add_listener(&mut tally.listener, row);
                } else {
                    tally.server.add(row);
                }
            }
            if row.remote.port() == tally.listener.port && row.state != State::Listen {
                tally.client.add(row);
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
        for tally in &mut self.ports {
            if tally.listener.sockets > 0 {
                listeners.push(tally.listener);
            }
            ends.extend(tally.server.finish());
            ends.extend(tally.client.finish());
        }
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
        self.sums = EndQueues { port, end, ..EndQueues::default() };
    }

    fn add(&mut self, row: &Row) {
        self.states[row.state.at()] += 1;
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
        sums.not_sent_bytes += u64::from(info.not_sent_bytes);
        // Foreign figures of a sum: a bound that is never met beats a wrong small number.
        sums.busy_us = sums.busy_us.saturating_add(info.busy_us);
        sums.receive_window_limited_us =
            sums.receive_window_limited_us.saturating_add(info.receive_window_limited_us);
        sums.send_buffer_limited_us =
            sums.send_buffer_limited_us.saturating_add(info.send_buffer_limited_us);
        sums.retransmitted += u64::from(info.retransmitted);
        add(&mut sums.retransmitted_bytes, info.retransmitted_bytes);
        add(&mut sums.duplicates, info.duplicates.map(u64::from));
        add(&mut sums.reorderings, info.reorderings.map(u64::from));
        sums.delivery_bytes_per_s += info.delivery_bytes_per_s as f64;
        sums.application_limited += u64::from(info.application_limited);
        let measured = |us: &u32| *us != 0 && *us != u32::MAX;
        self.rtts_us.extend(Some(info.rtt_us).filter(measured));
        self.rtt_mins_us.extend(Some(info.rtt_min_us).filter(measured));
    }

    /// What was counted, if anything was. It has to be started again then.
    fn finish(&mut self) -> Option<EndQueues> {
        if self.states == [0; STATES.len()] {
            return None;
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
    use crate::sock_diag::row::{Memory, TcpInfo};

    fn row(local: u16, remote: u16, state: State) -> Row {
        Row {
            local: ([127, 0, 0, 1], local).into(),
            remote: ([127, 0, 0, 1], remote).into(),
            state,
            received: 0,
            unacknowledged: 0,
            inode: 1,
            info: None,
            memory: None,
        }
    }

    fn tally(ports: &[u16], rows: &[Row]) -> (Vec<ListenerQueue>, Vec<EndQueues>) {
        let (mut listeners, mut ends) = (vec![], vec![]);
        let mut tally = Tally::default();
        // What stood in it before must not matter.
        tally.start(&[1, 2, 3], Keep::Nothing);
        rows.iter().for_each(|row| tally.add(row));
        tally.start(ports, Keep::Nothing);
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
        tally.start(&[80], Keep::Nothing);
        tally.add(&row(80, 5000, State::TimeWait));
        tally.add(&row(80, 5001, State::Established));
        assert_eq!(tally.time_wait(), 1);
        let (mut listeners, mut ends) = (vec![], vec![]);
        tally.append(&mut listeners, &mut ends);
        for (keep, expected) in [(Keep::TimeWait, 1), (Keep::TimeWait, 1), (Keep::Nothing, 0)] {
            tally.start(&[80], keep);
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
}
