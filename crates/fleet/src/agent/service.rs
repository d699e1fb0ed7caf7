//! Agent as a process: connects the state machine to NATS, the child process and the disk.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use record::control::LoadEvent;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use super::child::{ChildFailure, ChildOutput, EVENTS_MAX, LoadChild};
use super::spool::Spool;
use super::{AgentAction, AgentEvent, AgentMachine};
use crate::message::{
    AgentCommand, AgentFacts, AgentName, AgentReport, Job, Pong, RunId, StoredRun, decode, encode,
};
use crate::subjects;
use crate::transport::{LinkEvent, Message, NatsLink, NatsOptions, TransportError};

/// Reading of the clocks: `CLOCK_MONOTONIC`, and the wall clock, in ns.
pub type Clocks = fn() -> (u64, u64);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckedJob {
    /// Arguments of the child process, with the command.
    pub arguments: Vec<String>,
    /// Maximum duration of the load with its drain, in ns.
    pub duration_ns: u64,
}

/// Function that checks a job: the parser of the command line, and the rules of what a plan may do on this
/// machine. It gets the path of the record, and returns every problem.
pub type CheckJob = Box<dyn Fn(&Job, &std::path::Path) -> Result<CheckedJob, Vec<String>>>;

pub struct AgentConfig {
    pub nats: NatsOptions,
    pub facts: AgentFacts,
    /// Directory of the records that were not delivered.
    pub state_directory: PathBuf,
    /// Program of the child process: this one.
    pub program: PathBuf,
    pub validate: CheckJob,
    pub clocks: Clocks,
    pub notice: fn(&str),
}

impl std::fmt::Debug for AgentConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AgentConfig").field("facts", &self.facts).finish_non_exhaustive()
    }
}

/// Reason why an agent ended.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// The server cannot be used.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// The state directory cannot be used.
    #[error("state directory: {0}")]
    Spool(std::io::Error),
    /// The runtime cannot be started.
    #[error("cannot start: {0}")]
    Runtime(std::io::Error),
}

/// Interval of the state machine's clock, and of the checks of the child process.
const TICK: Duration = Duration::from_millis(20);
/// Maximum time for which the end of an agent waits for a record that is being sent.
const SENDING_TIMEOUT: Duration = Duration::from_secs(5);
/// Exit codes of `weir load` with a record: valid, objective missed, invalid.
const CODES_WITH_RECORD: &[i32] = &[0, 3, 4];

/// Runs an agent until it has drained: `drain` counts the requests to end. A server that is not reachable at the
/// start is tried again without an end.
///
/// # Errors
/// The server rejects the agent at its start, or the state directory cannot be used.
pub fn run(config: AgentConfig, drain: watch::Receiver<u32>) -> Result<(), AgentError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(AgentError::Runtime)?.block_on(run_async(config, drain))
}

/// Does the same within a runtime.
///
/// # Errors
/// Those of [`run`].
pub async fn run_async(config: AgentConfig, mut drain: watch::Receiver<u32>) -> Result<(), AgentError> {
    let spool = Spool::open(&config.state_directory).map_err(AgentError::Spool)?;
    let stored = spool.scan().map_err(AgentError::Spool)?;
    let connected = tokio::select! {
        connected = NatsLink::connect_with_retry(&config.nats, None, config.notice) => connected?,
        () = first_drain(drain.clone()) => return Ok(()),
    };
    let (link, mut messages, mut link_events) = connected;
    link.subscribe(subjects::COMMAND_ALL).await?;
    link.subscribe(&subjects::command(&config.facts.name)).await?;
    let machine = AgentMachine::new(config.facts.instance.clone(), stored);
    let (events, mut child_events) = mpsc::channel(EVENTS_MAX);
    let mut agent = AgentShell {
        config,
        link,
        machine,
        spool,
        child: None,
        checked: BTreeMap::new(),
        start_ns: None,
        events,
        sending: None,
    };
    agent.report(AgentReport::Facts { facts: Box::new(agent.config.facts.clone()) }).await;
    let mut ticks = tokio::time::interval(TICK);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    let mut drains = 0;
    loop {
        let events = tokio::select! {
            Some(message) = messages.recv() => agent.read(&message),
            Some(output) = child_events.recv() => agent.read_output(output),
            Some(event) = link_events.recv() => agent.read_link(event),
            _ = ticks.tick() => {
                let wanted = *drain.borrow_and_update();
                let mut events = vec![AgentEvent::Tick; 1];
                events.extend((drains..wanted).map(|_| AgentEvent::Drain));
                drains = wanted;
                events.extend(agent.poll_child(&mut child_events));
                events
            }
        };
        if agent.handle_all(events).await {
            if let Some(task) = agent.sending.take() {
                let _ = tokio::time::timeout(SENDING_TIMEOUT, task).await;
            }
            agent.link.flush().await;
            return Ok(());
        }
    }
}

