//! The machine that a run ran on, as its record names it.

use serde::{Deserialize, Serialize};

/// What was known of the host. A fact that the host does not tell is absent and named in
/// `not_observable`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HostFacts {
    /// Kernel release.
    pub kernel: String,
    /// Name of the operating system.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub os: Option<String>,
    /// The host's own name.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub name: Option<String>,
    /// Processors that the run could use.
    pub cpus: u32,
    /// The processor's model.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub cpu_model: Option<String>,
    /// Memory.
    pub memory_bytes: u64,
    /// `net.ipv4.tcp_congestion_control`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub congestion_control: Option<String>,
    /// The hypervisor, when there is one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub virtualised: Option<String>,
    /// Stable short name of this kind of host; keys its stored calibrations.
    pub fingerprint: String,
    /// Limits that bear on a run.
    pub limits: HostLimits,
    /// What this host does not tell, and why.
    #[serde(default)]
    pub not_observable: Vec<String>,
}

/// Limits that bear on a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HostLimits {
    /// Descriptors that this process may have open.
    pub descriptors: u64,
    /// First and last local port (`net.ipv4.ip_local_port_range`).
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub port_range: Option<(u16, u16)>,
    /// `net.core.somaxconn`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub somaxconn: Option<u64>,
}
