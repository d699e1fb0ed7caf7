//! Starts the cores, accepts connections, drains, and sums up.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use rt::address::Address;
use rt::board::{Board, Handover, Inbox, OpenInbox, Parcel};
use rt::clock::now_ns;
use rt::cores::{CoreFailure, Cores, Seat, Table};
use rt::drain::{Drain, DrainWatch, Stage};
use rt::limits::raise_descriptor_limit;
use rt::listen::{AcceptMode, Accepted, Bound, Listener};
use rt::stream::Stream;
use rt::tokio::sync::{mpsc, oneshot};
use rt::tokio::task::{JoinHandle, spawn_local};

use crate::conn;
use crate::core::{Core, Parts, Query, TICK_NS};
use crate::log::{self, CoreLog, Sender, Writer};
use crate::plan::{DESCRIPTORS_RESERVED, Plan};
use crate::stats::{Closed, CoreStats, Stats, add};

/// An origin at work.
#[derive(Debug)]
pub struct Running {
    cores: rt::cores::Running<CoreStats>,
    bound: Vec<Bound>,
    /// Our own copies of the listening sockets: whoever asks the system who listens there
    /// (`ss -ltnp`) is shown those of the process's first table of descriptors only. None when that
    /// is the cores' as well.
    shown: Vec<Listener>,
    queries: Vec<mpsc::Sender<Query>>,
    log: Option<Writer>,
    drain: DrainWatch,
    started_ns: u64,
}

/// What one core takes with it to its thread.
#[derive(Debug)]
struct Luggage {
    inbox: Inbox,
    asked: mpsc::Receiver<Query>,
    log: Option<Sender>,
}

/// How many cores may ask one core for its counters at a time.
const QUERIES_MAX: usize = 64;

/// How often [`Running::join`] looks whether it is to stop, unless it is woken.
const LOOK: Duration = Duration::from_millis(20);

/// The tasks of one core that accept connections.
type Doors = Rc<RefCell<Vec<JoinHandle<io::Result<()>>>>>;

/// Binds all addresses and starts the cores; `drain` stops them.
///
/// # Errors
/// An address, the access log or a thread could not be had. Nothing is left behind then, and when it
/// was a thread, `drain` has been advanced to [`Stage::Now`].
pub fn start(plan: Plan, drain: Drain) -> io::Result<Running> {
    start_in(plan, drain, false)
}

/// The same in a process that does nothing else from then on: cores get tables of descriptors of
/// their own, which makes their system calls cheaper ([`Table::Own`]).
///
/// # Errors
/// As [`start`].
pub fn start_alone(plan: Plan, drain: Drain) -> io::Result<Running> {
    start_in(plan, drain, true)
}

fn start_in(plan: Plan, drain: Drain, alone: bool) -> io::Result<Running> {
    let started_ns = now_ns();
    let descriptors = raise_descriptor_limit().now;
    let cores = plan.threads;
    let mut bound = plan
        .listen
        .iter()
        .map(|address| Bound::new(address, cores))
        .collect::<io::Result<Vec<_>>>()?;
    let (sender, log) = match &plan.access_log {
        Some(target) => log::start(target, cores).map(|(sender, log)| (Some(sender), Some(log)))?,
        None => (None, None),
    };
    let (board, inboxes) = Board::new(cores)?;
    let (queries, askeds): (Vec<_>, Vec<_>) =
        (0..cores).map(|_| mpsc::channel(QUERIES_MAX)).unzip();
    let table = match alone {
        true => {
            let inboxes = inboxes.iter().map(Inbox::number);
            Table::Own(board.numbers().into_iter().chain(inboxes).collect())
        }
        false => Table::Shared,
    };
    let pack = |(inbox, asked)| Luggage { inbox, asked, log: sender.clone() };
    let luggage = inboxes.into_iter().zip(askeds).map(pack).collect();
    drop(sender);
    let by_descriptors = descriptors.saturating_sub(DESCRIPTORS_RESERVED).max(cores as u64);
    let connections_max = plan.connections_max.unwrap_or(by_descriptors as usize);
    let seats =
        Cores { count: cores, name: "serve", pin: plan.pin.clone(), spin: plan.spin, table };
    let (senders, boards) = (queries.clone(), board.clone());
    let watch = drain.watch();
    let stop = drain.clone();
    let running = rt::cores::start_with(&seats, luggage, move |seat, luggage| {
        let parts = Parts {
            index: seat.index,
            plan: plan.clone(),
            board: boards.clone(),
            log: None,
            connections_max: share(connections_max, seat),
            queries: senders.clone(),
            started_ns,
        };
        run_core(parts, luggage, drain.clone())
    });
    let running = running
        .and_then(|running| Ok((running, send_listeners(&mut bound, &board, cores)?)))
        .map(|(running, sent)| (running, if alone { sent } else { Vec::new() }))
        // When one core could not be had, those that could are not to stay.
        .inspect_err(|_| stop.advance(Stage::Now));
    let (cores, shown) = running?;
    Ok(Running { cores, bound, shown, queries, log, drain: watch, started_ns })
}

