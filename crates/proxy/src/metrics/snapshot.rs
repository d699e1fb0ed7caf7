//! What was counted at one moment, by names: from all cores added up, over reloads kept, and as text
//! for Prometheus (exposition format 0.0.4).
//!
//! Names and not places in the plan are the key, so that a reload that adds, removes or moves routes,
//! pools and servers neither loses a count nor gives it to somebody else.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::histogram::{BOUNDS_NS, Distribution};
use super::table::{Kind, Metric};
use crate::log::TargetCounts;

impl super::Metrics {
    /// How many requests are in flight, and how many of those whose clients have gone servers still have.
    pub(crate) fn set_requests(&self, in_flight: u64, abandoned: u64) {
        self.in_flight.0.set(in_flight);
        self.abandoned_now.0.set(abandoned);
    }
}

/// How many series of names that the config no longer has are kept. The rule: they are kept while
/// the process lives until there are so many; of more, those that come last by metric and name are
/// forgotten, and counted in `weir_series_dropped_total`.
pub(super) const SERIES_RETIRED_MAX: usize = 10_000;

/// The values of a series' labels, in the order of the table.
type Labels = Box<[Box<str>]>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Value {
    /// A counter or a gauge.
    Number(u64),
    Times(Box<Distribution>),
}

/// What a series has, for those that show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Amount<'a> {
    /// A counter or a gauge.
    Number(u64),
    /// The buckets of a histogram, each alone.
    Times(&'a [u64]),
}

impl Value {
    fn amount(&self) -> Amount<'_> {
        match self {
            Self::Number(number) => Amount::Number(*number),
            Self::Times(times) => Amount::Times(&times.buckets),
        }
    }
}

/// What was counted at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Snapshot {
    pub(super) series: BTreeMap<(Metric, Labels), Value>,
}

impl Snapshot {
    /// Adds to a counter or a gauge.
    pub(super) fn add(&mut self, metric: Metric, labels: &[&str], number: u64) {
        self.add_value(metric, own(labels), Value::Number(number));
    }

    /// Adds to a histogram.
    pub(super) fn add_times(&mut self, metric: Metric, labels: &[&str], times: Distribution) {
        self.add_value(metric, own(labels), Value::Times(Box::new(times)));
    }

    fn add_value(&mut self, metric: Metric, labels: Labels, value: Value) {
        debug_assert_eq!(labels.len(), metric.row().labels.len());
        match (self.series.get_mut(&(metric, labels.clone())), value) {
            (Some(Value::Number(own)), Value::Number(other)) => *own += other,
            (Some(Value::Times(own)), Value::Times(other)) => own.add(&other),
            (_, value) => drop(self.series.insert((metric, labels), value)),
        }
    }

    /// Adds what another core counted under the same plan, gauges included.
    pub(crate) fn merge(&mut self, other: Self) {
        for ((metric, labels), value) in other.series {
            self.add_value(metric, labels, value);
        }
    }

    /// Adds what became of log lines. Once for all cores.
    pub(crate) fn add_logs(&mut self, logs: &[TargetCounts]) {
        for log in logs {
            let target = &*log.target;
            for (result, lines) in [
                ("written", log.written),
                ("behind", log.behind),
                ("failed", log.failed),
                ("waiting", log.waiting),
            ] {
                self.add(Metric::LogLines, &[target, result], lines);
            }
        }
    }

    /// Adds what was counted under plans that are over. Gauges are not: what was open then is not
    /// now. Series whose names are gone stay, within [`SERIES_RETIRED_MAX`].
    pub(crate) fn carry_over(&mut self, old: &Self) {
        let (mut retired, mut dropped) = (0, 0);
        for ((metric, labels), value) in &old.series {
            if metric.row().kind == Kind::Gauge {
                continue;
            }
            if !self.series.contains_key(&(*metric, labels.clone())) {
                if *value == Value::Number(0) {
                    continue;
                }
                if retired == SERIES_RETIRED_MAX {
                    dropped += 1;
                    continue;
                }
                retired += 1;
            }
            self.add_value(*metric, labels.clone(), value.clone());
        }
        if dropped > 0 {
            self.add(Metric::SeriesDropped, &[], dropped);
        }
    }

