//! Test cases of the analyser: the right verdict, the experiment that induces it, and its
//! requirements; and the verdicts that no experiment here can induce, with the reasons.

use std::borrow::Cow;
use std::path::Path;

use super::foreign::FOREIGN;
use record::units::format_plural;

/// Requirement of a case, besides root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requirement {
    Nothing,
    Program(&'static str),
    /// File at this absolute path, for instance a library of a package.
    File(&'static str),
    /// Minimum number of CPUs.
    Cpus(u32),
    /// Permission to change settings of the complete machine.
    Global,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CaseSet {
    /// One known cause each, mostly with weir's own processes: [`CASES`].
    #[default]
    Induced,
    /// Proving ground: servers as other people write and configure them: [`super::foreign`].
    Foreign,
}

impl CaseSet {
    pub fn name(self) -> &'static str {
        match self {
            Self::Induced => "induced",
            Self::Foreign => "foreign",
        }
    }

    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Induced, Self::Foreign].into_iter().find(|set| set.name() == name)
    }

    #[must_use]
    pub fn cases(self) -> &'static [TestCase] {
        match self {
            Self::Induced => CASES,
            Self::Foreign => &FOREIGN,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CaseKind {
    /// No limit is reached.
    Healthy,
    /// One cause, with its usual signs.
    Single,
    /// Sign of one cause, but another cause.
    Decoy,
    /// Two causes at once: either may come first, and the other must be reported too.
    TwoCauses,
}

impl CaseKind {
    pub const ALL: [Self; 4] = [Self::Healthy, Self::Single, Self::Decoy, Self::TwoCauses];

    pub fn name(self) -> &'static str {
        match self {
            Self::Healthy => "healthy",
            Self::Single => "single cause",
            Self::Decoy => "decoy",
            Self::TwoCauses => "two causes",
        }
    }
}

#[derive(Clone, Debug)]
pub struct TestCase {
    pub verdict: &'static str,
    /// Other right verdicts: the other of two causes, or another name for the same.
    pub also_right: Cow<'static, [&'static str]>,
    /// Name of the case; several cases may have the same verdict.
    pub name: &'static str,
    pub kind: CaseKind,
    /// Requirements, all of which must be met.
    pub requirements: Cow<'static, [Requirement]>,
    /// True if a person has examined a record of the case because of a wrong verdict.
    pub is_examined: bool,
    /// Experiment, as TOML.
    pub file: &'static str,
}

macro_rules! case {
    ($verdict:literal, $name:literal, $need:expr) => {
        case!($verdict, &[], $name, kind_of($verdict), &[$need])
    };
    ($verdict:literal, $also_right:expr, $name:literal, $kind:expr, $needs:expr) => {
        TestCase {
            verdict: $verdict,
            also_right: Cow::Borrowed($also_right),
            name: $name,
            kind: $kind,
            requirements: Cow::Borrowed($needs),
            is_examined: false,
            file: include_str!(concat!("cases/", $name, ".toml")),
        }
    };
}

const OPENSSL: Requirement = Requirement::Program("openssl");
const NGINX_WITH_TLS: &[Requirement] = &[Requirement::Program("nginx"), OPENSSL, Requirement::Cpus(2)];
const NGINX_ON_TWO_CPUS: &[Requirement] = &[Requirement::Program("nginx"), Requirement::Cpus(2)];
const HAPROXY_WITH_TLS: &[Requirement] = &[Requirement::Program("haproxy"), OPENSSL, Requirement::Cpus(2)];

/// Returns the kind of an induced case: healthy by its verdict, and one cause otherwise.
const fn kind_of(verdict: &str) -> CaseKind {
    match verdict.as_bytes() {
        b"none" => CaseKind::Healthy,
        _ => CaseKind::Single,
    }
}

