//! Whether a program is ready: it takes connections, and where the file asks for it, it answers a path by
//! HTTP and a command succeeds; and whether it has what was to be preloaded.
//!
//! Not for starting programs, nor for how long one is waited for.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use host::setup::launch::Launch;
use rustix::process::{Pid, Signal, kill_process_group};

use crate::scenario::setup::{Program, authority};

/// How long a connection, and each read of an answer, may take.
const ANSWER: Duration = Duration::from_secs(1);
/// `HTTP/1.1 200`: what of an answer is looked at.
const STATUS_BYTES: usize = 12;
/// What is read of an answer at once: the rest of a short one with its status.
const ANSWER_BYTES: usize = 4096;
/// What of a program's complaints is searched for those of the dynamic linker: it is the first to complain.
const LINKER_BYTES_MAX: u64 = 64 << 10;
/// What ld.so(8) says of a library that it goes on without.
const NOT_PRELOADED: &str = "from LD_PRELOAD cannot be preloaded";

/// What a program has to do before it is ready.
#[derive(Clone, Debug)]
pub(super) struct Ready {
    /// Absent: its connections are not waited for.
    pub(super) address: Option<SocketAddr>,
    /// Empty: nothing is asked for.
    pub(super) path: String,
    /// Empty: none.
    pub(super) command: Vec<String>,
    /// How long a connection, and each read of an answer, may take.
    pub(super) answer: Duration,
}

impl Ready {
    /// What a program's file says; `filled` fills in placeholders.
    ///
    /// # Errors
    /// Its address is none, in words.
    pub(super) fn of(program: &Program, filled: impl Fn(&str) -> String) -> Result<Self, String> {
        let text = filled(&program.ready);
        let address = match text.is_empty() {
            true => None,
            false => Some(
                authority(&text).parse().map_err(|error| format!("ready = '{text}': {error}"))?,
            ),
        };
        let command = program.ready_command.iter().map(|word| filled(word)).collect();
        Ok(Self { address, path: filled(&program.ready_path), command, answer: ANSWER })
    }

    /// Whether somebody takes connections there.
    pub(super) fn listens(&self) -> bool {
        let connects = |address| TcpStream::connect_timeout(address, self.answer).is_ok();
        self.address.as_ref().is_none_or(connects)
    }

    /// Why its path is not answered as it should be; none: it is, or nothing is asked for.
    pub(super) fn unanswered(&self) -> Option<Look> {
        if self.path.is_empty() {
            return None;
        }
        let path = &self.path;
        match self.status() {
            Ok(200..=399) => None,
            Ok(status) => {
                Some(Look::Refused(format!("it answers {path} with {status}, and not 200 to 399")))
            }
            Err(error) => Some(Look::Silent(format!("it does not answer {path}: {error}"))),
        }
    }

    /// The status with which its path is answered.
    fn status(&self) -> io::Result<u16> {
        let address = self.address.ok_or(io::ErrorKind::AddrNotAvailable)?;
        let mut stream = TcpStream::connect_timeout(&address, self.answer)?;
        stream.set_read_timeout(Some(self.answer))?;
        stream.set_write_timeout(Some(self.answer))?;
        let path = &self.path;
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes())?;
        let (mut buffer, mut length) = ([0; ANSWER_BYTES], 0);
        while length < STATUS_BYTES {
            match stream.read(&mut buffer[length..])? {
                0 => break,
                count => length += count,
            }
        }
        let line = String::from_utf8_lossy(&buffer[..length.min(STATUS_BYTES)]);
        let status = line.strip_prefix("HTTP/1.").and_then(|rest| rest.get(2..)?.parse().ok());
        status.ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidData, "that is no answer of HTTP/1")
        })
    }
}

/// What one look at a program found.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Look {
    Ready,
    /// What it does not do yet.
    Missing(String),
    /// What its path or its command answered against it.
    Refused(String),
    /// It answered nothing, or the time was over before its command was.
    Silent(String),
}

