//! The thread that watches: it looks when it is time, keeps what it saw, and answers who asks.
//!
//! Not for what a look is. It shares nothing: questions come as messages, so that nobody who asks
//! holds it up and nobody waits for a look longer than one takes.

use super::history::{History, MAX_KEPT};
use super::{Observer, Spec};
use crate::cpu::thread_cpu_ns;
use record::observed::{Missing, Observed, QueueSnapshot, Sample};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// Samples that a live view gets.
const RECENT_SAMPLES: usize = 60;
/// Snapshots of the sockets that a live view gets.
const RECENT_QUEUES: usize = 60;

/// A watch that is under way. Dropped, it ends, and what it saw is gone.
#[derive(Debug)]
pub struct Watching {
    thread: Result<Running, String>,
}

#[derive(Debug)]
struct Running {
    questions: Sender<Question>,
    thread: JoinHandle<()>,
}

#[derive(Debug)]
enum Question {
    /// The last few looks.
    Latest(Sender<Observed>),
    /// Everything, with times from this moment on; the thread ends.
    Finish(u64, Sender<Observed>),
}

impl Watching {
    /// Starts to watch. Returns after the first look, so that what follows is seen from its start.
    /// `clock` gives nanoseconds of `CLOCK_MONOTONIC`.
    #[must_use]
    pub fn start(spec: Spec, clock: fn() -> u64) -> Self {
        let (questions, asked) = channel();
        let (ready, is_ready) = channel();
        let watch = move || {
            let watcher = Watcher::new(&spec, clock);
            // Who started this may be gone already; then the next line ends it.
            let _ = ready.send(());
            watcher.run(&asked);
        };
        let thread = std::thread::Builder::new().name("observe".to_owned()).spawn(watch);
        let thread = thread.map_err(|error| format!("no thread could be made: {error}"));
        if thread.is_ok() {
            // An error means that the thread failed; each later answer says so.
            let _ = is_ready.recv();
        }
        Self { thread: thread.map(|thread| Running { questions, thread }) }
    }

    /// The last minute at most, with times in seconds since the start of the watch, and what it costs
    /// so far. `started_at` is for the caller to fill. `None` when the thread is not there.
    #[must_use]
    pub fn latest(&self) -> Option<Observed> {
        self.ask(Question::Latest)
    }

    /// Ends the watch, and gives everything that was seen. Times count from `zero_ns` of the same
    /// clock: what was seen before it has negative ones. `started_at` is for the caller to fill.
    #[must_use]
    pub fn finish(self, zero_ns: u64) -> Observed {
        let observed = self.ask(|answer| Question::Finish(zero_ns, answer));
        let why = match self.thread {
            Ok(running) => match running.thread.join() {
                Ok(()) => "its thread has ended".to_owned(),
                Err(_) => "its thread failed".to_owned(),
            },
            Err(why) => why,
        };
        observed.unwrap_or_else(|| Observed {
            not_observable: vec![Missing { what: "everything that is watched".to_owned(), why }],
            ..Observed::default()
        })
    }

    fn ask(&self, question: impl FnOnce(Sender<Observed>) -> Question) -> Option<Observed> {
        let (answer, answered) = channel();
        self.thread.as_ref().ok()?.questions.send(question(answer)).ok()?;
        answered.recv().ok()
    }
}

/// What the thread has.
struct Watcher {
    observer: Observer,
    clock: fn() -> u64,
    sample_ns: u64,
    queue_ns: u64,
    started_ns: u64,
    last_sample_ns: u64,
    next_sample_ns: u64,
    next_queues_ns: u64,
    purse: Purse,
    cost_before_ns: u64,
    samples: History<Sample>,
    queues: History<QueueSnapshot>,
}

impl Watcher {
    fn new(spec: &Spec, clock: fn() -> u64) -> Self {
        let mut observer = Observer::new(spec, clock);
        let now_ns = clock();
        observer.sample(now_ns);
        let (sample_ns, queue_ns) = (spec.sample_ns.max(LEAST_NS), spec.queue_ns.max(LEAST_NS));
        Self {
            cost_before_ns: thread_cpu_ns() + observer.canaries_cost_ns(),
            observer,
            clock,
            sample_ns,
            queue_ns,
            started_ns: now_ns,
            last_sample_ns: now_ns,
            next_sample_ns: now_ns + sample_ns,
            next_queues_ns: now_ns + queue_ns,
            purse: Purse::new(now_ns),
            samples: History::new(RECENT_SAMPLES),
            queues: History::new(RECENT_QUEUES),
        }
    }

