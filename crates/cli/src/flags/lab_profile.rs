//! The flags of `weir lab profile`.

use super::{CommandInfo, flag};

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
        flag("pid", "PID")
            .short('p')
            .repeatable()
            .values(&["1"], &["0", "x", "3000000000"])
            .doc("Process to profile, with its children; repeatable"),
        flag("port", "PORT")
            .values(&["8080"], &["0", "70000", "x"])
            .doc("TCP port whose listening processes are profiled"),
        flag("duration", "TIME")
            .short('d')
            .default("10s")
            .values(&["2s", "500ms"], &["0", "2h", "x"])
            .doc("Duration, 1 h or less; default unit: s"),
        flag("frequency", "HZ")
            .short('F')
            .default("999")
            .values(&["99", "4999"], &["0", "20k", "x"])
            .doc("Samples per second of CPU time, 10,000 or less"),
        flag("svg", "FILE|-").values(&["flame.svg"], &[]).doc(
            "Write a flame graph; with --baseline a differential one: red has grown, blue has \
             shrunk",
        ),
        flag("folded", "FILE|-")
            .values(&["run.folded"], &[])
            .doc("Write folded stacks, the input of flame graph tools"),
        flag("json", "FILE|-").values(&["-"], &[]).doc(
            "Write the profile as JSON; - writes it to stdout instead of the tables; --svg \
             and --folded accept - too, one of the three at a time",
        ),
        flag("baseline", "FILE")
            .values(&["before.folded"], &[])
            .doc("Folded stacks of another run to compare with"),
        flag("calls", "LIST")
            .values(&["malloc,syscalls,futex", "allocations"], &["Malloc", "malloc,,free", "a/b"])
            .doc(
                "Functions whose calls are counted, for 1 s each: syscalls, malloc, calloc, \
                 realloc, free, allocations (all functions that return new memory, so that \
                 allocators are comparable), or the name of a system call",
            ),
        flag("top", "N").default("20").values(&["5"], &["0", "x"]).doc("Number of functions to print"),
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
