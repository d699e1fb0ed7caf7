//! State machine of a coordinator: reports of the agents and the time in, commands out. Pure.
//!
//! ```text
//! preparing ── all are ready, clocks are measured ──► started ── all records arrived ──► finished
//!     │ refused, failed, too late, stopped                │ or: lost agents, and the wait is over
//!     └──────────────────► finished without a result ◄────┘ no record at all
//! ```
//!
//! An agent is lost only while the server is known to work: the coordinator sends messages to itself. If
//! these stop as well, the server is unreachable, and every agent gets its full time again afterwards.

mod assembly;
mod live;
mod member;
pub mod service;

use std::collections::BTreeMap;

use record::fleet::AgentOutcome;
use record::run::Interval;
use record::units::format_duration_ns;

pub use self::live::AgentSecond;
use self::live::LiveSum;
use self::member::{Member, MemberState};
use record::sorted::CollectSorted;

use crate::clock::{ClockOffset, RoundTrip};
use crate::message::{AgentCommand, AgentName, AgentStatus, Job, Pong, RunId};

/// Reaction to the loss of an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossPolicy {
    /// The others go on with their parts, and the result is marked.
    Mark,
    /// The others take over the rate of the lost agent, and the result is marked.
    Redistribute,
}

#[derive(Clone, Debug)]
pub struct FleetPlan {
    pub run: RunId,
    /// Agents with their instances, jobs and fractions of the load.
    pub members: Vec<MemberPlan>,
    pub on_loss: LossPolicy,
    /// Maximum duration of the load with its drain, in ns.
    pub duration_ns: u64,
    /// Maximum time for the preparation of all agents, in ns.
    pub prepare_ns: u64,
    /// Maximum time for the records after the end, in ns.
    pub collect_ns: u64,
}

#[derive(Clone, Debug)]
pub struct MemberPlan {
    pub name: AgentName,
    pub instance: String,
    pub job: Job,
    pub fraction: f64,
}

#[derive(Clone, Debug, PartialEq)]
pub enum CoordinatorEvent {
    Status(AgentName, AgentStatus),
    /// An agent reported its clock; it arrived at this wall clock time.
    Pong(AgentName, Pong, u64),
    Second(AgentName, Box<AgentSecond>),
    RecordPart(AgentName, u32, Vec<u8>),
    /// A message to the coordinator itself arrived.
    Echo,
    /// The user stops the run: the first time it drains, the second time it is aborted.
    Stop,
    Tick,
}

#[derive(Clone, Debug, PartialEq)]
pub enum CoordinatorAction {
    Send(AgentName, AgentCommand),
    /// Send a message to the coordinator itself.
    SendEcho,
    Record(AgentName, Vec<u8>),
    Second(Box<Interval>),
    Notice(String),
    /// The run is over.
    Finished(RunEnd),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunEnd {
    /// At least one record arrived.
    Records,
    /// The run did not start; the members have the problems.
    NotStarted,
    NoRecord,
}

#[derive(Clone, Debug, PartialEq)]
pub struct MemberResult {
    pub name: AgentName,
    pub fraction: f64,
    /// End; `None`: it did not get to a start.
    pub outcome: Option<AgentOutcome>,
    /// Problems; empty without one.
    pub problems: Vec<String>,
    pub clock: ClockOffset,
    /// Wall clock of the agent minus the own one, in ns.
    pub wall_offset_ns: i64,
    pub round_trips: u64,
    /// Start by the own clock, in ns.
    pub start_ns: Option<u64>,
}

/// Silence after which an agent is lost.
const LOSS_NS: u64 = 5_000_000_000;
/// Interval of the messages to the coordinator itself, and the silence after which the server is lost.
const ECHO_INTERVAL_NS: u64 = 500_000_000;
const LINK_LOSS_NS: u64 = 2_000_000_000;
/// Maximum time without the server: then the run ends with the records that arrived.
const LINK_DOWN_NS_MAX: u64 = 120_000_000_000;
/// Minimum time from the command to the start. The longest round trip is added twice.
const START_LEAD_NS: u64 = 300_000_000;

#[derive(Clone, Debug)]
pub struct Coordinator {
    plan: FleetPlan,
    members: Vec<Member>,
    index: BTreeMap<AgentName, usize>,
    phase: RunPhase,
    live: LiveSum,
    /// Time since which messages to itself arrive; `None`: they do not.
    link_since_ns: Option<u64>,
    echo_sent_ns: Option<u64>,
    echo_heard_ns: u64,
    stops: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RunPhase {
    Preparing { deadline_ns: u64 },
    Started { at_ns: u64 },
    Finished,
}

impl Coordinator {
    /// Creates a coordinator. The server works at `now_ns`: the agents were found through it.
    #[must_use]
    pub fn new(plan: FleetPlan, now_ns: u64) -> Self {
        let members: Vec<Member> =
            plan.members.iter().map(|member| Member::new(&plan.run, member, now_ns)).collect();
        let names = plan.members.iter().map(|member| member.name.clone());
        Self {
            index: names.zip(0..).collect_map(),
            live: LiveSum::new(members.len()),
            phase: RunPhase::Preparing { deadline_ns: now_ns + plan.prepare_ns },
            link_since_ns: Some(now_ns),
            echo_sent_ns: None,
            echo_heard_ns: now_ns,
            stops: 0,
            members,
            plan,
        }
    }

