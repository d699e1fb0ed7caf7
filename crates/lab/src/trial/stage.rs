//! A scenario with the programs of a trial in it: starts them, and has the load driven.
//!
//! Not for how a driver is called or read ([`super::driver`]), nor for what is seen meanwhile
//! ([`super::watch`]).

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use record::run::Run;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

use super::driver::{Call, Row};
use super::port::free_port;
use super::ready::Ready;
use super::said::{emptied, opened, output, said_by, tail};
use super::watch::{Place, Seen, Watch};
use super::{Tools, TrialError, is_weir, line_of};
use crate::scenario::kit::Kit;
use crate::scenario::placeholders::{self, DURATION, stands_in};
use crate::scenario::plan::Node;
use crate::scenario::setup::Setup;

/// How long a load may run beyond its length: for what is in flight at its end.
const OVERTIME_NS: u64 = 60_000_000_000;
/// The longest load.
const LOAD_NS_MAX: u64 = 3_600_000_000_000;
/// How long a driver may take to say its version.
const ANSWER_NS_MAX: u64 = 10_000_000_000;
/// How often it is looked whether a program is ready, or has ended.
const LOOK: Duration = Duration::from_millis(20);
/// How long a load that is stopped may take for what it has under way, before it is told to let that be.
const STOP_NS: u64 = 6_000_000_000;
/// Exit codes of `weir load` with which there is a record: done, an objective missed, not valid.
const WITH_RECORD: [i32; 3] = [0, 3, 4];

/// A scenario with the programs in it.
pub(super) struct Stage<'a> {
    pub(super) kit: Kit,
    pub(super) tools: Tools<'a>,
    /// Whether a load that was stopped, or whose subject ended, leaves what it measured until then.
    keeps: bool,
    /// What stands for placeholders.
    pub(super) texts: BTreeMap<&'static str, String>,
    /// Programs that were started, with where they take connections.
    pub(super) places: Vec<(Node, usize, Ready)>,
    /// Programs besides, by name: only that they live is checked.
    pub(super) extras: Vec<(String, Node, usize, Ready)>,
    /// Command lines, by role.
    pub(super) commands: BTreeMap<String, String>,
}

/// What a driver left.
#[derive(Debug, Default)]
pub(super) struct Driven {
    pub(super) exit: i32,
    /// Length of the load.
    pub(super) length_s: f64,
    /// The record, of weir.
    pub(super) run: Option<Run>,
    /// What it printed, of others.
    pub(super) output: Option<String>,
    /// What it says that has to be known to read it.
    pub(super) notes: Vec<String>,
    /// Why it is not of a whole load.
    pub(super) wrong: Option<TrialError>,
}

/// What stands for each placeholder but the length of a load.
fn texts<'a>(
    weir: &Path,
    folder: &Path,
    port: u16,
    address: impl Fn(Node) -> &'a str,
) -> BTreeMap<&'static str, String> {
    BTreeMap::from([
        ("weir", weir.to_string_lossy().into_owned()),
        ("dir", folder.to_string_lossy().into_owned()),
        ("port", port.to_string()),
        ("client", address(Node::Client).to_owned()),
        ("subject", address(Node::Subject).to_owned()),
        ("origin", address(Node::Origin).to_owned()),
    ])
}

/// How long a load may take. Without `{duration}` its length is its own (a number of requests).
fn most_ns(setup: &Setup, wanted_ns: u64) -> u64 {
    let is_given = setup.load.iter().any(|word| stands_in(DURATION, word));
    OVERTIME_NS + if is_given { wanted_ns } else { LOAD_NS_MAX }
}

impl<'a> Stage<'a> {
    /// Makes the scenario.
    pub(super) fn make(setup: &Setup, tools: Tools<'a>, keeps: bool) -> Result<Self, TrialError> {
        let kit = Kit::make(&setup.scenario, tools.context).map_err(TrialError::Scenario)?;
        let port =
            kit.within(Node::Subject, free_port).and_then(|port| port.map_err(|e| e.to_string()));
        let port = port.map_err(TrialError::Scenario)?;
        let texts = texts(tools.weir, kit.folder(), port, |node| kit.address(node));
        Ok(Self {
            kit,
            tools,
            keeps,
            texts,
            places: Vec::new(),
            extras: Vec::new(),
            commands: BTreeMap::new(),
        })
    }

