//! Summary of the metrics by listener, pool and server, for the control socket: `show` prints it since
//! the start, and `top` prints the difference of two summaries.

use std::collections::BTreeMap;

use super::histogram::HistogramSnapshot;
use super::snapshot::{SeriesValue, Snapshot};
use super::table::Metric;
use crate::outcome::EndReason;

/// Totals at one moment.
#[derive(Clone, Debug, Default)]
pub struct MetricsSummary {
    pub total: MetricTotals,
    pub listeners: BTreeMap<Box<str>, MetricTotals>,
    pub pools: BTreeMap<Box<str>, MetricTotals>,
    /// Totals by pool and server.
    pub servers: BTreeMap<(Box<str>, Box<str>), MetricTotals>,
}

/// Totals of a listener, a pool or a server. Values that it does not have are 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MetricTotals {
    pub requests: u64,
    /// Failed requests among these. For a listener: those with another end reason than `done` and
    /// `local_response`. For a pool or a server: those with a 5xx status or without a status.
    pub errors: u64,
    pub bytes_in: u64,
    pub bytes_out: u64,
    pub accepted: u64,
    pub retries: u64,
    /// Durations of the completed requests.
    pub times: HistogramSnapshot,
    /// Gauges: client connections, idle connections to a server, requests at a server, and queued
    /// requests.
    pub open: u64,
    pub idle: u64,
    pub in_flight: u64,
    pub queued: u64,
}

impl MetricTotals {
    /// Returns the counters since `previous`, and the current gauges.
    pub fn since(&self, previous: &Self) -> Self {
        Self {
            requests: self.requests.saturating_sub(previous.requests),
            errors: self.errors.saturating_sub(previous.errors),
            bytes_in: self.bytes_in.saturating_sub(previous.bytes_in),
            bytes_out: self.bytes_out.saturating_sub(previous.bytes_out),
            accepted: self.accepted.saturating_sub(previous.accepted),
            retries: self.retries.saturating_sub(previous.retries),
            times: self.times.since(&previous.times),
            ..*self
        }
    }
}

impl MetricsSummary {
    /// Sums the series of a snapshot.
    pub fn from_snapshot(snapshot: &Snapshot) -> Self {
        let mut summary = Self::default();
        for ((metric, labels), value) in &snapshot.series {
            match value {
                SeriesValue::Number(number) => summary.add_number(*metric, labels, *number),
                SeriesValue::Times(times) => summary.add_times(*metric, labels, times),
            }
        }
        summary
    }

    fn add_number(&mut self, metric: Metric, labels: &[Box<str>], number: u64) {
        let select: fn(&mut MetricTotals) -> &mut u64 = match metric {
            Metric::Requests => |totals| &mut totals.requests,
            Metric::BytesIn => |totals| &mut totals.bytes_in,
            Metric::BytesOut => |totals| &mut totals.bytes_out,
            Metric::Accepted => |totals| &mut totals.accepted,
            Metric::Open => |totals| &mut totals.open,
            Metric::Retries => |totals| &mut totals.retries,
            Metric::Queued => |totals| &mut totals.queued,
            Metric::Idle => |totals| &mut totals.idle,
            Metric::InFlight => |totals| &mut totals.in_flight,
            _ => return,
        };
        *select(&mut self.total) += number;
        match (metric, labels) {
            (Metric::Requests, [listener, end]) => {
                let totals = self.listeners.entry(listener.clone()).or_default();
                totals.requests += number;
                if is_failure(end) {
                    totals.errors += number;
                    self.total.errors += number;
                }
            }
            (Metric::Retries | Metric::Queued, [pool]) => {
                *select(self.pools.entry(pool.clone()).or_default()) += number;
            }
            (Metric::Idle | Metric::InFlight, [pool, server]) => {
                *select(self.pools.entry(pool.clone()).or_default()) += number;
                let key = (pool.clone(), server.clone());
                *select(self.servers.entry(key).or_default()) += number;
            }
            (_, [listener]) => {
                *select(self.listeners.entry(listener.clone()).or_default()) += number;
            }
            _ => {}
        }
    }

    fn add_times(&mut self, metric: Metric, labels: &[Box<str>], times: &HistogramSnapshot) {
        match (metric, labels) {
            (Metric::RequestSeconds, _) => self.total.times.add(times),
            (Metric::ServerSeconds, [pool, server, class]) => {
                let count = times.count();
                let is_failed = matches!(&**class, "5xx" | "none");
                let key = (pool.clone(), server.clone());
                let server = self.servers.entry(key).or_default();
                let pool = self.pools.entry(pool.clone()).or_default();
                for totals in [server, pool] {
                    totals.requests += count;
                    totals.errors += if is_failed { count } else { 0 };
                    totals.times.add(times);
                }
            }
            _ => {}
        }
    }
}

fn is_failure(end: &str) -> bool {
    ![EndReason::Done, EndReason::LocalResponse].iter().any(|regular| regular.code() == end)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(values_ns: &[u64]) -> HistogramSnapshot {
        let histogram = super::super::histogram::Histogram::default();
        values_ns.iter().for_each(|&value_ns| histogram.record(value_ns));
        histogram.snapshot()
    }

    #[test]
    fn what_belongs_together_is_added_up_and_what_was_before_is_left_out() {
        let mut first = Snapshot::default();
        first.add(Metric::Requests, &["web", "done"], 10);
        first.add(Metric::Requests, &["web", "server_timeout"], 1);
        first.add(Metric::Requests, &["other", "local_response"], 2);
        first.add(Metric::Open, &["web"], 4);
        first.add(Metric::InFlight, &["app", "a"], 1);
        first.add(Metric::InFlight, &["app", "b"], 2);
        first.add(Metric::Queued, &["app"], 5);
        first.add_times(Metric::ServerSeconds, &["app", "a", "2xx"], times(&[1_000]));
        let previous = MetricsSummary::from_snapshot(&first);
        let mut second = first.clone();
        second.add(Metric::Requests, &["web", "client_gone"], 3);
        second.add_times(Metric::ServerSeconds, &["app", "b", "5xx"], times(&[3_000_000; 3]));
        let after = MetricsSummary::from_snapshot(&second);
        assert_eq!((previous.total.requests, previous.total.errors, previous.total.open), (13, 1, 4));
        assert_eq!((previous.pools["app"].in_flight, previous.pools["app"].queued), (3, 5));
        let web = after.listeners["web"].since(&previous.listeners["web"]);
        assert_eq!((web.requests, web.errors, web.open), (3, 3, 4));
        let app = after.pools["app"].since(&previous.pools["app"]);
        assert_eq!((app.requests, app.errors, app.times.count()), (3, 3, 3));
        let median_ns = app.times.quantile_ns(0.5).unwrap();
        assert!((2_900_000..=3_100_000).contains(&median_ns), "{median_ns}");
        assert_eq!(after.servers[&("app".into(), "a".into())].requests, 1);
    }
}