/// Waits for the first request to end.
async fn first_drain(mut drain: watch::Receiver<u32>) {
    if drain.wait_for(|count| *count > 0).await.is_err() {
        // Nobody can request it any more.
        std::future::pending::<()>().await;
    }
}

/// I/O of an agent.
struct AgentShell {
    config: AgentConfig,
    link: NatsLink,
    machine: AgentMachine,
    spool: Spool,
    child: Option<(RunId, LoadChild)>,
    checked: BTreeMap<RunId, CheckedJob>,
    /// Start of the child's load, in ns.
    start_ns: Option<u64>,
    events: mpsc::Sender<ChildOutput>,
    sending: Option<JoinHandle<()>>,
}

impl AgentShell {
    /// Handles events and their actions. Returns true if the agent ends.
    async fn handle_all(&mut self, events: Vec<AgentEvent>) -> bool {
        let mut queue: std::collections::VecDeque<AgentEvent> = events.into();
        let mut has_ended = false;
        while let Some(event) = queue.pop_front() {
            for action in self.machine.handle(event, (self.config.clocks)().0) {
                match action {
                    AgentAction::Exit => has_ended = true,
                    action => queue.extend(self.act(action).await),
                }
            }
        }
        has_ended
    }

    async fn act(&mut self, action: AgentAction) -> Option<AgentEvent> {
        match action {
            AgentAction::ReportFacts => {
                self.report(AgentReport::Facts { facts: Box::new(self.config.facts.clone()) }).await;
            }
            AgentAction::ReportStatus => {
                self.report(AgentReport::Status { status: self.machine.status() }).await;
            }
            AgentAction::ReportClock(sequence) => {
                let (clock_ns, wall_ns) = (self.config.clocks)();
                let pong = Pong { sequence, clock_ns, wall_ns };
                self.publish(subjects::clock(&self.config.facts.name), &pong).await;
            }
            AgentAction::ReportSecond(run, second) => {
                self.publish(subjects::live(&self.config.facts.name, &run), &second).await;
            }
            AgentAction::Check(run, job) => return Some(self.check(run, &job)),
            AgentAction::Spawn(run) => return self.spawn(run),
            AgentAction::Write(command) => {
                if let Some((_, child)) = &mut self.child {
                    child.write(command);
                }
            }
            AgentAction::Kill => {
                if let Some((_, child)) = &mut self.child {
                    child.kill();
                }
            }
            AgentAction::SendRecord(run, from_part) => self.send_record(run, from_part),
            AgentAction::Delete(run) => {
                let (spool, notice) = (self.spool.clone(), self.config.notice);
                tokio::task::spawn_blocking(move || {
                    if let Err(error) = spool.delete(&run) {
                        notice(&format!("cannot delete the record of run {run}: {error}"));
                    }
                });
            }
            AgentAction::Exit => {}
        }
        None
    }

    fn read(&self, message: &Message) -> Vec<AgentEvent> {
        match decode::<AgentCommand>(&message.payload) {
            Ok(command) => vec![AgentEvent::Command(command)],
            Err(error) => {
                (self.config.notice)(&format!("ignored {error}"));
                Vec::new()
            }
        }
    }

    fn read_link(&self, event: LinkEvent) -> Vec<AgentEvent> {
        let is_connected = match event {
            LinkEvent::Connected => Some(true),
            LinkEvent::Disconnected => Some(false),
            LinkEvent::Rejected(_) => None,
        };
        (self.config.notice)(&match event {
            LinkEvent::Connected => "connected to the NATS server".to_owned(),
            LinkEvent::Disconnected => {
                "the NATS server is unreachable; a run in progress continues, and its record waits".to_owned()
            }
            LinkEvent::Rejected(text) => format!("the NATS server rejects this agent: {text}"),
        });
        is_connected.map(AgentEvent::Link).into_iter().collect()
    }

    fn read_output(&mut self, output: ChildOutput) -> Vec<AgentEvent> {
        match output {
            ChildOutput::Event(event) => {
                if let LoadEvent::Started { clock_ns, .. } = event {
                    self.start_ns = Some(clock_ns);
                }
                vec![AgentEvent::Child(event)]
            }
            ChildOutput::Ended(code, stderr) => {
                if let Some((run, _)) = self.child.take() {
                    self.store_record(run, code, stderr);
                }
                Vec::new()
            }
            ChildOutput::Stored(stored) => vec![AgentEvent::ChildEnded(stored)],
        }
    }

    /// Returns the events of a child process that ended: first those that it reported before.
    fn poll_child(&mut self, events: &mut mpsc::Receiver<ChildOutput>) -> Vec<AgentEvent> {
        let Some(ended) = self.child.as_mut().and_then(|(_, child)| child.poll_end()) else {
            return Vec::new();
        };
        let mut all = Vec::new();
        while let Ok(output) = events.try_recv() {
            all.extend(self.read_output(output));
        }
        all.extend(self.read_output(ended));
        all
    }

