//! Commands to the owner of the proxy. They run in its thread, one after the other, so that nothing
//! changes in the middle of a reload.

use std::sync::mpsc::SyncSender;

use super::active_config::ActiveConfig;
use super::handover::UpgradeCommand;

/// Channel for the result of a command: the text to print, or the error.
pub type ReplySender = SyncSender<Result<String, String>>;

/// A command from the control socket for the owner of the proxy.
#[derive(Debug)]
pub enum ControlCommand {
    /// Read the config again and apply it.
    Reload(ReplySender),
    /// Reopen the log files.
    Reopen(ReplySender),
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
