//! Test cases of the analyser: the right verdict, the experiment that induces it, and its
//! requirements; and the verdicts that no experiment here can induce, with the reasons.

use std::path::{Path, PathBuf};

use experiment::scenario::setup::LabSetup;
use record::problem::InputProblem;
use record::units::format_plural;

use crate::case_part::{CasePart, SPLIT_SEED};

/// Requirement of a case, besides root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Requirement {
    Program(String),
    /// File at this absolute path, for instance a library of a package.
    File(PathBuf),
    /// Minimum number of CPUs.
    Cpus(u32),
    /// Permission to change settings of the complete machine.
    Global,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CaseSet {
    /// One known cause each, mostly with weir's own processes: [`crate::induced`].
    #[default]
    Induced,
    /// Proving ground: servers as other people write and configure them: [`crate::foreign`].
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
    pub set: CaseSet,
    pub verdict: String,
    /// Other right verdicts: the other of two causes, or another name for the same.
    pub also_right: Vec<String>,
    /// Name of the case; several cases may have the same verdict.
    pub name: String,
    pub kind: CaseKind,
    /// Requirements, all of which must be met.
    pub requirements: Vec<Requirement>,
    /// True if a person has examined a record of the case because of a wrong verdict.
    pub is_examined: bool,
    /// Experiment, as TOML.
    pub experiment_text: String,
}

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
        self.requirements.iter().find_map(|need| match need {
            Requirement::Program(name) if !(machine.has_program)(name) => {
                Some(format!("{name} is not installed"))
            }
            Requirement::File(path) if !Path::new(path).exists() => {
                Some(format!("{} is not installed", path.display()))
            }
            Requirement::Cpus(cpus) if machine.cpus < *cpus => {
                Some(format!("requires {}", format_plural(u64::from(*cpus), "CPU")))
            }
            Requirement::Global if !machine.allow_global => {
                Some("changes settings of the complete machine: pass --allow-global".to_owned())
            }
            _ => None,
        })
    }

    /// Returns all verdicts that are right if they come first.
    pub fn right_verdicts(&self) -> Vec<String> {
        std::iter::once(&self.verdict).chain(&self.also_right).cloned().collect()
    }

    /// Returns the experiment of the case.
    ///
    /// # Errors
    /// Its file is wrong.
    pub fn experiment(&self) -> Result<LabSetup, Vec<InputProblem>> {
        LabSetup::parse(&self.name, &self.experiment_text)
    }

    /// Returns its part of the proving ground; `None` for an induced case.
    pub fn part(&self) -> Option<CasePart> {
        let is_foreign = self.set == CaseSet::Foreign;
        is_foreign.then(|| CasePart::for_case(SPLIT_SEED, &self.name, self.is_examined))
    }

    pub fn record_name(name: &str, repetition: u32) -> PathBuf {
        PathBuf::from(format!("{name}-{repetition}.json"))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::induced::induced_cases;

    /// Verdicts of the design, in its order.
    pub(crate) const CODES: &[&str] = &[
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
    fn missing_requirements_are_reported() {
        let none = |_: &str| false;
        let machine = HostCapabilities { is_root: true, cpus: 1, allow_global: false, has_program: &none };
        let missing = |name: &str, machine| {
            let cases = induced_cases();
            let case = cases.iter().find(|case| case.name == name).unwrap();
            case.missing_requirement(machine).unwrap_or_default()
        };
        assert!(missing("healthy_nginx", machine).contains("nginx"));
        assert!(missing("cpu_contended", machine).contains("2 CPUs"));
        assert!(missing("conntrack_full", machine).contains("--allow-global"));
        assert_eq!(missing("link_bound", machine), "");
        assert!(missing("link_bound", HostCapabilities { is_root: false, ..machine }).contains("root"));
    }
}