    fn record_path(&self) -> PathBuf {
        self.kit.folder().join("record.json")
    }

    /// A text with its placeholders filled in.
    pub(super) fn filled(&self, text: &str) -> String {
        placeholders::filled(text, |name| self.texts.get(name).map(String::as_str))
    }

    pub(super) fn write_files(&self, setup: &Setup) -> Result<(), TrialError> {
        for (name, text) in &setup.files {
            let path = self.kit.folder().join(name);
            fs::write(&path, self.filled(text))
                .map_err(|error| TrialError::Scenario(format!("{}: {error}", path.display())))?;
        }
        Ok(())
    }

    /// Programs that are there no more: what was measured then is nobody's. One that put itself into the
    /// background has ended too, and still listens.
    fn all_live(&mut self) -> Result<(), TrialError> {
        let places = self.places.clone().into_iter();
        let places = places.map(|(node, number, ready)| (node.to_string(), node, number, ready));
        // A program that takes no connections may have done its work.
        let extras = self.extras.iter().filter(|(.., ready)| ready.address.is_some()).cloned();
        for (name, node, number, ready) in places.chain(extras).collect::<Vec<_>>() {
            let ended = self.kit.child(number).and_then(|child| child.try_wait().ok().flatten());
            let Some(status) = ended else { continue };
            if !self.listens(node, &ready)? {
                let said = said_by(&self.kit.folder().join(format!("{name}.log")));
                let text = format!("the {name} ended under load ({status}){said}");
                return Err(TrialError::Program(text));
            }
        }
        Ok(())
    }

    pub(super) fn pause(&self) -> Result<(), TrialError> {
        std::thread::sleep(LOOK);
        if (self.tools.stop)() { Err(TrialError::Stopped) } else { Ok(()) }
    }

    /// What a driver says of itself: its version, and what else is asked. Weir says it in its record.
    pub(super) fn ask(&mut self, row: &Row) -> Result<String, TrialError> {
        let mut all = String::new();
        for arguments in row.asks {
            let said = self.kit.folder().join("version.log");
            // A file that is not there yet is what is wanted.
            let _ = fs::remove_file(&said);
            let mut command = Command::new(row.program);
            command.args(*arguments).current_dir(self.kit.folder()).stdin(Stdio::null());
            command.stdout(opened(&said)?).stderr(opened(&said)?);
            let number = self.kit.spawn(Node::Client, &mut command).map_err(|why| {
                TrialError::Load(format!("{why}; is it installed? ({})", row.package))
            })?;
            // Some end with an error after they have said it.
            self.wait(number, ANSWER_NS_MAX)?;
            all.push_str(&output(&said)?);
            all.push('\n');
        }
        Ok(all)
    }

    /// Runs the load for so long without a record; how long that was, as the driver takes lengths.
    pub(super) fn warm_up(
        &mut self,
        row: &Row,
        setup: &Setup,
        said: &str,
        wanted_ns: u64,
    ) -> Result<u64, TrialError> {
        let call = self.call(row, setup, said, wanted_ns);
        let number = self.drive(row, setup, &call.for_so_long(row), false)?;
        // What is wrong with it shows again when the load itself runs, with a better place to say so.
        self.wait(number, most_ns(setup, wanted_ns))?;
        Ok(row.length.taken_ns(wanted_ns))
    }

    fn call(&self, row: &Row, setup: &Setup, said: &str, wanted_ns: u64) -> Call {
        Call {
            words: setup.load.clone(),
            texts: self.texts.clone(),
            length: row.length.text(wanted_ns),
            said: said.to_owned(),
            file: self.kit.folder().join(row.file),
        }
    }

