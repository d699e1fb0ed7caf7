//! Coordinator in a process: connects the state machine to NATS. The calling thread drives it.

use std::collections::BTreeMap;
use std::time::Duration;

use record::run::Interval;
use tokio::runtime::Runtime;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::{AgentSecond, Coordinator, CoordinatorAction, CoordinatorEvent, FleetPlan, MemberResult, RunEnd};
use crate::agent::service::Clocks;
use crate::message::{
    AgentCommand, AgentFacts, AgentName, AgentReport, AgentStatus, LiveSecond, Pong, RunId, decode, encode,
};
use crate::subjects::{self, AgentSubject};
use crate::transport::{LinkEvent, Message, NatsLink, NatsOptions, TransportError};

pub trait FleetObserver {
    /// All agents are ready, and their common start is determined.
    fn on_start(&mut self) {}
    fn on_agent_second(&mut self, _: &AgentName, _: &AgentSecond) {}
    fn on_second(&mut self, _: &Interval) {}
    /// Something changed that the user should know.
    fn on_notice(&mut self, text: &str);
}

/// Agent that answered a search.
#[derive(Clone, Debug, PartialEq)]
pub struct KnownAgent {
    pub facts: AgentFacts,
    pub status: Option<AgentStatus>,
}

/// Records of a run, with the results of all agents.
#[derive(Clone, Debug)]
pub struct FleetRecords {
    pub end: RunEnd,
    /// Results of the agents, in the order of the plan.
    pub results: Vec<MemberResult>,
    pub records: BTreeMap<AgentName, Vec<u8>>,
    /// True if the user stopped the run.
    pub is_stopped: bool,
}

#[derive(Debug)]
pub struct CoordinatorSession {
    runtime: Runtime,
    link: NatsLink,
    messages: mpsc::Receiver<Message>,
    link_events: mpsc::Receiver<LinkEvent>,
    clocks: Clocks,
}

/// Interval of the state machine's clock.
const TICK: Duration = Duration::from_millis(20);
/// Interval of the question for facts: agents may still connect.
const DESCRIBE_INTERVAL: Duration = Duration::from_millis(250);

impl CoordinatorSession {
    /// Connects to the server as soon as it is reachable, for at most `limit`. `notice` gets the reason of the
    /// first failure. Returns `None` if `stop` counts a request of the user to end.
    ///
    /// # Errors
    /// The server is not reachable within the limit, or rejects the credentials.
    pub fn connect_within(
        options: &NatsOptions,
        clocks: Clocks,
        limit: Duration,
        mut stop: watch::Receiver<u32>,
        notice: fn(&str),
    ) -> Result<Option<Self>, TransportError> {
        let runtime = new_runtime()?;
        let connected = runtime.block_on(async {
            let connected = tokio::select! {
                connected = NatsLink::connect_with_retry(options, Some(limit), notice) => connected?,
                Ok(_) = stop.wait_for(|count| *count > 0) => return Ok(None),
            };
            connected.0.subscribe(subjects::REPORTS).await?;
            Ok::<_, TransportError>(Some(connected))
        });
        let connected = connected?;
        Ok(connected.map(|(link, messages, link_events)| Self {
            runtime,
            link,
            messages,
            link_events,
            clocks,
        }))
    }

    /// Searches agents for `wait`, or until `is_enough` is satisfied with their facts. Returns all known
    /// ones; two with the same name are both there.
    pub fn find_agents(
        &mut self,
        wait: Duration,
        is_enough: &dyn Fn(&[AgentFacts]) -> bool,
    ) -> Vec<KnownAgent> {
        let Self { runtime, link, messages, .. } = self;
        runtime.block_on(async {
            let mut found: BTreeMap<(AgentName, String), KnownAgent> = BTreeMap::new();
            let mut statuses: BTreeMap<String, AgentStatus> = BTreeMap::new();
            let deadline = tokio::time::sleep(wait);
            tokio::pin!(deadline);
            let mut asks = tokio::time::interval(DESCRIBE_INTERVAL);
            loop {
                let message = tokio::select! {
                    () = &mut deadline => break,
                    _ = asks.tick() => {
                        publish(link, subjects::COMMAND_ALL.to_owned(), &AgentCommand::Describe).await;
                        continue;
                    }
                    Some(message) = messages.recv() => message,
                };
                match read_report(&message) {
                    Some((name, AgentReport::Facts { facts })) if facts.name == name => {
                        let key = (name, facts.instance.clone());
                        found.insert(key, KnownAgent { facts: *facts, status: None });
                    }
                    Some((_, AgentReport::Status { status })) => {
                        statuses.insert(status.instance.clone(), status);
                    }
                    _ => continue,
                }
                let facts: Vec<AgentFacts> = found.values().map(|agent| agent.facts.clone()).collect();
                let all_have_a_status = found.keys().all(|(_, instance)| statuses.contains_key(instance));
                if all_have_a_status && is_enough(&facts) {
                    break;
                }
            }
            let with_status = |mut agent: KnownAgent| {
                agent.status = statuses.remove(&agent.facts.instance);
                agent
            };
            found.into_values().map(with_status).collect()
        })
    }

