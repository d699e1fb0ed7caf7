//! Options of a load of a fleet, from the flags of `weir fleet load`.

use fleet::coordinator::LossPolicy;
use fleet::fleet_load::{FleetFlags, FleetLoad};
use fleet::split::AgentSelection;
use load::plan::RunPlan;
use record::problem::InputProblem;
use record::units::{DurationUnit, SECOND_NS, parse_duration_ns};

use super::job;
use super::runs::parse_store;
use crate::flags::{CommandArgs, agent_load_arguments, load_flags, nats_problems, parse_command};

/// Parses the flags that `weir load` does not have; reports every problem at once.
pub(super) fn parse_fleet_flags(args: CommandArgs<'_>) -> Result<FleetFlags, Vec<InputProblem>> {
    let mut problems = nats_problems(args);
    let selection = args.text("agents").map_or(Ok(AgentSelection::All), |text| AgentSelection::parse(&text));
    let selection = selection.map_err(|why| problems.push(InputProblem::new("--agents", why)));
    let on_loss = match args.text("on-loss").as_deref() {
        None | Some("mark") => LossPolicy::Mark,
        Some("redistribute") => {
            if !args.is_given("rate") && !args.is_given("stages") {
                let text = "a closed loop has no rate that other agents could take over: use --rate, or mark";
                problems.push(InputProblem::new("--on-loss", text));
            }
            LossPolicy::Redistribute
        }
        Some(other) => {
            let text = format!("'{other}' is neither mark nor redistribute");
            problems.push(InputProblem::new("--on-loss", text));
            LossPolicy::Mark
        }
    };
    let wait =
        args.text("wait").map_or(Ok(10 * SECOND_NS), |text| parse_duration_ns(&text, DurationUnit::Seconds));
    let wait_ns = wait.map_err(|why| problems.push(InputProblem::new("--wait", why)));
    let store = parse_store(args).map_err(|others| problems.extend(others));
    match (selection, wait_ns, store) {
        (Ok(selection), Ok(wait_ns), Ok(store)) if problems.is_empty() => {
            Ok(FleetFlags { selection, on_loss, wait_ns, store })
        }
        _ => Err(problems),
    }
}

/// Parses all flags; reports every problem at once.
pub(super) fn parse_load(args: CommandArgs<'_>) -> Result<FleetLoad, Vec<InputProblem>> {
    let (arguments, refused) = agent_load_arguments(args);
    let mut problems: Vec<InputProblem> = refused.into_iter().map(job::refused_flag).collect();
    problems.extend(job::file_values(args));
    let text = load_flags(args);
    let flags = parse_fleet_flags(args).map_err(|own| problems.extend(own));
    if text.urls.is_empty() {
        problems.push(InputProblem::new("URL", "missing: agents have no embedded origin"));
        return Err(problems);
    }
    let plan =
        RunPlan::parse(&text, rt::cores::available_cpus().len()).map_err(|other| problems.extend(other));
    match (flags, plan) {
        (Ok(flags), Ok(plan)) if problems.is_empty() => Ok(FleetLoad { flags, text, plan, arguments }),
        _ => Err(problems),
    }
}

/// Parses the load of a trial, as a command line of `weir fleet load`. The command of the trials has the server
/// and the outputs, so that their flags are problems here.
pub(super) fn parse_trial_load(
    words: impl IntoIterator<Item = String>,
) -> Result<FleetLoad, Vec<InputProblem>> {
    let matches =
        parse_command("fleet load", words).map_err(|why| vec![InputProblem::new("weir fleet load", why)])?;
    let args = CommandArgs(&matches);
    let mut problems = job::flags_of_the_command(args);
    let load = parse_load(args).map_err(|others| problems.extend(others));
    load.ok().filter(|_| problems.is_empty()).ok_or(problems)
}
