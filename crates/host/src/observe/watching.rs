//! The thread that watches: it looks when it is time, keeps what it saw, and answers who asks.
//!
//! Not for what a look is. It shares nothing: questions come as messages, so that nobody who asks
//! holds it up and nobody waits for a look longer than one takes.

use super::history::{History, MAX_KEPT};
use super::{Observer, Spec};
use record::observed::{Missing, Observed, QueueSnapshot, Sample};
use rustix::time::{ClockId, clock_gettime};
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
        if now_ns >= self.next_sample_ns {
            self.take_sample(now_ns);
            self.next_sample_ns = next(self.next_sample_ns, self.sample_ns, now_ns);
        }
        if now_ns >= self.next_queues_ns {
            let now_ns = (self.clock)();
            let snapshot = self.observer.queues(now_ns);
            self.queues.offer(snapshot);
            self.next_queues_ns = next(self.next_queues_ns, self.queue_ns, now_ns);
        }
    }

    fn take_sample(&mut self, now_ns: u64) {
        if let Some(sample) = self.observer.sample(now_ns) {
            self.samples.offer(sample);
        }
        self.last_sample_ns = now_ns;
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
        let mut observed = Observed { cost_cpus, ..self.observer.describe() };
        let (samples, samples_every) = self.samples.into_kept();
        let (queues, queues_every) = self.queues.into_kept();
        observed.samples = samples;
        observed.queues = queues;
        for (what, every) in [("every sample", samples_every), ("every snapshot", queues_every)] {
            if every > 1 {
                let why = format!("one of {every} was kept: no more than {MAX_KEPT} are");
                observed.not_observable.push(Missing { what: what.to_owned(), why });
            }
        }
        let shift_s = (zero_ns as f64 - self.started_ns as f64) / 1e9;
        observed.samples.iter_mut().for_each(|sample| sample.time_s -= shift_s);
        observed.queues.iter_mut().for_each(|snapshot| snapshot.time_s -= shift_s);
        observed
    }

    /// Processor time of this thread and of the canaries since the first look, as a share of one core.
    fn cost_cpus(&self) -> f64 {
        let used_ns = thread_cpu_ns() + self.observer.canaries_cost_ns();
        let passed_ns = (self.clock)().saturating_sub(self.started_ns).max(1);
        used_ns.saturating_sub(self.cost_before_ns) as f64 / passed_ns as f64
    }
}

/// The next time of a grid that is after `now_ns`: looks that were missed are left out.
fn next(due_ns: u64, every_ns: u64, now_ns: u64) -> u64 {
    due_ns + every_ns * (now_ns.saturating_sub(due_ns) / every_ns + 1)
}

/// Processor time of the calling thread, in nanoseconds.
fn thread_cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}

/// The least time between two looks.
const LEAST_NS: u64 = 10_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_stay_on_their_grid() {
        assert_eq!(next(100, 10, 100), 110);
        assert_eq!(next(100, 10, 109), 110);
        assert_eq!(next(100, 10, 135), 140);
    }
}
