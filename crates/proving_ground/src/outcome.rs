//! Outcome of one run of a case, as results have it.

use serde::{Deserialize, Deserializer, Serialize};

use crate::case_part::CasePart;
use crate::cases::{CaseKind, CaseSet};

/// Verdict of a record without a diagnosis.
pub const NO_DIAGNOSIS: &str = "no_diagnosis";

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CaseOutcome {
    pub case: String,
    /// Right verdict.
    pub induced: String,
    /// All verdicts that are right if they come first; absent in results from older versions, where
    /// it is `induced`.
    #[serde(default)]
    pub right: Vec<String>,
    /// Kind of the case: `healthy`, `single cause`, `decoy` or `two causes`.
    #[serde(default)]
    pub kind: String,
    /// Set of the case; absent in results from older versions: `induced`.
    #[serde(default = "induced")]
    pub set: String,
    /// Part of the proving ground that has the case.
    #[serde(default)]
    pub part: Option<CasePart>,
    /// Number of the repetition, from 1 on.
    pub repetition: u32,
    /// First reported verdict; `None` if the run failed.
    pub reported: Option<String>,
    /// Confidence of the verdict: a level in words, or a number rounded to tenths.
    #[serde(default, deserialize_with = "level_of")]
    pub confidence: Option<String>,
    /// Other verdicts that held.
    pub also: Vec<String>,
    /// Reason why the run failed.
    pub error: Option<String>,
    /// Duration, including everything around the load.
    pub length_s: f64,
}

impl CaseOutcome {
    /// Returns whether a right verdict came first.
    pub fn is_right(&self) -> bool {
        let Some(reported) = &self.reported else { return false };
        *reported == self.induced || self.right.contains(reported)
    }

    /// Returns, for two causes, whether one came first and the other was reported too.
    pub fn has_both(&self) -> Option<bool> {
        if self.kind != CaseKind::TwoCauses.name() {
            return None;
        }
        let is_other = |verdict: &&String| Some(*verdict) != self.reported.as_ref();
        let mut others = self.right.iter().filter(is_other);
        Some(self.is_right() && others.all(|verdict| self.also.contains(verdict)))
    }
}

pub(crate) fn induced() -> String {
    CaseSet::Induced.name().to_owned()
}

/// Converts a level of confidence to text: unchanged, or a number rounded to tenths.
pub fn confidence_level(value: &serde_json::Value) -> Option<String> {
    match value {
        serde_json::Value::String(level) => Some(level.clone()),
        serde_json::Value::Number(number) => Some(format!("{:.1}", number.as_f64()?)),
        _ => None,
    }
}

fn level_of<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    Ok(confidence_level(&serde_json::Value::deserialize(from)?))
}
