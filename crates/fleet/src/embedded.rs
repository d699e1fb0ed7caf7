//! A local NATS server for a first try: the program `nats-server`, started on a free port of the loopback
//! interface, and stopped with its parent. It accepts only clients with the token of a file that only its user can
//! read: other local users must not command agents.

use std::io::{self, Write as _};
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Reason why there is no server.
#[derive(Debug, thiserror::Error)]
pub enum EmbeddedError {
    #[error(
        "the program nats-server is missing: install it with 'go install \
         github.com/nats-io/nats-server/v2@latest' or 'apt-get install nats-server', and put it on the PATH"
    )]
    Missing,
    #[error("cannot start {program}: {error}", program = .program.display())]
    Start { program: PathBuf, error: io::Error },
    /// It ended at once.
    #[error("{program} ended: {text}", program = .program.display())]
    Ended {
        program: PathBuf,
        /// Its last lines.
        text: String,
    },
}

#[derive(Debug)]
pub struct EmbeddedServer {
    child: Child,
    program: PathBuf,
    log: PathBuf,
    port: u16,
    /// Files with the token.
    secrets: [PathBuf; 2],
}

pub const TOKEN_BYTES: usize = 16;

/// Returns the file with the token of the server at a port, in the directory of its data.
pub fn token_path(directory: &Path, port: u16) -> PathBuf {
    directory.join(format!("{port}.token"))
}

impl EmbeddedServer {
    /// Starts a server with JetStream, whose data and log are in `directory`. `search` are the directories of
    /// the PATH. `port` 0 takes a free one. `token` are random bytes. `spawn` starts the process, so that it ends with
    /// this one.
    ///
    /// # Errors
    /// The program is missing or cannot be started.
    pub fn start(
        directory: &Path,
        search: &[PathBuf],
        port: u16,
        token: [u8; TOKEN_BYTES],
        spawn: impl FnOnce(&mut Command) -> io::Result<Child>,
    ) -> Result<Self, EmbeddedError> {
        let program = find_program(search).ok_or(EmbeddedError::Missing)?;
        let start_error = |error| EmbeddedError::Start { program: program.clone(), error };
        std::fs::create_dir_all(directory).map_err(start_error)?;
        let port = match port {
            0 => free_port().map_err(start_error)?,
            port => port,
        };
        let token: String = token.iter().map(|byte| format!("{byte:02x}")).collect();
        let log = directory.join("nats-server.log");
        // Arguments are visible to all users.
        let secrets = [directory.join(format!("{port}.conf")), token_path(directory, port)];
        let config = format!("authorization {{ token: \"{token}\" }}\n");
        for (path, text) in secrets.iter().zip([&config, &token]) {
            write_secret(path, text).map_err(start_error)?;
        }
        let mut command = Command::new(&program);
        command
            .arg("--config")
            .arg(&secrets[0])
            .args(["--addr", "127.0.0.1", "--port", &port.to_string(), "--jetstream", "--store_dir"])
            .arg(directory)
            .arg("--log")
            .arg(&log)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let child = spawn(&mut command).map_err(start_error)?;
        Ok(Self { child, program, log, port, secrets })
    }

    /// Returns the URL for agents and coordinators on this machine.
    pub fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    pub fn token_file(&self) -> &Path {
        &self.secrets[1]
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns true if the server accepts connections.
    ///
    /// # Errors
    /// It has ended.
    pub fn poll_ready(&mut self) -> Result<bool, EmbeddedError> {
        self.check()?;
        Ok(std::net::TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).is_ok())
    }

    /// Checks that the server still runs.
    ///
    /// # Errors
    /// It has ended.
    pub fn check(&mut self) -> Result<(), EmbeddedError> {
        if let Ok(Some(status)) = self.child.try_wait() {
            let log = std::fs::read_to_string(&self.log).unwrap_or_default();
            let last = log.lines().last().map_or_else(|| status.to_string(), str::to_owned);
            return Err(EmbeddedError::Ended { program: self.program.clone(), text: last });
        }
        Ok(())
    }
}

impl Drop for EmbeddedServer {
    fn drop(&mut self) {
        // SIGTERM lets it close its files; the process cannot be another one, as it was not waited for.
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(rustix::process::Pid::from_raw) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        let _ = self.child.wait();
        for path in &self.secrets {
            // The token is of no use any more.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Writes a file that only this user can read.
fn write_secret(path: &Path, text: &str) -> io::Result<()> {
    use std::os::unix::fs::OpenOptionsExt as _;
    // One that is left may have another mode, or be a link.
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = std::fs::File::options().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())
}

fn find_program(search: &[PathBuf]) -> Option<PathBuf> {
    search.iter().map(|directory| directory.join("nats-server")).find(|path| path.is_file())
}

/// Returns a port that was free a moment ago.
fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_program_is_reported_with_the_way_to_get_it() {
        let directory = tempfile::tempdir().unwrap();
        let error = EmbeddedServer::start(
            directory.path(),
            &[directory.path().to_owned()],
            0,
            [0; 16],
            Command::spawn,
        )
        .unwrap_err();
        assert!(error.to_string().contains("go install"), "{error}");
    }

    #[test]
    fn a_secret_replaces_what_is_left_and_only_its_user_reads_it() {
        use std::os::unix::fs::PermissionsExt as _;
        let directory = tempfile::tempdir().unwrap();
        let (secret, other) = (directory.path().join("1.token"), directory.path().join("other"));
        std::fs::write(&other, "kept").unwrap();
        std::os::unix::fs::symlink(&other, &secret).unwrap();
        for text in ["first", "second"] {
            write_secret(&secret, text).unwrap();
            let mode = std::fs::symlink_metadata(&secret).unwrap().permissions().mode();
            assert_eq!((std::fs::read_to_string(&secret).unwrap().as_str(), mode & 0o7777), (text, 0o600));
        }
        assert_eq!(std::fs::read_to_string(&other).unwrap(), "kept");
    }
}
