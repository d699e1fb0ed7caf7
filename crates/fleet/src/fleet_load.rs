//! A load of a fleet: parsed, divided among agents, driven and merged. `weir fleet load` and the trials of `weir fleet
//! edge` and `weir lab run` drive their loads with it.

use std::time::Duration;

use load::plan::{LoadFlags, RunPlan};
use load::report::reevaluate_objectives;
use load::validity::judge_merged;
use record::problem::InputProblem;
use record::units::{SECOND_NS, format_plural};
use record::validity::Validity;
use rt::tokio::sync::watch;
use runner::failure::Failure;
use runner::run_record::random_id;

use crate::coordinator::service::{CoordinatorSession, FleetObserver, FleetRecords};
use crate::coordinator::{FleetPlan, LossPolicy, MemberPlan, RunEnd};
use crate::message::{AgentCommand, AgentFacts, AgentRole, Job, RunId, encode};
use crate::result::{ClockPair, MemberRecord, MergedLoad, merge};
use crate::session::clocks;
use crate::split::{AgentSelection, Split, SplitBasis, split};
use crate::storage::StorePlan;
use crate::transport::TransportError;

/// Maximum time for the search of agents; it ends as soon as there are enough.
const SEARCH_TIME: Duration = Duration::from_secs(3);
/// The same if all agents are wanted: nobody knows how many there are.
pub const SEARCH_TIME_ALL: Duration = Duration::from_millis(1500);
/// Maximum time for the connections of all agents and their baselines.
const PREPARE_NS: u64 = 60 * SECOND_NS;
/// Number of agents that the description of a division names.
const AGENTS_NAMED: usize = 8;

/// Flags of `weir fleet load` itself.
#[derive(Clone, Debug)]
pub struct FleetFlags {
    pub selection: AgentSelection,
    pub on_loss: LossPolicy,
    pub wait_ns: u64,
    /// Storage of the run.
    pub store: Option<StorePlan>,
}

#[derive(Clone, Debug)]
pub struct FleetLoad {
    pub flags: FleetFlags,
    pub text: LoadFlags,
    pub plan: RunPlan,
    /// Arguments of `weir load` on an agent.
    pub arguments: Vec<String>,
}

impl FleetLoad {
    pub fn duration_ns(&self) -> u64 {
        self.plan.end.duration_ns.saturating_add(self.plan.drain_ns)
    }

    /// Divides the load among agents.
    ///
    /// # Errors
    /// The agents cannot share it.
    pub fn divide(&self, agents: &[AgentFacts]) -> Result<DividedLoad<'_>, Failure> {
        let division = split(agents);
        self.check_slices(&division)?;
        // Invariant: 32 hexadecimal digits are a name.
        let run = RunId::from_host(&random_id());
        let members = agents.iter().zip(&division.slices).map(|(facts, (slice, fraction))| MemberPlan {
            name: facts.name.clone(),
            instance: facts.instance.clone(),
            job: Job { role: AgentRole::Load, arguments: self.arguments.clone(), slice: Some(slice.clone()) },
            fraction: *fraction,
        });
        let members: Vec<MemberPlan> = members.collect();
        if let Some(member) = members.first() {
            let command = AgentCommand::Prepare { run: run.clone(), job: member.job.clone() };
            encode(&command).map_err(|error| Failure::cannot("the plan", error))?;
        }
        let plan = FleetPlan {
            run,
            members,
            on_loss: self.flags.on_loss,
            duration_ns: self.duration_ns(),
            prepare_ns: PREPARE_NS,
            collect_ns: self.flags.wait_ns,
        };
        Ok(DividedLoad { load: self, agents: agents.to_vec(), plan })
    }

    /// Divides the load among the first agents, as many as can share it: a load of few connections needs no more
    /// agents than it has connections.
    ///
    /// # Errors
    /// No number of agents can share it.
    pub fn divide_among_some(&self, agents: &[AgentFacts]) -> Result<DividedLoad<'_>, Failure> {
        let connections = usize::try_from(self.plan.connections).unwrap_or(usize::MAX);
        let max = agents.len().min(connections);
        let divided = (1..=max).rev().find_map(|count| self.divide(&agents[..count]).ok());
        divided.ok_or_else(|| Failure::CannotRun("the agents cannot share this load".to_owned()))
    }

    fn check_slices(&self, division: &Split) -> Result<(), Failure> {
        for (slice, _) in &division.slices {
            let sliced = LoadFlags { slice: Some(slice.clone()), ..self.text.clone() };
            if RunPlan::parse(&sliced, 1)
                .is_err_and(|problems| problems.iter().any(|problem| problem.location == "--slice"))
            {
                let text = format!(
                    "{} cannot share this load: an agent would have no connection or no request; use fewer agents, \
                     or more connections (-c)",
                    format_plural(division.slices.len() as u64, "agent")
                );
                return Err(vec![InputProblem::new("--agents", text)].into());
            }
        }
        Ok(())
    }
}

