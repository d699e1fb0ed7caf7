//! Model of the network, the agents' shells and their child processes.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::ops::Range;

use record::control::{LoadCommand, LoadEvent};
use record::digest::sha256_base64;
use record::run::Interval;

use super::super::*;
use crate::agent::child::ChildFailure;
use crate::agent::{AgentAction, AgentEvent, AgentMachine};
use crate::message::{AgentRole, StoredRun};

pub(super) const MS: u64 = 1_000_000;
pub(super) const SECOND: u64 = 1_000_000_000;
/// Duration of the load.
const DURATION: u64 = 10 * SECOND;
/// Interval of the ticks of both sides.
const TICK: u64 = 20 * MS;
/// A run that takes longer hangs.
const HANG: u64 = 200 * SECOND;
const RECORD: &str = "{\"a record\": true}";

/// Something that happens at a time.
#[derive(Clone, Debug)]
enum Pending {
    Tick,
    ToAgent(usize, AgentCommand),
    ToCoordinator(CoordinatorEvent),
    Child(usize, ChildStep),
}

#[derive(Clone, Debug)]
enum ChildStep {
    Connected,
    Second(u64),
    Ended,
}

pub(super) struct SimulatedAgent {
    pub(super) machine: AgentMachine,
    pub(super) rate_factor: f64,
    start_ns: Option<u64>,
    has_child: bool,
    is_dead: bool,
}

/// A coordinator with agents; times are those of its clock.
pub(super) struct Simulation {
    pub(super) coordinator: Coordinator,
    pub(super) agents: Vec<SimulatedAgent>,
    pub(super) offsets_ns: Vec<i64>,
    pub(super) delays_ns: Vec<u64>,
    pub(super) loss_fraction: f64,
    pub(super) outage_ns: Range<u64>,
    pub(super) partition: Option<(usize, Range<u64>)>,
    pub(super) killed: Option<(usize, u64)>,
    pub(super) restarted: Option<(usize, u64)>,
    pub(super) refusing: Option<usize>,
    pub(super) stop_ns: Option<u64>,
    pub(super) records: BTreeMap<AgentName, Vec<u8>>,
    pub(super) seconds: Vec<u64>,
    pub(super) notices: Vec<String>,
    pub(super) true_starts_ns: Vec<Option<u64>>,
    pub(super) messages: u64,
    pub(super) now_ns: u64,
    queue: BinaryHeap<Reverse<(u64, u64)>>,
    pending: BTreeMap<u64, Pending>,
    next_id: u64,
    random: u64,
}

fn name(index: usize) -> AgentName {
    AgentName::parse(&format!("agent-{index:04}")).unwrap()
}

/// Clocks of agents start far from 0, so that an offset may be negative.
const EPOCH: u64 = 1_000 * SECOND;

impl Simulation {
    pub(super) fn new(count: usize, on_loss: LossPolicy) -> Self {
        let members = (0..count).map(|index| MemberPlan {
            name: name(index),
            instance: "1".to_owned(),
            job: Job { role: AgentRole::Load, arguments: Vec::new(), slice: None },
            fraction: 1.0 / count as f64,
        });
        let plan = FleetPlan {
            run: RunId::parse("r").unwrap(),
            members: members.collect(),
            on_loss,
            duration_ns: DURATION,
            prepare_ns: 60 * SECOND,
            collect_ns: 10 * SECOND,
        };
        let agent = || SimulatedAgent {
            machine: AgentMachine::new("1".to_owned(), Vec::new()),
            rate_factor: 1.0,
            start_ns: None,
            has_child: false,
            is_dead: false,
        };
        Self {
            coordinator: Coordinator::new(plan, 0),
            agents: (0..count).map(|_| agent()).collect(),
            offsets_ns: vec![0; count],
            delays_ns: vec![MS / 2; count],
            loss_fraction: 0.0,
            outage_ns: 0..0,
            partition: None,
            killed: None,
            restarted: None,
            refusing: None,
            stop_ns: None,
            records: BTreeMap::new(),
            seconds: Vec::new(),
            notices: Vec::new(),
            true_starts_ns: vec![None; count],
            messages: 0,
            now_ns: 0,
            queue: BinaryHeap::new(),
            pending: BTreeMap::new(),
            next_id: 0,
            random: 7,
        }
    }