    /// Returns true if the user stopped the run.
    pub fn is_stopped(&self) -> bool {
        self.stops > 0
    }

    /// Returns the results of the agents, in the order of the plan.
    pub fn results(&self) -> Vec<MemberResult> {
        self.members.iter().map(|member| member.result(self.start_ns())).collect()
    }

    /// Returns the time of the synchronous start by the own clock, in ns; 0 before it is determined.
    pub fn start_ns(&self) -> u64 {
        match self.phase {
            RunPhase::Started { at_ns } => at_ns,
            _ => self.members.iter().filter_map(|member| member.planned_start_ns).min().unwrap_or(0),
        }
    }

    pub fn handle(&mut self, event: CoordinatorEvent, now_ns: u64) -> Vec<CoordinatorAction> {
        let mut actions = Vec::new();
        if self.phase == RunPhase::Finished {
            return actions;
        }
        match event {
            CoordinatorEvent::Status(name, status) => {
                if let Some(member) = self.member(&name) {
                    actions.extend(member.handle_status(&status, now_ns));
                }
            }
            CoordinatorEvent::Pong(name, pong, wall_ns) => {
                if let Some(member) = self.member(&name) {
                    member.handle_pong(pong, wall_ns, now_ns);
                }
            }
            CoordinatorEvent::Second(name, second_of_agent) => {
                if let Some(&index) = self.index.get(&name) {
                    self.members[index].heard_ns = now_ns;
                    actions.extend(self.live.add(index, &second_of_agent).map(second));
                }
            }
            CoordinatorEvent::RecordPart(name, part, bytes) => {
                if let Some(member) = self.member(&name) {
                    actions.extend(member.handle_part(part, &bytes, now_ns));
                }
            }
            CoordinatorEvent::Echo => self.handle_echo(now_ns),
            CoordinatorEvent::Stop => self.stops = self.stops.saturating_add(1),
            CoordinatorEvent::Tick => actions.extend(self.advance(now_ns)),
        }
        actions
    }

    /// Sends what is due. Only ticks do that: a step over all agents for each message of each agent would grow
    /// with the square of their number.
    fn advance(&mut self, now_ns: u64) -> Vec<CoordinatorAction> {
        let mut actions = self.check_link(now_ns);
        match self.phase {
            RunPhase::Preparing { deadline_ns } => {
                actions.extend(self.advance_preparation(deadline_ns, now_ns))
            }
            RunPhase::Started { at_ns } => actions.extend(self.advance_run(at_ns, now_ns)),
            RunPhase::Finished => {}
        }
        actions
    }

    fn member(&mut self, name: &AgentName) -> Option<&mut Member> {
        self.index.get(name).and_then(|index| self.members.get_mut(*index))
    }

    fn handle_echo(&mut self, now_ns: u64) {
        self.echo_heard_ns = now_ns;
        self.link_since_ns.get_or_insert(now_ns);
    }

    fn check_link(&mut self, now_ns: u64) -> Vec<CoordinatorAction> {
        let mut actions = Vec::new();
        if self.echo_sent_ns.is_none_or(|sent_ns| now_ns >= sent_ns + ECHO_INTERVAL_NS) {
            self.echo_sent_ns = Some(now_ns);
            actions.push(CoordinatorAction::SendEcho);
        }
        if self.link_since_ns.is_some() && now_ns >= self.echo_heard_ns + LINK_LOSS_NS {
            self.link_since_ns = None;
            actions.push(CoordinatorAction::Notice(
                "the NATS server does not respond: the agents continue, and their records wait".to_owned(),
            ));
        }
        actions
    }

    fn advance_preparation(&mut self, deadline_ns: u64, now_ns: u64) -> Vec<CoordinatorAction> {
        let mut actions = Vec::new();
        self.mark_lost(now_ns);
        let late = now_ns >= deadline_ns;
        if late {
            for member in self.members.iter_mut().filter(|member| !member.is_ready()) {
                let limit = format_duration_ns(self.plan.prepare_ns);
                member.fail(format!("not ready within {limit}"));
            }
        }
        if self.stops > 0 || self.members.iter().any(Member::has_failed) {
            for member in &self.members {
                let run = self.plan.run.clone();
                actions.push(CoordinatorAction::Send(
                    member.name.clone(),
                    AgentCommand::Stop { run: run.clone(), abort: true },
                ));
                actions.push(CoordinatorAction::Send(member.name.clone(), AgentCommand::Acknowledge { run }));
            }
            self.phase = RunPhase::Finished;
            actions.push(CoordinatorAction::Finished(RunEnd::NotStarted));
            return actions;
        }
        if self.members.iter().all(Member::is_ready) {
            let error_ns =
                |member: &Member| member.clock.offset_at(now_ns).map_or(0, |offset| offset.error_ns);
            let longest_ns = self.members.iter().map(error_ns).max().unwrap_or(0);
            let at_ns = now_ns + START_LEAD_NS + longest_ns.saturating_mul(4);
            self.phase = RunPhase::Started { at_ns };
            self.members.iter_mut().for_each(|member| member.plan_start(at_ns, now_ns));
        }
        for member in &mut self.members {
            actions.extend(member.repeat_preparation(now_ns));
        }
        actions
    }

