//! Target processes of a lab command: existing processes, the listener on a port, or a command that
//! is started for it.

use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use experiment::engine::environment::program_file;
use record::units::SECOND_NS;
use rt::clock::now_ns;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

use crate::exit::Failure;

/// Interval at which ended processes are polled.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Maximum time a command may take to end after SIGTERM.
const TERM_TIMEOUT_NS: u64 = 2 * SECOND_NS;
/// Shell script that waits for a line, and then becomes the command.
const WAIT_SCRIPT: &str = "read -r _ && exec \"$@\" </dev/null";

/// Specification of the target process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ProfileTarget {
    Pids(Vec<i32>),
    Listener(SocketAddr),
    Command(Vec<String>),
}

/// Processes of a target that exist.
#[derive(Debug)]
pub(super) struct RunningTarget {
    pids: Vec<i32>,
    child: Option<Child>,
}

impl ProfileTarget {
    /// Finds the processes or starts the command; a command waits for `Running::go`.
    pub(super) fn start(&self) -> Result<RunningTarget, Failure> {
        match self {
            Self::Pids(pids) => Ok(RunningTarget { pids: pids.clone(), child: None }),
            Self::Listener(address) => {
                let pids = host::sockets::find_listeners(*address);
                let pids = pids.map_err(|error| Failure::cannot("--port", error))?;
                if pids.is_empty() {
                    let why = format!("no process on this machine listens on {address}");
                    return Err(Failure::cannot("--port", why));
                }
                Ok(RunningTarget { pids, child: None })
            }
            Self::Command(command_line) => {
                check_program(command_line.first().map_or("", String::as_str))?;
                let child = Command::new("sh")
                    .args(["-c", WAIT_SCRIPT, "sh"])
                    .args(command_line)
                    .stdin(Stdio::piped())
                    .stdout(io::stderr())
                    // With its own group, the processes that it starts can be ended with it.
                    .process_group(0)
                    .spawn()
                    .map_err(|error| Failure::cannot("COMMAND", error))?;
                let pid = i32::try_from(child.id()).unwrap_or(0);
                Ok(RunningTarget { pids: vec![pid], child: Some(child) })
            }
        }
    }
}

/// Reports why a program cannot be started, before anything waits for it.
fn check_program(name: &str) -> Result<(), Failure> {
    if program_file(name).is_some() {
        return Ok(());
    }
    let why = match (name.contains('/'), Path::new(name).exists()) {
        (false, _) => "not found in PATH",
        (true, true) => "not an executable program",
        (true, false) => "not found",
    };
    Err(Failure::cannot(name, why))
}

impl RunningTarget {
    pub(super) fn process_tree(&self) -> Vec<i32> {
        host::process_tree::with_descendants(&self.pids)
    }

    /// Lets a waiting command begin.
    pub(super) fn release_command(&mut self) -> Result<(), Failure> {
        let stdin = self.child.as_mut().and_then(|child| child.stdin.take());
        let Some(mut stdin) = stdin else { return Ok(()) };
        stdin.write_all(b"\n").map_err(|error| Failure::cannot("COMMAND", error))
    }

    pub(super) fn has_ended(&mut self) -> bool {
        match &mut self.child {
            Some(child) => child.try_wait().is_ok_and(|status| status.is_some()),
            None => self.pids.iter().all(|pid| !Path::new(&format!("/proc/{pid}")).exists()),
        }
    }
}

impl Drop for RunningTarget {
    /// Ends a command that was started here, with its children; other processes continue.
    fn drop(&mut self) {
        if self.child.is_none() || self.has_ended() {
            return;
        }
        let Some(group) = self.pids.first().and_then(|&pid| Pid::from_raw(pid)) else { return };
        // Nobody has waited for it, so its process id stays valid even after it has ended.
        let _ = kill_process_group(group, Signal::TERM);
        let deadline_ns = now_ns() + TERM_TIMEOUT_NS;
        let wait_options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        while matches!(waitid(WaitId::Pid(group), wait_options), Ok(None)) && now_ns() < deadline_ns {
            std::thread::sleep(POLL_INTERVAL);
        }
        let _ = kill_process_group(group, Signal::KILL);
        if let Some(child) = &mut self.child {
            let _ = child.wait();
        }
    }
}

/// Sleeps for a moment, at most for `max_ns`.
pub(super) fn pause(max_ns: u64) {
    std::thread::sleep(POLL_INTERVAL.min(Duration::from_nanos(max_ns)));
}
