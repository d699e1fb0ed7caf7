//! The foreground part of an apply: a command with its signals, or a time.

use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Command, ExitStatus};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use rt::clock::now_ns;
use rt::drain::BlockedSignals;
use rustix::process::{Pid, Signal, kill_process};

use crate::exit::Exit;

/// Interval at which the end of the command is polled.
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// Longest single wait for a signal.
const WAIT_MAX: Duration = Duration::from_secs(3600);

/// Foreground part of an apply.
#[derive(Debug)]
pub(super) struct Foreground {
    time_limit_ns: Option<u64>,
    command: Vec<String>,
    signals: Receiver<i32>,
}

pub(super) fn words_after_dashes(arguments: &[String]) -> Vec<String> {
    let at = arguments.iter().position(|word| word == "--");
    at.map(|at| arguments[at + 1..].to_vec()).unwrap_or_default()
}

impl Foreground {
    /// Starts to receive signals.
    ///
    /// # Errors
    /// The thread of the signals cannot be started.
    pub(super) fn new(
        time_limit_ns: Option<u64>,
        command: &[String],
        blocked: BlockedSignals,
    ) -> io::Result<Self> {
        let (sender, signals) = channel();
        blocked.spawn_listener(move |number| sender.send(number).is_ok())?;
        Ok(Self { time_limit_ns, command: command.to_vec(), signals })
    }

    /// Waits for the end: of the command, of the time, or a signal.
    ///
    /// # Errors
    /// The command cannot be started.
    pub(super) fn wait(&self) -> io::Result<Exit> {
        match self.command.split_first() {
            Some((program, arguments)) => self.run_command(program, arguments),
            None => {
                self.wait_for_time();
                Ok(Exit::Done)
            }
        }
    }

    fn wait_for_time(&self) {
        let end_ns = now_ns().saturating_add(self.time_limit_ns.unwrap_or(u64::MAX));
        loop {
            let left = Duration::from_nanos(end_ns.saturating_sub(now_ns()));
            // A signal ends the wait; without a thread of signals only the time does.
            if left.is_zero() || self.signals.recv_timeout(left.min(WAIT_MAX)).is_ok() {
                return;
            }
        }
    }

    fn run_command(&self, program: &str, arguments: &[String]) -> io::Result<Exit> {
        let explain = |error: io::Error| io::Error::new(error.kind(), format!("{program}: {error}"));
        let mut child = Command::new(program).args(arguments).spawn().map_err(explain)?;
        let end_ns = self.time_limit_ns.map(|ns| now_ns().saturating_add(ns));
        let mut is_ended = false;
        loop {
            if let Some(status) = child.try_wait()? {
                return Ok(Exit::Command(exit_code(status)));
            }
            if end_ns.is_some_and(|end_ns| now_ns() >= end_ns) && !is_ended {
                pass_on(&child, Signal::TERM.as_raw());
                is_ended = true;
            }
            if let Ok(number) = self.signals.recv_timeout(POLL_INTERVAL) {
                pass_on(&child, number);
            }
        }
    }
}

/// Sends a signal to the command. A terminal sends Ctrl-C to the command itself.
fn pass_on(child: &Child, number: i32) {
    use std::io::IsTerminal as _;
    let is_from_terminal = number == Signal::INT.as_raw() && io::stdin().is_terminal();
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    if let (Some(pid), Some(signal), false) = (pid, Signal::from_named_raw(number), is_from_terminal) {
        // An error means that the command has ended, which the next poll finds.
        let _ = kill_process(pid, signal);
    }
}

/// Returns the exit code of a command as a shell does.
fn exit_code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_stands_behind_the_first_two_dashes() {
        let words = |line: &str| -> Vec<String> { line.split(' ').map(str::to_owned).collect() };
        assert_eq!(words_after_dashes(&words("weir tune apply proxy -- a -- b")), ["a", "--", "b"]);
        assert!(words_after_dashes(&words("weir tune apply proxy")).is_empty());
        assert_eq!(exit_code(ExitStatus::from_raw(3 << 8)), 3);
        assert_eq!(exit_code(ExitStatus::from_raw(15)), 143);
    }
}
