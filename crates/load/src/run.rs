//! Runs a plan: starts the cores, collects what they saw each second, and ends in one value.
//!
//! The collector runs in the calling thread. Cores never wait for it; it adds their histograms
//! while they go on.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use record::histogram::Latencies;
use record::run::Interval;
use record::units::{MILLISECOND_NS, SECOND_NS};
use rt::address::Address;
use rt::clock::now_ns;
use rt::cores::{CoreFailure, Cores, Running, Table};
use rt::drain::{DrainWatch, Stage};
use rt::tokio::sync::watch;

use crate::collector::Collector;
use crate::core::{self, Event, Shared, Start};
use crate::desk::Quota;
use crate::failure::Kind;
use crate::plan::Plan;
use crate::recorder::{Book, Counters, Phases, Snapshot};

/// Name of the threads that drive load: `load-0`, `load-1`…
pub const THREAD_NAME: &str = "load";

/// What a run tells while it goes.
pub trait Observer {
    /// The cores are up and connected; the load starts at `start_ns` of the clock.
    fn started(&mut self, start_ns: u64);
    /// The measured window begins now.
    fn window_begins(&mut self);
    /// The load has ended now; what is in flight is drained.
    fn load_ended(&mut self);
    /// A second is over. The observer may fill in what the engine does not know.
    fn second(&mut self, interval: &mut Interval, latencies: &SecondLatencies);
}

/// The latencies of what completed in one second.
#[derive(Clone, Debug, Default)]
pub struct SecondLatencies {
    /// By phase; the ramp is not in it.
    pub phases: Phases,
    /// Response latency, last byte, of all requests.
    pub response: Latencies,
}

/// What a run saw, over all cores.
#[derive(Clone, Debug)]
pub struct Measured {
    /// The plan that was run.
    pub plan: Plan,
    /// Latencies of the requests that were due in the window.
    pub latencies: Phases,
    /// Service latency of the good responses to requests due after the window: the partial second.
    pub tail_service: Latencies,
    /// Requests due after the window that had no good response.
    pub tail_not_good: u64,
    /// The generator's own lag.
    pub lag: Latencies,
    /// Counts over the whole run.
    pub counters: Counters,
    /// One entry a second; the last may be shorter or the drain.
    pub intervals: Vec<Interval>,
    /// The window, in s after the start; without whole seconds all of the run, with its ramp.
    pub window_s: (f64, f64),
    /// Whether the window has at least one whole second.
    pub whole_seconds: bool,
    /// Complete responses in the window.
    pub window_responses: u64,
    /// Good responses in the window.
    pub window_good: u64,
    /// Bytes received in the window.
    pub window_bytes_in: u64,
    /// Requests that became due in the window; open loop only.
    pub window_due: u64,
    /// The same by their due times, without the ramp: the requests that percentiles are about.
    pub window_requests: u64,
    /// Requests that were due and had no outcome yet, at the end of each interval.
    pub backlog: Vec<u64>,
    /// Requests in flight, integrated from the start of the window to the end of the load.
    pub area_ns: u128,
    /// The same from the end of the load to that of the drain: latencies have it, the mean has not.
    pub drained_ns: u128,
    /// The part of that which requests took that failed, so that no latency tells of it.
    pub lost_ns: u128,
    /// How long the load lasted, in s, without the drain.
    pub load_s: f64,
    /// Whether it was ended by hand.
    pub partial: bool,
}

/// Why there is no result.
#[derive(Debug)]
pub enum RunError {
    /// A name could not be resolved.
    Resolve(String),
    /// Not a single connection could be opened.
    NoConnection {
        /// The last failure's kind.
        kind: Kind,
        /// The last failure in words.
        text: String,
    },
    /// Threads or sockets could not be set up.
    Io(io::Error),
    /// A core failed.
    Core(CoreFailure),
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Resolve(why) => f.write_str(why),
            Self::NoConnection { kind, text } => {
                write!(f, "cannot connect at all ({}): {text}", kind.name())
            }
            Self::Io(error) => write!(f, "cannot start: {error}"),
            Self::Core(failure) => write!(f, "{failure}"),
        }
    }
}

impl std::error::Error for RunError {}

/// Runs `plan` until its end, or until `stop` asks for it: the first stage ends the load and drains
/// what is in flight, the second gives that up as well.
///
/// # Errors
/// There is no result: nothing could be resolved, connected or started.
pub fn run(
    plan: &Plan,
    stop: &DrainWatch,
    observer: &mut dyn Observer,
) -> Result<Measured, RunError> {
    let (sender, start) = watch::channel(Start::NotYet);
    let shared = Arc::new(shared(plan, start)?);
    let (events, inbox) = mpsc::channel();
    let (spares, receivers): (Vec<_>, Vec<_>) = (0..plan.threads).map(|_| mpsc::channel()).unzip();
    let running = start_cores(plan, &shared, &events, receivers).map_err(RunError::Io)?;
    drop(events);
    let collector = Collector::new(plan.clone(), spares);
    let control = Control { shared, sender, stop, partial: false };
    control.collect(collector, &inbox, running, observer)
}

