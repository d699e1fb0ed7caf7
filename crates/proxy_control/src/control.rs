//! The proxy as seen from outside its cores: start, reload, metrics, handoff and stop. The owner of
//! [`RunningProxy`] executes all changes in its own thread; the data path never waits for it.
//!
//! ```text
//!   start: sockets are bound or taken over, privileges dropped, cores started
//!                               |
//!          [with a process to replace: it confirms that it has left]
//!                               v
//!   +--------------------> Running ---------------------------------------------+
//!   |  reload: open, ask      |  |  another process connects: sockets offered    | signal, `drain`,
//!   |  cores, publish         |  v                                               | failed listener
//!   +-- or undo what was      | Preparing: reloads wait (signal) or are refused  |
//!   |   opened                |  |  |                                            |
//!   +-------------------------+--+  | it is ready: HandOff                       |
//!      it leaves: nothing changed   v                                            v
//!                               Draining: sockets closed, requests in flight end, no reload
//!                                   |
//!                                   v   all cores have ended, or the drain timeout
//!                                 Ended: last log lines are written
//! ```
//!
//! Draining is [`DrainStage::Draining`]; the owner in the command line keeps `Preparing`, because only
//! it knows who requested a reload. The threads and their messages:
//!
//! ```text
//!   control socket --ControlCommand--> owner --HealthCommand--> health --Eligibility--+
//!        |                               |                        ^                   |
//!        |                               |     HealthCommand      |                   v
//!        |  Command                      +-Command--> cores       +--- admin     read by the cores
//!        +------------------------------------------> cores <--Command--+
//! ```
//!
//! A core receives only [`Command`], and [`CoreSenders::ask`] is the only way to ask all cores.
//! `active_config` is the published state, `owner` the commands to the owner, `ctl` the control socket, `state_file` what outlives it,
//! `admin` the pages, `handover` the protocol between two processes, `reload` the changes. `listeners`,
//! `sandbox`, `capacity`, `start_check`, `file_watch` and `map_watch` deal with the machine. Only `reload` and
//! `certificates` know [`RunningProxy`], as parts of it.

mod active_config;
mod admin;
mod capacity;
pub mod ctl;
mod file_watch;
pub mod handover;
mod listeners;
mod map_watch;
mod owner;
mod reload;
mod revocation_watch;
mod runtime_servers;
mod sandbox;
mod start_check;
mod state_file;
pub mod supervisor;

use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::Duration;

use rt::address::Address;
use rt::clock::MonotonicTime;
use rt::conn_balancer::{ConnectionBalancer, Inbox};
use rt::cores::{CoreConfig, CoreError, FdTable};
use rt::drain::{Drain, DrainStage};
use rt::limits::raise_descriptor_limit;
use rt::listen::Listener;
use rt::privileges::{Confinement, drop_privileges};
use rt::tokio::sync::{oneshot, watch};

use self::active_config::ActiveConfig;
use self::admin::AdminBackend;
use self::capacity::connections_max;
use self::ctl::{CommandContext, ControlCommand, ControlSocket, OwnerTask, TryLock};
use self::handover::{Handoff, InheritedSockets, OfferedSocket};
use self::listeners::{AdminSocket, ListenAddresses};
use self::map_watch::MapWatch;
use self::revocation_watch::RevocationWatch;
use self::runtime_servers::RuntimeServers;
use self::sandbox::{explain_denied_access, privileges};
use crate::acme::{Acme, acme_plans};
use crate::auth::{key_store, password_threads};
use crate::caching::{file_memory_fd, open_caches, open_file_memory, report_disk_faults};
use crate::health::Health;
use crate::log::{self, LogWriter};
use crate::metrics::Snapshot;
use crate::plan::{AuthMethod, JwtPlan, KeySource, Plan};
use crate::pool::{CoreWakeups, CrossCoreState};
use crate::run::{
    ACCEPT_QUEUE_DRAIN_NS, ApplyPlan, CORE_THREAD, Command, CommonInit, CoreInit, CoreSenders, run_core,
};
use crate::tracing::{self, TraceExporter, TraceSender};

