//! State machine of an agent: commands, events of its child process and the time in, actions out. Pure.
//!
//! ```text
//! idle ── prepare ──► checking ── valid ──► preparing ── connected ──► ready ── started ──► running
//!   ▲                    │ refused                 │                     │                     │
//!   └────────────────────┴───── child ends: record stored, or failed ───┴─────────────────────┘
//! ```

pub mod child;
pub mod service;
pub mod spool;

use std::collections::BTreeMap;

use record::control::{LATENCIES_BYTES_MAX, LoadCommand, LoadEvent};

use self::child::ChildFailure;
use crate::message::{
    AgentCommand, AgentRole, AgentStatus, Job, LiveSecond, Refusal, RunId, RunState, RunStatus, StoredRun,
    bounded,
};

#[derive(Clone, Debug, PartialEq)]
pub enum AgentEvent {
    Command(AgentCommand),
    /// The job of [`AgentAction::Check`] was checked: the maximum duration of its run in ns, or its problems.
    Checked(RunId, Result<u64, Vec<String>>),
    Child(LoadEvent),
    /// The child process ended: its record is stored, or there is none, with the reason.
    ChildEnded(Result<StoredRun, ChildFailure>),
    /// The connection to the server was made (true), or broke.
    Link(bool),
    Tick,
    /// The agent must end: the first time it finishes its run, the second time it stops the run.
    Drain,
}

#[derive(Clone, Debug, PartialEq)]
pub enum AgentAction {
    ReportFacts,
    ReportStatus,
    ReportClock(u64),
    ReportSecond(RunId, Box<LiveSecond>),
    Check(RunId, Job),
    /// Start the child process of a checked job.
    Spawn(RunId),
    /// Send a command to the child process.
    Write(LoadCommand),
    Kill,
    SendRecord(RunId, u32),
    Delete(RunId),
    Exit,
}

pub const STATUS_INTERVAL_NS: u64 = 1_000_000_000;
/// Maximum time without a command of the coordinator before the start.
const COORDINATOR_TIMEOUT_NS: u64 = 60_000_000_000;
/// Maximum time without a command of the coordinator after the start, for a program under a load and while the
/// server is connected: then the coordinator is gone. A load ends by itself.
const PROGRAM_TIMEOUT_NS: u64 = 120_000_000_000;
/// Time beyond the maximum duration of a run after which the child process is killed.
const OVERRUN_NS: u64 = 60_000_000_000;
/// Maximum number of stored records: without an acknowledgement no further run is accepted.
const STORED_MAX: usize = 64;
/// Maximum time of a draining agent for the delivery of stored records.
const DELIVERY_TIMEOUT_NS: u64 = 10_000_000_000;

#[derive(Clone, Debug)]
pub struct AgentMachine {
    instance: String,
    current: Option<CurrentRun>,
    refused: Option<Refusal>,
    stored: BTreeMap<RunId, StoredRun>,
    drain: Option<AgentDrain>,
    /// Time since which the server is connected; `None`: it is not.
    link_since_ns: Option<u64>,
    reported_ns: u64,
    has_ended: bool,
}

#[derive(Clone, Copy, Debug)]
struct AgentDrain {
    /// Time at which undelivered records are left on the disk; set when no run is in progress.
    exit_ns: Option<u64>,
}

#[derive(Clone, Debug)]
struct CurrentRun {
    status: RunStatus,
    has_child: bool,
    /// True for a program under a load, which runs until its coordinator stops it.
    is_program: bool,
    duration_ns: u64,
    /// Time of the last command of its coordinator.
    heard_ns: u64,
    start_ns: Option<u64>,
    /// Number of stop commands to the child process: one ends the load, a second one gives up requests.
    stops: u8,
    is_killed: bool,
}

impl AgentMachine {
    /// Creates an agent with the records that an earlier process left on the disk. The server is connected.
    #[must_use]
    pub fn new(instance: String, stored: Vec<StoredRun>) -> Self {
        let stored = stored.into_iter().map(|record| (record.run.clone(), record));
        Self {
            instance,
            current: None,
            refused: None,
            stored: stored.collect(),
            drain: None,
            link_since_ns: Some(0),
            reported_ns: 0,
            has_ended: false,
        }
    }

    pub fn status(&self) -> AgentStatus {
        AgentStatus {
            instance: self.instance.clone(),
            run: self.current.as_ref().map(|current| current.status.clone()),
            refused: self.refused.clone(),
            stored: self.stored.values().cloned().collect(),
            draining: self.drain.is_some(),
        }
    }

