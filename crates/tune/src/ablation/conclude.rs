//! Conclusions from the comparisons of an ablation: the contribution of each setting, and the minimal profile.

use record::experiment::{Comparison, ComparisonOutcome, ExperimentPlan, StopReason};
use record::units::format_plural;

use super::report::{
    AblationReport, LoadEffect, SettingContribution, SettingEffect, SettingResult, TRIAL_SCHEMA,
};
use super::text::{NONE, PROFILE};
use super::{AblationDesign, AblationSetting};

/// Comparisons of an ablation in the metric that decides.
#[derive(Clone, Copy, Debug)]
pub struct AblationComparisons<'a> {
    pub plan: &'a ExperimentPlan,
    pub with_none: &'a [Comparison],
    pub with_profile: &'a [Comparison],
    pub stopped: &'a StopReason,
    /// True if the experiment ended before its stopping rule applied.
    pub is_partial: bool,
}

pub fn conclude(
    design: &AblationDesign,
    input: AblationComparisons<'_>,
    (weir_version, kernel): (&str, &str),
) -> AblationReport {
    let plan = input.plan;
    let loads = || plan.loads.iter().map(|load| load.name.as_str());
    let result = |setting: &AblationSetting| {
        let effects = loads().map(|load| load_effect(design, setting, load, input)).collect();
        setting_result(setting, effects)
    };
    let settings: Vec<SettingResult> = design.settings.iter().map(result).collect();
    let profile = loads().filter_map(|load| {
        let effect = find(input.with_none, PROFILE, load).map(|comparison| effect_of(comparison, false))?;
        Some((load.to_owned(), effect))
    });
    let mut report = AblationReport {
        schema: TRIAL_SCHEMA.to_owned(),
        weir_version: weir_version.to_owned(),
        kernel: kernel.to_owned(),
        design: design.clone(),
        metric: plan.primary().map(|metric| metric.name.clone()).unwrap_or_default(),
        effect: plan.effect,
        confidence: plan.confidence,
        is_partial: input.is_partial,
        stopped: input.stopped.text.clone(),
        profile: profile.collect(),
        minimal: minimal_profile(&settings),
        settings,
        confirmation: None,
        summary: Vec::new(),
    };
    report.summary = summary(&report);
    report
}

fn find<'a>(comparisons: &'a [Comparison], arm: &str, load: &str) -> Option<&'a Comparison> {
    comparisons.iter().find(|comparison| {
        comparison.primary && !comparison.noise && comparison.arm == arm && comparison.load == load
    })
}

/// Returns the effects of a setting under a load.
fn load_effect(
    design: &AblationDesign,
    setting: &AblationSetting,
    load: &str,
    input: AblationComparisons<'_>,
) -> LoadEffect {
    let alone = design.alone_arm(setting).and_then(|arm| find(input.with_none, &arm, load));
    let within = design.without_arm(setting).and_then(|arm| find(input.with_profile, &arm, load));
    LoadEffect {
        load: load.to_owned(),
        alone: alone.map(|comparison| effect_of(comparison, false)),
        within: within.map(|comparison| effect_of(comparison, true)),
    }
}

/// Returns the effect of a comparison; inverted, if the arm is the one without the setting.
pub(super) fn effect_of(comparison: &Comparison, is_inverted: bool) -> SettingEffect {
    let mut effect = SettingEffect {
        ratio: comparison.ratio,
        interval: comparison.interval,
        p_adjusted: comparison.p_adjusted,
        blocks: comparison.pairs.len(),
        outcome: comparison.outcome,
    };
    if is_inverted {
        effect.ratio = effect.ratio.map(f64::recip);
        effect.interval = effect.interval.map(|(low, high)| (high.recip(), low.recip()));
        effect.outcome = match effect.outcome {
            ComparisonOutcome::Faster => ComparisonOutcome::Slower,
            ComparisonOutcome::Slower => ComparisonOutcome::Faster,
            other => other,
        };
    }
    effect
}

fn setting_result(setting: &AblationSetting, loads: Vec<LoadEffect>) -> SettingResult {
    let all = || loads.iter().flat_map(|load| load.alone.iter().chain(&load.within));
    let has = |outcome| all().any(|effect| effect.outcome == outcome);
    let contribution = match (has(ComparisonOutcome::Faster), has(ComparisonOutcome::Slower)) {
        (true, true) => SettingContribution::Depends,
        (false, true) => SettingContribution::Hurts,
        (true, false) if is_redundant(&loads) => SettingContribution::Redundant,
        (true, false) => SettingContribution::Helps,
        (false, false) if all().count() > 0 && !has(ComparisonOutcome::Inconclusive) => {
            SettingContribution::NoEffect
        }
        (false, false) => SettingContribution::Undecided,
    };
    SettingResult {
        name: setting.name.clone(),
        value: setting.value.clone(),
        default: setting.default.clone(),
        contribution,
        reason: reason(&loads),
        loads,
    }
}

/// Returns whether the setting helps alone only, and leaving it out of the profile changes nothing.
fn is_redundant(loads: &[LoadEffect]) -> bool {
    let within = || loads.iter().filter_map(|load| load.within.as_ref());
    within().count() > 0 && within().all(|effect| effect.outcome == ComparisonOutcome::Equivalent)
}

/// Chooses the minimal profile: settings that help, those whose help depends, and, of the redundant ones, the
/// one with the largest effect alone.
fn minimal_profile(settings: &[SettingResult]) -> Vec<String> {
    let redundant = settings.iter().filter(|setting| setting.contribution == SettingContribution::Redundant);
    let representative = redundant.max_by(|left, right| size_alone(left).total_cmp(&size_alone(right)));
    let is_kept = |setting: &&SettingResult| match setting.contribution {
        SettingContribution::Helps => true,
        // Leaving it out makes the profile worse, whatever it does alone.
        SettingContribution::Depends => is_needed(setting),
        SettingContribution::Redundant => representative.is_some_and(|other| other.name == setting.name),
        _ => false,
    };
    settings.iter().filter(is_kept).map(|setting| setting.name.clone()).collect()
}

