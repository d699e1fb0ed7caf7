//! The proxy as a whole, seen from outside of its cores: started, told of a new plan, asked for
//! metrics, stopped. It runs in the caller's thread; the data path never waits for it.

use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::Duration;

use rt::address::Address;
use rt::board::{Board, Inbox};
use rt::clock::{now_ns, unix_ns};
use rt::cores::{CoreFailure, Cores, Table};
use rt::drain::{Drain, Stage};
use rt::limits::raise_descriptor_limit;
use rt::listen::Listener;
use rt::privileges::{Confinement, give_up};
use rt::tokio::sync::{mpsc, oneshot, watch};

use crate::asker::{self, Asker};
use crate::capacity::connections_max;
use crate::ctl::{ControlDoor, Desk, Errand, InForce, OneAtATime, Order};
use crate::doors::{Doors, Opened, Single};
use crate::handover::{Inheritance, Offer, Taken};
use crate::health::Health;
use crate::log::{self, Writer};
use crate::metrics::Snapshot;
use crate::plan::Plan;
use crate::pool::{Bells, Shared};
use crate::reach::{Reach, explain, privileges};
use crate::run::{Apply, CLOSING_NS, CORE_THREAD, Common, Luggage, Message, run_core};

/// A proxy at work.
#[derive(Debug)]
pub struct Running {
    cores: rt::cores::Running<Snapshot>,
    messages: Vec<mpsc::Sender<Message>>,
    doors: Doors,
    health: Health,
    /// As the config has it: without the servers that names lead to.
    template: Arc<Plan>,
    plan: Arc<Plan>,
    shared: Arc<Shared>,
    bells: Bells,
    board: Board,
    log: Log,
    admin: Option<Single>,
    control: Option<ControlDoor>,
    reloads: u64,
    confinement: Confinement,
    drain: Drain,
    in_force: watch::Sender<InForce>,
    /// Whether another process is at work.
    left: watch::Sender<bool>,
    /// Until when a port may still be held by who empties its queue.
    ports_held_until_ns: u64,
}

/// The cores' end of the log thread, and ours.
type Log = (log::Sender, Writer);

/// What a plan needs of the system.
struct Prepared {
    /// `None`: its logs are those of the plan before.
    log: Option<Log>,
    shared: Arc<Shared>,
    /// Why those could not be opened again.
    reopen_error: Option<io::Error>,
}

/// What went wrong at the end.
#[derive(Debug)]
pub struct Ended {
    /// A core failed; the others have been stopped then.
    pub failure: Option<CoreFailure>,
    /// Whether all log lines were written.
    pub logs_written: bool,
}

/// Messages that a core may have waiting.
const MESSAGES_MAX: usize = 16;
/// How long cores, or a process that was replaced, may still empty the queues of doors that are closed.
const PORTS_HELD_NS: u64 = 4 * CLOSING_NS;
/// How long to wait before a port is tried again that is in use.
const PORT_WAIT: Duration = Duration::from_millis(20);
/// How long the log thread may take for what it has at the end.
const LOG_PATIENCE: Duration = Duration::from_secs(2);

