//! Validity of a result: the verdict, and the reasons for it.

use serde::{Deserialize, Deserializer, Serialize};

/// Maximum CPUs of processes outside a run, as a fraction of the machine's, without an objection.
pub const FOREIGN_CPU_FRACTION_MAX: f64 = 0.05;

/// Code of the reason of a machine whose CPUs other programs on this kernel used.
pub const CPU_CONTENDED: &str = "cpu_contended";
/// Name of that code in records from older versions.
const CPU_CONTENDED_FORMERLY: &str = "foreign_cpu";

/// Names of the conclusions of a run, with their definitions.
pub const CONCLUSIONS: &[(&str, &str)] = &[
    (
        "counts",
        "Requests, responses and errors. Each is counted exactly; a generator that stood still can make requests \
         time out or leave them unsent.",
    ),
    ("rate", "Responses per second."),
    ("p50", "Median of the response latency."),
    ("p90", "90th percentile of the response latency."),
    ("p99", "99th percentile of the response latency."),
    ("p99.9", "99.9th percentile of the response latency."),
    (
        "verdict",
        "The diagnosis (`diagnosis.verdict`). It reads rates and medians and is as valid as these, unless it names \
         the generator or the other programs itself. It has no value, and is absent without a diagnosis.",
    ),
];

/// Trustworthiness of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ValidityLevel {
    /// There is no reason to doubt it.
    Valid,
    /// The figures may have been disturbed; the reasons give details.
    Suspect,
    /// The figures are misleading; the reasons give details.
    Invalid,
}

impl ValidityLevel {
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
    #[serde(deserialize_with = "current_code")]
    pub code: String,
    pub verdict: ValidityLevel,
    /// Observation, with its figures.
    pub text: String,
}

/// Reads a code; one that has another name now gets that.
fn current_code<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let code = String::deserialize(deserializer)?;
    Ok(if code == CPU_CONTENDED_FORMERLY { CPU_CONTENDED.to_owned() } else { code })
}

/// Validity of one conclusion of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ConclusionValidity {
    /// Name, one of [`CONCLUSIONS`].
    pub conclusion: String,
    /// Measured value: requests, responses per second, or ns; absent for the verdict.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub value: Option<f64>,
    /// Range in which the value would be without what disturbed the run; absent if nothing disturbed it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub undisturbed: Option<(f64, f64)>,
    /// Validity of this figure alone.
    pub verdict: ValidityLevel,
}

/// Validity with its reasons, the most severe first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Validity {
    /// Worst validity of the conclusions that were asked for: of the objectives, or of rate and p99 without
    /// one. Where no conclusion was judged: of the reasons.
    pub verdict: ValidityLevel,
    /// Reasons for it. One whose validity is valid is a note: it changed no conclusion.
    pub reasons: Vec<ValidityReason>,
    /// Validity of each conclusion. Records from older versions have none, or only figures that were disturbed.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub conclusions: Vec<ConclusionValidity>,
}

impl Validity {
    /// Returns the validity that follows from `reasons`.
    #[must_use]
    pub fn from_reasons(mut reasons: Vec<ValidityReason>) -> Self {
        reasons.sort_by(|a, b| b.verdict.cmp(&a.verdict).then_with(|| a.code.cmp(&b.code)));
        let verdict = reasons.first().map_or(ValidityLevel::Valid, |reason| reason.verdict);
        Self { verdict, reasons, conclusions: Vec::new() }
    }

    /// Returns the reasons that are not mere notes.
    pub fn objections(&self) -> impl Iterator<Item = &ValidityReason> {
        self.reasons.iter().filter(|reason| reason.verdict != ValidityLevel::Valid)
    }

    /// Returns the validity of a conclusion, if it was judged.
    pub fn conclusion(&self, name: &str) -> Option<&ConclusionValidity> {
        self.conclusions.iter().find(|conclusion| conclusion.conclusion == name)
    }

    pub fn has_reason(&self, code: &str) -> bool {
        self.objections().any(|reason| reason.code == code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_from_older_versions_stay_readable() {
        let old = r#"{"verdict":"suspect","reasons":[{"code":"foreign_cpu","verdict":"suspect","text":"x"}],
            "conclusions":[{"conclusion":"p99","value":2.0,"undisturbed":[1.0,2.0],"verdict":"suspect"}]}"#;
        let read: Validity = serde_json::from_str(old).unwrap();
        assert_eq!(read.reasons[0].code, CPU_CONTENDED);
        assert!(read.has_reason("cpu_contended"));
        assert_eq!(read.conclusion("p99").unwrap().value, Some(2.0));
        assert!(read.conclusion("counts").is_none());
        let none: Validity = serde_json::from_str(r#"{"verdict":"valid","reasons":[]}"#).unwrap();
        assert!(none.conclusions.is_empty());
        let written = serde_json::to_string(&read).unwrap();
        assert!(!written.contains("foreign_cpu"), "{written}");
    }

    #[test]
    fn a_verdict_has_no_value() {
        let verdict = ConclusionValidity {
            conclusion: "verdict".to_owned(),
            value: None,
            undisturbed: None,
            verdict: ValidityLevel::Valid,
        };
        assert_eq!(serde_json::to_string(&verdict).unwrap(), r#"{"conclusion":"verdict","verdict":"valid"}"#);
    }
}