    /// Runs the load to its end, and watches meanwhile.
    pub(super) fn load(
        &mut self,
        row: &Row,
        setup: &Setup,
        said: &str,
    ) -> Result<(Driven, Seen), TrialError> {
        let duration_ns = self.tools.duration_ns;
        let words = self.call(row, setup, said, duration_ns).once(row);
        let clock = self.tools.context.clock;
        let zero_ns = clock();
        let number = self.drive(row, setup, &words, true)?;
        let mut places = vec![Place { node: Node::Client, pids: self.pids(number), port: None }];
        for (node, number, ready) in self.places.clone() {
            let port = ready.address.map(|address| address.port());
            places.push(Place { node, pids: self.pids(number), port });
        }
        let watch = Watch::start(setup, &places, duration_ns, clock);
        let stopped = match self.wait_unreaped(number, most_ns(setup, duration_ns)) {
            Err(TrialError::Stopped) if self.keeps && is_weir(setup.tool) => {
                self.stop(number)?;
                Err(TrialError::Stopped)
            }
            waited => Ok(waited?),
        };
        let seen = watch.finish(zero_ns);
        let status = self.wait(number, OVERTIME_NS)?;
        let wrong = stopped.and_then(|()| self.all_live()).err();
        if let Some(why) = wrong.clone().filter(|_| !self.keeps) {
            return Err(why);
        }
        let driven = match is_weir(setup.tool) {
            true => self.recorded(status),
            false => self.printed(row, status),
        };
        // What became of the subject tells more than what the load says of that.
        let driven = driven.map_err(|error| wrong.clone().unwrap_or(error))?;
        Ok((Driven { wrong, ..driven }, seen))
    }

    /// Asks a load to end with what it has measured; a second time, where it waits for too long.
    fn stop(&mut self, number: usize) -> Result<(), TrialError> {
        let pid = self.pids(number).first().and_then(|&pid| Pid::from_raw(pid));
        let Some(pid) = pid else { return Err(TrialError::Stopped) };
        let clock = self.tools.context.clock;
        for _ in 0..2 {
            // One that has ended meanwhile is what was wanted: nobody has waited for it yet.
            let _ = kill_process(pid, Signal::TERM);
            let end_ns = clock() + STOP_NS;
            while clock() < end_ns {
                if !is_running(pid) {
                    return Ok(());
                }
                std::thread::sleep(LOOK);
            }
        }
        Err(TrialError::Stopped)
    }

    /// Starts what drives the load.
    fn drive(
        &mut self,
        row: &Row,
        setup: &Setup,
        words: &[String],
        counts: bool,
    ) -> Result<usize, TrialError> {
        let (said, printed) = (self.load_log(), self.load_output());
        let program = match is_weir(setup.tool) {
            true => self.tools.weir.to_owned(),
            false => PathBuf::from(row.program),
        };
        let mut command = Command::new(&program);
        command.args(words).current_dir(self.kit.folder()).stdin(Stdio::null());
        let mut all = vec![program.to_string_lossy().into_owned()];
        all.extend(words.iter().cloned());
        if is_weir(setup.tool) {
            // Not by the address: a run beside this one has the same in namespaces of its own.
            for pid in self.subjects_of(words) {
                command.arg("--subject").arg(pid.to_string());
            }
            if counts {
                let path = self.record_path();
                command.arg("--json").arg(&path);
                all.extend(["--json".to_owned(), path.to_string_lossy().into_owned()]);
            }
            if !counts || !self.tools.show {
                command.stdout(Stdio::null());
            }
        } else {
            command.stdout(emptied(&printed)?);
        }
        command.stderr(emptied(&said)?);
        if counts {
            self.commands.insert("driver".to_owned(), line_of(&BTreeMap::new(), &all));
        }
        self.kit.spawn(Node::Client, &mut command).map_err(TrialError::Load)
    }