/// Binds all addresses, gives up privileges, opens the logs and starts the cores; `drain` stops them.
/// What another process passes on is taken over from `inherited`, and that process told to leave
/// once all is ready. To be called before the process starts any thread.
///
/// # Errors
/// An address, a privilege, a log or a thread could not be had. Nothing is left behind then, and when
/// it was a thread, `drain` has been advanced to [`Stage::Now`].
pub fn start(
    plan: Plan,
    reach: &Reach,
    drain: Drain,
    mut inherited: Option<Inheritance>,
) -> io::Result<Running> {
    let descriptors = raise_descriptor_limit().now;
    let template = Arc::new(plan);
    let count = template.threads;
    let Sockets { doors, admin, control } = Sockets::open(&template, inherited.as_mut())?;
    let bells = Bells::new(count);
    let shared = Shared::new(&template, &bells, None)?;
    let confinement = give_up(&privileges(&template, reach)).map_err(io::Error::other)?;
    let log = log::start(&template.logs, count)?;
    let mut health = Health::start()?;
    let plan = Arc::new(health.resolve(&template));
    let shared = Arc::new(Shared::new(&plan, &bells, Some((&template, &shared)))?);
    let (board, inboxes) = Board::new(count)?;
    let table = Table::Own(kept(&board, &inboxes, &shared));
    let common = Common {
        board: board.clone(),
        bells: bells.clone(),
        drain: drain.clone(),
        connections_max: connections_max(&plan, descriptors),
        accepting: Arc::new(count.into()),
    };
    let (messages, luggage) = pack(inboxes, || apply_for(&plan, &shared, &log.0, &doors));
    let (in_force, seen) = watch::channel(InForce::new(&plan, &shared, doors.opened(&plan), 0));
    let (left, is_left) = watch::channel(false);
    let (admin, admin_listener) = admin.unzip();
    // Before the cores: they have to be able to wake its runtime.
    let asker = || Asker::new(&messages, &health, drain.watch(), seen, is_left);
    let pages = admin_listener.map(|listener| asker::start(listener, asker())).transpose()?;
    let seats = Cores { count, name: CORE_THREAD, pin: plan.pin.clone(), spin: false, table };
    let body = move |seat, luggage| run_core(seat, luggage, common.clone());
    let cores =
        rt::cores::start_with(&seats, luggage, body).inspect_err(|_| drain.advance(Stage::Now))?;
    let mut running = Running {
        cores,
        messages,
        doors,
        health,
        template,
        plan,
        shared,
        bells,
        board,
        log,
        admin,
        control,
        reloads: 0,
        confinement,
        drain,
        in_force,
        left,
        ports_held_until_ns: 0,
    };
    running.begin(inherited, pages).inspect_err(|_| running.drain.advance(Stage::Now))?;
    Ok(running)
}

/// Everything that is bound.
struct Sockets {
    doors: Doors,
    /// With the socket that is to be used.
    admin: Option<(Single, Listener)>,
    control: Option<ControlDoor>,
}

impl Sockets {
    /// Binds what the plan says, or takes it over.
    fn open(plan: &Plan, mut inherited: Option<&mut Inheritance>) -> io::Result<Self> {
        let mut doors = Doors::default();
        doors.open(plan, plan.threads, inherited.as_deref_mut())?;
        let admin = plan.admin.as_ref();
        let admin =
            admin.map(|address| Single::open(address, inherited.as_deref_mut())).transpose()?;
        let control = ControlDoor::open(plan, inherited.as_deref_mut())?;
        if let Some(inherited) = inherited {
            inherited.leave_the_rest();
        }
        Ok(Self { doors, admin, control })
    }
}

/// The descriptors that cores keep in their own tables.
fn kept(board: &Board, inboxes: &[Inbox], shared: &Shared) -> Vec<RawFd> {
    let mut kept = board.numbers();
    kept.extend(inboxes.iter().map(Inbox::number));
    kept.extend(shared.pools.iter().flat_map(|pool| pool.numbers()));
    kept
}

/// What each core takes with it, and the ways to tell them something.
fn pack(
    inboxes: Vec<Inbox>,
    first: impl Fn() -> Apply,
) -> (Vec<mpsc::Sender<Message>>, Vec<Luggage>) {
    let pack = |inbox| {
        let (sender, messages) = mpsc::channel(MESSAGES_MAX);
        (sender, Luggage { first: first(), inbox, messages })
    };
    inboxes.into_iter().map(pack).unzip()
}

/// What cores are to follow.
fn apply_for(plan: &Arc<Plan>, shared: &Arc<Shared>, log: &log::Sender, doors: &Doors) -> Apply {
    Apply {
        plan: Arc::clone(plan),
        shared: Arc::clone(shared),
        log: log.clone(),
        doors: doors.listeners(),
    }
}

impl Running {
    /// Takes over from the other process, if there is one, and lets the cores and the admin pages
    /// accept.
    fn begin(
        &mut self,
        inherited: Option<Inheritance>,
        pages: Option<oneshot::Sender<()>>,
    ) -> io::Result<()> {
        if let Some(inherited) = inherited {
            inherited.ready()?;
            self.ports_held_until_ns = now_ns() + PORTS_HELD_NS;
        }
        // What we have taken over is nobody's but ours from here on.
        self.doors.take_over();
        self.admin.iter_mut().for_each(Single::take_over);
        self.control.iter_mut().for_each(ControlDoor::take_over);
        self.doors.send(&self.board, self.plan.threads)?;
        // They are gone only when they could not be started.
        pages.map(|pages| pages.send(()));
        self.health.follow(&self.plan, &self.shared);
        Ok(())
    }

    /// Where it listens.
    #[must_use]
    pub fn opened(&self) -> Vec<Opened> {
        self.doors.opened(&self.plan)
    }

