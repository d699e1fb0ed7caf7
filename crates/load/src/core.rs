//! One core of a load: its clients, its pacer, its ticker, and their common state. Not `Send`.

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;

use record::units::MILLISECOND_NS;
use rt::address::Address;
use rt::clock::now_ns;
use rt::cores::CoreId;
use rt::deadlines::Deadlines;
use rt::timers::Timers;
use rt::tls::ClientTls;
use rt::tokio::sync::{Notify, Semaphore, watch};
use rt::tokio::task::spawn_local;
use wire::Limits;

use crate::client::run_client;
use crate::control::RateControl;
use crate::dispatcher::{Arrival, Dispatcher, RequestQuota};
use crate::failure::{Failure, FailureKind, RequestPhase};
use crate::inspection::FirstBodies;
use crate::pace::{DueTimes, Pace};
use crate::plan::{LoadSlice, ReplaySchedule, RunPlan};
use crate::recorder::{Breakdown, CoreSnapshot, HistogramSet, Recorder};
use crate::tls::TlsConnector;

/// State of the run's start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StartState {
    /// Connections are being opened.
    Pending,
    /// The run starts at this time.
    At { start_ns: u64, end_ns: u64 },
    /// The run was cancelled.
    Cancelled,
    /// The run is over, and the threads may end.
    Finished,
}

/// State that all cores use.
#[derive(Debug)]
pub(crate) struct SharedState {
    pub(crate) plan: RunPlan,
    /// Address of each authority.
    pub(crate) addresses: Vec<Address>,
    /// Settings of TLS; `None` if no authority uses it.
    pub(crate) tls: Option<ClientTls>,
    /// Indices of the requests of each authority, in the order of their use.
    pub(crate) requests_by_authority: Vec<Vec<usize>>,
    /// Authorities of the connections, in the order of their numbers.
    pub(crate) authority_order: Vec<usize>,
    /// First body of each request, for `--expect-hash same`.
    pub(crate) first_bodies: FirstBodies,
    /// Factor of the rate, which the user may change.
    pub(crate) control: Arc<RateControl>,
    pub(crate) quota: Option<Arc<RequestQuota>>,
    pub(crate) start: watch::Receiver<StartState>,
    /// Time of the load's end; Ctrl-C moves it forward.
    pub(crate) end_ns: AtomicU64,
    /// Time when requests in flight are given up.
    pub(crate) give_up_ns: AtomicU64,
    /// Time from the start to the begin of the window.
    pub(crate) window_offset_ns: u64,
}

/// Message from a core to the collector.
#[derive(Debug)]
pub(crate) enum CoreEvent {
    /// Connecting has finished: the number of open connections, and the last failure of the others.
    Ready { obtained: u64, failure: Option<(FailureKind, String)> },
    /// A second is over.
    Second(Box<CoreSnapshot>),
    /// A core has finished or failed; its thread stays until the run is over.
    Ended,
}

/// Guard that reports the end of a core to the collector, also on a panic.
struct EndGuard(mpsc::Sender<CoreEvent>);

impl Drop for EndGuard {
    fn drop(&mut self) {
        // Without a collector nobody waits for the message.
        let _ = self.0.send(CoreEvent::Ended);
    }
}

