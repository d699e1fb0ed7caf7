//! Prometheus text, parsed strictly and without weir's code, and the names that the tests look for:
//! all of them are here, so that a change of a name is a change of one line.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Requests that ended; labels `listener` and `end` among others.
pub(crate) const REQUESTS: &str = "weir_requests_total";
/// Connections of clients that are open; label `listener`.
pub(crate) const CONNECTIONS_OPEN: &str = "weir_connections_open";
/// Connections to servers that are kept for the next request; labels `pool` and `server`.
pub(crate) const SERVER_CONNECTIONS_IDLE: &str = "weir_pool_idle_connections";
/// Requests by whether their connection to a server was new; labels `pool`, `server`, `connection`.
pub(crate) const SERVER_REQUESTS: &str = "weir_server_requests_total";
/// Connections that were not served, and times of not accepting any; label `reason`.
pub(crate) const REFUSED: &str = "weir_connections_refused_total";
/// Buffers that are lent now.
pub(crate) const BUFFERS_LENT: &str = "weir_buffers_lent";
/// Requests that wait in the queue of a pool; label `pool`.
pub(crate) const QUEUED: &str = "weir_pool_queued_requests";
/// Requests that were sent again.
pub(crate) const RETRIES: &str = "weir_retries_total";
/// 1 for the state that a server is in; labels `pool`, `server`, `state`.
pub(crate) const SERVER_STATE: &str = "weir_server_state";
/// Active checks; labels `pool`, `server`, `result`.
pub(crate) const CHECKS: &str = "weir_checks_total";
/// Ejections; labels `pool`, `server`, `reason`.
pub(crate) const EJECTIONS: &str = "weir_ejections_total";
/// Ejections that were not made; labels `pool`, `server`.
pub(crate) const SPARED: &str = "weir_ejections_spared_total";
/// Questions to nameservers; labels `name`, `result`.
pub(crate) const DNS_QUERIES: &str = "weir_dns_queries_total";
/// Names without an answer; label `name`.
pub(crate) const DNS_FAILING: &str = "weir_dns_failing";
/// Lines of logs; labels `target` and `result`.
pub(crate) const LOG_LINES: &str = "weir_log_lines_total";
/// How long requests took, a histogram.
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
    /// The type of each family.
    pub(crate) types: BTreeMap<String, String>,
}

impl Metrics {
    /// Fails on a page that Prometheus would not take.
    pub(crate) fn parse(text: &str) -> Self {
        assert!(text.ends_with('\n'), "the last line ends");
        let mut types = BTreeMap::new();
        let mut samples = Vec::new();
        let mut seen = BTreeSet::new();
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
                assert!(seen.insert(identity), "a second time: {line}");
                samples.push(sample);
            }
        }
        Self { samples, types }
    }

    /// The samples of one name whose labels are at least these.
    pub(crate) fn of<'a>(
        &'a self,
        name: &'a str,
        labels: &'a [(&'a str, &'a str)],
    ) -> impl Iterator<Item = &'a Sample> {
        self.samples.iter().filter(move |sample| {
            let has = |(key, value): &(&str, &str)| {
                sample.labels.get(*key).is_some_and(|found| found == value)
            };
            sample.name == name && labels.iter().all(has)
        })
    }

    /// Their sum; a label that is not given is summed over.
    pub(crate) fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        self.of(name, labels).map(|sample| sample.value).sum()
    }

    /// As [`Metrics::sum`], of a family that has to be there: a wrong name is no zero.
    pub(crate) fn known(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let family = self.samples.iter().any(|sample| sample.name == name);
        assert!(family || self.types.contains_key(name), "there is no metric {name}: {self}");
        self.sum(name, labels)
    }
}

impl Metrics {
    /// Log lines that were written, and those that were lost, for whatever reason.
    pub(crate) fn log_lines(&self) -> (f64, f64) {
        let written = self.known(LOG_LINES, &[("result", "written")]);
        (written, self.known(LOG_LINES, &[]) - written)
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
                && text.chars().all(|one| one.is_ascii_alphanumeric() || one == '_')
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

/// The text up to the closing quote, and what follows it.
fn unquoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut rest = text.char_indices();
    while let Some((at, one)) = rest.next() {
        match one {
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
