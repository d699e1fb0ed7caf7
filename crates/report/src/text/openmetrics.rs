//! Live figures of a load in the text format of OpenMetrics 1.0. A fleet also has figures of each agent.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use record::histogram::{EXPORT_BOUNDS_NS, LatencyHistogram};
use record::run::Interval;

pub const MEDIA_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// Sums of a run so far.
#[derive(Debug, Default)]
pub struct LiveTotals {
    good: u64,
    bad: u64,
    bytes_in: u64,
    dropped: u64,
    /// Events of a load whose server sends by itself.
    events: Option<u64>,
    errors: BTreeMap<String, u64>,
    parse_errors: BTreeMap<String, u64>,
    latencies: Option<LatencyHistogram>,
    /// Second with the figures of a moment.
    pub last: Interval,
    /// True once the figures are final.
    pub is_finished: bool,
    /// Figures of each agent; empty without a fleet.
    agents: BTreeMap<String, AgentTotals>,
}

/// Sums of an agent of a fleet so far.
#[derive(Clone, Copy, Debug, Default)]
struct AgentTotals {
    responses: u64,
    errors: u64,
    in_flight: u64,
    connections: u64,
    p99_ns: Option<u64>,
}

impl AgentTotals {
    fn add(&mut self, interval: &Interval) {
        self.responses = self.responses.saturating_add(interval.responses);
        self.errors = interval.errors.values().fold(self.errors, |sum, count| sum.saturating_add(*count));
        (self.in_flight, self.connections) = (interval.in_flight, interval.connections);
        self.p99_ns = interval.p99_ns;
    }
}

