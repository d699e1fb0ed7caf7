//! Ablation of a set of settings: its arms as an ordinary experiment's file, and the conclusions from that
//! experiment's comparisons. Pure: running and judging the experiment are elsewhere.

mod conclude;
mod report;
mod text;

#[cfg(test)]
mod tests;

use record::problem::InputProblem;
use serde::{Deserialize, Serialize};

pub use self::conclude::{AblationComparisons, conclude, plan_against_profile};
pub use self::report::{
    AblationReport, Confirmation, LoadEffect, SettingContribution, SettingEffect, SettingResult,
    TRIAL_SCHEMA, read_ablation,
};
pub use self::text::{
    CONFIRM_SUFFIX, MINIMAL, NONE, PROFILE, ablation_text, confirmation_text, profile_text,
};

use crate::apply::{ApplyPlan, PlannedChange};
use crate::setting::{Probe, Scope};

/// Maximum number of arms of an experiment's file.
const ARMS_MAX: usize = 32;
/// Maximum length of the part of an arm's name that names a setting, in bytes.
const WORD_BYTES_MAX: usize = 30;

/// Kind of arms beside the profile and none of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AblationMethod {
    /// Leave-one-out and one-by-one.
    #[default]
    Both,
    /// The profile without one setting.
    LeaveOneOut,
    /// One setting alone.
    OneByOne,
}

pub const METHODS: [AblationMethod; 3] =
    [AblationMethod::Both, AblationMethod::LeaveOneOut, AblationMethod::OneByOne];

impl AblationMethod {
    pub fn name(self) -> &'static str {
        match self {
            Self::Both => "both",
            Self::LeaveOneOut => "leave-one-out",
            Self::OneByOne => "one-by-one",
        }
    }

    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        METHODS.into_iter().find(|method| method.name() == name)
    }

    fn leaves_out(self) -> bool {
        self != Self::OneByOne
    }

    fn isolates(self) -> bool {
        self != Self::LeaveOneOut
    }

    pub fn settings_max(self) -> usize {
        let arms_each = usize::from(self.leaves_out()) + usize::from(self.isolates());
        (ARMS_MAX - 2) / arms_each
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AblationSetting {
    pub name: String,
    pub value: String,
    /// Value without the profile.
    pub default: String,
    /// Part of the arms' names that names the setting.
    pub word: String,
    /// True if the complete machine has one value of it.
    pub is_global: bool,
    /// True if it is a setting of the node's virtual links.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_of_link: bool,
    /// Name of the setting, or path of its file, in the experiment's file.
    pub key: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AblationDesign {
    pub requested: Vec<String>,
    /// Node whose namespace has the settings: `client`, `subject` or `origin`.
    pub node: String,
    /// Arms beside the profile and none of it.
    pub method: AblationMethod,
    /// Settings, in the order of the profile.
    pub settings: Vec<AblationSetting>,
    /// Settings that are not measured, with the reason.
    pub skipped: Vec<(String, String)>,
}

impl AblationDesign {
    /// Designs an ablation of a planned change. Settings that have the value already are skipped.
    ///
    /// # Errors
    /// No setting is left, or there are too many for one experiment.
    pub fn new(
        requested: &[String],
        node: &str,
        method: AblationMethod,
        plan: &ApplyPlan,
    ) -> Result<Self, InputProblem> {
        let mut design = Self {
            requested: requested.to_vec(),
            node: node.to_owned(),
            method,
            settings: Vec::new(),
            skipped: plan.skipped.clone(),
        };
        for name in &plan.unchanged {
            let text = "it has this value already: nothing to measure".to_owned();
            design.skipped.push((name.clone(), text));
        }
        for change in &plan.changes {
            let word = unique_word(&change.requested.name, &design.settings);
            design.settings.push(ablation_setting(change, word));
        }
        let problem = |text: String| InputProblem::new(requested.join(" "), text);
        if design.settings.is_empty() {
            let reasons: Vec<String> =
                design.skipped.iter().map(|(name, reason)| format!("{name}: {reason}")).collect();
            return Err(problem(format!("no setting can be measured: {}", reasons.join("; "))));
        }
        let (count, max) = (design.settings.len(), method.settings_max());
        if count > max {
            let other = match method {
                AblationMethod::Both => {
                    ", or measure half of the arms with --method leave-one-out or one-by-one (up to 30)"
                }
                _ => "",
            };
            let text = format!(
                "{count} settings; one experiment measures up to {max} with this method. Name fewer \
                 settings as name=value{other}"
            );
            return Err(problem(text));
        }
        Ok(design)
    }

    pub fn global_settings(&self) -> impl Iterator<Item = &AblationSetting> {
        self.settings.iter().filter(|setting| setting.is_global)
    }

    /// Returns whether each setting has arms of its own. With one setting, the profile is the arm.
    fn has_single_arms(&self) -> bool {
        self.settings.len() > 1
    }

    fn alone_arm(&self, setting: &AblationSetting) -> Option<String> {
        match self.has_single_arms() {
            true => self.method.isolates().then(|| format!("only-{}", setting.word)),
            false => Some(PROFILE.to_owned()),
        }
    }

    fn without_arm(&self, setting: &AblationSetting) -> Option<String> {
        (self.has_single_arms() && self.method.leaves_out()).then(|| format!("without-{}", setting.word))
    }
}

/// Returns whether a setting can differ between two namespaces.
pub fn is_namespaced(change: &crate::apply::RequestedValue) -> bool {
    let setting = change.setting;
    crate::link::is_of_link(change)
        || setting.scope == Scope::NetworkNamespace
        || (setting.scope == Scope::Interface && setting.probe == Probe::Sysctl)
}

fn ablation_setting(change: &PlannedChange, word: String) -> AblationSetting {
    let request = &change.requested;
    let is_of_link = crate::link::is_of_link(request);
    let link = crate::link::link_setting(request.setting).filter(|_| is_of_link);
    let key = match (link, request.setting.probe) {
        (Some(link), _) => link.name.to_owned(),
        (None, Probe::Sysctl) => request.name.clone(),
        (None, _) => request.path.display().to_string(),
    };
    AblationSetting {
        name: request.name.clone(),
        value: request.value.clone(),
        default: change.old.clone(),
        word,
        is_global: !is_namespaced(request),
        is_of_link,
        key,
    }
}

/// Returns a short name of a setting that no earlier setting has.
fn unique_word(name: &str, earlier: &[AblationSetting]) -> String {
    let prefixes = ["net.ipv4.", "net.", "kernel."];
    let short = prefixes.iter().find_map(|prefix| name.strip_prefix(prefix)).unwrap_or(name);
    let fits = |character: char| {
        if character.is_ascii_alphanumeric() { character.to_ascii_lowercase() } else { '-' }
    };
    let mut word: String = short.chars().map(fits).take(WORD_BYTES_MAX).collect();
    word = word.trim_matches('-').to_owned();
    if word.is_empty() || earlier.iter().any(|setting| setting.word == word) {
        word = format!("setting-{}", earlier.len() + 1);
    }
    word
}
