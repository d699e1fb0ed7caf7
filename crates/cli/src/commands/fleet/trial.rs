//! Trials of an experiment on machines of a fleet: the programs of `weir fleet run` around the loads of `weir fleet
//! load`.

use std::collections::BTreeMap;

use experiment::scenario::machines::{MachineProgram, MachineSetup};
use experiment::trial::{FleetTrial, FleetTrials, TrialError};
use fleet::fleet_load::{EndedLoad, FleetLoad, find_agents};
use fleet::machines::{LoadSurroundings as _, Machines, job_arguments};
use fleet::message::AgentRole;
use fleet::plan_file::MachinePlan;
use fleet::session::Notices;
use fleet::split::AgentSelection;
use fleet::transport::NatsOptions;
use record::problem::{InputProblem, InvalidValue};
use record::run::Run;
use record::units::SECOND_NS;
use rt::drain::{DrainStage, DrainWatch};
use rt::tokio::sync::watch;

use super::agent_facts::ExperimentAgents;
use super::connect;
use super::load_options::parse_trial_load;
use super::role::parse_role_job;
use crate::exit::Failure;
use crate::streams::notice;

/// Interval at which a request to stop is passed on.
const STOP_POLL_INTERVAL: std::time::Duration = std::time::Duration::from_millis(50);

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

    pub(in crate::commands) fn read_agents(
        &self,
        agents: &ExperimentAgents,
    ) -> Result<BTreeMap<String, String>, Failure> {
        // An experiment of this machine is stopped by its own loop, which keeps a partial result.
        if agents.is_empty() {
            return Ok(BTreeMap::new());
        }
        if self.is_stopped() {
            return Err(Failure::CannotRun("stopped before the agents were asked".to_owned()));
        }
        with_stops(self.stop, |stops| agents.read(&self.nats, stops))
    }

    /// Runs a trial; `stops` counts the requests to stop it.
    fn run_trial(&self, trial: &FleetTrial, stops: &watch::Receiver<u32>) -> Result<Run, TrialError> {
        let parse = |words: &[String]| parse_load(&trial.agents, words).map_err(|all| as_load(all.into()));
        let load = parse(&trial.load)?;
        let warm_up = trial.warm_up.as_deref().map(parse).transpose()?;
        let loads_ns =
            [Some(&load), warm_up.as_ref()].into_iter().flatten().map(FleetLoad::duration_ns).sum();
        let machines = trial.machines.iter().map(machine_plan).collect::<Result<Vec<_>, _>>();
        let mut machines = Machines::new(
            machines.map_err(|why| TrialError::Program(why.to_string()))?,
            self.nats.clone(),
            notice,
        );
        machines.follow(stops);
        machines.start(loads_ns).map_err(|failure| TrialError::Program(text_of(&failure)))?;
        if let Some(warm_up) = warm_up {
            // A failure shows again when the load itself runs, where it is reported better.
            let _ = self.drive(&warm_up, stops);
        }
        if self.is_stopped() {
            return Err(TrialError::Stopped);
        }
        let ended = self.drive(&load, stops).map_err(as_load)?;
        let start_ns = ended.start_ns();
        let mut run = ended.merge().map_err(as_load)?.run;
        machines.finish(&mut run, start_ns);
        if self.is_stopped() { Err(TrialError::Stopped) } else { Ok(run) }
    }

    /// Drives a load on the agents that are there now.
    fn drive<'l>(&self, load: &'l FleetLoad, stops: &watch::Receiver<u32>) -> Result<EndedLoad<'l>, Failure> {
        let mut session = connect(&self.nats, Some(stops))?;
        let agents = find_agents(&mut session, &load.flags.selection)?;
        load.divide(&agents)?.drive(&mut session, stops.clone(), &mut Notices(notice))
    }
}

impl FleetTrials for FleetRunner<'_> {
    fn run(&self, trial: &FleetTrial) -> Result<Run, TrialError> {
        match with_stops(self.stop, |stops| self.run_trial(trial, stops)) {
            Err(_) if self.is_stopped() => Err(TrialError::Stopped),
            result => result,
        }
    }
}

/// Calls `work` with the number of the requests to stop.
fn with_stops<T>(stop: &DrainWatch, work: impl FnOnce(&watch::Receiver<u32>) -> T) -> T {
    let (sender, stops) = watch::channel(0);
    std::thread::scope(|scope| {
        let (ended, end) = std::sync::mpsc::channel::<()>();
        scope.spawn(move || {
            use std::sync::mpsc::RecvTimeoutError;
            while end.recv_timeout(STOP_POLL_INTERVAL) == Err(RecvTimeoutError::Timeout) {
                let wanted = match stop.stage() {
                    DrainStage::Running => 0,
                    DrainStage::Draining => 1,
                    DrainStage::Abort => 3,
                };
                sender.send_if_modified(|stops| std::mem::replace(stops, wanted) != wanted);
            }
        });
        let result = work(&stops);
        // Ends the thread above.
        drop(ended);
        result
    })
}

fn parse_load(agents: &str, words: &[String]) -> Result<FleetLoad, Vec<InputProblem>> {
    parse_trial_load([format!("--agents={agents}")].into_iter().chain(words.iter().cloned()))
}

fn as_load(failure: Failure) -> TrialError {
    TrialError::Load(text_of(&failure))
}

fn text_of(failure: &Failure) -> String {
    failure.lines().join("; ")
}

/// Returns the plan of a machine, in the form of `weir fleet run`.
fn machine_plan(machine: &MachineSetup) -> Result<MachinePlan, InvalidValue> {
    Ok(MachinePlan {
        name: machine.name.clone(),
        position: "the experiment".to_owned(),
        agent: AgentSelection::parse(&machine.agent)?,
        role: machine.role.clone(),
        allows: role_of(machine.program),
        arguments: machine.arguments.clone(),
    })
}

/// Returns the role that an agent must allow for a program.
pub(super) fn role_of(program: MachineProgram) -> AgentRole {
    match program {
        MachineProgram::Serve => AgentRole::Serve,
        MachineProgram::Proxy => AgentRole::Proxy,
        MachineProgram::Observe => AgentRole::Observe,
    }
}

/// Returns the problems of a machine in the file of an experiment, each with its key, as its agent would report them.
pub(in crate::commands) fn machine_problems(machine: &MachineSetup) -> Vec<(&'static str, String)> {
    let plan = match machine_plan(machine) {
        Ok(plan) => plan,
        Err(why) => return vec![("agent", why.to_string())],
    };
    let checked = parse_role_job(plan.allows, &job_arguments(&plan, SECOND_NS));
    let problems = checked.err().unwrap_or_default().into_iter();
    let key = |location: &str| if location == "--as" { "role" } else { machine.program.key() };
    problems.map(|problem| (key(&problem.location), problem.to_string())).collect()
}

/// Returns the problems of the load of an experiment over a fleet, each with its key.
pub(in crate::commands) fn fleet_load_problems(
    agents: &str,
    words: &[String],
) -> Vec<(&'static str, String)> {
    let problems = parse_load(agents, words).err().unwrap_or_default().into_iter();
    let key = |location: &str| if location == "--agents" { "agents" } else { "flags" };
    problems.map(|problem| (key(&problem.location), problem.to_string())).collect()
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
