//! The proxy as a whole, seen from outside of its cores: started, told of a new plan, asked for
//! metrics, stopped. It runs in the caller's thread; the data path never waits for it.

use std::io;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use rt::address::Address;
use rt::board::{Board, Inbox};
use rt::clock::now_ns;
use rt::cores::{CoreFailure, Cores, Table};
use rt::drain::{Drain, DrainWatch, Stage};
use rt::limits::raise_descriptor_limit;
use rt::listen::{Bound, Listener, Options};
use rt::local::PrivateSocket;
use rt::namespace::Namespace;
use rt::privileges::{Confinement, Files, Privileges, RESOLVER, give_up};
use rt::tokio::sync::{mpsc, oneshot};

use crate::admin;
use crate::ctl::{self, Desk, Errand, InForce, Order};
use crate::health::{self, Health};
use crate::log::{self, Writer};
use crate::metrics::Snapshot;
use crate::plan::{LogTarget, Mode, Plan};
use crate::pool::{Bells, Shared};
use crate::run::{Apply, Common, Luggage, Message, Opened, run_core};

/// A proxy at work.
#[derive(Debug)]
pub struct Running {
    cores: rt::cores::Running<Snapshot>,
    messages: Vec<mpsc::Sender<Message>>,
    doors: Vec<Door>,
    health: Health,
    /// As the config has it: without the servers that names lead to.
    template: Arc<Plan>,
    plan: Arc<Plan>,
    shared: Arc<Shared>,
    bells: Bells,
    board: Board,
    log: Log,
    admin: Option<Address>,
    /// Removed from the file system with this.
    control: Option<PrivateSocket>,
    reloads: u64,
    confinement: Confinement,
    drain: DrainWatch,
}

/// The cores' end of the log thread, and ours.
type Log = (log::Sender, Writer);

/// A bound address.
#[derive(Debug)]
struct Door {
    /// As the config has it; a port 0 in it is another port each time.
    wanted: Address,
    namespace: Option<PathBuf>,
    /// `None`: it is closed, and its number is not used again.
    bound: Option<Bound>,
    /// Our own copies of its sockets: cores have theirs in other tables, and whoever asks the system
    /// who listens there (`ss -ltnp`) is shown those of the process's first thread only.
    shown: Vec<Listener>,
    listener: usize,
}

/// Files that the process has to reach besides what its plan says.
#[derive(Clone, Debug, Default)]
pub struct Reach {
    /// For reading: the config.
    pub read: Vec<PathBuf>,
}

/// What went wrong at the end.
#[derive(Debug)]
pub struct Ended {
    /// A core failed; the others have been stopped then.
    pub failure: Option<CoreFailure>,
    /// Whether all log lines were written.
    pub logs_written: bool,
}

/// Descriptors that connections leave to the rest of the process.
const DESCRIPTORS_RESERVED: u64 = 64;
/// Messages that a core may have waiting.
const MESSAGES_MAX: usize = 16;
/// How long the log thread may take for what it has at the end.
const LOG_PATIENCE: Duration = Duration::from_secs(2);

