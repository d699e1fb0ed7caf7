//! Starts the cores, accepts connections, applies new plans, drains. Everything between the process
//! and its cores; what cores do is in `core` and `conn`.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;

use rt::board::{Board, Handover, Inbox, OpenInbox, Parcel};
use rt::clock::{MILLISECOND_NS, now_ns};
use rt::cores::Seat;
use rt::drain::{Drain, DrainWatch, Stage};
use rt::listen::{Accepted, Listener};
use rt::stream::Stream;
use rt::tokio::sync::{mpsc, oneshot};
use rt::tokio::task::{JoinHandle, spawn_local};

use crate::admission::{Gatekeeper, Turned};
use crate::conn::{self, Settings, TURNED_MAX};
use crate::core::{Core, Live, TICK_NS, share};
use crate::log::{self, CoreLog};
use crate::metrics::{Reason, Snapshot};
use crate::plan::{OnLimit, Plan};
use crate::pool::{Bells, Shared};
use crate::profile::{Phase, Switch, Totals};
use crate::session;

/// What a core is told. It answers with snapshots and acknowledgements, and that is all that cores
/// and the rest have to say to each other.
#[derive(Debug)]
pub(crate) enum Message {
    /// Follow this from now on.
    Apply(Box<Apply>, oneshot::Sender<()>),
    /// Say what you have counted.
    Snapshot(oneshot::Sender<Snapshot>),
    /// What is set of servers has changed.
    Servers(oneshot::Sender<()>),
    /// Say which connections you have, or end some.
    Sessions(session::Query, oneshot::Sender<session::Found>),
    /// Measure where your time goes, or do not, and say where it went.
    Profile(Switch, oneshot::Sender<Totals>),
    /// Say that you are there.
    Ping(oneshot::Sender<()>),
    /// Another process accepts at the doors that are marked: leave them at once. The drain comes next,
    /// in which clients that are between two requests may send one more.
    Leave(Vec<bool>, oneshot::Sender<()>),
}

/// A plan, and what has changed with it outside of the cores.
#[derive(Debug)]
pub(crate) struct Apply {
    pub(crate) plan: Arc<Plan>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) log: log::Sender,
    /// For each door, in order, the listener that it belongs to; `None`: it is closed.
    pub(crate) doors: Vec<Option<usize>>,
}

/// What one core takes with it to its thread.
#[derive(Debug)]
pub(crate) struct Luggage {
    pub(crate) first: Apply,
    pub(crate) inbox: Inbox,
    pub(crate) messages: mpsc::Receiver<Message>,
}

/// What all cores are started with.
#[derive(Clone, Debug)]
pub(crate) struct Common {
    pub(crate) board: Board,
    pub(crate) bells: Bells,
    pub(crate) drain: Drain,
    pub(crate) connections_max: usize,
    /// How many cores may still accept connections, also for each other.
    pub(crate) accepting: Arc<AtomicUsize>,
}

/// The name of the threads of cores.
pub(crate) const CORE_THREAD: &str = "proxy";
/// How long idle tunnels may go on before the end of a drain.
const TUNNELS_GRACE_NS: u64 = 500 * MILLISECOND_NS;
/// How long connections are still accepted at a door that is about to close: a closed listening socket
/// resets what is in its queue, so the queue is emptied while the kernel lets nobody new in. Of a
/// drain it takes a quarter at the most.
pub(crate) const CLOSING_NS: u64 = 250 * MILLISECOND_NS;
/// How much longer it may take when somebody still waits in the queue then.
const CLOSING_MORE_NS: u64 = 2 * CLOSING_NS;
/// How often a core that drains looks whether it is done.
const DRAIN_LOOK_NS: u64 = 5 * MILLISECOND_NS;

/// The doors of one core: listening sockets, and which listener each belongs to.
#[derive(Debug, Default)]
struct Doors {
    listeners: RefCell<Vec<Option<usize>>>,
    /// Those that a reload closes, with what their connections are served by meanwhile.
    closing: RefCell<Vec<(usize, Rc<Settings>)>>,
    tasks: RefCell<Vec<Accepting>>,
}

/// A core's listening socket at work.
#[derive(Debug)]
struct Accepting {
    door: usize,
    /// The same socket once more, to look into its queue.
    socket: Option<Listener>,
    task: JoinHandle<io::Result<()>>,
}

