//! Commands to the owner of the proxy. They run in its thread, one after the other, so that nothing
//! changes in the middle of a reload.

use std::io;
use std::sync::mpsc::SyncSender;

use record::problem::InputProblem;

use super::active_config::ActiveConfig;
use super::handover::UpgradeCommand;
use super::runtime_servers::{ServerSetChange, ServerSetError};
use crate::maintenance::MaintenancePage;

/// Channel for the result of a command: the text to print, or the error.
pub type ReplySender = SyncSender<Result<String, OwnerError>>;

/// Reason why a command changed nothing, in lines for people.
#[derive(Debug, thiserror::Error)]
pub enum OwnerError {
    /// The proxy drains.
    #[error("config not reloaded: this process is stopping")]
    Stopping,
    /// Another process has copies of the listening sockets.
    #[error("config not reloaded: another process is taking over; reload the new process after the upgrade")]
    TakingOver,
    /// The proxy runs without a config file. The logs were reopened instead, except those in the error.
    #[error("{}", no_file_text(.0.as_ref()))]
    NoFile(Option<io::Error>),
    #[error("{}{UNCHANGED}", lines(.0))]
    Invalid(Vec<InputProblem>),
    /// The plan could not be put into force.
    #[error("{0}\n{UNCHANGED}")]
    NotApplied(io::Error),
    #[error(transparent)]
    Servers(ServerSetError),
    /// The state file could not be written.
    #[error("changed, but only until this process ends: state-file: {0}")]
    StateFile(io::Error),
    /// These logs could not be opened.
    #[error(transparent)]
    Logs(io::Error),
}

/// Last line of each refused config.
const UNCHANGED: &str = "config not applied; the active config is unchanged";

fn no_file_text(reopen_error: Option<&io::Error>) -> String {
    match reopen_error {
        None => "no config file to reload; logs reopened".to_owned(),
        Some(error) => format!("no config file to reload\n{error}"),
    }
}

fn lines(problems: &[InputProblem]) -> String {
    problems.iter().map(|problem| format!("{problem}\n")).collect()
}

/// A change of the maintenance of all pools.
#[derive(Debug)]
pub enum MaintenanceChange {
    /// Start it, with a page of the operator; `None`: with the error page for 503.
    On(Option<MaintenancePage>),
    Off,
}

/// A command from the control socket for the owner of the proxy.
#[derive(Debug)]
pub enum ControlCommand {
    /// Read the config again and apply it.
    Reload(ReplySender),
    Reopen(ReplySender),
    /// Add a server to a pool, or remove one.
    ChangeServers(ServerSetChange, ReplySender),
    /// Put all pools into maintenance, or end it; the reply is their number.
    Maintenance(MaintenanceChange, ReplySender),
    /// Write the state file after a change.
    SaveState(ReplySender),
    /// Start to drain, as SIGTERM does.
    Drain,
    /// Pass it to [`RunningProxy::run_task`](super::RunningProxy::run_task).
    RunTask(OwnerTask),
    /// A new process requests the listening sockets, or has taken them.
    Upgrade(UpgradeCommand),
}

/// A closure that the owner of the proxy runs with the state in force. It runs between two reloads.
pub struct OwnerTask(Box<dyn FnOnce(&ActiveConfig) + Send>);

impl std::fmt::Debug for OwnerTask {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OwnerTask").finish_non_exhaustive()
    }
}

impl OwnerTask {
    pub(super) fn new(task: impl FnOnce(&ActiveConfig) + Send + 'static) -> Self {
        Self(Box::new(task))
    }

    pub(super) fn run(self, active: &ActiveConfig) {
        (self.0)(active);
    }
}
