//! Prometheus text, parsed strictly and without weir's code, and the metric names of the tests. All
//! names are here, so that a renamed metric changes one line.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Ended requests; labels `listener` and `end` among others.
pub(crate) const REQUESTS: &str = "weir_requests_total";
/// Open client connections; label `listener`.
pub(crate) const CONNECTIONS_OPEN: &str = "weir_connections_open";
/// Idle connections to servers, kept for later requests; labels `pool` and `server`.
pub(crate) const SERVER_CONNECTIONS_IDLE: &str = "weir_pool_idle_connections";
/// Requests by whether their connection to a server was new; labels `pool`, `server`, `connection`.
pub(crate) const SERVER_REQUESTS: &str = "weir_server_requests_total";
/// Rejected connections, and pauses of accepting; label `reason`.
pub(crate) const REFUSED: &str = "weir_connections_refused_total";
/// Buffers in use.
pub(crate) const BUFFERS_LENT: &str = "weir_buffers_in_use";
/// Requests in the queue of a pool; label `pool`.
pub(crate) const QUEUED: &str = "weir_pool_queued_requests";
/// Retried requests.
pub(crate) const RETRIES: &str = "weir_retries_total";
/// 1 for the current state of a server; labels `pool`, `server`, `state`.
pub(crate) const SERVER_STATE: &str = "weir_server_state";
/// Active checks; labels `pool`, `server`, `result`.
pub(crate) const CHECKS: &str = "weir_checks_total";
/// Ejections; labels `pool`, `server`, `reason`.
pub(crate) const EJECTIONS: &str = "weir_ejections_total";
/// Suppressed ejections; labels `pool`, `server`.
pub(crate) const SPARED: &str = "weir_ejections_suppressed_total";
/// Queries to nameservers; labels `name`, `result`.
pub(crate) const DNS_QUERIES: &str = "weir_dns_queries_total";
/// Names without a response; label `name`.
pub(crate) const DNS_FAILING: &str = "weir_dns_failing";
/// Config generations that threads hold.
pub(crate) const CONFIG_GENERATIONS: &str = "weir_config_generations";
/// Reloads of the config; label `result`.
pub(crate) const RELOADS: &str = "weir_reloads_total";
/// Requests, and connections of mode tcp, in flight.
pub(crate) const REQUESTS_IN_FLIGHT: &str = "weir_requests_in_flight";
/// Log lines; labels `target` and `result`.
pub(crate) const LOG_LINES: &str = "weir_log_lines_total";
/// Histogram of request durations.
pub(crate) const DURATION: &str = "weir_request_seconds";

/// One sample.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    pub(crate) name: String,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) value: f64,
}

/// A page of metrics.
#[derive(Clone, Debug)]
pub(crate) struct Metrics {
    pub(crate) samples: Vec<Sample>,
    /// Type of each family.
    pub(crate) types: BTreeMap<String, String>,
}

impl Metrics {
    /// Parses a page; fails on one that Prometheus would reject.
    pub(crate) fn parse(text: &str) -> Self {
        assert!(text.ends_with('\n'), "the last line ends");
        let mut types = BTreeMap::new();
        let mut samples = Vec::new();
        let mut identities = BTreeSet::new();
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').expect(line);
                assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
                let before = types.insert(name.to_owned(), kind.to_owned());
                assert!(before.is_none(), "a second time: {line}");
            } else if let Some(rest) = line.strip_prefix("# HELP ") {
                assert!(rest.split_once(' ').is_some_and(|(_, help)| !help.is_empty()), "{line}");
            } else if !line.is_empty() {
                let sample = Sample::parse(line);
                let identity = (sample.name.clone(), sample.labels.clone());
                assert!(identities.insert(identity), "a second time: {line}");
                samples.push(sample);
            }
        }
        Self { samples, types }
    }

    /// Returns the samples of one name that have at least these labels.
    pub(crate) fn samples_with<'a>(
        &'a self,
        name: &'a str,
        labels: &'a [(&'a str, &'a str)],
    ) -> impl Iterator<Item = &'a Sample> {
        self.samples.iter().filter(move |sample| {
            let has =
                |(key, value): &(&str, &str)| sample.labels.get(*key).is_some_and(|actual| actual == value);
            sample.name == name && labels.iter().all(has)
        })
    }

    /// Returns the sum of these samples; a label that is not given is summed over.
    pub(crate) fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        self.samples_with(name, labels).map(|sample| sample.value).sum()
    }

    /// Does the same as [`Metrics::sum`] for a family that must exist: a wrong name does not count
    /// as zero.
    pub(crate) fn sum_known(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let family = self.samples.iter().any(|sample| sample.name == name);
        assert!(family || self.types.contains_key(name), "there is no metric {name}: {self}");
        self.sum(name, labels)
    }
}

impl Metrics {
    /// Returns the number of written log lines, and of those lost for any reason.
    pub(crate) fn log_lines(&self) -> (f64, f64) {
        let written = self.sum_known(LOG_LINES, &[("result", "written")]);
        (written, self.sum_known(LOG_LINES, &[]) - written)
    }
}

impl fmt::Display for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for sample in self.samples.iter().filter(|sample| !sample.name.ends_with("_bucket")) {
            writeln!(f, "{} {:?} {}", sample.name, sample.labels, sample.value)?;
        }
        Ok(())
    }
}

impl Sample {
    fn parse(line: &str) -> Self {
        let end = line.find(['{', ' ']).expect(line);
        let (name, rest) = line.split_at(end);
        let is_name = |text: &str| {
            !text.is_empty()
                && !text.starts_with(|first: char| first.is_ascii_digit())
                && text.chars().all(|character| character.is_ascii_alphanumeric() || character == '_')
        };
        assert!(is_name(name), "{line}");
        let mut labels = BTreeMap::new();
        let value = match rest.strip_prefix('{') {
            None => rest,
            Some(mut rest) => loop {
                if let Some(after) = rest.strip_prefix('}') {
                    break after;
                }
                let (key, quoted) = rest.split_once("=\"").expect(line);
                assert!(is_name(key), "{line}");
                let (value, after) = unquoted(quoted).expect(line);
                assert!(labels.insert(key.to_owned(), value).is_none(), "{line}");
                rest = after.strip_prefix(',').unwrap_or(after);
            },
        };
        let value = match value.trim() {
            "+Inf" => f64::INFINITY,
            number => number.parse().unwrap_or_else(|error| panic!("{line}: {error}")),
        };
        Self { name: name.to_owned(), labels, value }
    }
}

/// Returns the text up to the closing quote, and the rest after it.
fn unquoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut rest = text.char_indices();
    while let Some((at, character)) = rest.next() {
        match character {
            '"' => return Some((value, &text[at + 1..])),
            '\\' => match rest.next()?.1 {
                'n' => value.push('\n'),
                other => value.push(other),
            },
            other => value.push(other),
        }
    }
    None
}
