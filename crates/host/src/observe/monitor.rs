//! The monitoring thread: it samples when due, keeps the samples, and serves requests.
//!
//! [`super::Observer`] takes the samples. The thread shares nothing: requests come as messages. So
//! no caller holds it up, and no caller waits longer than one sample takes.

use super::history::{MAX_RETAINED, SampleHistory};
use super::{MonitorSpec, Observer, SUBJECT};
use crate::cpu::thread_cpu_ns;
use record::observed::{MachineObservation, MachineSample, QueueSnapshot, ThreadCpuUse, UnobservableMetric};
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// Maximum number of samples in a live view.
const RECENT_SAMPLES: usize = 60;
/// Maximum number of socket snapshots in a live view.
const RECENT_QUEUES: usize = 60;

/// Monitoring in progress. Dropping it ends the thread and discards the samples.
#[derive(Debug)]
pub struct Monitor {
    thread: io::Result<MonitorThread>,
}

#[derive(Debug)]
struct MonitorThread {
    requests_tx: Sender<MonitorRequest>,
    thread: JoinHandle<()>,
}

#[derive(Debug)]
enum MonitorRequest {
    /// Returns the last few samples.
    Latest(Sender<MachineObservation>),
    /// Discards the samples so far, and replies after the first new one.
    Restart(Sender<()>),
    /// Returns everything, with times from this moment on; the thread ends.
    Finish(u64, Sender<MachineObservation>),
}

/// Maximum number of threads that are kept from before the load.
const BASELINE_THREADS_MAX: usize = 8;

impl Monitor {
    /// Starts monitoring. Returns after the first sample, so that whatever follows is covered from
    /// its start. `clock` returns nanoseconds of `CLOCK_MONOTONIC`.
    #[must_use]
    pub fn start(spec: MonitorSpec, clock: fn() -> u64) -> Self {
        let (requests_tx, requests_rx) = channel();
        let (ready_tx, ready_rx) = channel();
        let body = move || {
            let sampling_loop = SamplingLoop::new(&spec, clock);
            // The caller may be gone already; then `run` ends at once.
            let _ = ready_tx.send(());
            sampling_loop.run(&requests_rx);
        };
        let thread = std::thread::Builder::new().name("weir-monitor".to_owned()).spawn(body);
        if thread.is_ok() {
            // An error means that the thread failed; each later request reports it.
            let _ = ready_rx.recv();
        }
        Self { thread: thread.map(|thread| MonitorThread { requests_tx, thread }) }
    }

    /// Returns the last minute at most, with times in seconds since the start of monitoring, and
    /// the cost so far. The caller sets `started_at`. `None` if the thread does not exist.
    pub fn latest(&self) -> Option<MachineObservation> {
        self.request(MonitorRequest::Latest)
    }

    /// Discards the samples and starts again, keeping the discovered origins of the subject.
    /// Returns after the first new sample.
    pub fn restart(&self) {
        let (done_tx, done_rx) = channel();
        if let Ok(running) = &self.thread
            && running.requests_tx.send(MonitorRequest::Restart(done_tx)).is_ok()
        {
            // An error means that the thread failed; each later request reports it.
            let _ = done_rx.recv();
        }
    }

    /// Ends monitoring and returns all samples. Times count from `zero_ns` of the same clock;
    /// earlier samples have negative times. The caller sets `started_at`.
    #[must_use]
    pub fn finish(self, zero_ns: u64) -> MachineObservation {
        let observed = self.request(|reply_tx| MonitorRequest::Finish(zero_ns, reply_tx));
        let reason = match self.thread {
            Ok(running) => match running.thread.join() {
                Ok(()) => "the monitor thread has ended".to_owned(),
                Err(_) => "the monitor thread panicked".to_owned(),
            },
            Err(error) => format!("cannot start the monitor thread: {error}"),
        };
        observed.unwrap_or_else(|| MachineObservation {
            not_observable: vec![UnobservableMetric { figure: "all metrics".to_owned(), reason }],
            ..MachineObservation::default()
        })
    }

    fn request(
        &self,
        make_request: impl FnOnce(Sender<MachineObservation>) -> MonitorRequest,
    ) -> Option<MachineObservation> {
        let (reply_tx, reply_rx) = channel();
        self.thread.as_ref().ok()?.requests_tx.send(make_request(reply_tx)).ok()?;
        reply_rx.recv().ok()
    }
}

/// State of the monitoring thread.
struct SamplingLoop {
    observer: Observer,
    clock: fn() -> u64,
    sample_ns: u64,
    queue_ns: u64,
    started_ns: u64,
    last_sample_ns: u64,
    next_sample_ns: u64,
    next_queues_ns: u64,
    next_poll_ns: u64,
    snapshot_budget: TimeBudget,
    poll_budget: TimeBudget,
    cost_before_ns: u64,
    /// Busiest threads of the subject in the samples that a restart discarded.
    baseline_threads: Vec<ThreadCpuUse>,
    samples: SampleHistory<MachineSample>,
    queues: SampleHistory<QueueSnapshot>,
}

