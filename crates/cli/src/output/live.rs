//! The line per second: connections, rates, errors, percentiles of the second, requests in flight
//! and pending, CPU use of the generator. A line names each kind of error when it occurs first. The
//! CSV file has all columns.

use std::collections::BTreeSet;

use load::observer::{RunObserver, SecondLatencies};
use record::run::Interval;
use record::units::{format_bytes, format_count, format_duration_ns};
use report::text::layout::fit;
use report::text::summary::WIDTH;

use super::print;

/// Prints each second.
#[derive(Debug, Default)]
pub(crate) struct LiveTable {
    has_header: bool,
    /// Kinds of errors that were already named.
    known_kinds: BTreeSet<String>,
}

/// Columns with their widths; the table has 79 columns.
const COLUMNS: [(&str, usize); 11] = [
    ("time", 4),
    ("conns", 6),
    ("req/s", 7),
    ("bytes/s", 8),
    ("errors", 6),
    ("p50", 7),
    ("p99", 7),
    ("max", 7),
    ("active", 6),
    ("pending", 7),
    ("CPU", 4),
];

impl LiveTable {
    /// Prints the line of a second, the first one below the names of the columns.
    pub(crate) fn print_second(&mut self, interval: &Interval) {
        if interval.length_s >= 0.05 {
            if !std::mem::replace(&mut self.has_header, true) {
                print(&header(interval));
            }
            print(&second_line(interval));
        }
        if let Some(line) = self.new_errors_line(interval) {
            print(&line);
        }
    }

    /// Formats the errors of a second if a kind occurs for the first time.
    fn new_errors_line(&mut self, interval: &Interval) -> Option<String> {
        let mut counts: Vec<_> =
            interval.errors.iter().map(|(kind, count)| (kind.as_str(), *count)).collect();
        if interval.dropped > 0 {
            counts.push(("dropped", interval.dropped));
        }
        let mut is_new = false;
        for (kind, _) in &counts {
            is_new |= self.known_kinds.insert((*kind).to_owned());
        }
        let counts: Vec<_> = counts.iter().map(|(kind, count)| format!("{kind} {count}")).collect();
        is_new.then(|| fit(&format!("     errors: {}", counts.join(", ")), WIDTH) + "\n")
    }
}

impl RunObserver for LiveTable {
    fn on_start(&mut self, _start_ns: u64) {}

    fn on_window_start(&mut self) {}

    fn on_load_end(&mut self) {}

    fn on_second(&mut self, interval: &mut Interval, _latencies: &SecondLatencies) {
        self.print_second(interval);
    }
}

/// Formats the names of the columns; the rate is that of events if the server sends by itself.
fn header(interval: &Interval) -> String {
    let name = |name: &'static str| match name {
        "req/s" if interval.events.is_some() => "event/s",
        name => name,
    };
    let names = COLUMNS.map(|(column, width)| format!("{:>width$}", name(column)));
    format!("{}\n", names.join(" "))
}

fn second_line(interval: &Interval) -> String {
    let errors: u64 = interval.errors.values().sum();
    let per_s = |count: u64| count as f64 / interval.length_s;
    let time = |ns: Option<u64>| ns.map_or_else(|| "-".to_owned(), format_duration_ns);
    let cells = [
        format!("{:.0}", interval.time_s),
        interval.connections.to_string(),
        format_count(per_s(interval.events.unwrap_or(interval.responses))),
        format_bytes(per_s(interval.bytes_in)),
        format_count(errors as f64),
        time(interval.p50_ns),
        time(interval.p99_ns),
        time(Some(interval.max_ns)),
        interval.in_flight.to_string(),
        interval.pending.to_string(),
        interval.own_cpus.map_or_else(|| "-".to_owned(), |cpus| format!("{cpus:.2}")),
    ];
    let cells = cells.iter().zip(COLUMNS).map(|(cell, (_, width))| format!("{cell:>width$}"));
    cells.collect::<Vec<_>>().join(" ") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interval() -> Interval {
        Interval {
            time_s: 3600.0,
            length_s: 1.0,
            connections: 100_000,
            responses: 1_234_567,
            bytes_in: 4_999_999_999,
            errors: [("timeout".to_owned(), 123_456)].into(),
            p50_ns: Some(999_400),
            p99_ns: Some(999_999_999),
            max_ns: 59_940_000_000,
            in_flight: 100_000,
            pending: 1_000_000,
            own_cpus: Some(15.25),
            ..Interval::default()
        }
    }

    #[test]
    fn a_line_has_the_rate_of_events_if_the_server_sends_by_itself() {
        let pushed = Interval { events: Some(777), responses: 1, ..interval() };
        assert!(header(&pushed).contains("event/s") && header(&interval()).contains(" req/s"));
        assert!(second_line(&pushed).contains(" 777 ") && !second_line(&interval()).contains(" 777 "));
        assert_eq!(header(&pushed).len(), header(&interval()).len());
    }

    #[test]
    fn a_line_fits_80_columns_under_its_header() {
        let line = second_line(&interval());
        let columns: usize = COLUMNS.iter().map(|(_, width)| width + 1).sum();
        assert!(columns <= WIDTH && line.trim_end().chars().count() <= WIDTH, "{line}");
        assert!(COLUMNS.iter().all(|(name, width)| name.len() <= *width));
        assert!(line.contains("1.23 M") && line.contains("999 µs"), "{line}");
    }

    #[test]
    fn each_kind_of_error_is_named_once() {
        let mut table = LiveTable::default();
        let line = table.new_errors_line(&interval());
        assert_eq!(line.as_deref(), Some("     errors: timeout 123456\n"));
        assert_eq!(table.new_errors_line(&interval()), None);
        let reset = Interval { dropped: 3, ..interval() };
        let line = table.new_errors_line(&reset);
        assert_eq!(line.as_deref(), Some("     errors: timeout 123456, dropped 3\n"));
    }
}
