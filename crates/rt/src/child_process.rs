//! Programs that run for a bounded time: the end of what they write is kept, and none of them outlives its
//! caller. [`run_to_end`] blocks its thread, so it is for threads that serve no connections.

use std::io::{self, ErrorKind, Read};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::ioctl_fionbio;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

use crate::clock::MonotonicTime;

/// Interval at which the end of a program is noticed.
const POLL_MS: u64 = 10;
const READ_BYTES: usize = 16 * 1024;
/// Maximum number of reads before the end of the program is checked again: it may write without end.
const READS_MAX: usize = 64;

/// Result of a program that has ended, or was killed.
#[derive(Debug)]
pub struct FinishedProgram {
    pub status: ExitStatus,
    /// True if it did not end in time, and was killed with its descendants.
    pub is_killed: bool,
    /// The last bytes that it wrote to its standard error.
    pub stderr_end: Vec<u8>,
}

/// Runs a program in a process group of its own, without input, until it ends. At the end of its time, or
/// when it has ended, all processes in its group are killed. Of its standard error the last
/// `stderr_bytes_max` bytes are kept; its standard output is discarded.
///
/// # Errors
/// The program cannot be started.
pub fn run_to_end(
    command: &mut Command,
    timeout: Duration,
    stderr_bytes_max: usize,
) -> io::Result<FinishedProgram> {
    let deadline = MonotonicTime::now() + timeout.as_nanos() as u64;
    command.process_group(0).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = KilledChild(command.spawn()?);
    let mut stderr = child.0.stderr.take();
    if let Some(stderr) = &stderr {
        ioctl_fionbio(stderr, true)?;
    }
    let mut tail = Tail { bytes: Vec::new(), bytes_max: stderr_bytes_max };
    let is_killed = loop {
        if stderr.as_mut().is_some_and(|stderr| tail.read(stderr) == StreamState::Ended) {
            stderr = None;
        }
        if child.has_ended()? {
            break false;
        }
        if MonotonicTime::now() >= deadline {
            break true;
        }
        wait_for_bytes(stderr.as_ref());
    };
    child.kill_group();
    if let Some(stderr) = &mut stderr {
        tail.read(stderr);
    }
    Ok(FinishedProgram { status: child.0.wait()?, is_killed, stderr_end: tail.bytes })
}

/// Waits until there is something to read, or for [`POLL_MS`].
fn wait_for_bytes(stderr: Option<&ChildStderr>) {
    let Some(stderr) = stderr else { return std::thread::sleep(Duration::from_millis(POLL_MS)) };
    let timeout = rustix::event::Timespec { tv_sec: 0, tv_nsec: POLL_MS as i64 * 1_000_000 };
    // An interrupted wait is a shorter one.
    let _ = poll(&mut [PollFd::new(stderr, PollFlags::IN)], Some(&timeout));
}

/// Child that is killed with its group when it is dropped.
struct KilledChild(Child);

impl KilledChild {
    /// Returns whether the process has ended. It is not reaped, so that its ID remains its own.
    fn has_ended(&self) -> io::Result<bool> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        Ok(waitid(WaitId::Pid(self.pid()), options)?.is_some())
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.0)
    }

    /// Kills all processes of the group. Must be called before the child is reaped.
    fn kill_group(&self) {
        // The group may have ended meanwhile.
        let _ = kill_process_group(self.pid(), Signal::KILL);
    }
}

impl Drop for KilledChild {
    fn drop(&mut self) {
        if let Ok(None) = self.0.try_wait() {
            self.kill_group();
            let _ = self.0.wait();
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StreamState {
    Open,
    Ended,
}

/// Last bytes of a stream.
struct Tail {
    bytes: Vec<u8>,
    bytes_max: usize,
}

impl Tail {
    /// Reads what there is, at most [`READS_MAX`] times.
    fn read(&mut self, stream: &mut impl Read) -> StreamState {
        let mut buffer = [0; READ_BYTES];
        for _ in 0..READS_MAX {
            match stream.read(&mut buffer) {
                Ok(0) => return StreamState::Ended,
                Ok(read) => self.add(&buffer[..read]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return StreamState::Open,
                Err(_) => return StreamState::Ended,
            }
        }
        StreamState::Open
    }

    fn add(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        let excess = self.bytes.len().saturating_sub(self.bytes_max);
        self.bytes.drain(..excess);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    fn shell(script: &str, timeout: Duration) -> FinishedProgram {
        run_to_end(Command::new("/bin/sh").args(["-c", script]), timeout, 8).unwrap()
    }

    #[test]
    fn the_end_of_what_a_program_writes_is_kept() {
        let finished = shell("echo 0123456789 >&2; echo out; exit 3", LONG);
        assert_eq!((finished.status.code(), finished.is_killed), (Some(3), false));
        assert_eq!(finished.stderr_end, b"3456789\n");
        assert!(run_to_end(&mut Command::new("/no/such/program"), LONG, 8).is_err());
    }

    #[test]
    fn a_program_that_writes_more_than_a_pipe_holds_ends() {
        let finished = shell("head -c 5000000 /dev/zero >&2; echo end >&2", LONG);
        assert!(finished.status.success() && finished.stderr_end.ends_with(b"end\n"), "{finished:?}");
    }

    #[test]
    fn a_program_that_does_not_end_is_killed_with_its_children() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path().display().to_string();
        let finished = shell(&format!("sleep 1000 & echo $! > {path}; yes >&2"), Duration::from_millis(300));
        assert!(finished.is_killed && !finished.status.success(), "{finished:?}");
        let child = std::fs::read_to_string(&path).unwrap();
        // The child is an orphan now: killed, and reaped by init or not yet.
        let is_dead = || {
            let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.trim())).unwrap_or_default();
            stat.is_empty() || stat.contains(") Z ")
        };
        while !is_dead() {
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_descendant_that_keeps_the_stream_open_is_not_waited_for() {
        let finished = shell("sleep 1000 >&2 & exit 0", LONG);
        assert!(finished.status.success() && !finished.is_killed, "{finished:?}");
    }
}