pub use self::file_watch::{FileWatch, PathStates};
pub use self::listeners::ListenAddressInfo;
pub use self::sandbox::SandboxPaths;
pub use self::start_check::check_start;

#[derive(Debug)]
pub struct RunningProxy {
    cores: rt::cores::RunningCores<Snapshot>,
    core_senders: CoreSenders,
    listeners: ListenAddresses,
    health: Health,
    watches: Watches,
    /// `None`: no listener had automatic certificates at the start.
    acme: Option<Acme>,
    /// The plan as configured, without the servers that host names resolve to.
    template: Arc<Plan>,
    plan: Arc<Plan>,
    shared: Arc<CrossCoreState>,
    /// Servers that an operator added or removed.
    runtime_servers: RuntimeServers,
    wakeups: CoreWakeups,
    balancer: ConnectionBalancer,
    log: Log,
    traces: Traces,
    admin: Option<AdminSocket>,
    control: Option<ControlSocket>,
    reloads: u64,
    sandbox: Confinement,
    drain: Drain,
    active_config: watch::Sender<ActiveConfig>,
    /// True once another process has taken over.
    replaced: watch::Sender<bool>,
    /// Until this time a port may still be held by cores or a process that empty its accept queue.
    ports_held_until: MonotonicTime,
}

/// Files and times that are checked periodically.
#[derive(Debug, Default)]
struct Watches {
    maps: MapWatch,
    revocation_lists: RevocationWatch,
}

/// The cores' end of the log thread, and the control side's.
type Log = (log::LogSender, LogWriter);
type Traces = (TraceSender, TraceExporter);

/// Time that the end of the process gives the collector for the last spans.
const TRACES_TIMEOUT: Duration = Duration::from_secs(2);

/// Errors at the proxy's end.
#[derive(Debug)]
pub struct ProxyExit {
    /// A failed core; the others have been stopped in that case.
    pub failure: Option<CoreError>,
    /// True if all log lines were written.
    pub logs_written: bool,
}

/// Maximum time in which cores, or a replaced process, empty the accept queues of closed listeners.
const PORTS_HELD_NS: u64 = 4 * ACCEPT_QUEUE_DRAIN_NS;
/// Maximum time for the log thread to write its remaining lines at the end.
const LOG_TIMEOUT: Duration = Duration::from_secs(2);

