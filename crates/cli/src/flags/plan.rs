//! The flags of `weir plan`: one for each input of a plan, and those of its output.

use plan::inputs::{INPUTS, InputKind};

use super::{CommandInfo, FLAG_DEFAULTS, Flag, flag, switch};

const OWN: &[Flag] = &[
    flag("file", "FILE").doc(
        "Plan file (TOML) with the names of these flags as keys; flags take precedence over the \
         file, and the file over records",
    ),
    switch("check").doc("Check flags, file and records, and exit"),
    flag("config", "weir|haproxy|nginx")
        .values(&["weir", "haproxy", "nginx"], &["apache"])
        .doc("Print a config with the limits of the plan instead of the plan; replace its addresses"),
    switch("verify").doc(
        "Run the plan with weir serve and a proxy on this machine, scaled down if necessary: steady \
         state, a stall of all servers, an overload; compare predictions and measurement",
    ),
    flag("subject", "weir|haproxy|nginx|COMMAND")
        .default("weir")
        .values(&[], &["apache", "proxy --to {origin}", "proxy --listen '{listen}", "proxy {listen} {lisen}"])
        .doc(
            "Proxy of --verify, with the limits of the plan. A command runs without a shell; {listen} is \
             the address on which it has to listen, {port} its port, {origin} the first server, \
             {origins} all with commas, {config} the file of --subject-config, {dir} a directory of its \
             own; {maxconn}, {queue-limit}, {queue-ms} and {connections} are limits",
        ),
    flag("subject-config", "weir|haproxy|nginx|FILE").values(&[], &["nginx"]).doc(
        "Config of a command as --subject: that of --config, or a file with the same placeholders, \
         in which a line with {origin} is repeated for each server",
    ),
    flag("subject-url", "URL")
        .values(&[], &["127.0.0.1:8080"])
        .doc("Verify the proxy that runs at this URL, with the servers of --origin-listen behind it"),
    flag("origin-listen", "ADDRESS")
        .repeatable()
        .values(&[], &["127.0.0.1:9001"])
        .doc("Address of a server of --subject-url, at which weir serve listens"),
    flag("subject-queue", "bounded|unbounded|none").values(&[], &["bounded", "x"]).doc(
        "Queue of a command or a URL, which decides what is predicted and measured; none for a \
         generated config of nginx, otherwise bounded, by the limits of the plan",
    ),
    switch("quick").doc("Short phases of --verify, after the stall of --stall; the figures vary more"),
    flag("json", "FILE|-")
        .doc("Write the plan as JSON (weir.plan/1); - writes it to stdout, and nothing else"),
    flag("markdown", "FILE|-")
        .doc("Write the plan, and its verification, as Markdown; - writes it to stdout, and nothing else"),
    switch("verbose").short('v').doc("Print the formula of every figure, also with its names"),
];

const COUNT: usize = INPUTS.len() + OWN.len();

/// Flags of the inputs, from their table, then the others.
static FLAGS: [Flag; COUNT] = {
    let mut flags = [FLAG_DEFAULTS; COUNT];
    let mut index = 0;
    while index < INPUTS.len() {
        let row = &INPUTS[index];
        flags[index] = Flag {
            long: row.name,
            short: None,
            value: row.value,
            repeatable: matches!(row.kind, InputKind::Backends),
            default: row.default,
            doc: row.doc,
            valid: row.valid,
            invalid: row.invalid,
            ..FLAG_DEFAULTS
        };
        index += 1;
    }
    while index < COUNT {
        flags[index] = OWN[index - INPUTS.len()];
        index += 1;
    }
    flags
};

pub(crate) static PLAN: CommandInfo = CommandInfo {
    name: "plan",
    about: "Compute connections, limits, queues, ports, memory and machines, with the formulas",
    doc: "Takes figures from flags, from a plan file and from records of weir load, weir edge and weir \
          calibrate, and computes the sizes of a proxy and its servers: slots by Erlang C, the bounds of \
          the queue, connections, descriptors, ports, memory, link, cores by the scaling law, machines \
          with spare ones, load generators, and backlog and drain time after a stall. Each figure has \
          its formula, and each input its source. Findings report everything that is unbounded, \
          unstable or too small; with an error among them the exit code is 3.",
    values: Some(("RECORD", "Records of weir load --json, weir edge --json and weir calibrate --json")),
    flags: &FLAGS,
    examples: &[
        (
            "weir plan --rate 1k --service 20ms --servers 6 --slo 'p99<150ms'",
            "limits of each server and of the queue for an objective",
        ),
        (
            "weir plan --rate 4k --queue-time 2s --backend 18x2 --backend 1x523",
            "sum of slots and queue of two backends",
        ),
        (
            "weir plan --rate 9k --scaling 1:9185,4:28157,8:30310",
            "cores by the measured rates of 1, 4 and 8 vCPUs",
        ),
        (
            "weir plan --check --rate 1k --service 20ms --servers 6 --verify --subject 'haproxy -db -f {config}' \
             --subject-config haproxy",
            "verify any program by a config of the plan; without --check it runs",
        ),
        (
            "weir plan --rate 1k --service 20ms --servers 6 --config haproxy",
            "the limits as a config of HAProxy",
        ),
        ("weir plan --rate 1k --service 20ms --servers 6 --markdown -", "the plan as Markdown"),
        ("weir plan one.json --servers 2 --maxconn 50", "rate and service time from a record of weir load"),
    ],
};
