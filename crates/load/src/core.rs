//! One core of a load: its clients, its pacer, its ticker, and what they share. Not `Send`.

use std::cell::{Cell, RefCell};
use std::io;
use std::iter::Peekable;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;

use record::units::MILLISECOND_NS;
use rt::address::Address;
use rt::clock::now_ns;
use rt::cores::Seat;
use rt::deadlines::Deadlines;
use rt::timers::Timers;
use rt::tokio::sync::{Notify, Semaphore, watch};
use rt::tokio::task::spawn_local;
use wire::Limits;

use crate::client::client;
use crate::desk::{Arrival, Desk, Quota};
use crate::failure::{Failure, Kind, Phase};
use crate::pace::{DueTimes, Pace};
use crate::plan::Plan;
use crate::recorder::{Book, Recorder, Snapshot};

/// Whether and when the run starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    /// Connections are being opened.
    NotYet,
    /// At this time.
    At { start_ns: u64, end_ns: u64 },
    /// It was called off.
    Never,
    /// It has been watched to its end, and the threads may go.
    Over,
}

/// What all cores see.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) plan: Plan,
    /// Where each authority is.
    pub(crate) addresses: Vec<Address>,
    /// For each authority, the indices of its requests.
    pub(crate) groups: Vec<Vec<usize>>,
    pub(crate) quota: Option<Arc<Quota>>,
    pub(crate) start: watch::Receiver<Start>,
    /// When the load ends; moved to the front by Ctrl-C.
    pub(crate) end_ns: AtomicU64,
    /// When what is still in flight is given up.
    pub(crate) give_up_ns: AtomicU64,
    /// How long after the start the window begins.
    pub(crate) window_after_ns: u64,
}

/// What a core tells the collector.
#[derive(Debug)]
pub(crate) enum Event {
    /// Its connections have been opened, or not; and the last failure of those that have not.
    Ready { obtained: u64, failure: Option<(Kind, String)> },
    /// A second is over.
    Second(Box<Snapshot>),
    /// A core has done all it had to do, or failed; its thread stays until the run is over.
    Ended,
}

/// Tells the collector that a core has ended, however it did.
struct Farewell(mpsc::Sender<Event>);

impl Drop for Farewell {
    fn drop(&mut self) {
        // Without a collector nobody waits for it.
        let _ = self.0.send(Event::Ended);
    }
}

/// One core.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) shared: Arc<Shared>,
    /// Index of this core's first client among all.
    pub(crate) first_client: u64,
    pub(crate) timers: Timers,
    pub(crate) deadlines: Deadlines,
    pub(crate) desk: RefCell<Desk>,
    pub(crate) recorder: RefCell<Recorder>,
    /// What is still to become due, of an open loop that has begun.
    due: RefCell<Option<Due>>,
    pub(crate) scratch: RefCell<Box<[u8]>>,
    pub(crate) limits: Limits,
    /// Limits how many connections are being opened at a time, before the start.
    pub(crate) opening: Semaphore,
    /// What is in flight is to be given up.
    pub(crate) giving_up: Cell<bool>,
    /// Why the last connection that failed did.
    pub(crate) connect_failure: RefCell<Option<(Kind, String)>>,
    clients_opening: Cell<usize>,
    clients_alive: Cell<usize>,
    changed: Notify,
    events: mpsc::Sender<Event>,
}

/// Bytes that one read takes at the most; large enough for bulk bodies, small enough for a cache.
const SCRATCH_BYTES: usize = 64 * 1024;
/// Connections that a core opens at a time before the start; below any usual backlog.
const OPENING_MAX: usize = 64;
/// The ticker's period, unless a short time-out needs a shorter one.
const TICK_NS_MAX: u64 = 10 * MILLISECOND_NS;

/// Missed ticks that are recorded after one stall: those of ten minutes.
const LATE_TICKS_MAX: usize = 60_000;

/// Runs one core to its end; its last snapshot.
pub(crate) async fn run(
    seat: Seat,
    shared: Arc<Shared>,
    events: mpsc::Sender<Event>,
    spares: mpsc::Receiver<Box<Book>>,
) -> io::Result<Option<Snapshot>> {
    let farewell = Farewell(events.clone());
    let (first_client, clients) = share(shared.plan.connections, seat);
    let desk = Desk::new(clients, shared.plan.line_max / seat.count as u64, shared.quota.clone());
    let core = Rc::new(Core {
        first_client,
        timers: Timers::start()?,
        deadlines: Deadlines::default(),
        desk: RefCell::new(desk),
        recorder: RefCell::new(Recorder::new(seat.index, spares)),
        due: RefCell::new(None),
        scratch: RefCell::new(vec![0; SCRATCH_BYTES].into_boxed_slice()),
        limits: Limits::default(),
        opening: Semaphore::new(OPENING_MAX),
        giving_up: Cell::new(false),
        connect_failure: RefCell::new(None),
        clients_opening: Cell::new(clients),
        clients_alive: Cell::new(clients),
        changed: Notify::new(),
        events,
        shared,
    });
    for index in 0..clients {
        spawn_local(client(Rc::clone(&core), index));
    }
    spawn_local(tick(Rc::clone(&core)));
    core.wait_for(|core| core.clients_opening.get() == 0).await;
    core.announce();
    let Some((start_ns, _)) = core.started().await else {
        return Ok(None);
    };
    core.recorder.borrow_mut().start(start_ns, core.shared.window_after_ns);
    if let Some(due) = Due::of(&core.shared.plan, seat, start_ns) {
        core.due.replace(Some(due));
        spawn_local(pace(Rc::clone(&core)));
    }
    core.wait_for(|core| core.clients_alive.get() == 0).await;
    core.abandon_line();
    let spent = Recorder::new(seat.index, mpsc::channel().1);
    let last = core.recorder.replace(spent).finish(now_ns());
    drop(farewell);
    // What the kernel tells of a thread goes with it, and the observer still wants to read it.
    core.until_over().await;
    Ok(Some(last))
}

