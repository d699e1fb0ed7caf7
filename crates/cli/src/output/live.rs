//! The line a second: h1load's columns (time, connections, totals, rates, time to first byte) and
//! what they lack: percentiles of the second, requests in flight and waiting, errors by kind, the
//! generator's own processor time and lag.

use record::run::Interval;
use record::units::{format_bytes, format_count, format_duration_ns};

use super::print;

/// Prints each second.
#[derive(Debug, Default)]
pub(crate) struct Live {
    connections: u64,
    requests: u64,
    bytes: u64,
}

/// The columns, with their widths.
const COLUMNS: [(&str, usize); 17] = [
    ("time", 5),
    ("conns", 6),
    ("tot_conn", 8),
    ("tot_req", 10),
    ("tot_bytes", 9),
    ("err", 6),
    ("cps", 6),
    ("rps", 7),
    ("Bps", 9),
    ("ttfb", 7),
    ("p50", 7),
    ("p99", 7),
    ("max", 7),
    ("flight", 6),
    ("wait", 6),
    ("cpu", 5),
    ("lag99", 7),
];

impl Live {
    pub(crate) fn header(&mut self) {
        let names = COLUMNS.map(|(name, width)| format!("{name:>width$}"));
        print(&format!("{}\n", names.join(" ")));
    }

    pub(crate) fn second(&mut self, interval: &Interval) {
        let errors: u64 = interval.errors.values().sum();
        self.connections += interval.connections_opened;
        self.requests += interval.responses + errors;
        self.bytes += interval.bytes_in;
        if interval.length_s < 0.05 {
            return;
        }
        let per_s = |count: u64| format_count(count as f64 / interval.length_s);
        let time = |ns: Option<u64>| ns.map_or_else(|| "-".to_owned(), format_duration_ns);
        let cells = [
            format!("{:.0}", interval.time_s),
            interval.connections.to_string(),
            self.connections.to_string(),
            self.requests.to_string(),
            compact_bytes(self.bytes as f64),
            errors.to_string(),
            per_s(interval.connections_opened),
            per_s(interval.responses),
            compact_bytes(interval.bytes_in as f64 / interval.length_s),
            time(Some(interval.first_byte_mean_ns as u64).filter(|ns| *ns > 0)),
            time(interval.p50_ns),
            time(interval.p99_ns),
            time(Some(interval.max_ns)),
            interval.in_flight.to_string(),
            interval.waiting.to_string(),
            interval.own_cpus.map_or_else(|| "-".to_owned(), |cpus| format!("{cpus:.2}")),
            time(interval.lag_p99_ns),
        ];
        let cells = cells.iter().zip(COLUMNS).map(|(cell, (_, width))| format!("{cell:>width$}"));
        let mut line = cells.collect::<Vec<_>>().join(" ");
        for (kind, count) in &interval.errors {
            line.push_str(&format!(" {kind}={count}"));
        }
        if interval.dropped > 0 {
            line.push_str(&format!(" dropped={}", interval.dropped));
        }
        print(&format!("{line}\n"));
    }
}

fn compact_bytes(bytes: f64) -> String {
    format_bytes(bytes).replace(' ', "").replace("iB", "")
}
