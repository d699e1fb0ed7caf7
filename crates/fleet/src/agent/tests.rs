//! Tests of the state machine: every way through it, with commands that arrive twice or not at all.

use super::*;
use crate::message::AgentRole;

const SECOND_NS: u64 = 1_000_000_000;

fn run_id(name: &str) -> RunId {
    RunId::parse(name).unwrap()
}

fn prepare(run: &str) -> AgentEvent {
    let job = Job { role: AgentRole::Load, arguments: Vec::new(), slice: None };
    AgentEvent::Command(AgentCommand::Prepare { run: run_id(run), job })
}

fn stored(run: &str) -> StoredRun {
    StoredRun { run: run_id(run), start_ns: Some(7), bytes: 10, digest: "d".to_owned() }
}

fn checked(run: &str) -> AgentEvent {
    AgentEvent::Checked(run_id(run), Ok(10 * SECOND_NS))
}

fn stop(run: &str, abort: bool) -> AgentEvent {
    AgentEvent::Command(AgentCommand::Stop { run: run_id(run), abort })
}

fn state(agent: &AgentMachine) -> Option<RunState> {
    agent.status().run.map(|run| run.state)
}

/// Returns an agent whose run is ready at `now_ns` 1.
fn ready() -> AgentMachine {
    let mut agent = AgentMachine::new("i".to_owned(), Vec::new());
    assert!(agent.handle(prepare("r"), 1).contains(&AgentAction::Check(
        run_id("r"),
        Job { role: AgentRole::Load, arguments: Vec::new(), slice: None }
    )));
    assert!(agent.handle(checked("r"), 1).contains(&AgentAction::Spawn(run_id("r"))));
    agent.handle(AgentEvent::Child(LoadEvent::Connected { connections: 3 }), 1);
    assert_eq!(state(&agent), Some(RunState::Ready { connections: 3 }));
    agent
}

fn running() -> AgentMachine {
    let mut agent = ready();
    agent.handle(AgentEvent::Child(LoadEvent::Started { clock_ns: 5, unix_ns: 6 }), 2);
    assert_eq!(state(&agent), Some(RunState::Running { start_ns: 5 }));
    agent
}

#[test]
fn a_run_goes_from_its_plan_to_an_acknowledged_record() {
    let mut agent = ready();
    let start = AgentEvent::Command(AgentCommand::Start { run: run_id("r"), at_ns: 9 });
    assert_eq!(agent.handle(start.clone(), 2), [AgentAction::Write(LoadCommand::Start { at_ns: 9 })]);
    agent.handle(AgentEvent::Child(LoadEvent::Started { clock_ns: 9, unix_ns: 6 }), 2);
    assert_eq!(agent.handle(start, 3), [], "a repeated start has no effect");
    assert_eq!(agent.handle(prepare("r"), 3), []);
    let actions = agent.handle(AgentEvent::ChildEnded(Ok(stored("r"))), 4);
    assert_eq!(actions, [AgentAction::ReportStatus], "every change is reported at once");
    assert_eq!(agent.status().stored, [stored("r")]);
    let again = agent.handle(prepare("r"), 4);
    assert_eq!(again, [AgentAction::ReportStatus], "a late repetition does not run it again");
    let send = AgentCommand::SendRecord { run: run_id("r"), from_part: 2 };
    let sent = agent.handle(AgentEvent::Command(send), 4);
    assert_eq!(sent, [AgentAction::SendRecord(run_id("r"), 2)]);
    let acknowledge = AgentEvent::Command(AgentCommand::Acknowledge { run: run_id("r") });
    assert!(agent.handle(acknowledge.clone(), 5).contains(&AgentAction::Delete(run_id("r"))));
    assert!(agent.status().stored.is_empty());
    assert_eq!(agent.handle(acknowledge, 5), []);
}

#[test]
fn a_second_run_is_refused_and_so_is_a_bad_plan() {
    let mut agent = running();
    agent.handle(prepare("other"), 3);
    let refused = agent.status().refused.unwrap();
    assert!(refused.run == run_id("other") && refused.problems[0].contains("busy"), "{refused:?}");
    assert!(matches!(state(&agent), Some(RunState::Running { .. })));
    let mut agent = AgentMachine::new("i".to_owned(), Vec::new());
    agent.handle(prepare("r"), 1);
    agent.handle(AgentEvent::Checked(run_id("r"), Err(vec!["--rate: x".to_owned()])), 1);
    assert_eq!(agent.status().refused.unwrap().problems, ["--rate: x"]);
    assert_eq!(state(&agent), None);
}

#[test]
fn a_failed_child_is_reported_until_it_is_acknowledged_or_another_run_comes() {
    let mut agent = ready();
    agent.handle(AgentEvent::ChildEnded(Err(ChildFailure::Reported("cannot connect".to_owned()))), 3);
    assert_eq!(state(&agent), Some(RunState::Failed { text: "cannot connect".to_owned() }));
    let mut other = agent.clone();
    other.handle(prepare("other"), 4);
    assert_eq!(other.status().run.unwrap().run, run_id("other"));
    agent.handle(AgentEvent::Command(AgentCommand::Acknowledge { run: run_id("r") }), 4);
    assert_eq!(state(&agent), None);
}