    fn check(&mut self, run: RunId, job: &Job) -> AgentEvent {
        let name = job.role.name();
        let checked = match self.config.facts.roles.contains(&job.role) {
            false => Err(vec![format!(
                "this agent does not allow the role {name} (weir fleet agent --allow {name})"
            )]),
            true => match self.spool.record_path(&run) {
                Ok(path) => (self.config.validate)(job, &path),
                Err(error) => Err(vec![format!("the state directory cannot be written: {error}")]),
            },
        };
        let result = checked.map(|checked| {
            let duration_ns = checked.duration_ns;
            self.checked.insert(run.clone(), checked);
            duration_ns
        });
        if result.is_err() {
            // An empty directory of a refused run.
            let _ = self.spool.delete(&run);
        }
        AgentEvent::Checked(run, result)
    }

    fn spawn(&mut self, run: RunId) -> Option<AgentEvent> {
        let checked = self.checked.remove(&run)?;
        self.checked.clear();
        match LoadChild::spawn(&self.config.program, &checked.arguments, self.events.clone()) {
            Ok(child) => {
                (self.config.notice)(&format!("run {run}: {}", checked.arguments.join(" ")));
                (self.child, self.start_ns) = (Some((run, child)), None);
                None
            }
            Err(error) => Some(AgentEvent::ChildEnded(Err(ChildFailure::Start(error.to_string())))),
        }
    }

    /// Stores the record of a child process that ended. A disk may be busy for longer than an agent may be
    /// silent, so this is not on the thread of the heartbeats.
    fn store_record(&self, run: RunId, code: Option<i32>, stderr: String) {
        let (spool, start_ns, notice) = (self.spool.clone(), self.start_ns, self.config.notice);
        let events = self.events.clone();
        tokio::task::spawn_blocking(move || {
            let stored = take_record(&spool, &run, start_ns, (code, &stderr));
            notice(&match &stored {
                Ok(stored) => format!("run {run}: ended, record of {} bytes", stored.bytes),
                Err(failure) => format!("run {run}: {failure}"),
            });
            // Nobody listens after the end of the agent; the next one finds the record.
            let _ = events.blocking_send(ChildOutput::Stored(stored));
        });
    }

    /// Starts to send a record, unless one is being sent: the coordinator asks again for what is missing. Neither a
    /// slow disk nor a slow network delays the heartbeats.
    fn send_record(&mut self, run: RunId, from_part: u32) {
        if self.sending.as_ref().is_some_and(|task| !task.is_finished()) {
            return;
        }
        let status = self.machine.status();
        let Some(stored) = status.stored.into_iter().find(|stored| stored.run == run) else { return };
        let sender = RecordSender {
            spool: self.spool.clone(),
            link: self.link.clone(),
            agent: self.config.facts.name.clone(),
            notice: self.config.notice,
        };
        self.sending = Some(tokio::spawn(sender.send(stored, from_part)));
    }

    async fn report(&self, report: AgentReport) {
        self.publish(subjects::report(&self.config.facts.name), &report).await;
    }

    async fn publish<T: serde::Serialize>(&self, subject: String, body: &T) {
        match encode(body) {
            Ok(bytes) => self.link.publish(subject, bytes).await,
            Err(error) => (self.config.notice)(&format!("cannot send {error}")),
        }
    }
}

/// Parts of a record on their way to the coordinator.
struct RecordSender {
    spool: Spool,
    link: NatsLink,
    agent: AgentName,
    notice: fn(&str),
}

impl RecordSender {
    async fn send(self, stored: StoredRun, from_part: u32) {
        for part in from_part..stored.parts() {
            let (spool, run) = (self.spool.clone(), stored.run.clone());
            let read = tokio::task::spawn_blocking(move || spool.read_part(&run, part)).await;
            match read.unwrap_or_else(|panicked| Err(std::io::Error::other(panicked))) {
                Ok(bytes) => {
                    let subject = subjects::record_part(&self.agent, &stored.run, part);
                    self.link.publish(subject, bytes).await;
                    // One part at a time, so that a slow network holds no more than that in memory.
                    self.link.flush().await;
                }
                Err(error) => return (self.notice)(&format!("run {}: {error}", stored.run)),
            }
        }
    }
}

/// Returns the record of a child process that ended with an exit code (`None`: by a signal) and messages.
fn take_record(
    spool: &Spool,
    run: &RunId,
    start_ns: Option<u64>,
    (code, stderr): (Option<i32>, &str),
) -> Result<StoredRun, ChildFailure> {
    let stored = match code.is_some_and(|code| CODES_WITH_RECORD.contains(&code)) {
        true => spool.store(run, start_ns).map_err(|error| ChildFailure::Record(error.to_string())),
        false => {
            // The child's messages have the prefix of the program.
            let text = stderr.lines().map(|line| line.strip_prefix("weir: ").unwrap_or(line));
            let text = text.collect::<Vec<_>>().join("; ");
            Err(if text.is_empty() { ChildFailure::Silent(code) } else { ChildFailure::Reported(text) })
        }
    };
    if stored.is_err() {
        let _ = spool.delete(run);
    }
    stored
}
