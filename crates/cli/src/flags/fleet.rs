//! The flags of `weir fleet`.

use super::fleet_nats::NATS_FLAGS;
use super::fleet_run::flag_arguments;
use super::load::{BRIEF, JSON, LOAD_FLAGS, VERBOSE};
use super::{CommandArgs, CommandInfo, Flag, FlagNames, flag, join_flags, switch};

pub(crate) const FLEET: CommandInfo = CommandInfo {
    name: "fleet",
    about: "Drive one load from many machines, with one merged result",
    doc: "Agents on the machines wait for a load; 'weir fleet load' divides it among them, starts them at the \
          same time, and merges their records into one: histograms are added, never averaged. Messages go \
          through a NATS server. docs/fleet.md has the setup, the permissions and the failures.",
    values: None,
    flags: &[],
    examples: &[("weir fleet --help", "the commands of a fleet")],
};

pub(crate) const SERVE: CommandInfo = CommandInfo {
    name: "fleet serve",
    about: "Start a NATS server and agents on this machine, for a first try",
    doc: "Starts the program nats-server with JetStream on a port of the loopback interface, and agents in this \
          process. They end with this command. Over a network, run a NATS server with TLS and permissions \
          instead (docs/fleet.md).",
    values: None,
    flags: SERVE_FLAGS,
    examples: &[(
        "weir fleet serve --embedded --agents 2",
        "a NATS server and two agents on this machine, for weir fleet load",
    )],
};

pub(crate) const AGENT: CommandInfo = CommandInfo {
    name: "fleet agent",
    about: "Wait for loads of a fleet and drive them",
    doc: "Registers with a NATS server and runs one load at a time, as a child process with the arguments that \
          the coordinator sent. The agent checks them as the command line does, and rejects flags that read or \
          write files and roles that --allow does not have. A run in progress survives the loss of the NATS \
          server: it ends as planned, and its record stays in the state directory until the coordinator has it. \
          SIGTERM lets a run in progress end, a second one stops it.",
    values: None,
    flags: join_flags!(NATS_FLAGS, AGENT_FLAGS),
    examples: &[(
        "weir fleet agent --nats nats://127.0.0.1:4222 --name a --label zone=eu",
        "an agent with a label",
    )],
};

pub(crate) const LS: CommandInfo = CommandInfo {
    name: "fleet ls",
    about: "List the agents of a fleet",
    doc: "Asks all agents for their facts: roles, machine, calibrated capacity, clock, state, and records that \
          wait for their coordinator.",
    values: None,
    flags: join_flags!(NATS_FLAGS, &[JSON]),
    examples: &[("weir fleet ls --nats nats://127.0.0.1:4222", "the agents")],
};

pub(crate) const LOAD: CommandInfo = CommandInfo {
    name: "fleet load",
    about: "Drive a load from several agents, and merge their records",
    doc: "Takes the flags of weir load. Connections, rate, requests, stages and source addresses are divided by \
          the calibrated capacity of the agents (weir calibrate), or by their CPUs if one is not calibrated; the \
          parts add up exactly. All agents open their connections first and start at the same time; the result \
          has the measured skew. The merged record has a row for each agent, and its validity includes theirs: an \
          agent without a record makes the result invalid. The first Ctrl-C ends the load on all agents and \
          merges what was measured, the second gives up requests in flight, the third does not wait.",
    values: Some(("URL", "Target(s), round-robin: http[s]://host[:port][/path]")),
    flags: join_flags!(NATS_FLAGS, OWN_LOAD_FLAGS, LOAD_FLAGS),
    examples: &[
        (
            "weir fleet load --agents 2 -c 64 -d 2s http://127.0.0.1:8000/",
            "64 connections from two agents of the server on this machine",
        ),
        (
            "weir fleet load --agents zone=eu -R 1k -d 2s --on-loss redistribute --json fleet.json http://127.0.0.1:8000/",
            "1,000 requests per second from all agents with a label; the others replace a lost one",
        ),
    ],
};

const ALLOW: Flag = flag("allow", "ROLES")
    .default("load")
    .values(&["load", "load,observe"], &["shell", ""])
    .doc("Allowed roles, separated by commas: load, serve, proxy and observe");