    /// Where metrics are, if anywhere.
    #[must_use]
    pub fn admin(&self) -> Option<&Address> {
        self.admin.as_ref().map(Single::address)
    }

    /// Where it can be operated, if anywhere.
    #[must_use]
    pub fn control(&self) -> Option<&std::path::Path> {
        self.control.as_ref().map(ControlDoor::path)
    }

    /// Obeys what comes over the control socket, if there is one. `give` passes on what is for
    /// whoever holds this; it says whether somebody still does.
    ///
    /// # Errors
    /// The thread for it could not be started.
    pub fn open_control(
        &mut self,
        give: impl Fn(Order) -> bool + Send + Sync + 'static,
    ) -> io::Result<()> {
        let Some(control) = &mut self.control else { return Ok(()) };
        control.hear(Desk {
            messages: self.messages.clone(),
            drain: self.drain.watch(),
            started_ns: now_ns(),
            give: Box::new(give),
            passing_on: OneAtATime::default(),
        })
    }

    /// Does what came as [`Order::Errand`].
    pub fn run_errand(&self, errand: Errand) {
        errand.run(self);
    }

    pub(crate) fn in_force(&self) -> InForce {
        self.in_force.borrow().clone()
    }

    /// Copies of all listening sockets, for another process. None while this one is being stopped.
    ///
    /// # Errors
    /// No descriptor left.
    pub fn offers(&self) -> io::Result<Vec<Offer>> {
        let mut offers = self.doors.offers()?;
        if let Some(admin) = &self.admin {
            offers.extend(admin.offer()?);
        }
        if let Some(control) = &self.control {
            offers.extend(control.offer()?);
        }
        Ok(offers)
    }

    /// Another process is at work on what it has taken: accepts no more there, and drains. Clients
    /// that are between two requests may send one more.
    pub fn leave(&mut self, taken: &Taken) {
        let doors = self.doors.leave(taken);
        if self.admin.as_mut().is_some_and(|admin| admin.leave(taken)) {
            self.left.send_replace(true);
        }
        if let Some(control) = &mut self.control {
            control.leave(taken);
        }
        self.tell_all(|done| Message::Leave(doors.clone(), done));
        self.drain.advance(Stage::Draining);
        self.stop_listening();
    }

    /// Returns once every core has said that it is there; one that hangs never does.
    pub fn wait_for_cores(&self) {
        self.tell_all(Message::Ping);
    }

    /// Looks after what is due: some times a second.
    pub fn tend(&mut self) {
        self.doors.close_late(now_ns());
    }

    /// Tells all cores, and waits until they have followed.
    fn tell_all(&self, mut message: impl FnMut(oneshot::Sender<()>) -> Message) {
        let mut told = Vec::new();
        for messages in &self.messages {
            let (done, is_done) = oneshot::channel();
            // A core that has ended follows nothing any more.
            if messages.blocking_send(message(done)).is_ok() {
                told.push(is_done);
            }
        }
        for told in told {
            let _ = told.blocking_recv();
        }
    }

    /// What became of the confinement of files.
    #[must_use]
    pub fn confinement(&self) -> &Confinement {
        &self.confinement
    }

