//! The flags of `weir lab` and its subcommands, except those of `lab_experiment` and
//! `lab_profile`.

use proving_ground::foreign::CASES_DIRECTORY;

use super::{CommandFlags, CommandInfo, Destination, Flag, command_flags, flag, switch};

const ALLOW_GLOBAL_DOC: &str = "Allow changes of host-wide settings (restored afterwards)";
/// Flag of the commands that run scenarios.
pub(super) const ALLOW_GLOBAL: Flag = switch("allow-global").doc(ALLOW_GLOBAL_DOC);

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
    flags: DiagnoseFlags::FLAGS,
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
        flag("duration", "TIME")
            .short('d')
            .default("8s")
            .values(&["8s"], &[])
            .doc("Duration of the load; replaces {duration} in the file; default unit: s"),
        flag("json", "FILE|-")
            .values(&["run.json"], &[])
            .doc("Write the record of the load; - writes it to stdout, and nothing else"),
        ALLOW_GLOBAL,
        switch("check").doc("Check the file without running it; as weir lab run --check does"),
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
        flag("set", "induced|foreign").default("induced").values(&["foreign"], &["mine"]).doc("Set of cases"),
        flag("cases", "DIR")
            .default(CASES_DIRECTORY)
            .values(&["crates/proving_ground/cases/foreign"], &[])
            .doc("With --set foreign: directory of the cases, which packages install"),
        flag("part", "development|held-out|all").default("all").values(&["held-out"], &[]).doc(
            "Part of the foreign set: development cases may be read while thresholds change, \
             held-out cases may only be run; a fixed seed split them",
        ),
        flag("only", "CODE,...")
            .default("all that this machine supports")
            .values(&["none,link_bound"], &[])
            .doc("Verdicts or cases to run"),
        flag("repetitions", "N").default("5").values(&["5"], &[]).doc("Runs per case"),
        flag("duration", "TIME")
            .short('d')
            .default("8s")
            .values(&["8s"], &[])
            .doc("Duration of each load; default unit: s"),
        switch("quick").doc("Run each case once, for 3 s"),
        flag("seed", "N").default("from the clock; printed").values(&["1"], &[]).doc("Seed of the order"),
        flag("keep", "DIR").values(&["records"], &[]).doc("Directory for the records of the loads"),
        flag("load-prefix", "COMMAND").values(&["nice -n 0"], &["no-such-program-of-weir"]).doc(
            "Command that starts each load; the path of weir and its arguments follow. It tests the diagnosis with \
             less to observe, as an unprivileged user or in a container",
        ),
        flag("json", "FILE|-")
            .values(&["selftest.json"], &[])
            .doc("Write the result as JSON; - writes it to stdout, and nothing else"),
        flag("markdown", "FILE").values(&["docs/proving-ground.md"], &[]).doc(
            "Write the tables as Markdown; into the marked sections of the file (`<!-- begin \
             selftest foreign-development -->` ... `<!-- end selftest -->`), or as a new \
             file",
        ),
        switch("reliability").doc("Combine results that --json wrote; runs no case"),
        ALLOW_GLOBAL,
        switch("list").doc("List the cases, including those that cannot run here"),
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
        flag("listen", "ADDRESS")
            .default("127.0.0.1:8000")
            .values(&["127.0.0.1:8000"], &[])
            .doc("Address to listen on; port 0 lets the kernel choose"),
        flag("threads", "N")
            .short('t')
            .default("one per connection")
            .values(&["1"], &[])
            .doc("Worker threads, each with many connections"),
        flag("burn", "TIME")
            .values(&["200us"], &[])
            .doc("CPU time in user space per response; without a unit: µs"),
        flag("syscalls", "N")
            .values(&["100"], &[])
            .doc("System calls per response: small reads of /dev/zero"),
        flag("lock", "TIME")
            .values(&["100us"], &[])
            .doc("CPU time per response under one global lock; without a unit: µs"),
        flag("allocations", "N").values(&["1000"], &[]).doc("Allocations per response"),
        flag("data", "FILE").values(&["server.data"], &[]).doc("Create this data file at the start"),
        flag("data-bytes", "SIZE").default("one page").values(&["64m"], &[]).doc("Size of the data file"),
        flag("pages", "N")
            .default("none")
            .values(&["16"], &[])
            .doc("Pages of 4 KiB that each response reads from the data file, at random"),
        flag("log", "FILE").values(&["server.log"], &[]).doc("Write a log line per response"),
        switch("log-dsync").doc("Write each log line to the disk before the response is sent"),
        flag("log-pipe", "SIZE")
            .values(&["64k"], &[])
            .doc("Write a log line per response into a pipe that is read at this rate in bytes per second"),
        switch("split-write").doc("Send head and body in two writes, with Nagle's algorithm enabled"),
        flag("backlog", "N").default("1024").values(&["8"], &[]).doc("Length of the accept queue"),
        flag("accept-delay", "TIME")
            .values(&["20ms"], &[])
            .doc("Pause before each accept; without a unit: ms"),
        flag("delay", "TIME").values(&["20ms"], &[]).doc("Pause before each response; without a unit: ms"),
        flag("error-fraction", "FRACTION")
            .values(&["5%"], &[])
            .doc("Fraction of requests that get a 500 response"),
        flag("drop-fraction", "FRACTION")
            .values(&["5%"], &[])
            .doc("Fraction of requests whose connection is closed without a response"),
        flag("body", "SIZE").default("100").values(&["10k"], &[]).doc("Size of a response body"),
        switch("close-after-response").doc("Close the connection after each response"),
        switch("ignore-close").doc("Never close a connection, even if the client asks for it"),
    ],
    examples: &[(
        "weir lab faulty-server --listen 127.0.0.1:0 --threads 1 --burn 200us",
        "a server that is limited by its single thread",
    )],
};

command_flags! {
    pub(crate) struct DiagnoseFlags {
        json: Destination = flag("json", "FILE|-")
            .values(&["-"], &[])
            .doc("Write the record with its diagnosis; - writes it to stdout")
            .destination(),
    }
}