/// All cases, in the order of the verdicts.
pub const CASES: &[TestCase] = &[
    case!("none", "healthy_weir", Requirement::Nothing),
    case!("none", "healthy_nginx", Requirement::Program("nginx")),
    case!("none", "healthy_haproxy", Requirement::Program("haproxy")),
    case!("none", "healthy_python", Requirement::Program("python3")),
    case!("client_bound", "client_bound", Requirement::Nothing),
    case!("user_cpu_bound", "user_cpu_bound", Requirement::Cpus(2)),
    case!("kernel_cpu_bound", "kernel_cpu_bound", Requirement::Cpus(2)),
    case!("kernel_cpu_bound", "kernel_cpu_bound_nginx", Requirement::Program("nginx")),
    case!("single_thread_bound", "single_thread_bound", Requirement::Cpus(2)),
    case!("single_thread_bound", "single_thread_bound_python", Requirement::Program("python3")),
    case!("softirq_imbalance", "softirq_imbalance", Requirement::Cpus(2)),
    case!("link_bound", "link_bound", Requirement::Nothing),
    case!("link_bound", "link_bound_nginx", Requirement::Program("nginx")),
    case!("packet_rate_bound", "packet_rate_bound", Requirement::Nothing),
    case!("latency_bound", "latency_bound", Requirement::Nothing),
    case!("latency_bound", "latency_bound_haproxy", Requirement::Program("haproxy")),
    case!("latency_bound", "latency_bound_python", Requirement::Program("python3")),
    case!("connection_limited", "connection_limited", Requirement::Nothing),
    case!("connection_limited", "connection_limited_haproxy", Requirement::Program("haproxy")),
    case!("accept_backlog_overflow", "accept_backlog_overflow", Requirement::Nothing),
    case!("syn_backlog_overflow", "syn_backlog_overflow", Requirement::Nothing),
    case!("port_exhaustion", "port_exhaustion", Requirement::Nothing),
    case!("fd_limit", "fd_limit", Requirement::Nothing),
    case!("fd_limit", "fd_limit_nginx", Requirement::Program("nginx")),
    case!("memory_pressure", "memory_pressure", Requirement::Nothing),
    case!("bufferbloat", "bufferbloat", Requirement::Nothing),
    case!("packet_loss", "packet_loss", Requirement::Nothing),
    case!("packet_loss", "packet_loss_nginx", Requirement::Program("nginx")),
    case!("delayed_ack_stall", "delayed_ack_stall", Requirement::Nothing),
    case!("lock_contention", "lock_contention", Requirement::Cpus(2)),
    case!("log_write_bound", "log_write_bound", Requirement::Nothing),
    case!("allocator_bound", "allocator_bound", Requirement::Cpus(2)),
    case!("cpu_contended", "cpu_contended", Requirement::Cpus(2)),
    case!("cpu_throttled", "cpu_throttled", Requirement::Nothing),
    case!("cpu_throttled", "cpu_throttled_nginx", Requirement::Program("nginx")),
    case!("conntrack_full", "conntrack_full", Requirement::Global),
    case!("receive_window_bound", "receive_window_bound", Requirement::Nothing),
    case!("run_invalid", "run_invalid", Requirement::Nothing),
    case!("rate_limited", "rate_limited_nginx", Requirement::Program("nginx")),
    case!("handshake_bound", "handshake_bound", OPENSSL),
    case!("handshake_bound", &[], "handshake_bound_nginx", CaseKind::Single, NGINX_WITH_TLS),
    case!("handshake_bound", &[], "handshake_bound_haproxy", CaseKind::Single, HAPROXY_WITH_TLS),
    case!("bulk_crypto_bound", "bulk_crypto_bound", Requirement::Cpus(2)),
    case!("bulk_crypto_bound", &[], "bulk_crypto_bound_nginx", CaseKind::Single, NGINX_WITH_TLS),
    case!("bulk_crypto_bound", &[], "bulk_crypto_bound_haproxy", CaseKind::Single, HAPROXY_WITH_TLS),
    case!("h2_window_bound", "h2_window_bound", Requirement::Nothing),
    case!("h2_window_bound", "h2_window_bound_nginx", Requirement::Program("nginx")),
    case!("h2_window_bound", "h2_window_bound_haproxy", Requirement::Program("haproxy")),
    case!("port_search_bound", "port_search_bound", Requirement::Cpus(2)),
    case!("port_search_bound", &[], "port_search_bound_nginx", CaseKind::Single, NGINX_ON_TWO_CPUS),
    // HTTP/2 with delay, but with room in its window.
    case!("latency_bound", &[], "latency_bound_http2", CaseKind::Decoy, &[Requirement::Nothing]),
    // TLS, but another limit.
    case!("latency_bound", &[], "latency_bound_tls", CaseKind::Decoy, &[OPENSSL]),
    case!(
        "single_thread_bound",
        &["user_cpu_bound"],
        "single_thread_bound_nginx_tls",
        CaseKind::Decoy,
        NGINX_WITH_TLS
    ),
    case!("connection_limited", &[], "connection_limited_haproxy_tls", CaseKind::Decoy, HAPROXY_WITH_TLS),
    case!("link_bound", &[], "link_bound_tls", CaseKind::Decoy, &[Requirement::Nothing]),
];

