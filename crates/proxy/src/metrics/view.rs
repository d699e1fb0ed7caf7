//! What was counted, by listener, pool and server, for people: the control socket shows it, and the
//! difference of two is what happened in between.

use std::collections::BTreeMap;

use super::histogram::Distribution;
use super::snapshot::{Snapshot, Value};
use super::table::Metric;
use crate::outcome::End;

/// What was counted by one moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct View {
    pub(crate) all: Counted,
    pub(crate) listeners: BTreeMap<Box<str>, Counted>,
    pub(crate) pools: BTreeMap<Box<str>, Counted>,
    /// By pool and server.
    pub(crate) servers: BTreeMap<(Box<str>, Box<str>), Counted>,
}

/// What was counted of one of them. Not each has all of it; the rest is 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counted {
    /// That have ended.
    pub(crate) requests: u64,
    /// Of those: of a listener, those that did not end as planned; of a server, those whose status
    /// was a 5xx or that had none.
    pub(crate) errors: u64,
    pub(crate) bytes_in: u64,
    pub(crate) bytes_out: u64,
    pub(crate) accepted: u64,
    pub(crate) retries: u64,
    /// How long they took.
    pub(crate) times: Distribution,
    /// Now: connections of clients; those to a server that are idle; requests with a server; requests
    /// that wait.
    pub(crate) open: u64,
    pub(crate) idle: u64,
    pub(crate) in_flight: u64,
    pub(crate) queued: u64,
}

impl Counted {
    /// What was counted since `before`, with what is so now.
    pub(crate) fn since(&self, before: &Self) -> Self {
        Self {
            requests: self.requests.saturating_sub(before.requests),
            errors: self.errors.saturating_sub(before.errors),
            bytes_in: self.bytes_in.saturating_sub(before.bytes_in),
            bytes_out: self.bytes_out.saturating_sub(before.bytes_out),
            accepted: self.accepted.saturating_sub(before.accepted),
            retries: self.retries.saturating_sub(before.retries),
            times: self.times.since(&before.times),
            ..*self
        }
    }
}

impl View {
    /// Adds up a snapshot's series.
    pub(crate) fn of(snapshot: &Snapshot) -> Self {
        let mut view = Self::default();
        for ((metric, labels), value) in &snapshot.series {
            match value {
                Value::Number(number) => view.add_number(*metric, labels, *number),
                Value::Times(times) => view.add_times(*metric, labels, times),
            }
        }
        view
    }

    fn add_number(&mut self, metric: Metric, labels: &[Box<str>], number: u64) {
        let pick: fn(&mut Counted) -> &mut u64 = match metric {
            Metric::Requests => |counted| &mut counted.requests,
            Metric::BytesIn => |counted| &mut counted.bytes_in,
            Metric::BytesOut => |counted| &mut counted.bytes_out,
            Metric::Accepted => |counted| &mut counted.accepted,
            Metric::Open => |counted| &mut counted.open,
            Metric::Retries => |counted| &mut counted.retries,
            Metric::Queued => |counted| &mut counted.queued,
            Metric::Idle => |counted| &mut counted.idle,
            Metric::InFlight => |counted| &mut counted.in_flight,
            _ => return,
        };
        *pick(&mut self.all) += number;
        match (metric, labels) {
            (Metric::Requests, [listener, end]) => {
                let counted = self.listeners.entry(listener.clone()).or_default();
                counted.requests += number;
                if is_failure(end) {
                    counted.errors += number;
                    self.all.errors += number;
                }
            }
            (Metric::Retries | Metric::Queued, [pool]) => {
                *pick(self.pools.entry(pool.clone()).or_default()) += number;
            }
            (Metric::Idle | Metric::InFlight, [pool, server]) => {
                *pick(self.pools.entry(pool.clone()).or_default()) += number;
                let key = (pool.clone(), server.clone());
                *pick(self.servers.entry(key).or_default()) += number;
            }
            (_, [listener]) => {
                *pick(self.listeners.entry(listener.clone()).or_default()) += number;
            }
            _ => {}
        }
    }

    fn add_times(&mut self, metric: Metric, labels: &[Box<str>], times: &Distribution) {
        match (metric, labels) {
            (Metric::RequestSeconds, _) => self.all.times.add(times),
            (Metric::ServerSeconds, [pool, server, class]) => {
                let count = times.count();
                let failed = matches!(&**class, "5xx" | "none");
                let key = (pool.clone(), server.clone());
                let server = self.servers.entry(key).or_default();
                let pool = self.pools.entry(pool.clone()).or_default();
                for counted in [server, pool] {
                    counted.requests += count;
                    counted.errors += if failed { count } else { 0 };
                    counted.times.add(times);
                }
            }
            _ => {}
        }
    }
}

fn is_failure(end: &str) -> bool {
    ![End::Done, End::Answered].iter().any(|planned| planned.code() == end)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(values_ns: &[u64]) -> Distribution {
        let histogram = super::super::histogram::Histogram::default();
        values_ns.iter().for_each(|&value_ns| histogram.record(value_ns));
        histogram.copy()
    }

    #[test]
    fn what_belongs_together_is_added_up_and_what_was_before_is_left_out() {
        let mut first = Snapshot::default();
        first.add(Metric::Requests, &["web", "done"], 10);
        first.add(Metric::Requests, &["web", "server_timeout"], 1);
        first.add(Metric::Requests, &["other", "answered"], 2);
        first.add(Metric::Open, &["web"], 4);
        first.add(Metric::InFlight, &["app", "a"], 1);
        first.add(Metric::InFlight, &["app", "b"], 2);
        first.add(Metric::Queued, &["app"], 5);
        first.add_times(Metric::ServerSeconds, &["app", "a", "2xx"], times(&[1_000]));
        let before = View::of(&first);
        let mut second = first.clone();
        second.add(Metric::Requests, &["web", "client_gone"], 3);
        second.add_times(Metric::ServerSeconds, &["app", "b", "5xx"], times(&[3_000_000; 3]));
        let after = View::of(&second);
        assert_eq!((before.all.requests, before.all.errors, before.all.open), (13, 1, 4));
        assert_eq!((before.pools["app"].in_flight, before.pools["app"].queued), (3, 5));
        let web = after.listeners["web"].since(&before.listeners["web"]);
        assert_eq!((web.requests, web.errors, web.open), (3, 3, 4));
        let app = after.pools["app"].since(&before.pools["app"]);
        assert_eq!((app.requests, app.errors, app.times.count()), (3, 3, 3));
        let median_ns = app.times.quantile_ns(0.5).unwrap();
        assert!((2_900_000..=3_100_000).contains(&median_ns), "{median_ns}");
        assert_eq!(after.servers[&("app".into(), "a".into())].requests, 1);
    }
}
