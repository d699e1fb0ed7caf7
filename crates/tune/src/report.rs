//! Schema of the result of a check, `weir.tune-check/1`.

use serde::{Deserialize, Serialize};

use crate::setting::{Assessment, Certainty, Role, Scope};

pub const SCHEMA: &str = "weir.tune-check/1";

/// Result of a check of this machine, or of files.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CheckReport {
    pub schema: String,
    pub weir_version: String,
    pub kernel: String,
    pub memory_bytes: u64,
    pub role: Role,
    /// Settings of this machine; empty if files were checked.
    pub settings: Vec<SettingFinding>,
    pub lines: Vec<LineFinding>,
    /// True if values of network settings were tried in a new network namespace.
    #[serde(default)]
    pub is_tried: bool,
    /// Number of settings to change, and of lines to remove.
    pub findings: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Action {
    /// Change it: the value is harmful, or the recommended one is better without a condition.
    Change,
    /// Measure whether the recommended value helps.
    Consider,
    Keep,
    /// This kernel does not have it.
    Absent,
    /// It cannot be read here.
    NotObservable,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SettingFinding {
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub interface: Option<String>,
    /// Part of the system that has one value.
    pub scope: Scope,
    /// Unit of the values; empty for words and switches.
    pub unit: String,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub value: Option<String>,
    /// Line of this machine's files that sets it at boot; absent if none does.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub set_by: Option<String>,
    /// Default of this kernel, if it is the same on every machine.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub default: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub wanted: Option<String>,
    pub action: Action,
    /// Assessment of the value; absent without a value.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub verdict: Option<Assessment>,
    pub certainty: Certainty,
    pub reason: String,
    pub effect: String,
    pub risk: String,
    /// Source: a document of the kernel, or a manual page.
    pub source: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LineFinding {
    pub file: String,
    /// Number of the line, from 1.
    pub line: usize,
    pub name: String,
    pub value: String,
    /// Users and limits, for a line of `limits.conf`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub limit: Option<LimitTarget>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub now: Option<String>,
    /// Line of this machine's own files that sets the name at boot; absent if none does.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub set_by: Option<String>,
    /// Change of this machine: the value now, its origin, and the value afterwards.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub change: Option<String>,
    pub verdict: Assessment,
    pub certainty: Certainty,
    /// Reasons: first that of the verdict, then notes.
    pub reasons: Vec<String>,
    /// Source of the row of the catalogue; absent for unknown names.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub source: Option<String>,
    /// True if the line should go: harmful, invalid, or rejected by the kernel.
    pub is_finding: bool,
}

/// Users and limits that a line is about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitTarget {
    /// User, `@group`, `*`, `%group`, or a range of identifiers.
    pub domain: String,
    pub soft: bool,
    pub hard: bool,
}

impl LimitTarget {
    /// Returns `DOMAIN TYPE`, as in the file.
    pub fn text(&self) -> String {
        let kind = match (self.soft, self.hard) {
            (true, true) => "-",
            (true, false) => "soft",
            _ => "hard",
        };
        format!("{} {kind}", self.domain)
    }
}
