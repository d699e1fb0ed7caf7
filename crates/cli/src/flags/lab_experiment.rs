//! The flags of `weir lab run`, and of the commands that read its results: `list`, `show`, `compare` and
//! `serve`.

use experiment::comparison::EFFECT_DEFAULT;
use record::invalid_value;
use record::problem::InvalidValue;
use record::units::parse_fraction;

use super::fleet::STORE;
use super::fleet_nats::NATS_FLAGS;
use super::lab::ALLOW_GLOBAL;
use super::{CommandFlags, CommandInfo, Destination, Flag, command_flags, flag, join_flags, switch};

pub(super) const SET: Flag = flag("set", "NAME=VALUE")
    .repeatable()
    .values(&["threads=2"], &["threads", "=2"])
    .doc("Set a parameter of the experiment file; repeatable");

pub(super) const DISCARD: Flag = flag("discard", "NAME=BOUND")
    .repeatable()
    .values(&["steal=30%", "wake-up-ratio=10", "generator-lag=off"], &["steal", "stele=1%", "steal=x"])
    .doc(
        "Discard trials above this external disturbance, e.g. steal=5%; overrides the limit in \
         [discard]; off removes it; a discarded trial does not count; with --resume for all its trials; \
         repeatable",
    );

pub(super) const BLOCKS: Flag = flag("blocks", "MIN[..MAX]")
    .default("the file's, or 4..30")
    .values(&["10", "10..30"], &["0", "x", "30..10", "1..", "..5", "1000000"])
    .doc(
        "Repetitions: a block runs every arm once; min and max number, a single number is both; with \
         --resume the new numbers",
    );

pub(super) const RERUNS: Flag =
    flag("reruns", "FRACTION").default("the file's, or 50%").values(&["100%", "0.5"], &["x", "2000%"]).doc(
        "Max reruns of a block's arms under a load after discarded or failed trials, as a fraction of \
         the blocks; with --resume the new fraction",
    );

pub(super) const DURATION: Flag = flag("duration", "TIME")
    .short('d')
    .default("the file's, or 8s")
    .values(&["8s", "500ms"], &["0", "x", "2h"])
    .doc("Duration of the load per trial; default unit: s");

pub(super) const QUICK: Flag = switch("quick").doc("Short run: 3 s loads, four to six blocks");

pub(super) const SEED: Flag = flag("seed", "N")
    .default("from the clock; printed")
    .values(&["1"], &["x", "-1"])
    .doc("Seed of trial order and resampling");

pub(super) const OUTPUT: Flag = flag("output", "DIR")
    .default("weir-lab/NAME-DATE-TIME")
    .values(&["allocators"], &[])
    .doc("Output directory; must not exist");

pub(super) const RESUME: Flag =
    flag("resume", "DIR").values(&["weir-lab/allocator-20260102-030405"], &[]).doc(
        "Continue the experiment in this directory, after any stop; it keeps its options, except \
         --blocks, --reruns and --discard",
    );

pub(super) const ALLOW_CHANGED_ENVIRONMENT: Flag = switch("allow-changed-environment").doc(
    "Resume although machine, weir or programs have changed; the report lists the \
     changes",
);

pub(super) const JSON: Flag = flag("json", "FILE|-")
    .values(&["result.json"], &[])
    .doc("Write the result as JSON too; - writes it to stdout, and nothing else");

pub(crate) const RUN: CommandInfo = CommandInfo {
    name: "lab run",
    about: "Run an experiment: compare arms (variants of one setup) under load",
    doc: "FILE is an experiment in TOML; NAME is a ready-made one (--list). Each arm is the same \
          set of programs with one change. A block runs every arm under every load once, in \
          random order, each with fresh processes. The baseline runs twice, which shows the noise \
          between two identical trials. Blocks run until every arm has its conclusion in the primary metric (faster, slower or \
          equivalent), or until the max number of blocks. After each block from the fourth on the arms are judged, \
          with the error spent over these looks. CPUs that other programs take count relative to the difference: a \
          block is set aside only if they could explain it. A trial with errors, a late generator, a throttled subject \
          or a step of the clock is discarded, and its block is repeated for that load \
          (docs/judgement.md).\n\nThe output directory has the experiment file, \
          the record of every trial, experiment.json, report.html and report.md. No result is \
          printed during the run, because a visible intermediate result invites stopping at it. \
          Ctrl-C stops it, and prints the estimate so far and the command that finishes it; --resume continues, also \
          after a crash.\n\nA file with \
          [machine.NAME] has its programs and its load on machines of a fleet (docs/fleet.md): their agents \
          are found through the NATS server; --check asks neither.\n\nExit code \
          4: there is no conclusion, because it was stopped before one or too many trials were discarded, or the load \
          generator was always the limit. Exit code 1: failing trials ended it.",
    values: Some(("FILE|NAME", "Experiment file, or the name of a ready-made one")),
    flags: join_flags!(RUN_FLAGS, NATS_FLAGS),
    examples: &[
        ("weir lab run --list", "ready-made experiments"),
        ("weir lab run --check threads.toml", "check a file, and print the expected duration"),
        (
            "weir lab run --blocks 6 -d 500ms --seed 1 --output first threads.toml",
            "run it, shorter than recommended",
        ),
        ("weir lab run --resume first", "continue it after a stop"),
    ],
};

