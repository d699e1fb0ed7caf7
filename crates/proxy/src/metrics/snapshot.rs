//! Snapshot of all metrics by name: summed over all cores, kept over reloads, and rendered as text
//! for Prometheus (exposition format 0.0.4).
//!
//! The keys are names and not indices in the plan. So a reload that adds, removes or moves routes,
//! pools and servers neither loses a count nor assigns it to another one.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::histogram::{BOUNDS_NS, HistogramSnapshot};
use super::table::{Metric, MetricKind};
use crate::log::TargetCounts;
use crate::tracing::TraceCounts;

impl super::Metrics {
    /// Sets the number of requests in flight, and the number of those whose clients have gone and
    /// whose slots servers still keep.
    pub(crate) fn set_requests(&self, in_flight: u64, abandoned: u64) {
        self.common.in_flight.0.set(in_flight);
        self.common.abandoned.0.set(abandoned);
    }
}

/// Maximum number of retained series whose names the config no longer has. They are kept while the
/// process lives, up to this number. Beyond it, those that come last by metric and name are
/// dropped, and counted in `weir_series_dropped_total`.
pub(super) const SERIES_RETIRED_MAX: usize = 10_000;

/// Values of a series' labels, in the order of the table.
type Labels = Box<[Box<str>]>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SeriesValue {
    Number(u64),
    Times(Box<HistogramSnapshot>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SeriesValueRef<'a> {
    Number(u64),
    /// Counts of a histogram's buckets, not cumulative.
    Times(&'a [u64]),
}

impl SeriesValue {
    fn as_value_ref(&self) -> SeriesValueRef<'_> {
        match self {
            Self::Number(number) => SeriesValueRef::Number(*number),
            Self::Times(times) => SeriesValueRef::Times(&times.buckets),
        }
    }
}

/// All metrics at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Snapshot {
    pub(super) series: BTreeMap<(Metric, Labels), SeriesValue>,
}

impl FromIterator<Self> for Snapshot {
    fn from_iter<I: IntoIterator<Item = Self>>(snapshots: I) -> Self {
        let mut merged = Self::default();
        snapshots.into_iter().for_each(|snapshot| merged.merge(snapshot));
        merged
    }
}

impl Snapshot {
    pub(super) fn add(&mut self, metric: Metric, labels: &[&str], number: u64) {
        self.add_value(metric, owned_labels(labels), SeriesValue::Number(number));
    }

    pub(super) fn add_times(&mut self, metric: Metric, labels: &[&str], times: HistogramSnapshot) {
        self.add_value(metric, owned_labels(labels), SeriesValue::Times(Box::new(times)));
    }

    fn add_value(&mut self, metric: Metric, labels: Labels, value: SeriesValue) {
        debug_assert_eq!(labels.len(), metric.row().labels.len());
        match (self.series.get_mut(&(metric, labels.clone())), value) {
            (Some(SeriesValue::Number(sum)), SeriesValue::Number(other)) => *sum += other,
            (Some(SeriesValue::Times(sum)), SeriesValue::Times(other)) => sum.add(&other),
            (_, value) => drop(self.series.insert((metric, labels), value)),
        }
    }

    /// Adds the metrics of another core under the same plan, gauges included.
    pub(crate) fn merge(&mut self, other: Self) {
        for ((metric, labels), value) in other.series {
            self.add_value(metric, labels, value);
        }
    }

    /// Adds the counters of log lines; must be called once for all cores.
    pub(crate) fn add_logs(&mut self, logs: &[TargetCounts]) {
        for log in logs {
            let target = &*log.target;
            for (result, lines) in [
                ("written", log.written),
                ("overflow", log.overflowed),
                ("failed", log.failed),
                ("backoff", log.backoff),
            ] {
                self.add(Metric::LogLines, &[target, result], lines);
            }
            for (result, files) in [("rotated", log.rotated), ("failed", log.rotations_failed)] {
                self.add(Metric::LogRotations, &[target, result], files);
            }
        }
    }

    /// Adds the counters of spans; must be called once for all cores.
    pub(crate) fn add_traces(&mut self, counts: &TraceCounts) {
        for (result, spans) in counts.values() {
            self.add(Metric::TraceSpans, &[result], spans);
        }
    }