    fn run(mut self, asked: &Receiver<Question>) {
        loop {
            let now_ns = (self.clock)();
            let due_ns = self.next_sample_ns.min(self.next_queues_ns);
            if now_ns >= due_ns {
                self.look(now_ns);
                continue;
            }
            match asked.recv_timeout(Duration::from_nanos(due_ns - now_ns)) {
                Ok(Question::Latest(answer)) => {
                    let _ = answer.send(self.latest());
                }
                Ok(Question::Finish(zero_ns, answer)) => {
                    let _ = answer.send(self.finish(zero_ns));
                    return;
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn look(&mut self, now_ns: u64) {
        self.observer.ends(now_ns);
        if now_ns >= self.next_sample_ns {
            self.take_sample(now_ns);
            self.next_sample_ns = next(self.next_sample_ns, self.sample_ns, now_ns);
        }
        if now_ns >= self.next_queues_ns {
            let (now_ns, before_ns) = ((self.clock)(), thread_cpu_ns());
            if self.purse.allows(now_ns) {
                let snapshot = self.observer.queues(now_ns);
                self.queues.offer(snapshot);
                self.purse.pay(thread_cpu_ns() - before_ns);
            }
            self.next_queues_ns = next(self.next_queues_ns, self.queue_ns, now_ns);
        }
    }

    fn take_sample(&mut self, now_ns: u64) {
        if let Some(sample) = self.observer.sample(now_ns) {
            self.samples.offer(sample);
        }
        self.credit_late();
        self.last_sample_ns = now_ns;
    }

    /// Takes what roles used before they were found from the foreign CPU time of the samples so far, from
    /// each in proportion: in which of them it was used is not known.
    fn credit_late(&mut self) {
        let late_s = self.observer.take_late_cpu_s();
        if late_s > 0.0 {
            credit(&mut self.samples, late_s);
        }
    }

    fn latest(&self) -> Observed {
        Observed {
            samples: self.samples.recent(),
            queues: self.queues.recent(),
            cost_cpus: self.cost_cpus(),
            ..self.observer.describe()
        }
    }

    fn finish(mut self, zero_ns: u64) -> Observed {
        let cost_cpus = self.cost_cpus();
        let now_ns = (self.clock)();
        // The rest of the last second counts when it is long enough for figures made of ticks.
        if now_ns.saturating_sub(self.last_sample_ns) >= self.sample_ns / 2 {
            self.take_sample(now_ns);
        }
        self.credit_late();
        self.observer.ends(now_ns);
        let mut observed = Observed { cost_cpus, ..self.observer.describe() };
        let (samples, samples_every) = self.samples.into_kept();
        let (queues, queues_every) = self.queues.into_kept();
        observed.samples = samples;
        observed.queues = queues;
        for (what, every) in
            [("every sample", samples_every), ("every look at the sockets", queues_every)]
        {
            if every > 1 {
                let why = format!("one of {every} was kept: no more than {MAX_KEPT} are");
                observed.not_observable.push(Missing { what: what.to_owned(), why });
            }
        }
        if self.purse.skipped > 0 {
            let (skipped, taken) = (self.purse.skipped, observed.queues.len());
            let why = format!(
                "{skipped} of {} were left out: they take too much processor time here",
                skipped + taken as u64
            );
            let what = "every snapshot of the sockets".to_owned();
            observed.not_observable.push(Missing { what, why });
        }
        let shift_s = (zero_ns as f64 - self.observer.zero_ns as f64) / 1e9;
        observed.samples.iter_mut().for_each(|sample| sample.time_s -= shift_s);
        observed.queues.iter_mut().for_each(|snapshot| snapshot.time_s -= shift_s);
        observed.ended.iter_mut().for_each(|ended| ended.time_s -= shift_s);
        observed
    }

    /// Processor time of this thread and of the canaries since the first look, as a share of one core.
    fn cost_cpus(&self) -> f64 {
        let used_ns = thread_cpu_ns() + self.observer.canaries_cost_ns();
        let passed_ns = (self.clock)().saturating_sub(self.started_ns).max(1);
        used_ns.saturating_sub(self.cost_before_ns) as f64 / passed_ns as f64
    }
}

/// Takes `late_s` seconds of CPU time from the foreign CPU time of all samples, at most all of it.
fn credit(samples: &mut History<Sample>, late_s: f64) {
    let foreign_s: f64 = samples.kept().iter().map(foreign_s).sum();
    let left = 1.0 - late_s / (foreign_s * samples.every() as f64).max(late_s);
    samples.each(|sample| sample.foreign_cpus = sample.foreign_cpus.map(|cpus| cpus * left));
}

fn foreign_s(sample: &Sample) -> f64 {
    sample.foreign_cpus.unwrap_or(0.0) * sample.length_s
}

/// The next time of a grid that is after `now_ns`: looks that were missed are left out.
fn next(due_ns: u64, every_ns: u64, now_ns: u64) -> u64 {
    due_ns + every_ns * (now_ns.saturating_sub(due_ns) / every_ns + 1)
}

/// Processor time that snapshots of the sockets may take: [`SNAPSHOT_SHARE`] of what passes, and
/// [`SNAPSHOT_CREDIT_NS`] to begin with, so that a run of seconds has enough of them. With many
/// sockets, or a large table of them, there are fewer then than was asked for.
#[derive(Debug)]
struct Purse {
    left_ns: i64,
    paid_at_ns: u64,
    /// Snapshots that were due and not taken.
    skipped: u64,
}

impl Purse {
    fn new(now_ns: u64) -> Self {
        Self { left_ns: SNAPSHOT_CREDIT_NS, paid_at_ns: now_ns, skipped: 0 }
    }

    /// Whether there is something left now.
    fn allows(&mut self, now_ns: u64) -> bool {
        let passed_ns = now_ns.saturating_sub(self.paid_at_ns);
        let earned_ns = i64::try_from(passed_ns / SNAPSHOT_SHARE).unwrap_or(SNAPSHOT_CREDIT_NS);
        self.left_ns = self.left_ns.saturating_add(earned_ns).min(SNAPSHOT_CREDIT_NS);
        // What is less than a nanosecond stays to be earned.
        self.paid_at_ns += passed_ns - passed_ns % SNAPSHOT_SHARE;
        let allowed = self.left_ns > 0;
        self.skipped += u64::from(!allowed);
        allowed
    }

    fn pay(&mut self, cost_ns: u64) {
        self.left_ns = self.left_ns.saturating_sub(i64::try_from(cost_ns).unwrap_or(i64::MAX));
    }
}

/// Snapshots of the sockets take one part in so many of a core in the long run: with the canaries and
/// the rest, watching stays below one in a hundred.
const SNAPSHOT_SHARE: u64 = 300;
/// What they may take at once, in nanoseconds; a snapshot takes 1 to 5 milliseconds.
const SNAPSHOT_CREDIT_NS: i64 = 60_000_000;
/// The least time between two looks.
const LEAST_NS: u64 = 10_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_late_role_used_is_taken_from_the_foreign_time() {
        let sample =
            |foreign_cpus, length_s| Sample { foreign_cpus, length_s, ..Sample::default() };
        let samples = |late_s| {
            let mut history = History::new(1);
            history.offer(sample(Some(1.0), 1.0));
            history.offer(sample(None, 1.0));
            history.offer(sample(Some(0.5), 2.0));
            credit(&mut history, late_s);
            let recent = history.recent()[0].foreign_cpus;
            let kept: Vec<_> = history.into_kept().0.iter().map(|one| one.foreign_cpus).collect();
            assert_eq!(recent, kept[2]);
            kept
        };
        assert_eq!(samples(0.5), [Some(0.75), None, Some(0.375)]);
        assert_eq!(samples(9.0), [Some(0.0), None, Some(0.0)]);
    }

    #[test]
    fn looks_stay_on_their_grid() {
        assert_eq!(next(100, 10, 100), 110);
        assert_eq!(next(100, 10, 109), 110);
        assert_eq!(next(100, 10, 135), 140);
    }

    #[test]
    fn a_short_run_has_its_snapshots_and_a_long_one_stays_cheap() {
        const MS: u64 = 1_000_000;
        let taken = |cost_ns: u64, seconds: u64| {
            let mut purse = Purse::new(0);
            let due = (1..=seconds * 5).filter(|tick| {
                let allowed = purse.allows(tick * 200 * MS);
                if allowed {
                    purse.pay(cost_ns);
                }
                allowed
            });
            let taken = due.count() as u64;
            assert_eq!(purse.skipped, seconds * 5 - taken);
            taken
        };
        // Cheap ones are all taken.
        assert_eq!(taken(MS / 2, 600), 3000);
        assert_eq!(taken(3 * MS, 4), 20);
        // In the long run it is the share, 2 s of 600 s, and the credit.
        assert!((514..=516).contains(&taken(4 * MS, 600)));
        assert!(taken(1000 * MS, 600) <= 4);
    }
}
