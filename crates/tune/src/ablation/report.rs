//! Schema of the result of an ablation, `weir.tune-trial/1`.

use std::path::Path;

use record::experiment::ComparisonOutcome;
use record::file::{ReadError, read_record};
use serde::{Deserialize, Serialize};

use super::AblationDesign;

pub const TRIAL_SCHEMA: &str = "weir.tune-trial/1";

/// Design and result of an ablation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AblationReport {
    pub schema: String,
    pub weir_version: String,
    pub kernel: String,
    pub design: AblationDesign,
    pub metric: String,
    /// Smallest effect that matters, as a fraction.
    pub effect: f64,
    pub confidence: f64,
    /// True if the experiment ended before its stopping rule applied, or has not run yet.
    pub is_partial: bool,
    /// Reason why the experiment ended.
    pub stopped: String,
    /// Complete profile compared with none of it, by load.
    pub profile: Vec<(String, SettingEffect)>,
    /// Settings, in the order of the profile.
    pub settings: Vec<SettingResult>,
    /// Names of the settings of the minimal profile.
    pub minimal: Vec<String>,
    /// Minimal profile compared with the complete one; absent if they are equal, if it is empty, or if it did
    /// not run.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub confirmation: Option<Confirmation>,
    /// Result in sentences.
    pub summary: Vec<String>,
}

/// Reads the report of an ablation.
///
/// # Errors
/// The file cannot be read, is not such a report, or has another schema.
pub fn read_ablation(path: &Path) -> Result<AblationReport, ReadError> {
    read_record(path, TRIAL_SCHEMA)
}

/// Comparison of the minimal profile with the complete one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Confirmation {
    /// True if the experiment ended before its stopping rule applied.
    pub is_partial: bool,
    /// Minimal profile over the complete profile, by load.
    pub minimal: Vec<(String, SettingEffect)>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SettingContribution {
    /// Better with it, and never worse.
    Helps,
    /// Better alone, and dispensable in the profile: another setting does the same.
    Redundant,
    /// No effect that matters, alone and in the profile.
    NoEffect,
    /// Worse with it, and never better.
    Hurts,
    /// Better in one comparison and worse in another: it depends on the load or on the other settings.
    Depends,
    /// The trials do not decide.
    #[default]
    Undecided,
}

impl SettingContribution {
    pub fn name(self) -> &'static str {
        match self {
            Self::Helps => "helps",
            Self::Redundant => "redundant",
            Self::NoEffect => "no effect",
            Self::Hurts => "hurts",
            Self::Depends => "depends",
            Self::Undecided => "undecided",
        }
    }
}

/// Effect of settings on the metric: with them, over without them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SettingEffect {
    /// Ratio of the metric; absent without pairs.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub ratio: Option<f64>,
    /// Confidence interval of the ratio; absent with too few pairs.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub interval: Option<(f64, f64)>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub p_adjusted: Option<f64>,
    pub blocks: usize,
    /// Result: faster is better.
    pub outcome: ComparisonOutcome,
}

/// Effects of a setting under one load.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LoadEffect {
    pub load: String,
    /// The setting alone over none; absent if it was not measured.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub alone: Option<SettingEffect>,
    /// The profile over the profile without it; absent if it was not measured.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub within: Option<SettingEffect>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SettingResult {
    pub name: String,
    pub value: String,
    /// Value without the profile.
    pub default: String,
    pub contribution: SettingContribution,
    pub reason: String,
    pub loads: Vec<LoadEffect>,
}
