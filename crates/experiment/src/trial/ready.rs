//! Checks that a program is ready: it accepts connections, and, if its file requires it, an HTTP
//! path and a command succeed. Also checks that its libraries were preloaded.
//!
//! Not for starting programs, nor for the timeout.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use host::sandbox::launch::Launch;
use host::sandbox::programs::program_to_start;
use record::invalid_value;
use record::problem::InvalidValue;
use rustix::process::{Pid, Signal, kill_process_group};

use crate::scenario::errors::CommandError;
use crate::scenario::program::{ProgramSetup, authority};

/// Timeout of a connection, and of each read of a response.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(1);
/// Number of bytes of a response that are parsed: `HTTP/1.1 200`.
const STATUS_LINE_BYTES: usize = 12;
/// Size of the read buffer: a short response is read with its status at once.
const RESPONSE_BUFFER_BYTES: usize = 4096;
/// Maximum number of bytes of a program's stderr to search for messages of the dynamic linker,
/// which come first.
const LINKER_BYTES_MAX: u64 = 64 << 10;
/// Message of ld.so(8) for a library that it skips.
const NOT_PRELOADED_MESSAGE: &str = "from LD_PRELOAD cannot be preloaded";

/// Readiness conditions of a program.
#[derive(Clone, Debug)]
pub(super) struct ReadinessCheck {
    /// Address that has to accept connections; `None`: no wait for connections.
    pub(super) address: Option<SocketAddr>,
    /// HTTP path that has to succeed; empty: none.
    pub(super) path: String,
    /// Command that has to succeed; empty: none.
    pub(super) command: Vec<String>,
    /// Timeout of a connection, and of each read of a response.
    pub(super) timeout: Duration,
}

impl ReadinessCheck {
    /// Reads the conditions of a program; `filled` replaces placeholders.
    ///
    /// # Errors
    /// Its address is invalid.
    pub(super) fn from_program(
        program: &ProgramSetup,
        filled: impl Fn(&str) -> String,
    ) -> Result<Self, InvalidValue> {
        let text = filled(&program.ready);
        let address = match text.is_empty() {
            true => None,
            false => {
                Some(authority(&text).parse().map_err(|error| invalid_value!("ready = '{text}': {error}"))?)
            }
        };
        let command = program.ready_command.iter().map(|word| filled(word)).collect();
        Ok(Self { address, path: filled(&program.ready_path), command, timeout: RESPONSE_TIMEOUT })
    }

    pub(super) fn accepts_connections(&self) -> bool {
        let connects = |address| TcpStream::connect_timeout(address, self.timeout).is_ok();
        self.address.as_ref().is_none_or(connects)
    }

    /// Returns the problem with the response to its path. `None` if there is no problem or no path.
    pub(super) fn path_problem(&self) -> Option<ReadinessState> {
        if self.path.is_empty() {
            return None;
        }
        let path = &self.path;
        match self.request_status() {
            Ok(200..=399) => None,
            Ok(status) => {
                Some(ReadinessState::Rejected(format!("{path} responds with {status}, not 200 to 399")))
            }
            Err(error) => Some(ReadinessState::NoResponse(format!("no response for {path}: {error}"))),
        }
    }

    fn request_status(&self) -> io::Result<u16> {
        let address = self.address.ok_or(io::ErrorKind::AddrNotAvailable)?;
        let mut stream = TcpStream::connect_timeout(&address, self.timeout)?;
        stream.set_read_timeout(Some(self.timeout))?;
        stream.set_write_timeout(Some(self.timeout))?;
        let path = &self.path;
        let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes())?;
        let (mut buffer, mut length) = ([0; RESPONSE_BUFFER_BYTES], 0);
        while length < STATUS_LINE_BYTES {
            match stream.read(&mut buffer[length..])? {
                0 => break,
                count => length += count,
            }
        }
        let line = String::from_utf8_lossy(&buffer[..length.min(STATUS_LINE_BYTES)]);
        let status = line.strip_prefix("HTTP/1.").and_then(|rest| rest.get(2..)?.parse().ok());
        status.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "not an HTTP/1 response"))
    }
}

/// Result of one poll of a program.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ReadinessState {
    Ready,
    /// A condition that is not met yet.
    Pending(String),
    /// Its path responded with an unsuccessful status, or its command failed.
    Rejected(String),
    /// Its path did not respond, or its command did not end before the timeout.
    NoResponse(String),
}

