//! Execution of a plan: starts the cores, collects their data each second, and ends in one value.
//!
//! The collector runs in the calling thread. Cores never wait for it; it adds their histograms
//! while they continue.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use record::units::{MILLISECOND_NS, SECOND_NS};
use rt::address::Address;
use rt::clock::now_ns;
use rt::cores::{CoreConfig, FdTable, RunningCores};
use rt::drain::{DrainStage, DrainWatch};
use rt::tokio::sync::watch;
use rt::user_tcp::{UserTcpPort, UserTcpRoutes};

use crate::collector::Collector;
use crate::control::RateControl;
use crate::core;
use crate::core_state::{CoreEvent, CoreInit, SharedState, StartState};
use crate::dispatcher::RequestQuota;
use crate::failure::FailureKind;
use crate::inspection::FirstBodies;
use crate::measurement::{RunError, RunMeasurement};
use crate::observer::RunObserver;
use crate::plan::{RunPlan, TlsPlan, weighted_order};
use crate::recorder::{CoreSnapshot, HistogramSet};
use crate::user_tcp;

/// Name of the threads that drive load: `load-0`, `load-1`…
pub const THREAD_NAME: &str = "load";

/// Runs `plan` until its end, or until `stop` asks for it: the first stage ends the load and drains
/// requests in flight, the second gives them up as well.
///
/// # Errors
/// There is no result: nothing could be resolved, connected or started.
pub fn run(
    plan: &RunPlan,
    stop: &DrainWatch,
    observer: &mut dyn RunObserver,
) -> Result<RunMeasurement, RunError> {
    run_controlled(plan, stop, &Arc::default(), observer)
}

/// Does the same with a rate that `control` may change.
///
/// # Errors
/// Those of [`run`].
pub fn run_controlled(
    plan: &RunPlan,
    stop: &DrainWatch,
    control: &Arc<RateControl>,
    observer: &mut dyn RunObserver,
) -> Result<RunMeasurement, RunError> {
    let (sender, start) = watch::channel(StartState::Pending);
    let mut shared = shared(plan, start, control)?;
    let (ports, routes) = user_tcp::open(plan, &shared.addresses)?;
    shared.routes = routes;
    let shared = Arc::new(shared);
    let (events, inbox) = mpsc::channel();
    let (spare_histograms, receivers): (Vec<_>, Vec<_>) = (0..plan.threads).map(|_| mpsc::channel()).unzip();
    let running = start_cores(plan, &shared, &events, (receivers, ports)).map_err(RunError::Io)?;
    drop(events);
    let collector = Collector::new(plan.clone(), spare_histograms);
    let control = RunControl { shared, sender, stop, partial: false };
    control.collect(collector, &inbox, running, observer)
}

fn shared(
    plan: &RunPlan,
    start: watch::Receiver<StartState>,
    control: &Arc<RateControl>,
) -> Result<SharedState, RunError> {
    let authorities = plan.authorities();
    let addresses = match &plan.unix {
        Some(path) => vec![vec![Address::Unix(path.clone())]; authorities.len()],
        None => {
            let resolved = authorities.iter().map(|authority| plan.addresses_of(authority));
            resolved.collect::<Result<_, _>>().map_err(RunError::Resolve)?
        }
    };
    let requests_of = |authority| {
        let requests = plan.requests.iter().enumerate();
        let matching = requests.filter(move |(_, request)| &request.url.authority == authority);
        let indices: Vec<usize> = matching.map(|(index, _)| index).collect();
        let weights: Vec<u64> = indices.iter().map(|index| plan.requests[*index].weight).collect();
        weighted_order(&weights).into_iter().map(|at| indices[at]).collect::<Vec<usize>>()
    };
    let tls = plan.tls.as_ref().map(TlsPlan::load).transpose().map_err(RunError::Tls)?;
    Ok(SharedState {
        tls,
        requests_by_authority: authorities.iter().map(|authority| requests_of(*authority)).collect(),
        authority_order: authority_order(plan),
        first_bodies: FirstBodies::new(plan.requests.len()),
        control: Arc::clone(control),
        addresses,
        routes: UserTcpRoutes::default(),
        quota: plan.end.requests.map(|requests| Arc::new(RequestQuota::new(requests, plan.threads))),
        start,
        end_ns: AtomicU64::new(u64::MAX),
        give_up_ns: AtomicU64::new(u64::MAX),
        window_offset_ns: plan.window_offset_ns(),
        plan: plan.clone(),
    })
}