/// Binds all addresses, gives up privileges, opens the logs and starts the cores; `drain` stops them.
/// To be called before the process starts any thread.
///
/// # Errors
/// An address, a privilege, a log or a thread could not be had. Nothing is left behind then, and when
/// it was a thread, `drain` has been advanced to [`Stage::Now`].
pub fn start(plan: Plan, reach: &Reach, drain: Drain) -> io::Result<Running> {
    let descriptors = raise_descriptor_limit().now;
    let template = Arc::new(plan);
    let plan = &template;
    let cores = plan.threads;
    let mut doors = Vec::new();
    open_doors(&mut doors, plan, cores)?;
    let admin = plan.admin.as_ref().map(|address| Bound::new(address, 1)).transpose()?;
    let control = bind_control(plan)?;
    let bells = Bells::new(cores);
    let shared = Shared::new(plan, &bells, None)?;
    let confinement = give_up(&privileges(plan, reach)).map_err(io::Error::other)?;
    let log = log::start(&plan.logs, cores)?;
    let mut health = Health::start()?;
    let plan = Arc::new(health.resolve(&template));
    let shared = Arc::new(Shared::new(&plan, &bells, Some((&template, &shared)))?);
    let (board, inboxes) = Board::new(cores)?;
    let mut kept = board.numbers();
    kept.extend(inboxes.iter().map(Inbox::number));
    kept.extend(shared.pools.iter().flat_map(|pool| pool.numbers()));
    let (messages, waiting): (Vec<_>, Vec<_>) =
        (0..cores).map(|_| mpsc::channel(MESSAGES_MAX)).unzip();
    // A request takes two descriptors: one for each side.
    let by_descriptors = descriptors.saturating_sub(DESCRIPTORS_RESERVED) / 2;
    let connections_max = plan.connections_max.unwrap_or(by_descriptors as usize).max(cores);
    let common = Common { board, bells: bells.clone(), drain: drain.clone(), connections_max };
    let first = || apply_for(&plan, &shared, &log.0, &doors);
    let pack = |(inbox, messages)| Luggage { first: first(), inbox, messages };
    let luggage = inboxes.into_iter().zip(waiting).map(pack).collect();
    let shown = admin.as_ref().map(|bound| bound.address().clone());
    if let Some(bound) = admin {
        // Before the cores: they have to be able to wake its runtime.
        start_admin(bound, Asker::new(&messages, &health, drain.watch()))?;
    }
    let table = Table::Own(kept);
    let seats = Cores { count: cores, name: "proxy", pin: plan.pin.clone(), spin: false, table };
    let sender = common.board.clone();
    let running = rt::cores::start_with(&seats, luggage, move |seat, luggage| {
        run_core(seat, luggage, common.clone())
    });
    let running = running
        .and_then(|running| send_listeners(&mut doors, &sender, cores).map(|()| running))
        .inspect_err(|_| drain.advance(Stage::Now))?;
    health.follow(&plan, &shared);
    Ok(Running {
        cores: running,
        messages,
        doors,
        health,
        template,
        plan,
        shared,
        bells,
        board: sender,
        log,
        admin: shown,
        control,
        reloads: 0,
        confinement,
        drain: drain.watch(),
    })
}

/// Binds the control socket, while we may, for the user that we become.
fn bind_control(plan: &Plan) -> io::Result<Option<PrivateSocket>> {
    let owner = plan.privileges.user.map(|user| (user, plan.privileges.group));
    plan.control.as_ref().map(|path| PrivateSocket::bind(path, owner)).transpose()
}

/// Binds what is wanted and not bound yet; numbers of doors are never used again.
fn open_doors(doors: &mut Vec<Door>, plan: &Plan, cores: usize) -> io::Result<()> {
    let mut wanted_doors = Vec::new();
    for (index, listener) in plan.listeners.iter().enumerate() {
        for address in &listener.bind {
            let namespace = &listener.namespace;
            let known = doors.iter().enumerate().position(|(at, door)| {
                door.bound.is_some()
                    && door.wanted == *address
                    && door.namespace == *namespace
                    && !wanted_doors.contains(&at)
            });
            if let Some(at) = known {
                wanted_doors.push(at);
                continue;
            }
            let entered = namespace.as_deref().map(Namespace::open).transpose()?;
            let backlog = listener.admission.backlog;
            let options = Options { namespace: entered.as_ref(), backlog };
            let bound = Bound::with(address, cores, options)?;
            wanted_doors.push(doors.len());
            let namespace = namespace.clone();
            let wanted = address.clone();
            doors.push(Door {
                wanted,
                namespace,
                bound: Some(bound),
                shown: Vec::new(),
                listener: index,
            });
        }
    }
    Ok(())
}

/// What cores are to follow.
fn apply_for(plan: &Arc<Plan>, shared: &Arc<Shared>, log: &log::Sender, doors: &[Door]) -> Apply {
    let belongs = |door: &Door| door.bound.is_some().then_some(door.listener);
    Apply {
        plan: Arc::clone(plan),
        shared: Arc::clone(shared),
        log: log.clone(),
        doors: doors.iter().map(belongs).collect(),
    }
}

/// Gives cores their listening sockets, which they have not got yet. They have tables of their own,
/// so that sockets that were bound here are sent.
fn send_listeners(doors: &mut [Door], board: &Board, cores: usize) -> io::Result<()> {
    for (index, door) in doors.iter_mut().enumerate() {
        for core in 0..cores {
            let listener = door.bound.as_mut().and_then(|bound| bound.take(core, index));
            if let Some(listener) = listener {
                board.send_listener(core, &listener)?;
                door.shown.push(listener);
            }
        }
    }
    Ok(())
}

