//! The ready-made experiments: files that run as they are, and that are there to be copied and changed.
//!
//! Each is a file below `ready/`, with a row here that says what it is for and what it needs.

/// A ready-made experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ready {
    /// Its name: `weir lab run NAME`.
    pub name: &'static str,
    /// What it asks, in a line: its file's title.
    pub title: &'static str,
    /// What its answer is good for, in a sentence.
    pub question: &'static str,
    /// Programs that have to be installed.
    pub programs: &'static [&'static str],
    /// What else it needs; empty: nothing.
    pub besides: &'static str,
    /// Its file.
    pub text: &'static str,
}

macro_rules! ready {
    ($name:literal, $title:literal, $question:literal, $programs:expr, $besides:literal) => {
        Ready {
            name: $name,
            title: $title,
            question: $question,
            programs: &$programs,
            besides: $besides,
            text: include_str!(concat!("ready/", $name, ".toml")),
        }
    };
}

/// All of them: first what tells of the machine, then comparisons, then curves.
pub const READY: &[Ready] = &[
    ready!(
        "same",
        "How far apart are two results of the same thing on this machine?",
        "The noise of this machine, which is the smallest difference that any experiment can see on it",
        [],
        ""
    ),
    ready!(
        "burn",
        "Does the lab find 3 % more work per response?",
        "A self-check with a known answer: the second arm is slower, by about 6 us per response",
        [],
        ""
    ),
    ready!(
        "allocator",
        "Does another memory allocator make nginx faster?",
        "glibc's malloc against jemalloc and mimalloc in the same server, with its allocations counted",
        ["nginx"],
        "the libraries of jemalloc and mimalloc (Debian: libjemalloc2, libmimalloc2.0)"
    ),
    ready!(
        "build-flags",
        "Which of two builds of a server is faster?",
        "Two binaries of yours, by compiler flags, compiler, version or a change of yours, and the \
         functions in which they differ",
        [],
        "two commands: --set before='...' --set after='...'"
    ),
    ready!(
        "log",
        "What does nginx's access log cost?",
        "Whether to log, to log in larger writes, or not to worry",
        ["nginx"],
        ""
    ),
    ready!(
        "tls",
        "What does TLS cost nginx?",
        "The price of encryption on kept connections, and of handshakes on new ones",
        ["nginx", "openssl", "wrk"],
        ""
    ),
    ready!(
        "proxies",
        "What does a proxy add to the latency of a service?",
        "The service alone against weir, HAProxy and nginx before it, at a rate that all carry with ease",
        ["haproxy", "nginx"],
        ""
    ),
    ready!(
        "proxy-shootout",
        "Which proxy takes the least of a processor: HAProxy, nginx or weir?",
        "How much of a processor each proxy needs for the same work, at its limit and below it",
        ["haproxy", "nginx"],
        ""
    ),
    ready!(
        "profile",
        "In which functions is the difference between two arms?",
        "Which functions became dearer, as a table and as a flame graph of differences",
        [],
        ""
    ),
    ready!(
        "cpu-quota",
        "How many processors does a server need?",
        "What to give a container or a small virtual machine: throughput and tail by processors",
        [],
        ""
    ),
    ready!(
        "threads",
        "How much faster does a server get with more threads?",
        "How well a server scales, and with how many threads more would be less",
        [],
        ""
    ),
    ready!(
        "connections",
        "How does a server behave with more and more connections?",
        "From how many connections on more of them only wait",
        [],
        ""
    ),
    ready!(
        "table",
        "Rates, latencies and processors over generator threads and connections",
        "The whole table of a load test, with both sides' processors beside each row",
        [],
        ""
    ),
];

/// The one of this name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Ready> {
    READY.iter().find(|ready| ready.name == name)
}