    pub fn handle(&mut self, event: AgentEvent, now_ns: u64) -> Vec<AgentAction> {
        let before = self.status();
        let mut actions = match event {
            AgentEvent::Command(command) => self.handle_command(command, now_ns),
            AgentEvent::Checked(run, result) => self.handle_checked(run, result, now_ns),
            AgentEvent::Child(event) => self.handle_child(event),
            AgentEvent::ChildEnded(result) => self.handle_end(result),
            AgentEvent::Link(is_connected) => {
                self.link_since_ns = is_connected.then_some(now_ns);
                Vec::new()
            }
            AgentEvent::Tick => Vec::new(),
            AgentEvent::Drain => self.handle_drain(),
        };
        actions.extend(self.check_deadlines(now_ns));
        let is_due = now_ns >= self.reported_ns + STATUS_INTERVAL_NS || self.reported_ns == 0;
        if is_due || self.status() != before {
            self.reported_ns = now_ns;
            actions.push(AgentAction::ReportStatus);
        }
        if self.may_exit(now_ns) && !std::mem::replace(&mut self.has_ended, true) {
            actions.push(AgentAction::Exit);
        }
        actions
    }

    fn handle_command(&mut self, command: AgentCommand, now_ns: u64) -> Vec<AgentAction> {
        match command {
            AgentCommand::Describe => vec![AgentAction::ReportFacts, AgentAction::ReportStatus],
            AgentCommand::Ping { sequence } => {
                self.current.iter_mut().for_each(|current| current.heard_ns = now_ns);
                vec![AgentAction::ReportClock(sequence)]
            }
            AgentCommand::Prepare { run, job } => self.prepare(run, job, now_ns),
            AgentCommand::Start { run, at_ns } => match self.current_of(&run) {
                Some(current) if matches!(current.status.state, RunState::Ready { .. }) => {
                    vec![AgentAction::Write(LoadCommand::Start { at_ns })]
                }
                _ => Vec::new(),
            },
            AgentCommand::Rate { run, factor } => match self.current_of(&run) {
                Some(current) if current.has_child && current.status.rate_factor != factor => {
                    current.status.rate_factor = factor;
                    vec![AgentAction::Write(LoadCommand::Rate { factor })]
                }
                _ => Vec::new(),
            },
            AgentCommand::Stop { run, abort } => match self.current_of(&run) {
                Some(current) => current.stop(if abort { 2 } else { 1 }),
                None => Vec::new(),
            },
            AgentCommand::SendRecord { run, from_part } => match self.stored.contains_key(&run) {
                true => vec![AgentAction::SendRecord(run, from_part)],
                false => Vec::new(),
            },
            AgentCommand::Acknowledge { run } => self.acknowledge(&run),
        }
    }

    fn current_of(&mut self, run: &RunId) -> Option<&mut CurrentRun> {
        self.current.as_mut().filter(|current| current.status.run == *run)
    }

    fn prepare(&mut self, run: RunId, job: Job, now_ns: u64) -> Vec<AgentAction> {
        if let Some(current) = self.current_of(&run) {
            current.heard_ns = now_ns;
            return Vec::new();
        }
        if self.stored.contains_key(&run) || self.is_refused(&run) {
            return vec![AgentAction::ReportStatus];
        }
        // A failed run is over; only its reason was still to be read.
        let is_busy = self.current.as_ref().is_some_and(CurrentRun::is_active);
        let problem = if self.drain.is_some() {
            Some("the agent ends")
        } else if is_busy {
            Some("the agent is busy with another run")
        } else if self.stored.len() >= STORED_MAX {
            Some("too many records wait for their coordinators; delete some of the state directory")
        } else {
            None
        };
        if let Some(problem) = problem {
            self.refused = Some(Refusal::new(run, [problem.to_owned()]));
            return Vec::new();
        }
        self.current = Some(CurrentRun {
            status: RunStatus { run: run.clone(), state: RunState::Preparing, rate_factor: 1.0 },
            has_child: false,
            is_program: job.role != AgentRole::Load,
            duration_ns: 0,
            heard_ns: now_ns,
            start_ns: None,
            stops: 0,
            is_killed: false,
        });
        vec![AgentAction::Check(run, job)]
    }

    fn is_refused(&self, run: &RunId) -> bool {
        self.refused.as_ref().is_some_and(|refusal| refusal.run == *run)
    }

