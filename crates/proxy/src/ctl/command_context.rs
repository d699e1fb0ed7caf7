//! Execution of commands: messages query the cores, and commands go to the owner of the proxy. Every
//! wait has a timeout.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use rt::clock::{SECOND_NS, now_ns};
use rt::drain::{DrainStage, DrainWatch};
use rt::tokio::sync::mpsc::error::TrySendError;
use rt::tokio::sync::oneshot::error::TryRecvError;
use rt::tokio::sync::{mpsc, oneshot};

use super::CommandError;
use crate::control::RunningProxy;
use crate::handover::UpgradeCommand;
use crate::listeners::ListenAddressInfo;
use crate::metrics::Snapshot;
use crate::plan::Plan;
use crate::pool::CrossCoreState;
use crate::profile::{ProfileCommand, ProfileTotals};
use crate::run::CoreCommand;
use crate::session::{SessionList, SessionQuery};

/// Channel for the result of a command: the text to print, or the error.
pub type ReplySender = SyncSender<Result<String, String>>;

/// A command from the control socket for the owner of the [`RunningProxy`].
#[derive(Debug)]
pub enum ControlCommand {
    /// Read the config again and apply it.
    Reload(ReplySender),
    /// Reopen the log files.
    Reopen(ReplySender),
    /// Start to drain, as SIGTERM does.
    Drain,
    /// Pass it to [`RunningProxy::run_task`].
    RunTask(OwnerTask),
    /// A new process requests the listening sockets, or has taken them.
    Upgrade(UpgradeCommand),
}

/// A closure that the owner of a [`RunningProxy`] runs with it.
pub struct OwnerTask(Box<dyn FnOnce(&RunningProxy) + Send>);

impl std::fmt::Debug for OwnerTask {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OwnerTask").finish_non_exhaustive()
    }
}

impl OwnerTask {
    pub(crate) fn run(self, running: &RunningProxy) {
        (self.0)(running);
    }
}

/// The state in force.
#[derive(Clone, Debug)]
pub(crate) struct ActiveConfig {
    pub(crate) plan: Arc<Plan>,
    pub(crate) shared: Arc<CrossCoreState>,
    pub(crate) listen_addresses: Vec<ListenAddressInfo>,
    pub(crate) reloads: u64,
    pub(crate) reload_results: ReloadResults,
}

/// Results of the requested reloads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ReloadResults {
    pub(crate) applied: u64,
    pub(crate) refused: u64,
    /// Time in nanoseconds since 1970; 0: never.
    pub(crate) applied_unix_ns: u64,
    pub(crate) refused_unix_ns: u64,
    /// Reason why the last reload was refused; `None`: it was not.
    pub(crate) refusal: Option<Arc<str>>,
}

impl ReloadResults {
    /// Records the result of a reload, with its time since 1970.
    pub(crate) fn record(&mut self, refusal: Option<&str>, unix_ns: u64) {
        self.refusal = refusal.map(Arc::from);
        let (count, at_ns) = match refusal {
            None => (&mut self.applied, &mut self.applied_unix_ns),
            Some(_) => (&mut self.refused, &mut self.refused_unix_ns),
        };
        *count += 1;
        *at_ns = unix_ns;
    }

    /// Returns the last result as text for people.
    pub(crate) fn summary(&self) -> String {
        match &self.refusal {
            // The first line has the position of the error.
            Some(reason) => format!("refused: {}", reason.lines().next().unwrap_or_default()),
            None if self.applied > 0 => "applied".to_owned(),
            None => "none".to_owned(),
        }
    }
}

impl ActiveConfig {
    pub(crate) fn new(
        plan: &Arc<Plan>,
        shared: &Arc<CrossCoreState>,
        listen_addresses: Vec<ListenAddressInfo>,
        reloads: u64,
    ) -> Self {
        let reload_results = ReloadResults::default();
        Self { plan: Arc::clone(plan), shared: Arc::clone(shared), listen_addresses, reloads, reload_results }
    }
}

/// Context of a command: the ways to the cores and to the proxy's owner.
pub(crate) struct CommandContext {
    pub(crate) core_senders: Vec<mpsc::Sender<CoreCommand>>,
    pub(crate) drain: DrainWatch,
    pub(crate) started_ns: u64,
    /// Passes a command to the owner of the proxy; `false`: the owner has ended.
    pub(crate) send_to_owner: Box<dyn Fn(ControlCommand) -> bool + Send + Sync>,
    /// Lock: only one process at a time may take the sockets.
    pub(crate) upgrade_lock: TryLock,
}

/// A lock that only one holder can have.
#[derive(Debug, Default)]
pub(crate) struct TryLock(AtomicBool);

/// Guard of a [`TryLock`], released on drop.
#[derive(Debug)]
pub(crate) struct TryLockGuard<'a>(&'a AtomicBool);

impl TryLock {
    /// Takes the lock. `None`: it is taken.
    pub(crate) fn try_lock(&self) -> Option<TryLockGuard<'_>> {
        let was_locked = self.0.swap(true, Ordering::SeqCst);
        // A guard releases the lock on drop, so it must only be made when the lock was taken.
        (!was_locked).then(|| TryLockGuard(&self.0))
    }
}

impl Drop for TryLockGuard<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::SeqCst);
    }
}

impl std::fmt::Debug for CommandContext {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CommandContext").finish_non_exhaustive()
    }
}

