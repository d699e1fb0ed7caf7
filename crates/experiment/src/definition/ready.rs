//! Ready-made experiments: files that run as they are and serve as templates.
//!
//! Each is a file in `ready/`, with a row here for its purpose and its requirements.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadyMadeExperiment {
    /// Its name: `weir lab run NAME`.
    pub name: &'static str,
    /// Question in one line: the title of its file.
    pub title: &'static str,
    /// Use of its result, in a sentence.
    pub question: &'static str,
    pub programs: &'static [&'static str],
    /// Other requirements; empty if there are none.
    pub other_requirements: &'static str,
    pub text: &'static str,
}

macro_rules! ready {
    ($name:literal, $title:literal, $question:literal, $programs:expr, $other_requirements:literal) => {
        ReadyMadeExperiment {
            name: $name,
            title: $title,
            question: $question,
            programs: &$programs,
            other_requirements: $other_requirements,
            text: include_str!(concat!("ready/", $name, ".toml")),
        }
    };
}

/// All ready-made experiments: first those about the machine, then comparisons, then curves.
pub const READY_MADE: &[ReadyMadeExperiment] = &[
    ready!(
        "same",
        "How much do two measurements of the same server differ on this machine?",
        "The noise of this machine: the smallest difference that an experiment can detect on it",
        [],
        ""
    ),
    ready!(
        "burn",
        "Does the lab find 3 % more work per response?",
        "A self-check with a known result: the second arm is slower by about 6 µs per response",
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
        "Two of your binaries (other flags, compiler, version or code), and the functions in which \
         they differ",
        [],
        "two commands: --set before='...' --set after='...'"
    ),
    ready!(
        "log",
        "What does nginx's access log cost?",
        "No log, a buffered log, and one write per line",
        ["nginx"],
        ""
    ),
    ready!(
        "tls",
        "What does TLS cost nginx?",
        "The cost of encryption on keep-alive connections, and of handshakes on new connections",
        ["nginx", "openssl", "wrk"],
        ""
    ),
    ready!(
        "tls-keys",
        "Which certificate costs less: RSA or ECDSA?",
        "The cost of a full handshake with either key",
        ["openssl"],
        ""
    ),
    ready!(
        "tls-resumption",
        "What does resumption save of a TLS handshake?",
        "Full handshakes, resumed handshakes, and a mix of both",
        ["openssl"],
        ""
    ),
    ready!(
        "http2",
        "What does HTTP/2 cost a server, compared with HTTP/1.1?",
        "The same requests at a time on connections of their own, and as streams of a few connections",
        [],
        ""
    ),
    ready!(
        "stacked-bodies",
        "How fast do large bodies pass two layers of a proxy over HTTP/2?",
        "Bytes per second and CPU time of HAProxy and weir with HTTP/2 on both sides",
        ["haproxy"],
        ""
    ),
    ready!(
        "proxies",
        "What does a proxy add to the latency of a service?",
        "The service alone, and behind weir, HAProxy and nginx, at a rate that all carry easily",
        ["haproxy", "nginx"],
        ""
    ),
    ready!(
        "proxy-shootout",
        "Which proxy uses the least CPU time: HAProxy, nginx or weir?",
        "CPU time of each proxy for the same work, at its limit and below it",
        ["haproxy", "nginx"],
        ""
    ),
    ready!(
        "profile",
        "In which functions do two arms differ?",
        "Functions whose cost changed, as a table and as a differential flame graph",
        [],
        ""
    ),
    ready!(
        "cpu-quota",
        "How many CPUs does a server need?",
        "Sizing of a container or a small virtual machine: throughput and tail latency by CPUs",
        [],
        ""
    ),
    ready!(
        "threads",
        "How much faster does a server get with more threads?",
        "Scaling of a server with its threads, and the number of threads beyond which it gets slower",
        [],
        ""
    ),
    ready!(
        "connections",
        "How does a server behave with an increasing number of connections?",
        "The number of connections beyond which more of them only wait",
        [],
        ""
    ),
    ready!(
        "user-space-tcp",
        "What does TCP in user space save?",
        "CPU time of both ends over the kernel's sockets and over AF_XDP, for responses of 100 B to 100 kB, with 1, \
         2 and 4 threads",
        [],
        "root; Linux 5.9 or newer; 4 CPUs for 2 threads, 8 for 4"
    ),
    ready!(
        "connection-per-request",
        "What does a proxy carry if every request has its own connection?",
        "A base without arms for weir tune trial: connections on both sides load the host's TCP settings",
        [],
        ""
    ),
    ready!(
        "table",
        "Rates, latencies and CPUs over generator threads and connections",
        "The complete table of a load test, with the CPU use of both sides in each row",
        [],
        ""
    ),
];

pub fn find_ready_made(name: &str) -> Option<&'static ReadyMadeExperiment> {
    READY_MADE.iter().find(|ready| ready.name == name)
}
