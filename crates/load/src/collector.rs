//! Sums of the cores' data: each second becomes an interval, all of them the measurement. The sums
//! are made in the collecting thread, so no core ever adds a histogram.

use std::collections::BTreeMap;
use std::sync::mpsc;

use record::histogram::LatencyHistogram;
use record::run::{Interval, UserTransport};
use record::units::{SECOND_NS, format_plural};

use crate::failure::{FAILURE_KINDS, FailureKind};
use crate::measurement::{RunError, RunMeasurement};
use crate::observer::{RunObserver, SecondLatencies};
use crate::plan::RunPlan;
use crate::recorder::{
    Breakdown, CheckSample, CoreSnapshot, Counters, HistogramSet, LiveHistograms, PhaseHistograms,
};

/// Sums the data of the cores.
pub(crate) struct Collector {
    plan: RunPlan,
    spare_histograms: Vec<mpsc::Sender<Box<HistogramSet>>>,
    latest: Vec<Counters>,
    /// Latest second that each core has delivered, plus one.
    delivered: Vec<u64>,
    /// Seconds that some cores have not delivered yet.
    incomplete_seconds: BTreeMap<u64, Vec<CoreSnapshot>>,
    next_second: u64,
    /// Sums of all cores when the previous second was closed.
    previous: Counters,
    total: PhaseHistograms,
    window_requests: u64,
    /// Latencies and number of the requests due in the newest seconds, which may be incomplete.
    recent_seconds: BTreeMap<u64, (PhaseHistograms, u64)>,
    lag: LatencyHistogram,
    undelayed: LatencyHistogram,
    intervals: Vec<Interval>,
    /// Requests due by the end of each interval.
    due: Vec<u64>,
    /// Requests that were due and had no outcome, at the end of each interval.
    backlog: Vec<u64>,
}

impl Collector {
    pub(crate) fn new(plan: RunPlan, spare_histograms: Vec<mpsc::Sender<Box<HistogramSet>>>) -> Self {
        let cores = plan.threads;
        Self {
            plan,
            spare_histograms,
            latest: vec![Counters::default(); cores],
            delivered: vec![0; cores],
            incomplete_seconds: BTreeMap::new(),
            next_second: 0,
            previous: Counters::default(),
            total: PhaseHistograms::default(),
            window_requests: 0,
            recent_seconds: BTreeMap::new(),
            lag: LatencyHistogram::new(),
            undelayed: LatencyHistogram::new(),
            intervals: Vec::new(),
            due: Vec::new(),
            backlog: Vec::new(),
        }
    }

    pub(crate) fn counters(&self) -> Counters {
        self.latest.iter().fold(Counters::default(), |sum, core| sum.plus(core))
    }

    pub(crate) fn add_snapshot(&mut self, snapshot: CoreSnapshot, observer: &mut dyn RunObserver) {
        self.delivered[snapshot.core] = snapshot.second + 1;
        self.latest[snapshot.core] = snapshot.counters.clone();
        self.incomplete_seconds.entry(snapshot.second).or_default().push(snapshot);
        let complete = self.delivered.iter().copied().min().unwrap_or(0);
        while self.next_second < complete {
            let snapshots = self.incomplete_seconds.remove(&self.next_second).unwrap_or_default();
            let end_s = (self.next_second + 1) as f64;
            self.close_second(snapshots, end_s, 1.0, observer);
            self.next_second += 1;
        }
    }

