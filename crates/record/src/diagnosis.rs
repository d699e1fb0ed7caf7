//! What limited the subject of a run, as its record says it. Worked out from the rest of the record,
//! and reproducible from it.

use serde::{Deserialize, Serialize};

/// The limit of a run, with the evidence.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Diagnosis {
    /// A fixed code; `none` for a run without a bottleneck, `unknown` when nothing could be proven, or
    /// when a counter-test refuted what had been (`confirmation` names that verdict, `evidence` has
    /// what spoke for it).
    pub verdict: String,
    /// Its claim, in a sentence.
    #[serde(default)]
    pub claim: String,
    /// How well the evidence supports it.
    pub confidence: Confidence,
    /// What speaks for it, with figures.
    pub evidence: Vec<String>,
    /// Other explanations that hold as well, the likeliest first.
    #[serde(default)]
    pub also: Vec<Candidate>,
    /// The change that tells the verdict from the first of `also`; empty with one explanation.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub told_apart_by: String,
    /// Share of the latency under load that is waiting: 1 − R(1) / R(N). Absent without a baseline.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub queueing_share: Option<f64>,
    /// Where the requests in flight were, as shares of all of them; empty where it is not observable.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub time_split: Vec<TimeShare>,
    /// Resources with a bound, the fullest first.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub resources: Vec<ResourceUse>,
    /// What was ruled out, and by what.
    pub ruled_out: Vec<String>,
    /// What would be the limit next: resources by their headroom, the least first.
    pub next_limits: Vec<String>,
    /// Marks in the latencies that are known to have one cause (40 ms, 200 ms, a quota's period…).
    #[serde(default)]
    pub fingerprints: Vec<String>,
    /// What to do about it.
    #[serde(default)]
    pub remedy: String,
    /// What would prove it: a change, and how throughput would answer.
    #[serde(default)]
    pub counter_test: String,
    /// What that test showed, when it was made (`--confirm`).
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub confirmation: Option<Confirmation>,
    /// Why that test could not be made where it was asked for.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub untested: Option<String>,
    /// What could not be sampled, because the machine does not provide it.
    #[serde(default)]
    pub not_observable: Vec<String>,
}

/// How well evidence supports a verdict. A level and not a number: how often each level was right is
/// measured by `weir lab selftest`, and printed there.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase", from = "Stored")]
pub enum Confidence {
    /// No verdict that evidence could support.
    #[default]
    None,
    /// The necessary conditions hold, and other explanations are open.
    Possible,
    /// The necessary conditions hold, with support from a second source.
    Likely,
    /// The necessary conditions hold with a margin, from several sources, and no other explanation does.
    Sure,
}

impl Confidence {
    /// All levels, the surest first.
    pub const ALL: [Self; 4] = [Self::Sure, Self::Likely, Self::Possible, Self::None];

    /// The word in records and in the output.
    #[must_use]
    pub fn word(self) -> &'static str {
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
        f.write_str(self.word())
    }
}

/// A confidence as records have it: a word, or a number in records from versions before 0.2, which no
/// measured frequency stood behind.
#[derive(Deserialize)]
#[serde(untagged)]
enum Stored {
    Number(f64),
    Word(String),
}

impl From<Stored> for Confidence {
    fn from(stored: Stored) -> Self {
        match stored {
            Stored::Number(number) if number > 0.0 => Self::Possible,
            Stored::Number(_) => Self::None,
            Stored::Word(word) => {
                Self::ALL.into_iter().find(|level| level.word() == word).unwrap_or_default()
            }
        }
    }
}

/// An explanation beside the first.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Candidate {
    /// Its code.
    pub verdict: String,
    /// How well the evidence supports it.
    pub confidence: Confidence,
    /// What speaks for it.
    pub evidence: Vec<String>,
}

/// A place where requests spend their time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TimeShare {
    /// The place, in words.
    pub place: String,
    /// Share of the requests in flight that were there.
    pub share: f64,
}

/// A resource with a bound (utilisation law: U = X · D).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ResourceUse {
    /// The resource, in words.
    pub resource: String,
    /// Share of it that was used; 1 is all of it.
    pub utilisation: f64,
    /// Its time per good response, in ns; only of resources that are used over time.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub demand_ns: Option<f64>,
}

/// The outcome of a perturbation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Confirmation {
    /// The verdict that was tested. Empty in records from older versions: then it is the one beside it.
    #[serde(default)]
    pub verdict: String,
    /// What was changed.
    pub perturbation: String,
    /// What the verdict predicts of the throughput (or latency).
    pub prediction: String,
    /// What was measured.
    pub measured: String,
    /// Whether that is what was predicted.
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
