//! One agent, as its coordinator knows it.

use std::collections::VecDeque;

use record::fleet::AgentOutcome;

use super::assembly::RecordAssembly;
use super::{CoordinatorAction, MemberPlan, MemberResult, round_trip};
use crate::clock::{ClockEstimator, ClockOffset};
use crate::message::{
    AgentCommand, AgentName, AgentStatus, Job, PROBLEMS_MAX, Pong, RunId, RunState, StoredRun, bounded,
};

#[derive(Clone, Debug)]
pub(super) struct Member {
    pub(super) name: AgentName,
    run: RunId,
    pub(super) fraction: f64,
    pub(super) state: MemberState,
    pub(super) clock: ClockEstimator,
    /// Time of the last message.
    pub(super) heard_ns: u64,
    pub(super) is_lost: bool,
    pub(super) done_ns: Option<u64>,
    /// Synchronous start by the own clock.
    pub(super) planned_start_ns: Option<u64>,
    instance: String,
    job: Job,
    problems: Vec<String>,
    was_lost: bool,
    offset: ClockOffset,
    /// Wall clock minus monotonic clock: that of the agent minus the own one.
    wall_difference_ns: i128,
    /// Start by the agent's clock.
    agent_start_ns: Option<u64>,
    assembly: Option<RecordAssembly>,
    /// Number of transfers of the record with another digest.
    digest_failures: u8,
    is_acknowledged: bool,
    reported_factor: f64,
    pings: Pings,
    prepare_sent_ns: Option<u64>,
    command_sent_ns: Option<u64>,
}

/// Progress of an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum MemberState {
    Invited,
    Ready,
    Running,
    Stored(StoredRun),
    Done,
    /// It has no record.
    Failed,
}

/// Round trips in progress.
#[derive(Clone, Debug, Default)]
struct Pings {
    next_sequence: u64,
    sent_ns: Option<u64>,
    /// Number and time of each one without a response.
    waiting: VecDeque<(u64, u64)>,
}

/// Maximum number of round trips in progress: those of the longest network at the fast interval.
const PINGS_WAITING_MAX: usize = 64;
/// Intervals of repeated commands.
const PREPARE_INTERVAL_NS: u64 = 500_000_000;
const COMMAND_INTERVAL_NS: u64 = 250_000_000;
/// Maximum number of transfers of a record with another digest.
const DIGEST_FAILURES_MAX: u8 = 3;
/// Maximum wait for the deletion of a record that arrived.
const ACKNOWLEDGE_NS_MAX: u64 = 3_000_000_000;
/// Round trips before the start.
const ROUND_TRIPS_MIN: u64 = 12;
/// Interval of round trips before the start, and after it.
const PING_INTERVAL_FAST_NS: u64 = 40_000_000;
const PING_INTERVAL_NS: u64 = 1_000_000_000;
/// Number of round trips that are made at the fast interval.
const FAST_PINGS: u64 = 24;

impl Member {
    pub(super) fn new(run: &RunId, plan: &MemberPlan, now_ns: u64) -> Self {
        Self {
            run: run.clone(),
            name: plan.name.clone(),
            fraction: plan.fraction,
            state: MemberState::Invited,
            clock: ClockEstimator::default(),
            heard_ns: now_ns,
            is_lost: false,
            done_ns: None,
            planned_start_ns: None,
            instance: plan.instance.clone(),
            job: plan.job.clone(),
            problems: Vec::new(),
            was_lost: false,
            offset: ClockOffset::default(),
            wall_difference_ns: 0,
            agent_start_ns: None,
            assembly: None,
            digest_failures: 0,
            is_acknowledged: false,
            reported_factor: 1.0,
            pings: Pings::default(),
            prepare_sent_ns: None,
            command_sent_ns: None,
        }
    }

    /// Returns whether its connections are open and its clock is measured.
    pub(super) fn is_ready(&self) -> bool {
        self.state == MemberState::Ready && self.clock.count() >= ROUND_TRIPS_MIN
    }

    pub(super) fn has_failed(&self) -> bool {
        self.state == MemberState::Failed
    }

    /// Returns whether nothing more is to come from the agent.
    pub(super) fn is_over(&self) -> bool {
        matches!(self.state, MemberState::Done | MemberState::Failed)
    }

