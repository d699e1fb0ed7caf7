//! State of one core of a load, which its clients share. Not `Send`.

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;

use rt::address::Address;
use rt::clock::now_ns;
use rt::cores::CoreId;
use rt::deadlines::Deadlines;
use rt::timers::Timers;
use rt::tls::ClientTls;
use rt::tokio::sync::{Notify, Semaphore, watch};
use rt::user_tcp::{UserTcp, UserTcpPort, UserTcpRoutes};
use wire::{Limits, Refusal};

use crate::arrival_schedule::ArrivalSchedule;
use crate::control::RateControl;
use crate::dispatcher::{Arrival, Dispatcher, RequestQuota};
use crate::failure::{Failure, FailureKind, RequestPhase};
use crate::inspection::FirstBodies;
use crate::malformation::Malformation;
use crate::pace::slice_end_ns;
use crate::plan::RunPlan;
use crate::recorder::{Breakdown, CoreSnapshot, HistogramSet, Recorder};
use crate::tls::TlsConnector;

/// State of the run's start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StartState {
    /// Connections are being opened.
    Pending,
    At {
        start_ns: u64,
        end_ns: u64,
    },
    Cancelled,
    /// The run is over, and the threads may end.
    Finished,
}

/// State that all cores use.
#[derive(Debug)]
pub(crate) struct SharedState {
    pub(crate) plan: RunPlan,
    /// Addresses of each authority.
    pub(crate) addresses: Vec<Vec<Address>>,
    /// Routes to these addresses for TCP in user space.
    pub(crate) routes: UserTcpRoutes,
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
    pub(crate) window_offset_ns: u64,
}

/// Message from a core to the collector.
#[derive(Debug)]
pub(crate) enum CoreEvent {
    /// Connecting has finished: the number of open connections, and the last failure of the others.
    Ready {
        obtained: u64,
        failure: Option<(FailureKind, String)>,
    },
    Second(Box<CoreSnapshot>),
    /// A core has finished or failed; its thread stays until the run is over.
    Ended,
}

/// Data that one core takes to its thread.
#[derive(Debug)]
pub(crate) struct CoreInit {
    /// Empty histograms, to swap for full ones.
    pub(crate) spare_histograms: mpsc::Receiver<Box<HistogramSet>>,
    /// Interface of TCP in user space.
    pub(crate) port: Option<UserTcpPort>,
}

#[derive(Debug)]
pub(crate) struct CoreState {
    pub(crate) shared: Arc<SharedState>,
    /// Global index of this core's first client.
    pub(crate) first_client: u64,
    pub(crate) timers: Timers,
    /// TCP in user space; `None`: that of the kernel.
    pub(crate) user_tcp: Option<UserTcp>,
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
/// backlog. Connections are opened before the clock starts, unless there is a ramp: a burst of connects
/// is not the load that was asked for.
const CONCURRENT_CONNECTS_MAX: usize = 64;
/// Maximum number of due requests that are brought to the dispatcher before clients get their turn.
const DISPATCHED_MAX: u32 = 1024;

/// Drops the requests that are due until `last_ns`, in slices of time, so that a rate far above what a machine can
/// send takes no more time than any other.
#[cold]
fn drop_until(
    last_ns: u64,
    now_ns: u64,
    schedule: &mut ArrivalSchedule,
    dispatcher: &mut Dispatcher,
    recorder: &mut Recorder,
) {
    while let Some(due_ns) = schedule.next_due_ns().filter(|due_ns| *due_ns <= last_ns) {
        let slice_ns = slice_end_ns(dispatcher.start_ns, due_ns).min(last_ns);
        let mut due = schedule.skip_until(slice_ns);
        if due == 0 {
            // The due time is rounded down.
            schedule.advance();
            due = 1;
        }
        let taken = dispatcher.take_requests(due);
        recorder.record_dropped(due_ns, taken, now_ns.saturating_sub(due_ns));
        if taken < due {
            return;
        }
    }
}

impl CoreState {
    /// Creates the state of a core, whose clients are not running yet.
    ///
    /// # Errors
    /// The core has no timer.
    pub(crate) fn new(
        core_id: CoreId,
        shared: Arc<SharedState>,
        events: mpsc::Sender<CoreEvent>,
        CoreInit { spare_histograms, port }: CoreInit,
    ) -> io::Result<Self> {
        let timers = Timers::start()?;
        let user_tcp = port.map(|port| UserTcp::start(port, &timers)).transpose()?;
        let (first_client, clients) = connection_range(shared.plan.connections, core_id);
        let dispatcher =
            Dispatcher::new(clients, shared.plan.max_pending / core_id.count as u64, shared.quota.clone());
        Ok(Self {
            first_client,
            timers,
            user_tcp,
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
        })
    }

    pub(crate) fn clients_alive(&self) -> usize {
        self.clients_alive.get()
    }

