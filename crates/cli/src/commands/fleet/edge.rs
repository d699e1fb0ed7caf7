//! `weir fleet edge`: a search for the capacity whose trials are loads of a fleet.

use ::load::capacity_search::{SearchOptions, SearchQuantity};
use ::load::plan::RunPlan;
use fleet::fleet_load::{FleetFlags, FleetLoad, find_agents, format_division};
use fleet::search_driver::FleetDriver;
use record::problem::InputProblem;
use record::units::MILLISECOND_NS;
use rt::drain::{Drain, DrainStage};

use super::load_options::{parse_fleet_flags, parse_trial_load};
use super::{connect, count_signals, job};
use crate::commands::command_identity;
use crate::commands::edge::{EdgeSearch, check_outputs, parse_flags};
use crate::exit::{Exit, Failure};
use crate::flags::{CommandArgs, edge_trial_arguments, nats_options, refused_edge_flags};
use crate::streams::notice;

/// Expected duration of a trial besides its load: connections, the common start, and the records.
const OVERHEAD_NS: u64 = 1_500 * MILLISECOND_NS;
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
    let searches_streams = options.quantity == SearchQuantity::Streams;
    let trial_load =
        |plan: &RunPlan, with_baseline: bool| trial_load(args, plan, (searches_streams, with_baseline));
    let driver = FleetDriver { trial_load: Box::new(trial_load), nats, agents, notice, signals };
    let identity = command_identity(arguments);
    let search = EdgeSearch {
        args,
        identity: &identity,
        options: &options,
        stop: &stop,
        descriptor_limit: None,
        untested_reason: Some("the loads of a fleet are not those of a test: run `weir edge` on one machine"),
    };
    search.run(driver, &introduction)
}

fn trial_load(
    args: CommandArgs<'_>,
    plan: &RunPlan,
    (searches_streams, with_baseline): (bool, bool),
) -> Result<FleetLoad, Vec<InputProblem>> {
    let mut words = edge_trial_arguments(args, plan, searches_streams);
    words.extend(args.text("wait").map(|wait| format!("--wait={wait}")));
    if !with_baseline {
        words.push("--no-baseline".to_owned());
    }
    words.push("--".to_owned());
    words.extend(args.values());
    parse_trial_load(words)
}

/// Parses all flags; reports every problem at once.
pub(super) fn parse(
    args: CommandArgs<'_>,
    urls: Vec<String>,
) -> Result<(SearchOptions, FleetFlags), Vec<InputProblem>> {
    let mut problems: Vec<InputProblem> =
        refused_edge_flags(args).into_iter().map(job::refused_flag).collect();
    problems.extend(job::file_values(args));
    let flags = parse_fleet_flags(args).map_err(|own| problems.extend(own));
    let options = parse_flags(args, urls).map_err(|others| problems.extend(others));
    match (options, flags) {
        (Ok(options), Ok(flags)) if problems.is_empty() => Ok((options, flags)),
        _ => Err(problems),
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
            assert!(found.iter().any(|problem| problem == location), "{location}: {found:?}");
        }
        assert_eq!(
            problems(&["--cert", "f", "--key", "f", "https://127.0.0.1:1/"])[..2],
            ["--cert", "--key"]
        );
        assert!(!problems(&[]).is_empty(), "a URL is missing");
    }
}