    /// The processes of the subject that live, where the load goes to it.
    fn subjects_of(&mut self, words: &[String]) -> Vec<i32> {
        let subject = self.places.iter().find(|(node, ..)| *node == Node::Subject);
        let Some((_, number, ready)) = subject.cloned() else { return Vec::new() };
        let Some(address) = ready.address.map(|address| address.to_string()) else {
            return Vec::new();
        };
        let child = self.kit.child(number);
        let lives = child.is_some_and(|child| matches!(child.try_wait(), Ok(None)));
        let is_it = lives && words.iter().any(|word| word.contains(&address));
        if is_it { self.pids(number) } else { Vec::new() }
    }

    fn load_log(&self) -> PathBuf {
        self.kit.folder().join("load.log")
    }

    fn load_output(&self) -> PathBuf {
        self.kit.folder().join("load.out")
    }

    /// What weir recorded.
    fn recorded(&self, status: ExitStatus) -> Result<Driven, TrialError> {
        let exit = status.code().unwrap_or(-1);
        if !WITH_RECORD.contains(&exit) {
            return Err(TrialError::Load(format!("{status}: {}", tail(&self.load_log()))));
        }
        let run = record::file::read_run(&self.record_path());
        let run = run.map_err(|error| TrialError::Load(error.to_string()))?;
        Ok(Driven { exit, length_s: run.duration_s, run: Some(run), ..Driven::default() })
    }

    /// What another driver printed, if it can be read.
    fn printed(&self, row: &Row, status: ExitStatus) -> Result<Driven, TrialError> {
        let failed = |why: String| {
            let said = [tail(&self.load_log()), tail(&self.load_output())].join("\n");
            TrialError::Load(format!("{}: {why}: {}", row.program, said.trim()))
        };
        if !status.success() {
            return Err(failed(status.to_string()));
        }
        let mut text = output(&self.load_output())?;
        let file = self.kit.folder().join(row.file);
        if !row.file.is_empty() && file.is_file() {
            text.push('\n');
            text.push_str(&output(&file)?);
        }
        let reading = (row.parse)(&text).map_err(failed)?;
        Ok(Driven {
            exit: 0,
            length_s: reading.length_s,
            run: None,
            output: Some(text),
            notes: reading.notes,
            ..Driven::default()
        })
    }

    fn wait(&mut self, number: usize, most_ns: u64) -> Result<ExitStatus, TrialError> {
        let clock = self.tools.context.clock;
        let end_ns = clock() + most_ns;
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

    /// Waits for a program's end and leaves it there (waitid(2), `WNOWAIT`): what it used in its last
    /// second can still be read.
    fn wait_unreaped(&mut self, number: usize, most_ns: u64) -> Result<(), TrialError> {
        let clock = self.tools.context.clock;
        let end_ns = clock() + most_ns;
        let pid = self.pids(number).first().and_then(|&pid| Pid::from_raw(pid));
        let Some(pid) = pid else { return Ok(()) };
        while is_running(pid) {
            if clock() > end_ns {
                return Err(TrialError::Load("it does not end".to_owned()));
            }
            self.pause()?;
        }
        Ok(())
    }

    fn pids(&mut self, number: usize) -> Vec<i32> {
        let pid = self.kit.child(number).and_then(|child| i32::try_from(child.id()).ok());
        pid.into_iter().collect()
    }
}

/// Whether a child has not ended. An error means that it cannot be waited for so; then it is waited for as
/// usual.
fn is_running(pid: Pid) -> bool {
    let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    matches!(waitid(WaitId::Pid(pid), look), Ok(None))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_placeholder_of_a_trial_has_its_text() {
        let known = texts(Path::new("/weir"), Path::new("/run"), 80, |node| node.name());
        let mut names: Vec<&str> = known.keys().copied().chain([DURATION]).collect();
        names.sort_unstable();
        let mut expected = placeholders::OF_THE_LAB.to_vec();
        expected.sort_unstable();
        assert_eq!(names, expected);
        assert_eq!((&*known["port"], &*known["origin"]), ("80", "origin"));
    }
}
