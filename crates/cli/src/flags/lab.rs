//! The flags of `weir lab` and its subcommands, except those of `lab_experiment` and
//! `lab_profile`.

use super::{CommandInfo, FLAG_DEFAULTS, Flag};

const ALLOW_GLOBAL_DOC: &str = "Allow changes of host-wide settings (restored afterwards)";
/// Flag of the commands that run scenarios.
pub(super) const ALLOW_GLOBAL: Flag = Flag { long: "allow-global", doc: ALLOW_GLOBAL_DOC, ..FLAG_DEFAULTS };

pub(crate) const LAB: CommandInfo = CommandInfo {
    name: "lab",
    about: "Diagnose, profile and compare services",
    doc: "Also runs experiments and the self-test of the diagnosis. The subcommands create network \
          namespaces, cgroups and processes, named after the run. All of them are removed at the end; \
          those of a killed run are removed at the next start. Most scenarios need root.",
    values: None,
    flags: &[],
    examples: &[("weir lab selftest --list", "test cases of the diagnosis")],
};

pub(crate) const DIAGNOSE: CommandInfo = CommandInfo {
    name: "lab diagnose",
    about: "Diagnose what limited a recorded run",
    doc: "Computes the diagnosis again from the record of a run: its limit, the evidence, the \
          alternatives that were ruled out and why, and the resource that would be the next \
          limit. For a record of weir edge it diagnoses the run at which the search stopped, for \
          a trial of weir lab run its load. Records of weir watch from other machines, taken at \
          the same time, are included. The results of `weir load --confirm` are kept for the \
          verdict that they tested.",
    values: Some((
        "FILE",
        "Record of a run, a search or a trial; then records of weir watch from other machines",
    )),
    flags: &[Flag {
        long: "json",
        value: "FILE|-",
        doc: "Write the record with its diagnosis; - writes it to stdout",
        valid: &["-"],
        ..FLAG_DEFAULTS
    }],
    examples: &[("weir lab diagnose run.json", "find the limit of a recorded run")],
};

pub(crate) const TRY: CommandInfo = CommandInfo {
    name: "lab try",
    about: "Run one scenario file (server, network, faults) once under load",
    doc: "The file is TOML with the tables [scenario], [subject] and [load], and optionally \
          [origin] and [files]; all keys are listed below. `weir load` prints its summary, and \
          its exit code is returned. If the load is stopped (Ctrl-C, SIGTERM: exit code 4), or \
          the subject exits during the load (exit code 1), the results up to then are kept, and \
          stored with --json; the record reports it (`partial`, or the reason `subject_ended` of its \
          validity).",
    values: Some(("FILE", "Scenario file in TOML")),
    flags: &[
        Flag {
            long: "duration",
            short: Some('d'),
            value: "TIME",
            default: "8s",
            doc: "Duration of the load; replaces {duration} in the file; default unit: s",
            valid: &["8s"],
            ..FLAG_DEFAULTS
        },
        Flag {
            long: "json",
            value: "FILE|-",
            doc: "Write the record of the load; - writes it to stdout, and nothing else",
            valid: &["run.json"],
            ..FLAG_DEFAULTS
        },
        ALLOW_GLOBAL,
        Flag {
            long: "check",
            doc: "Check the file without running it; as weir lab run --check does",
            ..FLAG_DEFAULTS
        },
    ],
    examples: &[
        ("weir lab try --check slow-origin.toml", "check a file"),
        ("weir lab try -d 1s --json slow.json slow-origin.toml", "run it, and store the record"),
    ],
};

pub(crate) const SELFTEST: CommandInfo = CommandInfo {
    name: "lab selftest",
    about: "Test the diagnosis against injected faults",
    doc: "Each case is an experiment with a known limit. Cases and repetitions run in random \
          order, each with fresh processes and namespaces. The result is a confusion matrix \
          (injected fault against first verdict of `weir load`) and a reliability table (fraction \
          of correct first verdicts per confidence level). Exit code 4: fewer than 90 % of the \
          runs of any verdict are correct, or fewer than 95 % of the healthy ones, or a wrong \
          verdict claimed the confidence `sure`, or the test was stopped early. The set `foreign` is \
          the proving ground (docs/proving-ground.md): servers in Go, Node.js, Python, Java, Ruby, \
          PHP and Perl, nginx, HAProxy, Apache, lighttpd, Caddy and Varnish. Its exit code is 4 \
          if fewer than 90 % of all its runs are correct, or fewer than 97 % of the healthy ones.",
    values: Some(("FILE", "Results to combine, for --reliability")),
    flags: &[
        Flag {
            long: "set",
            value: "induced|foreign",
            default: "induced",
            doc: "Set of cases",
            valid: &["foreign"],
            invalid: &["mine"],
            ..FLAG_DEFAULTS
        },
        Flag {
            long: "part",
            value: "development|held-out|all",
            default: "all",
            doc: "Part of the foreign set: development cases may be read while thresholds change, \
                  held-out cases may only be run; a fixed seed split them",
            valid: &["held-out"],
            ..FLAG_DEFAULTS
        },
        Flag {
            long: "only",
            value: "CODE,...",
            default: "all that this machine supports",
            doc: "Verdicts or cases to run",
            valid: &["none,link_bound"],
            ..FLAG_DEFAULTS
        },
        Flag {
            long: "repetitions",
            value: "N",
            default: "5",
            doc: "Runs per case",
            valid: &["5"],
            ..FLAG_DEFAULTS
        },
        Flag {
            long: "duration",
            short: Some('d'),
            value: "TIME",
            default: "8s",
            doc: "Duration of each load; default unit: s",
            valid: &["8s"],
            ..FLAG_DEFAULTS
        },
        Flag { long: "quick", doc: "Run each case once, for 3 s", ..FLAG_DEFAULTS },
        Flag {
            long: "seed",
            value: "N",
            default: "from the clock; printed",
            doc: "Seed of the order",
            valid: &["1"],
            ..FLAG_DEFAULTS
        },
        Flag {
            long: "keep",
            value: "DIR",
            doc: "Directory for the records of the loads",
            valid: &["records"],
            ..FLAG_DEFAULTS
        },
        Flag {
            long: "json",
            value: "FILE|-",
            doc: "Write the result as JSON; - writes it to stdout, and nothing else",
            valid: &["selftest.json"],
            ..FLAG_DEFAULTS
        },
        Flag {
            long: "markdown",
            value: "FILE",
            doc: "Write the tables as Markdown; into the marked sections of the file (`<!-- begin \
                  selftest foreign-development -->` ... `<!-- end selftest -->`), or as a new \
                  file",
            valid: &["docs/proving-ground.md"],
            ..FLAG_DEFAULTS
        },
        Flag { long: "reliability", doc: "Combine results that --json wrote; runs no case", ..FLAG_DEFAULTS },
        ALLOW_GLOBAL,
        Flag { long: "list", doc: "List the cases, including those that cannot run here", ..FLAG_DEFAULTS },
    ],
    examples: &[("weir lab selftest --list", "cases, and those that this machine does not support")],
};

