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
    /// Returns the word for the verdict.
    #[must_use]
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
    /// Verdict for this reason alone.
    pub verdict: ValidityVerdict,
    /// Observation, with its figures.
    pub text: String,
}

/// Verdict with its reasons, the most severe first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Validity {
    /// Most severe verdict of the reasons, or valid.
    pub verdict: ValidityVerdict,
    /// Reasons for the verdict.
    pub reasons: Vec<ValidityReason>,
}

impl Validity {
    /// Returns the verdict that follows from `reasons`.
    #[must_use]
    pub fn from_reasons(mut reasons: Vec<ValidityReason>) -> Self {
        reasons.sort_by(|a, b| b.verdict.cmp(&a.verdict).then_with(|| a.code.cmp(&b.code)));
        let verdict = reasons.first().map_or(ValidityVerdict::Valid, |reason| reason.verdict);
        Self { verdict, reasons }
    }

    /// Returns true if a reason has this code.
    #[must_use]
    pub fn has_reason(&self, code: &str) -> bool {
        self.reasons.iter().any(|reason| reason.code == code)
    }
}