/// Returns the authorities of the connections, in turns.
pub(crate) fn authority_order(plan: &RunPlan) -> Vec<usize> {
    let weight_of = |authority| {
        let requests = plan.requests.iter().filter(|request| &request.url.authority == authority);
        requests.map(|request| request.weight).sum::<u64>()
    };
    // Without weights, connections are spread evenly over the authorities.
    let is_weighted = plan.requests.iter().any(|request| request.weight != 1);
    let weights = plan.authorities().into_iter().map(|one| if is_weighted { weight_of(one) } else { 1 });
    weighted_order(&weights.collect::<Vec<u64>>())
}

fn start_cores(
    plan: &RunPlan,
    shared: &Arc<SharedState>,
    events: &mpsc::Sender<CoreEvent>,
    (spare_histograms, ports): (Vec<mpsc::Receiver<Box<HistogramSet>>>, Vec<UserTcpPort>),
) -> io::Result<RunningCores<Option<CoreSnapshot>>> {
    let cores = CoreConfig {
        count: plan.threads,
        name: THREAD_NAME,
        pin: plan.pin.clone(),
        spin: plan.spin,
        fd_table: FdTable::Shared,
    };
    let (shared, events) = (Arc::clone(shared), events.clone());
    // With TCP in user space each core has a queue of the interface.
    let mut ports = ports.into_iter();
    let init = |spare_histograms| CoreInit { spare_histograms, port: ports.next() };
    let inits = spare_histograms.into_iter().map(init).collect();
    rt::cores::start_with_init(&cores, inits, move |core_id, init| {
        core::run(core_id, Arc::clone(&shared), events.clone(), init)
    })
}

/// Starts and stops the cores.
struct RunControl<'a> {
    shared: Arc<SharedState>,
    sender: watch::Sender<StartState>,
    stop: &'a DrainWatch,
    partial: bool,
}

/// Interval at which the collector checks the time.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Time from "all are connected" to the start, so that every core is notified before.
const START_LEAD_NS: u64 = 5 * MILLISECOND_NS;
/// Interval at which a controlled start is awaited.
const START_POLL_INTERVAL: Duration = Duration::from_millis(5);
/// Time after which a ramped run without any connection is cancelled.
const NO_CONNECTION_TIMEOUT_NS: u64 = 3 * SECOND_NS;