/// This core's share of the connections: the index of the first, and how many.
fn share(connections: u64, seat: Seat) -> (u64, usize) {
    let (cores, index) = (seat.count as u64, seat.index as u64);
    let (each, rest) = (connections / cores, connections % cores);
    (index * each + index.min(rest), (each + u64::from(index < rest)) as usize)
}

impl Core {
    /// A guard that counts a client as alive for as long as it exists.
    pub(crate) fn presence(self: &Rc<Self>) -> Presence {
        Presence { core: Rc::clone(self), opening: Cell::new(true) }
    }

    /// Waits for the start of the run; its start and planned end, or `None` when it was called off.
    pub(crate) async fn started(&self) -> Option<(u64, u64)> {
        let mut start = self.shared.start.clone();
        let decided = start.wait_for(|start| *start != Start::NotYet).await;
        match decided.map(|start| *start) {
            Ok(Start::At { start_ns, end_ns }) => Some((start_ns, end_ns)),
            _ => None,
        }
    }

    /// Waits until the run has been watched to its end, or nobody watches it any more.
    async fn until_over(&self) {
        let mut start = self.shared.start.clone();
        let _ = start.wait_for(|start| *start == Start::Over).await;
    }

    /// When the load ends, as far as is known now.
    #[inline]
    pub(crate) fn end_ns(&self) -> u64 {
        self.shared.end_ns.load(Ordering::Relaxed)
    }

    /// Hands the second that is over to the collector, if one is.
    #[inline]
    pub(crate) fn roll(&self, recorder: &mut Recorder, at_ns: u64) {
        if let Some(snapshot) = recorder.roll(at_ns) {
            // Without a collector the run is over, and nobody wants it.
            let _ = self.events.send(Event::Second(Box::new(snapshot)));
        }
    }

    /// Brings what has become due in an open loop to the desk; when the next will be, or the end that
    /// comes before it. Nothing when the load is over: a rate says when the next request would be, so
    /// the time up to the end belongs to the load also where nothing is due in it any more.
    fn bring_due(&self, now_ns: u64) -> Option<u64> {
        let mut due = self.due.borrow_mut();
        let due = due.as_mut()?;
        let end_ns = self.end_ns();
        let mut desk = self.desk.borrow_mut();
        let mut recorder = self.recorder.borrow_mut();
        self.roll(&mut recorder, now_ns);
        while let Some(due_ns) = due.next_ns() {
            let next_ns = due_ns.min(end_ns);
            if next_ns > now_ns && !self.giving_up.get() {
                return Some(next_ns);
            }
            if due_ns >= end_ns || self.giving_up.get() {
                break;
            }
            if !desk.take_one() {
                break;
            }
            due.times.next();
            let arrival = desk.arrive(due_ns);
            recorder.became_due(due_ns);
            if arrival == Arrival::Dropped {
                recorder.dropped(due_ns);
            }
            if arrival != Arrival::Assigned {
                // Nobody sends it now, so its lag is how late the core brought it. A client that is
                // free has its own way to the send behind it, and records both together.
                recorder.lag(now_ns.saturating_sub(due_ns));
            }
            recorder.waiting = desk.waiting();
        }
        None
    }

    /// The load has ended on this core.
    pub(crate) fn end_load(&self, at_ns: u64) {
        self.desk.borrow_mut().close();
        let mut recorder = self.recorder.borrow_mut();
        self.roll(&mut recorder, at_ns);
        recorder.end(at_ns);
    }

    fn announce(&self) {
        let obtained = self.recorder.borrow().counters.obtained;
        let failure = self.connect_failure.borrow().clone();
        let _ = self.events.send(Event::Ready { obtained, failure });
    }