    /// How many cores it has.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.plan.threads
    }

    /// Whether all cores have ended.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.cores.is_finished()
    }

    /// Opens the logs' files anew.
    ///
    /// # Errors
    /// Every one that could not be opened; its lines go where they went before.
    pub fn reopen_logs(&self) -> io::Result<()> {
        self.log.1.reopen().map_err(|error| explain(error, &self.confinement))
    }

    /// Notes a config that was refused before it came here.
    pub fn note_refused_reload(&self, why: &str) {
        self.in_force.send_modify(|force| force.results.note(Some(why), unix_ns()));
    }

    /// Puts a new plan into force: new requests follow it, those in flight end under the old one.
    /// Returns once all cores follow it, with what went wrong with logs that are to be opened again.
    ///
    /// # Errors
    /// A new address, log or namespace could not be had, or the plan changes what takes a restart:
    /// then the old plan stays as it is.
    pub fn reload(&mut self, plan: Plan) -> io::Result<Option<io::Error>> {
        let needs_restart = self.needs_restart(&plan);
        if !needs_restart.is_empty() {
            let text = format!(
                "these keys cannot change while the proxy runs: {}; put them back, or restart it \
                 (weir proxy --upgrade-from restarts it without a gap)",
                needs_restart.join(", ")
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let template = Arc::new(Plan { threads: self.plan.threads, ..plan });
        let plan = self.health.resolve(&template);
        let reopened = self.apply(plan).map_err(|error| explain(error, &self.confinement))?;
        self.template = template;
        self.in_force.send_modify(|force| force.results.note(None, unix_ns()));
        Ok(reopened.map(|error| explain(error, &self.confinement)))
    }

    /// Follows the names of servers where they lead by now. To be called now and then.
    ///
    /// # Errors
    /// As [`Running::reload`]; then the servers stay as they are.
    pub fn follow_names(&mut self) -> io::Result<()> {
        if !self.health.has_news() || self.is_draining() {
            return Ok(());
        }
        let plan = self.health.expand(&self.template);
        let servers = |plan: &Plan| -> Vec<_> {
            plan.pools.iter().map(|pool| pool.servers.clone()).collect()
        };
        match servers(&plan) == servers(&self.plan) {
            true => Ok(()),
            false => self.apply(plan).map(drop),
        }
    }

    /// Puts a plan into force; why logs could not be opened again, if that was so.
    fn apply(&mut self, plan: Plan) -> io::Result<Option<io::Error>> {
        let plan = Arc::new(plan);
        let before = self.doors.count();
        let prepared = self.prepare(&plan);
        let Prepared { log, shared, reopen_error } =
            prepared.inspect_err(|_| self.doors.forget_after(before))?;
        if self.doors.assign(&plan) {
            self.ports_held_until_ns = now_ns() + PORTS_HELD_NS;
        }
        let sender = log.as_ref().map_or(&self.log.0, |(sender, _)| sender).clone();
        self.tell_all(|done| {
            Message::Apply(Box::new(apply_for(&plan, &shared, &sender, &self.doors)), done)
        });
        // Only now do cores know what the new doors are.
        self.doors.send(&self.board, plan.threads)?;
        (self.plan, self.shared) = (plan, shared);
        self.health.follow(&self.plan, &self.shared);
        self.reloads += 1;
        let opened = self.opened();
        let now = InForce::new(&self.plan, &self.shared, opened, self.reloads);
        self.in_force.send_modify(|force| {
            let results = std::mem::take(&mut force.results);
            *force = InForce { results, ..now };
        });
        if let Some(log) = log {
            let (sender, writer) = std::mem::replace(&mut self.log, log);
            drop(sender);
            writer.finish(LOG_PATIENCE);
        }
        Ok(reopen_error)
    }

    /// Gets what a plan needs of the system, before anything of the old one is changed.
    fn prepare(&mut self, plan: &Plan) -> io::Result<Prepared> {
        while let Err(error) = self.doors.open(plan, plan.threads, None) {
            if error.kind() != io::ErrorKind::AddrInUse || now_ns() >= self.ports_held_until_ns {
                return Err(error);
            }
            std::thread::sleep(PORT_WAIT);
        }
        let log = match plan.logs == self.plan.logs {
            true => None,
            false => Some(log::start(&plan.logs, plan.threads)?),
        };
        let shared = Shared::new(plan, &self.bells, Some((&self.plan, &self.shared)))?;
        let reopen_error = log.as_ref().map_or_else(|| self.log.1.reopen().err(), |_| None);
        Doors::set_access(plan, &self.plan)?;
        Ok(Prepared { log, shared: Arc::new(shared), reopen_error })
    }

    /// What of a plan is only looked at when the process starts.
    fn needs_restart(&self, plan: &Plan) -> Vec<&'static str> {
        let old = &self.plan;
        [
            ("threads", plan.threads_given && plan.threads != old.threads),
            ("pin", plan.pin != old.pin),
            ("connections-max", plan.connections_max != old.connections_max),
            ("admin", plan.admin != old.admin),
            ("control", plan.control != old.control),
            ("privileges", plan.privileges != old.privileges),
        ]
        .into_iter()
        .filter_map(|(name, changed)| changed.then_some(name))
        .collect()
    }

    /// Whether it is being stopped.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.drain.watch().stage() != Stage::Running
    }

    /// Gives up its own copies of the listening sockets: from then on the kernel refuses connections
    /// as soon as the cores have closed theirs. To be called when the drain starts.
    pub fn stop_listening(&mut self) {
        self.doors.stop_listening();
    }

    /// Waits until the drain is over.
    pub fn join(mut self) -> Ended {
        self.stop_listening();
        let failure = self.cores.join().into_iter().find_map(Result::err);
        let (sender, writer) = self.log;
        drop(sender);
        Ended { failure, logs_written: writer.finish(LOG_PATIENCE) }
    }
}