impl RunControl<'_> {
    fn collect(
        mut self,
        mut collector: Collector,
        inbox: &mpsc::Receiver<CoreEvent>,
        running: RunningCores<Option<CoreSnapshot>>,
        observer: &mut dyn RunObserver,
    ) -> Result<RunMeasurement, RunError> {
        let start_ns = match self.wait_for_connections(inbox, &running, observer) {
            Ok(start_ns) => start_ns,
            Err(error) => {
                self.sender.send_replace(StartState::Cancelled);
                let failure = running.join().into_iter().find_map(Result::err);
                return Err(failure.map_or(error, RunError::Core));
            }
        };
        observer.on_start(start_ns);
        let window_ns = start_ns + self.shared.window_offset_ns;
        let (mut begun, mut ended, mut cores_ended) = (false, false, 0);
        while !running.is_finished() {
            match inbox.recv_timeout(POLL_INTERVAL) {
                Ok(CoreEvent::Second(snapshot)) => collector.add_snapshot(*snapshot, observer),
                Ok(CoreEvent::Ended) => cores_ended += 1,
                Ok(CoreEvent::Ready { .. }) | Err(mpsc::RecvTimeoutError::Timeout) => {}
                Err(mpsc::RecvTimeoutError::Disconnected) => std::thread::sleep(POLL_INTERVAL),
            }
            let now_ns = now_ns();
            self.apply_stop(now_ns);
            self.end_if_nothing_connects(&collector, start_ns, now_ns);
            if !begun && now_ns >= window_ns {
                begun = true;
                observer.on_window_start();
            }
            let all_ended = cores_ended == self.shared.plan.threads;
            if !ended && (all_ended || now_ns >= self.shared.end_ns.load(Ordering::Relaxed)) {
                ended = true;
                observer.on_load_end();
            }
            if all_ended {
                self.sender.send_replace(StartState::Finished);
            }
        }
        if !ended {
            observer.on_load_end();
        }
        for event in inbox.try_iter() {
            if let CoreEvent::Second(snapshot) = event {
                collector.add_snapshot(*snapshot, observer);
            }
        }
        let mut last = Vec::new();
        for result in running.join() {
            last.extend(result.map_err(RunError::Core)?);
        }
        collector.finish(last, (self.partial, start_ns), observer)
    }

    /// Waits until all cores have opened their connections, then starts the run.
    fn wait_for_connections(
        &mut self,
        inbox: &mpsc::Receiver<CoreEvent>,
        running: &RunningCores<Option<CoreSnapshot>>,
        observer: &mut dyn RunObserver,
    ) -> Result<u64, RunError> {
        let plan = &self.shared.plan;
        let (mut ready, mut obtained, mut last_failure) = (0, 0, None);
        while ready < plan.threads {
            match inbox.recv_timeout(POLL_INTERVAL) {
                Ok(CoreEvent::Ready { obtained: core_obtained, failure }) => {
                    ready += 1;
                    obtained += core_obtained;
                    last_failure = failure.or(last_failure);
                }
                Ok(CoreEvent::Ended) => {
                    // Its own failure is found when it is joined, and is more specific.
                    let text = "cannot start: a thread ended before the first connection".to_owned();
                    return Err(RunError::NoConnection { kind: FailureKind::Other, text });
                }
                _ if running.is_finished() || self.stop.stage() != DrainStage::Running => {
                    return Err(stopped_before_the_start());
                }
                _ => {}
            }
        }
        if obtained == 0
            && let Some((kind, reason)) = last_failure
        {
            let text = format!("cannot connect to {reason}");
            return Err(RunError::NoConnection { kind, text });
        }
        let start_ns = loop {
            let now_ns = now_ns();
            if let Some(at_ns) = observer.start_time(obtained, now_ns) {
                break at_ns.max(now_ns + START_LEAD_NS);
            }
            if self.stop.stage() != DrainStage::Running {
                return Err(stopped_before_the_start());
            }
            std::thread::sleep(START_POLL_INTERVAL);
        };
        let end_ns = start_ns.saturating_add(plan.end.duration_ns);
        self.shared.end_ns.store(end_ns, Ordering::Relaxed);
        let give_up_ns = end_ns.saturating_add(plan.drain_ns);
        self.shared.give_up_ns.store(give_up_ns, Ordering::Relaxed);
        self.sender.send_replace(StartState::At { start_ns, end_ns });
        Ok(start_ns)
    }

    fn apply_stop(&mut self, now_ns: u64) {
        let stage = self.stop.stage();
        if stage >= DrainStage::Draining && !self.partial {
            self.partial = true;
            self.end_early(now_ns);
        }
        if stage == DrainStage::Abort {
            self.shared.give_up_ns.fetch_min(now_ns, Ordering::Relaxed);
        }
    }

    fn end_early(&self, now_ns: u64) {
        self.shared.end_ns.fetch_min(now_ns, Ordering::Relaxed);
        let give_up_ns = now_ns.saturating_add(self.shared.plan.drain_ns);
        self.shared.give_up_ns.fetch_min(give_up_ns, Ordering::Relaxed);
    }

    fn end_if_nothing_connects(&self, collector: &Collector, start_ns: u64, now_ns: u64) {
        let counters = collector.counters();
        if now_ns > start_ns + NO_CONNECTION_TIMEOUT_NS
            && counters.obtained == 0
            && counters.connect_failed > 0
        {
            self.end_early(now_ns);
        }
    }
}

fn stopped_before_the_start() -> RunError {
    let text = "stopped before the start".to_owned();
    RunError::NoConnection { kind: FailureKind::Unfinished, text }
}