impl ReadinessState {
    /// Returns the reason why a program is not ready. `None` if it is. `refused` is the last reason
    /// in a [`ReadinessState::Rejected`]. It replaces that of a later
    /// [`ReadinessState::NoResponse`], because it is more informative.
    pub(super) fn not_ready_reason(self, refused: &mut Option<String>) -> Option<String> {
        match self {
            Self::Ready => None,
            Self::Pending(why) => Some(why),
            Self::Rejected(why) => Some(refused.insert(why).clone()),
            Self::NoResponse(why) => Some(refused.clone().unwrap_or(why)),
        }
    }
}

/// Process of a readiness command or a build step. It is killed on drop.
#[derive(Debug)]
pub(super) struct ReadyCommand(Child);

impl ReadyCommand {
    /// Starts the command in `directory`; its output goes to `output_path`.
    ///
    /// # Errors
    /// It cannot be started.
    pub(super) fn start(
        words: &[String],
        namespace: Option<std::path::PathBuf>,
        directory: &Path,
        output_path: &Path,
    ) -> Result<Self, CommandError> {
        let system = |object: String| move |source| CommandError::System { object, source };
        let (program, arguments) = words.split_first().ok_or(CommandError::Empty)?;
        let output = fs::File::create(output_path).and_then(|file| Ok((file.try_clone()?, file)));
        let (stdout, stderr) = output.map_err(system(output_path.display().to_string()))?;
        let program_path = program_to_start(program).map_err(system(program.clone()))?;
        let mut command = Command::new(program_path);
        command.args(arguments).current_dir(directory).stdin(Stdio::null());
        command.stdout(stdout).stderr(stderr);
        // It is not part of the measurement: it has neither the program's group nor its CPUs.
        let launch = Launch { namespace, ..Launch::default() };
        launch.spawn(&mut command).map(Self).map_err(system(program.clone()))
    }

    pub(super) fn exit_status(&mut self) -> Option<ExitStatus> {
        self.0.try_wait().ok().flatten()
    }
}

impl Drop for ReadyCommand {
    fn drop(&mut self) {
        if self.exit_status().is_none() {
            if let Some(group) = i32::try_from(self.0.id()).ok().and_then(Pid::from_raw) {
                // It leads its own group. An error means that the group has ended, which is the
                // goal.
                let _ = kill_process_group(group, Signal::KILL);
            }
            let _ = self.0.wait();
        }
    }
}

