//! Findings: everything in a plan that is unbounded, unstable or too small, with its remedy.

use serde::Serialize;

/// Weight of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// An objective cannot be met, or the system is unstable.
    Error,
    /// The plan works, but a failure hits it harder than necessary.
    Warning,
    /// A missing input, or an approximation.
    Note,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    pub severity: Severity,
    /// Stable code: one of [`FINDINGS`].
    pub code: &'static str,
    /// Description with its figures, and the remedy.
    pub text: String,
}

/// Codes of findings with their meaning, for the reference.
pub const FINDINGS: &[(&str, Severity, &str)] = &[
    ("overloaded", Severity::Error, "The servers take less than the rate: the queue grows without end"),
    ("objective_missed", Severity::Error, "Service and waiting time together exceed the objective"),
    ("objective_below_service", Severity::Error, "The service time alone exceeds the objective"),
    (
        "unbounded_backend",
        Severity::Error,
        "A backend has no limit of concurrent requests: when its servers slow down, its requests take all connections of the proxy",
    ),
    (
        "queue_longer_than_clients_wait",
        Severity::Error,
        "The queue holds requests longer than clients wait: an overload serves only clients that have left",
    ),
    ("descriptors", Severity::Error, "The descriptor limit is below the need"),
    ("ports", Severity::Error, "The source ports are fewer than the connections and those in TIME_WAIT"),
    ("memory", Severity::Error, "The memory is below the need of all connections"),
    ("link", Severity::Error, "The link is slower than the need"),
    ("cores", Severity::Error, "No number of cores reaches the rate by the scaling law"),
    ("spare", Severity::Warning, "If the spare servers fail, the others do not carry the rate"),
    ("no_recovery", Severity::Warning, "After a stall the queue drains more slowly than clients wait"),
    (
        "limit_above_capacity",
        Severity::Warning,
        "The limits of a server let it take more than its measured capacity",
    ),
    ("retries", Severity::Warning, "Retries multiply an overload"),
    ("few_points", Severity::Note, "The scaling law has too few points to be more than an indication"),
    ("missing_input", Severity::Note, "Figures are left out, because an input is missing"),
    (
        "assumption",
        Severity::Note,
        "A figure is an approximation, or has a default that was measured elsewhere",
    ),
];

impl Finding {
    /// Creates a finding; its severity is that of its code.
    pub(crate) fn new(code: &'static str, text: impl Into<String>) -> Self {
        let row = FINDINGS.iter().find(|(known, _, _)| *known == code);
        let severity = row.map_or(Severity::Note, |(_, severity, _)| *severity);
        Self { severity, code, text: text.into() }
    }
}