/// One core.
#[derive(Debug)]
pub(crate) struct CoreState {
    pub(crate) shared: Arc<SharedState>,
    /// Global index of this core's first client.
    pub(crate) first_client: u64,
    pub(crate) timers: Timers,
    pub(crate) deadlines: Deadlines,
    pub(crate) dispatcher: RefCell<Dispatcher>,
    pub(crate) recorder: RefCell<Recorder>,
    /// Start of the load; 0 before it.
    pub(crate) start_ns: Cell<u64>,
    /// Number of the next request with a template, and the number of cores.
    request_numbers: (Cell<u64>, u64),
    /// Requests of a running open loop that are not due yet.
    schedule: RefCell<Option<ArrivalSchedule>>,
    pub(crate) scratch: RefCell<Box<[u8]>>,
    pub(crate) limits: Limits,
    /// TLS of each authority; `None` for one without TLS.
    pub(crate) tls: Vec<Option<TlsConnector>>,
    /// Limit of concurrent connection attempts before the start.
    pub(crate) connect_permits: Semaphore,
    /// True if requests in flight have to be given up.
    pub(crate) giving_up: Cell<bool>,
    /// Reason for the latest failed connection.
    pub(crate) connect_failure: RefCell<Option<(FailureKind, String)>>,
    clients_opening: Cell<usize>,
    clients_alive: Cell<usize>,
    changed: Notify,
    events: mpsc::Sender<CoreEvent>,
}

/// Maximum bytes of one read; large enough for bulk bodies, small enough for a cache.
pub(crate) const SCRATCH_BYTES: usize = 64 * 1024;
/// Maximum number of concurrent connection attempts of a core before the start; below any usual
/// backlog.
const CONCURRENT_CONNECTS_MAX: usize = 64;
/// Period of the ticker, unless a short timeout needs a shorter one.
const TICK_NS_MAX: u64 = 10 * MILLISECOND_NS;

/// Maximum number of missed ticks that are recorded after one stall: those of ten minutes.
const LATE_TICKS_MAX: usize = 60_000;

/// Runs one core to its end. Returns its last snapshot.
pub(crate) async fn run(
    core_id: CoreId,
    shared: Arc<SharedState>,
    events: mpsc::Sender<CoreEvent>,
    spare_histograms: mpsc::Receiver<Box<HistogramSet>>,
) -> io::Result<Option<CoreSnapshot>> {
    let end_guard = EndGuard(events.clone());
    let (first_client, clients) = connection_range(shared.plan.connections, core_id);
    let dispatcher =
        Dispatcher::new(clients, shared.plan.max_pending / core_id.count as u64, shared.quota.clone());
    let core = Rc::new(CoreState {
        first_client,
        timers: Timers::start()?,
        deadlines: Deadlines::default(),
        dispatcher: RefCell::new(dispatcher),
        recorder: RefCell::new(Recorder::new(core_id.index, spare_histograms)),
        start_ns: Cell::new(0),
        request_numbers: (Cell::new(core_id.index as u64), core_id.count as u64),
        schedule: RefCell::new(None),
        scratch: RefCell::new(vec![0; SCRATCH_BYTES].into_boxed_slice()),
        limits: Limits::default(),
        tls: TlsConnector::for_core(&shared.plan, shared.tls.as_ref()),
        connect_permits: Semaphore::new(CONCURRENT_CONNECTS_MAX),
        giving_up: Cell::new(false),
        connect_failure: RefCell::new(None),
        clients_opening: Cell::new(clients),
        clients_alive: Cell::new(clients),
        changed: Notify::new(),
        events,
        shared,
    });
    for index in 0..clients {
        spawn_local(run_client(Rc::clone(&core), index));
    }
    spawn_local(run_ticker(Rc::clone(&core)));
    core.wait_for(|core| core.clients_opening.get() == 0).await;
    core.report_ready();
    let Some((start_ns, _)) = core.wait_for_start().await else {
        return Ok(None);
    };
    core.start_ns.set(start_ns);
    core.recorder.borrow_mut().start(
        start_ns,
        core.shared.window_offset_ns,
        Breakdown::from_plan(&core.shared.plan),
    );
    if let Some(schedule) = ArrivalSchedule::from_plan(&core.shared.plan, core_id, start_ns) {
        core.schedule.replace(Some(schedule));
        spawn_local(run_pacer(Rc::clone(&core)));
    }
    core.wait_for(|core| core.clients_alive.get() == 0).await;
    core.fail_pending();
    let replacement = Recorder::new(core_id.index, mpsc::channel().1);
    let mut last = core.recorder.replace(replacement).finish(now_ns());
    last.connect_failure = core.connect_failure.take();
    drop(end_guard);
    // The kernel's data of a thread disappear with it, and the observer still has to read them.
    core.wait_for_finish().await;
    Ok(Some(last))
}

