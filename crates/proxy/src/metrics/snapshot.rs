//! Snapshot of all metrics by name: summed over all cores, and kept over reloads. `exposition` renders it.
//!
//! The keys are names and not indices in the plan. So a reload that adds, removes or moves routes,
//! pools and servers neither loses a count nor assigns it to another one.

use std::collections::BTreeMap;

use super::histogram::HistogramSnapshot;
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
pub enum SeriesValueRef<'a> {
    Number(u64),
    /// Counts of a histogram's buckets, not cumulative.
    Times(&'a [u64]),
}

impl SeriesValueRef<'_> {
    /// Returns the number, or the number of times.
    #[must_use]
    pub fn total(&self) -> u64 {
        match self {
            Self::Number(number) => *number,
            Self::Times(buckets) => buckets.iter().sum(),
        }
    }

    /// Returns the counts of the buckets; a number has none.
    #[must_use]
    pub fn buckets(&self) -> &[u64] {
        match self {
            Self::Number(_) => &[],
            Self::Times(buckets) => buckets,
        }
    }
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
pub struct Snapshot {
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
    pub fn merge(&mut self, other: Self) {
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
    /// `SERIES_RETIRED_MAX`.
    pub fn carry_over(&mut self, earlier: &Self) {
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
    pub fn series_of(
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
    pub fn sum(&self, name: &'static str, first_labels: &[&str]) -> u64 {
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