const LABEL: Flag = flag("label", "KEY=VALUE")
    .repeatable()
    .values(&["zone=eu"], &["zone", "=eu", "name=a"])
    .doc("Label by which --agents of weir fleet load selects this agent; repeatable");
const STATE: Flag = flag("state", "DIR")
    .default("$XDG_STATE_HOME/weir/fleet, or ~/.local/state/weir/fleet")
    .doc("Directory of the records that were not delivered yet; one directory per agent");
const CALIBRATE: Flag = switch("calibrate").doc(
    "Calibrate the load generator first, with an embedded origin; about 10 s; without it the calibration of \
     weir calibrate counts, if there is one",
);

pub(super) const AGENTS: Flag = flag("agents", "N|all|LABEL=VALUE")
    .default("all")
    .values(&["2", "all", "zone=eu,name=a"], &["0", "zone", "=x"])
    .doc(
        "Agents that drive the load: a number of them, all, or those with these labels, separated by commas; \
         the label name is the name of an agent",
    );
pub(super) const WAIT: Flag = flag("wait", "TIME")
    .default("10s")
    .values(&["5", "1m"], &["x", "1d"])
    .doc("Max time after the end for records of agents that are lost; default unit: s");

const SERVE_FLAGS: &[Flag] = &[
    switch("embedded").doc(
        "Start the program nats-server on this machine; required, because weir has no server of its own",
    ),
    flag("agents", "N")
        .default("0")
        .values(&["0", "2"], &["x", "65"])
        .doc("Number of agents in this process, up to 64; they are for a try, since all share one machine"),
    flag("port", "PORT")
        .default("4222")
        .values(&["0", "4223"], &["x", "65536"])
        .doc("Port of the NATS server on 127.0.0.1; 0 takes a free one"),
    STATE,
];

const AGENT_FLAGS: &[Flag] = &[
    flag("name", "NAME")
        .default("the host name")
        .values(&["node-1"], &["a.b", "", "*"])
        .doc("Name of the agent, unique in the fleet; its permissions on the NATS server contain it"),
    LABEL,
    ALLOW,
    STATE,
    CALIBRATE,
];

pub(super) const OUTPUT: Flag = flag("output", "DIR")
    .doc("Directory for the record of each agent and the merged record, in a subdirectory per run");
pub(super) const STORE: Flag = flag("store", "jetstream[:BUCKET]")
    .values(&["jetstream", "jetstream:nightly"], &["disk", "jetstream:a b", "jetstream:"])
    .doc(
        "Store the merged record and those of the agents in a bucket of the NATS server (JetStream \
         object store; default weir-runs), for weir fleet runs. A bucket has up to 1,000 runs and 1 GiB; \
         the oldest make way",
    );
pub(super) const RUN_NAME: Flag = flag("run-name", "NAME")
    .default("the time of its start with a part of its ID")
    .values(&["nightly-17"], &["a b", "", "../x"])
    .doc("Name of the stored run; it replaces a run with this name; needs --store");

const RUNS_FLAGS: &[Flag] = &[
    Flag { default: "jetstream", doc: "Bucket of the runs, as in weir fleet load", ..STORE },
    flag("fetch", "DIR")
        .doc("Write the records of the named runs, or of all, into a subdirectory of DIR per run"),
    VERBOSE,
    BRIEF,
];

pub(crate) const RUNS: CommandInfo = CommandInfo {
    name: "fleet runs",
    about: "List, print and fetch stored runs of a fleet",
    doc: "Without a name it lists the runs that weir fleet load --store has stored, the newest first. With names it \
          prints their results; with --fetch it writes their records to a directory, for weir load report.",
    values: Some(("NAME", "Runs; all without one")),
    flags: join_flags!(NATS_FLAGS, RUNS_FLAGS),
    examples: &[
        ("weir fleet runs --nats nats://127.0.0.1:4222", "the stored runs"),
        ("weir fleet runs --nats nats://127.0.0.1:4222 --fetch runs", "all records, as files"),
    ],
};

