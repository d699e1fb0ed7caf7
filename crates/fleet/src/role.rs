//! Role of an agent that does not generate load: its plan, and the program of weir that it starts.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use record::control::NO_DEFAULTS;
use record::units::SECOND_NS;
use runner::failure::Failure;
use runner::watch::plan::WatchPlan;

use crate::message::AgentRole;

/// Command whose flags name a program that runs already.
pub const OBSERVE: &str = "watch";
/// Maximum length of a line of a program.
const LINE_BYTES_MAX: u64 = 4096;
/// Text of the line by which a program reports that it accepts connections.
const LISTENING: &str = "listening on ";

/// Checked options of a role.
#[derive(Debug)]
pub struct RolePlan {
    pub role: String,
    /// Command: `serve`, `proxy`, or [`OBSERVE`].
    pub command: String,
    pub arguments: Vec<String>,
    /// Targets of [`OBSERVE`].
    pub watch: Option<WatchPlan>,
    pub duration_ns: u64,
}

impl RolePlan {
    /// Returns the arguments of `weir fleet role` in one form.
    pub fn arguments(&self) -> Vec<String> {
        let duration_s = self.duration_ns.div_ceil(SECOND_NS);
        let own = [format!("--as={}", self.role), format!("--duration={duration_s}s"), "--".to_owned()];
        own.into_iter().chain([self.command.clone()]).chain(self.arguments.iter().cloned()).collect()
    }
}

pub fn command_of(role: AgentRole) -> &'static str {
    match role {
        AgentRole::Load => "load",
        AgentRole::Serve => "serve",
        AgentRole::Proxy => "proxy",
        AgentRole::Observe => OBSERVE,
    }
}

/// Running program of a role. Its stdin closes with this process, however that ends, and it ends then.
pub struct RoleProgram {
    child: Child,
}

impl RoleProgram {
    /// Starts the program and waits until it listens.
    ///
    /// # Errors
    /// It cannot be started, or ends before it listens.
    pub fn start(plan: &RolePlan) -> Result<Self, Failure> {
        let failed = |why: &dyn std::fmt::Display| Failure::cannot(format!("weir {}", plan.command), why);
        let path = std::env::current_exe().map_err(|error| failed(&error))?;
        let mut program = Self { child: spawn(&path, plan).map_err(|error| failed(&error))? };
        let Some(stdout) = program.child.stdout.take() else { return Err(failed(&"it has no output")) };
        let mut lines = BufReader::new(stdout);
        loop {
            let mut line = String::new();
            let read = lines.by_ref().take(LINE_BYTES_MAX).read_line(&mut line);
            if read.map_err(|error| failed(&error))? == 0 {
                return Err(failed(&program.error_text()));
            }
            if line.contains(LISTENING) {
                break;
            }
        }
        // A full pipe would block the program.
        std::thread::spawn(move || std::io::copy(&mut lines, &mut std::io::sink()));
        if let Some(mut messages) = program.child.stderr.take() {
            std::thread::spawn(move || std::io::copy(&mut messages, &mut std::io::stderr()));
        }
        Ok(program)
    }

    pub fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).unwrap_or(0)
    }

    /// Returns the messages of a program that has ended.
    fn error_text(&mut self) -> String {
        drop(self.child.stdin.take());
        let mut text = String::new();
        if let Some(stderr) = self.child.stderr.take() {
            // Without its message, only the failed start can be reported.
            let _ = stderr.take(LINE_BYTES_MAX).read_to_string(&mut text);
        }
        let lines = text.lines().map(|line| line.strip_prefix("weir: ").unwrap_or(line));
        format!("it did not start: {}", lines.collect::<Vec<_>>().join("; "))
    }

    /// Ends the program in order.
    pub fn stop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

impl Drop for RoleProgram {
    fn drop(&mut self) {
        self.stop();
    }
}

fn spawn(path: &Path, plan: &RolePlan) -> std::io::Result<Child> {
    let mut command = Command::new(path);
    command.arg(&plan.command).args(&plan.arguments).arg("--until-stdin-closes");
    command.env(NO_DEFAULTS, "1");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn()
}
