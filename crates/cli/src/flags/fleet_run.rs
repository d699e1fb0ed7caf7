//! The flags of `weir fleet run` and `weir fleet role`.

use super::fleet::{OUTPUT, RUN_NAME, STORE};
use super::fleet_nats::NATS_FLAGS;
use super::load::{JSON, VERBOSE};
use super::load_output::{CHECK, JUNIT, MARKDOWN};
use super::load_requests::METRICS_LISTEN;
use super::{COMMANDS, CommandArgs, CommandInfo, Flag, FlagNames, flag, join_flags};

pub(crate) const RUN: CommandInfo = CommandInfo {
    name: "fleet run",
    about: "Drive a load with the programs under it on their machines, and name the bottleneck",
    doc: "PLAN is a TOML file. Each [machine.NAME] has an agent (agent: its labels, as in --agents of weir fleet \
          load), and one of serve and proxy (arguments of weir serve or weir proxy, which the agent starts) or \
          observe (flags of weir watch: a process that runs already). role is its role in the diagnosis: subject, \
          origin, or another name; default: origin for serve, subject otherwise. [load] has agents and arguments \
          of weir fleet load. The programs start first, are observed on their machines during the load, and end \
          after it. The record has the observations of all machines, and the evidence of its diagnosis names the \
          machine. An agent starts only what its --allow has, with arguments and never a shell, and rejects flags \
          that read or write files.",
    values: Some(("PLAN", "File with the machines and the load")),
    flags: join_flags!(NATS_FLAGS, PASSED_ON),
    examples: &[(
        "weir fleet run --nats nats://10.0.0.1:4222 --json run.json plan.toml",
        "the machines and the load of a plan",
    )],
};

/// Flags of `weir fleet run` that its load has as well.
const PASSED_ON: &[Flag] = &[JSON, MARKDOWN, JUNIT, OUTPUT, STORE, RUN_NAME, METRICS_LISTEN, CHECK, VERBOSE];

pub(crate) const ROLE: CommandInfo = CommandInfo {
    name: "fleet role",
    about: "Run and observe one program of a fleet run, controlled on stdin",
    doc: "An agent starts this command for a machine of weir fleet run; its commands and events are those of weir \
          load --control. It starts weir serve or weir proxy, or finds a process (watch), reports that it is \
          ready, observes it from the start command to the stop command, and writes the record. The program ends \
          with it.",
    values: Some(("COMMAND", "serve, proxy or watch with its flags, after --")),
    flags: &[
        flag("as", "ROLE")
            .default("subject")
            .values(&["origin"], &["generator", "a b"])
            .doc("Role in the record: subject, origin, or another name"),
        flag("duration", "TIME")
            .default("1h")
            .values(&["90"], &["0", "25h", "x"])
            .doc("Max duration, up to 24h; default unit: s"),
        JSON,
    ],
    examples: &[(
        "weir fleet role --as origin --json origin.json -- serve --listen 127.0.0.1:8000",
        "an origin with its observation",
    )],
};

/// Flags of the programs of a role. They neither read nor write files.
const ROLE_FLAGS: &[(&str, FlagNames)] = &[
    (
        "serve",
        FlagNames(
            "listen threads pin spin connections-max idle-timeout head-timeout body-timeout write-timeout \
    drain-timeout head-bytes-max http h2-streams-max h2-stream-window h2-connection-window \
    proxy-protocol tls-self-signed",
        ),
    ),
    (
        "proxy",
        FlagNames(
            "listen to mode threads pin balance reuse to-http connections-max drain-timeout tls-self-signed",
        ),
    ),
    ("watch", FlagNames("pid port url interval")),
];

/// Arguments of a role's program in one form whatever the user typed, and the flags that a role does not have.
pub(crate) fn role_arguments(command: &str, args: CommandArgs<'_>) -> (Vec<String>, Vec<&'static str>) {
    let allowed =
        ROLE_FLAGS.iter().find(|(name, _)| *name == command).map_or(FlagNames(""), |(_, flags)| *flags);
    let flags = COMMANDS.iter().find(|row| row.name == command).map_or(&[][..], |row| row.flags);
    let (mut arguments, mut refused) = (Vec::new(), Vec::new());
    for flag in flags.iter().filter(|flag| args.is_given(flag.long)) {
        if !allowed.contains(flag.long) {
            refused.push(flag.long);
        } else {
            arguments.extend(flag_arguments(flag, args));
        }
    }
    (arguments, refused)
}

/// Arguments of `weir fleet run` that its load has as well.
pub(crate) fn passed_on(args: CommandArgs<'_>) -> Vec<String> {
    let given = PASSED_ON.iter().filter(|flag| args.is_given(flag.long));
    given.flat_map(|flag| flag_arguments(flag, args)).collect()
}

/// Arguments of a flag, in one form whatever the user typed.
pub(super) fn flag_arguments(flag: &Flag, args: CommandArgs<'_>) -> Vec<String> {
    if flag.value.is_empty() {
        return vec![format!("--{}", flag.long)];
    }
    let values = if flag.repeatable { args.texts(flag.long) } else { Vec::from_iter(args.text(flag.long)) };
    values.into_iter().map(|value| format!("--{}={value}", flag.long)).collect()
}
