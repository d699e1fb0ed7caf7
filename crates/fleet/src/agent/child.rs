//! Child process of an agent: `weir load`, controlled over its stdin and stdout. Never a shell: the arguments
//! are a vector. The end of its stdin stops it, so that it does not outlive an agent that was killed.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};

use record::control::{LoadCommand, LoadEvent, NO_DEFAULTS};
use tokio::sync::mpsc;

use crate::message::StoredRun;

/// Reason why a child process left no record.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChildFailure {
    /// It cannot be started, for this reason of the system.
    #[error("cannot start the child process: {0}")]
    Start(String),
    /// Its record cannot be kept, for this reason of the system.
    #[error("the record: {0}")]
    Record(String),
    /// It reported why it failed.
    #[error("{0}")]
    Reported(String),
    /// It ended with this code (`None`: by a signal), without a message.
    #[error("weir load ended {}", .0.map_or_else(|| "by a signal".to_owned(), |code| format!("with exit code {code}")))]
    Silent(Option<i32>),
}

#[derive(Debug)]
pub(super) enum ChildOutput {
    Event(LoadEvent),
    /// It ended with this code (`None`: by a signal), and these are the last lines of its stderr.
    Ended(Option<i32>, String),
    /// After its end: its record is on the disk, or why there is none.
    Stored(Result<StoredRun, ChildFailure>),
}

#[derive(Debug)]
pub(super) struct LoadChild {
    child: Child,
    stdin: Option<ChildStdin>,
    /// Lines of its stderr arrive when it ends.
    stderr: std::sync::mpsc::Receiver<String>,
}

/// Maximum length of an event: a second has a fixed number of figures.
const EVENT_BYTES_MAX: u64 = 64 * 1024;
const STDERR_BYTES_MAX: usize = 4 * 1024;
/// Events that wait for the agent.
pub(super) const EVENTS_MAX: usize = 256;

impl LoadChild {
    /// Starts `program` with these arguments, without the user's defaults. Its events go to `events`.
    pub(super) fn spawn(
        program: &Path,
        arguments: &[String],
        events: mpsc::Sender<ChildOutput>,
    ) -> io::Result<Self> {
        let mut command = Command::new(program);
        command.env(NO_DEFAULTS, "1");
        // Ctrl-C on the agent's terminal is for the agent, which decides what happens to the load.
        command.process_group(0);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn()?;
        if let Some(stdout) = child.stdout.take() {
            std::thread::Builder::new()
                .name("child".to_owned())
                .spawn(move || read_events(stdout, &events))?;
        }
        let (sender, stderr) = std::sync::mpsc::channel();
        if let Some(pipe) = child.stderr.take() {
            std::thread::Builder::new().name("child-err".to_owned()).spawn(move || {
                // The receiver is gone only if nobody needs the text.
                let _ = sender.send(last_bytes(pipe));
            })?;
        }
        Ok(Self { stdin: child.stdin.take(), child, stderr })
    }

    /// Sends a command. A child that has closed its stdin ends anyway.
    pub(super) fn write(&mut self, command: LoadCommand) {
        if let Some(stdin) = &mut self.stdin {
            let _ = stdin.write_all(format!("{command}\n").as_bytes());
        }
    }

    pub(super) fn kill(&mut self) {
        let _ = self.child.kill();
    }

    pub(super) fn poll_end(&mut self) -> Option<ChildOutput> {
        let status = self.child.try_wait().ok().flatten()?;
        let stderr = self.stderr.recv_timeout(std::time::Duration::from_secs(1)).unwrap_or_default();
        Some(ChildOutput::Ended(status.code(), stderr))
    }
}

impl Drop for LoadChild {
    fn drop(&mut self) {
        self.kill();
        let _ = self.child.wait();
    }
}

fn read_events(stdout: impl Read, events: &mpsc::Sender<ChildOutput>) {
    let mut reader = BufReader::new(stdout);
    loop {
        let mut line = String::new();
        match reader.by_ref().take(EVENT_BYTES_MAX).read_line(&mut line) {
            Ok(bytes) if bytes > 0 => {}
            _ => return,
        }
        // A line of another form is none of the interface.
        if let Ok(event) = serde_json::from_str(&line)
            && events.blocking_send(ChildOutput::Event(event)).is_err()
        {
            return;
        }
    }
}

fn last_bytes(mut pipe: impl Read) -> String {
    let (mut kept, mut buffer) = (Vec::new(), [0; 1024]);
    while let Ok(bytes) = pipe.read(&mut buffer) {
        if bytes == 0 {
            break;
        }
        kept.extend_from_slice(&buffer[..bytes]);
        let surplus = kept.len().saturating_sub(STDERR_BYTES_MAX);
        kept.drain(..surplus);
    }
    String::from_utf8_lossy(&kept).trim().to_owned()
}
