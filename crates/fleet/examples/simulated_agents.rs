//! Simulated agents for `bench/run fleet`: `simulated_agents URL COUNT RECORD SECONDS`. Each agent has a connection
//! to the NATS server and the state machine of an agent; its child process is a model, whose record is a copy of
//! RECORD with another run ID. Ends with its stdin.

#![allow(clippy::unwrap_used, reason = "a tool of the benchmark gives up where it cannot go on")]

use std::collections::VecDeque;
use std::io::Read as _;
use std::rc::Rc;
use std::time::Duration;

use fleet::agent::{AgentAction, AgentEvent, AgentMachine};
use fleet::message::{
    AgentFacts, AgentName, AgentReport, AgentRole, PART_BYTES, Pong, RunId, StoredRun, decode, encode,
};
use fleet::subjects;
use fleet::transport::{NatsLink, NatsOptions};
use record::control::{LoadCommand, LoadEvent, encode_latencies};
use record::digest::sha256_base64;
use record::facts::HostFacts;
use record::histogram::LatencyHistogram;
use record::run::Interval;
use rustix::time::{ClockId, clock_gettime};

const TICK: Duration = Duration::from_millis(100);
const SECOND_NS: u64 = 1_000_000_000;

/// Model of the child process of all agents.
struct ChildModel {
    /// Record, and the ID in it that each agent replaces.
    record: String,
    id: String,
    duration_ns: u64,
    latencies: Option<String>,
}

struct Agent {
    name: AgentName,
    link: NatsLink,
    machine: AgentMachine,
    child: Rc<ChildModel>,
    /// Events of the child by their time.
    events: VecDeque<(u64, Option<LoadEvent>)>,
    run: Option<RunId>,
    start_ns: Option<u64>,
}

fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * SECOND_NS + now.tv_nsec as u64
}

impl Agent {
    fn record(&self) -> String {
        self.child.record.replace(&self.child.id, &format!("{:0>32}", self.name.as_str().replace('-', "0")))
    }

    async fn publish<T: serde::Serialize>(&self, subject: String, body: &T) {
        self.link.publish(subject, encode(body).unwrap()).await;
    }

    fn facts(&self) -> AgentFacts {
        AgentFacts {
            name: self.name.clone(),
            instance: self.name.to_string(),
            weir: "simulated".to_owned(),
            host: HostFacts { cpus: 1, ..HostFacts::default() },
            links: Vec::new(),
            labels: Default::default(),
            roles: vec![AgentRole::Load],
            capacity_per_s: None,
            clock_synchronized: None,
        }
    }

    async fn handle(&mut self, event: AgentEvent) {
        let mut queue = VecDeque::from([event]);
        while let Some(event) = queue.pop_front() {
            for action in self.machine.handle(event, now_ns()) {
                queue.extend(self.act(action).await);
            }
        }
    }

    async fn act(&mut self, action: AgentAction) -> Option<AgentEvent> {
        match action {
            AgentAction::ReportFacts => {
                let report = AgentReport::Facts { facts: Box::new(self.facts()) };
                self.publish(subjects::report(&self.name), &report).await;
            }
            AgentAction::ReportStatus => {
                let report = AgentReport::Status { status: self.machine.status() };
                self.publish(subjects::report(&self.name), &report).await;
            }
            AgentAction::ReportClock(sequence) => {
                let pong = Pong { sequence, clock_ns: now_ns(), wall_ns: now_ns() };
                self.publish(subjects::clock(&self.name), &pong).await;
            }
            AgentAction::ReportSecond(run, second) => {
                self.publish(subjects::live(&self.name, &run), &second).await;
            }
            AgentAction::Check(run, _) => return Some(AgentEvent::Checked(run, Ok(self.child.duration_ns))),
            AgentAction::Spawn(run) => {
                (self.run, self.start_ns) = (Some(run), None);
                self.events = [(now_ns(), Some(LoadEvent::Connected { connections: 1 }))].into();
            }
            AgentAction::Write(LoadCommand::Start { at_ns }) => self.schedule(at_ns),
            AgentAction::Write(LoadCommand::Stop) => self.events = [(now_ns(), None)].into(),
            AgentAction::SendRecord(run, from_part) => {
                let record = self.record();
                let parts = (0..).zip(record.as_bytes().chunks(PART_BYTES)).skip(from_part as usize);
                for (part, bytes) in parts {
                    let subject = subjects::record_part(&self.name, &run, part);
                    self.link.publish(subject, bytes.to_vec()).await;
                    self.link.flush().await;
                }
            }
            AgentAction::Write(LoadCommand::Rate { .. })
            | AgentAction::Kill
            | AgentAction::Delete(_)
            | AgentAction::Exit => {}
        }
        None
    }