    /// Runs to the end; panics if there is none.
    pub(super) fn run(&mut self) -> RunEnd {
        self.schedule(0, Pending::Tick);
        while let Some(Reverse((at_ns, id))) = self.queue.pop() {
            self.now_ns = at_ns;
            assert!(at_ns < HANG, "the coordinator hangs: {:?}", self.coordinator.results());
            let Some(pending) = self.pending.remove(&id) else { continue };
            if let Some(end) = self.step(pending) {
                return end;
            }
        }
        panic!("nothing is left to happen");
    }

    fn step(&mut self, pending: Pending) -> Option<RunEnd> {
        match pending {
            Pending::Tick => return self.tick(),
            Pending::ToAgent(index, command) => self.deliver_to_agent(index, AgentEvent::Command(command)),
            Pending::ToCoordinator(event) => return self.deliver_to_coordinator(event),
            Pending::Child(index, step) => self.child_step(index, step),
        }
        None
    }

    fn tick(&mut self) -> Option<RunEnd> {
        self.schedule(self.now_ns + TICK, Pending::Tick);
        if let Some((index, at_ns)) = self.killed
            && self.now_ns >= at_ns
        {
            self.agents[index].is_dead = true;
        }
        if let Some((index, at_ns)) = self.restarted
            && self.now_ns >= at_ns
        {
            self.restarted = None;
            self.agents[index].machine = AgentMachine::new("2".to_owned(), Vec::new());
            self.agents[index].has_child = false;
        }
        for index in 0..self.agents.len() {
            self.deliver_to_agent(index, AgentEvent::Tick);
        }
        let is_stop = self.stop_ns.is_some_and(|at_ns| self.now_ns >= at_ns);
        if is_stop {
            self.stop_ns = None;
            self.deliver_to_coordinator(CoordinatorEvent::Stop);
        }
        self.deliver_to_coordinator(CoordinatorEvent::Tick)
    }

    fn deliver_to_coordinator(&mut self, event: CoordinatorEvent) -> Option<RunEnd> {
        for action in self.coordinator.handle(event, self.now_ns) {
            match action {
                CoordinatorAction::Send(agent, command) => {
                    let index: usize = agent.as_str().rsplit('-').next().unwrap().parse().unwrap();
                    if self.passes(Some(index)) {
                        self.schedule(self.now_ns + self.delays_ns[index], Pending::ToAgent(index, command));
                    }
                }
                CoordinatorAction::SendEcho => {
                    if self.passes(None) {
                        self.schedule(self.now_ns + MS, Pending::ToCoordinator(CoordinatorEvent::Echo));
                    }
                }
                CoordinatorAction::Record(agent, record) => {
                    assert_eq!(record, RECORD.as_bytes());
                    assert!(self.records.insert(agent, record).is_none(), "a record arrives once");
                }
                CoordinatorAction::Second(interval) => self.seconds.push(interval.responses),
                CoordinatorAction::Notice(text) => self.notices.push(text),
                CoordinatorAction::Finished(end) => return Some(end),
            }
        }
        None
    }

    fn deliver_to_agent(&mut self, index: usize, event: AgentEvent) {
        let mut events = vec![event];
        while let Some(event) = events.pop() {
            if self.agents[index].is_dead {
                return;
            }
            let clock_ns = self.agent_clock_ns(index);
            for action in self.agents[index].machine.handle(event, clock_ns) {
                events.extend(self.agent_action(index, action));
            }
        }
    }

    fn agent_action(&mut self, index: usize, action: AgentAction) -> Option<AgentEvent> {
        match action {
            AgentAction::ReportStatus => {
                let status = self.agents[index].machine.status();
                self.report(index, CoordinatorEvent::Status(name(index), status));
            }
            AgentAction::ReportClock(sequence) => {
                let pong = Pong { sequence, clock_ns: self.agent_clock_ns(index), wall_ns: 0 };
                self.report(index, CoordinatorEvent::Pong(name(index), pong, 0));
            }
            AgentAction::ReportSecond(_, second) => {
                self.report(index, CoordinatorEvent::Second(name(index), Box::new((*second).into())));
            }
            AgentAction::Check(run, _) if self.refusing == Some(index) => {
                return Some(AgentEvent::Checked(run, Err(vec!["--rate: wrong".to_owned()])));
            }
            AgentAction::Check(run, _) => return Some(AgentEvent::Checked(run, Ok(DURATION))),
            AgentAction::Spawn(_) => {
                self.agents[index].has_child = true;
                let opened_ns = self.now_ns + 50 * MS + index as u64 % 7 * 10 * MS;
                self.schedule(opened_ns, Pending::Child(index, ChildStep::Connected));
            }
            AgentAction::Write(command) => return self.write_to_child(index, command),
            AgentAction::SendRecord(_, from_part) => {
                assert_eq!(from_part, 0);
                let part = CoordinatorEvent::RecordPart(name(index), 0, RECORD.as_bytes().to_vec());
                self.report(index, part);
            }
            AgentAction::Kill => panic!("the child process ends by itself"),
            AgentAction::ReportFacts | AgentAction::Delete(_) | AgentAction::Exit => {}
        }
        None
    }