impl Look {
    /// Why a program is not ready; none: it is. `refused` is what was last answered against it, and is told
    /// where nothing is answered now: it tells more.
    pub(super) fn missing(self, refused: &mut Option<String>) -> Option<String> {
        match self {
            Self::Ready => None,
            Self::Missing(why) => Some(why),
            Self::Refused(why) => Some(refused.insert(why).clone()),
            Self::Silent(why) => Some(refused.clone().unwrap_or(why)),
        }
    }
}

/// A command that is asked whether a program is ready. It ends with this.
#[derive(Debug)]
pub(super) struct Asked(Child);

impl Asked {
    /// Starts it in `folder`; what it says goes to `said`.
    ///
    /// # Errors
    /// It cannot be started, in words.
    pub(super) fn start(
        words: &[String],
        namespace: Option<std::path::PathBuf>,
        folder: &Path,
        said: &Path,
    ) -> Result<Self, String> {
        let (program, arguments) = words.split_first().ok_or("an empty command")?;
        let output = fs::File::create(said).and_then(|file| Ok((file.try_clone()?, file)));
        let (stdout, stderr) = output.map_err(|error| format!("{}: {error}", said.display()))?;
        let mut command = Command::new(program);
        command.args(arguments).current_dir(folder).stdin(Stdio::null());
        command.stdout(stdout).stderr(stderr);
        // It is no part of what is measured: it has neither the program's group nor its processors.
        let launch = Launch { namespace, ..Launch::default() };
        launch.spawn(&mut command).map(Self).map_err(|error| format!("{program}: {error}"))
    }

    /// How it ended, if it has.
    pub(super) fn ended(&mut self) -> Option<ExitStatus> {
        self.0.try_wait().ok().flatten()
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        if self.ended().is_none() {
            if let Some(group) = i32::try_from(self.0.id()).ok().and_then(Pid::from_raw) {
                // It has a group of its own; one that is gone is what was wanted.
                let _ = kill_process_group(group, Signal::KILL);
            }
            let _ = self.0.wait();
        }
    }
}