/// Gives cores their listening sockets, by mail, because their tables may be their own. Returns our
/// own copies.
fn send_listeners(bound: &mut [Bound], board: &Board, cores: usize) -> io::Result<Vec<Listener>> {
    let mut shown = Vec::new();
    for (index, bound) in bound.iter_mut().enumerate() {
        for core in 0..cores {
            if let Some(listener) = bound.take(core, index) {
                board.send_listener(core, &listener)?;
                shown.push(listener);
            }
        }
    }
    Ok(shown)
}

/// One core's share of the connections, so that no core has to ask another whether it may accept.
fn share(connections_max: usize, seat: Seat) -> usize {
    connections_max / seat.count + usize::from(seat.index < connections_max % seat.count)
}

impl Running {
    /// Where it listens, with the ports that the kernel chose, and how connections get to cores.
    #[must_use]
    pub fn addresses(&self) -> Vec<(Address, AcceptMode)> {
        self.bound.iter().map(|bound| (bound.address().clone(), bound.mode())).collect()
    }

    /// The kernel's ids of the cores' threads.
    #[must_use]
    pub fn thread_ids(&self) -> &[i32] {
        self.cores.thread_ids()
    }

    /// Whether all cores have ended.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.cores.is_finished()
    }

    /// The counters of all cores now. Waits for each core to answer, so it is not for a core's own
    /// thread.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let ask = |query: &mpsc::Sender<Query>| {
            let (reply, answer) = oneshot::channel();
            query.blocking_send(reply).ok()?;
            answer.blocking_recv().ok()
        };
        let cores = self.queries.iter().filter_map(ask).collect();
        Stats::of(cores, now_ns() - self.started_ns, self.drain.stage() != Stage::Running)
    }

    /// Waits until the drain is over, and returns what was counted.
    ///
    /// # Errors
    /// A core failed. The others have been stopped then.
    pub fn join(mut self) -> Result<Stats, CoreFailure> {
        while self.drain.stage() == Stage::Running && !self.cores.is_finished() {
            // Whoever stops us may unpark this thread, so that nobody connects to what is over.
            std::thread::park_timeout(LOOK);
        }
        self.shown.clear();
        let cores = self.cores.join().into_iter().collect::<Result<Vec<_>, _>>();
        let uptime_ns = now_ns() - self.started_ns;
        // Its senders went with the cores, so it writes the rest and ends.
        if let Some(log) = self.log {
            log.join();
        }
        Ok(Stats::of(cores?, uptime_ns, true))
    }
}

async fn run_core(mut parts: Parts, luggage: Luggage, drain: Drain) -> io::Result<CoreStats> {
    let Luggage { inbox, asked, log } = luggage;
    parts.log = log.map(CoreLog::new);
    let core = Rc::new(Core::new(parts)?);
    spawn_local(tick_always(Rc::clone(&core)));
    spawn_local(answer_queries(Rc::clone(&core), asked));
    let doors = Doors::default();
    let helpers = [
        spawn_local(receive_all(Rc::clone(&core), Rc::clone(&doors), inbox.open()?, drain.clone())),
        spawn_local(admit_parked(Rc::clone(&core))),
    ];
    let mut watch = drain.watch();
    watch.reached(Stage::Draining).await;
    for helper in helpers {
        helper.abort();
    }
    finish(&core, doors.take(), watch).await?;
    Ok(core.read_stats())
}