/// Returns this core's part of the connections: the index of the first, and their number.
fn connection_range(connections: u64, core_id: CoreId) -> (u64, usize) {
    let (cores, index) = (core_id.count as u64, core_id.index as u64);
    let (each, rest) = (connections / cores, connections % cores);
    (index * each + index.min(rest), (each + u64::from(index < rest)) as usize)
}

impl CoreState {
    /// Returns a guard that counts a client as alive while it exists.
    pub(crate) fn client_guard(self: &Rc<Self>) -> ClientGuard {
        ClientGuard { core: Rc::clone(self), opening: Cell::new(true) }
    }

    /// Waits for the start of the run. Returns its start and planned end, or `None` if it was
    /// cancelled.
    pub(crate) async fn wait_for_start(&self) -> Option<(u64, u64)> {
        let mut start = self.shared.start.clone();
        let decided = start.wait_for(|start| *start != StartState::Pending).await;
        match decided.map(|start| *start) {
            Ok(StartState::At { start_ns, end_ns }) => Some((start_ns, end_ns)),
            _ => None,
        }
    }

    /// Waits until the run is over, or its sender is gone.
    async fn wait_for_finish(&self) {
        let mut start = self.shared.start.clone();
        let _ = start.wait_for(|start| *start == StartState::Finished).await;
    }

    /// Returns the currently known end of the load.
    #[inline]
    pub(crate) fn end_ns(&self) -> u64 {
        self.shared.end_ns.load(Ordering::Relaxed)
    }

    /// Returns the next number of a request; those of all cores are distinct.
    pub(crate) fn next_request_number(&self) -> u64 {
        let (next, step) = &self.request_numbers;
        next.replace(next.get() + step)
    }

    /// Sends a finished second to the collector, if there is one.
    #[inline]
    pub(crate) fn roll(&self, recorder: &mut Recorder, at_ns: u64) {
        if let Some(snapshot) = recorder.roll(at_ns) {
            // Without a collector the run is over, and the data are not needed.
            let _ = self.events.send(CoreEvent::Second(Box::new(snapshot)));
        }
    }

    /// Brings the due requests of an open loop to the dispatcher. Returns the time of the next one, or
    /// the end of the load if that comes first. `None` if the load is over. A rate determines when
    /// the next request would be due, so the time up to the end belongs to the load even if no
    /// request is due in it any more.
    fn dispatch_due(&self, now_ns: u64) -> Option<u64> {
        let mut schedule = self.schedule.borrow_mut();
        let schedule = schedule.as_mut()?;
        let end_ns = self.end_ns();
        let mut dispatcher = self.dispatcher.borrow_mut();
        let mut recorder = self.recorder.borrow_mut();
        self.roll(&mut recorder, now_ns);
        schedule.follow(&self.shared.control, now_ns);
        while let Some(due_ns) = schedule.next_due_ns() {
            let next_ns = due_ns.min(end_ns);
            if next_ns > now_ns && !self.giving_up.get() {
                return Some(next_ns);
            }
            if due_ns >= end_ns || self.giving_up.get() {
                break;
            }
            if !dispatcher.take_request() {
                break;
            }
            schedule.advance();
            let arrival = dispatcher.dispatch(due_ns);
            recorder.record_due(due_ns);
            if arrival == Arrival::Dropped {
                recorder.record_dropped(due_ns);
            }
            if arrival != Arrival::Assigned {
                // No client sends it now, so its lag is the delay of the core. A free client takes
                // some time until its send, and records both delays together.
                recorder.record_lag(now_ns.saturating_sub(due_ns));
            }
            recorder.pending = dispatcher.pending_count();
        }
        None
    }

