//! Simulation of a coordinator and its agents: real state machines, a virtual clock, a network that delays and
//! loses messages, and a model of the child process.

mod simulation;

use record::fleet::START_SKEW_NS_MAX;

use self::simulation::{MS, SECOND, Simulation};
use super::*;

fn outcomes(simulation: &Simulation) -> Vec<Option<AgentOutcome>> {
    simulation.coordinator.results().iter().map(|result| result.outcome).collect()
}

const COMPLETE: Option<AgentOutcome> = Some(AgentOutcome::Complete);
const LOST: Option<AgentOutcome> = Some(AgentOutcome::Lost);

#[test]
fn agents_with_wrong_clocks_start_together_and_all_records_arrive() {
    let mut simulation = Simulation::new(3, LossPolicy::Mark);
    simulation.offsets_ns = vec![0, 3 * SECOND as i64, -3 * SECOND as i64];
    simulation.delays_ns = vec![MS / 5, MS, 2 * MS];
    assert_eq!(simulation.run(), RunEnd::Records);
    assert_eq!(outcomes(&simulation), [COMPLETE; 3]);
    assert_eq!(simulation.records.len(), 3);
    let results = simulation.coordinator.results();
    for (result, true_ns) in results.iter().zip(&simulation.true_starts_ns) {
        let wrong_by_ns = result.start_ns.unwrap().abs_diff(true_ns.unwrap());
        assert!(wrong_by_ns <= result.clock.error_ns, "{result:?}");
        assert!(result.clock.error_ns < START_SKEW_NS_MAX, "{result:?}");
    }
    let starts = simulation.true_starts_ns.iter().flatten();
    let skew_ns = starts.clone().max().unwrap() - starts.min().unwrap();
    assert!(skew_ns < START_SKEW_NS_MAX, "{skew_ns}");
    // The seconds of all agents were added up, and every record was deleted.
    assert_eq!(simulation.seconds, [30; 10]);
    assert!(simulation.agents.iter().all(|agent| agent.machine.status().stored.is_empty()));
}

#[test]
fn lost_messages_only_cost_time() {
    let mut simulation = Simulation::new(4, LossPolicy::Mark);
    simulation.loss_fraction = 0.3;
    assert_eq!(simulation.run(), RunEnd::Records);
    assert_eq!(outcomes(&simulation), [COMPLETE; 4]);
}

#[test]
fn an_outage_of_the_server_changes_nothing_but_the_time_of_the_result() {
    let mut simulation = Simulation::new(3, LossPolicy::Redistribute);
    // From the middle of the run to after its end.
    simulation.outage_ns = 5 * SECOND..25 * SECOND;
    assert_eq!(simulation.run(), RunEnd::Records);
    assert_eq!(outcomes(&simulation), [COMPLETE; 3]);
    assert!(simulation.agents.iter().all(|agent| agent.rate_factor == 1.0));
    assert!(simulation.notices.iter().any(|text| text.contains("does not respond")));
    // A server that never comes back ends the wait, too.
    let mut simulation = Simulation::new(3, LossPolicy::Mark);
    simulation.outage_ns = 5 * SECOND..u64::MAX;
    assert_eq!(simulation.run(), RunEnd::NoRecord);
    assert!(simulation.now_ns < 140 * SECOND);
}

#[test]
fn a_killed_agent_is_lost_and_the_others_take_over_its_rate() {
    for (policy, factor) in [(LossPolicy::Mark, 1.0), (LossPolicy::Redistribute, 1.5)] {
        let mut simulation = Simulation::new(3, policy);
        simulation.killed = Some((1, 4 * SECOND));
        assert_eq!(simulation.run(), RunEnd::Records);
        assert_eq!(outcomes(&simulation), [COMPLETE, LOST, COMPLETE]);
        assert!((simulation.agents[0].rate_factor - factor).abs() < 1e-9);
        let problems = &simulation.coordinator.results()[1].problems;
        assert!(problems[0].contains("no heartbeat"), "{problems:?}");
    }
}

#[test]
fn an_agent_behind_a_partition_returns_with_its_record() {
    let mut simulation = Simulation::new(3, LossPolicy::Mark);
    simulation.partition = Some((2, 3 * SECOND..13 * SECOND));
    assert_eq!(simulation.run(), RunEnd::Records);
    assert_eq!(outcomes(&simulation), [COMPLETE, COMPLETE, Some(AgentOutcome::Returned)]);
    assert_eq!(simulation.records.len(), 3);
    let mut silent = Simulation::new(3, LossPolicy::Mark);
    silent.partition = Some((2, 3 * SECOND..u64::MAX));
    assert_eq!(silent.run(), RunEnd::Records);
    assert_eq!(outcomes(&silent), [COMPLETE, COMPLETE, LOST]);
    let kept = silent.agents[2].machine.status().stored;
    assert_eq!(kept.len(), 1, "its record stays on its disk");
}

#[test]
fn a_slow_agent_has_a_clock_with_a_known_error() {
    let mut simulation = Simulation::new(2, LossPolicy::Mark);
    simulation.delays_ns = vec![MS / 10, 200 * MS];
    assert_eq!(simulation.run(), RunEnd::Records);
    let results = simulation.coordinator.results();
    assert!(results[1].clock.error_ns >= 190 * MS, "{:?}", results[1].clock);
    assert!(results[0].clock.error_ns < MS);
    let late_ns = simulation.true_starts_ns[1].unwrap().abs_diff(simulation.true_starts_ns[0].unwrap());
    assert!(late_ns < 5 * MS, "the start was sent early enough: {late_ns}");
}

#[test]
fn one_refusal_starts_nothing() {
    let mut simulation = Simulation::new(3, LossPolicy::Mark);
    simulation.refusing = Some(1);
    assert_eq!(simulation.run(), RunEnd::NotStarted);
    assert_eq!(simulation.coordinator.results()[1].problems, ["--rate: wrong"]);
    assert!(simulation.true_starts_ns.iter().all(Option::is_none));
    let mut silent = Simulation::new(2, LossPolicy::Mark);
    silent.killed = Some((0, 0));
    assert_eq!(silent.run(), RunEnd::NotStarted);
    assert!(silent.now_ns < 10 * SECOND);
}

#[test]
fn a_stop_ends_all_agents_early_and_collects_their_records() {
    let mut simulation = Simulation::new(3, LossPolicy::Mark);
    simulation.stop_ns = Some(3 * SECOND);
    assert_eq!(simulation.run(), RunEnd::Records);
    assert_eq!(outcomes(&simulation), [COMPLETE; 3]);
    assert!(simulation.now_ns < 6 * SECOND && simulation.coordinator.is_stopped());
}

#[test]
fn a_restarted_agent_has_lost_its_run() {
    let mut simulation = Simulation::new(2, LossPolicy::Mark);
    simulation.restarted = Some((0, 4 * SECOND));
    assert_eq!(simulation.run(), RunEnd::Records);
    assert_eq!(outcomes(&simulation), [LOST, COMPLETE]);
    assert!(simulation.coordinator.results()[0].problems[0].contains("started again"));
}

#[test]
fn a_thousand_agents_cost_a_constant_number_of_messages_each() {
    let mut simulation = Simulation::new(1000, LossPolicy::Mark);
    assert_eq!(simulation.run(), RunEnd::Records);
    assert_eq!(outcomes(&simulation), [COMPLETE; 1000]);
    assert_eq!(simulation.seconds.last(), Some(&10_000));
    // About 40 fast round trips, 4 messages a second for 12 seconds, and the record.
    assert!(simulation.messages < 300 * 1000, "{}", simulation.messages);
}