/// That the dynamic linker could not preload a library, in its words: it goes on without, and the program is
/// not what its arm says. None where the program has nothing to be preloaded.
pub(super) fn not_preloaded(program: &Program, said: &Path) -> Option<String> {
    let asks = program.env.contains_key("LD_PRELOAD")
        || program.command.iter().any(|word| word.contains("LD_PRELOAD="));
    if !asks {
        return None;
    }
    let mut bytes = Vec::new();
    // What cannot be read has nothing in it.
    let _ = fs::File::open(said).map(|file| file.take(LINKER_BYTES_MAX).read_to_end(&mut bytes));
    let text = String::from_utf8_lossy(&bytes);
    let line = text.lines().find(|line| line.contains(NOT_PRELOADED))?;
    Some(format!("runs without what its arm preloads: {}", line.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn an_address_is_found_in_a_url() {
        assert_eq!(authority("http://198.18.1.2:8000/?s=1"), "198.18.1.2:8000");
        assert_eq!(authority("198.18.1.2:8000"), "198.18.1.2:8000");
        let program = Program { ready: "nowhere".to_owned(), ..Program::default() };
        assert!(Ready::of(&program, str::to_owned).unwrap_err().starts_with("ready = 'nowhere': "));
    }

    #[test]
    fn a_path_has_to_be_answered_well() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let program = Program {
            ready: listener.local_addr().unwrap().to_string(),
            ready_path: "/health".to_owned(),
            ..Program::default()
        };
        let ready = Ready::of(&program, str::to_owned).unwrap();
        // However busy the machine is.
        let ready = Ready { answer: Duration::from_secs(30), ..ready };
        let answers = ["HTTP/1.1 204 No", "HTTP/1.0 301 x", "HTTP/1.1 503 x", "220 mail", ""];
        let server = std::thread::spawn(move || {
            for answer in answers {
                let (mut stream, _) = listener.accept().unwrap();
                let mut asked = [0; 14];
                stream.read_exact(&mut asked).unwrap();
                assert_eq!(&asked, b"GET /health HT");
                // In two segments, as slow servers do.
                let (first, second) = answer.split_at(answer.len() / 2);
                stream.write_all(first.as_bytes()).unwrap();
                stream.write_all(second.as_bytes()).unwrap();
            }
        });
        assert_eq!((ready.unanswered(), ready.unanswered()), (None, None));
        match ready.unanswered() {
            Some(Look::Refused(why)) => assert!(why.contains("it answers /health with 503")),
            other => panic!("{other:?}"),
        }
        for _ in 0..2 {
            match ready.unanswered() {
                Some(Look::Silent(why)) => {
                    assert!(why.starts_with("it does not answer /health: "), "{why}");
                }
                other => panic!("{other:?}"),
            }
        }
        server.join().unwrap();
        assert!(ready.unanswered().is_some() && !ready.listens(), "nobody is there any more");
        let nothing = Ready { path: String::new(), ..ready };
        assert_eq!(nothing.unanswered(), None);
    }

    #[test]
    fn what_was_answered_last_is_told_where_nothing_is_answered() {
        let mut refused = None;
        let mut told = |look: fn(String) -> Look, why: &str| {
            look(why.to_owned()).missing(&mut refused).unwrap()
        };
        assert_eq!(told(Look::Silent, "timed out"), "timed out");
        assert_eq!(told(Look::Refused, "503"), "503");
        assert_eq!(told(Look::Silent, "timed out"), "503");
        assert_eq!(told(Look::Missing, "it does not listen"), "it does not listen");
        assert_eq!(told(Look::Refused, "500"), "500");
        assert_eq!(told(Look::Silent, "reset"), "500");
        assert_eq!(Look::Ready.missing(&mut refused), None);
    }

    #[test]
    fn a_command_is_asked_and_ends_with_who_asks() {
        let folder = tempfile::tempdir().unwrap();
        let said = folder.path().join("said");
        let start = |line: &str| {
            let words = ["sh", "-c", line].map(str::to_owned);
            Asked::start(&words, None, folder.path(), &said).unwrap()
        };
        let mut asked = start("pwd; echo no >&2; exit 3");
        let status = (0..3000).find_map(|_| {
            std::thread::sleep(Duration::from_millis(10));
            asked.ended()
        });
        assert_eq!(status.unwrap().code(), Some(3));
        let text = fs::read_to_string(&said).unwrap();
        assert!(text.contains(folder.path().to_str().unwrap()) && text.contains("no\n"), "{text}");
        let asked = start("sleep 60 & sleep 60");
        let pid = asked.0.id();
        drop(asked);
        assert!(!Path::new(&format!("/proc/{pid}")).exists());
        let words = ["/no/such".to_owned()];
        assert!(Asked::start(&words, None, folder.path(), &said).unwrap_err().contains("/no/such"));
    }

    #[test]
    fn a_library_that_was_not_preloaded_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let said = folder.path().join("said");
        let output = Command::new("sh")
            .args(["-c", "true"])
            .env("LD_PRELOAD", "libno-such-library.so.9")
            .output()
            .unwrap();
        fs::write(&said, output.stderr).unwrap();
        let plain = Program::default();
        let mut program = Program::default();
        program.env.insert("LD_PRELOAD".to_owned(), "libno-such-library.so.9".to_owned());
        let why = not_preloaded(&program, &said).unwrap();
        assert!(why.contains("libno-such-library.so.9"), "{why}");
        assert_eq!(not_preloaded(&plain, &said), None, "it asked for none");
        let words = ["env", "LD_PRELOAD=x", "server"].map(str::to_owned).to_vec();
        assert!(not_preloaded(&Program { command: words, ..plain }, &said).is_some());
        fs::write(&said, "ready\n").unwrap();
        assert_eq!(not_preloaded(&program, &said), None);
    }
}
