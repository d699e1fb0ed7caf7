//! Metrics as text: the format of Prometheus (0.0.4), and OpenMetrics 1.0.0, whose histograms have exemplars. A client
//! that accepts both gets the one that it prefers.
//!
//! Both have the same names of samples and the same bounds, so that a series goes on when a scraper changes the format.

use std::fmt::Write;

use super::exemplars::Exemplar;
use super::histogram::{BOUNDS_NS, HistogramSnapshot};
use super::snapshot::{SeriesValue, Snapshot};
use super::table::{Metric, MetricKind, MetricSpec};
use crate::accept::quality;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricsFormat {
    Prometheus,
    OpenMetrics,
}

impl MetricsFormat {
    /// Chooses by the field lines of `Accept`: OpenMetrics only for clients that name it, and accept plain text less.
    pub fn choose<'a>(lines: impl Iterator<Item = &'a [u8]>) -> Self {
        let (mut openmetrics, mut plain) = (0, 0);
        for range in lines.flat_map(|line| line.split(|&byte| byte == b',')) {
            let mut parts = range.split(|&byte| byte == b';');
            let name = parts.next().unwrap_or_default().trim_ascii();
            let is_known = parts.clone().all(|parameter| {
                let version = parameter.trim_ascii();
                !version.starts_with(b"version=")
                    || [&b"version=1.0.0"[..], b"version=0.0.1", b"version=0.0.4"].contains(&version)
            });
            let weight = parts.find_map(quality).unwrap_or(1_000);
            match name {
                _ if !is_known => {}
                _ if name.eq_ignore_ascii_case(b"application/openmetrics-text") => {
                    openmetrics = weight.max(openmetrics);
                }
                _ if name.eq_ignore_ascii_case(b"text/plain") => plain = weight.max(plain),
                _ => {}
            }
        }
        if openmetrics > 0 && openmetrics >= plain { Self::OpenMetrics } else { Self::Prometheus }
    }

    pub fn content_type(self) -> &'static str {
        match self {
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }

    /// Returns the name and the type of the family of a metric: in OpenMetrics, only the samples of a counter have the
    /// suffix. If another metric has that name, the type is unknown, so that no sample changes its name.
    fn family(self, row: &MetricSpec) -> (&'static str, &'static str) {
        let is_taken = |name| Metric::ALL.iter().any(|metric| metric.row().name == name);
        match (self, row.kind, row.name.strip_suffix("_total")) {
            (Self::OpenMetrics, MetricKind::Counter, Some(name)) if is_taken(name) => (row.name, "unknown"),
            (Self::OpenMetrics, MetricKind::Counter, Some(name)) => (name, row.kind.name()),
            _ => (row.name, row.kind.name()),
        }
    }

    fn push_family(self, text: &mut String, row: &MetricSpec) {
        let (family, kind) = self.family(row);
        let doc = match self {
            Self::Prometheus => row.doc.to_owned(),
            Self::OpenMetrics => row.doc.replace('\\', "\\\\").replace('"', "\\\""),
        };
        // Writing to a String cannot fail, here and below.
        let _ = writeln!(text, "# HELP {family} {doc}\n# TYPE {family} {kind}");
    }
}

/// Renders the snapshot. `with_exemplars`: the histograms of OpenMetrics have those that were recorded.
pub fn render(snapshot: &Snapshot, format: MetricsFormat, with_exemplars: bool) -> String {
    let with_exemplars = with_exemplars && format == MetricsFormat::OpenMetrics;
    let mut text = String::with_capacity(256 * snapshot.series.len());
    let mut previous_metric = None;
    for ((metric, labels), value) in &snapshot.series {
        let row = metric.row();
        if previous_metric.replace(*metric) != Some(*metric) {
            format.push_family(&mut text, row);
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
            SeriesValue::Times(times) => push_times(&mut text, row.name, &labels, times, with_exemplars),
        }
    }
    // Computed from two other gauges here, because averages cannot be summed over cores.
    push_average(&mut text, snapshot, format);
    if format == MetricsFormat::OpenMetrics {
        text.push_str("# EOF\n");
    }
    text
}

fn push_average(text: &mut String, snapshot: &Snapshot, format: MetricsFormat) {
    let number = |metric| match snapshot.series.get(&(metric, Box::default())) {
        Some(SeriesValue::Number(number)) => *number,
        _ => 0,
    };
    let row = Metric::IdleMemoryAverage.row();
    let average = number(Metric::IdleMemory).checked_div(number(Metric::IdleClients)).unwrap_or(0);
    format.push_family(text, row);
    let _ = writeln!(text, "{} {average}", row.name);
}

fn push_times(text: &mut String, name: &str, labels: &str, times: &HistogramSnapshot, with_exemplars: bool) {
    let comma = if labels.is_empty() { "" } else { "," };
    let exemplars = times.exemplars.as_deref().filter(|_| with_exemplars);
    let mut push_bucket = |bucket: usize, bound: &str, total: u64| {
        let _ = write!(text, "{name}_bucket{{{labels}{comma}le=\"{bound}\"}} {total}");
        if let Some(exemplar) = exemplars.and_then(|exemplars| exemplars.get(bucket)) {
            push_exemplar(text, exemplar);
        }
        text.push('\n');
    };
    for (bucket, (total, bound_ns)) in times.cumulative().into_iter().zip(BOUNDS_NS).enumerate() {
        push_bucket(bucket, &(bound_ns as f64 / 1e9).to_string(), total);
    }
    let total = times.count();
    push_bucket(BOUNDS_NS.len(), "+Inf", total);
    let label_set = if labels.is_empty() { String::new() } else { format!("{{{labels}}}") };
    let _ = writeln!(text, "{name}_sum{label_set} {}", times.sum_ns as f64 / 1e9);
    let _ = writeln!(text, "{name}_count{label_set} {total}");
}

fn push_exemplar(text: &mut String, exemplar: &Exemplar) {
    let Exemplar { trace_id, time_ns, unix_ns } = exemplar;
    let milliseconds = unix_ns.get() / 1_000_000;
    let _ = write!(
        text,
        " # {{trace_id=\"{:032x}\"}} {} {}.{:03}",
        trace_id.get(),
        *time_ns as f64 / 1e9,
        milliseconds / 1_000,
        milliseconds % 1_000
    );
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn openmetrics_is_for_clients_that_name_it() {
        use MetricsFormat::{OpenMetrics, Prometheus};
        // Of Prometheus 2 and 3.
        let second = "application/openmetrics-text;version=1.0.0;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
        let third = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,text/plain;version=1.0.0;q=0.3,*/*;q=0.1";
        let table: &[(&[&str], MetricsFormat)] = &[
            (&[], Prometheus),
            (&["*/*"], Prometheus),
            (&["text/plain;version=0.0.4;q=0.9, application/openmetrics-text;q=0.5"], Prometheus),
            (&["text/plain, Application/OpenMetrics-Text"], OpenMetrics),
            (&["application/openmetrics-text; version=1.0.0"], OpenMetrics),
            (&["application/openmetrics-text; version=2.0.0", "text/plain"], Prometheus),
            (&["application/openmetrics-text;q=0"], Prometheus),
            (&["text/html", "application/openmetrics-text;version=0.0.1"], OpenMetrics),
            (&[second], OpenMetrics),
            (&[third], OpenMetrics),
        ];
        for (lines, expected) in table {
            assert_eq!(
                MetricsFormat::choose(lines.iter().map(|line| line.as_bytes())),
                *expected,
                "{lines:?}"
            );
        }
    }
}
