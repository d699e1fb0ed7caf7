//! One trial of an experiment: makes its scenario, starts its programs, warms up, has the load run,
//! and gives back the load's record.
//!
//! Not for judging it: the verdict is in the record.

use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use record::run::Run;

use crate::scenario::kit::{Context, Kit};
use crate::scenario::plan::Node;
use crate::scenario::setup::{Program, Setup};

/// How long a program may take to listen.
const READY_NS_MAX: u64 = 15_000_000_000;
/// How long a load may run beyond its length: for what is in flight at its end.
const OVERTIME_NS: u64 = 60_000_000_000;
/// The longest load.
const LOAD_NS_MAX: u64 = 3_600_000_000_000;
/// How often it is looked whether a program is ready, or has ended.
const LOOK: Duration = Duration::from_millis(20);
/// The most of a program's complaints that is repeated, in bytes.
const SAID_BYTES_MAX: usize = 2_000;
/// Exit codes of `weir load` with which there is a record: done, an objective missed, not valid.
const WITH_RECORD: [i32; 3] = [0, 3, 4];

/// How a trial is run.
#[derive(Clone, Copy)]
pub struct Tools<'a> {
    /// This program, which is the load generator too.
    pub weir: &'a Path,
    /// What makes scenarios.
    pub context: &'a Context,
    /// Length of the load where an experiment says `{duration}`, in nanoseconds.
    pub duration_ns: u64,
    /// Whether the load's own output is shown.
    pub show: bool,
    /// Whether to stop early: asked often.
    pub stop: &'a dyn Fn() -> bool,
}

impl std::fmt::Debug for Tools<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tools").field("weir", &self.weir).finish_non_exhaustive()
    }
}

/// Why there is no record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TrialError {
    /// It was stopped from outside.
    Stopped,
    /// The scenario could not be made: this machine's fault, or a missing right.
    Scenario(String),
    /// A program of the experiment did not do what it should: its fault.
    Program(String),
    /// The load did not run.
    Load(String),
}

impl std::fmt::Display for TrialError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Stopped => f.write_str("stopped"),
            Self::Scenario(why) => write!(f, "the scenario cannot be made: {why}"),
            Self::Program(why) => write!(f, "a program of the experiment: {why}"),
            Self::Load(why) => write!(f, "the load: {why}"),
        }
    }
}

impl std::error::Error for TrialError {}

/// What a trial gave.
#[derive(Clone, Debug)]
pub struct Trial {
    /// The load's record.
    pub run: Run,
    /// The exit code of `weir load`.
    pub exit: i32,
    /// What could not be removed again; it stays in the journal.
    pub left: Vec<String>,
}

/// Runs one trial. Everything that it made is gone when it returns.
///
/// # Errors
/// Why there is no record.
pub fn run(experiment: &Setup, tools: Tools<'_>) -> Result<Trial, TrialError> {
    let kit = Kit::make(&experiment.scenario, tools.context).map_err(TrialError::Scenario)?;
    let port =
        kit.within(Node::Subject, free_port).and_then(|port| port.map_err(|e| e.to_string()));
    let mut stage = Stage { kit, tools, port: port.map_err(TrialError::Scenario)? };
    stage.write_files(experiment)?;
    if let Some(origin) = &experiment.origin {
        stage.start(Node::Origin, origin)?;
    }
    stage.start(Node::Subject, &experiment.subject)?;
    if experiment.warm_up_ns > 0 {
        stage.load(experiment, experiment.warm_up_ns, true)?;
    }
    let exit = stage.load(experiment, tools.duration_ns, false)?;
    let path = stage.record_path();
    let run = record::file::read_run(&path).map_err(|error| TrialError::Load(error.to_string()))?;
    Ok(Trial { run, exit, left: stage.kit.undo() })
}

/// A scenario with the programs in it.
struct Stage<'a> {
    kit: Kit,
    tools: Tools<'a>,
    /// What stands for `{port}`.
    port: u16,
}

/// A port that nobody has, as far as the kernel knows.
fn free_port() -> std::io::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

