//! Unread bytes of the sockets over time in one trial, by the process that has not read them.

use std::collections::BTreeMap;

use experiment::format;
use record::observed::{ConnectionEnd, EndQueues, MachineObservation, QueueSnapshot};

use super::typical::TypicalTrial;
use crate::data_table::{DataTable, cells};

/// Maximum number of holders of one trial: more ports than an experiment has.
pub(crate) const LANES_MAX: usize = 8;

/// Holder of waiting bytes: its rank from the generator on, and its name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PendingReader {
    rank: u8,
    pub(crate) label: String,
}

impl PendingReader {
    fn reader_of(machine: &MachineObservation, ends: &EndQueues) -> Self {
        let port = machine.ports.iter().find(|port| port.port == ends.port);
        let (role, what, side) = match ends.end {
            ConnectionEnd::Client => (port.and_then(|port| port.used_by.as_deref()), "responses", "client"),
            ConnectionEnd::Server => (port.and_then(|port| port.served_by.as_deref()), "requests", "server"),
        };
        let rank = match (role, ends.end) {
            (Some("generator"), _) => 0,
            (Some("subject"), ConnectionEnd::Server) => 1,
            (Some("subject"), ConnectionEnd::Client) => 2,
            (Some("origin"), _) => 3,
            _ => 4,
        };
        let who = role.map_or_else(|| format!("the {side} of port {}", ends.port), str::to_owned);
        Self { rank, label: format!("{what} not read by {who}") }
    }
}

/// Waiting data at one holder, as a mean over the snapshots of a column.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct UnreadMean {
    pub(crate) bytes: f64,
    sockets: f64,
    established: f64,
    pub(crate) snapshots: f64,
}

impl UnreadMean {
    /// Adds a snapshot: bytes, sockets that hold them, and connections.
    fn add(&mut self, [bytes, sockets, established]: [u64; 3]) {
        let before = self.snapshots;
        let mean = |mean: f64, value: u64| (mean * before + value as f64) / (before + 1.0);
        self.bytes = mean(self.bytes, bytes);
        self.sockets = mean(self.sockets, sockets);
        self.established = mean(self.established, established);
        self.snapshots += 1.0;
    }
}

pub(crate) struct QueueTimeline {
    pub(crate) step_s: f64,
    pub(crate) columns: usize,
    /// Unread bytes by holder and column.
    pub(crate) lanes: BTreeMap<PendingReader, Vec<UnreadMean>>,
    /// Maximum length and size of the accept queues of listening sockets, by port.
    pub(crate) listeners: BTreeMap<u16, (u32, u32)>,
}

impl QueueTimeline {
    /// Reads the snapshots of a trial; more snapshots than columns are merged.
    pub(crate) fn read(trial: &TypicalTrial<'_>, columns_max: usize) -> Self {
        let snapshots = || {
            let all =
                trial.observed().flat_map(|observed| observed.queues.iter().map(move |at| (observed, at)));
            all.filter(|(_, snapshot)| snapshot.time_s >= 0.0 && snapshot.time_s.is_finite())
        };
        let longest_s = snapshots().map(|(_, snapshot)| snapshot.time_s).fold(0.0, f64::max).max(0.1);
        let columns = snapshots().count().clamp(1, columns_max);
        let step_s = longest_s / columns as f64;
        let mut timeline = Self { step_s, columns, lanes: BTreeMap::new(), listeners: BTreeMap::new() };
        snapshots().for_each(|(machine, snapshot)| timeline.add(machine, snapshot));
        timeline
    }

    fn add(&mut self, machine: &MachineObservation, snapshot: &QueueSnapshot) {
        let column = ((snapshot.time_s / self.step_s) as usize).min(self.columns - 1);
        // A process may listen on several ports, so its bytes are summed.
        let mut now: BTreeMap<PendingReader, [u64; 3]> = BTreeMap::new();
        for ends in &snapshot.ends {
            let established = ends.states.get("established").copied().unwrap_or(0);
            let sums = now.entry(PendingReader::reader_of(machine, ends)).or_default();
            for (sum, value) in sums.iter_mut().zip([ends.unread_bytes, ends.with_unread, established]) {
                *sum = sum.saturating_add(value);
            }
        }
        for (holder, sums) in now {
            if self.lanes.len() < LANES_MAX || self.lanes.contains_key(&holder) {
                let lane = self.lanes.entry(holder);
                lane.or_insert_with(|| vec![UnreadMean::default(); self.columns])[column].add(sums);
            }
        }
        for listener in &snapshot.listeners {
            let max = self.listeners.entry(listener.port).or_default();
            *max = (max.0.max(listener.waiting), max.1.max(listener.backlog));
        }
    }

    pub(crate) fn edges_s(&self, column: usize) -> (f64, f64) {
        (column as f64 * self.step_s, (column + 1) as f64 * self.step_s)
    }

    pub(crate) fn column_tips(&self) -> impl Iterator<Item = ((f64, f64), String)> {
        (0..self.columns).filter_map(|column| Some((self.edges_s(column), self.column_text(column)?)))
    }

    fn column_text(&self, column: usize) -> Option<String> {
        let held = self.lanes.iter().map(|(holder, columns)| (&holder.label, &columns[column]));
        let lines = held.filter(|(_, held)| held.snapshots > 0.0).map(|(holder, held)| {
            let bytes = format::value(held.bytes, "bytes");
            format!("\n{holder}: {bytes} in {:.0} of {:.0} connections", held.sockets, held.established)
        });
        let lines: String = lines.collect();
        (!lines.is_empty()).then(|| format::value(self.edges_s(column).0, "s") + &lines)
    }

    /// Adds the figures: time, holder, bytes, sockets and connections.
    pub(crate) fn add_rows(&self, data: &mut DataTable, trial: &TypicalTrial<'_>) {
        for (holder, columns) in &self.lanes {
            for (column, held) in columns.iter().enumerate().filter(|(_, held)| held.snapshots > 0.0) {
                let mut row = trial.key_cells();
                row.extend(cells(&[&self.edges_s(column).0, &holder.label]));
                row.extend(cells(&[&held.bytes, &held.sockets, &held.established]));
                data.add_row(row);
            }
        }
    }
}