/// Ends idle connections, and waits for the others as long as they may take.
async fn finish(
    core: &Rc<Core>,
    doors: Vec<JoinHandle<io::Result<()>>>,
    mut watch: DrainWatch,
) -> io::Result<()> {
    for door in &doors {
        door.abort();
    }
    let mut failure = Ok(());
    for door in doors {
        // One that was told to end has no result.
        if let Ok(Err(error)) = door.await {
            failure = Err(error);
        }
    }
    for _ in 0..core.room.clear_parked() {
        core.board.closed(core.index);
        core.counters.closed(Closed::Drained);
    }
    core.start_draining();
    let mut emptied = pin!(poll_fn(|cx| {
        if core.room.served() == 0 {
            return Poll::Ready(());
        }
        core.room.wait(cx.waker());
        Poll::Pending
    }));
    let mut late = pin!(core.timers.sleep_until(now_ns() + core.plan.drain_timeout_ns));
    rt::tokio::select! {
        () = &mut emptied => {}
        () = &mut late => {}
        _ = watch.reached(Stage::Now) => {}
    }
    for _ in 0..core.room.served() {
        core.counters.closed(Closed::Dropped);
    }
    if let Some(log) = &core.log {
        log.hand_over();
    }
    failure
}

async fn tick_always(core: Rc<Core>) {
    loop {
        core.timers.sleep_until(core.now_ns.get() + TICK_NS).await;
        core.handle_tick(now_ns());
    }
}

async fn answer_queries(core: Rc<Core>, mut asked: mpsc::Receiver<Query>) {
    while let Some(reply) = asked.recv().await {
        // Who asked may have left.
        let _ = reply.send(core.read_stats());
    }
}

/// Takes the connections that other cores accepted for this one, and its listening sockets.
async fn receive_all(core: Rc<Core>, doors: Doors, mut inbox: OpenInbox, drain: Drain) {
    loop {
        match inbox.receive().await {
            Ok(Some(Parcel::Connection(connection))) => open(&core, connection),
            Ok(Some(Parcel::Listener(listener))) => {
                let accepting = accept_all(Rc::clone(&core), listener, drain.clone());
                doors.borrow_mut().push(spawn_local(accepting));
            }
            Ok(None) => return,
            // There was no descriptor for it: it is gone, and counted where it was sent from.
            Err(_) => {
                core.board.closed(core.index);
                add(&core.counters.accept_failed, 1);
            }
        }
    }
}

/// Serves the connections that had to wait, as others end.
async fn admit_parked(core: Rc<Core>) {
    poll_fn(|cx| {
        while let Some(connection) = core.room.admit() {
            serve(&core, connection);
        }
        core.room.wait(cx.waker());
        Poll::Pending
    })
    .await
}

/// Accepts, except while all connections that are allowed are open.
async fn accept_all(core: Rc<Core>, listener: Listener, drain: Drain) -> io::Result<()> {
    let handle = |accepted| match accepted {
        Accepted::Connection(connection) => open(&core, connection),
        Accepted::Short(_) => add(&core.counters.accept_failed, 1),
    };
    let mut accepting = pin!(listener.accept(&core.board, core.index, &core.timers, handle));
    let mut paused = false;
    let result = poll_fn(|cx| {
        if !core.room.is_full() {
            paused = false;
            return accepting.as_mut().poll(cx);
        }
        if !paused {
            paused = true;
            add(&core.counters.accept_paused, 1);
        }
        core.room.wait(cx.waker());
        Poll::Pending
    })
    .await;
    if result.is_err() {
        // Without its listener a core is of no use, and half an origin is worse than none.
        drain.advance(Stage::Draining);
    }
    result
}

fn open(core: &Rc<Core>, connection: Handover) {
    if core.room.is_full() {
        core.room.park(connection);
    } else {
        serve(core, connection);
    }
}

fn serve(core: &Rc<Core>, connection: Handover) {
    match Stream::from_fd(connection.fd, connection.family) {
        Ok(stream) => {
            spawn_local(conn::serve(Rc::clone(core), stream));
        }
        Err(_) => {
            add(&core.counters.accept_failed, 1);
            core.board.closed(core.index);
        }
    }
}