fn shared(plan: &Plan, start: watch::Receiver<Start>) -> Result<Shared, RunError> {
    let authorities = plan.authorities();
    let addresses = match &plan.unix {
        Some(path) => vec![Address::Unix(path.clone()); authorities.len()],
        None => {
            let resolved: Result<_, String> =
                authorities.iter().map(|authority| authority.resolve()).collect();
            resolved.map_err(RunError::Resolve)?
        }
    };
    let of_group = |authority| {
        let requests = plan.requests.iter().enumerate();
        let own = requests.filter(move |(_, request)| &request.url.authority == authority);
        own.map(|(index, _)| index).collect()
    };
    Ok(Shared {
        groups: authorities.iter().map(|authority| of_group(*authority)).collect(),
        addresses,
        quota: plan.end.requests.map(|requests| Arc::new(Quota::new(requests, plan.threads))),
        start,
        end_ns: AtomicU64::new(u64::MAX),
        give_up_ns: AtomicU64::new(u64::MAX),
        window_after_ns: window_after_ns(plan),
        plan: plan.clone(),
    })
}

/// The window begins with the first whole second after the ramp.
pub(crate) fn window_after_ns(plan: &Plan) -> u64 {
    plan.ramp_ns.div_ceil(SECOND_NS) * SECOND_NS
}

fn start_cores(
    plan: &Plan,
    shared: &Arc<Shared>,
    events: &mpsc::Sender<Event>,
    spares: Vec<mpsc::Receiver<Box<Book>>>,
) -> io::Result<Running<Option<Snapshot>>> {
    let cores = Cores {
        count: plan.threads,
        name: THREAD_NAME,
        pin: plan.pin.clone(),
        spin: plan.spin,
        table: Table::Shared,
    };
    let (shared, events) = (Arc::clone(shared), events.clone());
    rt::cores::start_with(&cores, spares, move |seat, spares| {
        core::run(seat, Arc::clone(&shared), events.clone(), spares)
    })
}

/// Starts and stops the cores.
struct Control<'a> {
    shared: Arc<Shared>,
    sender: watch::Sender<Start>,
    stop: &'a DrainWatch,
    partial: bool,
}

/// How often the collector looks at the time.
const LOOK: Duration = Duration::from_millis(20);
/// From "all are connected" to the start, so that every core hears of it first.
const LEAD_NS: u64 = 5 * MILLISECOND_NS;
/// With a ramp, a run that has no connection at all is called off after this.
const HOPELESS_NS: u64 = 3 * SECOND_NS;

impl Control<'_> {
    fn collect(
        mut self,
        mut collector: Collector,
        inbox: &mpsc::Receiver<Event>,
        running: Running<Option<Snapshot>>,
        observer: &mut dyn Observer,
    ) -> Result<Measured, RunError> {
        let start_ns = match self.connect(inbox, &running) {
            Ok(start_ns) => start_ns,
            Err(error) => {
                self.sender.send_replace(Start::Never);
                let failure = running.join().into_iter().find_map(Result::err);
                return Err(failure.map_or(error, RunError::Core));
            }
        };
        observer.started(start_ns);
        let window_ns = start_ns + self.shared.window_after_ns;
        let (mut begun, mut ended, mut cores_ended) = (false, false, 0);
        while !running.is_finished() {
            match inbox.recv_timeout(LOOK) {
                Ok(Event::Second(snapshot)) => collector.take(*snapshot, observer),
                Ok(Event::Ended) => cores_ended += 1,
                Ok(Event::Ready { .. }) | Err(mpsc::RecvTimeoutError::Timeout) => {}
                Err(mpsc::RecvTimeoutError::Disconnected) => std::thread::sleep(LOOK),
            }
            let now_ns = now_ns();
            self.follow_stop(now_ns);
            self.call_off_the_hopeless(&collector, start_ns, now_ns);
            if !begun && now_ns >= window_ns {
                begun = true;
                observer.window_begins();
            }
            let all_ended = cores_ended == self.shared.plan.threads;
            if !ended && (all_ended || now_ns >= self.shared.end_ns.load(Ordering::Relaxed)) {
                ended = true;
                observer.load_ended();
            }
            if all_ended {
                self.sender.send_replace(Start::Over);
            }
        }
        if !ended {
            observer.load_ended();
        }
        for event in inbox.try_iter() {
            if let Event::Second(snapshot) = event {
                collector.take(*snapshot, observer);
            }
        }
        let mut last = Vec::new();
        for result in running.join() {
            last.extend(result.map_err(RunError::Core)?);
        }
        collector.finish(last, self.partial, observer)
    }

    /// Waits until all cores have opened their connections, then starts the run.
    fn connect(
        &mut self,
        inbox: &mpsc::Receiver<Event>,
        running: &Running<Option<Snapshot>>,
    ) -> Result<u64, RunError> {
        let plan = &self.shared.plan;
        let (mut ready, mut obtained, mut last_failure) = (0, 0, None);
        while ready < plan.threads {
            match inbox.recv_timeout(LOOK) {
                Ok(Event::Ready { obtained: of_core, failure }) => {
                    ready += 1;
                    obtained += of_core;
                    last_failure = failure.or(last_failure);
                }
                Ok(Event::Ended) => {
                    // Its own failure is found when it is joined, and says more.
                    let text = "a thread ended before the start".to_owned();
                    return Err(RunError::NoConnection { kind: Kind::Other, text });
                }
                _ if running.is_finished() || self.stop.stage() != Stage::Running => {
                    let text = "stopped before the start".to_owned();
                    return Err(RunError::NoConnection { kind: Kind::Unfinished, text });
                }
                _ => {}
            }
        }
        if obtained == 0
            && let Some((kind, text)) = last_failure
        {
            return Err(RunError::NoConnection { kind, text });
        }
        let start_ns = now_ns() + LEAD_NS;
        let end_ns = start_ns.saturating_add(plan.end.duration_ns);
        self.shared.end_ns.store(end_ns, Ordering::Relaxed);
        let give_up_ns = end_ns.saturating_add(plan.drain_ns);
        self.shared.give_up_ns.store(give_up_ns, Ordering::Relaxed);
        self.sender.send_replace(Start::At { start_ns, end_ns });
        Ok(start_ns)
    }

    fn follow_stop(&mut self, now_ns: u64) {
        let stage = self.stop.stage();
        if stage >= Stage::Draining && !self.partial {
            self.partial = true;
            self.end_early(now_ns);
        }
        if stage == Stage::Now {
            self.shared.give_up_ns.fetch_min(now_ns, Ordering::Relaxed);
        }
    }

    fn end_early(&self, now_ns: u64) {
        self.shared.end_ns.fetch_min(now_ns, Ordering::Relaxed);
        let give_up_ns = now_ns.saturating_add(self.shared.plan.drain_ns);
        self.shared.give_up_ns.fetch_min(give_up_ns, Ordering::Relaxed);
    }

    fn call_off_the_hopeless(&self, collector: &Collector, start_ns: u64, now_ns: u64) {
        let counters = collector.counters();
        if now_ns > start_ns + HOPELESS_NS && counters.obtained == 0 && counters.connect_failed > 0
        {
            self.end_early(now_ns);
        }
    }
}