fn privileges(plan: &Plan, reach: &Reach) -> Privileges {
    let wanted = &plan.privileges;
    let folder_of = |path: &PathBuf| {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        folder.map_or_else(|| PathBuf::from("."), PathBuf::from)
    };
    let written = plan.logs.iter().filter_map(|log| match &log.target {
        LogTarget::File(path) => Some(folder_of(path)),
        _ => None,
    });
    let bound = plan.listeners.iter().flat_map(|listener| &listener.bind);
    let sockets = bound.filter_map(|address| match address {
        Address::Unix(path) => Some(folder_of(path)),
        Address::Tcp(_) => None,
    });
    let sockets = sockets.chain(plan.control.iter().map(folder_of));
    let keys = plan.pools.iter().filter_map(|pool| pool.sticky.as_ref()?.key_file.as_ref());
    let read =
        reach.read.iter().chain(keys).map(folder_of).chain(RESOLVER.iter().map(PathBuf::from));
    let files = Files {
        read: read.chain(["/proc/self".into(), "/var/run/netns".into()]).collect(),
        write: written.chain(sockets).chain(["/dev".into()]).collect(),
    };
    Privileges {
        user: wanted.user,
        group: wanted.group,
        no_new_privileges: wanted.no_new_privileges,
        files: wanted.landlock.then_some(files),
    }
}

impl Running {
    /// Where it listens.
    #[must_use]
    pub fn opened(&self) -> Vec<Opened> {
        let shown = |door: &Door| {
            let bound = door.bound.as_ref()?;
            let listener = &self.plan.listeners[door.listener];
            Some(Opened {
                listener: listener.name.clone(),
                address: bound.address().clone(),
                http: listener.mode == Mode::Http,
                accepts: bound.mode().describe(),
            })
        };
        self.doors.iter().filter_map(shown).collect()
    }

    /// Where metrics are, if anywhere.
    #[must_use]
    pub fn admin(&self) -> Option<&Address> {
        self.admin.as_ref()
    }

    /// Where it can be operated, if anywhere.
    #[must_use]
    pub fn control(&self) -> Option<&std::path::Path> {
        self.control.as_ref().map(PrivateSocket::path)
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
        let Some(listener) = self.control.as_mut().and_then(PrivateSocket::take) else {
            return Ok(());
        };
        let (messages, drain) = (self.messages.clone(), self.drain.clone());
        let desk = Desk { messages, drain, started_ns: now_ns(), give: Box::new(give) };
        ctl::start(listener, desk)
    }

    /// Does what came as [`Order::Errand`].
    pub fn run_errand(&self, errand: Errand) {
        errand.run(self);
    }

