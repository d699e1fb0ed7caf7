//! Trials of an experiment on machines of a fleet: the programs of `weir fleet run` around the loads of `weir fleet
//! load`.

use experiment::scenario::machines::{MachineProgram, MachineSetup};
use experiment::trial::{FleetTrial, FleetTrials, TrialError};
use fleet::coordinator::service::FleetObserver;
use fleet::message::{AgentFacts, AgentRole};
use fleet::plan_file::MachinePlan;
use fleet::split::{AgentSelection, split};
use fleet::transport::{NatsOptions, TransportError};
use record::run::{Interval, Run};
use record::units::SECOND_NS;
use rt::drain::{DrainStage, DrainWatch};
use rt::tokio::sync::watch;

use super::load::{self, LoadSurroundings as _};
use super::role::RolePlan;
use super::run::{Machines, job_arguments};
use super::{connect, notice};
use crate::exit::Failure;
use crate::flags::{CommandArgs, command_line_with_help};

/// Interval at which a request to stop is passed on.
const STOP_POLL_INTERVAL: std::time::Duration = std::time::Duration::from_millis(50);

/// Fleet that runs the trials of an experiment.
pub(in crate::commands) struct FleetRunner<'a> {
    nats: NatsOptions,
    stop: &'a DrainWatch,
}

impl<'a> FleetRunner<'a> {
    pub(in crate::commands) fn new(nats: NatsOptions, stop: &'a DrainWatch) -> Self {
        Self { nats, stop }
    }

    fn is_stopped(&self) -> bool {
        self.stop.stage() > DrainStage::Running
    }

    /// Runs a trial; `stops` counts the requests to stop it.
    fn run_trial(&self, trial: &FleetTrial, stops: &watch::Receiver<u32>) -> Result<Run, TrialError> {
        let load = FleetLoad::parse(&trial.agents, &trial.load).map_err(as_load)?;
        let warm_up = trial.warm_up.as_ref().map(|words| FleetLoad::parse(&trial.agents, words));
        let warm_up = warm_up.transpose().map_err(as_load)?;
        let loads_ns =
            [Some(&load), warm_up.as_ref()].into_iter().flatten().map(FleetLoad::duration_ns).sum();
        let machines = trial.machines.iter().map(machine_plan).collect::<Result<Vec<_>, String>>();
        let mut machines = Machines::new(machines.map_err(TrialError::Program)?, self.nats.clone());
        machines.start(loads_ns).map_err(|failure| TrialError::Program(text_of(&failure)))?;
        if let Some(warm_up) = warm_up {
            // A failure shows again when the load itself runs, where it is reported better.
            let _ = warm_up.drive(&self.nats, stops);
        }
        if self.is_stopped() {
            return Err(TrialError::Stopped);
        }
        let (mut run, start_ns) = load.drive(&self.nats, stops).map_err(as_load)?;
        machines.finish(&mut run, start_ns).map_err(|failure| TrialError::Program(text_of(&failure)))?;
        if self.is_stopped() { Err(TrialError::Stopped) } else { Ok(run) }
    }
}

impl FleetTrials for FleetRunner<'_> {
    fn run(&self, trial: &FleetTrial) -> Result<Run, TrialError> {
        let (sender, stops) = watch::channel(0);
        std::thread::scope(|scope| {
            let (ended, end) = std::sync::mpsc::channel::<()>();
            scope.spawn(move || {
                use std::sync::mpsc::RecvTimeoutError;
                while end.recv_timeout(STOP_POLL_INTERVAL) == Err(RecvTimeoutError::Timeout) {
                    let wanted = match self.stop.stage() {
                        DrainStage::Running => 0,
                        DrainStage::Draining => 1,
                        DrainStage::Abort => 3,
                    };
                    sender.send_if_modified(|stops| std::mem::replace(stops, wanted) != wanted);
                }
            });
            let result = self.run_trial(trial, &stops);
            // Ends the thread above.
            drop(ended);
            match result {
                Err(_) if self.is_stopped() => Err(TrialError::Stopped),
                result => result,
            }
        })
    }
}

/// Load of a trial.
struct FleetLoad {
    flags: load::FleetFlags,
    text: ::load::plan::LoadFlags,
    plan: ::load::plan::RunPlan,
    arguments: Vec<String>,
}

impl FleetLoad {
    /// Parses the arguments of `weir load`, as `weir fleet load` does.
    fn parse(agents: &str, words: &[String]) -> Result<Self, Failure> {
        let line = ["weir", "fleet", "load"].map(str::to_owned).into_iter();
        let line = line.chain([format!("--agents={agents}")]).chain(words.iter().cloned());
        let matches = command_line_with_help().try_get_matches_from(line).map_err(|error| {
            let text = error.to_string();
            let reason = text.lines().next().unwrap_or("unknown arguments");
            Failure::CannotRun(reason.trim_start_matches("error: ").to_owned())
        })?;
        let command = matches.subcommand().and_then(|(_, fleet)| fleet.subcommand());
        let Some((_, args)) = command else { return Err(Failure::CannotRun("no load".to_owned())) };
        let (flags, text, plan, arguments) = load::parse(CommandArgs(args))?;
        Ok(Self { flags, text, plan, arguments })
    }