    /// Closes an interval and passes it to the observer.
    fn close_second(
        &mut self,
        snapshots: Vec<CoreSnapshot>,
        end_s: f64,
        length_s: f64,
        observer: &mut dyn RunObserver,
    ) {
        let (mut latencies, mut lag) = (SecondLatencies::default(), LatencyHistogram::new());
        let sum = self.counters();
        let mut interval = sum.since(&self.previous);
        interval.events = self.plan.is_push().then(|| sum.live.received - self.previous.live.received);
        for snapshot in snapshots {
            interval.connections += snapshot.open_connections;
            interval.in_flight += snapshot.in_flight;
            interval.pending += snapshot.pending;
            let mut histograms = snapshot.histograms;
            latencies.phases.add(&histograms.current);
            latencies.phases.add(&histograms.late);
            latencies.response.add(&histograms.ramp_latency);
            lag.add(&histograms.lag);
            self.undelayed.add(&histograms.undelayed);
            self.total.add(&histograms.late);
            self.window_requests += histograms.due_late;
            let newest = self.recent_seconds.entry(snapshot.second).or_default();
            newest.0.add(&histograms.current);
            newest.1 += histograms.due;
            histograms.clear();
            // A core that has ended needs no book any more.
            let _ = self.spare_histograms[snapshot.core].send(histograms);
        }
        latencies.response.add(&latencies.phases.last_byte.response);
        self.lag.add(&lag);
        interval.time_s = end_s;
        interval.length_s = length_s;
        interval.first_byte_mean_ns = latencies.phases.first_byte.service.mean_ns();
        interval.last_byte_mean_ns = latencies.phases.last_byte.service.mean_ns();
        interval.p50_ns = Some(latencies.response.value_at_quantile(0.5));
        interval.p99_ns = Some(latencies.response.value_at_quantile(0.99));
        interval.max_ns = latencies.response.max_ns();
        interval.lag_p99_ns = Some(lag.value_at_quantile(0.99));
        // A run that ends with a second has an empty rest, which is not shown.
        let has_events = interval.events.is_some_and(|count| count > 0);
        let empty = length_s < 1e-6 && interval.responses == 0 && interval.errors.is_empty() && !has_events;
        if empty {
            self.add_bytes_to_last(&interval);
        } else {
            observer.on_second(&mut interval, &latencies);
            self.due.push(sum.due);
            self.backlog.push(sum.backlog());
            self.intervals.push(interval);
        }
        self.previous = sum;
        // All but the last two seconds are known to be complete.
        while self.recent_seconds.len() > 2 {
            if let Some((_, (phases, due))) = self.recent_seconds.pop_first() {
                self.total.add(&phases);
                self.window_requests += due;
            }
        }
    }

    /// Adds the bytes of an interval that is not shown to the last one: connections are closed after
    /// the end, which HTTP/2 announces to the server.
    fn add_bytes_to_last(&mut self, interval: &Interval) {
        if let Some(last) = self.intervals.last_mut() {
            last.bytes_in += interval.bytes_in;
            last.bytes_out += interval.bytes_out;
        }
    }

    /// Closes the seconds that some cores delivered and others skipped.
    fn close_skipped_seconds(&mut self, observer: &mut dyn RunObserver) {
        for (second, snapshots) in std::mem::take(&mut self.incomplete_seconds) {
            self.close_second(snapshots, (second + 1) as f64, 1.0, observer);
            self.next_second = second + 1;
        }
    }

