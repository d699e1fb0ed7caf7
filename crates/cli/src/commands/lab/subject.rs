//! The program that a command of the lab looks at: processes that are there, whoever listens on a
//! port, or a command that is started for it.

use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use lab::engine::environment::program_file;
use record::units::SECOND_NS;
use rt::clock::now_ns;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

use crate::exit::Failure;

/// How often it is looked whether anything has ended.
const LOOK: Duration = Duration::from_millis(50);
/// How long a command may take to end when it is asked to.
const PATIENCE_NS: u64 = 2 * SECOND_NS;
/// Waits for a line, and becomes the command.
const WAITS: &str = "read -r _ && exec \"$@\" </dev/null";

/// Which program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Subject {
    Pids(Vec<i32>),
    Listener(SocketAddr),
    Command(Vec<String>),
}

/// A program that is there.
#[derive(Debug)]
pub(super) struct Running {
    pids: Vec<i32>,
    child: Option<Child>,
}

impl Subject {
    /// Finds or starts it; a command waits for [`Running::go`].
    pub(super) fn start(&self) -> Result<Running, Failure> {
        match self {
            Self::Pids(pids) => Ok(Running { pids: pids.clone(), child: None }),
            Self::Listener(address) => {
                let pids = host::sockets::listeners_of(*address);
                let pids = pids.map_err(|error| Failure::cannot("--port", error))?;
                if pids.is_empty() {
                    let why = format!("nothing on this machine listens on {address}");
                    return Err(Failure::cannot("--port", why));
                }
                Ok(Running { pids, child: None })
            }
            Self::Command(words) => {
                check_program(words.first().map_or("", String::as_str))?;
                let child = Command::new("sh")
                    .args(["-c", WAITS, "sh"])
                    .args(words)
                    .stdin(Stdio::piped())
                    .stdout(io::stderr())
                    // So that what it starts can be ended with it.
                    .process_group(0)
                    .spawn()
                    .map_err(|error| Failure::cannot("COMMAND", error))?;
                let pid = i32::try_from(child.id()).unwrap_or(0);
                Ok(Running { pids: vec![pid], child: Some(child) })
            }
        }
    }
}

/// Says of a program that cannot be started why, before anything waits for it.
fn check_program(name: &str) -> Result<(), Failure> {
    if program_file(name).is_some() {
        return Ok(());
    }
    let why = match (name.contains('/'), Path::new(name).exists()) {
        (false, _) => "not found in PATH",
        (true, true) => "it is no program that may be executed",
        (true, false) => "not found",
    };
    Err(Failure::cannot(name, why))
}

impl Running {
    /// Its processes with the children that they have now.
    pub(super) fn family(&self) -> Vec<i32> {
        host::family::with_descendants(&self.pids)
    }

    /// Lets a command begin.
    pub(super) fn go(&mut self) -> Result<(), Failure> {
        let stdin = self.child.as_mut().and_then(|child| child.stdin.take());
        let Some(mut stdin) = stdin else { return Ok(()) };
        stdin.write_all(b"\n").map_err(|error| Failure::cannot("COMMAND", error))
    }

    /// Whether all its processes have ended.
    pub(super) fn has_ended(&mut self) -> bool {
        match &mut self.child {
            Some(child) => child.try_wait().is_ok_and(|status| status.is_some()),
            None => self.pids.iter().all(|pid| !Path::new(&format!("/proc/{pid}")).exists()),
        }
    }
}

impl Drop for Running {
    /// Ends a command that was started for this, with what it started; others go on.
    fn drop(&mut self) {
        if self.child.is_none() || self.has_ended() {
            return;
        }
        let Some(group) = self.pids.first().and_then(|&pid| Pid::from_raw(pid)) else { return };
        // It has not been waited for, so the number is still its own, also after it has ended.
        let _ = kill_process_group(group, Signal::TERM);
        let until_ns = now_ns() + PATIENCE_NS;
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        while matches!(waitid(WaitId::Pid(group), look), Ok(None)) && now_ns() < until_ns {
            std::thread::sleep(LOOK);
        }
        let _ = kill_process_group(group, Signal::KILL);
        if let Some(child) = &mut self.child {
            let _ = child.wait();
        }
    }
}

/// Waits for a while, at most for so long.
pub(super) fn pause(most_ns: u64) {
    std::thread::sleep(LOOK.min(Duration::from_nanos(most_ns)));
}