    /// Ends the load on this core.
    pub(crate) fn end_load(&self, at_ns: u64) {
        self.dispatcher.borrow_mut().close();
        let mut recorder = self.recorder.borrow_mut();
        self.roll(&mut recorder, at_ns);
        recorder.end_load(at_ns);
    }

    fn report_ready(&self) {
        let obtained = self.recorder.borrow().counters.obtained;
        let failure = self.connect_failure.borrow().clone();
        let _ = self.events.send(CoreEvent::Ready { obtained, failure });
    }

    fn fail_pending(&self) {
        let (mut recorder, now_ns) = (self.recorder.borrow_mut(), now_ns());
        for due_ns in self.dispatcher.borrow_mut().close_and_drain() {
            let too_old = now_ns.saturating_sub(due_ns) >= self.shared.plan.timeout_ns;
            let kind = if too_old { FailureKind::Timeout } else { FailureKind::Unfinished };
            let failure = Failure { kind, phase: RequestPhase::Queue };
            recorder.record_not_sent(due_ns, failure, now_ns);
        }
    }

    async fn wait_for(&self, condition: impl Fn(&Self) -> bool) {
        while !condition(self) {
            self.changed.notified().await;
        }
    }
}

/// Guard that counts one client, also if its task panics.
#[derive(Debug)]
pub(crate) struct ClientGuard {
    core: Rc<CoreState>,
    opening: Cell<bool>,
}

impl ClientGuard {
    /// Records that the client has opened its connection before the start, or given up.
    pub(crate) fn mark_opened(&self) {
        if self.opening.replace(false) {
            self.core.clients_opening.set(self.core.clients_opening.get() - 1);
            self.core.changed.notify_one();
        }
    }
}

impl Drop for ClientGuard {
    fn drop(&mut self) {
        self.mark_opened();
        self.core.clients_alive.set(self.core.clients_alive.get() - 1);
        self.core.changed.notify_one();
    }
}

/// Minimum interval between wake-ups of the pacer. Above 20,000 requests per second and core, sends
/// are therefore up to this much late, in small batches: a wake-up for each would cost more than
/// the request. Like every lag it counts in the response latency. Below that rate it has no effect.
const PACER_INTERVAL_NS_MIN: u64 = 50_000;

/// Maximum time after which a changed rate takes effect.
const CONTROL_INTERVAL_NS: u64 = 20 * MILLISECOND_NS;

/// Requests of an open loop that are not due yet on a core.
#[derive(Debug)]
struct ArrivalSchedule {
    source: ArrivalSource,
    start_ns: u64,
}

/// Source of due times.
#[derive(Debug)]
enum ArrivalSource {
    /// A rate, with the factor that it follows.
    Rate { times: Box<DueTimes>, factor: f64 },
    /// A log: the index of the next entry, and the number of cores.
    Replay { schedule: Arc<ReplaySchedule>, next: usize, step: usize },
}

impl ArrivalSchedule {
    /// Returns those of a core; `None` in a closed loop.
    fn from_plan(plan: &RunPlan, core_id: CoreId, start_ns: u64) -> Option<Self> {
        let Pace::Open { arrivals, .. } = plan.pace else { return None };
        let cores = (core_id.index, core_id.count);
        let source = match &plan.replay {
            Some(schedule) => {
                ArrivalSource::Replay { schedule: Arc::clone(schedule), next: cores.0, step: cores.1 }
            }
            None => {
                let times = DueTimes::new(plan.rate_profile()?, arrivals, cores, plan.seed)
                    .shifted(plan.slice.map_or(0.0, LoadSlice::phase));
                ArrivalSource::Rate { times: Box::new(times), factor: 1.0 }
            }
        };
        Some(Self { source, start_ns })
    }