/// Runs one core to its end; what it has counted.
pub(crate) async fn run_core(seat: Seat, luggage: Luggage, common: Common) -> io::Result<Snapshot> {
    let Luggage { first, inbox, messages } = luggage;
    let Apply { plan, shared, log, doors: listeners } = first;
    let live = Live::new(plan, &shared, (seat.index, seat.count), None);
    let room = share(common.connections_max, seat.index, seat.count);
    let log = CoreLog::new(log, seat.index);
    let core = Core::new((seat.index, seat.count), live, common.board.clone(), room, log)?;
    let doors = Rc::new(Doors { listeners: RefCell::new(listeners), ..Doors::default() });
    spawn_local(tick_always(Rc::clone(&core)));
    spawn_local(answer_bell(Rc::clone(&core), common.bells.clone()));
    let helpers = [
        spawn_local(receive_all(
            Rc::clone(&core),
            Rc::clone(&doors),
            inbox.open()?,
            common.drain.clone(),
        )),
        spawn_local(admit_parked(Rc::clone(&core), Rc::clone(&doors))),
    ];
    let seat = (seat.index, seat.count);
    let follow = follow_messages(Rc::clone(&core), Rc::clone(&doors), seat, messages);
    spawn_local(follow);
    let mut watch = common.drain.watch();
    watch.reached(Stage::Draining).await;
    let drain_ns = core.live().plan.drain_timeout_ns;
    let end_ns = now_ns() + drain_ns;
    core.start_draining();
    let failure = close_doors(&core, &doors, CLOSING_NS.min(drain_ns / 4)).await;
    common.accepting.fetch_sub(1, Ordering::SeqCst);
    finish(&core, &common, (drain_ns, end_ns), watch).await;
    for helper in helpers {
        helper.abort();
    }
    let snapshot = core.snapshot();
    core.forget_settings();
    failure.map(|()| snapshot)
}

fn open_door(core: &Rc<Core>, doors: &Rc<Doors>, listener: Listener, drain: &Drain) {
    let door = listener.index();
    // Without a descriptor for it nobody is waited for at the end.
    let socket = listener.try_clone().ok();
    let task = accept_all(Rc::clone(core), Rc::clone(doors), listener, drain.clone());
    doors.tasks.borrow_mut().push(Accepting { door, socket, task: spawn_local(task) });
}

/// Stops to accept, once what is in the queues is accepted; an error that a listening socket had is
/// returned.
async fn close_doors(core: &Core, doors: &Doors, closing_ns: u64) -> io::Result<()> {
    if !doors.tasks.borrow().is_empty() {
        empty_queues(core, doors, closing_ns, |_| true).await;
    }
    let tasks = std::mem::take(&mut *doors.tasks.borrow_mut());
    let mut failure = Ok(());
    for Accepting { task, .. } in tasks {
        task.abort();
        // One that was told to end has no result.
        if let Ok(Err(error)) = task.await {
            failure = Err(error);
        }
    }
    failure
}

/// Lets those accept that are about to close, until nobody waits there any more. A core that was not
/// given its processor meanwhile finds more in its queues than it had time for.
async fn empty_queues(
    core: &Core,
    doors: &Doors,
    closing_ns: u64,
    is_over: impl Fn(usize) -> bool,
) {
    let least_ns = now_ns() + closing_ns;
    let most_ns = least_ns + CLOSING_MORE_NS;
    core.timers.sleep_until(least_ns).await;
    let is_waited_at = |one: &Accepting| {
        is_over(one.door) && one.socket.as_ref().is_some_and(Listener::is_waited_at)
    };
    while now_ns() < most_ns && doors.tasks.borrow().iter().any(is_waited_at) {
        core.timers.sleep_until(now_ns() + DRAIN_LOOK_NS).await;
    }
}

/// Ends idle connections, and waits for the others as long as they may take. Those that wait for room
/// get it as others end; other cores may still have some for this one.
async fn finish(
    core: &Rc<Core>,
    common: &Common,
    (drain_ns, end_ns): (u64, u64),
    mut watch: DrainWatch,
) {
    if !core.is_replaced.get() {
        core.end_idle();
    }
    let tunnels_ns = end_ns.saturating_sub(TUNNELS_GRACE_NS.min(drain_ns / 2));
    let mut told = false;
    loop {
        let all_closed = common.accepting.load(Ordering::SeqCst) == 0;
        let now_ns = now_ns();
        if all_closed && core.board.open_on(core.index) == 0 || now_ns >= end_ns {
            break;
        }
        if now_ns >= tunnels_ns && !told {
            told = true;
            core.end_idle();
            core.end_tunnels();
        }
        rt::tokio::select! {
            () = core.timers.sleep_until(now_ns + DRAIN_LOOK_NS) => {}
            _ = watch.reached(Stage::Now) => break,
        }
    }
    for _ in 0..core.room.clear_parked() {
        core.board.closed(core.index);
        core.refused(Reason::Draining);
    }
    core.log.borrow().hand_over();
}

async fn tick_always(core: Rc<Core>) {
    loop {
        core.timers.sleep_until(core.now_ns.get() + TICK_NS).await;
        core.handle_tick(now_ns());
    }
}

