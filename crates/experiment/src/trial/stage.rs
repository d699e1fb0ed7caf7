//! Scenario with the programs of a trial: starts them, and has the load driven.
//!
//! Not for the command line and the output of a driver ([`super::driver`]), nor for the
//! observations meanwhile ([`super::watch`]).

use std::collections::BTreeMap;
use std::fmt::Display;
use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use host::free_port::free_port;
use host::sandbox::programs::program_to_start;
use record::run::Run;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

use super::driver::{DriverCall, DriverSpec};
use super::program_output::{create_empty, open_for_append, output_suffix, output_tail, read_output};
use super::ready::ReadinessCheck;
use super::tools::{TrialError, TrialTools};
use super::watch::{LoadObservations, LoadWatch, WatchedProgram};
use crate::scenario::placeholders::{self, DURATION_PLACEHOLDER, contains};
use crate::scenario::plan::Node;
use crate::scenario::setup::{LabSetup, LoadTool};
use crate::scenario::system_commands::shell_command_line;
use crate::scenario::testbed::Testbed;

/// Maximum time that a load may run beyond its length, for requests in flight at its end.
const OVERTIME_NS: u64 = 60_000_000_000;
const LOAD_NS_MAX: u64 = 3_600_000_000_000;
/// Timeout for a driver to print its version.
const VERSION_TIMEOUT_NS: u64 = 10_000_000_000;
/// Interval between polls for readiness or the end of a program.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Time that a stopped load has to complete its requests in flight, before the second signal.
const STOP_TIMEOUT_NS: u64 = 6_000_000_000;
/// Exit codes of `weir load` with a record: done, an objective missed, not valid.
const EXIT_CODES_WITH_RECORD: [i32; 3] = [0, 3, 4];

/// Scenario with the programs in it.
pub(super) struct TrialStage<'a> {
    pub(super) testbed: Testbed,
    pub(super) tools: TrialTools<'a>,
    /// True if a load that was stopped, or whose subject ended, leaves its measurements.
    keeps_partial: bool,
    pub(super) placeholders: BTreeMap<&'static str, String>,
    pub(super) started_programs: Vec<(Node, usize, ReadinessCheck)>,
    /// Additional programs, by name: the only check is that they are alive.
    pub(super) extras: Vec<(String, Node, usize, ReadinessCheck)>,
    /// Command lines, by role.
    pub(super) commands: BTreeMap<String, String>,
}

/// Result of a driver.
#[derive(Debug, Default)]
pub(super) struct LoadOutcome {
    pub(super) exit_code: i32,
    pub(super) duration_s: f64,
    pub(super) run: Option<Run>,
    pub(super) output: Option<String>,
    /// Facts that are needed to interpret the output.
    pub(super) notes: Vec<String>,
    pub(super) error: Option<TrialError>,
}

/// Returns the values of all placeholders but the length of a load.
fn placeholder_values<'a>(
    weir: &Path,
    directory: &Path,
    port: u16,
    address: impl Fn(Node) -> &'a str,
) -> BTreeMap<&'static str, String> {
    BTreeMap::from([
        ("weir", weir.to_string_lossy().into_owned()),
        ("dir", directory.to_string_lossy().into_owned()),
        ("port", port.to_string()),
        ("client", address(Node::Client).to_owned()),
        ("subject", address(Node::Subject).to_owned()),
        ("origin", address(Node::Origin).to_owned()),
    ])
}

/// Returns the maximum time of a load. Without `{duration}` the load defines its length (a number
/// of requests).
fn load_ns_max(setup: &LabSetup, duration_ns: u64) -> u64 {
    let is_given = setup.load.iter().any(|word| contains(DURATION_PLACEHOLDER, word));
    OVERTIME_NS + if is_given { duration_ns } else { LOAD_NS_MAX }
}

/// Returns the address by which a load names the subject: the one at which it is ready, or that of its node if it is
/// ready at an address that no other node reaches. So is a program whose connections are not those of the kernel.
fn load_address(ready: SocketAddr, node: &str) -> String {
    let is_reachable = node.parse::<IpAddr>().is_ok_and(|address| !address.is_loopback());
    if ready.ip().is_loopback() && is_reachable { node.to_owned() } else { ready.to_string() }
}

impl<'a> TrialStage<'a> {
    pub(super) fn create(setup: &LabSetup, tools: TrialTools<'a>, keeps: bool) -> Result<Self, TrialError> {
        let testbed = Testbed::create(&setup.scenario, tools.context).map_err(TrialError::scenario)?;
        let port = testbed.run_in_namespace(Node::Subject, free_port).flatten();
        let port = port.map_err(TrialError::scenario)?;
        let texts = placeholder_values(tools.weir, testbed.directory(), port, |node| testbed.address(node));
        Ok(Self {
            testbed,
            tools,
            keeps_partial: keeps,
            placeholders: texts,
            started_programs: Vec::new(),
            extras: Vec::new(),
            commands: BTreeMap::new(),
        })
    }