fn is_needed(result: &SettingResult) -> bool {
    let within = || result.loads.iter().filter_map(|load| load.within.as_ref());
    within().any(|effect| effect.outcome == ComparisonOutcome::Faster)
        && within().all(|effect| effect.outcome != ComparisonOutcome::Slower)
}

/// Returns the size of the effect alone, whichever direction of the metric is better.
fn size_alone(result: &SettingResult) -> f64 {
    let sizes =
        result.loads.iter().filter_map(|load| load.alone.as_ref()?.ratio).map(|ratio| ratio.ln().abs());
    sizes.fold(0.0, f64::max)
}

fn reason(loads: &[LoadEffect]) -> String {
    let mut parts = Vec::new();
    for load in loads {
        let suffix = if loads.len() > 1 { format!(" under {}", load.load) } else { String::new() };
        for (label, effect) in [("alone", &load.alone), ("in the profile", &load.within)] {
            if let Some(effect) = effect {
                parts.push(format!("{label}{suffix} {}", describe(effect)));
            }
        }
    }
    if parts.is_empty() { "not measured".to_owned() } else { parts.join("; ") }
}

/// Describes an effect: ratio, interval and outcome.
pub(super) fn describe(effect: &SettingEffect) -> String {
    let percent = |ratio: f64| format!("{:+.1} %", (ratio - 1.0) * 100.0);
    let outcome = match effect.outcome {
        ComparisonOutcome::Faster => "better",
        ComparisonOutcome::Slower => "worse",
        ComparisonOutcome::Equivalent => "equivalent",
        ComparisonOutcome::Inconclusive => "inconclusive",
    };
    let Some(ratio) = effect.ratio else { return "without a figure".to_owned() };
    match effect.interval {
        Some((low, high)) => format!("{} ({} to {}), {outcome}", percent(ratio), percent(low), percent(high)),
        None => {
            let blocks = format_plural(effect.blocks as u64, "block");
            format!("{} after {blocks}, {outcome}", percent(ratio))
        }
    }
}

/// Returns the summary, the minimal profile first.
pub(super) fn summary(report: &AblationReport) -> Vec<String> {
    let mut sentences = Vec::new();
    if report.is_partial {
        sentences.push(format!("Partial result: {}.", report.stopped.trim_end_matches('.')));
    }
    let (kept, all) = (report.minimal.len(), report.settings.len());
    sentences.push(match kept {
        0 => {
            format!("None of {} earns its place in {}.", format_plural(all as u64, "setting"), report.metric)
        }
        _ => format!(
            "{kept} of {} {} place in {}: {}.",
            format_plural(all as u64, "setting"),
            if kept == 1 { "earns its" } else { "earn their" },
            report.metric,
            report.minimal.join(", ")
        ),
    });
    for (load, effect) in &report.profile {
        let under = if report.profile.len() > 1 { format!(" under {load}") } else { String::new() };
        sentences.push(format!("The complete profile{under}: {}.", describe(effect)));
    }
    for contribution in [
        SettingContribution::Hurts,
        SettingContribution::Redundant,
        SettingContribution::Depends,
        SettingContribution::NoEffect,
        SettingContribution::Undecided,
    ] {
        let with = report.settings.iter().filter(|setting| setting.contribution == contribution);
        let names: Vec<&str> = with.map(|setting| setting.name.as_str()).collect();
        if !names.is_empty() {
            sentences.push(format!("{}: {}.", title(contribution), names.join(", ")));
        }
    }
    if let Some(confirmation) = &report.confirmation {
        for (_, effect) in &confirmation.minimal {
            let partial = if confirmation.is_partial { " (partial)" } else { "" };
            sentences.push(format!("Minimal profile over the complete one{partial}: {}.", describe(effect)));
        }
    }
    sentences
}

fn title(contribution: SettingContribution) -> &'static str {
    match contribution {
        SettingContribution::Helps => "Help",
        SettingContribution::Redundant => "Redundant",
        SettingContribution::NoEffect => "No effect",
        SettingContribution::Hurts => "Hurt",
        SettingContribution::Depends => "Depend on the load or the other settings",
        SettingContribution::Undecided => "Undecided (more blocks or longer trials decide)",
    }
}

impl AblationReport {
    /// Adds the result of the confirmation. `comparisons` are those with the complete profile.
    pub fn confirm(&mut self, comparisons: &[Comparison], arm: &str, is_partial: bool) {
        let found = comparisons
            .iter()
            .filter(|comparison| comparison.primary && !comparison.noise && comparison.arm == arm);
        let minimal =
            found.map(|comparison| (comparison.load.clone(), effect_of(comparison, false))).collect();
        self.confirmation = Some(super::Confirmation { is_partial, minimal });
        self.summary = summary(self);
    }

    /// Returns whether the confirmation has to run: the minimal profile is a part of the profile.
    pub fn needs_confirmation(&self) -> bool {
        !self.is_partial && !self.minimal.is_empty() && self.minimal.len() < self.settings.len()
    }
}

/// Returns the plan for the comparisons with the complete profile: the same trials, another baseline.
pub fn plan_against_profile(plan: &ExperimentPlan) -> ExperimentPlan {
    let mut view = plan.clone();
    view.arms.retain(|arm| arm.repeats.is_none() && arm.name != NONE && !arm.name.starts_with("only-"));
    view.baseline = PROFILE.to_owned();
    view
}
