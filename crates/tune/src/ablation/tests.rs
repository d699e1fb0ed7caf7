//! Tests of the design, the texts and the conclusions of an ablation, with comparisons made up.

use record::experiment::{
    Arm, Comparison, ComparisonOutcome, ExperimentMetric, ExperimentPlan, LoadPlan, StopReason,
};

use super::*;
use crate::apply::{parse_requests, plan_apply};
use crate::judge::JudgeContext;
use crate::kernel::KernelVersion;
use crate::setting::Role;

const REQUESTS: &[&str] = &[
    "net.ipv4.tcp_tw_reuse=1",
    "net.core.somaxconn=16384",
    "net.ipv4.tcp_fin_timeout=30",
    "net.ipv4.tcp_sack=1",
];

fn design(words: &[&str], method: AblationMethod) -> Result<AblationDesign, InputProblem> {
    let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
    let machine = std::collections::BTreeMap::new();
    let context = JudgeContext {
        kernel: KernelVersion(6, 18),
        memory_bytes: 1 << 33,
        page_bytes: 4096,
        role: Role::Proxy,
        machine: &machine,
        congestion_modules: &[],
        replaced: std::collections::BTreeMap::new(),
    };
    let observe = |request: &crate::apply::RequestedValue| {
        let default = request.setting.default_for(context.kernel).unwrap_or("0");
        host::tuning::ObservedValue::Value(default.to_owned())
    };
    let plan = plan_apply(&parse_requests(&words).unwrap(), &context, true, observe).unwrap();
    AblationDesign::new(&words, "subject", method, &plan)
}

#[test]
fn arms_are_the_profile_none_and_one_more_or_less() {
    let design = design(REQUESTS, AblationMethod::Both).unwrap();
    let names: Vec<&str> = design.settings.iter().map(|setting| setting.word.as_str()).collect();
    assert_eq!(names, ["tcp-tw-reuse", "core-somaxconn", "tcp-fin-timeout"]);
    assert!(design.skipped.iter().any(|(name, _)| name == "net.ipv4.tcp_sack"), "{:?}", design.skipped);
    let text = ablation_text("name = \"x\"\n[load]\nflags = \"-c 1\"\n", &design);
    assert_eq!(text.matches("[arms.").count(), 2 + 2 * 3, "{text}");
    let arm = text.split("[arms.\"without-core-somaxconn\"]").nth(1).unwrap().split("[arms").next().unwrap();
    assert!(arm.contains("scenario.sysctl.subject.\"net.ipv4.tcp_tw_reuse\" = \"1\"\n"), "{arm}");
    assert!(!arm.contains(".\"net.core.somaxconn\""), "{arm}");
    let single = design_of_one();
    assert_eq!(ablation_text("", &single).matches("[arms.").count(), 2);
    let minimal = vec!["net.core.somaxconn".to_owned()];
    let text = confirmation_text("", &design, &minimal);
    let arm = text.split("[arms.\"minimal\"]").nth(1).unwrap().split("[arms").next().unwrap();
    assert_eq!(arm.matches("scenario.").count(), 1, "{arm}");
}

#[test]
fn a_setting_of_a_link_is_set_at_its_node() {
    let mut design = design_of_one();
    let setting = &mut design.settings[0];
    (setting.name, setting.key) = ("nic.gro".to_owned(), "gro".to_owned());
    (setting.value, setting.is_of_link) = ("1".to_owned(), true);
    let text = ablation_text("", &design);
    assert!(text.contains("scenario.interface.subject.\"gro\" = \"1\"\n"), "{text}");
}

fn design_of_one() -> AblationDesign {
    design(&["net.core.somaxconn=16384"], AblationMethod::Both).unwrap()
}

#[test]
fn a_profile_without_a_measurable_setting_is_refused() {
    let problem = design(&["net.ipv4.tcp_sack=1"], AblationMethod::Both).unwrap_err();
    assert!(problem.text.contains("nothing to measure"), "{problem}");
    assert_eq!((AblationMethod::Both.settings_max(), AblationMethod::OneByOne.settings_max()), (15, 30));
}

