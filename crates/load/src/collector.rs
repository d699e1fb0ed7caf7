//! Adds up what the cores bring: each second into an interval, all of them into the measurement.
//! It runs in the collecting thread, so no core ever adds a histogram.

use std::collections::BTreeMap;
use std::sync::mpsc;

use record::histogram::Latencies;
use record::run::Interval;
use record::units::SECOND_NS;

use crate::failure::{KINDS, Kind};
use crate::plan::Plan;
use crate::recorder::{Book, Counters, Phases, Snapshot};
use crate::run::{Measured, Observer, RunError, SecondLatencies, window_after_ns};

/// Adds up what the cores bring.
pub(crate) struct Collector {
    plan: Plan,
    spares: Vec<mpsc::Sender<Box<Book>>>,
    /// The last counters of each core.
    last: Vec<Counters>,
    /// The second that each core has delivered last, plus one.
    delivered: Vec<u64>,
    /// Seconds that not all cores have delivered yet.
    open: BTreeMap<u64, Vec<Snapshot>>,
    /// Next second to be closed.
    next: u64,
    /// Sums of all cores when the last second was closed.
    before: Counters,
    total: Phases,
    /// Requests due in the window.
    window_requests: u64,
    /// Latencies and number of the requests due in the newest seconds, not yet known to be whole ones.
    newest: BTreeMap<u64, (Phases, u64)>,
    lag: Latencies,
    intervals: Vec<Interval>,
    /// Requests due by the end of each interval.
    due: Vec<u64>,
    /// Requests due and without an outcome at the end of each interval.
    backlog: Vec<u64>,
}

impl Collector {
    pub(crate) fn new(plan: Plan, spares: Vec<mpsc::Sender<Box<Book>>>) -> Self {
        let cores = plan.threads;
        Self {
            plan,
            spares,
            last: vec![Counters::default(); cores],
            delivered: vec![0; cores],
            open: BTreeMap::new(),
            next: 0,
            before: Counters::default(),
            total: Phases::default(),
            window_requests: 0,
            newest: BTreeMap::new(),
            lag: Latencies::new(),
            intervals: Vec::new(),
            due: Vec::new(),
            backlog: Vec::new(),
        }
    }

    pub(crate) fn counters(&self) -> Counters {
        self.last.iter().fold(Counters::default(), |sum, core| sum.plus(core))
    }

    pub(crate) fn take(&mut self, snapshot: Snapshot, observer: &mut dyn Observer) {
        self.delivered[snapshot.core] = snapshot.second + 1;
        self.last[snapshot.core] = snapshot.counters.clone();
        self.open.entry(snapshot.second).or_default().push(snapshot);
        let complete = self.delivered.iter().copied().min().unwrap_or(0);
        while self.next < complete {
            let snapshots = self.open.remove(&self.next).unwrap_or_default();
            let end_s = (self.next + 1) as f64;
            self.close(snapshots, end_s, 1.0, observer);
            self.next += 1;
        }
    }

    /// Closes an interval and shows it.
    fn close(
        &mut self,
        snapshots: Vec<Snapshot>,
        end_s: f64,
        length_s: f64,
        observer: &mut dyn Observer,
    ) {
        let mut latencies = SecondLatencies::default();
        let mut lag = Latencies::new();
        let sum = self.counters();
        let mut interval = sum.since(&self.before);
        for snapshot in snapshots {
            interval.connections += snapshot.open;
            interval.in_flight += snapshot.in_flight;
            interval.waiting += snapshot.waiting;
            let mut book = snapshot.book;
            latencies.phases.add(&book.current);
            latencies.phases.add(&book.late);
            latencies.response.add(&book.outside);
            lag.add(&book.lag);
            self.total.add(&book.late);
            self.window_requests += book.due_late;
            let newest = self.newest.entry(snapshot.second).or_default();
            newest.0.add(&book.current);
            newest.1 += book.due;
            book.clear();
            // A core that has ended needs no book any more.
            let _ = self.spares[snapshot.core].send(book);
        }
        latencies.response.add(&latencies.phases.last_byte.response);
        self.lag.add(&lag);
        interval.time_s = end_s;
        interval.length_s = length_s;
        interval.first_byte_mean_ns = latencies.phases.first_byte.service.mean_ns();
        interval.last_byte_mean_ns = latencies.phases.last_byte.service.mean_ns();
        interval.p50_ns = Some(latencies.response.at(0.5));
        interval.p99_ns = Some(latencies.response.at(0.99));
        interval.max_ns = latencies.response.max_ns();
        interval.lag_p99_ns = Some(lag.at(0.99));
        // A run that ends with a second has nothing to show behind it.
        let empty = length_s < 1e-6 && interval.responses == 0 && interval.errors.is_empty();
        if !empty {
            observer.second(&mut interval, &latencies);
            self.due.push(sum.due);
            self.backlog.push(sum.backlog());
            self.intervals.push(interval);
        }
        self.before = sum;
        // All but the last two seconds are known to be whole.
        while self.newest.len() > 2 {
            if let Some((_, (phases, due))) = self.newest.pop_first() {
                self.total.add(&phases);
                self.window_requests += due;
            }
        }
    }

