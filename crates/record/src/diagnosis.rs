//! Diagnosis of a run: the limit of its subject. It is computed from the rest of the record, and
//! reproducible from it.

use serde::{Deserialize, Serialize};

use crate::units::format_rate;

/// Code of a run in which nothing limited the subject.
pub const NONE: &str = "none";
/// Code of a run whose limit could not be proven.
pub const UNKNOWN: &str = "unknown";

/// Limit of a run, with the evidence.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Diagnosis {
    /// Fixed code. `none`: no bottleneck. `unknown`: nothing could be proven, or a counter-test
    /// refuted the verdict (then `confirmation` names that verdict, and `evidence` has its
    /// evidence).
    pub verdict: String,
    /// Claim of the verdict, in a sentence.
    #[serde(default)]
    pub claim: String,
    /// Level of support by the evidence.
    pub confidence: Confidence,
    /// Supporting observations, with figures.
    pub evidence: Vec<String>,
    /// Other explanations that fit as well, the likeliest first.
    #[serde(default)]
    pub alternatives: Vec<AlternativeVerdict>,
    /// Change that distinguishes the verdict from the first of `alternatives`; empty with one explanation.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub distinguishing_change: String,
    /// Waiting fraction of the latency under load: 1 − R(1) / R(N). Absent without a baseline.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub queueing_fraction: Option<f64>,
    /// Location of the requests in flight, as fractions of all of them; empty if not observable.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub time_split: Vec<TimeFraction>,
    /// Resources with a limit, the fullest first.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub resources: Vec<ResourceUse>,
    /// Rejected explanations, each with the reason.
    pub ruled_out: Vec<String>,
    /// Next limits: resources by their headroom, the smallest first.
    pub next_limits: Vec<String>,
    /// Latency patterns with one known cause (40 ms, 200 ms, a quota's period…).
    #[serde(default)]
    pub fingerprints: Vec<String>,
    /// Recommended action.
    #[serde(default)]
    pub remedy: String,
    /// Experiment that would prove the verdict: a change, and the expected effect on throughput.
    #[serde(default)]
    pub counter_test: String,
    /// Result of that experiment, if it was made (`--confirm`).
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub confirmation: Option<Confirmation>,
    /// Reason why a requested experiment could not be made.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub untested_reason: Option<String>,
    /// Figures that could not be sampled, because the machine does not provide them.
    #[serde(default)]
    pub not_observable: Vec<String>,
}

/// Result of a run for people: three sentences with its figures. It is computed from the rest of the record.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// Limit of the run, in everyday words.
    pub what: String,
    /// Figures that show it.
    pub why: String,
    pub next: String,
}

/// Support of a verdict by the evidence. It is a level and not a number: `weir lab selftest`
/// measures and prints how often each level was right.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", from = "StoredConfidence")]
pub enum Confidence {
    /// There is no verdict to support.
    #[default]
    None,
    /// The necessary conditions hold, but other explanations remain.
    Possible,
    /// The necessary conditions hold, with support from a second source.
    Likely,
    /// The necessary conditions hold with a margin, from several sources, and no other explanation
    /// fits.
    Sure,
}

impl Confidence {
    /// All levels, the surest first.
    pub const ALL: [Self; 4] = [Self::Sure, Self::Likely, Self::Possible, Self::None];

    /// Returns the word for records and output.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Possible => "possible",
            Self::Likely => "likely",
            Self::Sure => "sure",
        }
    }
}

impl std::fmt::Display for Confidence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Confidence as stored: a word, or a number in records from versions before 0.2, which was not
/// based on measured frequencies.
#[derive(Deserialize)]
#[serde(untagged)]
enum StoredConfidence {
    Number(f64),
    Word(String),
}

impl From<StoredConfidence> for Confidence {
    fn from(stored: StoredConfidence) -> Self {
        match stored {
            StoredConfidence::Number(number) if number > 0.0 => Self::Possible,
            StoredConfidence::Number(_) => Self::None,
            StoredConfidence::Word(word) => {
                Self::ALL.into_iter().find(|level| level.as_str() == word).unwrap_or_default()
            }
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AlternativeVerdict {
    pub verdict: String,
    /// Level of support by the evidence.
    pub confidence: Confidence,
    /// Supporting observations.
    pub evidence: Vec<String>,
}

/// Location of requests, with their fraction.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TimeFraction {
    pub location: String,
    /// Fraction of the requests in flight at this location.
    pub fraction: f64,
}

/// Resource with a limit (utilisation law: U = X · D).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ResourceUse {
    pub resource: String,
    /// Used fraction; 1 is all of it.
    pub utilisation: f64,
    /// Its time per good response, in ns; only for CPU time.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub demand_ns: Option<f64>,
    /// Rate at which it is full. Absent if its use does not follow the rate, or is too small to be
    /// measured well, and in records from older versions.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub full_at: Option<SaturationRate>,
}

/// Rate of good responses at which a resource is full: 1 / D, or N / (R + Z) for connections.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SaturationRate {
    /// Good responses per second.
    pub rate_per_s: f64,
    /// Direction in which the true rate may differ.
    pub bound: RateBound,
}

/// Relation of an estimated rate to the true one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RateBound {
    /// The true rate is near it: the demand was measured near saturation, or is the same at every
    /// rate.
    About,
    /// The true rate is equal or higher: the demand was measured far below saturation, and batching
    /// reduces it.
    AtLeast,
    /// The true rate is equal or lower: no request is faster than the measured ones.
    AtMost,
}

/// Formats as "≥ 62.0 k/s".
impl std::fmt::Display for SaturationRate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let word = match self.bound {
            RateBound::About => "about",
            RateBound::AtLeast => "≥",
            RateBound::AtMost => "≤",
        };
        write!(f, "{word} {}", format_rate(self.rate_per_s))
    }
}

/// Outcome of a counter-test.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Confirmation {
    /// Tested verdict. Empty in records from older versions: then it is the verdict of the
    /// diagnosis.
    #[serde(default)]
    pub verdict: String,
    /// Applied change.
    pub perturbation: String,
    /// Predicted effect on throughput (or latency).
    pub prediction: String,
    pub measured: String,
    /// True if the measured effect is the predicted one.
    pub confirmed: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_confidence_is_a_word_and_old_numbers_are_no_more_than_possible() {
        for level in Confidence::ALL {
            let text = serde_json::to_string(&level).unwrap();
            assert_eq!(text, format!("\"{level}\""));
            assert_eq!(serde_json::from_str::<Confidence>(&text).unwrap(), level);
        }
        let old = |text| serde_json::from_str::<Confidence>(text).unwrap();
        assert_eq!((old("0.98"), old("0.0")), (Confidence::Possible, Confidence::None));
        assert!(Confidence::Sure > Confidence::Likely && Confidence::Possible > Confidence::None);
    }
}