/// Binds all addresses, drops privileges, opens the logs and starts the cores; `drain` stops them.
/// Takes over the sockets in `inherited`, and makes the old process stop accepting once
/// everything is ready. Must be called before the process starts any thread.
///
/// # Errors
/// An address, a privilege, a log or a thread was not available. Everything is released then. If it
/// was a thread, `drain` has been advanced to [`DrainStage::Abort`].
pub fn start(
    plan: Plan,
    extra_paths: &SandboxPaths,
    drain: Drain,
    mut inherited: Option<InheritedSockets>,
) -> io::Result<RunningProxy> {
    let descriptor_limit = raise_descriptor_limit().current;
    let (count, template) = (plan.threads, Arc::new(plan));
    let ProxySockets { listeners, admin, control } = ProxySockets::open(&template, inherited.as_mut())?;
    let wakeups = CoreWakeups::new(count);
    let shared = CrossCoreState::new(&template, &wakeups, None)?;
    let sandbox = drop_privileges(&privileges(&template, extra_paths)).map_err(io::Error::other)?;
    let log = log::start(&template.logs, count)?;
    let mut health = Health::start()?;
    let (acme, traces) = start_plan_threads(&template)?;
    let plan = Arc::new(health.resolve(&template));
    let shared = Arc::new(CrossCoreState::new(&plan, &wakeups, Some((&template, &shared)))?);
    let (balancer, inboxes) = ConnectionBalancer::new(count)?;
    let table = FdTable::Unshared(core_descriptors(&balancer, &inboxes, &shared));
    let common_init = CommonInit {
        balancer: balancer.clone(),
        wakeups: wakeups.clone(),
        drain: drain.clone(),
        connections_max: connections_max(&plan, descriptor_limit),
        accepting_cores: Arc::new(count.into()),
    };
    let initial = apply_command(&plan, &shared, (&log.0, &traces.0), &listeners);
    let (core_senders, core_inits) = build_core_inits(inboxes, &initial);
    let (active_sender, active_receiver) =
        watch::channel(ActiveConfig::new(&plan, &shared, listeners.listen_addresses(&plan), 0));
    let (replaced_sender, replaced_receiver) = watch::channel(false);
    let (admin, admin_listener) = admin.unzip();
    // Before the cores, which must be able to wake its runtime.
    let backend =
        || AdminBackend::new(&core_senders, &health, drain.watch(), active_receiver, replaced_receiver);
    let pages = admin_listener.map(|listener| admin::start(listener, backend())).transpose()?;
    let cores_config =
        CoreConfig { count, name: CORE_THREAD, pin: plan.pin.clone(), spin: false, fd_table: table };
    let run = move |core_id, core_inits| run_core(core_id, core_inits, common_init.clone());
    let cores = rt::cores::start_with_init(&cores_config, core_inits, run)
        .inspect_err(|_| drain.advance(DrainStage::Abort))?;
    let mut running = RunningProxy {
        cores,
        core_senders,
        listeners,
        health,
        watches: Watches::default(),
        acme,
        template,
        plan,
        shared,
        runtime_servers: RuntimeServers::default(),
        wakeups,
        balancer,
        log,
        traces,
        admin,
        control,
        reloads: 0,
        sandbox,
        drain,
        active_config: active_sender,
        replaced: replaced_sender,
        ports_held_until: MonotonicTime::ZERO,
    };
    running.start_accepting(inherited, pages).inspect_err(|_| running.drain.advance(DrainStage::Abort))?;
    running.follow_certificates();
    Ok(running)
}

struct ProxySockets {
    listeners: ListenAddresses,
    admin: Option<(AdminSocket, Listener)>,
    control: Option<ControlSocket>,
}

impl ProxySockets {
    /// Binds the plan's sockets, or takes them over.
    fn open(plan: &Plan, mut inherited: Option<&mut InheritedSockets>) -> io::Result<Self> {
        let mut listeners = ListenAddresses::default();
        listeners.open(plan, plan.threads, inherited.as_deref_mut())?;
        let admin = plan.admin.as_ref();
        let admin = admin.map(|address| AdminSocket::open(address, inherited.as_deref_mut())).transpose()?;
        let control = ControlSocket::open(plan, inherited.as_deref_mut())?;
        if let Some(inherited) = inherited {
            inherited.import_tickets(plan);
            inherited.close_untaken();
        }
        Ok(Self { listeners, admin, control })
    }
}

/// Returns the descriptors that cores keep in their own tables.
fn core_descriptors(balancer: &ConnectionBalancer, inboxes: &[Inbox], shared: &CrossCoreState) -> Vec<RawFd> {
    let mut descriptors = balancer.raw_fds();
    descriptors.extend(inboxes.iter().map(Inbox::raw_fd));
    descriptors.extend(file_memory_fd());
    descriptors.extend(shared.pools.iter().flat_map(|pool| pool.raw_fds()));
    descriptors
}

fn build_core_inits(inboxes: Vec<Inbox>, initial: &ApplyPlan) -> (CoreSenders, Vec<CoreInit>) {
    let (senders, receivers) = CoreSenders::channels(inboxes.len());
    let build = |(inbox, commands)| CoreInit { initial: initial.clone(), inbox, commands };
    (senders, inboxes.into_iter().zip(receivers).map(build).collect())
}

/// Starts the threads that a plan needs beside the cores.
fn start_plan_threads(plan: &Plan) -> io::Result<(Option<Acme>, Traces)> {
    start_auth_threads(plan)?;
    open_file_memory(plan);
    open_caches(plan)?;
    let acme = (!acme_plans(plan).is_empty()).then(Acme::start).transpose()?;
    Ok((acme, tracing::start(plan.tracing.as_ref(), Arc::default())?))
}