/// Returns the dynamic linker's message about a library that it could not preload. The program runs
/// without it, and is not what its arm specifies. `None` for a program that preloads nothing.
pub(super) fn preload_problem(program: &ProgramSetup, stderr_path: &Path) -> Option<String> {
    let asks = program.env.contains_key("LD_PRELOAD")
        || program.command.iter().any(|word| word.contains("LD_PRELOAD="));
    if !asks {
        return None;
    }
    let mut bytes = Vec::new();
    // A file that cannot be read counts as empty.
    let _ = fs::File::open(stderr_path).map(|file| file.take(LINKER_BYTES_MAX).read_to_end(&mut bytes));
    let text = String::from_utf8_lossy(&bytes);
    let line = text.lines().find(|line| line.contains(NOT_PRELOADED_MESSAGE))?;
    Some(format!("runs without the preloaded library of its arm: {}", line.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn an_address_is_found_in_a_url() {
        assert_eq!(authority("http://198.18.1.2:8000/?s=1"), "198.18.1.2:8000");
        assert_eq!(authority("198.18.1.2:8000"), "198.18.1.2:8000");
        let program = ProgramSetup { ready: "nowhere".to_owned(), ..ProgramSetup::default() };
        assert!(
            ReadinessCheck::from_program(&program, str::to_owned)
                .unwrap_err()
                .to_string()
                .starts_with("ready = 'nowhere': ")
        );
    }

    #[test]
    fn a_path_needs_a_successful_response() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let program = ProgramSetup {
            ready: listener.local_addr().unwrap().to_string(),
            ready_path: "/health".to_owned(),
            ..ProgramSetup::default()
        };
        let ready = ReadinessCheck::from_program(&program, str::to_owned).unwrap();
        // The timeout suits a busy machine.
        let ready = ReadinessCheck { timeout: Duration::from_secs(30), ..ready };
        let responses = ["HTTP/1.1 204 No", "HTTP/1.0 301 x", "HTTP/1.1 503 x", "220 mail", ""];
        let server = std::thread::spawn(move || {
            for response in responses {
                let (mut stream, _) = listener.accept().unwrap();
                let mut request = [0; 14];
                stream.read_exact(&mut request).unwrap();
                assert_eq!(&request, b"GET /health HT");
                // In two segments, as slow servers do.
                let (first, second) = response.split_at(response.len() / 2);
                stream.write_all(first.as_bytes()).unwrap();
                stream.write_all(second.as_bytes()).unwrap();
            }
        });
        assert_eq!((ready.path_problem(), ready.path_problem()), (None, None));
        match ready.path_problem() {
            Some(ReadinessState::Rejected(why)) => {
                assert!(why.contains("/health") && why.contains("503"), "{why}");
            }
            other => panic!("{other:?}"),
        }
        for _ in 0..2 {
            match ready.path_problem() {
                Some(ReadinessState::NoResponse(why)) => {
                    assert!(why.contains("/health"), "{why}");
                }
                other => panic!("{other:?}"),
            }
        }
        server.join().unwrap();
        assert!(ready.path_problem().is_some() && !ready.accepts_connections(), "the process has ended");
        let nothing = ReadinessCheck { path: String::new(), ..ready };
        assert_eq!(nothing.path_problem(), None);
    }

    #[test]
    fn the_last_response_is_reported_if_none_follows() {
        let mut refused = None;
        let mut missing = |state: fn(String) -> ReadinessState, reason: &str| {
            state(reason.to_owned()).not_ready_reason(&mut refused).unwrap()
        };
        assert_eq!(missing(ReadinessState::NoResponse, "timed out"), "timed out");
        assert_eq!(missing(ReadinessState::Rejected, "503"), "503");
        assert_eq!(missing(ReadinessState::NoResponse, "timed out"), "503");
        assert_eq!(missing(ReadinessState::Pending, "it does not listen"), "it does not listen");
        assert_eq!(missing(ReadinessState::Rejected, "500"), "500");
        assert_eq!(missing(ReadinessState::NoResponse, "reset"), "500");
        assert_eq!(ReadinessState::Ready.not_ready_reason(&mut refused), None);
    }

    #[test]
    fn a_ready_command_runs_and_is_killed_on_drop() {
        let directory = tempfile::tempdir().unwrap();
        let output_path = directory.path().join("said");
        let start = |line: &str| {
            let words = ["sh", "-c", line].map(str::to_owned);
            ReadyCommand::start(&words, None, directory.path(), &output_path).unwrap()
        };
        let mut command = start("pwd; echo no >&2; exit 3");
        let status = (0..3000).find_map(|_| {
            std::thread::sleep(Duration::from_millis(10));
            command.exit_status()
        });
        assert_eq!(status.unwrap().code(), Some(3));
        let text = fs::read_to_string(&output_path).unwrap();
        assert!(text.contains(directory.path().to_str().unwrap()) && text.contains("no\n"), "{text}");
        let command = start("sleep 60 & sleep 60");
        let pid = command.0.id();
        drop(command);
        assert!(!Path::new(&format!("/proc/{pid}")).exists());
        let words = ["/no/such".to_owned()];
        assert!(
            ReadyCommand::start(&words, None, directory.path(), &output_path)
                .unwrap_err()
                .to_string()
                .contains("/no/such")
        );
    }

    #[test]
    fn a_library_that_was_not_preloaded_is_found() {
        let directory = tempfile::tempdir().unwrap();
        let output_path = directory.path().join("said");
        let output = Command::new("sh")
            .args(["-c", "true"])
            .env("LD_PRELOAD", "libno-such-library.so.9")
            .output()
            .unwrap();
        fs::write(&output_path, output.stderr).unwrap();
        let plain = ProgramSetup::default();
        let mut program = ProgramSetup::default();
        program.env.insert("LD_PRELOAD".to_owned(), "libno-such-library.so.9".to_owned());
        let reason = preload_problem(&program, &output_path).unwrap();
        assert!(reason.contains("libno-such-library.so.9"), "{reason}");
        assert_eq!(preload_problem(&plain, &output_path), None, "it asked for none");
        let words = ["env", "LD_PRELOAD=x", "server"].map(str::to_owned).to_vec();
        assert!(preload_problem(&ProgramSetup { command: words, ..plain }, &output_path).is_some());
        fs::write(&output_path, "ready\n").unwrap();
        assert_eq!(preload_problem(&program, &output_path), None);
    }
}