    /// Adds the newest seconds before `end` to the window. Returns the service latencies of the
    /// rest, and its number of requests without a good response.
    fn split_tail(&mut self, end: u64) -> (LatencyHistogram, u64) {
        let (mut service, mut not_good) = (LatencyHistogram::new(), 0);
        for (second, (phases, due)) in std::mem::take(&mut self.recent_seconds) {
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
        last: Vec<CoreSnapshot>,
        (partial, start_ns): (bool, u64),
        observer: &mut dyn RunObserver,
    ) -> Result<RunMeasurement, RunError> {
        let ended_ns = last.iter().filter_map(|snapshot| snapshot.ended_ns).min().unwrap_or(0);
        let done_ns = last.iter().map(|snapshot| snapshot.done_ns).max().unwrap_or(0);
        let area_ns = last.iter().map(|snapshot| snapshot.area_ns).sum();
        let drained_ns = last.iter().map(|snapshot| snapshot.drain_area_ns).sum();
        let (check_samples, breakdown, live, transport) = sums_of_last(&last);
        let lost_ns = last.iter().map(|snapshot| snapshot.failed_area_ns).sum();
        self.close_skipped_seconds(observer);
        for snapshot in &last {
            self.latest[snapshot.core] = snapshot.counters.clone();
        }
        let counters = self.counters();
        if counters.obtained == 0 {
            let failure = last.into_iter().find_map(|snapshot| snapshot.connect_failure);
            return Err(no_connection_error(&counters, failure));
        }
        let rest_s = (ended_ns.max(done_ns) as f64 / 1e9 - self.next_second as f64).max(0.0);
        self.close_second(last, self.next_second as f64 + rest_s, rest_s, observer);
        let from = self.plan.window_offset_ns() / SECOND_NS;
        let (has_complete_second, window_s) = window_of(from, ended_ns, done_ns);
        let (tail_service, tail_not_good) =
            self.split_tail(if has_complete_second { ended_ns / SECOND_NS } else { u64::MAX });
        let mut measured = RunMeasurement {
            latencies: self.total,
            tail_service,
            tail_not_good,
            lag: self.lag,
            undelayed: self.undelayed,
            counters,
            intervals: self.intervals,
            window_s,
            has_complete_second,
            window_responses: 0,
            window_good: 0,
            window_bytes_in: 0,
            window_due: 0,
            window_requests: self.window_requests,
            backlog: self.backlog,
            area_ns,
            drain_area_ns: drained_ns,
            failed_area_ns: lost_ns,
            load_s: ended_ns as f64 / 1e9,
            partial,
            check_samples,
            breakdown,
            live,
            transport,
            start_ns,
            plan: self.plan,
        };
        measured.mark_window(&self.due);
        Ok(measured)
    }
}

/// Returns true if the window has a complete second, and the window, in s: the complete seconds from `from` on, or else
/// the complete run.
fn window_of(from: u64, ended_ns: u64, done_ns: u64) -> (bool, (f64, f64)) {
    let complete_seconds = ended_ns / SECOND_NS;
    match complete_seconds > from {
        true => (true, (from as f64, complete_seconds as f64)),
        false => (false, (0.0, ended_ns.max(done_ns) as f64 / 1e9)),
    }
}

/// Returns the selected samples, the summed breakdown, the summed latencies of WebSocket and of event streams, and the counts
/// of TCP in user space.
fn sums_of_last(
    last: &[CoreSnapshot],
) -> (Vec<CheckSample>, Breakdown, LiveHistograms, Option<Box<UserTransport>>) {
    let (mut breakdown, mut live) = (Breakdown::default(), LiveHistograms::default());
    last.iter().for_each(|snapshot| breakdown.add(&snapshot.breakdown));
    last.iter().filter_map(|snapshot| snapshot.live.as_deref()).for_each(|core| live.add(core));
    let samples = CheckSample::select(last.iter().flat_map(|snapshot| &snapshot.check_samples));
    let transports = last.iter().filter_map(|snapshot| snapshot.transport.clone());
    let transport = transports.reduce(|mut sum, core| {
        sum.add(&core);
        sum
    });
    (samples, breakdown, live, transport)
}

fn no_connection_error(counters: &Counters, failure: Option<(FailureKind, String)>) -> RunError {
    let attempts = format!("{} failed", format_plural(counters.connect_failed, "attempt"));
    if let Some((kind, text)) = failure {
        return RunError::NoConnection { kind, text: format!("cannot connect to {text}; {attempts}") };
    }
    let most_frequent = counters.errors.iter().enumerate().max_by_key(|(_, count)| **count);
    let index = most_frequent.map_or(FailureKind::Other as usize, |(index, _)| index);
    let (kind, _, meaning) = FAILURE_KINDS[index];
    RunError::NoConnection { kind, text: format!("cannot connect: {attempts} ({meaning})") }
}