#[test]
fn stops_and_rates_that_arrive_twice_act_once() {
    let mut agent = running();
    let rate = AgentEvent::Command(AgentCommand::Rate { run: run_id("r"), factor: 1.5 });
    assert!(agent.handle(rate.clone(), 3).contains(&AgentAction::Write(LoadCommand::Rate { factor: 1.5 })));
    assert_eq!(agent.handle(rate, 3), []);
    assert_eq!(agent.status().run.unwrap().rate_factor, 1.5);
    assert_eq!(agent.handle(stop("other", false), 3), []);
    assert_eq!(agent.handle(stop("r", false), 3), [AgentAction::Write(LoadCommand::Stop)]);
    assert_eq!(agent.handle(stop("r", false), 3), []);
    assert_eq!(agent.handle(stop("r", true), 3), [AgentAction::Write(LoadCommand::Stop)]);
    assert_eq!(agent.handle(stop("r", true), 3), []);
}

#[test]
fn a_run_without_a_coordinator_is_stopped_before_its_start_and_finished_after_it() {
    let mut waiting = ready();
    assert!(
        !waiting.handle(AgentEvent::Tick, 50 * SECOND_NS).contains(&AgentAction::Write(LoadCommand::Stop))
    );
    waiting.handle(AgentEvent::Command(AgentCommand::Ping { sequence: 1 }), 50 * SECOND_NS);
    assert!(
        !waiting.handle(AgentEvent::Tick, 100 * SECOND_NS).contains(&AgentAction::Write(LoadCommand::Stop))
    );
    assert!(
        waiting.handle(AgentEvent::Tick, 111 * SECOND_NS).contains(&AgentAction::Write(LoadCommand::Stop))
    );
    let mut started = running();
    assert_eq!(started.handle(AgentEvent::Tick, 69 * SECOND_NS), [AgentAction::ReportStatus]);
    let late = started.handle(AgentEvent::Tick, 71 * SECOND_NS);
    assert!(late.contains(&AgentAction::Kill), "a child that hangs is killed: {late:?}");
    assert!(!started.handle(AgentEvent::Tick, 73 * SECOND_NS).contains(&AgentAction::Kill));
}

#[test]
fn a_program_whose_coordinator_is_gone_ends_unless_the_server_is_gone_too() {
    let program = || {
        let mut agent = AgentMachine::new("i".to_owned(), Vec::new());
        let job = Job { role: AgentRole::Proxy, arguments: Vec::new(), slice: None };
        agent.handle(AgentEvent::Command(AgentCommand::Prepare { run: run_id("r"), job }), 1);
        agent.handle(AgentEvent::Checked(run_id("r"), Ok(3600 * SECOND_NS)), 1);
        agent.handle(AgentEvent::Child(LoadEvent::Connected { connections: 0 }), 1);
        agent.handle(AgentEvent::Child(LoadEvent::Started { clock_ns: 5, unix_ns: 6 }), 2);
        agent
    };
    let stop = AgentAction::Write(LoadCommand::Stop);
    let mut abandoned = program();
    abandoned.handle(AgentEvent::Command(AgentCommand::Ping { sequence: 1 }), 50 * SECOND_NS);
    assert!(!abandoned.handle(AgentEvent::Tick, 169 * SECOND_NS).contains(&stop));
    assert!(abandoned.handle(AgentEvent::Tick, 170 * SECOND_NS).contains(&stop));
    assert!(!abandoned.handle(AgentEvent::Tick, 171 * SECOND_NS).contains(&stop), "once");
    // Without a server nothing is known of the coordinator. It has its full time after the reconnect.
    let mut cut_off = program();
    cut_off.handle(AgentEvent::Link(false), 3);
    assert!(!cut_off.handle(AgentEvent::Tick, 1000 * SECOND_NS).contains(&stop));
    cut_off.handle(AgentEvent::Link(true), 1000 * SECOND_NS);
    assert!(!cut_off.handle(AgentEvent::Tick, 1119 * SECOND_NS).contains(&stop));
    assert!(cut_off.handle(AgentEvent::Tick, 1120 * SECOND_NS).contains(&stop));
    // A load ends by itself.
    let mut load = running();
    load.current.as_mut().unwrap().duration_ns = 3600 * SECOND_NS;
    assert!(!load.handle(AgentEvent::Tick, 1000 * SECOND_NS).contains(&stop));
}

#[test]
fn a_draining_agent_finishes_its_run_and_waits_a_while_for_the_delivery() {
    let mut agent = running();
    assert_eq!(agent.handle(AgentEvent::Drain, 3), [AgentAction::ReportStatus]);
    agent.handle(prepare("other"), 3);
    assert!(agent.status().refused.unwrap().problems[0].contains("ends"));
    let ended = agent.handle(AgentEvent::ChildEnded(Ok(stored("r"))), 4);
    assert!(!ended.contains(&AgentAction::Exit));
    let mut undelivered = agent.clone();
    assert!(undelivered.handle(AgentEvent::Tick, 11 * SECOND_NS).contains(&AgentAction::Exit));
    let acknowledged = AgentCommand::Acknowledge { run: run_id("r") };
    assert!(agent.handle(AgentEvent::Command(acknowledged), 5).contains(&AgentAction::Exit));
    let mut stopped = running();
    stopped.handle(AgentEvent::Drain, 3);
    let twice = stopped.handle(AgentEvent::Drain, 3);
    assert!(twice.contains(&AgentAction::Write(LoadCommand::Stop)), "{twice:?}");
    let mut idle = AgentMachine::new("i".to_owned(), Vec::new());
    assert!(idle.handle(AgentEvent::Drain, 1).contains(&AgentAction::Exit));
    assert!(ready().handle(AgentEvent::Drain, 1).contains(&AgentAction::Write(LoadCommand::Stop)));
}

#[test]
fn records_of_an_earlier_process_are_offered_again() {
    let agent = AgentMachine::new("i".to_owned(), vec![stored("old")]);
    assert_eq!(agent.status().stored, [stored("old")]);
}