impl SamplingLoop {
    fn new(spec: &MonitorSpec, clock: fn() -> u64) -> Self {
        let mut observer = Observer::new(spec, clock);
        let now_ns = clock();
        observer.sample(now_ns);
        let (sample_ns, queue_ns) = (spec.sample_ns.max(MIN_INTERVAL_NS), spec.queue_ns.max(MIN_INTERVAL_NS));
        Self {
            cost_before_ns: thread_cpu_ns() + observer.wakeup_probes_cost_ns(),
            observer,
            clock,
            sample_ns,
            queue_ns,
            started_ns: now_ns,
            last_sample_ns: now_ns,
            next_sample_ns: now_ns + sample_ns,
            next_queues_ns: now_ns + queue_ns,
            next_poll_ns: now_ns + POLL_INTERVAL_NS,
            snapshot_budget: TimeBudget::new(SNAPSHOT_CREDIT_NS, now_ns),
            poll_budget: TimeBudget::new(POLL_CREDIT_NS, now_ns),
            baseline_threads: Vec::new(),
            samples: SampleHistory::new(RECENT_SAMPLES),
            queues: SampleHistory::new(RECENT_QUEUES),
        }
    }

    fn run(mut self, requests_rx: &Receiver<MonitorRequest>) {
        loop {
            let now_ns = (self.clock)();
            let due_ns = self.next_sample_ns.min(self.next_queues_ns).min(self.next_poll_ns);
            if now_ns >= due_ns {
                self.sample_if_due(now_ns);
                continue;
            }
            match requests_rx.recv_timeout(Duration::from_nanos(due_ns - now_ns)) {
                Ok(MonitorRequest::Latest(reply_tx)) => {
                    let _ = reply_tx.send(self.latest());
                }
                Ok(MonitorRequest::Restart(done_tx)) => {
                    self.restart();
                    let _ = done_tx.send(());
                }
                Ok(MonitorRequest::Finish(zero_ns, reply_tx)) => {
                    let _ = reply_tx.send(self.finish(zero_ns));
                    return;
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn sample_if_due(&mut self, now_ns: u64) {
        self.observer.poll_exits(now_ns);
        if now_ns >= self.next_sample_ns {
            self.take_sample(now_ns);
            self.next_sample_ns = next_due_ns(self.next_sample_ns, self.sample_ns, now_ns);
        }
        if now_ns >= self.next_queues_ns {
            let (now_ns, before_ns) = ((self.clock)(), thread_cpu_ns());
            if self.snapshot_budget.allows(now_ns) {
                let snapshot = self.observer.snapshot_queues(now_ns);
                self.queues.push(snapshot);
                self.snapshot_budget.charge(thread_cpu_ns() - before_ns);
            }
            self.next_queues_ns = next_due_ns(self.next_queues_ns, self.queue_ns, now_ns);
        }
        if now_ns >= self.next_poll_ns {
            let before_ns = thread_cpu_ns();
            if self.poll_budget.allows(now_ns) {
                self.observer.poll_sleeps();
                self.poll_budget.charge(thread_cpu_ns() - before_ns);
            }
            self.next_poll_ns = next_due_ns(self.next_poll_ns, POLL_INTERVAL_NS, now_ns);
        }
    }

    fn restart(&mut self) {
        let now_ns = (self.clock)();
        self.observer.sample(now_ns).into_iter().for_each(|sample| self.samples.push(sample));
        self.baseline_threads = self.busiest_subject_threads();
        // Nothing recorded so far can be credited with the time of late roles.
        self.observer.take_late_cpu_s();
        self.cost_before_ns = thread_cpu_ns() + self.observer.wakeup_probes_cost_ns();
        (self.started_ns, self.last_sample_ns) = (now_ns, now_ns);
        (self.next_sample_ns, self.next_queues_ns) = (now_ns + self.sample_ns, now_ns + self.queue_ns);
        self.next_poll_ns = now_ns + POLL_INTERVAL_NS;
        self.snapshot_budget = TimeBudget::new(SNAPSHOT_CREDIT_NS, now_ns);
        self.poll_budget = TimeBudget::new(POLL_CREDIT_NS, now_ns);
        self.samples = SampleHistory::new(RECENT_SAMPLES);
        self.queues = SampleHistory::new(RECENT_QUEUES);
    }

    fn busiest_subject_threads(&self) -> Vec<ThreadCpuUse> {
        let longest = self.samples.retained().iter().max_by(|a, b| a.length_s.total_cmp(&b.length_s));
        let index = self.observer.role_index(SUBJECT);
        let subject = longest.zip(index).and_then(|(sample, index)| sample.roles.get(index));
        subject
            .map_or_else(Vec::new, |role| role.threads.iter().take(BASELINE_THREADS_MAX).cloned().collect())
    }

    fn take_sample(&mut self, now_ns: u64) {
        if let Some(sample) = self.observer.sample(now_ns) {
            self.samples.push(sample);
        }
        self.credit_late_cpu();
        self.last_sample_ns = now_ns;
    }

    /// Subtracts the CPU time that roles used before their discovery from the foreign CPU time of
    /// the samples so far. Each sample gives a proportional part, because the time of use is
    /// unknown.
    fn credit_late_cpu(&mut self) {
        let late_s = self.observer.take_late_cpu_s();
        if late_s > 0.0 {
            subtract_foreign_cpu(&mut self.samples, late_s);
        }
    }

    fn latest(&self) -> MachineObservation {
        MachineObservation {
            samples: self.samples.recent(),
            queues: self.queues.recent(),
            cost_cpus: self.cost_cpus(),
            neighbours: self.observer.recent_neighbours(),
            ..self.observer.describe()
        }
    }

    fn finish(mut self, zero_ns: u64) -> MachineObservation {
        let cost_cpus = self.cost_cpus();
        let now_ns = (self.clock)();
        // The rest of the last second counts if it is long enough for figures made of ticks.
        if now_ns.saturating_sub(self.last_sample_ns) >= self.sample_ns / 2 {
            self.take_sample(now_ns);
        }
        self.credit_late_cpu();
        self.observer.poll_exits(now_ns);
        let baseline_threads = std::mem::take(&mut self.baseline_threads);
        let mut observed = MachineObservation { cost_cpus, baseline_threads, ..self.observer.describe() };
        let (samples, sample_decimation) = self.samples.into_retained();
        let (queues, queue_decimation) = self.queues.into_retained();
        observed.samples = samples;
        observed.queues = queues;
        for (figure, decimation) in
            [("every sample", sample_decimation), ("every socket snapshot", queue_decimation)]
        {
            if decimation > 1 {
                let reason = format!("one in {decimation} was kept: the maximum is {MAX_RETAINED}");
                observed.not_observable.push(UnobservableMetric { figure: figure.to_owned(), reason });
            }
        }
        for (figure, budget) in
            [("every socket snapshot", &self.snapshot_budget), ("every poll of threads", &self.poll_budget)]
        {
            if budget.skipped > 0 {
                let TimeBudget { skipped, allowed, .. } = budget;
                let reason = format!(
                    "{skipped} of {} were skipped: they use too much CPU time on this machine",
                    skipped + allowed
                );
                observed.not_observable.push(UnobservableMetric { figure: figure.to_owned(), reason });
            }
        }
        let shift_s = (zero_ns as f64 - self.observer.zero_ns as f64) / 1e9;
        observed.samples.iter_mut().for_each(|sample| sample.time_s -= shift_s);
        observed.queues.iter_mut().for_each(|snapshot| snapshot.time_s -= shift_s);
        observed.ended.iter_mut().for_each(|ended| ended.time_s -= shift_s);
        observed
    }

    /// Returns the CPU time of this thread and of the wakeup probes since the first sample, as a
    /// fraction of one core.
    fn cost_cpus(&self) -> f64 {
        let used_ns = thread_cpu_ns() + self.observer.wakeup_probes_cost_ns();
        let passed_ns = (self.clock)().saturating_sub(self.started_ns).max(1);
        used_ns.saturating_sub(self.cost_before_ns) as f64 / passed_ns as f64
    }
}

/// Subtracts `late_s` seconds from the foreign CPU time of all samples, at most all of it.
fn subtract_foreign_cpu(samples: &mut SampleHistory<MachineSample>, late_s: f64) {
    let foreign_s: f64 = samples.retained().iter().map(foreign_s).sum();
    let remaining_fraction = 1.0 - late_s / (foreign_s * samples.decimation() as f64).max(late_s);
    samples.for_each_mut(|sample| {
        sample.foreign_cpus = sample.foreign_cpus.map(|cpus| cpus * remaining_fraction)
    });
}

fn foreign_s(sample: &MachineSample) -> f64 {
    sample.foreign_cpus.unwrap_or(0.0) * sample.length_s
}

/// Returns the next time of a grid after `now_ns`; missed times are skipped.
fn next_due_ns(due_ns: u64, interval_ns: u64, now_ns: u64) -> u64 {
    due_ns + interval_ns * (now_ns.saturating_sub(due_ns) / interval_ns + 1)
}

/// CPU time budget of the socket snapshots, and of the polls of threads: 1 / [`SNAPSHOT_COST_DIVISOR`] of the
/// elapsed time, plus an initial credit, so that a run of seconds has enough of them. With many
/// sockets, a large socket table or many threads, there are fewer than requested.
#[derive(Debug)]
struct TimeBudget {
    credit_ns: i64,
    remaining_ns: i64,
    refilled_at_ns: u64,
    /// Number of polls that were due and not taken.
    skipped: u64,
    /// Number of polls that were taken.
    allowed: u64,
}

impl TimeBudget {
    fn new(credit_ns: i64, now_ns: u64) -> Self {
        Self { credit_ns, remaining_ns: credit_ns, refilled_at_ns: now_ns, skipped: 0, allowed: 0 }
    }

    fn allows(&mut self, now_ns: u64) -> bool {
        let elapsed_ns = now_ns.saturating_sub(self.refilled_at_ns);
        let earned_ns = i64::try_from(elapsed_ns / SNAPSHOT_COST_DIVISOR).unwrap_or(self.credit_ns);
        self.remaining_ns = self.remaining_ns.saturating_add(earned_ns).min(self.credit_ns);
        // A remainder below one nanosecond of budget is kept for the next call.
        self.refilled_at_ns += elapsed_ns - elapsed_ns % SNAPSHOT_COST_DIVISOR;
        let allowed = self.remaining_ns > 0;
        self.skipped += u64::from(!allowed);
        self.allowed += u64::from(allowed);
        allowed
    }

    fn charge(&mut self, cost_ns: u64) {
        self.remaining_ns = self.remaining_ns.saturating_sub(i64::try_from(cost_ns).unwrap_or(i64::MAX));
    }
}

/// Interval of the polls of threads. A poll reads two small files per thread.
const POLL_INTERVAL_NS: u64 = 50_000_000;
/// Snapshots take at most one part in this many of a core in the long run. With the probes and
/// the rest, monitoring stays below one in a hundred.
const SNAPSHOT_COST_DIVISOR: u64 = 300;
/// Initial budget of the snapshots, in nanoseconds; a snapshot takes 1 to 5 milliseconds.
const SNAPSHOT_CREDIT_NS: i64 = 60_000_000;
/// Initial budget of the polls of threads, in nanoseconds; a poll takes 10 to 500 microseconds.
const POLL_CREDIT_NS: i64 = 15_000_000;
/// Minimum time between two samples.
const MIN_INTERVAL_NS: u64 = 10_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_of_a_late_role_is_subtracted_from_the_foreign_time() {
        let sample =
            |foreign_cpus, length_s| MachineSample { foreign_cpus, length_s, ..MachineSample::default() };
        let samples = |late_s| {
            let mut history = SampleHistory::new(1);
            history.push(sample(Some(1.0), 1.0));
            history.push(sample(None, 1.0));
            history.push(sample(Some(0.5), 2.0));
            subtract_foreign_cpu(&mut history, late_s);
            let recent = history.recent()[0].foreign_cpus;
            let foreign_cpus_of: Vec<_> =
                history.into_retained().0.iter().map(|sample| sample.foreign_cpus).collect();
            assert_eq!(recent, foreign_cpus_of[2]);
            foreign_cpus_of
        };
        assert_eq!(samples(0.5), [Some(0.75), None, Some(0.375)]);
        assert_eq!(samples(9.0), [Some(0.0), None, Some(0.0)]);
    }

    #[test]
    fn samples_stay_on_their_grid() {
        assert_eq!(next_due_ns(100, 10, 100), 110);
        assert_eq!(next_due_ns(100, 10, 109), 110);
        assert_eq!(next_due_ns(100, 10, 135), 140);
    }

    #[test]
    fn a_short_run_has_its_snapshots_and_a_long_one_stays_cheap() {
        const MS: u64 = 1_000_000;
        let taken = |cost_ns: u64, seconds: u64| {
            let mut budget = TimeBudget::new(SNAPSHOT_CREDIT_NS, 0);
            let due = (1..=seconds * 5).filter(|tick| {
                let allowed = budget.allows(tick * 200 * MS);
                if allowed {
                    budget.charge(cost_ns);
                }
                allowed
            });
            let taken = due.count() as u64;
            assert_eq!(budget.skipped, seconds * 5 - taken);
            taken
        };
        // Cheap snapshots are all taken.
        assert_eq!(taken(MS / 2, 600), 3000);
        assert_eq!(taken(3 * MS, 4), 20);
        // In the long run the budget is the fraction, 2 s of 600 s, and the credit.
        assert!((514..=516).contains(&taken(4 * MS, 600)));
        assert!(taken(1000 * MS, 600) <= 4);
    }
}