pub(crate) const FAULTY_SERVER: CommandInfo = CommandInfo {
    name: "lab faulty-server",
    about: "A server with fault injection, for the self-test and for experiments",
    doc: "The server responds to any GET. Without flags it has no fault: one thread per connection, \
          bodies of 100 bytes.",
    values: None,
    flags: &[
        Flag {
            long: "listen",
            value: "ADDRESS",
            default: "127.0.0.1:8000",
            doc: "Address to listen on; port 0 lets the kernel choose",
            valid: &["127.0.0.1:8000"],
            ..FLAG_DEFAULTS
        },
        Flag {
            long: "threads",
            short: Some('t'),
            value: "N",
            default: "one per connection",
            doc: "Worker threads, each with many connections",
            valid: &["1"],
            ..FLAG_DEFAULTS
        },
        Flag {
            long: "burn",
            value: "TIME",
            doc: "CPU time in user space per response; without a unit: µs",
            valid: &["200us"],
            ..FLAG_DEFAULTS
        },
        Flag {
            long: "syscalls",
            value: "N",
            doc: "System calls per response: small reads of /dev/zero",
            valid: &["100"],
            ..FLAG_DEFAULTS
        },
        Flag {
            long: "lock",
            value: "TIME",
            doc: "CPU time per response under one global lock; without a unit: µs",
            valid: &["100us"],
            ..FLAG_DEFAULTS
        },
        Flag {
            long: "allocations",
            value: "N",
            doc: "Allocations per response",
            valid: &["1000"],
            ..FLAG_DEFAULTS
        },
        Flag {
            long: "data",
            value: "FILE",
            doc: "Create this data file at the start",
            valid: &["server.data"],
            ..FLAG_DEFAULTS
        },
        Flag {
            long: "data-bytes",
            value: "SIZE",
            default: "one page",
            doc: "Size of the data file",
            valid: &["64m"],
            ..FLAG_DEFAULTS
        },
        Flag {
            long: "pages",
            value: "N",
            default: "none",
            doc: "Pages of 4 KiB that each response reads from the data file, at random",
            valid: &["16"],
            ..FLAG_DEFAULTS
        },
        Flag {
            long: "log",
            value: "FILE",
            doc: "Write a log line per response",
            valid: &["server.log"],
            ..FLAG_DEFAULTS
        },
        Flag {
            long: "log-dsync",
            doc: "Write each log line to the disk before the response is sent",
            ..FLAG_DEFAULTS
        },
        Flag {
            long: "log-pipe",
            value: "SIZE",
            doc: "Write a log line per response into a pipe that is read at this rate in bytes per second",
            valid: &["64k"],
            ..FLAG_DEFAULTS
        },
        Flag {
            long: "split-write",
            doc: "Send head and body in two writes, with Nagle's algorithm enabled",
            ..FLAG_DEFAULTS
        },
        Flag {
            long: "backlog",
            value: "N",
            default: "1024",
            doc: "Length of the accept queue",
            valid: &["8"],
            ..FLAG_DEFAULTS
        },
        Flag {
            long: "accept-delay",
            value: "TIME",
            doc: "Pause before each accept; without a unit: ms",
            valid: &["20ms"],
            ..FLAG_DEFAULTS
        },
        Flag {
            long: "delay",
            value: "TIME",
            doc: "Pause before each response; without a unit: ms",
            valid: &["20ms"],
            ..FLAG_DEFAULTS
        },
        Flag {
            long: "error-fraction",
            value: "FRACTION",
            doc: "Fraction of requests that get a 500 response",
            valid: &["5%"],
            ..FLAG_DEFAULTS
        },
        Flag {
            long: "drop-fraction",
            value: "FRACTION",
            doc: "Fraction of requests whose connection is closed without a response",
            valid: &["5%"],
            ..FLAG_DEFAULTS
        },
        Flag {
            long: "body",
            value: "SIZE",
            default: "100",
            doc: "Size of a response body",
            valid: &["10k"],
            ..FLAG_DEFAULTS
        },
        Flag {
            long: "close-after-response",
            doc: "Close the connection after each response",
            ..FLAG_DEFAULTS
        },
        Flag {
            long: "ignore-close",
            doc: "Never close a connection, even if the client asks for it",
            ..FLAG_DEFAULTS
        },
    ],
    examples: &[(
        "weir lab faulty-server --listen 127.0.0.1:0 --threads 1 --burn 200us",
        "a server that is limited by its single thread",
    )],
};