    /// Runs a plan to its end. `stop` counts the requests of the user to end it: the first drains, the second
    /// aborts, the third does not wait any longer.
    ///
    /// # Errors
    /// The connection is closed before the start.
    pub fn run(
        &mut self,
        plan: FleetPlan,
        stop: watch::Receiver<u32>,
        observer: &mut dyn FleetObserver,
    ) -> Result<FleetRecords, TransportError> {
        let Self { runtime, link, messages, link_events, clocks } = self;
        runtime.block_on(run_plan(plan, stop, observer, link, messages, link_events, *clocks))
    }
}

fn new_runtime() -> Result<Runtime, TransportError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| TransportError::Closed(error.to_string()))
}

async fn run_plan(
    plan: FleetPlan,
    mut stop: watch::Receiver<u32>,
    observer: &mut dyn FleetObserver,
    link: &NatsLink,
    messages: &mut mpsc::Receiver<Message>,
    link_events: &mut mpsc::Receiver<LinkEvent>,
    clocks: Clocks,
) -> Result<FleetRecords, TransportError> {
    let run = plan.run.clone();
    subscribe(link, &run).await?;
    let mut coordinator = Coordinator::new(plan, clocks().0);
    let mut records = BTreeMap::new();
    let mut ticks = tokio::time::interval_at(Instant::now(), TICK);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    let (mut stops, mut has_started) = (0, false);
    loop {
        let event = tokio::select! {
            Some(message) = messages.recv() => read(&message, &run, clocks),
            Some(event) = link_events.recv() => {
                if let LinkEvent::Rejected(text) = event {
                    observer.on_notice(&format!("the NATS server rejects this coordinator: {text}"));
                }
                None
            }
            _ = ticks.tick() => {
                let has_stopped = stops < *stop.borrow_and_update();
                stops += u32::from(has_stopped);
                Some(if has_stopped { CoordinatorEvent::Stop } else { CoordinatorEvent::Tick })
            }
        };
        let Some(event) = event else { continue };
        if let CoordinatorEvent::Second(agent, second) = &event {
            observer.on_agent_second(agent, second);
        }
        let actions = coordinator.handle(event, clocks().0);
        if !has_started && coordinator.start_ns() > 0 {
            has_started = true;
            observer.on_start();
        }
        for action in actions {
            match action {
                CoordinatorAction::Send(agent, command) => {
                    publish(link, subjects::command(&agent), &command).await;
                }
                CoordinatorAction::SendEcho => link.publish(subjects::echo(&run), Vec::new()).await,
                CoordinatorAction::Record(agent, record) => {
                    records.insert(agent, record);
                }
                CoordinatorAction::Second(interval) => observer.on_second(&interval),
                CoordinatorAction::Notice(text) => observer.on_notice(&text),
                CoordinatorAction::Finished(end) => {
                    link.flush().await;
                    let (results, is_stopped) = (coordinator.results(), coordinator.is_stopped());
                    return Ok(FleetRecords { end, results, records, is_stopped });
                }
            }
        }
    }
}

async fn subscribe(link: &NatsLink, run: &RunId) -> Result<(), TransportError> {
    for subject in [
        subjects::CLOCKS.to_owned(),
        subjects::live_of_run(run),
        subjects::records_of_run(run),
        subjects::echo(run),
    ] {
        link.subscribe(&subject).await?;
    }
    Ok(())
}

/// Returns the event of a message; `None` for one that does not belong to the run or cannot be read.
fn read(message: &Message, run: &RunId, clocks: Clocks) -> Option<CoordinatorEvent> {
    if message.subject == subjects::echo(run) {
        return Some(CoordinatorEvent::Echo);
    }
    let (agent, subject) = subjects::parse(&message.subject)?;
    match subject {
        AgentSubject::Report => match decode(&message.payload).ok()? {
            AgentReport::Status { status } => Some(CoordinatorEvent::Status(agent, status)),
            AgentReport::Facts { .. } => None,
        },
        AgentSubject::Clock => {
            let pong = decode::<Pong>(&message.payload).ok()?;
            Some(CoordinatorEvent::Pong(agent, pong, clocks().1))
        }
        AgentSubject::Live(subject_run) if subject_run == *run => {
            let second: LiveSecond = decode(&message.payload).ok()?;
            Some(CoordinatorEvent::Second(agent, Box::new(second.into())))
        }
        AgentSubject::Record(subject_run, part) if subject_run == *run => {
            Some(CoordinatorEvent::RecordPart(agent, part, message.payload.clone()))
        }
        AgentSubject::Live(_) | AgentSubject::Record(..) => None,
    }
}

fn read_report(message: &Message) -> Option<(AgentName, AgentReport)> {
    match subjects::parse(&message.subject)? {
        (agent, AgentSubject::Report) => Some((agent, decode(&message.payload).ok()?)),
        _ => None,
    }
}

async fn publish(link: &NatsLink, subject: String, command: &AgentCommand) {
    // Invariant: the job of a command was checked against the limit of a message before.
    if let Ok(bytes) = encode(command) {
        link.publish(subject, bytes).await;
    }
}