/// Finds the agents of a load.
///
/// # Errors
/// There are not enough agents.
pub fn find_agents(
    session: &mut CoordinatorSession,
    selection: &AgentSelection,
) -> Result<Vec<AgentFacts>, Failure> {
    let wait = if matches!(selection, AgentSelection::Count(_)) { SEARCH_TIME } else { SEARCH_TIME_ALL };
    let is_enough = |known: &[AgentFacts]| {
        matches!(selection, AgentSelection::Count(_)) && selection.select(AgentRole::Load, known).is_ok()
    };
    let known = session.find_agents(wait, &is_enough);
    let known: Vec<AgentFacts> = known.into_iter().map(|agent| agent.facts).collect();
    selection.select(AgentRole::Load, &known).map_err(Failure::cannot_run)
}

pub fn format_division(agents: &[AgentFacts]) -> String {
    let Split { basis, slices } = split(agents);
    let basis = match basis {
        SplitBasis::Capacity => "by calibrated capacity",
        SplitBasis::Cpus => "by CPUs (an agent is not calibrated)",
    };
    let parts: Vec<String> = agents
        .iter()
        .zip(&slices)
        .take(AGENTS_NAMED)
        .map(|(facts, (_, fraction))| format!("{} {:.0} %", facts.name, fraction * 100.0))
        .collect();
    let others = if agents.len() > AGENTS_NAMED { ", …" } else { "" };
    let count = format_plural(agents.len() as u64, "agent");
    format!("fleet        {count}, load divided {basis}: {}{others}\n", parts.join(", "))
}

#[derive(Clone, Debug)]
pub struct DividedLoad<'a> {
    load: &'a FleetLoad,
    agents: Vec<AgentFacts>,
    plan: FleetPlan,
}

impl<'a> DividedLoad<'a> {
    /// Drives the load to its end. `stops` counts the user's requests to end it.
    ///
    /// # Errors
    /// The server is lost.
    pub fn drive(
        self,
        session: &mut CoordinatorSession,
        stops: watch::Receiver<u32>,
        observer: &mut dyn FleetObserver,
    ) -> Result<EndedLoad<'a>, Failure> {
        let run = self.plan.run.clone();
        let records = session.run(self.plan, stops, observer).map_err(cannot)?;
        Ok(EndedLoad { load: self.load, agents: self.agents, run, records })
    }
}

fn cannot(error: TransportError) -> Failure {
    Failure::cannot_run(error)
}

/// Load that has ended, with the records of its agents.
#[derive(Clone, Debug)]
pub struct EndedLoad<'a> {
    load: &'a FleetLoad,
    agents: Vec<AgentFacts>,
    pub run: RunId,
    pub records: FleetRecords,
}

impl EndedLoad<'_> {
    /// Returns the reason why there is no record, with the problems of the agents.
    pub fn problem(&self) -> Option<String> {
        let reason = match self.records.end {
            RunEnd::Records => return None,
            RunEnd::NotStarted if self.records.is_stopped => {
                return Some("stopped before the start".to_owned());
            }
            RunEnd::NotStarted => "the load was not started",
            RunEnd::NoRecord => "no record arrived",
        };
        let results = self.records.results.iter();
        let problems = results.flat_map(|result| {
            result.problems.iter().map(|problem| format!("agent {}: {problem}", result.name))
        });
        Some(format!("{reason}: {}", problems.collect::<Vec<_>>().join("; ")))
    }

    /// Returns the start of the first agent by the own clock, in ns.
    pub fn start_ns(&self) -> u64 {
        self.records.results.iter().filter_map(|result| result.start_ns).min().unwrap_or(0)
    }

    /// Merges the records; fails with the problem if there is none.
    ///
    /// # Errors
    /// There is no record, or the records do not belong together.
    pub fn merge(self) -> Result<MergedLoad, Failure> {
        if let Some(problem) = self.problem() {
            return Err(Failure::CannotRun(problem));
        }
        let (monotonic_ns, wall_ns) = clocks();
        let FleetRecords { results, records, is_stopped, .. } = self.records;
        let mut members = Vec::new();
        for (mut result, facts) in results.into_iter().zip(&self.agents) {
            let record = records.get(&result.name).map(|bytes| record::file::parse_run(bytes));
            let record = record.transpose().unwrap_or_else(|error| {
                result.problems.push(format!("its record cannot be read: {error}"));
                None
            });
            members.push(MemberRecord { result, run: record, clock_synchronized: facts.clock_synchronized });
        }
        let plan = serde_json::to_value(&self.load.plan).unwrap_or_default();
        let mut merged = merge(&self.run, members, plan, ClockPair { monotonic_ns, wall_ns })
            .map_err(|error| Failure::cannot("cannot merge the records", error))?;
        if let Some(fleet) = &mut merged.fleet {
            fleet.merge_ns = clocks().0.saturating_sub(monotonic_ns);
        }
        merged.plan["threads"] = merged.generator.threads.into();
        merged.command = std::env::args().collect();
        merged.partial |= is_stopped;
        merged.objectives = reevaluate_objectives(&merged)
            .map_err(|error| Failure::cannot("cannot evaluate the objectives", error))?;
        let agents = merged.fleet.iter().flat_map(|fleet| &fleet.agents);
        let parts: Vec<Validity> =
            agents.filter_map(|agent| Some(agent.figures.as_ref()?.validity.clone())).collect();
        judge_merged(&mut merged, &parts.iter().collect::<Vec<_>>());
        merged.answer = Some(diagnose::answer(&merged));
        Ok(MergedLoad { id: self.run, run: merged, records })
    }
}
