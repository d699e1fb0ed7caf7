//! The flags of `weir lab` and the commands below it.

use super::{CommandRow, FLAG, Flag};

pub(crate) const LAB: CommandRow = CommandRow {
    name: "lab",
    about: "Say what limits a service, with evidence; experiments; the test of the verdicts",
    doc: "The commands below it make network namespaces, control groups and programs, each named by \
          run. All of it is removed at the end, and what a killed run left at the next start. Most \
          scenarios need root.",
    values: None,
    flags: &[],
    examples: &[("weir lab selftest --list", "what the analyser is tested with, here")],
};

pub(crate) const DIAGNOSE: CommandRow = CommandRow {
    name: "lab diagnose",
    about: "Say from a record what limited the run",
    doc: "Works the verdict out again from the record of a run alone: what limited it, the evidence, \
          what was ruled out and by what, and which resource would be the limit next. Of the record of \
          weir edge it is the run that the search stopped at, of a trial of weir lab run that of its \
          load. Records of weir watch from other machines, taken at the same time, are put beside it. \
          What `weir load --confirm` measured is kept for the verdict that it tested.",
    values: Some((
        "FILE",
        "The record of a run, a search or a trial, then records of weir watch from other machines",
    )),
    flags: &[Flag {
        long: "json",
        value: "FILE|-",
        doc: "Write the record with its diagnosis",
        right: &["-"],
        ..FLAG
    }],
    examples: &[("weir lab diagnose run.json", "why was it not faster")],
};

pub(crate) const TRY: CommandRow = CommandRow {
    name: "lab try",
    about: "Run one experiment: a scenario, the programs in it, and a load",
    doc: "The file is TOML with the tables [scenario], [subject], [load], and where they are needed \
          [origin] and [files]; every key stands below. `weir load` prints its summary, and its exit \
          code is ours. A load that is stopped (Ctrl-C, SIGTERM: exit code 4), or under which the subject \
          ends (exit code 1), leaves what was measured until then; the record says so (`partial`, or the \
          reason `subject_ended` of its validity).",
    values: Some(("FILE", "The experiment")),
    flags: &[
        Flag {
            long: "duration",
            short: Some('d'),
            value: "TIME",
            default: "8s",
            doc: "Length of the load where the file says {duration}; bare: s",
            right: &["8s"],
            ..FLAG
        },
        Flag {
            long: "json",
            value: "FILE|-",
            doc: "Keep the record of the load; with - to stdout, and nothing else there",
            right: &["run.json"],
            ..FLAG
        },
        Flag {
            long: "allow-global",
            doc: "Allow settings of the whole machine to be changed while it runs",
            ..FLAG
        },
        Flag {
            long: "check",
            doc: "Read the file, say what is wrong with it, and run nothing",
            ..FLAG
        },
    ],
    examples: &[
        ("weir lab try --check slow-origin.toml", "whether a file is right"),
        ("weir lab try -d 1s --json slow.json slow-origin.toml", "run it, and keep the record"),
    ],
};

pub(crate) const SELFTEST: CommandRow = CommandRow {
    name: "lab selftest",
    about: "Test the verdicts: induce each illness, and count what is said about it",
    doc: "Each case is an experiment whose limit is known. Cases and repetitions run in a random \
          order, each with fresh programs and namespaces. The result is a confusion matrix: what was \
          induced, and what `weir load` named first; and a reliability table: for each level of \
          confidence, how many of the first verdicts were right. The exit code is 4 when fewer than \
          90 % of the runs of any verdict are right, or fewer than 95 % of the healthy ones, when a \
          wrong verdict claimed to be sure, or when it was ended before every run was made. The set \
          `foreign` is the proving ground (docs/proving-ground.md): servers in Go, Node.js, Python and \
          Java, nginx and HAProxy. Its exit code is 4 when fewer than 90 % of all its runs are right, or \
          fewer than 97 % of the healthy ones.",
    values: Some(("FILE", "With --reliability: results to add up")),
    flags: &[
        Flag {
            long: "set",
            value: "induced|foreign",
            default: "induced",
            doc: "Which set of cases",
            right: &["foreign"],
            wrong: &["mine"],
            ..FLAG
        },
        Flag {
            long: "part",
            value: "development|held-out|all",
            default: "all",
            doc: "With --set foreign: cases that may be read while thresholds change, or cases that may \
                  only be run; a fixed seed split them",
            right: &["held-out"],
            ..FLAG
        },
        Flag {
            long: "only",
            value: "CODE,...",
            default: "all that this machine can show",
            doc: "Only these verdicts or cases",
            right: &["none,link_bound"],
            ..FLAG
        },
        Flag {
            long: "repetitions",
            value: "N",
            default: "5",
            doc: "How often each case runs",
            right: &["5"],
            ..FLAG
        },
        Flag {
            long: "duration",
            short: Some('d'),
            value: "TIME",
            default: "8s",
            doc: "Length of each load; bare: s",
            right: &["8s"],
            ..FLAG
        },
        Flag { long: "quick", doc: "One repetition of 3s each", ..FLAG },
        Flag {
            long: "seed",
            value: "N",
            default: "from the clock; it is printed",
            doc: "Seed of the order",
            right: &["1"],
            ..FLAG
        },
        Flag {
            long: "keep",
            value: "FOLDER",
            doc: "Keep the record of each load there",
            right: &["records"],
            ..FLAG
        },
        Flag {
            long: "json",
            value: "FILE|-",
            doc: "Write the result as JSON; with - to stdout, and nothing else there",
            right: &["selftest.json"],
            ..FLAG
        },
        Flag {
            long: "markdown",
            value: "FILE",
            doc: "Write the matrices and the reliability table as Markdown: into the marked places of the \
                  file (`<!-- begin selftest foreign-development -->` ... `<!-- end selftest -->`), or as a \
                  new file",
            right: &["docs/proving-ground.md"],
            ..FLAG
        },
        Flag {
            long: "reliability",
            doc: "Run nothing; add up the results that --json wrote before, and judge them together",
            ..FLAG
        },
        Flag {
            long: "allow-global",
            doc: "Allow settings of the whole machine to be changed while a case runs",
            ..FLAG
        },
        Flag {
            long: "list",
            doc: "List the cases, and what this machine cannot show; run nothing",
            ..FLAG
        },
    ],
    examples: &[("weir lab selftest --list", "the cases, and what cannot be shown here")],
};