/// Starts the threads that the authentication of a plan needs, unless they run.
fn start_auth_threads(plan: &Plan) -> io::Result<()> {
    for auth in plan.auth_plans() {
        match &auth.method {
            AuthMethod::Basic(_) => password_threads::start(plan.password_threads)?,
            AuthMethod::Jwt(JwtPlan { keys: KeySource::Url(_), .. }) => key_store::start(),
            AuthMethod::Jwt(_) | AuthMethod::Request(_) => {}
        }
    }
    Ok(())
}

/// Builds the command that puts a plan into force on a core.
fn apply_command(
    plan: &Arc<Plan>,
    shared: &Arc<CrossCoreState>,
    (log, traces): (&log::LogSender, &TraceSender),
    listeners: &ListenAddresses,
) -> ApplyPlan {
    ApplyPlan {
        plan: Arc::clone(plan),
        shared: Arc::clone(shared),
        log: log.clone(),
        traces: traces.clone(),
        listener_of_socket: listeners.listener_of_socket(),
    }
}

impl RunningProxy {
    /// Takes over from the other process, if there is one, and lets the cores and the admin pages
    /// accept.
    fn start_accepting(
        &mut self,
        inherited: Option<InheritedSockets>,
        pages: Option<oneshot::Sender<()>>,
    ) -> io::Result<()> {
        self.restore_state();
        if let Some(inherited) = inherited {
            inherited.report_ready()?;
            self.ports_held_until = MonotonicTime::now() + PORTS_HELD_NS;
        }
        // From here on the inherited sockets belong to this process alone.
        self.listeners.take_over();
        self.admin.iter_mut().for_each(AdminSocket::take_over);
        self.control.iter_mut().for_each(ControlSocket::take_over);
        self.listeners.send_to_cores(&self.balancer)?;
        // The receiver is gone only if the pages could not be started.
        pages.map(|pages| pages.send(()));
        self.health.apply_plan(&self.plan, &self.shared);
        Ok(())
    }

    /// Returns the open listening sockets.
    pub fn listen_addresses(&self) -> Vec<ListenAddressInfo> {
        self.listeners.listen_addresses(&self.plan)
    }

    pub fn admin(&self) -> Option<&Address> {
        self.admin.as_ref().map(AdminSocket::address)
    }

    pub fn control(&self) -> Option<&std::path::Path> {
        self.control.as_ref().map(ControlSocket::path)
    }

    /// Starts to run commands from the control socket, if there is one. `send_command` passes commands on
    /// to the owner of this value, and returns whether there still is one.
    ///
    /// # Errors
    /// The thread could not be started.
    pub fn start_control(
        &mut self,
        send_command: impl Fn(ControlCommand) -> bool + Send + Sync + 'static,
    ) -> io::Result<()> {
        let Some(control) = &mut self.control else { return Ok(()) };
        control.listen(CommandContext {
            cores: self.core_senders.clone(),
            drain: self.drain.watch(),
            started: MonotonicTime::now(),
            send_to_owner: Box::new(send_command),
            upgrade_lock: TryLock::default(),
        })
    }

    /// Runs a task that came as [`ControlCommand::RunTask`].
    pub fn run_task(&self, task: OwnerTask) {
        let active = self.active_config.borrow().clone();
        task.run(&active);
    }

    /// Watches the files of the plan in force. `before`: their states before they were last read.
    pub fn watch_files(&self, watch: &mut FileWatch, before: Option<PathStates>) {
        watch.set_loaded(before, &self.template);
    }

    /// Copies all listening sockets for another process. Empty while this process is stopping.
    ///
    /// # Errors
    /// No free descriptor.
    pub fn offered_sockets(&self) -> io::Result<Vec<OfferedSocket>> {
        let mut offered = self.listeners.offered_sockets(&self.plan)?;
        if let Some(admin) = &self.admin {
            offered.extend(admin.offered_socket()?);
        }
        if let Some(control) = &self.control {
            offered.extend(control.offered_socket()?);
        }
        Ok(offered)
    }