    /// Applies a changed rate from now on.
    fn follow(&mut self, control: &RateControl, now_ns: u64) {
        if let ArrivalSource::Rate { times, factor } = &mut self.source {
            let wanted = control.factor();
            if *factor != wanted {
                *factor = wanted;
                times.set_factor(wanted, now_ns.saturating_sub(self.start_ns));
            }
        }
    }

    fn next_due_ns(&mut self) -> Option<u64> {
        let after_ns = match &mut self.source {
            ArrivalSource::Rate { times, .. } => Some(times.peek()),
            ArrivalSource::Replay { schedule, next, .. } => schedule.due_ns(*next),
        };
        after_ns.map(|after_ns| self.start_ns.saturating_add(after_ns))
    }

    fn advance(&mut self) {
        match &mut self.source {
            ArrivalSource::Rate { times, .. } => times.advance(),
            ArrivalSource::Replay { next, step, .. } => *next += *step,
        }
    }
}

/// Brings the requests of an open loop to the dispatcher when they become due.
async fn run_pacer(core: Rc<CoreState>) {
    let mut woken_ns = 0;
    while let Some(due_ns) = core.dispatch_due(now_ns()) {
        let wake_ns = due_ns.max(woken_ns + PACER_INTERVAL_NS_MIN).min(now_ns() + CONTROL_INTERVAL_NS);
        // Ctrl-C may move the end meanwhile, so it is read again after the sleep.
        core.timers.sleep_until(wake_ns.min(core.end_ns())).await;
        woken_ns = now_ns();
    }
    core.end_load(now_ns().min(core.end_ns()));
}

/// Handles all timed events: timeouts, seconds, the end, giving up.
async fn run_ticker(core: Rc<CoreState>) {
    let open_loop = core.shared.plan.is_open_loop();
    let period_ns = (core.shared.plan.timeout_ns / 20).clamp(MILLISECOND_NS, TICK_NS_MAX);
    let mut next_ns = now_ns() + period_ns;
    while core.clients_alive.get() > 0 {
        core.timers.sleep_until(next_ns).await;
        let now_ns = now_ns();
        let end_ns = core.end_ns();
        if now_ns >= end_ns {
            // A core that was delayed at the end still has to bring the requests that were due
            // before it.
            core.dispatch_due(now_ns);
        }
        {
            let mut recorder = core.recorder.borrow_mut();
            core.roll(&mut recorder, now_ns);
            if !open_loop {
                record_late_ticks(&mut recorder, next_ns, now_ns, period_ns);
            }
            recorder.pending = core.dispatcher.borrow().pending_count();
        }
        core.deadlines.sweep(now_ns);
        if now_ns >= end_ns && !core.dispatcher.borrow().is_closed() {
            core.end_load(end_ns);
        }
        if now_ns >= core.shared.give_up_ns.load(Ordering::Relaxed) && !core.giving_up.get() {
            core.giving_up.set(true);
            core.end_load(end_ns.min(now_ns));
            core.deadlines.wake_all();
        }
        // Missed ticks are skipped.
        next_ns = (next_ns + period_ns).max(now_ns);
        core.recorder.borrow_mut().expect_run(next_ns);
    }
}

/// Records the delay of a tick, and of each tick that was missed meanwhile. A closed loop has no
/// due times, so regular ticks take their place, and a long stall counts for its full time.
fn record_late_ticks(recorder: &mut Recorder, first_ns: u64, now_ns: u64, period_ns: u64) {
    let ticks = (first_ns..=now_ns).step_by(period_ns as usize).take(LATE_TICKS_MAX);
    for tick_ns in ticks {
        if recorder.is_running(tick_ns) {
            recorder.record_lag(now_ns - tick_ns);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_split_without_loss() {
        let ranges: Vec<_> = (0..3).map(|index| connection_range(8, CoreId { index, count: 3 })).collect();
        assert_eq!(ranges, [(0, 3), (3, 3), (6, 2)]);
    }
}
