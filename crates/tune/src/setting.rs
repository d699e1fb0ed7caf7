//! Types of the catalogue: one setting, its scope, defaults, advice and rules. The rows are in
//! [`crate::catalogue`]; reading and writing settings is elsewhere.

use host::tuning::DriverSetting;
use serde::{Deserialize, Serialize};

use crate::kernel::KernelVersion;

/// Part of the system that has one value of a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scope {
    Global,
    NetworkNamespace,
    Interface,
    /// Each process, or its user session.
    Process,
    Cgroup,
    /// The kernel's command line: takes effect at the next boot.
    Boot,
    /// The configuration or the code of a program.
    Application,
}

impl Scope {
    pub fn name(self) -> &'static str {
        match self {
            Self::Global => "global",
            Self::NetworkNamespace => "network namespace",
            Self::Interface => "interface",
            Self::Process => "process",
            Self::Cgroup => "control group",
            Self::Boot => "boot parameter",
            Self::Application => "application",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Load generator: opens connections.
    Client,
    /// Reverse proxy: accepts connections and opens others.
    Proxy,
    /// Server: accepts connections.
    Origin,
}

pub const ROLES: [Role; 3] = [Role::Client, Role::Proxy, Role::Origin];

impl Role {
    pub fn name(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Proxy => "proxy",
            Self::Origin => "origin",
        }
    }

    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        ROLES.into_iter().find(|role| role.name() == name)
    }
}

/// Assessment of a setting, or on one value of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Assessment {
    /// Helps, or protects, at little risk.
    Recommend,
    /// Helps under a condition that has to be measured.
    Conditional,
    /// Has no effect: the default, removed, or ignored by the kernel.
    Obsolete,
    /// Does damage.
    Harmful,
    /// Not accepted: unknown name, or a value that the kernel rejects.
    Invalid,
}

impl Assessment {
    pub fn name(self) -> &'static str {
        match self {
            Self::Recommend => "recommend",
            Self::Conditional => "conditional",
            Self::Obsolete => "obsolete",
            Self::Harmful => "harmful",
            Self::Invalid => "invalid",
        }
    }
}

/// Basis of an advice or an assessment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Certainty {
    /// Measured by this project, or enforced by the kernel.
    Measured,
    /// Stated in the kernel's documentation or source.
    Documented,
    /// Judgement: depends on the load; an experiment (`weir lab run`) measures it.
    Judgement,
}

impl Certainty {
    pub fn name(self) -> &'static str {
        match self {
            Self::Measured => "measured",
            Self::Documented => "documented",
            Self::Judgement => "judgement",
        }
    }
}

