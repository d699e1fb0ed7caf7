//! Rows of a run that several agents generated together: one for each agent, with its part of the load,
//! its clock and its own verdict.

use serde::{Deserialize, Serialize};

use crate::facts::HostFacts;
use crate::units::format_duration_ns;
use crate::validity::{Validity, ValidityLevel, ValidityReason};

/// File of the merged record in the directory of a stored run; the records of the agents are in `agents`.
pub const MERGED_FILE: &str = "merged.json";

/// Fleet of a merged run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Fleet {
    pub run: String,
    /// Agents, in the order of their parts of the load.
    pub agents: Vec<AgentRow>,
    /// Largest difference between the starts of two agents, by the coordinator's clock, in ns.
    pub start_skew_ns: u64,
    /// Maximum error of that difference: the uncertainty of the two clock offsets.
    pub start_skew_error_ns: u64,
    /// Time that the coordinator needed to read and to merge the records, in ns; 0 in older records.
    #[serde(default)]
    pub merge_ns: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AgentRow {
    pub name: String,
    /// End of the agent's part.
    pub outcome: AgentOutcome,
    /// Description of a problem; empty without one.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub problem: String,
    /// Part of the load, as a fraction of 1.
    pub load_fraction: f64,
    pub clock: AgentClock,
    /// Start of its load after the first start of all agents, in ns; absent if it never started.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub start_after_ns: Option<u64>,
    /// Figures of its record; absent without a record.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub figures: Option<AgentFigures>,
}

/// End of an agent's part of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AgentOutcome {
    /// Its record is part of the sum.
    Complete,
    /// It disappeared during the run, and its record arrived later: the record is part of the sum.
    Returned,
    /// It has no record: its requests are not part of the sum.
    Lost,
}

/// Clock of an agent against that of the coordinator.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AgentClock {
    /// Maximum error of the measured offset: half of the shortest round trip, in ns.
    pub error_ns: u64,
    /// Wall clock of the agent minus that of the coordinator, in ns. No figure depends on it.
    pub wall_offset_ns: i64,
    pub round_trips: u64,
    /// True if the kernel reports that the wall clock is synchronized (NTP); absent if unknown.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub synchronized: Option<bool>,
}

/// Figures of an agent's own record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AgentFigures {
    pub host: HostFacts,
    /// Requests, responses and failed requests.
    pub requests: u64,
    pub responses: u64,
    pub failed: u64,
    pub responses_per_s: f64,
    /// Median of the response latency, in ns.
    pub p50_ns: u64,
    /// 99th percentile of it.
    pub p99_ns: u64,
    /// Fraction of a core that the busiest generator thread used.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub busiest_thread_fraction: Option<f64>,
    /// Validity of the agent's own result.
    pub validity: Validity,
}

/// Maximum difference between the starts of a synchronous start.
pub const START_SKEW_NS_MAX: u64 = 5_000_000;

/// Code of a result without the record of an agent, or with an agent that disappeared for a time.
pub const AGENT_LOST: &str = "agent_lost";
/// Code of a start that was not synchronous.
pub const START_SKEW: &str = "start_skew";
/// Code of clock offsets that are too uncertain to prove a synchronous start.
pub const CLOCK_UNCERTAIN: &str = "clock_uncertain";
/// Code of a run whose record lacks the observation of a machine under the load.
pub const MACHINE_LOST: &str = "machine_lost";
/// Code of the rule of a load whose generator was the limit.
const CLIENT_BOUND: &str = "client_bound";

/// Codes of a fleet with their rules, for the reference.
pub const FLEET_RULES: &[(&str, &str)] = &[
    (
        AGENT_LOST,
        "Fleet: an agent has no record, so that its requests are missing in the sum (invalid); or it \
         disappeared for a time, and its record arrived later (suspect).",
    ),
    (START_SKEW, "Fleet: agents started more than 5 ms apart, by the clock of the coordinator."),
    (
        CLOCK_UNCERTAIN,
        "Fleet: the round trips to the agents were too long to prove that they started within 5 ms.",
    ),
    (
        MACHINE_LOST,
        "Fleet: the observation of a machine under the load did not arrive, so that the diagnosis lacks it \
         (suspect).",
    ),
];