fn comparison(arm: &str, baseline: &str, ratio: f64, outcome: ComparisonOutcome) -> Comparison {
    Comparison {
        arm: arm.to_owned(),
        baseline: baseline.to_owned(),
        load: "load".to_owned(),
        primary: true,
        ratio: Some(ratio),
        interval: Some((ratio * 0.99, ratio * 1.01)),
        outcome,
        ..Comparison::default()
    }
}

fn plan() -> ExperimentPlan {
    let arm = |name: &str| Arm { name: name.to_owned(), ..Arm::default() };
    ExperimentPlan {
        arms: ["none", "profile", "without-a", "only-a"].map(arm).to_vec(),
        baseline: "none".to_owned(),
        loads: vec![LoadPlan { name: "load".to_owned(), ..LoadPlan::default() }],
        metrics: vec![ExperimentMetric { name: "responses_per_s".to_owned(), ..ExperimentMetric::default() }],
        ..ExperimentPlan::default()
    }
}

/// Concludes from the outcomes of each setting: alone, and of the profile without it.
fn conclusions(outcomes: &[(ComparisonOutcome, ComparisonOutcome)]) -> AblationReport {
    let design = design(&REQUESTS[..3], AblationMethod::Both).unwrap();
    let words = design.settings.iter().map(|setting| setting.word.clone());
    let (mut with_none, mut with_profile) = (Vec::new(), Vec::new());
    for (word, (alone, without)) in words.zip(outcomes) {
        with_none.push(comparison(&format!("only-{word}"), NONE, 1.25, *alone));
        with_profile.push(comparison(&format!("without-{word}"), PROFILE, 0.8, *without));
    }
    with_none.push(comparison(PROFILE, NONE, 1.3, ComparisonOutcome::Faster));
    let input = AblationComparisons {
        plan: &plan(),
        with_none: &with_none,
        with_profile: &with_profile,
        stopped: &StopReason::default(),
        is_partial: false,
    };
    conclude(&design, input, ("1", "6.18"))
}

#[test]
fn contributions_follow_from_both_comparisons() {
    use ComparisonOutcome::{Equivalent, Faster, Inconclusive, Slower};
    let of = |alone, without| {
        let report = conclusions(&[(alone, without), (Equivalent, Equivalent), (Equivalent, Equivalent)]);
        (report.settings[0].contribution, !report.minimal.is_empty())
    };
    assert_eq!(of(Faster, Slower), (SettingContribution::Helps, true));
    assert_eq!(of(Equivalent, Slower), (SettingContribution::Helps, true));
    assert_eq!(of(Faster, Inconclusive), (SettingContribution::Helps, true));
    assert_eq!(of(Faster, Equivalent), (SettingContribution::Redundant, true));
    assert_eq!(of(Slower, Equivalent), (SettingContribution::Hurts, false));
    assert_eq!(of(Equivalent, Faster), (SettingContribution::Hurts, false));
    assert_eq!(of(Slower, Slower), (SettingContribution::Depends, true));
    assert_eq!(of(Faster, Faster), (SettingContribution::Depends, false));
    assert_eq!(of(Equivalent, Equivalent), (SettingContribution::NoEffect, false));
    assert_eq!(of(Equivalent, Inconclusive), (SettingContribution::Undecided, false));
}

#[test]
fn a_minimal_profile_keeps_one_of_the_redundant_settings_and_says_why() {
    use ComparisonOutcome::{Equivalent, Faster};
    let mut report = conclusions(&[(Faster, Equivalent), (Faster, Equivalent), (Equivalent, Equivalent)]);
    assert_eq!(report.minimal.len(), 1);
    assert!(report.needs_confirmation());
    let within = report.settings[0].loads[0].within.clone().unwrap();
    let (low, high) = within.interval.unwrap();
    assert!((within.ratio.unwrap() - 1.25).abs() < 1e-9 && low < 1.25 && high > 1.25, "{within:?}");
    let text = profile_text(&report, "x");
    assert_eq!(text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).count(), 1, "{text}");
    report.confirm(&[comparison(MINIMAL, PROFILE, 1.0, Equivalent)], MINIMAL, false);
    assert!(report.summary.last().unwrap().contains("+0.0 %"), "{:?}", report.summary);
    let view = plan_against_profile(&plan());
    let arms: Vec<&str> = view.arms.iter().map(|arm| arm.name.as_str()).collect();
    assert_eq!((arms, view.baseline.as_str()), (vec!["profile", "without-a"], "profile"));
}
