//! `weir fleet run`: a load with the programs under it, each on its own machine, observed there and diagnosed
//! together with the generators.

use fleet::machines::{Machines, job_arguments};
use fleet::plan_file::{self, MachinePlan};
use record::problem::{InputProblem, InvalidValue};
use record::units::SECOND_NS;

use super::role::parse_role_job;
use super::{check_nats, load};
use crate::commands::text_file::read_text_file;
use crate::exit::{Exit, Failure};
use crate::flags::{CommandArgs, nats_options, parse_command, passed_on};
use crate::streams::notice;

pub(super) fn run(args: CommandArgs<'_>) -> Result<Exit, Failure> {
    check_nats(args)?;
    let values = args.values();
    let [name] = values.as_slice() else {
        return Err(vec![InputProblem::new("PLAN", "name one file: weir fleet run plan.toml")].into());
    };
    let text = read_text_file(name).map_err(|problem| vec![problem])?;
    let file = plan_file::parse(name, &text)?;
    check_machines(&file.machines)?;
    let words = [format!("--agents={}", file.agents)].into_iter().chain(passed_on(args));
    let load_problem = |why: InvalidValue| vec![InputProblem::new(format!("{name}: [load]"), why)];
    let load = parse_command("fleet load", words.chain(file.arguments)).map_err(load_problem)?;
    let load = CommandArgs(&load);
    if let Some(problem) = super::job::nats_flags(load).first() {
        return Err(load_problem(InvalidValue::new(problem)).into());
    }
    let nats = nats_options(args, "weir fleet run");
    let mut machines = Machines::new(file.machines, nats, notice);
    load::run_in(load, nats_options(args, "weir fleet load"), &mut machines)
}

/// Checks the program of each machine as its agent will.
fn check_machines(machines: &[MachinePlan]) -> Result<(), Vec<InputProblem>> {
    let mut problems = Vec::new();
    for machine in machines {
        if let Err(others) = parse_role_job(machine.allows, &job_arguments(machine, SECOND_NS)) {
            problems.extend(others.into_iter().map(|problem| {
                let place = format!("{}: [machine.{}]", machine.position, machine.name);
                InputProblem::new(place, problem.to_string())
            }));
        }
    }
    if problems.is_empty() { Ok(()) } else { Err(problems) }
}
