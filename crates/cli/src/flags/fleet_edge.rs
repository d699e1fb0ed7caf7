//! The flags of `weir fleet edge`, and the load of a trial as arguments of `weir fleet load`.

use load::pace::Pace;
use load::plan::RunPlan;
use record::units::MILLISECOND_NS;

use super::edge::EDGE_FLAGS;
use super::fleet::{AGENT_LOAD_FLAGS, AGENTS, WAIT};
use super::fleet_nats::NATS_FLAGS;
use super::fleet_run::flag_arguments;
use super::{CommandArgs, CommandInfo, Flag, FlagNames, join_flags};

pub(crate) const EDGE: CommandInfo = CommandInfo {
    name: "fleet edge",
    about: "Find the maximum load of several agents at which an objective holds",
    doc: "The search of weir edge, with each of its trials driven by the agents together, as by weir fleet load: the \
          level is divided by their capacity, and judged on the merged record. For a subject that one generator \
          cannot fill. A trial whose generators were the limit, or that lost an agent, is undecided; it is repeated \
          twice, and then the search ends with what it has (exit code 4). The agents are those found at the start. \
          A trial takes a second or two longer than on one machine, for the common start and the records. The ladder \
          has no observer beside it, because an agent drives one load at a time; trials with fewer connections than \
          agents use fewer agents. Ctrl-C ends the trial on all agents and reports what was found so far.",
    values: Some(("URL", "Target, http[s]://host[:port][/path]; several are used round-robin")),
    flags: join_flags!(NATS_FLAGS, &[AGENTS, WAIT], EDGE_FLAGS),
    examples: &[(
        "weir fleet edge --agents 2 --quick --trial 500ms --from 500 --to 1000 --slo 'p99<2s,errors<5%' \
         --search-only --json edge.json http://127.0.0.1:8000/",
        "check up to 1,000 requests per second from two agents",
    )],
};

/// Flags of the search itself, which no agent gets.
const SEARCH_FLAGS: FlagNames = FlagNames(
    "find from to quick thorough target baseline markdown trial precision search-only no-baseline keep \
    json html junit brief",
);
const TRIAL_FLAGS: FlagNames = FlagNames("connections requests-per-connection streams slo arrivals");
/// Flags that a fleet does not have: files of one machine, and a second target.
const REFUSED_FLAGS: FlagNames = FlagNames("direct confirm check cacert cert key xdp-exposed");

/// Returns false for a flag that the command only knows to say why it does not have it.
pub(super) fn is_listed(flag: &Flag) -> bool {
    !REFUSED_FLAGS.contains(flag.long)
}

/// Returns the flags that were given and that a fleet does not have.
pub(crate) fn refused_edge_flags(args: CommandArgs<'_>) -> Vec<&'static str> {
    REFUSED_FLAGS.given(args)
}

/// Returns the load of a trial as flags of `weir fleet load`, without its targets.
pub(crate) fn edge_trial_arguments(
    args: CommandArgs<'_>,
    plan: &RunPlan,
    searches_streams: bool,
) -> Vec<String> {
    let is_of_agents =
        |flag: &&Flag| AGENT_LOAD_FLAGS.contains(flag.long) && !TRIAL_FLAGS.contains(flag.long);
    let own = |flag: &&Flag| !SEARCH_FLAGS.contains(flag.long) && args.is_given(flag.long);
    let mut arguments: Vec<String> = EDGE_FLAGS
        .iter()
        .filter(is_of_agents)
        .filter(own)
        .flat_map(|flag| flag_arguments(flag, args))
        .collect();
    let duration_ms = plan.end.duration_ns.div_ceil(MILLISECOND_NS);
    arguments.push(format!("--connections={}", plan.connections));
    arguments.push(format!("--duration={duration_ms}ms"));
    if let Pace::Open { rate_per_s, .. } = plan.pace {
        arguments.push(format!("--rate={rate_per_s}"));
        arguments.push(format!("--max-pending={}", plan.max_pending));
        arguments.extend(args.text("arrivals").map(|arrivals| format!("--arrivals={arrivals}")));
    }
    arguments.extend(plan.requests_per_connection.map(|count| format!("--requests-per-connection={count}")));
    let streams = plan.http2.as_ref().map(|http2| http2.streams);
    let streams = streams.filter(|_| searches_streams || args.is_given("streams"));
    arguments.extend(streams.map(|streams| format!("--streams={streams}")));
    arguments.extend(plan.objectives.iter().map(|objective| format!("--slo={}", objective.text())));
    arguments
}

#[cfg(test)]
mod tests {
    use load::capacity_search::{SearchQuantity, trial_plan};
    use record::units::SECOND_NS;

    use super::super::{build_command_line, edge_flags};
    use super::*;

    #[test]
    fn every_flag_of_a_search_is_for_agents_for_the_search_or_refused_on_purpose() {
        for flag in EDGE_FLAGS {
            let is_of_agents = AGENT_LOAD_FLAGS.contains(flag.long) && !SEARCH_FLAGS.contains(flag.long);
            let counts = [is_of_agents, SEARCH_FLAGS.contains(flag.long), !is_listed(flag)];
            assert_eq!(counts.iter().filter(|is_of| **is_of).count(), 1, "--{}", flag.long);
            assert!(!TRIAL_FLAGS.contains(flag.long) || is_of_agents, "--{}", flag.long);
        }
    }

    #[test]
    fn the_load_of_a_trial_is_a_command_line() {
        let url = "http://127.0.0.1:1/";
        let line = ["weir", "fleet", "edge", "-c", "8", "-HA: b", "--quick", "--arrivals=poisson", url];
        let matches = build_command_line().try_get_matches_from(line).unwrap();
        let args = CommandArgs(matches.subcommand().unwrap().1.subcommand().unwrap().1);
        let base = RunPlan::parse(&edge_flags(args, vec![url.to_owned()]), 2).unwrap();
        let plan = |quantity, level| trial_plan(&base, quantity, level, SECOND_NS);
        let arguments = |plan: &RunPlan| edge_trial_arguments(args, plan, false).join(" ");
        assert_eq!(
            arguments(&plan(SearchQuantity::Rate, 1_234.5)),
            "--header=A: b --connections=8 --duration=1000ms --rate=1234.5 --max-pending=6173 --arrivals=poisson"
        );
        let new_connections = arguments(&plan(SearchQuantity::ConnectionsPerSecond, 100.0));
        assert!(new_connections.ends_with("--requests-per-connection=1"), "{new_connections}");
        let closed = load::capacity_search::closed_loop_plan(&base, 1, SECOND_NS);
        assert_eq!(arguments(&closed), "--header=A: b --connections=1 --duration=1000ms");
    }
}
