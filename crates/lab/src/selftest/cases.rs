//! The cases: which verdict is right, the experiment that induces it, and what it needs; and the
//! verdicts that no experiment here can induce, each with the reason.

use super::foreign::FOREIGN;

/// What a case needs of the machine, besides root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Nothing more.
    Nothing,
    /// A program in the search path.
    Program(&'static str),
    /// So many processors.
    Cpus(u32),
    /// Settings of the whole machine are changed.
    Global,
}

/// A set of cases.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Set {
    /// One known cause each, mostly with programs of weir's own: [`CASES`].
    #[default]
    Induced,
    /// The proving ground: servers as other people write and configure them: [`super::foreign`].
    Foreign,
}

impl Set {
    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Induced => "induced",
            Self::Foreign => "foreign",
        }
    }

    /// The set of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        [Self::Induced, Self::Foreign].into_iter().find(|set| set.name() == name)
    }

    /// Its cases.
    #[must_use]
    pub fn cases(self) -> &'static [Case] {
        match self {
            Self::Induced => CASES,
            Self::Foreign => FOREIGN,
        }
    }
}

/// The kind of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// No limit is reached.
    Healthy,
    /// One cause, with its usual signs.
    Single,
    /// It has a sign of one cause, and another cause.
    Decoy,
    /// Two causes at once: either may come first, and the other is to be reported too.
    TwoCauses,
}

impl Kind {
    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Healthy => "healthy",
            Self::Single => "single cause",
            Self::Decoy => "decoy",
            Self::TwoCauses => "two causes",
        }
    }
}

/// One case.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// The verdict that is right.
    pub verdict: &'static str,
    /// Verdicts that are right too: the other of two causes, or another name for the same.
    pub accepts: &'static [&'static str],
    /// Its own name; several cases may be of one verdict.
    pub name: &'static str,
    /// Its kind.
    pub kind: Kind,
    /// The needs, all of which have to be met.
    pub needs: &'static [Need],
    /// The experiment, as TOML.
    pub file: &'static str,
}

macro_rules! case {
    ($verdict:literal, $name:literal, $need:expr) => {
        Case {
            verdict: $verdict,
            accepts: &[],
            name: $name,
            kind: kind_of($verdict),
            needs: &[$need],
            file: include_str!(concat!("cases/", $name, ".toml")),
        }
    };
}

/// The kind of an induced case: healthy by its verdict, and one cause otherwise.
const fn kind_of(verdict: &str) -> Kind {
    match verdict.as_bytes() {
        b"none" => Kind::Healthy,
        _ => Kind::Single,
    }
}

/// All cases, in the order of the verdicts.
pub const CASES: &[Case] = &[
    case!("none", "healthy_weir", Need::Nothing),
    case!("none", "healthy_nginx", Need::Program("nginx")),
    case!("none", "healthy_haproxy", Need::Program("haproxy")),
    case!("none", "healthy_python", Need::Program("python3")),
    case!("client_bound", "client_bound", Need::Nothing),
    case!("user_cpu_bound", "user_cpu_bound", Need::Cpus(2)),
    case!("kernel_cpu_bound", "kernel_cpu_bound", Need::Cpus(2)),
    case!("kernel_cpu_bound", "kernel_cpu_bound_nginx", Need::Program("nginx")),
    case!("single_thread_bound", "single_thread_bound", Need::Cpus(2)),
    case!("single_thread_bound", "single_thread_bound_python", Need::Program("python3")),
    case!("softirq_imbalance", "softirq_imbalance", Need::Cpus(2)),
    case!("link_bound", "link_bound", Need::Nothing),
    case!("link_bound", "link_bound_nginx", Need::Program("nginx")),
    case!("packet_rate_bound", "packet_rate_bound", Need::Nothing),
    case!("latency_bound", "latency_bound", Need::Nothing),
    case!("latency_bound", "latency_bound_haproxy", Need::Program("haproxy")),
    case!("latency_bound", "latency_bound_python", Need::Program("python3")),
    case!("connection_limited", "connection_limited", Need::Nothing),
    case!("connection_limited", "connection_limited_haproxy", Need::Program("haproxy")),
    case!("accept_backlog_overflow", "accept_backlog_overflow", Need::Nothing),
    case!("syn_backlog_overflow", "syn_backlog_overflow", Need::Nothing),
    case!("port_exhaustion", "port_exhaustion", Need::Nothing),
    case!("fd_limit", "fd_limit", Need::Nothing),
    case!("fd_limit", "fd_limit_nginx", Need::Program("nginx")),
    case!("memory_pressure", "memory_pressure", Need::Nothing),
    case!("bufferbloat", "bufferbloat", Need::Nothing),
    case!("packet_loss", "packet_loss", Need::Nothing),
    case!("packet_loss", "packet_loss_nginx", Need::Program("nginx")),
    case!("delayed_ack_stall", "delayed_ack_stall", Need::Nothing),
    case!("lock_contention", "lock_contention", Need::Cpus(2)),
    case!("log_write_bound", "log_write_bound", Need::Nothing),
    case!("allocator_bound", "allocator_bound", Need::Cpus(2)),
    case!("cpu_steal", "cpu_steal", Need::Cpus(2)),
    case!("cpu_throttled", "cpu_throttled", Need::Nothing),
    case!("cpu_throttled", "cpu_throttled_nginx", Need::Program("nginx")),
    case!("conntrack_full", "conntrack_full", Need::Global),
    case!("receive_window_bound", "receive_window_bound", Need::Nothing),
    case!("run_invalid", "run_invalid", Need::Nothing),
];