    fn record_path(&self) -> PathBuf {
        self.testbed.directory().join("record.json")
    }

    pub(super) fn fill(&self, text: &str) -> String {
        placeholders::fill(text, |name| self.placeholders.get(name).map(String::as_str))
    }

    pub(super) fn write_files(&self, setup: &LabSetup) -> Result<(), TrialError> {
        for (name, text) in &setup.files {
            let path = self.testbed.directory().join(name);
            fs::write(&path, self.fill(text))
                .map_err(|error| TrialError::Scenario(format!("{}: {error}", path.display())))?;
        }
        Ok(())
    }

    /// Checks that the programs are alive: otherwise the measurements are meaningless. A program
    /// that put itself into the background has ended too, and still listens.
    fn check_all_alive(&mut self) -> Result<(), TrialError> {
        let programs = self.started_programs.clone().into_iter();
        let programs = programs.map(|(node, number, ready)| (node.to_string(), node, number, ready));
        // A program without connections may have completed its work.
        let extras = self.extras.iter().filter(|(.., ready)| ready.address.is_some()).cloned();
        for (name, node, number, ready) in programs.chain(extras).collect::<Vec<_>>() {
            let ended = self.testbed.child(number).and_then(|child| child.try_wait().ok().flatten());
            let Some(status) = ended else { continue };
            if !self.accepts_connections(node, &ready)? {
                let log = output_suffix(&self.testbed.directory().join(format!("{name}.log")));
                let text = format!("the {name} ended under load ({status}){log}");
                return Err(TrialError::Program(text));
            }
        }
        Ok(())
    }

    pub(super) fn pause(&self) -> Result<(), TrialError> {
        std::thread::sleep(POLL_INTERVAL);
        if (self.tools.should_stop)() { Err(TrialError::Stopped) } else { Ok(()) }
    }

    /// Returns the output of a driver's version calls. Weir has its version in its record.
    pub(super) fn driver_version_output(&mut self, driver: &DriverSpec) -> Result<String, TrialError> {
        let mut all = String::new();
        for arguments in driver.version_arguments {
            let log = self.testbed.directory().join("version.log");
            // The file need not exist.
            let _ = fs::remove_file(&log);
            let program = program_to_start(driver.program).map_err(|error| {
                TrialError::Load(format!("{error}; is it installed? ({})", driver.package))
            })?;
            let mut command = Command::new(program);
            command.args(*arguments).current_dir(self.testbed.directory()).stdin(Stdio::null());
            command.stdout(open_for_append(&log)?).stderr(open_for_append(&log)?);
            let number = self.testbed.spawn(Node::Client, &mut command).map_err(|error| {
                TrialError::Load(format!("{error}; is it installed? ({})", driver.package))
            })?;
            // Some programs end with an error after they have printed it.
            self.wait(number, VERSION_TIMEOUT_NS)?;
            all.push_str(&read_output(&log)?);
            all.push('\n');
        }
        Ok(all)
    }

    /// Runs the load for this time without a record. Returns the actual length, in the resolution
    /// of the driver.
    pub(super) fn warm_up(
        &mut self,
        driver: &DriverSpec,
        setup: &LabSetup,
        version_output: &str,
        duration_ns: u64,
    ) -> Result<u64, TrialError> {
        let call = self.driver_call(driver, setup, version_output, duration_ns);
        let number = self.start_driver(driver, setup, &call.warm_up_command(driver), false)?;
        // A failure shows again when the load itself runs, where it is reported better.
        self.wait(number, load_ns_max(setup, duration_ns))?;
        Ok(driver.duration_form.rounded_ns(duration_ns))
    }

    fn driver_call(
        &self,
        driver: &DriverSpec,
        setup: &LabSetup,
        version_output: &str,
        duration_ns: u64,
    ) -> DriverCall {
        DriverCall {
            words: setup.load.clone(),
            placeholders: self.placeholders.clone(),
            duration: driver.duration_form.format(duration_ns),
            version_output: version_output.to_owned(),
            file: self.testbed.directory().join(driver.output_file),
        }
    }