/// Flags of `weir fleet load` itself.
const OWN_LOAD_FLAGS: &[Flag] = &[
    AGENTS,
    flag("on-loss", "mark|redistribute").default("mark").values(&["mark"], &["ignore"]).doc(
        "Reaction to the loss of an agent: mark the result, or also let the others take over its rate; \
         only an open loop has a rate to take over",
    ),
    WAIT,
    OUTPUT,
    STORE,
    RUN_NAME,
];

/// Flags of `weir load` that a coordinator sends to its agents. They neither read nor write files.
pub(super) const AGENT_LOAD_FLAGS: FlagNames = FlagNames(
    "connections rate arrivals duration requests threads requests-per-connection ramp timeout \
     timeout-from think method header data insecure tls-min tls-max tls-resume tls-new tls-ciphers \
     tls-groups http streams window connection-window mix grpc source pin spin max-pending drain \
     expect-status expect-bytes expect-hash expect-body expect-header weights cookies capture connect-to \
     addresses proxy-protocol proxy-source stages pipeline ws message-size binary sse slo max-error-rate \
     on-invalid seed no-watch no-baseline xdp",
);

/// Flags of `weir load` that the coordinator handles itself.
const COORDINATOR_LOAD_FLAGS: FlagNames =
    FlagNames("json csv markdown junit format check live quiet verbose brief openmetrics metrics-listen");

/// Returns false for a flag that the command only knows to say why it does not have it.
pub(super) fn is_listed(command: &str, flag: &Flag) -> bool {
    if command == "fleet edge" {
        return super::fleet_edge::is_listed(flag);
    }
    command != "fleet load"
        || [NATS_FLAGS, OWN_LOAD_FLAGS].iter().any(|table| table.iter().any(|own| own.long == flag.long))
        || [AGENT_LOAD_FLAGS, COORDINATOR_LOAD_FLAGS].iter().any(|list| list.contains(flag.long))
}

/// Arguments of `weir load` for an agent, in one form whatever the user typed; and the flags that a fleet does
/// not have.
pub(crate) fn agent_load_arguments(args: CommandArgs<'_>) -> (Vec<String>, Vec<&'static str>) {
    let (mut arguments, mut refused) = (Vec::new(), Vec::new());
    for flag in LOAD_FLAGS.iter().filter(|flag| args.is_given(flag.long)) {
        if COORDINATOR_LOAD_FLAGS.contains(flag.long) {
            continue;
        }
        match AGENT_LOAD_FLAGS.contains(flag.long) {
            true => arguments.extend(flag_arguments(flag, args)),
            false => refused.push(flag.long),
        }
    }
    arguments.push("--".to_owned());
    arguments.extend(args.values());
    (arguments, refused)
}

/// Returns the flags that the coordinator handles itself and that were given; an agent has none of them.
pub(crate) fn coordinator_flags_given(args: CommandArgs<'_>) -> Vec<&'static str> {
    COORDINATOR_LOAD_FLAGS.given(args)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flag_of_a_load_is_for_agents_for_the_coordinator_or_refused_on_purpose() {
        // Files of one machine, outputs of one process, and what makes a process part of a fleet.
        let refused = FlagNames(
            "data-file unix cacert cert key tls tls-key-log targets values replay speed strict har-hosts file hdr \
             percentiles tui html baseline fail-if subject confirm control slice xdp-exposed",
        );
        for flag in LOAD_FLAGS {
            let lists = [AGENT_LOAD_FLAGS, COORDINATOR_LOAD_FLAGS, refused];
            let count = lists.iter().filter(|list| list.contains(flag.long)).count();
            assert_eq!(count, 1, "--{} belongs to one of the lists", flag.long);
        }
    }

    #[test]
    fn arguments_have_one_form_and_values_are_no_flags() {
        let line =
            ["weir", "fleet", "load", "-c", "8", "-HA: b", "--spin", "--json", "x", "-D", "f", "--", "-x"];
        let matches = super::super::build_command_line().try_get_matches_from(line).unwrap();
        let args = matches.subcommand().unwrap().1.subcommand().unwrap().1;
        let (arguments, refused) = agent_load_arguments(CommandArgs(args));
        assert_eq!(arguments, ["--connections=8", "--header=A: b", "--spin", "--", "-x"]);
        assert_eq!(refused, ["data-file"]);
    }
}