    /// Schedules the events of a load that starts at `at_ns`.
    fn schedule(&mut self, at_ns: u64) {
        let at_ns = at_ns.max(now_ns());
        if self.start_ns.replace(at_ns).is_some() {
            return;
        }
        self.events.push_back((0, Some(LoadEvent::Started { clock_ns: at_ns, unix_ns: 0 })));
        for second in 1..=self.child.duration_ns / SECOND_NS {
            let interval =
                Interval { time_s: second as f64, length_s: 1.0, responses: 100, ..Interval::default() };
            let latencies = self.child.latencies.clone();
            let event = LoadEvent::Second { interval: Box::new(interval), latencies };
            self.events.push_back((at_ns + second * SECOND_NS, Some(event)));
        }
        self.events.push_back((at_ns + self.child.duration_ns, None));
    }

    /// Handles the events that are due.
    async fn tick(&mut self) {
        while self.events.front().is_some_and(|(at_ns, _)| *at_ns <= now_ns()) {
            let Some((_, event)) = self.events.pop_front() else { break };
            let event = match (event, self.run.clone()) {
                (Some(event), _) => AgentEvent::Child(event),
                (None, Some(run)) => {
                    let record = self.record();
                    AgentEvent::ChildEnded(Ok(StoredRun {
                        run,
                        start_ns: self.start_ns,
                        bytes: record.len() as u64,
                        digest: sha256_base64(&record),
                    }))
                }
                (None, None) => continue,
            };
            self.handle(event).await;
        }
        self.handle(AgentEvent::Tick).await;
    }
}

async fn run(number: usize, url: String, child: Rc<ChildModel>) {
    let name = AgentName::parse(&format!("sim-{number}")).unwrap();
    let options = NatsOptions { url, name: name.to_string(), ..NatsOptions::default() };
    let limit = Some(Duration::from_secs(60));
    let (link, mut messages, _events) =
        NatsLink::connect_with_retry(&options, limit, |text| eprintln!("{text}")).await.unwrap();
    link.subscribe(subjects::COMMAND_ALL).await.unwrap();
    link.subscribe(&subjects::command(&name)).await.unwrap();
    let machine = AgentMachine::new(name.to_string(), Vec::new());
    let mut agent = Agent { name, link, machine, child, events: VecDeque::new(), run: None, start_ns: None };
    // The ticks of the agents are spread over their interval.
    let first = tokio::time::Instant::now() + TICK * (number as u32 % 100) / 100;
    let mut ticks = tokio::time::interval_at(first, TICK);
    loop {
        tokio::select! {
            Some(message) = messages.recv() => {
                if let Ok(command) = decode(&message.payload) {
                    agent.handle(AgentEvent::Command(command)).await;
                }
            }
            _ = ticks.tick() => agent.tick().await,
        }
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [url, count, record, seconds] = arguments.as_slice() else { panic!("URL COUNT RECORD SECONDS") };
    let record = std::fs::read_to_string(record).unwrap();
    let value: serde_json::Value = serde_json::from_str(&record).unwrap();
    let id = value["identities"][0]["id"].as_str().unwrap().to_owned();
    let mut latencies = LatencyHistogram::new();
    (1..200_u64).for_each(|step| latencies.record(step * step * 1_000));
    let child = Rc::new(ChildModel {
        record,
        id,
        duration_ns: seconds.parse::<u64>().unwrap() * SECOND_NS,
        latencies: encode_latencies(&latencies),
    });
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(0);
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let agents = tokio::task::LocalSet::new();
    for number in 0..count.parse().unwrap() {
        agents.spawn_local(run(number, url.clone(), Rc::clone(&child)));
    }
    println!("started");
    runtime.block_on(agents);
}