/// Verdicts that no case induces, with the reasons.
pub const NOT_INDUCED: &[(&str, &str)] = &[
    ("memory_bandwidth_bound", "requires hardware counters, and a memory bus that one process can saturate"),
    ("cpu_steal", "requires a hypervisor with another virtual machine on the same CPUs"),
    ("numa_remote", "requires a machine with two NUMA nodes"),
    ("origin_bound", "see the proving ground: --set foreign"),
    ("subject_limited", "see the proving ground: --set foreign"),
    ("unknown", "cannot be induced: it is the verdict without a proven cause"),
];

#[derive(Clone, Copy)]
pub struct HostCapabilities<'a> {
    /// True if this process runs as root.
    pub is_root: bool,
    pub cpus: u32,
    /// True if settings of the complete machine may be changed.
    pub allow_global: bool,
    pub has_program: &'a dyn Fn(&str) -> bool,
}

impl std::fmt::Debug for HostCapabilities<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HostCapabilities").field("root", &self.is_root).field("cpus", &self.cpus).finish()
    }
}

impl TestCase {
    /// Returns the reason why this machine cannot run the case; `None` if it can.
    pub fn missing_requirement(&self, machine: HostCapabilities<'_>) -> Option<String> {
        if !machine.is_root {
            return Some("only root can create network namespaces and cgroups".to_owned());
        }
        self.requirements.iter().find_map(|need| match *need {
            Requirement::Program(name) if !(machine.has_program)(name) => {
                Some(format!("{name} is not installed"))
            }
            Requirement::File(path) if !Path::new(path).exists() => Some(format!("{path} is not installed")),
            Requirement::Cpus(cpus) if machine.cpus < cpus => {
                Some(format!("requires {}", format_plural(u64::from(cpus), "CPU")))
            }
            Requirement::Global if !machine.allow_global => {
                Some("changes settings of the complete machine: pass --allow-global".to_owned())
            }
            _ => None,
        })
    }

    /// Returns all verdicts that are right if they come first.
    pub fn right_verdicts(&self) -> Vec<String> {
        let all = std::iter::once(&self.verdict).chain(&*self.also_right);
        all.map(|&verdict| verdict.to_owned()).collect()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Verdicts of the design, in its order.
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
        "cpu_contended",
        "cpu_steal",
        "cpu_throttled",
        "numa_remote",
        "conntrack_full",
        "h2_window_bound",
        "receive_window_bound",
        "origin_bound",
        "subject_limited",
        "run_invalid",
        "rate_limited",
        "port_search_bound",
        "unknown",
        "none",
    ];

    #[test]
    fn every_verdict_has_a_case_or_a_reason_and_every_case_is_valid() {
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
            assert_eq!(is_global, *case.requirements == [Requirement::Global], "{}", case.name);
        }
    }

    #[test]
    fn missing_requirements_are_reported() {
        let none = |_: &str| false;
        let machine = HostCapabilities { is_root: true, cpus: 1, allow_global: false, has_program: &none };
        let missing = |name: &str, machine| {
            let case = CASES.iter().find(|case| case.name == name).unwrap();
            case.missing_requirement(machine).unwrap_or_default()
        };
        assert!(missing("healthy_nginx", machine).contains("nginx"));
        assert!(missing("cpu_contended", machine).contains("2 CPUs"));
        assert!(missing("conntrack_full", machine).contains("--allow-global"));
        assert_eq!(missing("link_bound", machine), "");
        assert!(missing("link_bound", HostCapabilities { is_root: false, ..machine }).contains("root"));
    }
}