const RUN_FLAGS: &[Flag] = &[
    switch("list").doc("List the ready-made experiments and their requirements"),
    flag("print", "NAME")
        .values(&["allocator"], &["no-such-experiment"])
        .doc("Print the file of a ready-made experiment, as a template"),
    switch("check").doc(
        "Check the experiment without running it; compares it with this machine, and \
         prints the plan and the expected duration",
    ),
    SET,
    DISCARD,
    BLOCKS,
    RERUNS,
    DURATION,
    QUICK,
    SEED,
    OUTPUT,
    RESUME,
    ALLOW_CHANGED_ENVIRONMENT,
    JSON,
    JUNIT,
    ALLOW_GLOBAL,
];

const JUNIT: Flag = flag("junit", "FILE|-").values(&["junit.xml"], &[]).doc(
    "Write the result as a JUnit test report: a case for the end of the experiment, one for each comparison in the \
     primary metric (skipped without a conclusion), and the answer as properties; - writes it to stdout, and nothing \
     else",
);

pub(crate) const LIST: CommandInfo = CommandInfo {
    name: "lab list",
    about: "List experiments and their results",
    doc: "Prints start time, name, arms, blocks and conclusion of each. Unfinished experiments are \
          included.",
    values: Some(("DIR", "Directory of experiments; weir-lab by default")),
    flags: ListFlags::FLAGS,
    examples: &[("weir lab list .", "experiments in this directory")],
};

pub(crate) const SHOW: CommandInfo = CommandInfo {
    name: "lab show",
    about: "Print the result of an experiment",
    doc: "Computes the comparisons again from the stored trials, so that a later version of weir \
          may report more than the one that ran them. It does not change the directory.",
    values: Some(("DIR", "Directory of the experiment")),
    flags: ShowFlags::FLAGS,
    examples: &[
        ("weir lab show first", "print the result"),
        ("weir lab show --html report.html --markdown report.md first", "write the report again"),
    ],
};

pub(crate) const COMPARE: CommandInfo = CommandInfo {
    name: "lab compare",
    about: "Compare two experiments, or two sets of runs",
    doc: "Two experiment directories: compares arms of the same name under loads of the same name, \
          trial by trial. Two sets of records of weir load (--a, --b): compares run by run. Both \
          are unpaired, with the Mann-Whitney test. Any other change between the two times is \
          confounded with the difference, and no test can detect it. Two single records are printed \
          side by side without a test, because the seconds of a run are autocorrelated, so that \
          they are not independent observations. Differences of plans and machines are listed.",
    values: Some(("A B", "Two experiment directories, or two records of weir load")),
    flags: CompareFlags::FLAGS,
    examples: &[
        ("weir lab compare first first", "two runs of an experiment"),
        ("weir lab compare run.json run.json", "two records: ratios without a test"),
    ],
};

pub(crate) const SERVE: CommandInfo = CommandInfo {
    name: "lab serve",
    about: "Browse and compare experiments, and stored runs of a fleet, in a web browser",
    doc: "Serves a list of the experiments in a directory, their reports, their raw files, and \
          comparisons of any two. It also lists the runs of a fleet there (weir fleet load --output, weir \
          fleet runs --fetch) and with --store those on a NATS server, each with a page of its agents and \
          its result. It listens on loopback by default, because there is no \
          password. Running experiments show their progress. Prints its address on the first \
          line; Ctrl-C stops it.",
    values: Some(("DIR", "Directory of experiments and runs; weir-lab by default")),
    flags: join_flags!(
        &[
            flag("listen", "ADDRESS")
                .default("127.0.0.1:0")
                .values(&["127.0.0.1:8800", "[::1]:0"], &["8800", "unix:/tmp/x", "localhost:x"])
                .doc("Address to listen on; port 0: chosen by the kernel"),
            Flag {
                doc: "List the runs in a bucket of the NATS server, too (default bucket weir-runs)",
                ..STORE
            },
        ],
        NATS_FLAGS
    ),
    examples: &[("weir lab serve .", "experiments in this directory")],
};

command_flags! {
    pub(crate) struct ListFlags {
        json: bool = switch("json").doc("Print the list as JSON").is_given(),
    }
}

command_flags! {
    pub(crate) struct ShowFlags {
        html: Destination = flag("html", "FILE")
            .values(&["report.html"], &[])
            .doc("Write the report as a self-contained HTML page")
            .destination(),
        markdown: Destination = flag("markdown", "FILE|-")
            .values(&["report.md"], &[])
            .doc("Write the report as Markdown; - writes it to stdout, and nothing else")
            .destination(),
        json: Destination = flag("json", "FILE|-")
            .values(&["result.json"], &[])
            .doc("Write the result as JSON; - writes it to stdout, and nothing else")
            .destination(),
        junit: Destination = JUNIT.destination(),
    }
}

command_flags! {
    pub(crate) struct CompareFlags {
        a: Vec<String> = flag("a", "PATTERN")
            .repeatable()
            .values(&["before*.json"], &[])
            .doc("Records of the first set; * matches any part of a file name; repeatable")
            .texts(),
        b: Vec<String> = flag("b", "PATTERN")
            .repeatable()
            .values(&["after*.json"], &[])
            .doc("Records of the second set; * matches any part of a file name; repeatable")
            .texts(),
        effect: f64 = flag("effect", "FRACTION")
            .default("2%")
            .values(&["1%", "0.05"], &["x", "0", "101%"])
            .doc("Smallest relevant difference")
            .parsed_or(parse_effect, EFFECT_DEFAULT),
        json: Destination = flag("json", "FILE|-")
            .values(&["comparison.json"], &[])
            .doc("Write the comparison as JSON; - writes it to stdout, and nothing else")
            .destination(),
    }
}

fn parse_effect(text: &str) -> Result<f64, InvalidValue> {
    match parse_fraction(text)? {
        effect if effect > 0.0 => Ok(effect),
        _ => Err(invalid_value!("a difference of 0 matters to nobody")),
    }
}