    fn abandon_line(&self) {
        let (mut recorder, now_ns) = (self.recorder.borrow_mut(), now_ns());
        for due_ns in self.desk.borrow_mut().abandon() {
            let too_old = now_ns.saturating_sub(due_ns) >= self.shared.plan.timeout_ns;
            let kind = if too_old { Kind::Timeout } else { Kind::Unfinished };
            let failure = Failure { kind, phase: Phase::Queue };
            recorder.not_sent(due_ns, failure, now_ns);
        }
    }

    async fn wait_for(&self, condition: impl Fn(&Self) -> bool) {
        while !condition(self) {
            self.changed.notified().await;
        }
    }
}

/// Counts one client; also when its task panics.
#[derive(Debug)]
pub(crate) struct Presence {
    core: Rc<Core>,
    opening: Cell<bool>,
}

impl Presence {
    /// The client has opened its connection before the start, or given up doing so.
    pub(crate) fn opened(&self) {
        if self.opening.replace(false) {
            self.core.clients_opening.set(self.core.clients_opening.get() - 1);
            self.core.changed.notify_one();
        }
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        self.opened();
        self.core.clients_alive.set(self.core.clients_alive.get() - 1);
        self.core.changed.notify_one();
    }
}

/// The pacer wakes up no more often than this. Above 20,000 requests per second and core, sends are
/// therefore up to so much late, in small batches: a wake-up for each would cost more than the
/// request. Like every lag it counts in the response latency. Below that rate it changes nothing.
const PACE_GRAIN_NS: u64 = 50_000;

/// The requests of an open loop that are still to become due on a core.
#[derive(Debug)]
struct Due {
    times: Peekable<DueTimes>,
    start_ns: u64,
}

impl Due {
    /// Those of a core; none in a closed loop.
    fn of(plan: &Plan, seat: Seat, start_ns: u64) -> Option<Self> {
        let Pace::Open { rate_per_s, arrivals } = plan.pace else { return None };
        let cores = (seat.index, seat.count);
        let times = DueTimes::new(rate_per_s, arrivals, plan.ramp_ns, cores, plan.seed);
        Some(Self { times: times.peekable(), start_ns })
    }

    fn next_ns(&mut self) -> Option<u64> {
        self.times.peek().map(|after_ns| self.start_ns.saturating_add(*after_ns))
    }
}

/// Brings the requests of an open loop to the desk as they become due.
async fn pace(core: Rc<Core>) {
    let mut woken_ns = 0;
    while let Some(due_ns) = core.bring_due(now_ns()) {
        let wake_ns = due_ns.max(woken_ns + PACE_GRAIN_NS);
        // Until then Ctrl-C may move the end; so it is read again after the sleep.
        core.timers.sleep_until(wake_ns.min(core.end_ns())).await;
        woken_ns = now_ns();
    }
    core.end_load(now_ns().min(core.end_ns()));
}

/// Looks after everything that happens by time: time-outs, seconds, the end, giving up.
async fn tick(core: Rc<Core>) {
    let open_loop = core.shared.plan.is_open_loop();
    let period_ns = (core.shared.plan.timeout_ns / 20).clamp(MILLISECOND_NS, TICK_NS_MAX);
    let mut next_ns = now_ns() + period_ns;
    while core.clients_alive.get() > 0 {
        core.timers.sleep_until(next_ns).await;
        let now_ns = now_ns();
        let end_ns = core.end_ns();
        if now_ns >= end_ns {
            // A core that was held up at the end still owes what became due before it.
            core.bring_due(now_ns);
        }
        {
            let mut recorder = core.recorder.borrow_mut();
            core.roll(&mut recorder, now_ns);
            if !open_loop {
                late_ticks(&mut recorder, next_ns, now_ns, period_ns);
            }
            recorder.waiting = core.desk.borrow().waiting();
        }
        core.deadlines.sweep(now_ns);
        if now_ns >= end_ns && !core.desk.borrow().is_closed() {
            core.end_load(end_ns);
        }
        if now_ns >= core.shared.give_up_ns.load(Ordering::Relaxed) && !core.giving_up.get() {
            core.giving_up.set(true);
            core.end_load(end_ns.min(now_ns));
            core.deadlines.wake_all();
        }
        // Ticks that were missed are not made up for.
        next_ns = (next_ns + period_ns).max(now_ns);
        core.recorder.borrow_mut().expect(next_ns);
    }
}

/// Records how late a tick was, and each tick that was missed meanwhile: a closed loop has no due times,
/// so regular ticks stand for them, and a long stall weighs as much as the time that it took.
fn late_ticks(recorder: &mut Recorder, first_ns: u64, now_ns: u64, period_ns: u64) {
    let ticks = (first_ns..=now_ns).step_by(period_ns as usize).take(LATE_TICKS_MAX);
    for tick_ns in ticks {
        if recorder.is_on(tick_ns) {
            recorder.lag(now_ns - tick_ns);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_shared_out_whole() {
        let shares: Vec<_> = (0..3).map(|index| share(8, Seat { index, count: 3 })).collect();
        assert_eq!(shares, [(0, 3), (3, 3), (6, 2)]);
    }
}