/// Serves those that wait here when room came up on another core.
async fn answer_bell(core: Rc<Core>, bells: Bells) {
    loop {
        bells.rung(core.index).await;
        core.serve_queues();
    }
}

async fn follow_messages(
    core: Rc<Core>,
    doors: Rc<Doors>,
    seat: (usize, usize),
    mut messages: mpsc::Receiver<Message>,
) {
    while let Some(message) = messages.recv().await {
        match message {
            // Who asked may have left.
            Message::Snapshot(reply) => drop(reply.send(core.snapshot())),
            Message::Servers(done) => {
                core.follow_servers();
                let _ = done.send(());
            }
            Message::Sessions(query, reply) => {
                drop(reply.send(session::ask(&core, query).await));
            }
            Message::Profile(switch, reply) => {
                drop(reply.send(core.profile.switch(switch)));
            }
            Message::Apply(apply, done) => {
                apply_to(&core, &doors, seat, *apply);
                let _ = done.send(());
            }
            Message::Ping(done) => drop(done.send(())),
            Message::Leave(taken, done) => {
                core.is_replaced.set(true);
                // Another process has these sockets, so that nothing in their queues is lost.
                close_tasks(&doors, |door| taken.get(door) == Some(&true));
                let _ = done.send(());
            }
        }
    }
}

fn apply_to(core: &Rc<Core>, doors: &Rc<Doors>, seat: (usize, usize), apply: Apply) {
    let before = core.live();
    let stays = |door: usize| apply.doors.get(door).copied().flatten().is_some();
    let open = doors.listeners.borrow().clone();
    let leaving = open.into_iter().enumerate().filter(|(door, _)| !stays(*door));
    let settings =
        |(door, listener): (usize, Option<usize>)| Some((door, core.settings(listener?)?));
    let leaving: Vec<_> = leaving.filter_map(settings).collect();
    core.put_in_force(Live::new(apply.plan, &apply.shared, seat, Some(&before)));
    core.change_log(apply.log);
    *doors.listeners.borrow_mut() = apply.doors;
    if !leaving.is_empty() {
        doors.closing.borrow_mut().extend(leaving.iter().cloned());
        spawn_local(close_later(Rc::clone(core), Rc::clone(doors), leaving));
    }
    core.follow_servers();
    // There may be room where there was none, and parked connections whose listener is gone.
    core.room.wake();
}

/// Closes doors once what is in their queues is accepted.
async fn close_later(core: Rc<Core>, doors: Rc<Doors>, leaving: Vec<(usize, Rc<Settings>)>) {
    let is_leaving = |door: usize| leaving.iter().any(|(leaving, _)| *leaving == door);
    empty_queues(&core, &doors, CLOSING_NS, is_leaving).await;
    close_tasks(&doors, is_leaving);
    // Another core may have accepted for this one at the last moment.
    core.timers.sleep_until(now_ns() + CLOSING_NS).await;
    doors.closing.borrow_mut().retain(|(door, _)| !is_leaving(*door));
}

fn close_tasks(doors: &Doors, is_over: impl Fn(usize) -> bool) {
    doors.tasks.borrow_mut().retain(|one| {
        let over = is_over(one.door);
        if over {
            one.task.abort();
        }
        !over
    });
}

/// Takes the connections that other cores accepted for this one, and its listening sockets.
async fn receive_all(core: Rc<Core>, doors: Rc<Doors>, mut inbox: OpenInbox, drain: Drain) {
    loop {
        match inbox.receive().await {
            Ok(Some(Parcel::Connection(connection))) => {
                let _section = core.profile.enter(Phase::Accept);
                open(&core, &doors, connection);
            }
            Ok(Some(Parcel::Listener(listener))) => open_door(&core, &doors, listener, &drain),
            Ok(None) => return,
            // There was no descriptor for it: it is gone.
            Err(_) => {
                core.refused(Reason::NoDescriptor);
                core.board.closed(core.index);
            }
        }
    }
}

/// Serves the connections that had to wait, as others end.
async fn admit_parked(core: Rc<Core>, doors: Rc<Doors>) {
    poll_fn(|cx| {
        let may = |parked: &Handover| {
            !is_listener_full(&core, &doors, parked.listener)
                && is_within_rate(&core, &doors, parked.listener)
        };
        while let Some(connection) = core.room.admit_where(may) {
            serve(&core, &doors, connection, None);
        }
        core.room.wait(cx.waker());
        Poll::Pending
    })
    .await
}