/// Metrics of each agent: the name, the type, the help, and the value.
type AgentMetric = (&'static str, &'static str, &'static str, fn(&AgentTotals) -> Option<String>);
const AGENT_METRICS: &[AgentMetric] = &[
    ("weir_fleet_agent_responses", "counter", "Complete responses of an agent.", |agent| {
        Some(agent.responses.to_string())
    }),
    ("weir_fleet_agent_errors", "counter", "Failed requests of an agent.", |agent| {
        Some(agent.errors.to_string())
    }),
    ("weir_fleet_agent_connections", "gauge", "Open connections of an agent.", |agent| {
        Some(agent.connections.to_string())
    }),
    ("weir_fleet_agent_in_flight", "gauge", "Requests in flight of an agent.", |agent| {
        Some(agent.in_flight.to_string())
    }),
    (
        "weir_fleet_agent_response_latency_p99_seconds",
        "gauge",
        "99th percentile of the response latency of an agent in its last second.",
        |agent| agent.p99_ns.map(|ns| (ns as f64 / 1e9).to_string()),
    ),
];

/// Maximum number of values of a label; it is above the number of kinds and reasons that there are.
const LABEL_VALUES_MAX: usize = 128;

/// Adds a count of one value of a label. Seconds of agents may have any values: those above the limit are `other`.
fn add_label(counts: &mut BTreeMap<String, u64>, value: &str, count: u64) {
    let is_known = counts.contains_key(value) || counts.len() < LABEL_VALUES_MAX;
    let sum = counts.entry(if is_known { value } else { "other" }.to_owned()).or_default();
    *sum = sum.saturating_add(count);
}

fn by_label(label: &str, counts: &BTreeMap<String, u64>) -> Vec<(String, String)> {
    let rows = counts.iter();
    rows.map(|(value, count)| {
        let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        (format!("_total{{{label}=\"{value}\"}}"), count.to_string())
    })
    .collect()
}

impl LiveTotals {
    pub fn add(&mut self, interval: &Interval, latencies: &LatencyHistogram) {
        self.add_counts(interval, Some(latencies));
        self.last = interval.clone();
    }

    /// Adds a second of an agent to its figures and to the sums.
    pub fn add_agent(&mut self, agent: &str, interval: &Interval, latencies: Option<&LatencyHistogram>) {
        self.add_counts(interval, latencies);
        // The name of an agent needs no escape: it has letters, digits, '-' and '_'.
        self.agents.entry(agent.to_owned()).or_default().add(interval);
    }

    fn add_counts(&mut self, interval: &Interval, latencies: Option<&LatencyHistogram>) {
        let good = interval.good.unwrap_or(interval.responses);
        self.good = self.good.saturating_add(good);
        self.bad = self.bad.saturating_add(interval.responses - good.min(interval.responses));
        self.bytes_in = self.bytes_in.saturating_add(interval.bytes_in);
        self.dropped = self.dropped.saturating_add(interval.dropped);
        if let Some(events) = interval.events {
            self.events = Some(self.events.unwrap_or(0).saturating_add(events));
        }
        interval.errors.iter().for_each(|(kind, count)| add_label(&mut self.errors, kind, *count));
        let reasons = interval.parse_errors.iter();
        reasons.for_each(|(reason, count)| add_label(&mut self.parse_errors, reason, *count));
        if let Some(latencies) = latencies {
            self.latencies.get_or_insert_with(LatencyHistogram::new).add(latencies);
        }
    }

    pub fn text(&self) -> String {
        let mut text = String::new();
        let mut family = |name: &str, kind: &str, help: &str, rows: &[(String, String)]| {
            // Writing to a String does not fail.
            let _ = write!(text, "# TYPE {name} {kind}\n# HELP {name} {help}\n");
            for (suffix, value) in rows {
                let _ = writeln!(text, "{name}{suffix} {value}");
            }
        };
        let gauge = |value: u64| vec![(String::new(), value.to_string())];
        let total = |value: u64| vec![("_total".to_owned(), value.to_string())];
        let outcome = |name: &str, value: u64| (format!("_total{{outcome=\"{name}\"}}"), value.to_string());
        family(
            "weir_load_responses",
            "counter",
            "Complete responses.",
            &[outcome("good", self.good), outcome("bad", self.bad)],
        );
        family("weir_load_errors", "counter", "Failed requests.", &by_label("kind", &self.errors));
        family(
            "weir_load_parse_errors",
            "counter",
            "Failed requests of the kind parse, by the reason.",
            &by_label("reason", &self.parse_errors),
        );
        family(
            "weir_load_dropped",
            "counter",
            "Requests that were due and never sent.",
            &total(self.dropped),
        );
        if let Some(events) = self.events {
            let help = "Server-sent events, or messages of WebSocket that the server sent by itself.";
            family("weir_load_events", "counter", help, &total(events));
        }
        family("weir_load_received_bytes", "counter", "Bytes received.", &total(self.bytes_in));
        family("weir_load_connections", "gauge", "Open connections.", &gauge(self.last.connections));
        family("weir_load_in_flight", "gauge", "Requests in flight.", &gauge(self.last.in_flight));
        family("weir_load_pending", "gauge", "Requests waiting for a connection.", &gauge(self.last.pending));
        family(
            "weir_load_response_latency_seconds",
            "histogram",
            "Latency from the due time to the last byte.",
            &self.buckets(),
        );
        family(
            "weir_load_finished",
            "gauge",
            "1 once the figures are final.",
            &gauge(u64::from(self.is_finished)),
        );
        for (name, kind, help, value) in AGENT_METRICS.iter().filter(|_| !self.agents.is_empty()) {
            let suffix = if *kind == "counter" { "_total" } else { "" };
            let row = |(agent, totals): (&String, &AgentTotals)| {
                Some((format!("{suffix}{{agent=\"{agent}\"}}"), value(totals)?))
            };
            family(name, kind, help, &self.agents.iter().filter_map(row).collect::<Vec<_>>());
        }
        text + "# EOF\n"
    }

    fn buckets(&self) -> Vec<(String, String)> {
        let Some(latencies) = &self.latencies else {
            return vec![
                ("_bucket{le=\"+Inf\"}".to_owned(), "0".to_owned()),
                ("_count".to_owned(), "0".to_owned()),
            ];
        };
        let count = latencies.count();
        let mut rows: Vec<_> = EXPORT_BOUNDS_NS
            .iter()
            .map(|bound_ns| {
                let within = (latencies.fraction_within(*bound_ns) * count as f64).round() as u64;
                (format!("_bucket{{le=\"{}\"}}", *bound_ns as f64 / 1e9), within.min(count).to_string())
            })
            .collect();
        rows.push(("_bucket{le=\"+Inf\"}".to_owned(), count.to_string()));
        rows.push(("_count".to_owned(), count.to_string()));
        rows.push(("_sum".to_owned(), format!("{:.9}", latencies.mean_ns() * count as f64 / 1e9)));
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_of_agents_are_escaped_and_bounded() {
        let mut totals = LiveTotals::default();
        for number in 0..1_000 {
            let name = format!("a\"\\\n{number}");
            let interval = Interval { parse_errors: [(name, u64::MAX)].into(), ..Interval::default() };
            totals.add_agent("x", &interval, None);
        }
        let text = totals.text();
        assert_eq!(text.matches("weir_load_parse_errors_total{").count(), LABEL_VALUES_MAX + 1);
        assert!(text.contains(r#"{reason="a\"\\\n0"}"#) && text.contains("{reason=\"other\"}"), "{text}");
    }

    #[test]
    fn the_text_has_every_family_and_its_end() {
        let mut totals = LiveTotals::default();
        let mut latencies = LatencyHistogram::new();
        [80_000, 3_000_000, 9_000_000_000].iter().for_each(|ns| latencies.record(*ns));
        let interval = Interval {
            responses: 3,
            good: Some(2),
            errors: [("timeout".to_owned(), 1)].into(),
            connections: 7,
            ..Interval::default()
        };
        totals.add(&interval, &latencies);
        assert!(!totals.text().contains("weir_load_events"));
        totals.add(&Interval { events: Some(0), ..interval.clone() }, &LatencyHistogram::new());
        totals.add(&Interval { events: Some(9), ..Interval::default() }, &LatencyHistogram::new());
        let text = totals.text();
        for line in [
            "weir_load_responses_total{outcome=\"good\"} 4",
            "weir_load_errors_total{kind=\"timeout\"} 2",
            "weir_load_events_total 9",
            "weir_load_connections 0",
            "weir_load_response_latency_seconds_bucket{le=\"0.0001\"} 1",
            "weir_load_response_latency_seconds_bucket{le=\"0.005\"} 2",
            "weir_load_response_latency_seconds_bucket{le=\"+Inf\"} 3",
            "weir_load_response_latency_seconds_count 3",
            "weir_load_finished 0",
        ] {
            assert!(text.lines().any(|text_line| text_line == line), "{line}: {text}");
        }
        assert!(text.ends_with("# EOF\n") && !text.contains("weir_fleet"));
    }

    #[test]
    fn a_fleet_has_figures_of_each_agent_and_of_all() {
        let mut totals = LiveTotals::default();
        let second = |responses, in_flight| Interval { responses, in_flight, ..Interval::default() };
        totals.add_agent("a", &second(3, 1), None);
        totals.add_agent("b", &Interval { p99_ns: Some(1_500_000), ..second(4, 2) }, None);
        totals.add_agent("b", &second(4, 2), None);
        totals.last = second(7, 3);
        let text = totals.text();
        for line in [
            "weir_load_responses_total{outcome=\"good\"} 11",
            "weir_load_in_flight 3",
            "# TYPE weir_fleet_agent_responses counter",
            "weir_fleet_agent_responses_total{agent=\"a\"} 3",
            "weir_fleet_agent_responses_total{agent=\"b\"} 8",
            "weir_fleet_agent_in_flight{agent=\"b\"} 2",
        ] {
            assert!(text.lines().any(|text_line| text_line == line), "{line}: {text}");
        }
        assert!(!text.contains("p99_seconds{"), "no value is better than an old one: {text}");
        assert!(text.ends_with("# EOF\n"));
    }
}
