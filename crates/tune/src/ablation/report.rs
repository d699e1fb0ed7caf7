//! Schema of the result of an ablation, `weir.tune-trial/1`.

use record::experiment::ComparisonOutcome;
use serde::{Deserialize, Serialize};

use super::AblationDesign;

/// Name of this schema.
pub const TRIAL_SCHEMA: &str = "weir.tune-trial/1";

/// Design and result of an ablation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AblationReport {
    /// [`TRIAL_SCHEMA`].
    pub schema: String,
    /// Version of weir that wrote it.
    pub weir_version: String,
    /// Release of the kernel.
    pub kernel: String,
    /// Design.
    pub design: AblationDesign,
    /// Metric that decides.
    pub metric: String,
    /// Smallest effect that matters, as a fraction.
    pub effect: f64,
    /// Confidence level of the intervals.
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

/// Comparison of the minimal profile with the complete one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Confirmation {
    /// True if the experiment ended before its stopping rule applied.
    pub is_partial: bool,
    /// Minimal profile over the complete profile, by load.
    pub minimal: Vec<(String, SettingEffect)>,
}

/// Contribution of a setting to its profile.
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
    /// Returns its name.
    #[must_use]
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
    /// Corrected p-value.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub p_adjusted: Option<f64>,
    /// Number of paired blocks.
    pub blocks: usize,
    /// Result: faster is better.
    pub outcome: ComparisonOutcome,
}

/// Effects of a setting under one load.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LoadEffect {
    /// Name of the load.
    pub load: String,
    /// The setting alone over none; absent if it was not measured.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub alone: Option<SettingEffect>,
    /// The profile over the profile without it; absent if it was not measured.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub within: Option<SettingEffect>,
}

/// Result of one setting.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SettingResult {
    /// Name.
    pub name: String,
    /// Value in the profile.
    pub value: String,
    /// Value without the profile.
    pub default: String,
    /// Contribution.
    pub contribution: SettingContribution,
    /// Reason with its figures.
    pub reason: String,
    /// Effects, by load.
    pub loads: Vec<LoadEffect>,
}