/// Accepts, except while all connections that are allowed are open.
async fn accept_all(
    core: Rc<Core>,
    doors: Rc<Doors>,
    listener: Listener,
    drain: Drain,
) -> io::Result<()> {
    let door = listener.index();
    let handle = |accepted| match accepted {
        Accepted::Connection(connection) => open(&core, &doors, connection),
        Accepted::Short(_) => core.refused(Reason::NoDescriptor),
    };
    let mut accepting = pin!(listener.accept(&core.board, core.index, &core.timers, handle));
    let mut paused = false;
    let result = poll_fn(|cx| {
        let Some(full) = waits_for(&core, &doors, door) else {
            paused = false;
            let _section = core.profile.enter(Phase::Accept);
            return accepting.as_mut().poll(cx);
        };
        if !paused {
            paused = true;
            core.refused(full);
        }
        core.room.wait(cx.waker());
        Poll::Pending
    })
    .await;
    if result.is_err() {
        // Without its listener a core is of no use, and half a proxy is worse than none.
        drain.advance(Stage::Draining);
    }
    result
}

/// The limit, if there is one that a further connection of this door would be over.
fn is_full(core: &Core, doors: &Doors, door: usize) -> Option<Reason> {
    match core.room.is_full() {
        true => Some(Reason::ProcessFull),
        false => is_listener_full(core, doors, door).then_some(Reason::ListenerFull),
    }
}

/// What this door waits for before it accepts more; `None`: nothing. What is refused at a limit is
/// accepted for that.
fn waits_for(core: &Rc<Core>, doors: &Doors, door: usize) -> Option<Reason> {
    let keeper = keeper_of(core, doors, door);
    match is_full(core, doors, door) {
        Some(Reason::ListenerFull) if keeper.as_ref()?.on_full() != OnLimit::Wait => return None,
        None => {}
        full => return full,
    }
    let wait_ns = keeper?.waits_ns(now_ns)?;
    core.wake_room_in(wait_ns);
    Some(Reason::ConnectionRate)
}

/// Takes one of the rate for a connection that waited; if there is none, it looks again in time.
fn is_within_rate(core: &Rc<Core>, doors: &Doors, door: usize) -> bool {
    let keeper = keeper_of(core, doors, door);
    let admitted = keeper.map_or(Ok(()), |keeper| keeper.admit_connection(now_ns));
    admitted.inspect_err(|turned| core.wake_room_in(turned.wait_ns)).is_ok()
}

fn keeper_of(core: &Core, doors: &Doors, door: usize) -> Option<Arc<Gatekeeper>> {
    let listener = doors.listeners.borrow().get(door).copied().flatten()?;
    core.settings(listener).map(|settings| Arc::clone(&settings.keeper))
}

/// Whether a listener has its share of connections on this core.
fn is_listener_full(core: &Core, doors: &Doors, door: usize) -> bool {
    let listener = doors.listeners.borrow().get(door).copied().flatten();
    listener.is_some_and(|listener| core.is_listener_full(listener))
}

fn open(core: &Rc<Core>, doors: &Rc<Doors>, connection: Handover) {
    let keeper = keeper_of(core, doors, connection.listener);
    // Those that came together are taken together, and other cores send some too.
    let turned = match (is_full(core, doors, connection.listener), &keeper) {
        (None, None) => None,
        (None, Some(keeper)) => keeper.admit_connection(now_ns).err(),
        (Some(Reason::ListenerFull), Some(keeper)) => Some(keeper.full()),
        (Some(full), _) => {
            core.refused(full);
            core.room.park(connection);
            return;
        }
    };
    let Some(turned) = turned else {
        serve(core, doors, connection, None);
        return;
    };
    core.refused(turned.reason);
    match turned.how {
        OnLimit::Wait => {
            if turned.wait_ns > 0 {
                core.wake_room_in(turned.wait_ns);
            }
            core.room.park(connection);
        }
        OnLimit::Reject if core.turned.get() < TURNED_MAX => {
            serve(core, doors, connection, Some(turned));
        }
        how => {
            if how == OnLimit::Reject {
                core.refused(Reason::RejectsFull);
            }
            connection.reset();
            core.board.closed(core.index);
        }
    }
}

fn serve(core: &Rc<Core>, doors: &Rc<Doors>, connection: Handover, turned: Option<Turned>) {
    let listener = doors.listeners.borrow().get(connection.listener).copied().flatten();
    let settings = listener.and_then(|listener| core.settings(listener)).or_else(|| {
        let closing = doors.closing.borrow();
        let found = closing.iter().find(|(door, _)| *door == connection.listener);
        found.map(|(_, settings)| Rc::clone(settings))
    });
    let Some(settings) = settings else {
        // Its listener went long before it could be served.
        core.board.closed(core.index);
        core.refused(Reason::Draining);
        return;
    };
    match Stream::from_fd(connection.fd, connection.family) {
        Ok(stream) => {
            let serving = conn::serve(stream, settings, connection.peer, turned);
            spawn_local(serving);
        }
        Err(_) => {
            core.refused(Reason::NoDescriptor);
            core.board.closed(core.index);
        }
    }
}