/// Verdicts that nothing here induces, and why.
pub const NOT_INDUCED: &[(&str, &str)] = &[
    ("handshake_bound", "the load generator has no TLS yet"),
    ("bulk_crypto_bound", "the load generator has no TLS yet"),
    (
        "memory_bandwidth_bound",
        "it takes hardware counters and a memory bus that one process can fill",
    ),
    ("numa_remote", "it takes a machine with two memory nodes"),
    ("h2_window_bound", "the load generator has no HTTP/2 yet"),
    ("origin_bound", "the proving ground has cases of it: --set foreign"),
    ("subject_limited", "the proving ground has cases of it: --set foreign"),
    ("unknown", "it is the answer to what cannot be proven, so nothing induces it"),
];

/// What a machine offers to cases.
#[derive(Clone, Copy)]
pub struct Machine<'a> {
    /// Whether this process is root's.
    pub root: bool,
    /// Processors.
    pub cpus: u32,
    /// Whether settings of the whole machine may be changed.
    pub allow_global: bool,
    /// Whether a program is there.
    pub has: &'a dyn Fn(&str) -> bool,
}

impl std::fmt::Debug for Machine<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Machine").field("root", &self.root).field("cpus", &self.cpus).finish()
    }
}

impl Case {
    /// Why this machine cannot run it; none when it can.
    #[must_use]
    pub fn missing(&self, machine: Machine<'_>) -> Option<String> {
        if !machine.root {
            return Some(
                "network namespaces and control groups can be made by root only".to_owned(),
            );
        }
        self.needs.iter().find_map(|need| match *need {
            Need::Program(name) if !(machine.has)(name) => Some(format!("{name} is not installed")),
            Need::Cpus(cpus) if machine.cpus < cpus => Some(format!("it takes {cpus} processors")),
            Need::Global if !machine.allow_global => {
                Some("it changes settings of the whole machine: --allow-global".to_owned())
            }
            _ => None,
        })
    }

    /// All verdicts that are right when they come first.
    #[must_use]
    pub fn right(&self) -> Vec<String> {
        let all = std::iter::once(&self.verdict).chain(self.accepts);
        all.map(|&verdict| verdict.to_owned()).collect()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// The verdicts of the design, in its order.
    pub(in crate::selftest) const CODES: &[&str] = &[
        "client_bound",
        "user_cpu_bound",
        "kernel_cpu_bound",
        "single_thread_bound",
        "softirq_imbalance",
        "link_bound",
        "packet_rate_bound",
        "latency_bound",
        "connection_limited",
        "accept_backlog_overflow",
        "syn_backlog_overflow",
        "port_exhaustion",
        "fd_limit",
        "memory_pressure",
        "bufferbloat",
        "packet_loss",
        "delayed_ack_stall",
        "lock_contention",
        "log_write_bound",
        "handshake_bound",
        "bulk_crypto_bound",
        "allocator_bound",
        "memory_bandwidth_bound",
        "cpu_steal",
        "cpu_throttled",
        "numa_remote",
        "conntrack_full",
        "h2_window_bound",
        "receive_window_bound",
        "origin_bound",
        "subject_limited",
        "run_invalid",
        "unknown",
        "none",
    ];

    #[test]
    fn every_verdict_has_a_case_or_a_reason_and_every_case_is_right() {
        for code in CODES {
            let cases = CASES.iter().filter(|case| case.verdict == *code).count();
            let reasons = NOT_INDUCED.iter().filter(|(other, _)| other == code).count();
            assert!((cases > 0) != (reasons > 0), "{code}");
        }
        for (at, case) in CASES.iter().enumerate() {
            assert!(CODES.contains(&case.verdict), "{}", case.verdict);
            assert!(CASES[..at].iter().all(|other| other.name != case.name), "{}", case.name);
            let experiment = case.experiment().unwrap_or_else(|problems| panic!("{problems:?}"));
            assert!(!experiment.title.is_empty(), "{}", case.name);
            let is_global = !experiment.scenario.global_settings().is_empty();
            assert_eq!(is_global, case.needs == [Need::Global], "{}", case.name);
        }
    }

    #[test]
    fn what_a_machine_lacks_is_said() {
        let none = |_: &str| false;
        let machine = Machine { root: true, cpus: 1, allow_global: false, has: &none };
        let missing = |name: &str, machine| {
            let case = CASES.iter().find(|case| case.name == name).unwrap();
            case.missing(machine).unwrap_or_default()
        };
        assert!(missing("healthy_nginx", machine).contains("nginx is not installed"));
        assert!(missing("cpu_steal", machine).contains("2 processors"));
        assert!(missing("conntrack_full", machine).contains("--allow-global"));
        assert_eq!(missing("link_bound", machine), "");
        assert!(missing("link_bound", Machine { root: false, ..machine }).contains("root"));
    }
}