    /// Runs the load to its end, and observes the machine meanwhile.
    pub(super) fn run_load(
        &mut self,
        driver: &DriverSpec,
        setup: &LabSetup,
        version_output: &str,
    ) -> Result<(LoadOutcome, LoadObservations), TrialError> {
        let duration_ns = self.tools.duration_ns;
        let words = self.driver_call(driver, setup, version_output, duration_ns).load_command(driver);
        let clock = self.tools.context.clock;
        let zero_ns = clock();
        let number = self.start_driver(driver, setup, &words, true)?;
        let mut watched =
            vec![WatchedProgram { node: Node::Client, pids: self.live_pids(number), port: None }];
        for (node, number, ready) in self.started_programs.clone() {
            let port = ready.address.map(|address| address.port());
            watched.push(WatchedProgram { node, pids: self.live_pids(number), port });
        }
        let watch = LoadWatch::start(setup, &watched, duration_ns, clock);
        let stopped = match self.wait_unreaped(number, load_ns_max(setup, duration_ns)) {
            Err(TrialError::Stopped) if self.keeps_partial && setup.tool == LoadTool::Weir => {
                self.stop_load(number)?;
                Err(TrialError::Stopped)
            }
            waited => Ok(waited?),
        };
        let observations = watch.finish(zero_ns);
        let status = self.wait(number, OVERTIME_NS)?;
        let wrong = stopped.and_then(|()| self.check_all_alive()).err();
        if let Some(error) = wrong.clone().filter(|_| !self.keeps_partial) {
            return Err(error);
        }
        let driven = match setup.tool == LoadTool::Weir {
            true => self.read_record(status),
            false => self.read_printed_output(driver, status),
        };
        // An end of the subject is more informative than the load's error about it.
        let driven = driven.map_err(|error| wrong.clone().unwrap_or(error))?;
        Ok((LoadOutcome { error: wrong, ..driven }, observations))
    }

    /// Signals a load to end with its measurements so far, and again if that takes too long.
    fn stop_load(&mut self, number: usize) -> Result<(), TrialError> {
        let pid = self.live_pids(number).first().and_then(|&pid| Pid::from_raw(pid));
        let Some(pid) = pid else { return Err(TrialError::Stopped) };
        let clock = self.tools.context.clock;
        for _ in 0..2 {
            // An error means that the load has ended, which is the goal; it has not been reaped
            // yet.
            let _ = kill_process(pid, Signal::TERM);
            let end_ns = clock() + STOP_TIMEOUT_NS;
            while clock() < end_ns {
                if !is_running(pid) {
                    return Ok(());
                }
                std::thread::sleep(POLL_INTERVAL);
            }
        }
        Err(TrialError::Stopped)
    }

    fn start_driver(
        &mut self,
        driver: &DriverSpec,
        setup: &LabSetup,
        words: &[String],
        is_counting_calls: bool,
    ) -> Result<usize, TrialError> {
        let (log, printed) = (self.load_log(), self.load_output());
        let program = match setup.tool == LoadTool::Weir {
            true => self.tools.weir.to_owned(),
            false => program_to_start(driver.program).map_err(|error| TrialError::Load(error.to_string()))?,
        };
        let mut command = match (setup.tool, self.tools.load_prefix) {
            (LoadTool::Weir, [wrapper, rest @ ..]) => {
                let mut command = Command::new(wrapper);
                command.args(rest).arg(&program);
                command
            }
            _ => Command::new(&program),
        };
        command.args(words).current_dir(self.testbed.directory()).stdin(Stdio::null());
        let mut all = vec![program.to_string_lossy().into_owned()];
        all.extend(words.iter().cloned());
        if setup.tool == LoadTool::Weir {
            // PIDs, because the address is not unique: another run has the same one in its
            // namespaces.
            for pid in self.live_subjects(words) {
                command.arg("--subject").arg(pid.to_string());
            }
            if is_counting_calls {
                let path = self.record_path();
                command.arg("--json").arg(&path);
                all.extend(["--json".to_owned(), path.to_string_lossy().into_owned()]);
            }
            if !is_counting_calls || !self.tools.shows_output {
                command.stdout(Stdio::null());
            }
        } else {
            command.stdout(create_empty(&printed)?);
        }
        command.stderr(create_empty(&log)?);
        if is_counting_calls {
            self.commands.insert("driver".to_owned(), shell_command_line(&BTreeMap::new(), &all));
        }
        self.testbed.spawn(Node::Client, &mut command).map_err(TrialError::load)
    }

    /// Returns the live processes of the subject, if the load goes to it.
    fn live_subjects(&mut self, words: &[String]) -> Vec<i32> {
        let subject = self.started_programs.iter().find(|(node, ..)| *node == Node::Subject);
        let Some((_, number, ready)) = subject.cloned() else { return Vec::new() };
        let Some(address) = ready.address else { return Vec::new() };
        let place = load_address(address, self.testbed.address(Node::Subject));
        let child = self.testbed.child(number);
        let lives = child.is_some_and(|child| matches!(child.try_wait(), Ok(None)));
        let is_it = lives && words.iter().any(|word| word.contains(&place));
        if is_it { self.live_pids(number) } else { Vec::new() }
    }