impl Measured {
    /// Marks the intervals of the window and sums them up.
    pub(crate) fn mark_window(&mut self, due: &[u64]) {
        let (from_s, to_s) = self.window_s;
        // Nothing is due behind the end, so what a core that was held up brought late was due before it.
        let ends_whole = (self.load_s - to_s).abs() < 1e-6;
        let mut due_before = 0;
        for (interval, &due) in self.intervals.iter_mut().zip(due) {
            let begin_s = interval.time_s - interval.length_s;
            let whole = interval.length_s > 1.0 - 1e-6;
            // The last second may come together with the rest behind it.
            let within = whole && begin_s >= from_s - 1e-6 && begin_s < to_s - 1e-6;
            interval.measured = within || !self.whole_seconds;
            let last = ends_whole && interval.time_s > to_s - 1e-6;
            let due = if last { self.counters.due } else { due };
            if interval.measured {
                self.window_responses += interval.responses;
                self.window_good += interval.good.unwrap_or(interval.responses);
                self.window_bytes_in += interval.bytes_in;
                self.window_due += due - due_before;
            }
            due_before = due;
        }
    }

    /// Length of the window, in s; never 0.
    #[must_use]
    pub fn window_length_s(&self) -> f64 {
        (self.window_s.1 - self.window_s.0).max(1e-9)
    }

    /// Complete responses per second, in the window.
    #[must_use]
    pub fn responses_per_s(&self) -> f64 {
        self.window_responses as f64 / self.window_length_s()
    }

    /// Good responses per second, in the window.
    #[must_use]
    pub fn goodput_per_s(&self) -> f64 {
        self.window_good as f64 / self.window_length_s()
    }

    /// Share of requests that failed or had a bad response.
    #[must_use]
    pub fn error_share(&self) -> f64 {
        let bad = self.counters.errors.iter().sum::<u64>() + self.counters.unwanted;
        if self.counters.requests == 0 { 0.0 } else { bad as f64 / self.counters.requests as f64 }
    }

    /// Mean number of requests in flight as counted, and as Little's law makes it of rate and mean
    /// service latency (failed requests with the time until they failed); both over the same time, from the start of the window to the end.
    #[must_use]
    pub fn in_flight(&self) -> (f64, f64) {
        let length_ns = (self.load_s - self.window_s.0).max(1e-9) * 1e9;
        let sum = |latencies: &Latencies| latencies.mean_ns() * latencies.count() as f64;
        let answered_ns = sum(&self.latencies.last_byte.service) + sum(&self.tail_service);
        let sum_ns = answered_ns + self.lost_ns as f64 - self.drained_ns as f64;
        (self.area_ns as f64 / length_ns, sum_ns / length_ns)
    }
}
