//! `weir fleet edge`: a search for the capacity whose trials are loads of a fleet.

use ::load::baseline::LOAD_NS_MIN;
use ::load::capacity_search::{DrivenLoad, SearchOptions, SearchQuantity, TrialDriver, TrialSetup};
use ::load::pace::Pace;
use ::load::plan::RunPlan;
use fleet::message::AgentFacts;
use fleet::transport::NatsOptions;
use record::capacity_search::LevelOutcome;
use record::problem::InputProblem;
use record::run::{Baseline, Run};
use record::units::{MILLISECOND_NS, format_plural};
use rt::drain::{Drain, DrainStage};
use rt::tokio::sync::watch;

use super::fleet_load::{FleetFlags, FleetLoad, find_agents, format_division};
use super::{Notices, connect, count_signals, job};
use crate::commands::command_identity;
use crate::commands::edge::{EdgeSearch, check_outputs, parse_flags};
use crate::exit::{Exit, Failure};
use crate::flags::{CommandArgs, edge_trial_arguments, nats_options, refused_edge_flags};

/// Expected duration of a trial besides its load: connections, the common start, and the records.
const OVERHEAD_NS: u64 = 1_500 * MILLISECOND_NS;
/// Start of a message about a server that accepts no connection, which is a result for its level.
const CANNOT_CONNECT: &str = "cannot connect to ";

pub(super) fn run(args: CommandArgs<'_>, arguments: &[String]) -> Result<Exit, Failure> {
    let (mut options, flags) = parse(args, args.values())?;
    check_outputs(args, &options)?;
    let trial_ns = options.settings.short_trial_ns.max(1);
    options.stretch = (trial_ns + OVERHEAD_NS) as f64 / trial_ns as f64;
    let drain = Drain::default();
    let stop = drain.watch();
    let signals = count_signals(move |_| drain.advance(DrainStage::Draining))?;
    let nats = nats_options(args, "weir fleet edge");
    let mut session = connect(&nats, Some(&signals))?;
    let agents = find_agents(&mut session, &flags.selection)?;
    let introduction = format_division(&agents);
    let driver = FleetDriver { args, quantity: options.quantity, nats, agents, signals };
    let identity = command_identity(arguments);
    let search =
        EdgeSearch { args, identity: &identity, options: &options, stop: &stop, descriptor_limit: None };
    search.run(driver, &introduction)
}

/// Parses all flags; reports every problem at once.
pub(super) fn parse(
    args: CommandArgs<'_>,
    urls: Vec<String>,
) -> Result<(SearchOptions, FleetFlags), Vec<InputProblem>> {
    let mut problems: Vec<InputProblem> =
        refused_edge_flags(args).into_iter().map(job::refused_flag).collect();
    problems.extend(job::file_values(args));
    let flags = FleetFlags::parse(args).map_err(|own| problems.extend(own));
    let options = parse_flags(args, urls).map_err(|others| problems.extend(others));
    match (options, flags) {
        (Ok(options), Ok(flags)) if problems.is_empty() => Ok((options, flags)),
        _ => Err(problems),
    }
}

/// Loads of a fleet. The agents are those of the start: one that is lost or starts again later gets no trial.
struct FleetDriver<'a> {
    args: CommandArgs<'a>,
    quantity: SearchQuantity,
    nats: NatsOptions,
    agents: Vec<AgentFacts>,
    /// Requests of the user to stop.
    signals: watch::Receiver<u32>,
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
        let searches_streams = self.quantity == SearchQuantity::Streams;
        let mut words = edge_trial_arguments(self.args, plan, searches_streams);
        words.extend(self.args.text("wait").map(|wait| format!("--wait={wait}")));
        if !with_baseline {
            words.push("--no-baseline".to_owned());
        }
        words.push("--".to_owned());
        words.extend(self.args.values());
        let load = FleetLoad::parse_trial(words)?;
        let divided = load.divide_among_some(&self.agents)?;
        // A connection has the subscriptions of one run.
        let mut session = connect(&self.nats, Some(&self.signals))?;
        let ended = divided.drive(&mut session, self.signals.clone(), &mut Notices)?;
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
                let outcome = if is_missed { LevelOutcome::Missed } else { LevelOutcome::NoVerdict };
                return Ok(DrivenLoad::Failed(outcome, reason));
            }
        };
        run.baseline.clone_from(&setup.baseline);
        run.diagnosis = Some(diagnose::diagnose(&run));
        Ok(DrivenLoad::Measured(run, None))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flags::build_command_line;

    fn problems(arguments: &[&str]) -> Vec<String> {
        let line = ["weir", "fleet", "edge"].into_iter().chain(arguments.iter().copied());
        let matches = build_command_line().try_get_matches_from(line).unwrap();
        let args = matches.subcommand().unwrap().1.subcommand().unwrap().1;
        let args = CommandArgs(args);
        let problems = parse(args, args.values()).err().unwrap_or_default();
        problems.into_iter().map(|problem| problem.location).collect()
    }

    #[test]
    fn flags_of_one_machine_are_refused_with_all_other_problems() {
        let url = "http://127.0.0.1:1/";
        assert_eq!(problems(&["--agents", "2", "--from", "10", url]), [""; 0]);
        let wrong = ["--direct", url, "--data", "@f", "--agents", "0", "--wait", "x", "--trial", "9m", url];
        let found = problems(&wrong);
        for location in ["--direct", "--data", "--agents", "--wait", "--trial"] {
            assert!(found.iter().any(|one| one == location), "{location}: {found:?}");
        }
        assert_eq!(
            problems(&["--cert", "f", "--key", "f", "https://127.0.0.1:1/"])[..2],
            ["--cert", "--key"]
        );
        assert!(!problems(&[]).is_empty(), "a URL is missing");
    }
}