    /// Hands over to another process that has taken sockets: stops accepting on them and drains.
    /// Clients between two requests may send one more.
    pub fn hand_off(&mut self, handoff: &Handoff) {
        let handed_off = self.listeners.hand_off(handoff);
        if self.admin.as_mut().is_some_and(|admin| admin.hand_off(handoff)) {
            self.replaced.send_replace(true);
        }
        if let Some(control) = &mut self.control {
            control.hand_off(handoff);
        }
        // The other process uses their directories from now on.
        self.plan.caches.iter().filter_map(|plan| plan.store.get()).for_each(|cache| cache.release_disk());
        self.ask_cores(|done_sender| Command::HandOff(handed_off.clone(), done_sender));
        self.drain.advance(DrainStage::Draining);
        self.stop_listening();
    }

    /// Returns once every core has responded. A core that hangs never does.
    pub fn wait_for_cores(&self) {
        self.ask_cores(Command::Ping);
    }

    /// Does periodic work. Must be called several times a second.
    pub fn tick(&mut self) {
        self.listeners.close_expired(MonotonicTime::now());
        self.apply_new_certificates();
        report_disk_faults(&self.plan);
        self.watches.maps.poll(&self.plan, MonotonicTime::now());
        self.watches.revocation_lists.poll(&self.plan, MonotonicTime::now());
    }

    /// Asks all cores, and waits until they have executed the command. Without a deadline: a core that
    /// hangs must be noticed, by the watchdog of the service manager, and not be left behind.
    fn ask_cores(&self, build: impl Fn(oneshot::Sender<()>) -> Command) {
        // Invariant: without a deadline it cannot time out.
        let _ = self.core_senders.ask_blocking(None, build);
    }

    pub fn sandbox(&self) -> &Confinement {
        &self.sandbox
    }

    pub fn threads(&self) -> usize {
        self.plan.threads
    }

    pub fn is_finished(&self) -> bool {
        self.cores.is_finished()
    }

    /// Reopens the log files.
    ///
    /// # Errors
    /// Every file that could not be opened; its lines go where they went before.
    pub fn reopen_logs(&self) -> io::Result<()> {
        self.log.1.reopen().map_err(|error| explain_denied_access(error, &self.sandbox))
    }

    pub fn is_draining(&self) -> bool {
        self.drain.watch().stage() != DrainStage::Running
    }

    /// Closes this thread's copies of the listening sockets. From then on the kernel refuses
    /// connections as soon as the cores have closed theirs. Must be called when the drain starts.
    pub fn stop_listening(&mut self) {
        self.listeners.stop_listening();
    }

    /// Waits until the drain is over.
    pub fn join(mut self) -> ProxyExit {
        self.stop_listening();
        let failure = self.cores.join().into_iter().find_map(Result::err);
        let (sender, writer) = self.log;
        let (spans, exporter) = self.traces;
        drop((sender, spans));
        exporter.finish(TRACES_TIMEOUT);
        ProxyExit { failure, logs_written: writer.finish(LOG_TIMEOUT) }
    }
}

impl RunningProxy {
    /// Puts certificates into force that have been issued since the last call.
    pub(super) fn apply_new_certificates(&mut self) {
        if !self.acme.as_mut().is_some_and(Acme::take_issued) || self.is_draining() {
            return;
        }
        let renewed = self.template.with_stored_certificates().map_err(io::Error::other);
        if let Err(error) = renewed.and_then(|plan| self.reload(plan)) {
            eprintln!("weir: the new certificate is not in use: {error}");
        }
    }

    /// Informs the thread of automatic certificates of the plan.
    pub(super) fn follow_certificates(&self) {
        if let Some(acme) = &self.acme {
            acme.apply_plan(&self.plan);
        }
    }
}
