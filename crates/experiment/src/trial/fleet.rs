//! Trial on machines of a fleet: the programs start on their agents, other agents drive the load, and all of them
//! observe their machines. The record of the load has everything.
//!
//! Not for the fleet itself: this crate does not know it ([`FleetTrials`]).

use std::collections::BTreeMap;

use record::file::format_wall_clock;
use record::trial::{ExperimentTrial, SCHEMA};

use super::driver::{self, DriverCall, DriverSpec};
use super::measured::{clock_step_s, derive_results, fill_trial};
use super::stage::LoadOutcome;
use super::tools::{FleetTrial, TrialError, TrialResult, TrialTools};
use super::watch::LoadObservations;
use crate::scenario::machines::MachineSetup;
use crate::scenario::placeholders;
use crate::scenario::setup::LabSetup;
use crate::scenario::system_commands::shell_command_line;

pub(super) fn run(setup: &LabSetup, tools: TrialTools<'_>) -> Result<TrialResult, TrialError> {
    let fleet = tools.fleet.ok_or_else(|| {
        TrialError::Scenario("machines of a fleet need an experiment: weir lab run".to_owned())
    })?;
    let driver = driver::driver_spec(setup.tool);
    let trial = fleet_trial(setup, driver, tools.duration_ns);
    let (wall_ns, began_ns) = ((tools.wall_ns)(), (tools.context.clock)());
    let run = fleet.run(&trial)?;
    let clock_step_s = clock_step_s(&tools, wall_ns, began_ns);
    let warm_up_ns = driver.duration_form.rounded_ns(setup.warm_up_ns);
    let mut record = ExperimentTrial {
        schema: SCHEMA.to_owned(),
        weir: tools.build.clone(),
        started_at: format_wall_clock(wall_ns),
        warm_up_s: warm_up_ns as f64 / 1e9,
        commands: commands(&trial),
        ..ExperimentTrial::default()
    };
    let driven = LoadOutcome { duration_s: run.duration_s, run: Some(run), ..LoadOutcome::default() };
    let folded = fill_trial(&mut record, driver, "", driven, LoadObservations::default());
    derive_results(&mut record, setup, clock_step_s);
    Ok(TrialResult { trial: record, exit_code: 0, leftovers: Vec::new(), folded, error: None })
}

/// Returns the trial of a setup. Doubled braces become single ones, as in a trial on this machine.
fn fleet_trial(setup: &LabSetup, driver: &DriverSpec, duration_ns: u64) -> FleetTrial {
    let call = |duration_ns: u64| DriverCall {
        words: setup.load.clone(),
        duration: driver.duration_form.format(duration_ns),
        ..DriverCall::default()
    };
    // The first word is the command of weir.
    let arguments = |words: Vec<String>| words.into_iter().skip(1).collect::<Vec<_>>();
    let machine = |machine: &MachineSetup| MachineSetup {
        arguments: machine.arguments.iter().map(|text| placeholders::fill(text, |_| None)).collect(),
        ..machine.clone()
    };
    let has_warm_up = setup.warm_up_ns > 0;
    FleetTrial {
        machines: setup.machines.iter().map(machine).collect(),
        agents: setup.agents.clone(),
        warm_up: has_warm_up.then(|| arguments(call(setup.warm_up_ns).warm_up_command(driver))),
        load: arguments(call(duration_ns).load_command(driver)),
    }
}

fn commands(trial: &FleetTrial) -> BTreeMap<String, String> {
    let line = |words: Vec<String>| shell_command_line(&BTreeMap::new(), &words);
    let load =
        ["weir".to_owned(), "fleet".to_owned(), "load".to_owned(), format!("--agents={}", trial.agents)];
    let driver = ("driver".to_owned(), line(load.into_iter().chain(trial.load.iter().cloned()).collect()));
    let machines = trial.machines.iter().map(|machine| {
        let command = ["weir".to_owned(), command_name(machine).to_owned()];
        let words = command.into_iter().chain(machine.arguments.iter().cloned()).collect();
        (machine.name.clone(), format!("{} (agent {})", line(words), machine.agent))
    });
    machines.chain([driver]).collect()
}

fn command_name(machine: &MachineSetup) -> &'static str {
    use crate::scenario::machines::MachineProgram;
    match machine.program {
        MachineProgram::Observe => "watch",
        program => program.key(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trial_of_a_fleet_has_its_durations_and_arguments() {
        let text = "[machine.edge]\nagent = \"name=e\"\nproxy = [\"--to\", \"10.0.0.3:80\", \"{{x}}\"]\n[load]\n\
                    agents = \"2\"\nwarm-up = \"500ms\"\nflags = \"-c 4 -d {duration} http://10.0.0.2/\"\n";
        let setup = LabSetup::parse("a", text).unwrap();
        let driver = driver::driver_spec(setup.tool);
        let trial = fleet_trial(&setup, driver, 2_000_000_000);
        assert_eq!(trial.load.join(" "), "-c 4 -d 2000ms http://10.0.0.2/");
        assert_eq!(trial.warm_up.as_ref().unwrap().join(" "), "-c 4 -d 500ms http://10.0.0.2/");
        assert_eq!(trial.machines[0].arguments[2], "{x}");
        let commands = commands(&trial);
        assert_eq!(commands["driver"], "weir fleet load --agents=2 -c 4 -d 2000ms http://10.0.0.2/");
        assert_eq!(commands["edge"], "weir proxy --to 10.0.0.3:80 '{x}' (agent name=e)");
        let without = fleet_trial(&LabSetup { warm_up_ns: 0, ..setup }, driver, 2_000_000_000);
        assert_eq!(without.warm_up, None);
    }
}