pub(crate) const SICK: CommandRow = CommandRow {
    name: "lab sick",
    about: "A server with a known illness, for the self-test and for experiments",
    doc: "It answers any GET. Without flags it is healthy: a thread a connection, 100 bytes.",
    values: None,
    flags: &[
        Flag {
            long: "listen",
            value: "ADDRESS",
            default: "127.0.0.1:8000",
            doc: "Where to listen; port 0 lets the kernel choose",
            right: &["127.0.0.1:8000"],
            ..FLAG
        },
        Flag {
            long: "threads",
            short: Some('t'),
            value: "N",
            default: "one a connection",
            doc: "Threads, each of which serves many connections",
            right: &["1"],
            ..FLAG
        },
        Flag {
            long: "burn",
            value: "TIME",
            doc: "Processor time in user space for each answer; bare: us",
            right: &["200us"],
            ..FLAG
        },
        Flag {
            long: "syscalls",
            value: "N",
            doc: "System calls for each answer: small reads of /dev/zero",
            right: &["100"],
            ..FLAG
        },
        Flag {
            long: "lock",
            value: "TIME",
            doc: "Processor time for each answer under one lock for all; bare: us",
            right: &["100us"],
            ..FLAG
        },
        Flag {
            long: "allocations",
            value: "N",
            doc: "Allocations for each answer",
            right: &["1000"],
            ..FLAG
        },
        Flag {
            long: "data",
            value: "FILE",
            doc: "Make this file at the start, to read of it",
            right: &["sick.data"],
            ..FLAG
        },
        Flag {
            long: "data-bytes",
            value: "SIZE",
            default: "one page",
            doc: "Size of that file",
            right: &["64m"],
            ..FLAG
        },
        Flag {
            long: "pages",
            value: "N",
            default: "none",
            doc: "Pages of 4 KiB that each answer reads of it, at random",
            right: &["16"],
            ..FLAG
        },
        Flag {
            long: "log",
            value: "FILE",
            doc: "Write a line for each answer",
            right: &["sick.log"],
            ..FLAG
        },
        Flag {
            long: "log-dsync",
            doc: "Have each line on the disk before the answer goes",
            ..FLAG
        },
        Flag {
            long: "log-pipe",
            value: "SIZE",
            doc: "Write a line for each answer into a pipe that is read at so many bytes per second",
            right: &["64k"],
            ..FLAG
        },
        Flag {
            long: "split-write",
            doc: "Write head and body apart, with Nagle's algorithm on",
            ..FLAG
        },
        Flag {
            long: "backlog",
            value: "N",
            default: "1024",
            doc: "Connections that may wait to be accepted",
            right: &["8"],
            ..FLAG
        },
        Flag {
            long: "accept-delay",
            value: "TIME",
            doc: "A pause before each accept; bare: ms",
            right: &["20ms"],
            ..FLAG
        },
        Flag {
            long: "delay",
            value: "TIME",
            doc: "A pause before each answer; bare: ms",
            right: &["20ms"],
            ..FLAG
        },
        Flag {
            long: "fail-share",
            value: "SHARE",
            doc: "Share of the requests that get a 500",
            right: &["5%"],
            ..FLAG
        },
        Flag {
            long: "drop-share",
            value: "SHARE",
            doc: "Share of the requests that get no answer, and their connection closed",
            right: &["5%"],
            ..FLAG
        },
        Flag {
            long: "body",
            value: "SIZE",
            default: "100",
            doc: "Bytes of a body",
            right: &["10k"],
            ..FLAG
        },
        Flag { long: "close-each", doc: "Close the connection after each answer", ..FLAG },
        Flag {
            long: "ignore-close",
            doc: "Leave closing to the client, also when it asks for it",
            ..FLAG
        },
    ],
    examples: &[(
        "weir lab sick --listen 127.0.0.1:0 --threads 1 --burn 200us",
        "a server that is bound by its one thread",
    )],
};
