//! Facts about the machine of a run, as stored in its record.

use serde::{Deserialize, Serialize};

/// Known facts about the host. A fact that the host does not report is absent and named in
/// `not_observable`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HostFacts {
    pub kernel: String,
    /// Name of the operating system.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub os: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub name: Option<String>,
    /// CPUs that the run could use.
    pub cpus: u32,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub cpu_model: Option<String>,
    pub memory_bytes: u64,
    /// `net.ipv4.tcp_congestion_control`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub congestion_control: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub virtualised: Option<String>,
    /// Stable short name of this kind of host; the key of its stored calibrations.
    pub fingerprint: String,
    /// Limits that affect a run.
    pub limits: HostLimits,
    /// Facts that this host does not report, with the reasons.
    #[serde(default)]
    pub not_observable: Vec<String>,
}

/// Limits that affect a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HostLimits {
    /// Maximum number of open descriptors of this process.
    pub descriptors: u64,
    /// First and last local port (`net.ipv4.ip_local_port_range`).
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub port_range: Option<(u16, u16)>,
    /// `net.core.somaxconn`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub somaxconn: Option<u64>,
}