    fn load_log(&self) -> PathBuf {
        self.testbed.directory().join("load.log")
    }

    fn load_output(&self) -> PathBuf {
        self.testbed.directory().join("load.out")
    }

    fn read_record(&self, status: ExitStatus) -> Result<LoadOutcome, TrialError> {
        let exit = status.code().unwrap_or(-1);
        if !EXIT_CODES_WITH_RECORD.contains(&exit) {
            return Err(TrialError::Load(format!("{status}: {}", output_tail(&self.load_log()))));
        }
        let run = record::file::read_run(&self.record_path());
        let run = run.map_err(TrialError::load)?;
        Ok(LoadOutcome {
            exit_code: exit,
            duration_s: run.duration_s,
            run: Some(run),
            ..LoadOutcome::default()
        })
    }

    /// Parses the output of another driver.
    fn read_printed_output(
        &self,
        driver: &DriverSpec,
        status: ExitStatus,
    ) -> Result<LoadOutcome, TrialError> {
        let failed = |reason: &dyn Display| {
            let output = [output_tail(&self.load_log()), output_tail(&self.load_output())].join("\n");
            TrialError::Load(format!("{}: {reason}: {}", driver.program, output.trim()))
        };
        if !status.success() {
            return Err(failed(&status));
        }
        let mut text = read_output(&self.load_output())?;
        let file = self.testbed.directory().join(driver.output_file);
        if !driver.output_file.is_empty() && file.is_file() {
            text.push('\n');
            text.push_str(&read_output(&file)?);
        }
        let reading = (driver.parse)(&text).map_err(|error| failed(&error))?;
        Ok(LoadOutcome {
            exit_code: 0,
            duration_s: reading.duration_s,
            run: None,
            output: Some(text),
            notes: reading.notes,
            ..LoadOutcome::default()
        })
    }

    fn wait(&mut self, number: usize, most_ns: u64) -> Result<ExitStatus, TrialError> {
        let clock = self.tools.context.clock;
        let end_ns = clock() + most_ns;
        loop {
            let ended = self.testbed.child(number).map(std::process::Child::try_wait);
            match ended {
                Some(Ok(Some(status))) => return Ok(status),
                Some(Ok(None)) if clock() < end_ns => self.pause()?,
                Some(Err(error)) => return Err(TrialError::load(error)),
                _ => return Err(TrialError::Load("it does not end".to_owned())),
            }
        }
    }

    /// Waits for a program's end without reaping it (waitid(2), `WNOWAIT`): its resource use in the
    /// last second can still be read.
    fn wait_unreaped(&mut self, number: usize, most_ns: u64) -> Result<(), TrialError> {
        let clock = self.tools.context.clock;
        let end_ns = clock() + most_ns;
        let pid = self.live_pids(number).first().and_then(|&pid| Pid::from_raw(pid));
        let Some(pid) = pid else { return Ok(()) };
        while is_running(pid) {
            if clock() > end_ns {
                return Err(TrialError::Load("it does not end".to_owned()));
            }
            self.pause()?;
        }
        Ok(())
    }

    fn live_pids(&mut self, number: usize) -> Vec<i32> {
        let pid = self.testbed.child(number).and_then(|child| i32::try_from(child.id()).ok());
        pid.into_iter().collect()
    }
}

/// Returns whether a child is still running. An error means that this check is impossible; the
/// caller then waits as usual.
fn is_running(pid: Pid) -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    matches!(waitid(WaitId::Pid(pid), options), Ok(None))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_placeholder_of_a_trial_has_its_text() {
        let values = placeholder_values(Path::new("/weir"), Path::new("/run"), 80, |node| node.name());
        let mut names: Vec<&str> = values.keys().copied().chain([DURATION_PLACEHOLDER]).collect();
        names.sort_unstable();
        let mut expected = placeholders::TRIAL_PLACEHOLDERS.to_vec();
        expected.sort_unstable();
        assert_eq!(names, expected);
        assert_eq!((&*values["port"], &*values["origin"]), ("80", "origin"));
    }

    #[test]
    fn a_subject_that_is_ready_on_its_own_node_only_is_named_by_its_node() {
        for (ready, node, expected) in [
            ("198.18.1.2:8000", "198.18.1.2", "198.18.1.2:8000"),
            ("127.0.0.1:8001", "198.18.1.2", "198.18.1.2"),
            ("127.0.0.1:8001", "127.0.0.1", "127.0.0.1:8001"),
        ] {
            assert_eq!(load_address(ready.parse().unwrap(), node), expected);
        }
    }
}
