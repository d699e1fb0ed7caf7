//! The programs of a trial: their build steps, their start, and the wait until they are ready.
//!
//! Not for what is asked of a program before it is ready ([`super::ready`]), nor for the load
//! ([`super::stage`]).

use std::collections::BTreeMap;
use std::process::{Command, Stdio};

use record::units::format_duration_ns;

use super::ready::{Asked, Look, Ready, not_preloaded};
use super::said::{opened, said_by, tail};
use super::stage::Stage;
use super::{TrialError, line_of};
use crate::scenario::extra::ExtraProgram;
use crate::scenario::plan::Node;
use crate::scenario::setup::{Program, READY_WITHIN_NS, Setup};

/// How long a build step may take.
const BUILD_NS_MAX: u64 = 180_000_000_000;
/// How often a program that takes connections is asked whether it is ready besides, in looks: it has a start
/// to make.
const LOOKS_BETWEEN: u32 = 10;

impl Stage<'_> {
    /// Runs the build steps of all programs, in the order in which they start.
    pub(super) fn build(&self, setup: &Setup) -> Result<(), TrialError> {
        let extras = setup.programs.iter().map(|extra| (&*extra.name, &extra.program));
        let origin = setup.origin.iter().map(|origin| ("origin", origin));
        for (name, program) in extras.chain(origin).chain([("subject", &setup.subject)]) {
            if program.build.is_empty() {
                continue;
            }
            let words: Vec<String> = program.build.iter().map(|word| self.filled(word)).collect();
            let line = line_of(&BTreeMap::new(), &words);
            let failed = |why: String| TrialError::Program(format!("build of {name}: {why}"));
            let said = self.kit.folder().join(format!("{name}-build.log"));
            let mut build = Asked::start(&words, None, self.kit.folder(), &said).map_err(failed)?;
            let end_ns = (self.tools.context.clock)() + BUILD_NS_MAX;
            loop {
                match build.ended() {
                    Some(status) if status.success() => break,
                    Some(status) => {
                        return Err(failed(format!(
                            "`{line}` ended with {status} ({})",
                            tail(&said)
                        )));
                    }
                    None if (self.tools.context.clock)() > end_ns => {
                        return Err(failed(format!("`{line}` does not end")));
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
            let (number, ready) = self.launch(*node, name, program)?;
            self.extras.push((name.clone(), *node, number, ready));
        }
        Ok(())
    }

    /// Starts the subject or its origin and waits until it is ready.
    pub(super) fn start(&mut self, node: Node, program: &Program) -> Result<(), TrialError> {
        let (number, ready) = self.launch(node, node.name(), program)?;
        self.places.push((node, number, ready));
        match node {
            Node::Subject => self.kit.bound_workers(number).map_err(TrialError::Scenario),
            _ => Ok(()),
        }
    }

    /// Starts a program at a node and waits until it is ready. `name` names its command line and its log.
    fn launch(
        &mut self,
        node: Node,
        name: &str,
        program: &Program,
    ) -> Result<(usize, Ready), TrialError> {
        let words: Vec<String> = program.command.iter().map(|word| self.filled(word)).collect();
        let env = program.env.iter().map(|(name, value)| (name.clone(), self.filled(value)));
        let env: BTreeMap<String, String> = env.collect();
        self.commands.insert(name.to_owned(), line_of(&env, &words));
        let said = self.kit.folder().join(format!("{name}.log"));
        let (program_name, arguments) = words
            .split_first()
            .ok_or_else(|| TrialError::Program("an empty command".to_owned()))?;
        let mut command = Command::new(program_name);
        command.args(arguments).envs(&env).current_dir(self.kit.folder()).stdin(Stdio::null());
        command.stdout(opened(&said)?).stderr(opened(&said)?);
        let ready = Ready::of(program, |text| self.filled(text)).map_err(TrialError::Program)?;
        if let Some(address) = ready.address
            && self.listens(node, &ready)?
        {
            return Err(TrialError::Program(format!(
                "something else listens on {address} already: what '{program_name}' does would not be \
                 what is measured"
            )));
        }
        let number = self.kit.spawn(node, &mut command).map_err(TrialError::Program)?;
        let within_ns = program.ready_within_ns.unwrap_or(READY_WITHIN_NS);
        let waited = self.wait_ready(node, number, &ready, within_ns)?;
        let wrong = waited.or_else(|| not_preloaded(program, &said));
        match wrong {
            Some(why) => {
                Err(TrialError::Program(format!("'{program_name}' {why}{}", said_by(&said))))
            }
            None => Ok((number, ready)),
        }
    }

    /// Waits until a program is ready; why it is not.
    fn wait_ready(
        &mut self,
        node: Node,
        number: usize,
        ready: &Ready,
        within_ns: u64,
    ) -> Result<Option<String>, TrialError> {
        let clock = self.tools.context.clock;
        let end_ns = clock() + within_ns;
        let mut refused = None;
        loop {
            let listens = self.listens(node, ready)?;
            let look = match listens {
                false => {
                    let address = ready.address.map(|address| address.to_string());
                    Look::Missing(format!("it does not listen on {}", address.unwrap_or_default()))
                }
                true => self.look(node, ready, end_ns)?,
            };
            let Some(missing) = look.missing(&mut refused) else { return Ok(None) };
            let ended = self.kit.child(number).and_then(|child| child.try_wait().ok().flatten());
            // One that put itself into the background has ended too, and listens.
            if let Some(status) = ended.filter(|_| !listens) {
                return Ok(Some(format!("ended ({status})")));
            }
            if clock() > end_ns {
                let within = format_duration_ns(within_ns);
                return Ok(Some(format!("is not ready within {within}: {missing}")));
            }
            for _ in 0..if listens { LOOKS_BETWEEN } else { 1 } {
                self.pause()?;
            }
        }
    }

    /// Whether a program that takes connections is ready.
    fn look(&self, node: Node, ready: &Ready, end_ns: u64) -> Result<Look, TrialError> {
        let unanswered = self.kit.within(node, || ready.unanswered());
        if let Some(look) = unanswered.map_err(TrialError::Scenario)? {
            return Ok(look);
        }
        if ready.command.is_empty() {
            return Ok(Look::Ready);
        }
        let said = self.kit.folder().join(format!("{node}-ready.log"));
        let (namespace, folder) = (self.kit.namespace(node), self.kit.folder());
        let mut asked = Asked::start(&ready.command, namespace, folder, &said)
            .map_err(|why| TrialError::Program(format!("ready-command: {why}")))?;
        let line = line_of(&BTreeMap::new(), &ready.command);
        loop {
            match asked.ended() {
                Some(status) if status.success() => return Ok(Look::Ready),
                Some(status) => {
                    let why = format!("`{line}` ended with {status} ({})", tail(&said));
                    return Ok(Look::Refused(why));
                }
                None if (self.tools.context.clock)() > end_ns => {
                    return Ok(Look::Silent(format!("`{line}` does not end")));
                }
                None => self.pause()?,
            }
        }
    }

    /// Whether somebody takes connections there.
    pub(super) fn listens(&self, node: Node, ready: &Ready) -> Result<bool, TrialError> {
        self.kit.within(node, || ready.listens()).map_err(TrialError::Scenario)
    }
}