/// Method to read a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probe {
    /// File below `/proc/sys`, by the setting's name.
    Sysctl,
    /// One file; if it lists choices, the one in brackets is the value.
    File(&'static str),
    /// File below `/sys/class/net/INTERFACE`, for every interface except loopback.
    InterfaceFile(&'static str),
    /// Driver setting of every interface except loopback (ethtool(8)).
    Ethtool(DriverSetting),
    /// `RLIMIT_NOFILE` of this process, soft limit.
    NofileSoft,
    /// `RLIMIT_MEMLOCK` of this process, soft limit.
    MemlockSoft,
    /// CPU quota of this process's control group.
    CgroupQuota,
    /// Word of the kernel's command line.
    BootParameter(&'static str),
    Module(&'static str),
    /// Not readable from outside the program.
    None,
}

/// Value that an advice asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WantedValue {
    Exactly(&'static str),
    /// One of these values; the first is the one to set.
    OneOf(&'static [&'static str]),
    /// Every field at or above this value's field.
    AtLeast(&'static str),
    /// Every field at or below this value's field.
    AtMost(&'static str),
    /// A range of ports with at least this number of ports; the text is the range to set.
    PortCount(u64, &'static str),
}

impl WantedValue {
    pub fn text(self) -> &'static str {
        match self {
            Self::Exactly(text) | Self::AtLeast(text) | Self::AtMost(text) | Self::PortCount(_, text) => text,
            Self::OneOf(texts) => texts.first().copied().unwrap_or_default(),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Advice {
    pub roles: &'static [Role],
    /// Memory from which it applies, in GiB. The row with the highest matching minimum applies.
    pub memory_gib_min: u64,
    pub wanted: WantedValue,
    pub certainty: Certainty,
    /// True if a different value is worth a change by itself; false if it depends on the load.
    pub unconditional: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleCondition {
    Is(&'static str),
    /// The first field is below this number.
    Below(u64),
    /// The first field is above this number.
    Above(u64),
    /// The field at this position is below that of the default, or of the machine's value if the default
    /// depends on the machine.
    FieldBelowDefault(usize),
    /// The field at this position is above that of the default.
    FieldAboveDefault(usize),
    /// The last field, in pages, exceeds the machine's memory.
    PagesAboveMemory,
    /// The first field, times these bytes, exceeds the machine's memory.
    BytesEachAboveMemory(u64),
    /// The value is 0, and that of the machine is not.
    TurnsOff,
    /// The first field is above the first field of another setting, in the same file or on this machine.
    AboveOther(&'static str),
    /// Another setting has this value, in the same file or on this machine.
    OtherIs(&'static str, &'static str),
    Always,
}

/// Assessment of certain values of a setting. The first rule whose condition holds applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValueRule {
    pub when: RuleCondition,
    pub verdict: Assessment,
    pub certainty: Certainty,
    /// Reason, as the end of a sentence.
    pub reason: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Name: of sysctl(8), or `cpu.`, `nic.`, `process.`, `cgroup.`, `boot.`, `app.` and a word.
    pub name: &'static str,
    /// Part of the system that has one value.
    pub scope: Scope,
    /// Unit of the value; empty for words and switches.
    pub unit: &'static str,
    /// Defaults: the kernel version that introduced each, oldest first, and the value. `(0, 0)` is
    /// every version. An empty list: the default depends on the machine.
    pub defaults: &'static [(KernelVersion, &'static str)],
    /// Recommended values by role and memory.
    pub advice: &'static [Advice],
    /// Assessments of certain values.
    pub rules: &'static [ValueRule],
    /// Effect, and when it helps.
    pub effect: &'static str,
    pub risk: &'static str,
    /// Assessment of changing it, where no rule applies.
    pub verdict: Assessment,
    pub added: Option<KernelVersion>,
    /// First kernel version without it.
    pub removed: Option<KernelVersion>,
    pub ignored: Option<KernelVersion>,
    pub probe: Probe,
    /// Source: a document of the kernel (below `Documentation`), or a manual page.
    pub source: &'static str,
}

/// Row with the common values; rows change the fields that differ.
pub(crate) const SETTING: Setting = Setting {
    name: "",
    scope: Scope::Global,
    unit: "",
    defaults: &[],
    advice: &[],
    rules: &[],
    effect: "",
    risk: "",
    verdict: Assessment::Conditional,
    added: None,
    removed: None,
    ignored: None,
    probe: Probe::Sysctl,
    source: "",
};

pub(crate) const NETNS: Setting = Setting { scope: Scope::NetworkNamespace, ..SETTING };

/// Returns the row of a setting of the complete machine; rows change the fields that differ.
pub(crate) const fn setting(name: &'static str, source: &'static str) -> Setting {
    Setting { name, source, ..SETTING }
}

/// Returns the row of a setting of each network namespace.
pub(crate) const fn netns(name: &'static str, source: &'static str) -> Setting {
    setting(name, source).scope(Scope::NetworkNamespace)
}

impl Setting {
    pub(crate) const fn scope(self, scope: Scope) -> Self {
        Self { scope, ..self }
    }

    pub(crate) const fn unit(self, unit: &'static str) -> Self {
        Self { unit, ..self }
    }

    pub(crate) const fn defaults(self, defaults: &'static [(KernelVersion, &'static str)]) -> Self {
        Self { defaults, ..self }
    }

    pub(crate) const fn advice(self, advice: &'static [Advice]) -> Self {
        Self { advice, ..self }
    }

    pub(crate) const fn rules(self, rules: &'static [ValueRule]) -> Self {
        Self { rules, ..self }
    }

    pub(crate) const fn effect(self, effect: &'static str) -> Self {
        Self { effect, ..self }
    }

    pub(crate) const fn risk(self, risk: &'static str) -> Self {
        Self { risk, ..self }
    }

    pub(crate) const fn verdict(self, verdict: Assessment) -> Self {
        Self { verdict, ..self }
    }

    pub(crate) const fn added(self, version: KernelVersion) -> Self {
        Self { added: Some(version), ..self }
    }

    pub(crate) const fn probe(self, probe: Probe) -> Self {
        Self { probe, ..self }
    }
}

impl Setting {
    /// Returns the default of a kernel; `None` if it depends on the machine.
    pub fn default_for(&self, kernel: KernelVersion) -> Option<&'static str> {
        let known = self.defaults.iter().filter(|(since, _)| *since <= kernel);
        known.map(|(_, value)| *value).next_back()
    }

    pub fn advice_for(&self, role: Role, memory_bytes: u64) -> Option<&'static Advice> {
        let applies = |advice: &&Advice| {
            advice.roles.contains(&role) && advice.memory_gib_min.saturating_mul(GIB) <= memory_bytes
        };
        self.advice.iter().filter(applies).max_by_key(|advice| advice.memory_gib_min)
    }

    pub fn is_removed_in(&self, kernel: KernelVersion) -> bool {
        self.removed.is_some_and(|removed| removed <= kernel)
    }

    /// Returns whether `weir tune apply` can write it.
    pub fn is_writable(&self) -> bool {
        let is_file = match self.probe {
            Probe::Sysctl | Probe::InterfaceFile(_) => true,
            Probe::File(path) => path.starts_with("/sys/"),
            _ => false,
        };
        is_file && self.removed.is_none()
    }
}

/// Bytes of a GiB.
pub(crate) const GIB: u64 = 1 << 30;
