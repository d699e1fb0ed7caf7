//! Any program as the proxy of a verification: its files, its process, and its output.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use host::free_port::free_port;
use host::sandbox::launch::Launch;
use plan::verification::VerifiedPlan;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use tempfile::TempDir;

use super::children::run_directory;
use super::subject::{SubjectProgram, SubjectValues};
use crate::failure::Failure;

/// Time until it accepts connections, in steps.
const READY_STEPS: u32 = 200;
/// Time until it ends after SIGTERM, in steps.
const END_STEPS: u32 = 100;
const STEP: Duration = Duration::from_millis(50);
const OUTPUT_BYTES_MAX: i64 = 2_000;

/// Running program. The kernel ends it with this process.
pub(super) struct ForeignProcess {
    child: Child,
    name: String,
    directory: TempDir,
}

impl ForeignProcess {
    /// Starts it on a free port, and waits until it accepts connections. `connections` is the maximum number of
    /// client connections.
    pub(super) fn start(
        program: &SubjectProgram,
        plan: &VerifiedPlan,
        (origins, connections): (&[String], u64),
    ) -> Result<(Self, SocketAddr), Failure> {
        let name = program.command.first().cloned().unwrap_or_default();
        let failed = |error: std::io::Error| Failure::cannot(&name, error);
        let directory = run_directory()?;
        let port = free_port().map_err(failed)?;
        let config = directory.path().join("config");
        let values = SubjectValues {
            plan,
            port,
            origins,
            connections,
            directory: &directory.path().display().to_string(),
            config: &config.display().to_string(),
        };
        if let Some(source) = &program.config {
            fs::write(&config, values.config_text(source)).map_err(failed)?;
        }
        let words = values.command(program);
        let output = File::create(directory.path().join("output")).map_err(failed)?;
        let mut command = Command::new(words.first().map_or("", String::as_str));
        command.args(words.iter().skip(1)).env(record::control::NO_DEFAULTS, "1");
        command.stdin(Stdio::null()).stdout(output.try_clone().map_err(failed)?).stderr(output);
        let child = Launch::default().spawn(&mut command).map_err(failed)?;
        let mut process = Self { child, name, directory };
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        for _ in 0..READY_STEPS {
            if TcpStream::connect_timeout(&address, STEP).is_ok() {
                return Ok((process, address));
            }
            if !process.is_running() {
                return Err(process.failure("it ended before it accepted connections"));
            }
            std::thread::sleep(STEP);
        }
        Err(process.failure(&format!("it does not accept connections at {address}")))
    }

    fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Returns an error if it has ended.
    pub(super) fn check(&mut self) -> Result<(), Failure> {
        if self.is_running() { Ok(()) } else { Err(self.failure("it ended during the verification")) }
    }

    /// Keeps its output, and returns the reason with the end of it.
    pub(super) fn failure(&mut self, why: &str) -> Failure {
        self.directory.disable_cleanup(true);
        let path = self.directory.path().join("output");
        let mut tail = Vec::new();
        // Without its output only the reason is reported.
        if let Ok(mut file) = File::open(&path) {
            let _ = file.seek(SeekFrom::End(-OUTPUT_BYTES_MAX));
            let _ = file.read_to_end(&mut tail);
        }
        let tail = String::from_utf8_lossy(&tail);
        let text = format!("{why}; its output is in {}:\n{}", path.display(), tail.trim());
        Failure::cannot(&self.name, text)
    }

    /// Ends it: with SIGTERM, and kills its process group if it does not end in time.
    pub(super) fn end(&mut self) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        if let Some(pid) = pid.filter(|_| self.is_running()) {
            // It is our child and not reaped, so the id, also that of the group, is its own.
            let _ = kill_process(pid, Signal::TERM);
            for _ in 0..END_STEPS {
                if !self.is_running() {
                    break;
                }
                std::thread::sleep(STEP);
            }
            if self.is_running() {
                let _ = kill_process_group(pid, Signal::KILL);
            }
        }
        // It may have ended meanwhile.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for ForeignProcess {
    fn drop(&mut self) {
        self.end();
    }
}