/// Maximum time for the responses of all cores together.
const CORES_TIMEOUT_NS: u64 = 5 * SECOND_NS;
/// Maximum time for the proxy's owner: a reload opens files and queries name servers.
const OWNER_TIMEOUT: Duration = Duration::from_secs(60);
/// Poll interval for the responses of the cores.
const POLL_INTERVAL: Duration = Duration::from_micros(200);

impl CommandContext {
    /// Queries every core, at the same time. Returns the responses of the cores that have not
    /// ended.
    fn query_cores<T>(
        &self,
        build_message: impl Fn(oneshot::Sender<T>) -> CoreCommand,
    ) -> Result<Vec<T>, CommandError> {
        let end_ns = now_ns() + CORES_TIMEOUT_NS;
        let timeout_error = || CommandError::Failed("respond: the cores timed out".to_owned());
        let mut receivers = Vec::with_capacity(self.core_senders.len());
        for messages in &self.core_senders {
            let (reply, receiver) = oneshot::channel();
            let mut message = build_message(reply);
            loop {
                match messages.try_send(message) {
                    Ok(()) => break receivers.push(receiver),
                    Err(TrySendError::Closed(_)) => break,
                    Err(TrySendError::Full(_)) if now_ns() > end_ns => return Err(timeout_error()),
                    Err(TrySendError::Full(returned)) => message = returned,
                }
                std::thread::sleep(POLL_INTERVAL);
            }
        }
        let mut responses = Vec::with_capacity(receivers.len());
        for mut receiver in receivers {
            loop {
                match receiver.try_recv() {
                    Ok(response) => break responses.push(response),
                    Err(TryRecvError::Closed) => break,
                    Err(TryRecvError::Empty) if now_ns() > end_ns => return Err(timeout_error()),
                    Err(TryRecvError::Empty) => std::thread::sleep(POLL_INTERVAL),
                }
            }
        }
        Ok(responses)
    }

    /// Returns the counters of all cores.
    pub(crate) fn snapshot(&self) -> Result<Snapshot, CommandError> {
        let mut merged = Snapshot::default();
        for snapshot in self.query_cores(CoreCommand::Snapshot)? {
            merged.merge(snapshot);
        }
        Ok(merged)
    }

    /// Makes all cores follow changed settings of servers. Returns once they do.
    pub(crate) fn refresh_servers(&self) -> Result<(), CommandError> {
        self.query_cores(CoreCommand::RefreshServers).map(drop)
    }

    /// Returns the connections of all cores.
    pub(crate) fn sessions(&self, query: &SessionQuery) -> Result<SessionList, CommandError> {
        let mut all = SessionList::default();
        for mut core_sessions in self.query_cores(|reply| CoreCommand::Sessions(query.clone(), reply))? {
            all.matched += core_sessions.matched;
            all.sessions.append(&mut core_sessions.sessions);
        }
        all.sessions.sort_by_key(|session| session.id);
        Ok(all)
    }

    /// Returns the profile of all cores.
    pub(crate) fn profile(&self, switch: ProfileCommand) -> Result<ProfileTotals, CommandError> {
        let mut all = ProfileTotals::default();
        for totals in self.query_cores(|reply| CoreCommand::Profile(switch, reply))? {
            all.add(&totals);
        }
        Ok(all)
    }

    /// Sends a command and waits for its result.
    pub(crate) fn run_command(
        &self,
        build_command: impl FnOnce(ReplySender) -> ControlCommand,
    ) -> Result<String, CommandError> {
        let (reply, receiver) = sync_channel(1);
        self.send_command(build_command(reply))?;
        wait_for_owner(&receiver)?.map_err(CommandError::Invalid)
    }

    /// Runs a closure in the thread of the proxy's owner. It runs between two reloads, and so sees
    /// a consistent state.
    pub(crate) fn run_on_owner<T: Send + 'static>(
        &self,
        task: impl FnOnce(&RunningProxy) -> T + Send + 'static,
    ) -> Result<T, CommandError> {
        let (reply, receiver) = sync_channel(1);
        // The caller may have given up waiting.
        let task = move |running: &RunningProxy| drop(reply.try_send(task(running)));
        self.send_command(ControlCommand::RunTask(OwnerTask(Box::new(task))))?;
        wait_for_owner(&receiver)
    }

    /// Returns the state in force.
    pub(crate) fn active_config(&self) -> Result<ActiveConfig, CommandError> {
        self.run_on_owner(RunningProxy::active_config)
    }

    /// Sends a command without waiting for its result.
    pub(crate) fn send_command(&self, command: ControlCommand) -> Result<(), CommandError> {
        match (self.send_to_owner)(command) {
            true => Ok(()),
            false => Err(proxy_ended()),
        }
    }

    /// Returns whether the proxy is draining: it finishes open requests and accepts no new ones.
    pub(crate) fn is_draining(&self) -> bool {
        self.drain.stage() != DrainStage::Running
    }
}

fn wait_for_owner<T>(receiver: &Receiver<T>) -> Result<T, CommandError> {
    receiver.recv_timeout(OWNER_TIMEOUT).map_err(|error| match error {
        RecvTimeoutError::Timeout => CommandError::Failed(
            "respond in time: the command is still running (see the proxy's stderr)".to_owned(),
        ),
        RecvTimeoutError::Disconnected => proxy_ended(),
    })
}

fn proxy_ended() -> CommandError {
    CommandError::Failed("run the command: the proxy has ended".to_owned())
}