impl Stage<'_> {
    fn record_path(&self) -> PathBuf {
        self.kit.folder().join("record.json")
    }

    /// A text with its placeholders filled in.
    fn filled(&self, text: &str) -> String {
        text.replace("{weir}", &self.tools.weir.to_string_lossy())
            .replace("{dir}", &self.kit.folder().to_string_lossy())
            .replace("{port}", &self.port.to_string())
            .replace("{client}", self.kit.address(Node::Client))
            .replace("{subject}", self.kit.address(Node::Subject))
            .replace("{origin}", self.kit.address(Node::Origin))
    }

    fn write_files(&self, experiment: &Setup) -> Result<(), TrialError> {
        for (name, text) in &experiment.files {
            let path = self.kit.folder().join(name);
            fs::write(&path, self.filled(text))
                .map_err(|error| TrialError::Scenario(format!("{}: {error}", path.display())))?;
        }
        Ok(())
    }

    /// Starts a program and waits until it listens.
    fn start(&mut self, node: Node, program: &Program) -> Result<(), TrialError> {
        let words: Vec<String> = program.command.iter().map(|word| self.filled(word)).collect();
        let said = self.kit.folder().join(format!("{node}.log"));
        let file = |path: &Path| {
            let open = fs::File::options().create(true).append(true).open(path);
            open.map_err(|error| TrialError::Scenario(format!("{}: {error}", path.display())))
        };
        let (program_name, arguments) = words
            .split_first()
            .ok_or_else(|| TrialError::Program("an empty command".to_owned()))?;
        let mut command = Command::new(program_name);
        command.args(arguments).current_dir(self.kit.folder()).stdin(Stdio::null());
        command.stdout(file(&said)?).stderr(file(&said)?);
        let number = self.kit.spawn(node, &mut command).map_err(TrialError::Program)?;
        let ready = self.filled(&program.ready);
        let address: SocketAddr = authority(&ready)
            .parse()
            .map_err(|error| TrialError::Program(format!("ready = '{ready}': {error}")))?;
        let clock = self.tools.context.clock;
        let end_ns = clock() + READY_NS_MAX;
        let connect = || TcpStream::connect_timeout(&address, Duration::from_secs(1)).is_ok();
        while !self.kit.within(node, connect).map_err(TrialError::Scenario)? {
            let ended = self.kit.child(number).and_then(|child| child.try_wait().ok().flatten());
            let why = match ended {
                Some(status) => format!("'{program_name}' ended ({status})"),
                None if clock() > end_ns => {
                    format!("'{program_name}' does not listen on {address}")
                }
                None => {
                    self.pause()?;
                    continue;
                }
            };
            return Err(TrialError::Program(format!("{why}: {}", tail(&said))));
        }
        Ok(())
    }

    fn pause(&self) -> Result<(), TrialError> {
        std::thread::sleep(LOOK);
        if (self.tools.stop)() { Err(TrialError::Stopped) } else { Ok(()) }
    }

    /// Runs the load to its end; its exit code. A warm-up leaves no record.
    fn load(
        &mut self,
        experiment: &Setup,
        duration_ns: u64,
        warm_up: bool,
    ) -> Result<i32, TrialError> {
        let duration = format!("{}ms", duration_ns / 1_000_000);
        let flags = experiment.load.iter();
        let mut words: Vec<String> =
            flags.map(|word| self.filled(word).replace("{duration}", &duration)).collect();
        let said = self.kit.folder().join("load.log");
        let complaints = fs::File::create(&said)
            .map_err(|error| TrialError::Scenario(format!("{}: {error}", said.display())))?;
        if warm_up {
            words = warming(words, &duration);
        }
        let mut command = Command::new(self.tools.weir);
        command.arg("load").args(words).current_dir(self.kit.folder()).stdin(Stdio::null());
        if !warm_up {
            command.arg("--json").arg(self.record_path());
        }
        if warm_up || !self.tools.show {
            command.stdout(Stdio::null());
        }
        command.stderr(complaints);
        let number = self.kit.spawn(Node::Client, &mut command).map_err(TrialError::Load)?;
        let status = self.wait(number)?;
        let code = status.code().unwrap_or(-1);
        if warm_up || WITH_RECORD.contains(&code) {
            return Ok(code);
        }
        Err(TrialError::Load(format!("{status}: {}", tail(&said))))
    }

    fn wait(&mut self, number: usize) -> Result<ExitStatus, TrialError> {
        let clock = self.tools.context.clock;
        let end_ns = clock() + LOAD_NS_MAX + OVERTIME_NS;
        loop {
            let ended = self.kit.child(number).map(std::process::Child::try_wait);
            match ended {
                Some(Ok(Some(status))) => return Ok(status),
                Some(Ok(None)) if clock() < end_ns => self.pause()?,
                Some(Err(error)) => return Err(TrialError::Load(error.to_string())),
                _ => return Err(TrialError::Load("it does not end".to_owned())),
            }
        }
    }
}

/// The same load for another time: the length is replaced where it is given, or else added.
fn warming(mut words: Vec<String>, duration: &str) -> Vec<String> {
    let at = words.iter().position(|word| word == "-d" || word == "--duration");
    match at {
        Some(at) if at + 1 < words.len() => duration.clone_into(&mut words[at + 1]),
        _ => words.splice(0..0, ["-d".to_owned(), duration.to_owned()]).for_each(drop),
    }
    words
}

/// `127.0.0.1:80` of a URL or of itself.
fn authority(text: &str) -> &str {
    let rest = text.split_once("://").map_or(text, |(_, rest)| rest);
    rest.split(['/', '?']).next().unwrap_or(rest)
}

/// The end of what a program said.
fn tail(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    let text = text.trim();
    let from = text.len().saturating_sub(SAID_BYTES_MAX);
    let from = (from..=text.len()).find(|&at| text.is_char_boundary(at)).unwrap_or(0);
    text[from..].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warm_up_is_the_same_load_for_another_time() {
        let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(warming(words("-c 1 -d 8s u"), "1000ms"), words("-c 1 -d 1000ms u"));
        assert_eq!(warming(words("u"), "1000ms"), words("-d 1000ms u"));
    }

    #[test]
    fn an_address_is_found_in_a_url() {
        assert_eq!(authority("http://198.18.1.2:8000/?s=1"), "198.18.1.2:8000");
        assert_eq!(authority("198.18.1.2:8000"), "198.18.1.2:8000");
    }
}