    /// Adds the counters and histograms of plans that are over. Gauges are left out, because they
    /// describe the current state. Series whose names are gone are kept, within
    /// [`SERIES_RETIRED_MAX`].
    pub(crate) fn carry_over(&mut self, earlier: &Self) {
        let (mut retired, mut dropped) = (0, 0);
        for ((metric, labels), value) in &earlier.series {
            if metric.row().kind == MetricKind::Gauge {
                continue;
            }
            if !self.series.contains_key(&(*metric, labels.clone())) {
                if *value == SeriesValue::Number(0) {
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

    /// Returns the series of a metric whose first labels are `first_labels`, with all their labels.
    pub(crate) fn series_of(
        &self,
        name: &'static str,
        first_labels: &[&str],
    ) -> impl Iterator<Item = (&[Box<str>], SeriesValueRef<'_>)> {
        let metric = Metric::ALL.iter().find(|metric| metric.row().name == name);
        debug_assert!(metric.is_some(), "no metric {name}");
        let range = metric.map(|&metric| (metric, owned_labels(first_labels))..);
        let candidates = range.into_iter().flat_map(|range| self.series.range(range));
        let first_labels: Vec<Box<str>> = owned_labels(first_labels).into();
        candidates
            .take_while(move |((series_metric, labels), _)| {
                Some(series_metric) == metric && labels.starts_with(&first_labels)
            })
            .map(|((_, labels), value)| (&**labels, value.as_value_ref()))
    }

    /// Returns the sum of these series; for a histogram, its number of recorded times.
    pub(crate) fn sum(&self, name: &'static str, first_labels: &[&str]) -> u64 {
        let amounts = self.series_of(name, first_labels).map(|(_, value)| match value {
            SeriesValueRef::Number(number) => number,
            SeriesValueRef::Times(buckets) => buckets.iter().sum(),
        });
        amounts.sum()
    }

    #[cfg(test)]
    pub(super) fn number(&self, metric: Metric, labels: &[&str]) -> Option<u64> {
        match self.series.get(&(metric, owned_labels(labels)))? {
            SeriesValue::Number(number) => Some(*number),
            SeriesValue::Times(times) => Some(times.count()),
        }
    }
}

fn owned_labels(labels: &[&str]) -> Labels {
    labels.iter().map(|&label| label.into()).collect()
}

/// Renders the snapshot in Prometheus's text format 0.0.4.
pub(crate) fn prometheus(snapshot: &Snapshot) -> String {
    let mut text = String::with_capacity(256 * snapshot.series.len());
    let mut previous_metric = None;
    for ((metric, labels), value) in &snapshot.series {
        let row = metric.row();
        if previous_metric.replace(*metric) != Some(*metric) {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "# HELP {} {}", row.name, row.doc);
            let _ = writeln!(text, "# TYPE {} {}", row.name, row.kind.name());
        }
        let labels = render_labels(row.labels, labels);
        match value {
            SeriesValue::Number(number) => {
                let label_set = if labels.is_empty() { labels } else { format!("{{{labels}}}") };
                let _ = match metric.divisor() {
                    1 => writeln!(text, "{}{label_set} {number}", row.name),
                    divisor => {
                        let value = *number as f64 / divisor as f64;
                        writeln!(text, "{}{label_set} {value}", row.name)
                    }
                };
            }
            SeriesValue::Times(times) => push_times(&mut text, row.name, &labels, times),
        }
    }
    // Computed from two other gauges here, because averages cannot be summed over cores.
    push_average(&mut text, snapshot);
    text
}

fn push_average(text: &mut String, snapshot: &Snapshot) {
    let number = |metric| match snapshot.series.get(&(metric, owned_labels(&[]))) {
        Some(SeriesValue::Number(number)) => *number,
        _ => 0,
    };
    let row = Metric::IdleMemoryAverage.row();
    let average = number(Metric::IdleMemory).checked_div(number(Metric::IdleClients)).unwrap_or(0);
    let _ = writeln!(text, "# HELP {} {}", row.name, row.doc);
    let _ = writeln!(text, "# TYPE {} {}\n{} {average}", row.name, row.kind.name(), row.name);
}

fn push_times(text: &mut String, name: &str, labels: &str, times: &HistogramSnapshot) {
    let comma = if labels.is_empty() { "" } else { "," };
    for (total, bound_ns) in times.cumulative().into_iter().zip(BOUNDS_NS) {
        let bound_s = bound_ns as f64 / 1e9;
        let _ = writeln!(text, "{name}_bucket{{{labels}{comma}le=\"{bound_s}\"}} {total}");
    }
    let total = times.count();
    let _ = writeln!(text, "{name}_bucket{{{labels}{comma}le=\"+Inf\"}} {total}");
    let label_set = if labels.is_empty() { String::new() } else { format!("{{{labels}}}") };
    let _ = writeln!(text, "{name}_sum{label_set} {}", times.sum_ns as f64 / 1e9);
    let _ = writeln!(text, "{name}_count{label_set} {total}");
}

/// Renders `a="x",b="y"`, and escapes characters that could end a value.
fn render_labels(names: &[&str], values: &[Box<str>]) -> String {
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
