//! Comparison of a run with an earlier one, as its record has it.

use serde::{Deserialize, Serialize};

/// Comparison of a run with an earlier one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BaselineComparison {
    /// File of the earlier run.
    pub baseline: String,
    pub figures: Vec<ComparedFigure>,
    /// Each condition of a regression (`--fail-if`).
    pub conditions: Vec<ComparedCondition>,
    /// Settings in which the loads differ.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub plan_differences: Vec<String>,
    /// Exit code of the comparison: 0, 3 with a regression, 4 if the records cannot decide a condition.
    pub exit_code: u8,
}

/// Figure before and after.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ComparedFigure {
    /// `rate` (per second), `p50` and `p99` (ns), or `errors` (fraction).
    pub figure: String,
    /// Figure of the earlier run.
    pub before: f64,
    pub after: f64,
    /// Ratio minus 1, or the difference of `errors`; absent if the earlier figure is 0.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub difference: Option<f64>,
    /// 95 % interval of the difference; absent with fewer than eight complete seconds in a run.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub interval: Option<(f64, f64)>,
}

/// Condition of a regression, with its decision.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ComparedCondition {
    /// Condition as given: `p99>+10%`.
    pub text: String,
    pub figure: String,
    /// Limit: fraction, or difference of `errors`; worse is positive.
    pub limit: f64,
    pub decision: ConditionDecision,
    /// Reason of `undecided`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub reason: Option<String>,
    /// Length of both loads that would decide it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub needed_s: Option<u64>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConditionDecision {
    /// The change and its interval are beyond the limit.
    Regression,
    /// The change and its interval are within the limit.
    None,
    /// The records do not decide it.
    #[default]
    Undecided,
}
