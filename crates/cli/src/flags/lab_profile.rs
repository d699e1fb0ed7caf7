//! The flags of `weir lab profile`.

use super::{CommandInfo, FLAG_DEFAULTS, Flag};

pub(crate) const PROFILE: CommandInfo = CommandInfo {
    name: "lab profile",
    about: "Profile the CPU time of processes and kernel by function",
    doc: "Samples call chains of processes and their children with the kernel's perf events; no \
          other program is needed. Symbols come from the executables, from their debug files, and \
          from the kernel; a function without a symbol is named by its start address. Call chains \
          use frame pointers, so callers of code that was built without them may be missing; the \
          function on top is correct anyway. Without permission to sample the kernel \
          (kernel.perf_event_paranoid) only user space is sampled, with a note.\n\nCalls are \
          counted after the sampling, because counting would distort it. They are counted in \
          short bursts, so that it costs the process at most 2 % of a core. For HAProxy, its own \
          task table is read from its stats socket, over one second.\n\nA COMMAND gets no input \
          and its output goes to stderr. It is stopped at the end of the duration.",
    values: Some(("COMMAND", "Command to start and profile, after --")),
    flags: &[
        Flag {
            long: "pid",
            short: Some('p'),
            value: "PID",
            repeatable: true,
            doc: "Process to profile, with its children; repeatable",
            valid: &["1"],
            invalid: &["0", "x", "3000000000"],
            ..FLAG_DEFAULTS
        },
        Flag {
            long: "port",
            value: "PORT",
            doc: "TCP port whose listening processes are profiled",
            valid: &["8080"],
            invalid: &["0", "70000", "x"],
            ..FLAG_DEFAULTS
        },
        Flag {
            long: "duration",
            short: Some('d'),
            value: "TIME",
            default: "10s",
            doc: "Duration, 1 h or less; default unit: s",
            valid: &["2s", "500ms"],
            invalid: &["0", "2h", "x"],
            ..FLAG_DEFAULTS
        },
        Flag {
            long: "frequency",
            short: Some('F'),
            value: "HZ",
            default: "999",
            doc: "Samples per second of CPU time, 10,000 or less",
            valid: &["99", "4999"],
            invalid: &["0", "20k", "x"],
            ..FLAG_DEFAULTS
        },
        Flag {
            long: "svg",
            value: "FILE|-",
            doc: "Write a flame graph; with --baseline a differential one: red has grown, blue has \
                  shrunk",
            valid: &["flame.svg"],
            ..FLAG_DEFAULTS
        },
        Flag {
            long: "folded",
            value: "FILE|-",
            doc: "Write folded stacks, the input of flame graph tools",
            valid: &["run.folded"],
            ..FLAG_DEFAULTS
        },
        Flag {
            long: "json",
            value: "FILE|-",
            doc: "Write the profile as JSON; - writes it to stdout instead of the tables; --svg \
                  and --folded accept - too, one of the three at a time",
            valid: &["-"],
            ..FLAG_DEFAULTS
        },
        Flag {
            long: "baseline",
            value: "FILE",
            doc: "Folded stacks of another run to compare with",
            valid: &["before.folded"],
            ..FLAG_DEFAULTS
        },
        Flag {
            long: "calls",
            value: "LIST",
            doc: "Functions whose calls are counted, for 1 s each: syscalls, malloc, calloc, \
                  realloc, free, allocations (all functions that return new memory, so that \
                  allocators are comparable), or the name of a system call",
            valid: &["malloc,syscalls,futex", "allocations"],
            invalid: &["Malloc", "malloc,,free", "a/b"],
            ..FLAG_DEFAULTS
        },
        Flag {
            long: "top",
            value: "N",
            default: "20",
            doc: "Number of functions to print",
            valid: &["5"],
            invalid: &["0", "x"],
            ..FLAG_DEFAULTS
        },
    ],
    examples: &[
        (
            "weir lab profile -d 5s --folded before.folded --svg flame.svg -- weir load -c 2 -d 1s \
             http://127.0.0.1:8000/",
            "profile a command for up to five seconds",
        ),
        (
            "weir lab profile -d 500ms --baseline before.folded --calls malloc,syscalls -- weir load -c 2 \
             -d 5s http://127.0.0.1:8000/",
            "compare with it, and count allocations and system calls",
        ),
    ],
};
