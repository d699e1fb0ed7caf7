//! Driver of the trials of a search for the capacity whose loads are of a fleet.

use load::baseline::LOAD_NS_MIN;
use load::capacity_search::{DrivenLoad, TrialDriver, TrialSetup};
use load::pace::Pace;
use load::plan::RunPlan;
use load::validity::judge_verdict;
use record::capacity_search::LevelOutcome;
use record::problem::InputProblem;
use record::run::{Baseline, Run};
use record::units::format_plural;
use rt::tokio::sync::watch;
use runner::failure::Failure;

use crate::fleet_load::FleetLoad;
use crate::message::AgentFacts;
use crate::session::{Notices, connect};
use crate::transport::NatsOptions;

/// Start of a message about a server that accepts no connection, which is a result for its level.
const CANNOT_CONNECT: &str = "cannot connect to ";

/// Makes the load of a trial with the settings of a plan, with a baseline or without.
pub type MakeTrialLoad<'a> = Box<dyn Fn(&RunPlan, bool) -> Result<FleetLoad, Vec<InputProblem>> + 'a>;

/// Loads of a fleet. The agents are those of the start: one that is lost or starts again later gets no trial.
pub struct FleetDriver<'a> {
    pub trial_load: MakeTrialLoad<'a>,
    pub nats: NatsOptions,
    pub agents: Vec<AgentFacts>,
    pub notice: fn(&str),
    /// Requests of the user to stop.
    pub signals: watch::Receiver<u32>,
}

/// End of a load of a trial.
enum FleetTrial {
    Measured(Box<Run>),
    /// No record, for this reason.
    Failed(String),
}

impl FleetDriver<'_> {
    /// Drives a load with the plan's settings; the agents measure a baseline before it on request.
    fn load(&self, plan: &RunPlan, with_baseline: bool) -> Result<FleetTrial, Failure> {
        let load = (self.trial_load)(plan, with_baseline)?;
        let divided = load.divide_among_some(&self.agents)?;
        // A connection has the subscriptions of one run.
        let mut session = connect(&self.nats, Some(&self.signals), self.notice)?;
        let ended = divided.drive(&mut session, self.signals.clone(), &mut Notices(self.notice))?;
        Ok(match ended.problem() {
            Some(problem) => FleetTrial::Failed(problem),
            None => FleetTrial::Measured(Box::new(ended.merge()?.run)),
        })
    }
}

impl TrialDriver for FleetDriver<'_> {
    type Error = Failure;

    fn has_observer(&self) -> bool {
        // An agent drives one load at a time.
        false
    }

    fn notes(&self) -> Vec<String> {
        let names: Vec<String> = self.agents.iter().map(|facts| facts.name.to_string()).collect();
        let count = format_plural(names.len() as u64, "agent");
        vec![format!("load from {count} ({}), without an observer beside the ladder", names.join(", "))]
    }

    fn baseline(&mut self, plan: &RunPlan) -> Option<Baseline> {
        // Agents measure a baseline only before a load of this length.
        let mut plan = plan.clone();
        plan.end.duration_ns = plan.end.duration_ns.max(LOAD_NS_MIN);
        match self.load(&plan, true) {
            Ok(FleetTrial::Measured(run)) => run.baseline,
            // The first trial reports the problem.
            _ => None,
        }
    }

    fn drive(&mut self, plan: RunPlan, setup: &TrialSetup, is_first: bool) -> Result<DrivenLoad, Failure> {
        let mut run = match self.load(&plan, false)? {
            FleetTrial::Measured(run) => run,
            FleetTrial::Failed(reason) if is_first => return Err(Failure::CannotRun(reason)),
            FleetTrial::Failed(reason) => {
                let is_missed = reason.contains(CANNOT_CONNECT) && matches!(plan.pace, Pace::Open { .. });
                let outcome = if is_missed { LevelOutcome::Missed } else { LevelOutcome::Undecided };
                return Ok(DrivenLoad::Failed(outcome, reason));
            }
        };
        run.baseline.clone_from(&setup.baseline);
        run.diagnosis = Some(diagnose::diagnose(&run));
        judge_verdict(&mut run);
        run.answer = Some(diagnose::answer(&run));
        Ok(DrivenLoad::Measured(run, None))
    }
}