    fn handle_checked(
        &mut self,
        run: RunId,
        result: Result<u64, Vec<String>>,
        now_ns: u64,
    ) -> Vec<AgentAction> {
        let Some(current) = self.current_of(&run) else { return Vec::new() };
        match result {
            Ok(duration_ns) => {
                (current.has_child, current.duration_ns, current.heard_ns) = (true, duration_ns, now_ns);
                vec![AgentAction::Spawn(run)]
            }
            Err(problems) => {
                self.current = None;
                self.refused = Some(Refusal::new(run, problems));
                Vec::new()
            }
        }
    }

    fn handle_child(&mut self, event: LoadEvent) -> Vec<AgentAction> {
        let Some(current) = &mut self.current else { return Vec::new() };
        match event {
            LoadEvent::Connected { connections } => {
                current.status.state = RunState::Ready { connections };
                Vec::new()
            }
            LoadEvent::Started { clock_ns, .. } => {
                current.start_ns = Some(clock_ns);
                current.status.state = RunState::Running { start_ns: clock_ns };
                Vec::new()
            }
            LoadEvent::Second { interval, latencies } => {
                let latencies = latencies.filter(|text| text.len() <= LATENCIES_BYTES_MAX);
                let second = Box::new(LiveSecond { interval: *interval, latencies });
                vec![AgentAction::ReportSecond(current.status.run.clone(), second)]
            }
        }
    }

    fn handle_end(&mut self, result: Result<StoredRun, ChildFailure>) -> Vec<AgentAction> {
        let Some(current) = &mut self.current else { return Vec::new() };
        current.has_child = false;
        match result {
            Ok(stored) => {
                self.stored.insert(stored.run.clone(), stored);
                self.current = None;
            }
            Err(failure) => current.status.state = RunState::Failed { text: bounded(&failure.to_string()) },
        }
        Vec::new()
    }

    fn acknowledge(&mut self, run: &RunId) -> Vec<AgentAction> {
        if let Some(current) = self.current_of(run)
            && !current.is_active()
        {
            self.current = None;
        }
        if self.is_refused(run) {
            self.refused = None;
        }
        self.stored.remove(run).map(|record| AgentAction::Delete(record.run)).into_iter().collect()
    }

    fn handle_drain(&mut self) -> Vec<AgentAction> {
        let is_second = self.drain.is_some();
        self.drain.get_or_insert(AgentDrain { exit_ns: None });
        match &mut self.current {
            // Before the start nothing is lost.
            Some(current) if is_second || current.start_ns.is_none() => current.stop(1 + u8::from(is_second)),
            _ => Vec::new(),
        }
    }

    fn check_deadlines(&mut self, now_ns: u64) -> Vec<AgentAction> {
        let link_since_ns = self.link_since_ns;
        let Some(current) = self.current.as_mut().filter(|current| current.has_child) else {
            return Vec::new();
        };
        let end_ns = match current.start_ns {
            Some(start_ns) => start_ns.saturating_add(current.duration_ns),
            None => current.heard_ns.saturating_add(COORDINATOR_TIMEOUT_NS),
        };
        if now_ns >= end_ns.saturating_add(OVERRUN_NS) && !current.is_killed {
            current.is_killed = true;
            return vec![AgentAction::Kill];
        }
        let is_abandoned = match (current.start_ns, link_since_ns) {
            (None, _) => now_ns >= end_ns,
            (Some(_), Some(since_ns)) if current.is_program => {
                now_ns >= current.heard_ns.max(since_ns).saturating_add(PROGRAM_TIMEOUT_NS)
            }
            (Some(_), _) => false,
        };
        if is_abandoned { current.stop(1) } else { Vec::new() }
    }

    /// Returns whether a draining agent has nothing left to do, or waited long enough for its deliveries.
    fn may_exit(&mut self, now_ns: u64) -> bool {
        let Some(drain) = &mut self.drain else { return false };
        if self.current.as_ref().is_some_and(CurrentRun::is_active) {
            return false;
        }
        let exit_ns = *drain.exit_ns.get_or_insert(now_ns + DELIVERY_TIMEOUT_NS);
        self.stored.is_empty() || now_ns >= exit_ns
    }
}

impl CurrentRun {
    fn is_active(&self) -> bool {
        !matches!(self.status.state, RunState::Failed { .. })
    }

    /// Sends stop commands until there were `count`.
    fn stop(&mut self, count: u8) -> Vec<AgentAction> {
        let missing = if self.has_child { count.saturating_sub(self.stops) } else { 0 };
        self.stops += missing;
        vec![AgentAction::Write(LoadCommand::Stop); usize::from(missing)]
    }
}

#[cfg(test)]
mod tests;