    fn advance_run(&mut self, at_ns: u64, now_ns: u64) -> Vec<CoordinatorAction> {
        let mut actions = Vec::new();
        for name in self.mark_lost(now_ns) {
            let silence = format_duration_ns(LOSS_NS);
            actions
                .push(CoordinatorAction::Notice(format!("agent {name} is lost: no heartbeat for {silence}")));
        }
        let running = self.members.iter().filter(|member| member.counts_as_running()).count();
        actions.extend(self.live.set_running(running).into_iter().map(second));
        let factor = self.rate_factor();
        let stops = self.stops;
        for member in &mut self.members {
            actions.extend(member.repeat_run((stops, factor), now_ns));
        }
        if self.is_over(at_ns, now_ns) {
            if self.stops > 0 {
                actions.extend(self.last_stops());
            }
            actions.extend(self.live.finish().into_iter().map(second));
            self.phase = RunPhase::Finished;
            let has_record = self.members.iter().any(|member| member.state == MemberState::Done);
            let end = if has_record { RunEnd::Records } else { RunEnd::NoRecord };
            actions.push(CoordinatorAction::Finished(end));
        }
        actions
    }

    /// Returns the stop commands to all agents that have not ended: nobody repeats them afterwards.
    fn last_stops(&self) -> Vec<CoordinatorAction> {
        let running = self.members.iter().filter(|member| !member.is_over());
        let stop = AgentCommand::Stop { run: self.plan.run.clone(), abort: self.stops > 1 };
        running.map(|member| CoordinatorAction::Send(member.name.clone(), stop.clone())).collect()
    }

    /// Marks silent agents, while the server works. Returns those that are newly lost.
    fn mark_lost(&mut self, now_ns: u64) -> Vec<AgentName> {
        let Some(link_since_ns) = self.link_since_ns else { return Vec::new() };
        let is_preparing = matches!(self.phase, RunPhase::Preparing { .. });
        let mut lost = Vec::new();
        for member in self.members.iter_mut().filter(|member| !member.is_over() && !member.is_lost) {
            let silent_since_ns = member.heard_ns.max(link_since_ns);
            if now_ns < silent_since_ns + LOSS_NS {
                continue;
            }
            let text = format!("no heartbeat for {}", format_duration_ns(LOSS_NS));
            match is_preparing {
                true => member.fail(text),
                false => member.lose(text),
            }
            lost.push(member.name.clone());
        }
        lost
    }

    /// Returns the factor of the rate with which the remaining agents make up for the lost ones.
    fn rate_factor(&self) -> f64 {
        let remaining: f64 = self
            .members
            .iter()
            .filter(|member| !member.is_lost && !member.has_failed())
            .map(|member| member.fraction)
            .sum();
        match self.plan.on_loss {
            LossPolicy::Redistribute if remaining > 0.0 => 1.0 / remaining,
            _ => 1.0,
        }
    }

    /// Returns whether every agent is finished, or the wait for the others is over.
    fn is_over(&self, at_ns: u64, now_ns: u64) -> bool {
        if self.members.iter().all(|member| member.is_settled(now_ns)) {
            return true;
        }
        if self.stops > 2 {
            return true;
        }
        let Some(link_since_ns) = self.link_since_ns else {
            return now_ns >= (self.echo_heard_ns + LINK_DOWN_NS_MAX).max(at_ns + self.plan.duration_ns);
        };
        // A stopped run ends now; only lost agents cannot tell.
        let all_others_are_over = self.members.iter().all(|member| member.is_over() || member.is_lost);
        let end_ns = match self.members.iter().filter_map(|member| member.done_ns).max() {
            Some(done_ns) if all_others_are_over => done_ns,
            _ => at_ns.saturating_add(self.plan.duration_ns),
        };
        now_ns >= end_ns.max(link_since_ns).saturating_add(self.plan.collect_ns)
            && self.members.iter().all(|member| !member.is_receiving(now_ns))
    }
}

fn second(interval: Interval) -> CoordinatorAction {
    CoordinatorAction::Second(Box::new(interval))
}

fn round_trip(sent_ns: u64, received_ns: u64, pong: Pong) -> RoundTrip {
    RoundTrip { sent_ns, received_ns, agent_ns: pong.clock_ns }
}

#[cfg(test)]
mod tests;