    pub(crate) fn in_force(&self) -> InForce {
        let (plan, shared) = (Arc::clone(&self.plan), Arc::clone(&self.shared));
        InForce { plan, shared, opened: self.opened(), reloads: self.reloads }
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
    pub fn reopen_logs(&self) {
        self.log.1.reopen();
    }

    /// Puts a new plan into force: new requests follow it, those in flight end under the old one.
    /// Returns once all cores follow it, with what of it needs a restart.
    ///
    /// # Errors
    /// A new address, log or namespace could not be had: then the old plan stays as it is.
    pub fn reload(&mut self, plan: Plan) -> io::Result<Vec<&'static str>> {
        let needs_restart = self.needs_restart(&plan);
        let template = Arc::new(Plan { threads: self.plan.threads, ..plan });
        let plan = self.health.resolve(&template);
        self.apply(plan)?;
        self.template = template;
        Ok(needs_restart)
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
            false => self.apply(plan),
        }
    }

    fn apply(&mut self, plan: Plan) -> io::Result<()> {
        let plan = Arc::new(plan);
        let before = self.doors.len();
        let prepared = self.prepare(&plan);
        let (log, shared) = prepared.inspect_err(|_| self.doors.truncate(before))?;
        self.assign_doors(&plan);
        let sender = log.as_ref().map_or(&self.log.0, |(sender, _)| sender).clone();
        let mut applied = Vec::new();
        for messages in &self.messages {
            let apply = apply_for(&plan, &shared, &sender, &self.doors);
            let (done, is_done) = oneshot::channel();
            // A core that has ended follows nothing any more.
            if messages.blocking_send(Message::Apply(Box::new(apply), done)).is_ok() {
                applied.push(is_done);
            }
        }
        for applied in applied {
            let _ = applied.blocking_recv();
        }
        // Only now do cores know what the new doors are.
        send_listeners(&mut self.doors, &self.board, plan.threads)?;
        (self.plan, self.shared) = (plan, shared);
        self.health.follow(&self.plan, &self.shared);
        self.reloads += 1;
        if let Some(log) = log {
            let (sender, writer) = std::mem::replace(&mut self.log, log);
            drop(sender);
            writer.finish(LOG_PATIENCE);
        }
        Ok(())
    }

    /// Gets what a plan needs of the system, before anything of the old one is changed; `None`: its
    /// logs are the same.
    fn prepare(&mut self, plan: &Plan) -> io::Result<(Option<Log>, Arc<Shared>)> {
        open_doors(&mut self.doors, plan, plan.threads)?;
        let log = match plan.logs == self.plan.logs {
            true => None,
            false => Some(log::start(&plan.logs, plan.threads)?),
        };
        let shared = Shared::new(plan, &self.bells, Some((&self.plan, &self.shared)))?;
        if log.is_none() {
            self.log.1.reopen();
        }
        Ok((log, Arc::new(shared)))
    }

    /// Closes the doors that the plan does not have, and gives the others to their listeners.
    fn assign_doors(&mut self, plan: &Plan) {
        let mut taken = vec![false; self.doors.len()];
        for (index, listener) in plan.listeners.iter().enumerate() {
            for address in &listener.bind {
                let fits = |(at, door): (usize, &Door)| {
                    door.bound.is_some()
                        && !taken[at]
                        && door.wanted == *address
                        && door.namespace == listener.namespace
                };
                if let Some(at) = self.doors.iter().enumerate().position(fits) {
                    taken[at] = true;
                    self.doors[at].listener = index;
                }
            }
        }
        for (door, taken) in self.doors.iter_mut().zip(taken) {
            if !taken {
                door.bound = None;
                door.shown.clear();
            }
        }
    }

    /// What of a plan is only looked at when the process starts.
    fn needs_restart(&self, plan: &Plan) -> Vec<&'static str> {
        let old = &self.plan;
        [
            ("threads", plan.threads != old.threads),
            ("pin", plan.pin != old.pin),
            ("connections-max", plan.connections_max != old.connections_max),
            ("drain-timeout", plan.drain_timeout_ns != old.drain_timeout_ns),
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
        self.drain.stage() != Stage::Running
    }

    /// Gives up its own copies of the listening sockets: from then on the kernel refuses connections
    /// as soon as the cores have closed theirs. To be called when the drain starts.
    pub fn stop_listening(&mut self) {
        for door in &mut self.doors {
            door.shown.clear();
        }
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

/// Asks the cores, for the admin pages.
struct Asker {
    messages: Vec<mpsc::Sender<Message>>,
    health: mpsc::Sender<health::Order>,
    drain: DrainWatch,
}

impl Asker {
    fn new(messages: &[mpsc::Sender<Message>], health: &Health, drain: DrainWatch) -> Self {
        Self { messages: messages.to_vec(), health: health.orders(), drain }
    }
}

impl admin::Source for Asker {
    async fn snapshot(&self) -> Snapshot {
        let mut answers = Vec::with_capacity(self.messages.len());
        for messages in &self.messages {
            let (reply, answer) = oneshot::channel();
            // A core that has ended has nothing more to say.
            if messages.send(Message::Snapshot(reply)).await.is_ok() {
                answers.push(answer);
            }
        }
        let mut whole = Snapshot::default();
        for answer in answers {
            if let Ok(snapshot) = answer.await {
                whole.merge(snapshot);
            }
        }
        let (reply, answer) = oneshot::channel();
        if self.health.send(health::Order::Snapshot(reply)).await.is_ok()
            && let Ok(snapshot) = answer.await
        {
            whole.merge(snapshot);
        }
        whole
    }

    fn is_draining(&self) -> bool {
        self.drain.stage() != Stage::Running
    }
}

/// Serves the admin pages from a thread of its own, which ends with the process. Returns once its
/// runtime is there.
fn start_admin(bound: Bound, asker: Asker) -> io::Result<()> {
    let (ready, is_ready) = std::sync::mpsc::channel();
    std::thread::Builder::new().name("admin".to_owned()).spawn(move || {
        let served = rt::cores::block_on(async move {
            // Whoever started us waits for it.
            let _ = ready.send(());
            admin::serve(bound, Rc::new(asker)).await
        });
        if let Err(error) = served {
            eprintln!("weir: the admin pages are gone: {error}");
        }
    })?;
    is_ready.recv().map_err(|_| io::Error::other("the admin pages could not be started"))
}