    /// Returns whether the agent has deleted the record that arrived, or had time for it.
    pub(super) fn is_settled(&self, now_ns: u64) -> bool {
        let Some(done_ns) = self.done_ns else { return self.is_over() };
        self.is_acknowledged || now_ns >= done_ns + ACKNOWLEDGE_NS_MAX
    }

    pub(super) fn counts_as_running(&self) -> bool {
        matches!(self.state, MemberState::Ready | MemberState::Running) && !self.is_lost
    }

    /// Returns whether parts of its record are arriving.
    pub(super) fn is_receiving(&self, now_ns: u64) -> bool {
        self.assembly.as_ref().is_some_and(|assembly| assembly.is_receiving(now_ns))
    }

    pub(super) fn fail(&mut self, text: String) {
        self.problems.push(bounded(&text));
        self.state = MemberState::Failed;
    }

    pub(super) fn lose(&mut self, text: String) {
        (self.is_lost, self.was_lost) = (true, true);
        self.problems = vec![text];
    }

    /// Takes the agent's state. The agent is the only source of it: nothing is assumed from commands.
    pub(super) fn handle_status(&mut self, status: &AgentStatus, now_ns: u64) -> Vec<CoordinatorAction> {
        let run = self.run_of(status);
        if status.instance != self.instance && run.is_none() {
            // The process that had the job is gone, or two agents have the same name.
            if !self.is_over() {
                self.fail("the agent was started again during the run".to_owned());
            }
            return Vec::new();
        }
        self.heard_ns = now_ns;
        let mut actions = Vec::new();
        if self.is_lost {
            self.is_lost = false;
            actions.push(CoordinatorAction::Notice(format!("agent {} is back", self.name)));
        }
        if self.is_over() {
            self.is_acknowledged |= run.is_none();
            return actions;
        }
        match run {
            Some(OwnRun::Stored(stored)) => self.take_record(stored),
            Some(OwnRun::Refused(problems)) if self.state == MemberState::Invited => {
                self.problems = problems.iter().take(PROBLEMS_MAX).map(|text| bounded(text)).collect();
                self.state = MemberState::Failed;
            }
            Some(OwnRun::State(state, factor)) => {
                self.reported_factor = factor;
                self.take_state(&state);
            }
            Some(OwnRun::Refused(_)) => {}
            // It knows nothing of the run that it had.
            None if self.state != MemberState::Invited => {
                self.fail("the agent has neither the run nor its record any more".to_owned());
            }
            None => {}
        }
        actions
    }

    fn take_state(&mut self, state: &RunState) {
        match state {
            RunState::Preparing => {}
            RunState::Ready { .. } if self.state == MemberState::Invited => self.state = MemberState::Ready,
            RunState::Ready { .. } => {}
            RunState::Running { start_ns } => {
                self.agent_start_ns = Some(*start_ns);
                self.state = MemberState::Running;
            }
            RunState::Failed { text } => self.fail(text.clone()),
        }
    }

    fn take_record(&mut self, stored: StoredRun) {
        if !matches!(&self.state, MemberState::Stored(known) if *known == stored) {
            self.agent_start_ns = stored.start_ns.or(self.agent_start_ns);
            self.assembly = Some(RecordAssembly::new(&stored));
            self.state = MemberState::Stored(stored);
        }
    }

    /// Adds a part of the record; the complete record is checked against its digest.
    pub(super) fn handle_part(&mut self, part: u32, bytes: &[u8], now_ns: u64) -> Vec<CoordinatorAction> {
        self.heard_ns = now_ns;
        let (MemberState::Stored(_), Some(assembly)) = (&self.state, &mut self.assembly) else {
            return Vec::new();
        };
        match assembly.add(part, bytes, now_ns) {
            None => Vec::new(),
            Some(Ok(record)) => {
                (self.state, self.assembly, self.done_ns) = (MemberState::Done, None, Some(now_ns));
                let acknowledge = AgentCommand::Acknowledge { run: self.run.clone() };
                vec![
                    CoordinatorAction::Record(self.name.clone(), record),
                    CoordinatorAction::Send(self.name.clone(), acknowledge),
                ]
            }
            Some(Err(error)) => {
                self.digest_failures += 1;
                if self.digest_failures == DIGEST_FAILURES_MAX {
                    // It stays on the disk of the agent, and is not requested again.
                    self.assembly = None;
                    self.problems.push(format!("{error}, {DIGEST_FAILURES_MAX} times"));
                    return Vec::new();
                }
                // It is sent again from the first part.
                let text = format!("agent {}: {error}; it is requested again", self.name);
                vec![CoordinatorAction::Notice(text)]
            }
        }
    }