impl Fleet {
    /// Returns the objections to a result of this fleet.
    pub fn reasons(&self) -> Vec<ValidityReason> {
        let mut reasons = Vec::new();
        let mut add = |code: &str, verdict, text: String| {
            reasons.push(ValidityReason { code: code.to_owned(), verdict, text });
        };
        for agent in &self.agents {
            let fraction = agent.load_fraction * 100.0;
            let verdict = match agent.outcome {
                AgentOutcome::Complete => continue,
                AgentOutcome::Returned => ValidityLevel::Suspect,
                AgentOutcome::Lost => ValidityLevel::Invalid,
            };
            let effect = match agent.outcome {
                AgentOutcome::Lost => "its requests are missing in the sum",
                _ => "its record is part of the sum",
            };
            let text =
                format!("agent {} ({fraction:.0} % of the load): {}; {effect}", agent.name, agent.problem);
            add(AGENT_LOST, verdict, text);
        }
        let (skew, error) = (self.start_skew_ns, self.start_skew_error_ns);
        let (skew_text, error_text) = (format_duration_ns(skew), format_duration_ns(error));
        if skew.saturating_sub(error) > START_SKEW_NS_MAX {
            add(
                START_SKEW,
                ValidityLevel::Suspect,
                format!("the agents started {skew_text} apart (± {error_text})"),
            );
        } else if skew + error > START_SKEW_NS_MAX {
            let text = format!(
                "the agents may have started more than 5 ms apart: {skew_text} were measured, ± {error_text}"
            );
            add(CLOCK_UNCERTAIN, ValidityLevel::Suspect, text);
        }
        reasons
    }

    /// Returns the verdict of the sum from the verdicts of the agents and the objections to the fleet. A
    /// generator that was the limit makes the sum suspect if others were not.
    pub fn validity(&self, overlap: Option<ValidityReason>) -> Validity {
        let mut reasons = self.reasons();
        reasons.extend(overlap);
        let agent_figures =
            || self.agents.iter().filter_map(|agent| Some((&agent.name, agent.figures.as_ref()?)));
        let is_bound = |figures: &AgentFigures| {
            let mut reasons = figures.validity.reasons.iter();
            reasons.any(|reason| reason.code == CLIENT_BOUND && reason.verdict == ValidityLevel::Invalid)
        };
        let all_are_bound = agent_figures().all(|(_, figures)| is_bound(figures));
        for (name, figures) in agent_figures() {
            for reason in &figures.validity.reasons {
                let softened = reason.code == CLIENT_BOUND && !all_are_bound;
                let verdict = if softened { ValidityLevel::Suspect } else { reason.verdict };
                let text = format!("agent {name}: {}", reason.text);
                reasons.push(ValidityReason { verdict, text, code: reason.code.clone() });
            }
        }
        Validity::from_reasons(reasons)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agent(name: &str, outcome: AgentOutcome) -> AgentRow {
        AgentRow {
            name: name.to_owned(),
            outcome,
            problem: "no heartbeat for 5 s".to_owned(),
            load_fraction: 0.5,
            clock: AgentClock::default(),
            start_after_ns: None,
            figures: None,
        }
    }

    fn codes(fleet: &Fleet) -> Vec<(String, ValidityLevel)> {
        fleet.reasons().into_iter().map(|reason| (reason.code, reason.verdict)).collect()
    }

    #[test]
    fn a_lost_agent_makes_the_sum_invalid_and_a_returned_one_suspect() {
        let agents = vec![
            agent("a", AgentOutcome::Complete),
            agent("b", AgentOutcome::Returned),
            agent("c", AgentOutcome::Lost),
        ];
        let fleet = Fleet { agents, ..Fleet::default() };
        let lost = |verdict| (AGENT_LOST.to_owned(), verdict);
        assert_eq!(codes(&fleet), [lost(ValidityLevel::Suspect), lost(ValidityLevel::Invalid)]);
    }

    #[test]
    fn a_start_is_synchronous_within_5_ms_with_its_error() {
        let fleet = |skew: u64, error: u64| Fleet {
            start_skew_ns: skew * 1_000_000,
            start_skew_error_ns: error * 1_000_000,
            ..Fleet::default()
        };
        assert_eq!(codes(&fleet(4, 1)), []);
        assert_eq!(codes(&fleet(4, 2))[0].0, CLOCK_UNCERTAIN);
        assert_eq!(codes(&fleet(8, 2))[0].0, START_SKEW);
    }

    #[test]
    fn one_generator_at_its_limit_makes_the_sum_suspect_and_all_of_them_invalid() {
        let figures = |codes: &[&str]| {
            let reasons = codes.iter().map(|code| ValidityReason {
                code: (*code).to_owned(),
                verdict: ValidityLevel::Invalid,
                text: String::new(),
            });
            Some(AgentFigures {
                host: HostFacts::default(),
                requests: 1,
                responses: 1,
                failed: 0,
                responses_per_s: 1.0,
                p50_ns: 1,
                p99_ns: 1,
                busiest_thread_fraction: None,
                validity: Validity::from_reasons(reasons.collect()),
            })
        };
        let verdict = |each: [&[&str]; 2]| {
            let agents =
                each.map(|codes| AgentRow { figures: figures(codes), ..agent("a", AgentOutcome::Complete) });
            Fleet { agents: agents.to_vec(), ..Fleet::default() }.validity(None).verdict
        };
        assert_eq!(verdict([&[], &[]]), ValidityLevel::Valid);
        assert_eq!(verdict([&[], &[CLIENT_BOUND]]), ValidityLevel::Suspect);
        assert_eq!(verdict([&[CLIENT_BOUND], &[CLIENT_BOUND]]), ValidityLevel::Invalid);
        assert_eq!(verdict([&[], &["errors"]]), ValidityLevel::Invalid);
    }
}
