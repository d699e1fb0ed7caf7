//! Validity of a result: the verdict, and the reasons for it.

use serde::{Deserialize, Serialize};

/// Maximum CPUs of processes outside a run, as a fraction of the machine's, without an objection.
pub const FOREIGN_CPU_FRACTION_MAX: f64 = 0.05;

/// Trustworthiness of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ValidityVerdict {
    /// There is no reason to doubt it.
    Valid,
    /// The figures may have been disturbed; the reasons give details.
    Suspect,
    /// The figures are misleading; the reasons give details.
    Invalid,
}

impl ValidityVerdict {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Valid => "valid",
            Self::Suspect => "suspect",
            Self::Invalid => "invalid",
        }
    }
}

/// Reason against a result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ValidityReason {
    /// Fixed name, for scripts.
    pub code: String,
    pub verdict: ValidityVerdict,
    /// Observation, with its figures.
    pub text: String,
}

/// Validity of one figure of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ConclusionValidity {
    /// The figure: `rate`, `p50`, `p90`, `p99` or `p99.9` (response latency).
    pub conclusion: String,
    /// Measured value: responses per second, or ns.
    pub value: f64,
    /// Range in which the value would be without what disturbed the run; absent if nothing disturbed it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub undisturbed: Option<(f64, f64)>,
    /// Verdict for this figure alone.
    pub verdict: ValidityVerdict,
}

/// Verdict with its reasons, the most severe first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Validity {
    /// Most severe verdict of the conclusions that were asked for: of the objectives, or of rate and p99 without
    /// one. Where no conclusion was judged: of the reasons.
    pub verdict: ValidityVerdict,
    /// Reasons for the verdict. One whose verdict is valid is a note: it changed no conclusion.
    pub reasons: Vec<ValidityReason>,
    /// Validity of each figure; empty if each is as valid as the run, and in records from older versions.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub conclusions: Vec<ConclusionValidity>,
}

impl Validity {
    /// Returns the verdict that follows from `reasons`.
    #[must_use]
    pub fn from_reasons(mut reasons: Vec<ValidityReason>) -> Self {
        reasons.sort_by(|a, b| b.verdict.cmp(&a.verdict).then_with(|| a.code.cmp(&b.code)));
        let verdict = reasons.first().map_or(ValidityVerdict::Valid, |reason| reason.verdict);
        Self { verdict, reasons, conclusions: Vec::new() }
    }

    /// Returns the reasons that are not mere notes.
    pub fn objections(&self) -> impl Iterator<Item = &ValidityReason> {
        self.reasons.iter().filter(|reason| reason.verdict != ValidityVerdict::Valid)
    }

    pub fn has_reason(&self, code: &str) -> bool {
        self.objections().any(|reason| reason.code == code)
    }
}