    pub(super) fn handle_pong(&mut self, pong: Pong, wall_ns: u64, now_ns: u64) {
        let Some(at) = self.pings.waiting.iter().position(|(sequence, _)| *sequence == pong.sequence) else {
            return;
        };
        // Each round trip counts once.
        let Some((_, sent_ns)) = self.pings.waiting.remove(at) else { return };
        self.heard_ns = now_ns;
        self.clock.add(round_trip(sent_ns, now_ns, pong));
        let agent_ns = i128::from(pong.wall_ns) - i128::from(pong.clock_ns);
        self.wall_difference_ns = agent_ns - (i128::from(wall_ns) - i128::from(now_ns));
    }

    pub(super) fn plan_start(&mut self, at_ns: u64, now_ns: u64) {
        self.planned_start_ns = Some(at_ns);
        self.offset = self.clock.offset_at(now_ns).unwrap_or_default();
    }

    /// Returns the commands of the preparation that are due.
    pub(super) fn repeat_preparation(&mut self, now_ns: u64) -> Vec<CoordinatorAction> {
        let mut actions = Vec::new();
        let is_due = self.prepare_sent_ns.is_none_or(|sent_ns| now_ns >= sent_ns + PREPARE_INTERVAL_NS);
        if self.state == MemberState::Invited && is_due {
            self.prepare_sent_ns = Some(now_ns);
            let command = AgentCommand::Prepare { run: self.run.clone(), job: self.job.clone() };
            actions.push(CoordinatorAction::Send(self.name.clone(), command));
        }
        actions.extend(self.ping(now_ns));
        actions
    }

    /// Returns the commands of a started run that are due, for this number of stops and factor of the rate.
    pub(super) fn repeat_run(&mut self, (stops, factor): (u8, f64), now_ns: u64) -> Vec<CoordinatorAction> {
        let mut actions: Vec<_> = self.ping(now_ns).into_iter().collect();
        if self.command_sent_ns.is_some_and(|sent_ns| now_ns < sent_ns + COMMAND_INTERVAL_NS) {
            return actions;
        }
        self.command_sent_ns = Some(now_ns);
        let run = self.run.clone();
        let stop = |run| AgentCommand::Stop { run, abort: stops > 1 };
        let command = match &self.state {
            MemberState::Done | MemberState::Failed => {
                (!self.is_acknowledged).then_some(AgentCommand::Acknowledge { run })
            }
            MemberState::Stored(_) => self.record_request(run, now_ns),
            MemberState::Invited | MemberState::Ready | MemberState::Running if stops > 0 => Some(stop(run)),
            MemberState::Ready => self
                .planned_start_ns
                .map(|at_ns| AgentCommand::Start { run, at_ns: self.offset.to_agent(at_ns) }),
            MemberState::Running if self.reported_factor != factor => {
                Some(AgentCommand::Rate { run, factor })
            }
            MemberState::Invited | MemberState::Running => None,
        };
        actions.extend(command.map(|command| CoordinatorAction::Send(self.name.clone(), command)));
        actions
    }

    fn record_request(&mut self, run: RunId, now_ns: u64) -> Option<AgentCommand> {
        let from_part = self.assembly.as_mut()?.request(now_ns)?;
        Some(AgentCommand::SendRecord { run, from_part })
    }

    fn ping(&mut self, now_ns: u64) -> Option<CoordinatorAction> {
        let interval_ns =
            if self.clock.count() < FAST_PINGS { PING_INTERVAL_FAST_NS } else { PING_INTERVAL_NS };
        let is_due = self.pings.sent_ns.is_none_or(|sent_ns| now_ns >= sent_ns + interval_ns);
        if self.is_over() || !is_due {
            return None;
        }
        let sequence = self.pings.next_sequence;
        (self.pings.next_sequence, self.pings.sent_ns) = (sequence + 1, Some(now_ns));
        if self.pings.waiting.len() == PINGS_WAITING_MAX {
            self.pings.waiting.pop_front();
        }
        self.pings.waiting.push_back((sequence, now_ns));
        let command = AgentCommand::Ping { sequence };
        Some(CoordinatorAction::Send(self.name.clone(), command))
    }