    fn write_to_child(&mut self, index: usize, command: LoadCommand) -> Option<AgentEvent> {
        let clock_ns = self.agent_clock_ns(index);
        match command {
            LoadCommand::Start { at_ns } => {
                let start_ns = at_ns.max(clock_ns + 5 * MS);
                self.agents[index].start_ns = Some(start_ns);
                let true_ns = self.now_ns + (start_ns - clock_ns);
                self.true_starts_ns[index] = Some(true_ns);
                for second in 1..=DURATION / SECOND {
                    self.schedule(
                        true_ns + second * SECOND,
                        Pending::Child(index, ChildStep::Second(second)),
                    );
                }
                self.schedule(true_ns + DURATION + 30 * MS, Pending::Child(index, ChildStep::Ended));
                Some(AgentEvent::Child(LoadEvent::Started { clock_ns: start_ns, unix_ns: 0 }))
            }
            LoadCommand::Rate { factor } => {
                self.agents[index].rate_factor = factor;
                None
            }
            LoadCommand::Stop => {
                self.schedule(self.now_ns + 20 * MS, Pending::Child(index, ChildStep::Ended));
                None
            }
        }
    }

    fn child_step(&mut self, index: usize, step: ChildStep) {
        if !self.agents[index].has_child {
            return;
        }
        let event = match step {
            ChildStep::Connected => AgentEvent::Child(LoadEvent::Connected { connections: 1 }),
            ChildStep::Second(second) => {
                let interval =
                    Interval { time_s: second as f64, length_s: 1.0, responses: 10, ..Interval::default() };
                AgentEvent::Child(LoadEvent::Second { interval: Box::new(interval), latencies: None })
            }
            ChildStep::Ended => {
                self.agents[index].has_child = false;
                AgentEvent::ChildEnded(match self.agents[index].start_ns {
                    Some(start_ns) => Ok(StoredRun {
                        run: RunId::parse("r").unwrap(),
                        start_ns: Some(start_ns),
                        bytes: RECORD.len() as u64,
                        digest: sha256_base64(RECORD),
                    }),
                    None => Err(ChildFailure::Reported("stopped before the start".to_owned())),
                })
            }
        };
        self.deliver_to_agent(index, event);
    }

    fn report(&mut self, index: usize, event: CoordinatorEvent) {
        if self.passes(Some(index)) {
            self.schedule(self.now_ns + self.delays_ns[index], Pending::ToCoordinator(event));
        }
    }

    /// Returns whether a message gets through now: to or from an agent, or to the coordinator itself.
    fn passes(&mut self, agent: Option<usize>) -> bool {
        self.messages += 1;
        let is_cut = |cut: &(usize, Range<u64>)| agent == Some(cut.0) && cut.1.contains(&self.now_ns);
        if self.outage_ns.contains(&self.now_ns) || self.partition.as_ref().is_some_and(is_cut) {
            return false;
        }
        // A linear congruential generator (Knuth, MMIX).
        self.random =
            self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        agent.is_none() || (self.random >> 33) as f64 / (1_u64 << 31) as f64 >= self.loss_fraction
    }

    fn agent_clock_ns(&self, index: usize) -> u64 {
        (EPOCH + self.now_ns).saturating_add_signed(self.offsets_ns[index])
    }

    fn schedule(&mut self, at_ns: u64, pending: Pending) {
        self.next_id += 1;
        self.queue.push(Reverse((at_ns, self.next_id)));
        self.pending.insert(self.next_id, pending);
    }
}
