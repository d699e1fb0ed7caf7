//! Programs of a trial: their build steps, their start, and the wait until they are ready.
//!
//! Not for the readiness conditions ([`super::ready`]), nor for the load ([`super::stage`]).

use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use host::sandbox::programs::program_to_start;
use record::sorted::CollectSorted;
use record::units::format_duration_ns;

use super::program_output::{open_for_append, output_suffix, output_tail};
use super::ready::{ReadinessCheck, ReadinessState, ReadyCommand, preload_problem};
use super::stage::TrialStage;
use super::tools::TrialError;
use crate::scenario::extra::ExtraProgram;
use crate::scenario::plan::Node;
use crate::scenario::program::{ProgramSetup, READY_TIMEOUT_DEFAULT_NS};
use crate::scenario::setup::LabSetup;
use crate::scenario::system_commands::shell_command_line;

const BUILD_TIMEOUT_NS: u64 = 180_000_000_000;
/// Interval between checks of the further readiness conditions of a program that accepts
/// connections, in polls: the program is busy with its start.
const POLLS_BETWEEN_CHECKS: u32 = 10;

impl TrialStage<'_> {
    /// Runs the build steps of all programs, in the order in which they start.
    pub(super) fn run_build_steps(&self, setup: &LabSetup) -> Result<(), TrialError> {
        let extras = setup.programs.iter().map(|extra| (&*extra.name, &extra.program));
        let origin = setup.origin.iter().map(|origin| ("origin", origin));
        for (name, program) in extras.chain(origin).chain([("subject", &setup.subject)]) {
            if program.build.is_empty() {
                continue;
            }
            let words: Vec<String> = program.build.iter().map(|word| self.fill(word)).collect();
            let line = shell_command_line(&BTreeMap::new(), &words);
            let failed = |reason: &dyn Display| TrialError::Program(format!("build of {name}: {reason}"));
            let log = self.testbed.directory().join(format!("{name}-build.log"));
            let mut build = ReadyCommand::start(&words, None, self.testbed.directory(), &log)
                .map_err(|error| failed(&error))?;
            let end_ns = (self.tools.context.clock)() + BUILD_TIMEOUT_NS;
            loop {
                match build.exit_status() {
                    Some(status) if status.success() => break,
                    Some(status) => {
                        return Err(failed(&format_args!(
                            "`{line}` ended with {status} ({})",
                            output_tail(&log)
                        )));
                    }
                    None if (self.tools.context.clock)() > end_ns => {
                        return Err(failed(&format_args!("`{line}` does not end")));
                    }
                    None => self.pause()?,
                }
            }
        }
        Ok(())
    }

    /// Starts the programs besides the subject and its origin, in the order of the file.
    pub(super) fn start_extras(&mut self, extras: &[ExtraProgram]) -> Result<(), TrialError> {
        for ExtraProgram { name, node, program } in extras {
            let (number, ready) = self.start_and_wait(*node, name, program)?;
            self.extras.push((name.clone(), *node, number, ready));
        }
        Ok(())
    }

    /// Starts the subject or its origin and waits until it is ready.
    pub(super) fn start(&mut self, node: Node, program: &ProgramSetup) -> Result<(), TrialError> {
        let (number, ready) = self.start_and_wait(node, node.name(), program)?;
        self.started_programs.push((node, number, ready));
        match node {
            Node::Subject => self.testbed.limit_workers(number).map_err(TrialError::scenario),
            _ => Ok(()),
        }
    }

    /// Starts a program at a node and waits until it is ready. `name` is the key of its command
    /// line and the name of its log.
    fn start_and_wait(
        &mut self,
        node: Node,
        name: &str,
        program: &ProgramSetup,
    ) -> Result<(usize, ReadinessCheck), TrialError> {
        let words: Vec<String> = program.command.iter().map(|word| self.fill(word)).collect();
        let env = program.env.iter().map(|(name, value)| (name.clone(), self.fill(value)));
        let env: BTreeMap<String, String> = env.collect_map();
        self.commands.insert(name.to_owned(), shell_command_line(&env, &words));
        let log = self.testbed.directory().join(format!("{name}.log"));
        let (program_name, arguments) =
            words.split_first().ok_or_else(|| TrialError::Program("an empty command".to_owned()))?;
        // A command with a PATH of its own is the choice of the operator.
        let file = match env.contains_key("PATH") {
            true => PathBuf::from(program_name),
            false => {
                program_to_start(program_name).map_err(|error| TrialError::Program(error.to_string()))?
            }
        };
        let mut command = Command::new(file);
        command.args(arguments).envs(&env).current_dir(self.testbed.directory()).stdin(Stdio::null());
        command.stdout(open_for_append(&log)?).stderr(open_for_append(&log)?);
        let ready =
            ReadinessCheck::from_program(program, |text| self.fill(text)).map_err(TrialError::program)?;
        if let Some(address) = ready.address
            && self.accepts_connections(node, &ready)?
        {
            return Err(TrialError::Program(format!(
                "another process already listens on {address}: end it, or choose another address for \
                 '{program_name}'"
            )));
        }
        let number = self.testbed.spawn(node, &mut command).map_err(TrialError::program)?;
        let within_ns = program.ready_timeout_ns.unwrap_or(READY_TIMEOUT_DEFAULT_NS);
        let waited = self.wait_ready(node, number, &ready, within_ns)?;
        let wrong = waited.or_else(|| preload_problem(program, &log));
        match wrong {
            Some(reason) => {
                Err(TrialError::Program(format!("'{program_name}' {reason}{}", output_suffix(&log))))
            }
            None => Ok((number, ready)),
        }
    }

    /// Waits until a program is ready. Returns the reason if it does not become ready.
    fn wait_ready(
        &mut self,
        node: Node,
        number: usize,
        ready: &ReadinessCheck,
        timeout_ns: u64,
    ) -> Result<Option<String>, TrialError> {
        let clock = self.tools.context.clock;
        let end_ns = clock() + timeout_ns;
        let mut refused = None;
        loop {
            let listens = self.accepts_connections(node, ready)?;
            let state = match listens {
                false => {
                    let address = ready.address.map(|address| address.to_string());
                    ReadinessState::Pending(format!("does not listen on {}", address.unwrap_or_default()))
                }
                true => self.poll_readiness(node, ready, end_ns)?,
            };
            let Some(missing) = state.not_ready_reason(&mut refused) else { return Ok(None) };
            let ended = self.testbed.child(number).and_then(|child| child.try_wait().ok().flatten());
            // A program that put itself into the background has ended too, and listens.
            if let Some(status) = ended.filter(|_| !listens) {
                return Ok(Some(format!("ended ({status})")));
            }
            if clock() > end_ns {
                let within = format_duration_ns(timeout_ns);
                return Ok(Some(format!("is not ready within {within}: {missing}")));
            }
            for _ in 0..if listens { POLLS_BETWEEN_CHECKS } else { 1 } {
                self.pause()?;
            }
        }
    }

    /// Polls a program that accepts connections: first its HTTP path, then its command.
    fn poll_readiness(
        &self,
        node: Node,
        ready: &ReadinessCheck,
        end_ns: u64,
    ) -> Result<ReadinessState, TrialError> {
        let unanswered = self.testbed.run_in_namespace(node, || ready.path_problem());
        if let Some(state) = unanswered.map_err(TrialError::scenario)? {
            return Ok(state);
        }
        if ready.command.is_empty() {
            return Ok(ReadinessState::Ready);
        }
        let log = self.testbed.directory().join(format!("{node}-ready.log"));
        let (namespace, directory) = (self.testbed.namespace(node), self.testbed.directory());
        let mut command = ReadyCommand::start(&ready.command, namespace, directory, &log)
            .map_err(|reason| TrialError::Program(format!("ready-command: {reason}")))?;
        let line = shell_command_line(&BTreeMap::new(), &ready.command);
        loop {
            match command.exit_status() {
                Some(status) if status.success() => return Ok(ReadinessState::Ready),
                Some(status) => {
                    let reason = format!("`{line}` ended with {status} ({})", output_tail(&log));
                    return Ok(ReadinessState::Rejected(reason));
                }
                None if (self.tools.context.clock)() > end_ns => {
                    return Ok(ReadinessState::NoResponse(format!("`{line}` does not end")));
                }
                None => self.pause()?,
            }
        }
    }

    /// Returns whether the program's address accepts connections.
    pub(super) fn accepts_connections(&self, node: Node, ready: &ReadinessCheck) -> Result<bool, TrialError> {
        self.testbed.run_in_namespace(node, || ready.accepts_connections()).map_err(TrialError::scenario)
    }
}