    fn duration_ns(&self) -> u64 {
        self.plan.end.duration_ns.saturating_add(self.plan.drain_ns)
    }

    /// Drives the load. Returns its record, and its start by the own clock, in ns.
    fn drive(&self, nats: &NatsOptions, stops: &watch::Receiver<u32>) -> Result<(Run, u64), Failure> {
        let cannot = |error: TransportError| Failure::CannotRun(error.to_string());
        let mut session = connect(nats, Some(stops))?;
        let agents: Vec<AgentFacts> = load::find_agents(&mut session, &self.flags.selection)?;
        let division = split(&agents);
        load::check_slices(&self.text, &division)?;
        let plan = load::fleet_plan(&self.flags, &self.plan, &agents, &division, &self.arguments)?;
        let run = plan.run.clone();
        let records = session.run(plan, stops.clone(), &mut Notices).map_err(cannot)?;
        load::check_start(&records)?;
        let start_ns = records.results.iter().filter_map(|result| result.start_ns).min().unwrap_or(0);
        let (merged, _) = load::merge_records(&run, records, &agents, &self.plan, None)?;
        Ok((merged, start_ns))
    }
}

fn as_load(failure: Failure) -> TrialError {
    TrialError::Load(text_of(&failure))
}

fn text_of(failure: &Failure) -> String {
    failure.lines().join("; ")
}

/// Returns the plan of a machine, in the form of `weir fleet run`.
fn machine_plan(machine: &MachineSetup) -> Result<MachinePlan, String> {
    Ok(MachinePlan {
        name: machine.name.clone(),
        position: "the experiment".to_owned(),
        agent: AgentSelection::parse(&machine.agent)?,
        role: machine.role.clone(),
        allows: match machine.program {
            MachineProgram::Serve => AgentRole::Serve,
            MachineProgram::Proxy => AgentRole::Proxy,
            MachineProgram::Observe => AgentRole::Observe,
        },
        arguments: machine.arguments.clone(),
    })
}

/// Returns the problems of a machine in the file of an experiment, each with its key, as its agent would report them.
pub(in crate::commands) fn machine_problems(machine: &MachineSetup) -> Vec<(&'static str, String)> {
    let plan = match machine_plan(machine) {
        Ok(plan) => plan,
        Err(why) => return vec![("agent", why)],
    };
    let checked = RolePlan::parse_job(plan.allows, &job_arguments(&plan, SECOND_NS));
    let problems = checked.err().unwrap_or_default().into_iter();
    let key = |location: &str| if location == "--as" { "role" } else { machine.program.key() };
    problems.map(|problem| (key(&problem.location), problem.to_string())).collect()
}

/// Returns the problems of the load of an experiment over a fleet, each with its key.
pub(in crate::commands) fn fleet_load_problems(
    agents: &str,
    words: &[String],
) -> Vec<(&'static str, String)> {
    let Err(failure) = FleetLoad::parse(agents, words) else { return Vec::new() };
    match failure {
        Failure::Usage(problems) => {
            let key = |location: &str| if location == "--agents" { "agents" } else { "flags" };
            problems.into_iter().map(|problem| (key(&problem.location), problem.to_string())).collect()
        }
        other => vec![("flags", text_of(&other))],
    }
}

/// Reports changes, and no seconds.
struct Notices;

impl FleetObserver for Notices {
    fn on_second(&mut self, _: &Interval) {}

    fn on_notice(&mut self, text: &str) {
        notice(text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(agent: &str, program: MachineProgram, arguments: &[&str]) -> MachineSetup {
        MachineSetup {
            name: "edge".to_owned(),
            agent: agent.to_owned(),
            role: "subject".to_owned(),
            program,
            arguments: arguments.iter().map(|text| (*text).to_owned()).collect(),
        }
    }

    #[test]
    fn problems_of_a_machine_and_of_a_load_have_their_keys() {
        let keys = |problems: Vec<(&'static str, String)>| -> Vec<&str> {
            problems.into_iter().map(|(key, _)| key).collect()
        };
        let right = machine("name=e", MachineProgram::Proxy, &["--to", "127.0.0.1:1", "-t", "1"]);
        assert_eq!(keys(machine_problems(&right)), [""; 0]);
        let files = machine("name=e", MachineProgram::Proxy, &["--config=/etc/x", "--to", "unix:/x"]);
        assert_eq!(keys(machine_problems(&files)).first(), Some(&"proxy"));
        assert_eq!(
            keys(machine_problems(&machine("nobody", MachineProgram::Serve, &["-t", "1"]))),
            ["agent"]
        );
        let role = MachineSetup { role: "a b".to_owned(), ..right };
        assert_eq!(keys(machine_problems(&role)), ["role"]);
        let load = |agents: &str, line: &str| {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            keys(fleet_load_problems(agents, &words))
        };
        assert_eq!(load("2", "-c 8 -d 1s http://127.0.0.1:1/"), [""; 0]);
        let wrong = load("0", "-c x -d 1s --hdr f http://127.0.0.1:1/");
        assert!(wrong.contains(&"agents") && wrong.contains(&"flags") && wrong.len() == 3, "{wrong:?}");
        assert_eq!(load("2", "--bogus http://127.0.0.1:1/"), ["flags"]);
    }
}
