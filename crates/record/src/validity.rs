//! Whether a result may be believed: the verdict, and the reasons for it.

use serde::{Deserialize, Serialize};

/// May the result be believed?
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Nothing speaks against it.
    Valid,
    /// Something may have changed the figures; the reasons say what.
    Suspect,
    /// The figures do not say what they seem to say; the reasons say why.
    Invalid,
}

impl Verdict {
    /// The word for it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Valid => "valid",
            Self::Suspect => "suspect",
            Self::Invalid => "invalid",
        }
    }
}

/// One reason against a result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reason {
    /// A fixed name, for scripts.
    pub code: String,
    /// How much it weighs alone.
    pub verdict: Verdict,
    /// What was seen, with its figures.
    pub text: String,
}

/// The verdict and its reasons, the gravest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Validity {
    /// The gravest of the reasons, or valid.
    pub verdict: Verdict,
    /// Why.
    pub reasons: Vec<Reason>,
}

impl Validity {
    /// The verdict that follows from `reasons`.
    #[must_use]
    pub fn from_reasons(mut reasons: Vec<Reason>) -> Self {
        reasons.sort_by(|a, b| b.verdict.cmp(&a.verdict).then_with(|| a.code.cmp(&b.code)));
        let verdict = reasons.first().map_or(Verdict::Valid, |reason| reason.verdict);
        Self { verdict, reasons }
    }

    /// Whether a reason with this code stands in it.
    #[must_use]
    pub fn has(&self, code: &str) -> bool {
        self.reasons.iter().any(|reason| reason.code == code)
    }
}