    /// The series of a metric whose first labels are these, with all their labels.
    pub(crate) fn rows(
        &self,
        name: &'static str,
        first: &[&str],
    ) -> impl Iterator<Item = (&[Box<str>], Amount<'_>)> {
        let metric = Metric::ALL.iter().find(|metric| metric.row().name == name);
        debug_assert!(metric.is_some(), "no metric {name}");
        let range = metric.map(|&metric| (metric, own(first))..);
        let from = range.into_iter().flat_map(|range| self.series.range(range));
        let first: Vec<Box<str>> = own(first).into();
        from.take_while(move |((of, labels), _)| Some(of) == metric && labels.starts_with(&first))
            .map(|((_, labels), value)| (&**labels, value.amount()))
    }

    /// All of those together; of a histogram, how many times it has.
    pub(crate) fn sum(&self, name: &'static str, first: &[&str]) -> u64 {
        let amounts = self.rows(name, first).map(|(_, amount)| match amount {
            Amount::Number(number) => number,
            Amount::Times(buckets) => buckets.iter().sum(),
        });
        amounts.sum()
    }

    #[cfg(test)]
    pub(super) fn number(&self, metric: Metric, labels: &[&str]) -> Option<u64> {
        match self.series.get(&(metric, own(labels)))? {
            Value::Number(number) => Some(*number),
            Value::Times(times) => Some(times.count()),
        }
    }
}

fn own(labels: &[&str]) -> Labels {
    labels.iter().map(|&label| label.into()).collect()
}

/// The snapshot in Prometheus's text format 0.0.4.
pub(crate) fn prometheus(snapshot: &Snapshot) -> String {
    let mut text = String::with_capacity(256 * snapshot.series.len());
    let mut shown = None;
    for ((metric, labels), value) in &snapshot.series {
        let row = metric.row();
        if shown.replace(*metric) != Some(*metric) {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "# HELP {} {}", row.name, row.doc);
            let _ = writeln!(text, "# TYPE {} {}", row.name, row.kind.name());
        }
        let labels = render(row.labels, labels);
        match value {
            Value::Number(number) => {
                let braced = if labels.is_empty() { labels } else { format!("{{{labels}}}") };
                let _ = match metric.divisor() {
                    1 => writeln!(text, "{}{braced} {number}", row.name),
                    divisor => {
                        let value = *number as f64 / divisor as f64;
                        writeln!(text, "{}{braced} {value}", row.name)
                    }
                };
            }
            Value::Times(times) => push_times(&mut text, row.name, &labels, times),
        }
    }
    // A gauge that is made from two others: an average cannot be added up before.
    push_average(&mut text, snapshot);
    text
}

fn push_average(text: &mut String, snapshot: &Snapshot) {
    let number = |metric| match snapshot.series.get(&(metric, own(&[]))) {
        Some(Value::Number(number)) => *number,
        _ => 0,
    };
    let row = Metric::IdleEach.row();
    let each = number(Metric::IdleMemory).checked_div(number(Metric::IdleClients)).unwrap_or(0);
    let _ = writeln!(text, "# HELP {} {}", row.name, row.doc);
    let _ = writeln!(text, "# TYPE {} {}\n{} {each}", row.name, row.kind.name(), row.name);
}

fn push_times(text: &mut String, name: &str, labels: &str, times: &Distribution) {
    let comma = if labels.is_empty() { "" } else { "," };
    for (total, bound_ns) in times.cumulative().into_iter().zip(BOUNDS_NS) {
        let bound_s = bound_ns as f64 / 1e9;
        let _ = writeln!(text, "{name}_bucket{{{labels}{comma}le=\"{bound_s}\"}} {total}");
    }
    let total = times.count();
    let _ = writeln!(text, "{name}_bucket{{{labels}{comma}le=\"+Inf\"}} {total}");
    let braced = if labels.is_empty() { String::new() } else { format!("{{{labels}}}") };
    let _ = writeln!(text, "{name}_sum{braced} {}", times.sum_ns as f64 / 1e9);
    let _ = writeln!(text, "{name}_count{braced} {total}");
}

/// `a="x",b="y"`, with what could end a value escaped.
fn render(names: &[&str], values: &[Box<str>]) -> String {
    let mut text = String::new();
    for (name, value) in names.iter().zip(values) {
        if !text.is_empty() {
            text.push(',');
        }
        text.push_str(name);
        text.push_str("=\"");
        for character in value.chars() {
            match character {
                '\\' => text.push_str("\\\\"),
                '"' => text.push_str("\\\""),
                '\n' => text.push_str("\\n"),
                _ => text.push(character),
            }
        }
        text.push('"');
    }
    text
}
