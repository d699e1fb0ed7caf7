//! The command by which a new process replaces this one. It takes over the stream;
//! [`crate::control::handover`] has the protocol from then on.

use super::{CommandError, CommandRequest, CommandResult, ControlCommand};
use crate::control::handover::{UpgradeCommand, hand_off_sockets};

pub(super) fn run(request: &CommandRequest<'_>) -> CommandResult {
    let [] = request.args else { return Err(request.usage_error(crate::control::handover::COMMAND)) };
    let Some(_guard) = request.context.upgrade_lock.try_lock() else {
        let reason = "pass on the listening sockets: another process is taking them over";
        return Err(CommandError::Failed(reason.to_owned()));
    };
    let stream = request.stream.try_clone();
    let stream = stream.map_err(|error| CommandError::Failed(format!("respond: {error}")))?;
    // If the command cannot be delivered, the sender of the sockets is dropped too.
    let mut send_command = |command| drop(request.context.send_command(ControlCommand::Upgrade(command)));
    match hand_off_sockets(stream, &mut send_command) {
        Ok(true) => return Ok(None),
        Ok(false) => {}
        Err(error) => request.log_change(&format!("upgrade: aborted, nothing changed: {error}")),
    }
    send_command(UpgradeCommand::Abort);
    Ok(None)
}