    /// Begins the load at `start_ns`, in an open loop with `schedule`.
    pub(crate) fn start(&self, start_ns: u64, schedule: Option<ArrivalSchedule>) {
        self.start_ns.set(start_ns);
        self.dispatcher.borrow_mut().start_ns = start_ns;
        let breakdown = Breakdown::from_plan(&self.shared.plan);
        self.recorder.borrow_mut().start(start_ns, self.shared.window_offset_ns, breakdown);
        self.schedule.replace(schedule);
    }

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
    pub(crate) async fn wait_for_finish(&self) {
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
    /// request is due in it any more. Clients get their turn after [`DISPATCHED_MAX`] requests.
    pub(crate) fn dispatch_due(&self, now_ns: u64) -> Option<u64> {
        let mut schedule = self.schedule.borrow_mut();
        let schedule = schedule.as_mut()?;
        let end_ns = self.end_ns();
        let mut dispatcher = self.dispatcher.borrow_mut();
        let mut recorder = self.recorder.borrow_mut();
        self.roll(&mut recorder, now_ns);
        schedule.follow(&self.shared.control, now_ns);
        let mut left = DISPATCHED_MAX;
        while let Some(due_ns) = schedule.next_due_ns() {
            let next_ns = due_ns.min(end_ns);
            if next_ns > now_ns && !self.giving_up.get() {
                return Some(next_ns);
            }
            if due_ns >= end_ns {
                break;
            }
            let last_ns = now_ns.min(end_ns - 1);
            if self.giving_up.get() {
                drop_until(last_ns, now_ns, schedule, &mut dispatcher, &mut recorder);
                break;
            }
            if left == 0 {
                return Some(now_ns);
            }
            left -= 1;
            if !dispatcher.take_request() {
                break;
            }
            schedule.advance();
            let arrival = dispatcher.dispatch(due_ns);
            let lag_ns = now_ns.saturating_sub(due_ns);
            match arrival {
                // No client sends it now, so its lag is the delay of the core. A free client takes
                // some time until its send, and records both delays together.
                Arrival::Queued => recorder.record_lag(lag_ns),
                Arrival::Assigned => {}
                Arrival::Dropped => {
                    recorder.record_dropped(due_ns, 1, lag_ns);
                    // No client runs meanwhile, so the queue stays full for all that are due until now.
                    drop_until(last_ns, now_ns, schedule, &mut dispatcher, &mut recorder);
                    continue;
                }
            }
            recorder.record_due(due_ns, 1);
            recorder.pending = dispatcher.pending_count();
        }
        None
    }

    /// Ends the seconds of the load on this core; the rest of its requests may still be brought.
    pub(crate) fn end_seconds(&self, at_ns: u64) {
        let mut recorder = self.recorder.borrow_mut();
        self.roll(&mut recorder, at_ns);
        recorder.end_load(at_ns);
    }

    pub(crate) fn end_load(&self, at_ns: u64) {
        self.dispatcher.borrow_mut().close();
        self.end_seconds(at_ns);
    }

    /// Notes why `bytes` are no response over HTTP/1.1. Returns the kind of the failure.
    #[cold]
    pub(crate) fn note_malformed(&self, refusal: Refusal, bytes: &[u8]) -> FailureKind {
        self.recorder.borrow_mut().note_malformation(Malformation::Http1(refusal.kind()));
        FailureKind::from_malformed(bytes)
    }

    pub(crate) fn report_ready(&self) {
        let obtained = self.recorder.borrow().counters.obtained;
        let failure = self.connect_failure.borrow().clone();
        let _ = self.events.send(CoreEvent::Ready { obtained, failure });
    }

    /// Records the requests that still wait for a client as failed.
    pub(crate) fn fail_pending(&self) {
        let (mut recorder, now_ns) = (self.recorder.borrow_mut(), now_ns());
        let is_too_old = |due_ns| now_ns.saturating_sub(due_ns) >= self.shared.plan.timeout_ns;
        let mut pending = self.dispatcher.borrow_mut().close_and_drain().peekable();
        while let Some(due_ns) = pending.next() {
            let (slice, too_old) = (due_ns..=slice_end_ns(self.start_ns.get(), due_ns), is_too_old(due_ns));
            let mut count = 1;
            while pending.next_if(|next| slice.contains(next) && is_too_old(*next) == too_old).is_some() {
                count += 1;
            }
            let kind = if too_old { FailureKind::Timeout } else { FailureKind::Unfinished };
            let failure = Failure { kind, phase: RequestPhase::Queue };
            recorder.record_all_not_sent(due_ns, count, failure, now_ns);
        }
    }

    /// Waits until each client has opened its connection, or given up.
    pub(crate) async fn wait_until_opened(&self) {
        self.wait_for(|core| core.clients_opening.get() == 0).await;
    }

    pub(crate) async fn wait_until_ended(&self) {
        self.wait_for(|core| core.clients_alive.get() == 0).await;
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

/// Returns this core's part of the connections: the index of the first, and their number.
fn connection_range(connections: u64, core_id: CoreId) -> (u64, usize) {
    let (cores, index) = (core_id.count as u64, core_id.index as u64);
    let (each, rest) = (connections / cores, connections % cores);
    (index * each + index.min(rest), (each + u64::from(index < rest)) as usize)
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