    /// Closes the seconds that some cores delivered and others skipped.
    fn close_skipped(&mut self, observer: &mut dyn Observer) {
        for (second, snapshots) in std::mem::take(&mut self.open) {
            self.close(snapshots, (second + 1) as f64, 1.0, observer);
            self.next = second + 1;
        }
    }

    /// Adds the newest seconds before `end` to the window; the service latencies of the rest, and how many
    /// requests had no good response.
    fn split_tail(&mut self, end: u64) -> (Latencies, u64) {
        let (mut service, mut not_good) = (Latencies::new(), 0);
        for (second, (phases, due)) in std::mem::take(&mut self.newest) {
            if second >= end {
                service.add(&phases.last_byte.service);
                not_good += phases.not_good;
            } else {
                self.total.add(&phases);
                self.window_requests += due;
            }
        }
        (service, not_good)
    }

    pub(crate) fn finish(
        mut self,
        last: Vec<Snapshot>,
        partial: bool,
        observer: &mut dyn Observer,
    ) -> Result<Measured, RunError> {
        let ended_ns = last.iter().filter_map(|snapshot| snapshot.ended_ns).min().unwrap_or(0);
        let done_ns = last.iter().map(|snapshot| snapshot.done_ns).max().unwrap_or(0);
        let area_ns = last.iter().map(|snapshot| snapshot.area_ns).sum();
        let drained_ns = last.iter().map(|snapshot| snapshot.drained_ns).sum();
        let lost_ns = last.iter().map(|snapshot| snapshot.lost_ns).sum();
        self.close_skipped(observer);
        for snapshot in &last {
            self.last[snapshot.core] = snapshot.counters.clone();
        }
        let counters = self.counters();
        if counters.obtained == 0 {
            return Err(no_connection(&counters));
        }
        let rest_s = (ended_ns.max(done_ns) as f64 / 1e9 - self.next as f64).max(0.0);
        self.close(last, self.next as f64 + rest_s, rest_s, observer);
        let from = window_after_ns(&self.plan) / SECOND_NS;
        let whole = ended_ns / SECOND_NS;
        let whole_seconds = whole > from;
        let (tail_service, tail_not_good) =
            self.split_tail(if whole_seconds { whole } else { u64::MAX });
        let to_s = if whole_seconds { whole as f64 } else { ended_ns.max(done_ns) as f64 / 1e9 };
        let window_s = (if whole_seconds { from as f64 } else { 0.0 }, to_s);
        let mut measured = Measured {
            latencies: self.total,
            tail_service,
            tail_not_good,
            lag: self.lag,
            counters,
            intervals: self.intervals,
            window_s,
            whole_seconds,
            window_responses: 0,
            window_good: 0,
            window_bytes_in: 0,
            window_due: 0,
            window_requests: self.window_requests,
            backlog: self.backlog,
            area_ns,
            drained_ns,
            lost_ns,
            load_s: ended_ns as f64 / 1e9,
            partial,
            plan: self.plan,
        };
        measured.mark_window(&self.due);
        Ok(measured)
    }
}

fn no_connection(counters: &Counters) -> RunError {
    let most = counters.errors.iter().enumerate().max_by_key(|(_, count)| **count);
    let kind = most.map_or(Kind::Other, |(index, _)| KINDS[index].0);
    let text = format!("{} attempts failed", counters.connect_failed);
    RunError::NoConnection { kind, text }
}
