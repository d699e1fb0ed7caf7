//! Execution of commands: some ask the cores, others go to the owner of the proxy. Every wait has a
//! timeout.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Duration;

use record::sorted::sort_by_key;
use rt::clock::{MonotonicTime, SECOND_NS};
use rt::drain::{DrainStage, DrainWatch};
use rt::tokio::sync::oneshot;

use super::CommandError;
use crate::control::active_config::ActiveConfig;
use crate::control::owner::{ControlCommand, OwnerTask, ReplySender};
use crate::metrics::Snapshot;
use crate::profile::{ProfileCommand, ProfileTotals};
use crate::run::{Command, CoreSenders};
use crate::session::{SessionList, SessionQuery};

/// Context of a command: the ways to the cores and to the proxy's owner.
pub(crate) struct CommandContext {
    pub(crate) cores: CoreSenders,
    pub(crate) drain: DrainWatch,
    pub(crate) started: MonotonicTime,
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

impl CommandContext {
    /// Asks every core, at the same time. Returns the replies of the cores that have not ended.
    fn ask_cores<T>(&self, build: impl Fn(oneshot::Sender<T>) -> Command) -> Result<Vec<T>, CommandError> {
        let end = MonotonicTime::now() + CORES_TIMEOUT_NS;
        let failed = |error| CommandError::Failed(format!("respond: {error}"));
        self.cores.ask_blocking(Some(end.as_ns()), build).map_err(failed)
    }

    pub(crate) fn snapshot(&self) -> Result<Snapshot, CommandError> {
        Ok(self.ask_cores(Command::Snapshot)?.into_iter().collect())
    }

    /// Makes all cores follow changed settings of servers. Returns once they do.
    pub(crate) fn refresh_servers(&self) -> Result<(), CommandError> {
        self.ask_cores(Command::RefreshServers).map(drop)
    }

    pub(crate) fn sessions(&self, query: &SessionQuery) -> Result<SessionList, CommandError> {
        let mut all = SessionList::default();
        for mut core_sessions in self.ask_cores(|reply| Command::Sessions(query.clone(), reply))? {
            all.matched += core_sessions.matched;
            all.sessions.append(&mut core_sessions.sessions);
        }
        sort_by_key(&mut all.sessions, |session| session.id);
        Ok(all)
    }

    pub(crate) fn profile(&self, switch: ProfileCommand) -> Result<ProfileTotals, CommandError> {
        let mut all = ProfileTotals::default();
        for totals in self.ask_cores(|reply| Command::Profile(switch, reply))? {
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
        wait_for_owner(&receiver)?.map_err(CommandError::invalid)
    }

    /// Runs a closure in the thread of the proxy's owner. It runs between two reloads, and so sees
    /// a consistent state.
    pub(crate) fn run_on_owner<T: Send + 'static>(
        &self,
        task: impl FnOnce(&ActiveConfig) -> T + Send + 'static,
    ) -> Result<T, CommandError> {
        let (reply, receiver) = sync_channel(1);
        // The caller may have given up waiting.
        let task = move |active: &ActiveConfig| drop(reply.try_send(task(active)));
        self.send_command(ControlCommand::RunTask(OwnerTask::new(task)))?;
        wait_for_owner(&receiver)
    }

    pub(crate) fn active_config(&self) -> Result<ActiveConfig, CommandError> {
        self.run_on_owner(ActiveConfig::clone)
    }

    /// Sends a command without waiting for its result.
    pub(crate) fn send_command(&self, command: ControlCommand) -> Result<(), CommandError> {
        match (self.send_to_owner)(command) {
            true => Ok(()),
            false => Err(proxy_ended()),
        }
    }

    /// Writes the state file, if the config has one. Called after a change that it keeps.
    pub(crate) fn save_state(&self) -> Result<(), CommandError> {
        self.run_command(ControlCommand::SaveState).map(drop)
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
