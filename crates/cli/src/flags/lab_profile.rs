//! The flags of `weir lab profile`.

use super::{CommandRow, FLAG, Flag};

pub(crate) const PROFILE: CommandRow = CommandRow {
    name: "lab profile",
    about: "Say which functions of a program and of the kernel take its processor time",
    doc: "Samples the call chains of processes, of those that they start too, by the kernel's own \
          clock; no other program is needed. Names come from the programs' own tables of symbols, \
          from files with debug information that belong to them, and from the kernel; a stripped \
          function is named by where it begins. Callers are found by frame pointers, so that those of \
          a program that was built without them may be missing; what is on top is right all the same. \
          Without leave to sample the kernel (kernel.perf_event_paranoid), user space is sampled \
          alone, and that is said.\n\nCalls are counted after the sampling, which they would \
          distort. They are counted in short bursts, so that it costs the program at most 2 % of a core. \
          When the program is HAProxy, its own table of tasks is read from its stats socket, for a \
          second.\n\nA COMMAND gets no input, its output goes to stderr, and it is ended when the time is \
          over.",
    values: Some(("COMMAND", "A program to start and to sample, behind --")),
    flags: &[
        Flag {
            long: "pid",
            short: Some('p'),
            value: "PID",
            many: true,
            doc: "A process to sample, with its children; may be given several times",
            right: &["1"],
            wrong: &["0", "x", "3000000000"],
            ..FLAG
        },
        Flag {
            long: "port",
            value: "PORT",
            doc: "Sample the processes that listen on this TCP port",
            right: &["8080"],
            wrong: &["0", "70000", "x"],
            ..FLAG
        },
        Flag {
            long: "duration",
            short: Some('d'),
            value: "TIME",
            default: "10s",
            doc: "For how long, an hour at the most; bare: s",
            right: &["2s", "500ms"],
            wrong: &["0", "2h", "x"],
            ..FLAG
        },
        Flag {
            long: "frequency",
            short: Some('F'),
            value: "HZ",
            default: "999",
            doc: "Samples per second of processor time, 10,000 at the most",
            right: &["99", "4999"],
            wrong: &["0", "20k", "x"],
            ..FLAG
        },
        Flag {
            long: "svg",
            value: "FILE|-",
            doc: "Draw a flame graph; with --against one of the difference: red has grown, blue shrunk",
            right: &["flame.svg"],
            ..FLAG
        },
        Flag {
            long: "folded",
            value: "FILE|-",
            doc: "Write the stacks as text that flame graphs are drawn from",
            right: &["run.folded"],
            ..FLAG
        },
        Flag {
            long: "json",
            value: "FILE|-",
            doc: "Write all as JSON; this, or one of the two above, with - to stdout instead of the tables",
            right: &["-"],
            ..FLAG
        },
        Flag {
            long: "against",
            value: "FILE",
            doc: "Compare with these folded stacks of another run: shares before and after",
            right: &["before.folded"],
            ..FLAG
        },
        Flag {
            long: "calls",
            value: "LIST",
            doc: "Count calls, for a second each: syscalls, malloc, calloc, realloc, free, allocations \
                  (whatever gives new memory, so that allocators compare), or a system call by its name",
            right: &["malloc,syscalls,futex", "allocations"],
            wrong: &["Malloc", "malloc,,free", "a/b"],
            ..FLAG
        },
        Flag {
            long: "top",
            value: "N",
            default: "20",
            doc: "Functions to show",
            right: &["5"],
            wrong: &["0", "x"],
            ..FLAG
        },
    ],
    examples: &[
        (
            "weir lab profile -d 5s --folded before.folded --svg flame.svg -- weir load -c 2 -d 1s \
             http://127.0.0.1:8000/",
            "a command, to its end or for five seconds",
        ),
        (
            "weir lab profile -d 500ms --against before.folded --calls malloc,syscalls -- weir load -c 2 \
             -d 5s http://127.0.0.1:8000/",
            "what has changed since, and how often memory is asked for",
        ),
    ],
};