    fn run_of(&self, status: &AgentStatus) -> Option<OwnRun> {
        let run = &self.run;
        if let Some(stored) = status.stored.iter().find(|stored| stored.run == *run) {
            return Some(OwnRun::Stored(stored.clone()));
        }
        if let Some(current) = status.run.as_ref().filter(|current| current.run == *run) {
            return Some(OwnRun::State(current.state.clone(), current.rate_factor));
        }
        let refusal = status.refused.as_ref().filter(|refusal| refusal.run == *run)?;
        Some(OwnRun::Refused(refusal.problems.clone()))
    }

    /// Returns the result; `started_ns` is the planned start of the fleet.
    pub(super) fn result(&self, started_ns: u64) -> MemberResult {
        let outcome = match self.state {
            MemberState::Done if self.was_lost => Some(AgentOutcome::Returned),
            MemberState::Done => Some(AgentOutcome::Complete),
            _ if started_ns > 0 => Some(AgentOutcome::Lost),
            _ => None,
        };
        let mut problems = self.problems.clone();
        if problems.is_empty() && outcome == Some(AgentOutcome::Lost) {
            problems.push("its record did not arrive in time".to_owned());
        }
        // Round trips after the start may be better, and are worse once they are old.
        let at_start = self.planned_start_ns.and_then(|at_ns| self.clock.offset_at(at_ns));
        let offset = at_start.filter(|later| later.error_ns < self.offset.error_ns).unwrap_or(self.offset);
        MemberResult {
            name: self.name.clone(),
            fraction: self.fraction,
            outcome,
            problems,
            clock: offset,
            wall_offset_ns: i64::try_from(self.wall_difference_ns + offset.offset_ns).unwrap_or(i64::MAX),
            round_trips: self.clock.count(),
            start_ns: self.agent_start_ns.map(|start_ns| offset.to_own(start_ns)),
        }
    }
}

/// State of the coordinator's run, as an agent reports it.
enum OwnRun {
    Stored(StoredRun),
    State(RunState, f64),
    Refused(Vec<String>),
}

#[cfg(test)]
mod tests {
    use record::digest::sha256_base64;

    use super::*;
    use crate::message::AgentRole;

    #[test]
    fn a_record_that_always_has_another_digest_is_given_up_and_kept_by_the_agent() {
        let run = RunId::parse("r").unwrap();
        let plan = MemberPlan {
            name: AgentName::parse("a").unwrap(),
            instance: "i".to_owned(),
            job: Job { role: AgentRole::Load, arguments: Vec::new(), slice: None },
            fraction: 1.0,
        };
        let mut member = Member::new(&run, &plan, 0);
        let stored = StoredRun { run: run.clone(), start_ns: None, bytes: 3, digest: sha256_base64("abc") };
        let status = AgentStatus {
            instance: "i".to_owned(),
            run: None,
            refused: None,
            stored: vec![stored],
            draining: false,
        };
        let mut notices = 0;
        for second in 1..10 {
            let now_ns = second * 2_000_000_000;
            member.handle_status(&status, now_ns);
            let commands = member.repeat_run((0, 1.0), now_ns);
            let is_deleted = |action: &CoordinatorAction| {
                matches!(action, CoordinatorAction::Send(_, AgentCommand::Acknowledge { .. }))
            };
            assert!(!commands.iter().any(is_deleted), "{commands:?}");
            let is_requested = commands
                .iter()
                .any(|action| matches!(action, CoordinatorAction::Send(_, AgentCommand::SendRecord { .. })));
            assert_eq!(is_requested, second <= u64::from(DIGEST_FAILURES_MAX), "second {second}");
            notices += member.handle_part(0, b"abd", now_ns).len();
        }
        assert_eq!(notices, usize::from(DIGEST_FAILURES_MAX) - 1);
        let result = member.result(1);
        assert_eq!(result.outcome, Some(AgentOutcome::Lost));
        assert!(result.problems[0].contains("3 times"), "{:?}", result.problems);
        assert!(!member.is_receiving(0));
    }
}
