//! Tests of the complete judge, over small synthetic experiments.

use std::collections::{BTreeMap, BTreeSet};

use record::experiment::{
    Arm, BetterDirection, Comparison, ComparisonOutcome, Experiment, ExperimentMetric, ExperimentPlan,
    LoadPlan, SCHEMA, TrialSummary, Warning, primary_claims,
};
use record::trial::{SteadyState, TrialPosition};

use crate::definition::ExperimentOptions;
use crate::engine::blocks::mark_discarded;
use crate::engine::experiment_dir::ExperimentStart;
use crate::format::percent;

use super::phrases::difference_phrase;
use super::{ExperimentJudgement, JudgeExtras, UnpairedSets, compare_unpaired, is_concluded, judge};

const BLOCKS: u32 = 12;

fn metric(name: &str, unit: &str, better: BetterDirection) -> ExperimentMetric {
    ExperimentMetric { name: name.to_owned(), title: name.replace('_', " "), unit: unit.to_owned(), better }
}

fn arm(name: &str, changes: &[(&str, &str)]) -> Arm {
    Arm {
        name: name.to_owned(),
        changes: changes.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
        ..Arm::default()
    }
}

fn plan(loads: &[&str]) -> ExperimentPlan {
    let preload = [("subject.env.LD_PRELOAD", "/usr/lib/libjemalloc.so.2")];
    ExperimentPlan {
        name: "allocator".to_owned(),
        seed: 7,
        baseline: "glibc".to_owned(),
        arms: vec![
            arm("glibc", &[]),
            Arm { repeats: Some("glibc".to_owned()), ..arm("glibc-repeat", &[]) },
            arm("jemalloc", &preload),
        ],
        loads: loads
            .iter()
            .map(|name| LoadPlan { name: (*name).to_owned(), ..LoadPlan::default() })
            .collect(),
        metrics: vec![
            metric("subject_us_per_response", "us", BetterDirection::Lower),
            metric("responses_per_s", "1/s", BetterDirection::Higher),
            metric("p99_ns", "ns", BetterDirection::Lower),
            metric("error_fraction", "fraction", BetterDirection::Lower),
        ],
        effect: 0.02,
        confidence: 0.95,
        blocks_min: 10,
        blocks_max: 30,
        duration_s: 8.0,
        ..ExperimentPlan::default()
    }
}

/// Returns a few tenths of a percent, different for every trial.
fn wobble(number: u32) -> f64 {
    0.995 + 0.01 * fastrand::Rng::with_seed(u64::from(number)).f64()
}

/// Returns trials in which an arm's cost is a multiple of the baseline's, in rotating orders.
fn trials(plan: &ExperimentPlan, blocks: u32, cost: impl Fn(&str) -> f64) -> Vec<TrialSummary> {
    let mut lines = Vec::new();
    for block in 1..=blocks {
        for load in &plan.loads {
            for at in 0..plan.arms.len() {
                let arm = &plan.arms[(at + block as usize) % plan.arms.len()];
                let number = lines.len() as u32 + 1;
                let us = 20.0 * cost(&arm.name) * wobble(number);
                let metrics: BTreeMap<String, f64> = [
                    ("subject_us_per_response".to_owned(), us),
                    ("responses_per_s".to_owned(), 1e6 / us),
                    ("mean_ns".to_owned(), us * 1e4),
                    ("p99_ns".to_owned(), us * 2e4),
                    ("error_fraction".to_owned(), 0.0),
                ]
                .into();
                lines.push(TrialSummary {
                    position: TrialPosition {
                        number,
                        block,
                        attempt: 1,
                        arm: arm.name.clone(),
                        load: load.name.clone(),
                        ..TrialPosition::default()
                    },
                    metrics,
                    steady: SteadyState { from_s: Some(1.0), text: "steady".to_owned() },
                    verdict: Some("user_cpu_bound".to_owned()),
                    ..TrialSummary::default()
                });
            }
        }
    }
    lines
}

fn jemalloc(cost: f64) -> impl Fn(&str) -> f64 {
    move |arm| if arm == "jemalloc" { cost } else { 1.0 }
}

fn comparison_of<'a>(judged: &'a ExperimentJudgement, arm: &str, metric: &str) -> &'a Comparison {
    let is_it = |comparison: &&Comparison| comparison.arm == arm && comparison.metric == metric;
    judged.comparisons.iter().find(is_it).expect("it is compared")
}

fn warnings_with<'a>(judged: &'a ExperimentJudgement, code: &str) -> Vec<&'a Warning> {
    judged.warnings.iter().filter(|warning| warning.code == code).collect()
}

fn judged(plan: &ExperimentPlan, trials: &[TrialSummary]) -> ExperimentJudgement {
    let judged = judge(plan, trials, &JudgeExtras::default());
    println!("{:#?}\n{:#?}", judged.summary, judged.warnings);
    for comparison in &judged.comparisons {
        println!("{:?} {}", comparison.outcome, comparison.text);
    }
    judged
}

#[test]
fn a_clear_gain_is_reported_in_one_sentence() {
    let plan = plan(&["load"]);
    let judged = judged(&plan, &trials(&plan, BLOCKS, jemalloc(0.969)));
    let decisive = comparison_of(&judged, "jemalloc", "subject_us_per_response");
    assert_eq!(decisive.outcome, ComparisonOutcome::Faster);
    assert!(decisive.primary && !decisive.noise && decisive.pairs.len() == 12);
    assert!((decisive.ratio.unwrap() - 0.969).abs() < 0.003);
    assert_eq!(decisive.better_fraction, Some(1.0));
    assert_eq!(decisive.cliffs_delta, Some(1.0));
    assert!(decisive.p_adjusted.unwrap() < 0.001);
    let first = &judged.summary[0];
    let phrase = difference_phrase(&plan.metrics[0], decisive.ratio.unwrap());
    assert!(first.starts_with(&format!("jemalloc {phrase} glibc (")), "{first}");
    assert!(first.contains("12 blocks"), "{first}");
    assert!(judged.summary[1].contains("LD_PRELOAD"), "{:?}", judged.summary);
    // The bottleneck of both arms is named once.
    assert_eq!(judged.summary[1].matches("user_cpu_bound").count(), 1, "{:?}", judged.summary);
    for part in ["12 blocks", "3 trials", "8 s", "95 %"] {
        assert!(judged.summary[2].contains(part), "{part}: {:?}", judged.summary);
    }
    assert!(judged.warnings.is_empty(), "{:?}", judged.warnings);
    let repeat = comparison_of(&judged, "glibc-repeat", "subject_us_per_response");
    assert!(repeat.noise && repeat.outcome == ComparisonOutcome::Equivalent);
    assert_eq!(judged.cells.len(), 3);
    assert_eq!(judged.cells[0].verdicts["user_cpu_bound"], BLOCKS);
    assert!(judged.cells[0].metrics["p99_ns"].median_interval.is_some());
}

#[test]
fn judging_twice_gives_the_same() {
    let plan = plan(&["load"]);
    let trials = trials(&plan, BLOCKS, jemalloc(0.99));
    let extras = JudgeExtras::default();
    assert_eq!(judge(&plan, &trials, &extras), judge(&plan, &trials, &extras));
}

#[test]
fn a_difference_that_does_not_matter_is_equivalent() {
    let plan = plan(&["load"]);
    let judged = judged(&plan, &trials(&plan, BLOCKS, jemalloc(0.99)));
    let decisive = comparison_of(&judged, "jemalloc", "subject_us_per_response");
    assert_eq!(decisive.outcome, ComparisonOutcome::Equivalent);
    assert!(decisive.text.contains(" 2 %"), "{}", decisive.text);
    assert_eq!(judged.summary[0], decisive.text);
}

#[test]
fn few_blocks_are_inconclusive() {
    let plan = plan(&["load"]);
    let three = judged(&plan, &trials(&plan, 3, jemalloc(0.5)));
    let decisive = comparison_of(&three, "jemalloc", "subject_us_per_response");
    assert_eq!(decisive.outcome, ComparisonOutcome::Inconclusive);
    assert_eq!((decisive.interval, decisive.concluded_after, decisive.beyond), (None, None, (0, 3)));
    let has_both = |text: &str, blocks: &str| text.contains(blocks) && text.contains(" 4 ");
    // The estimate so far is reported, with the agreement of the blocks.
    let phrase = difference_phrase(&plan.metrics[0], decisive.ratio.unwrap());
    let text = &decisive.text;
    assert!(has_both(text, "(3 blocks)") && text.contains(&phrase) && text.contains("in each"), "{text}");
    // Noise of so few blocks would not be a meaningful figure.
    let noise = &comparison_of(&three, "glibc-repeat", "subject_us_per_response").text;
    assert!(has_both(noise, "3 blocks"), "{noise}");
    let compared = three.summary.iter().find(|text| text.contains("3 trials")).unwrap();
    assert!(compared.contains("glibc") && has_both(compared, "3 blocks"), "{compared}");
    assert!(!compared.contains('%'), "{compared}");
    let under_two = self::plan(&["c1", "c8"]);
    let one_block = judged(&under_two, &trials(&under_two, 1, jemalloc(0.5)));
    assert!(has_both(&one_block.summary[0], "1 block"), "{:?}", one_block.summary);
    // The confidence of intervals is not explained where there are none.
    assert!(one_block.summary.iter().all(|text| !text.contains("95 %")), "{:?}", one_block.summary);
    let none = judged(&plan, &[]);
    assert!(!none.summary[0].contains(char::is_numeric), "{:?}", none.summary);
    let decisive = comparison_of(&none, "jemalloc", "subject_us_per_response");
    assert_eq!((decisive.outcome, decisive.ratio), (ComparisonOutcome::Inconclusive, None));
    assert!(comparison_of(&none, "jemalloc", "p99_ns").ratio.is_none());
}

/// Returns trials whose arm costs 4 % less than the baseline in three of four blocks, and else as much more.
fn swinging_trials(plan: &ExperimentPlan, blocks: u32) -> Vec<TrialSummary> {
    let mut lines = trials(plan, blocks, jemalloc(1.0));
    for line in lines.iter_mut().filter(|line| line.position.arm == "jemalloc") {
        let cost = if line.position.block % 4 == 0 { 1.039 } else { 0.96 };
        line.metrics.insert("subject_us_per_response".to_owned(), 20.0 * cost);
    }
    lines
}

#[test]
fn an_open_claim_has_its_estimate_and_the_command_that_finishes_it() {
    let plan = plan(&["load"]);
    let lines = swinging_trials(&plan, BLOCKS);
    let extras = |stopped: &str| JudgeExtras {
        block_s: Some(60.0),
        resume: Some(("weir lab run --resume kept".to_owned(), stopped.to_owned())),
        ..JudgeExtras::default()
    };
    let judged = judge(&plan, &lines, &extras("interrupted"));
    let decisive = comparison_of(&judged, "jemalloc", "subject_us_per_response");
    assert_eq!((decisive.outcome, decisive.concluded_after), (ComparisonOutcome::Inconclusive, None));
    let needed = decisive.blocks_needed.unwrap();
    assert!((BLOCKS + 1..100).contains(&needed), "{decisive:?}");
    let more = format!("about {} more blocks", needed - BLOCKS);
    assert!(decisive.text.contains("12 blocks") && decisive.text.contains(&more), "{}", decisive.text);
    assert!(!is_concluded(&plan, &lines, 2.0));
    let finish = judged.finish.unwrap();
    assert_eq!(
        (finish.blocks, finish.duration_s),
        (needed - BLOCKS, Some(60.0 * f64::from(needed - BLOCKS)))
    );
    let command = match needed > plan.blocks_max {
        true => format!("weir lab run --resume kept --blocks 10..{needed}"),
        false => "weir lab run --resume kept".to_owned(),
    };
    assert_eq!(finish.command, command);
    let next = judged.summary.last().unwrap();
    assert!(next.starts_with("Next: ") && next.ends_with(&command), "{next}");
    // A plan that is at its end needs more blocks.
    let plan = ExperimentPlan { blocks_max: BLOCKS, ..plan };
    let finish = judge(&plan, &lines, &extras("max_blocks")).finish.unwrap();
    assert_eq!(finish.command, format!("weir lab run --resume kept --blocks 10..{needed}"));
    // A block tells nothing about the spread: the first look is next, as the estimate says.
    let few = ExperimentPlan { blocks_min: 4, ..plan.clone() };
    let first = judge(&few, &swinging_trials(&few, 1), &extras("interrupted"));
    let decisive = comparison_of(&first, "jemalloc", "subject_us_per_response");
    assert!(decisive.text.contains("possible from block 4 on"), "{}", decisive.text);
    assert_eq!(first.finish.unwrap().blocks, 3);
    // Nothing is left to do after a conclusion.
    let done = judge(&plan, &trials(&plan, BLOCKS, jemalloc(0.5)), &extras("interrupted"));
    assert_eq!(done.finish, None);
}

#[test]
fn the_stopping_rule_is_a_conclusion_about_every_claim() {
    let mut plan = plan(&["load"]);
    for cost in [1.0, 0.97, 0.5] {
        assert!(!is_concluded(&plan, &trials(&plan, 3, jemalloc(cost)), 2.0), "before the first look");
        assert!(is_concluded(&plan, &trials(&plan, 4, jemalloc(cost)), 2.0), "{cost}");
    }
    assert!(!is_concluded(&plan, &[], 2.0));
    // An arm without a conclusion keeps it going.
    let mut lines = swinging_trials(&plan, BLOCKS);
    plan.arms.push(arm("other", &[("subject.command", "other")]));
    let others = lines.iter().filter(|line| line.position.arm == "glibc").cloned().map(|mut line| {
        line.position.arm = "other".to_owned();
        line.position.number += 1000;
        line.metrics.values_mut().for_each(|value| *value *= 0.5);
        line
    });
    let others: Vec<TrialSummary> = others.collect();
    lines.extend(others);
    let judged = judged(&plan, &lines);
    let other = comparison_of(&judged, "other", "subject_us_per_response");
    assert_eq!((other.outcome, other.concluded_after), (ComparisonOutcome::Faster, Some(4)));
    assert!(!is_concluded(&plan, &lines, 2.0));
    // Without other arms the baseline is compared with itself.
    plan.arms.truncate(2);
    assert!(is_concluded(&plan, &lines, 2.0));
}

/// Records that weir wrote when it judged by Wilcoxon's test and stopped by the width of intervals.
#[test]
fn an_experiment_of_an_older_version_is_read_and_judged() {
    let stored: Experiment =
        serde_json::from_str(include_str!("../../testdata/experiment-of-wilcoxon.json")).unwrap();
    let start: ExperimentStart =
        serde_json::from_str(include_str!("../../testdata/plan-of-wilcoxon.json")).unwrap();
    assert!(
        stored.finish.is_none()
            && stored.comparisons.iter().all(|comparison| comparison.concluded_after.is_none())
    );
    assert_eq!((stored.schema.as_str(), start.plan.discard["foreign_cpus"]), (SCHEMA, 1000.0));
    // Its file is the same plan again, with its own bounds.
    let options = ExperimentOptions::from_plan(&start.plan);
    let parsed = crate::judgement::parse("tiny.toml", &start.plan.file, &options, None).unwrap();
    assert_eq!(parsed.plan(), &start.plan);
    // Its blocks are too few for the rule; with more of them it has a conclusion.
    let extras = JudgeExtras { cpus: f64::from(start.host.cpus), ..JudgeExtras::default() };
    let judged_again = judge(&start.plan, &stored.trials, &extras);
    let claim = primary_claims(&judged_again.comparisons).next().unwrap();
    assert_eq!((claim.outcome, claim.pairs.len()), (ComparisonOutcome::Inconclusive, 1));
    let repeated = (0..6).flat_map(|block| {
        stored.trials.iter().cloned().map(move |mut line| {
            line.position.block += block;
            line.metrics.values_mut().for_each(|value| *value *= 1.0 + 0.01 * f64::from(block));
            line
        })
    });
    let repeated: Vec<TrialSummary> = repeated.collect();
    let claims = judge(&start.plan, &repeated, &extras).comparisons;
    assert_eq!(primary_claims(&claims).next().unwrap().outcome, ComparisonOutcome::Slower);
}

#[test]
fn a_neighbour_does_not_explain_a_factor_of_two() {
    let plan = plan(&["load"]);
    let mut lines = trials(&plan, 5, jemalloc(0.5));
    for line in lines.iter_mut().filter(|line| line.position.block % 2 == 0) {
        line.covariates.foreign_cpus = Some(0.3);
        line.covariates.steal_fraction = Some(0.01);
    }
    let extras = JudgeExtras { cpus: 2.0, ..JudgeExtras::default() };
    let judged = judge(&plan, &lines, &extras);
    let decisive = comparison_of(&judged, "jemalloc", "subject_us_per_response");
    assert_eq!((decisive.outcome, decisive.set_aside.len()), (ComparisonOutcome::Faster, 0));
    assert!(decisive.text.contains("2 blocks were disturbed"), "{}", decisive.text);
    // But it may explain a tenth.
    let mut lines = trials(&plan, 9, jemalloc(0.9));
    for line in lines.iter_mut().filter(|line| line.position.block % 3 == 0) {
        line.covariates.foreign_cpus = Some(0.3);
    }
    let judged = judge(&plan, &lines, &extras);
    let decisive = comparison_of(&judged, "jemalloc", "subject_us_per_response");
    assert_eq!((decisive.outcome, &*decisive.set_aside), (ComparisonOutcome::Faster, &[3, 6, 9][..]));
    assert!(decisive.text.contains("blocks 3, 6 and 9 are set aside"), "{}", decisive.text);
    assert!(decisive.text.contains("each that counts"), "{}", decisive.text);
}

#[test]
fn a_discarded_block_counts_once_it_was_run_again() {
    let mut plan = plan(&["load"]);
    plan.discard = [("steal_fraction".to_owned(), 0.02)].into();
    let mut lines = trials(&plan, BLOCKS, jemalloc(0.969));
    lines[4].covariates.steal_fraction = Some(0.06);
    mark_discarded(&plan, &mut lines, &[]);
    let before = judged(&plan, &lines);
    assert_eq!(
        comparison_of(&before, "jemalloc", "p99_ns").pairs.len(),
        11,
        "the complete block is excluded"
    );
    let repeat: Vec<TrialSummary> = lines
        .iter()
        .filter(|line| line.position.block == lines[4].position.block)
        .map(|line| {
            let mut line = line.clone();
            line.position.attempt = 2;
            line.position.number += 100;
            line.covariates.steal_fraction = None;
            line
        })
        .collect();
    lines.extend(repeat);
    mark_discarded(&plan, &mut lines, &[]);
    let after = judged(&plan, &lines);
    assert_eq!(comparison_of(&after, "jemalloc", "p99_ns").pairs.len(), 12);
    let text = &warnings_with(&after, "discarded_trials")[0].text;
    assert!(
        text.starts_with("1 trial ") && text.contains("1 for steal,") || text.contains("1 for steal)"),
        "{text}"
    );
}

#[test]
fn figures_without_a_ratio_are_reported() {
    let plan = plan(&["load"]);
    let mut lines = trials(&plan, BLOCKS, jemalloc(0.969));
    let clean = judged(&plan, &lines);
    let errors = comparison_of(&clean, "jemalloc", "error_fraction");
    assert_eq!((errors.outcome, errors.ratio), (ComparisonOutcome::Equivalent, None));
    assert!(errors.text.contains("12 blocks"), "{}", errors.text);
    for line in lines.iter_mut().filter(|line| line.position.arm == "jemalloc") {
        line.metrics.insert("error_fraction".to_owned(), 0.004);
        line.metrics.remove("p99_ns");
    }
    let faulty = judged(&plan, &lines);
    let errors = comparison_of(&faulty, "jemalloc", "error_fraction");
    assert_eq!((errors.outcome, errors.ratio), (ComparisonOutcome::Inconclusive, None));
    assert!(errors.p.unwrap() < 0.01);
    assert!(errors.text.contains("12 of 12 blocks"), "{}", errors.text);
    assert_eq!(warnings_with(&faulty, "errors").len(), 1);
    let missing = comparison_of(&faulty, "jemalloc", "p99_ns");
    assert!(missing.pairs.is_empty() && missing.ratio.is_none(), "{missing:?}");
    assert!(missing.text.contains("jemalloc") && missing.text.contains("glibc"), "{}", missing.text);
}

#[test]
fn a_full_link_makes_a_gain_a_lower_bound() {
    let mut plan = plan(&["load"]);
    plan.metrics.swap(0, 1);
    let mut lines = trials(&plan, BLOCKS, jemalloc(0.92));
    for line in lines.iter_mut().filter(|line| line.position.arm == "jemalloc") {
        line.verdict = Some("link_bound".to_owned());
    }
    let judged = judged(&plan, &lines);
    let decisive = comparison_of(&judged, "jemalloc", "responses_per_s");
    assert_eq!(decisive.outcome, ComparisonOutcome::Faster);
    assert!(decisive.bound.as_deref().unwrap().contains("link_bound"), "{:?}", decisive.bound);
    // What one response costs is not bounded by a link.
    assert_eq!(comparison_of(&judged, "jemalloc", "subject_us_per_response").bound, None);
    let warning = &warnings_with(&judged, "different_bottlenecks")[0];
    assert!(warning.text.contains("lower bound"), "{}", warning.text);
    assert!(judged.summary[0].contains("lower bound"), "{:?}", judged.summary);
}

#[test]
fn equal_rates_of_a_generator_at_its_limit_are_no_equivalence() {
    let mut plan = plan(&["load"]);
    plan.metrics.swap(0, 1);
    let mut lines = trials(&plan, BLOCKS, jemalloc(1.0));
    for line in &mut lines {
        line.verdict = Some("client_bound".to_owned());
    }
    let judged = judged(&plan, &lines);
    assert_eq!(
        comparison_of(&judged, "jemalloc", "responses_per_s").outcome,
        ComparisonOutcome::Inconclusive
    );
    let warnings = warnings_with(&judged, "client_bound");
    assert_eq!((warnings.len(), warnings[0].arm.as_deref()), (1, None), "{warnings:?}");
    for arm in ["glibc: ", "glibc-repeat: ", "jemalloc: "] {
        assert!(warnings[0].text.contains(arm), "{arm}: {warnings:?}");
    }
    // The CPU time per response is the subject's own.
    let cost = comparison_of(&judged, "jemalloc", "subject_us_per_response");
    assert_eq!(cost.outcome, ComparisonOutcome::Equivalent);
}

#[test]
fn two_changes_at_once_are_named() {
    let mut plan = plan(&["load"]);
    plan.arms[2].changes.insert("load.flags".to_owned(), "-c 300".to_owned());
    let judged = judged(&plan, &trials(&plan, BLOCKS, jemalloc(0.92)));
    let warnings = warnings_with(&judged, "two_factors");
    assert_eq!(warnings.len(), 1);
    assert_eq!(warnings[0].arm.as_deref(), Some("jemalloc"));
    for key in ["load.flags", "subject.env.LD_PRELOAD"] {
        assert!(warnings[0].text.contains(key), "{key}: {warnings:?}");
    }
}

#[test]
fn two_changes_that_other_arms_have_one_by_one_are_an_ablation() {
    let mut plan = plan(&["load"]);
    plan.arms[2].changes.insert("load.flags".to_owned(), "-c 300".to_owned());
    for key in ["load.flags", "subject.env.LD_PRELOAD"] {
        let value = plan.arms[2].changes[key].clone();
        let changes = [(key.to_owned(), value)].into_iter().collect();
        plan.arms.push(Arm { name: format!("only-{key}"), changes, ..plan.arms[2].clone() });
    }
    let judged = judged(&plan, &trials(&plan, BLOCKS, jemalloc(0.92)));
    assert!(warnings_with(&judged, "two_factors").is_empty());
    // Another value is another change.
    plan.arms[3].changes.insert("load.flags".to_owned(), "-c 200".to_owned());
    let judged = self::judged(&plan, &trials(&plan, BLOCKS, jemalloc(0.92)));
    assert_eq!(warnings_with(&judged, "two_factors").len(), 1);
}

#[test]
fn a_baseline_that_differs_from_itself_leaves_less_open() {
    let plan = plan(&["load"]);
    let cost = |arm: &str| match arm {
        "glibc-repeat" => 0.96,
        "jemalloc" => 0.965,
        _ => 1.0,
    };
    let judged = judged(&plan, &trials(&plan, BLOCKS, cost));
    assert_eq!(
        comparison_of(&judged, "jemalloc", "subject_us_per_response").outcome,
        ComparisonOutcome::Inconclusive
    );
    let noise = comparison_of(&judged, "glibc-repeat", "subject_us_per_response");
    let text = &warnings_with(&judged, "noise_floor")[0].text;
    assert!(text.contains(&percent((noise.ratio.unwrap() - 1.0).abs())), "{text}");
}

#[test]
fn a_difference_within_the_range_of_the_noise_wants_a_narrower_range() {
    let plan = plan(&["load"]);
    let mut lines = trials(&plan, BLOCKS, jemalloc(1.05));
    for line in lines.iter_mut().filter(|line| line.position.arm != "jemalloc") {
        let is_higher = (line.position.block % 2 == 0) == (line.position.arm == "glibc");
        let cost = if is_higher { 1.045 } else { 0.955 };
        line.metrics.insert("subject_us_per_response".to_owned(), 20.0 * cost);
    }
    let judged = judged(&plan, &lines);
    let decisive = comparison_of(&judged, "jemalloc", "subject_us_per_response");
    assert_eq!(decisive.outcome, ComparisonOutcome::Slower, "{decisive:?}");
    assert!(warnings_with(&judged, "noise_floor").is_empty());
    assert!(warnings_with(&judged, "noise_range")[0].text.contains("more than the difference found"));
    let next = judged.summary.last().unwrap();
    assert!(next.contains("narrower range") && !next.contains("itself"), "{next}");
}

#[test]
fn counted_calls_explain_a_difference() {
    let plan = plan(&["load"]);
    let lines = trials(&plan, BLOCKS, jemalloc(0.92));
    // One arm makes many calls per response, the other hardly any.
    let fraction = |arm: &str| if arm == "jemalloc" { 0.01 } else { 0.126 };
    let fractions = lines.iter().map(|line| (line.position.number, fraction(&line.position.arm)));
    let extras = JudgeExtras { counting_fractions: fractions.collect(), ..JudgeExtras::default() };
    let judged = judge(&plan, &lines, &extras);
    let text = &warnings_with(&judged, "probe_overhead")[0].text;
    assert!(text.contains(&percent(0.126)) && text.contains("half"), "{text}");
}

#[test]
fn sampling_one_side_is_reported() {
    let plan = plan(&["load"]);
    let lines = trials(&plan, BLOCKS, jemalloc(0.96));
    let arm_trials = lines.iter().filter(|line| line.position.arm == "jemalloc");
    let profiled = arm_trials.map(|line| line.position.number).collect();
    let extras = JudgeExtras { profiled, ..JudgeExtras::default() };
    let judged = judge(&plan, &lines, &extras);
    assert!(warnings_with(&judged, "probe_overhead")[0].text.contains(&percent(1.0)));
    let all = JudgeExtras { profiled: (1..=36).collect(), ..JudgeExtras::default() };
    assert!(warnings_with(&judge(&plan, &lines, &all), "probe_overhead").is_empty());
}

#[test]
fn littles_law_finds_a_wrong_unit() {
    let plan = plan(&["load"]);
    let mut lines = trials(&plan, BLOCKS, jemalloc(0.96));
    // 50,000 a second times 200 us are 10 in flight.
    let warned_at = |lines: &[TrialSummary], times: f64| {
        let entries = lines.iter().map(|line| (line.position.number, 10.0 * times));
        let closed_loads = BTreeSet::from(["load".to_owned()]);
        let extras = JudgeExtras { begun: entries.collect(), closed_loads, ..JudgeExtras::default() };
        let judged = judge(&plan, lines, &extras);
        let warnings = warnings_with(&judged, "littles_law");
        assert!(warnings.len() <= 1, "one for all arms: {warnings:?}");
        let names_arm =
            |arm: &&Arm| warnings.iter().any(|warning| warning.text.contains(&format!("{}: ", arm.name)));
        plan.arms.iter().filter(names_arm).count()
    };
    let warned_with = [1.0, 0.8, 1e-3].map(|times| warned_at(&lines, times));
    assert_eq!(warned_with, [0, 3, 3]);
    // Latencies of up to two seconds at the start of an 8 s trial explain a quarter, and no wrong
    // unit.
    for line in &mut lines {
        line.metrics.insert("max_ns".to_owned(), 2e9);
    }
    let warned_with = [1.0, 0.8, 1e-3].map(|times| warned_at(&lines, times));
    assert_eq!(warned_with, [0, 0, 3]);
}

#[test]
fn the_rest_of_the_warnings_have_their_triggers() {
    let mut plan = plan(&["load"]);
    plan.metrics.push(metric("p999_ns", "ns", BetterDirection::Lower));
    plan.duration_s = 1.0;
    let mut lines = trials(&plan, BLOCKS, jemalloc(0.96));
    // The order of the first block in all of them.
    let arms = ["jemalloc", "glibc", "glibc-repeat"];
    for line in &mut lines {
        let at = arms.iter().position(|arm| *arm == line.position.arm).unwrap() as u32;
        line.position.number = (line.position.block - 1) * 3 + at + 1;
    }
    lines.sort_by_key(|line| line.position.number);
    for line in lines.iter_mut().filter(|line| line.position.arm == "jemalloc") {
        line.steady = SteadyState { from_s: None, text: "never steady in 8 seconds".to_owned() };
        if line.position.block == 3 {
            line.metrics.insert("subject_us_per_response".to_owned(), 40.0);
        }
        if line.position.block == 4 {
            line.failed = Some("it does not start".to_owned());
        }
    }
    let extras = JudgeExtras {
        closed_loads: ["load".to_owned()].into(),
        environment_changes: vec!["net.core.somaxconn: 128, then 4096".to_owned()],
        unavailable_metrics: [(
            ("jemalloc".to_owned(), "load".to_owned(), "p999_ns".to_owned()),
            "no".to_owned(),
        )]
        .into(),
        ..JudgeExtras::default()
    };
    let judged = judge(&plan, &lines, &extras);
    for (code, many) in [
        ("failed_trials", 1),
        ("unsteady", 1),
        ("closed_loop_latency", 1),
        ("few_requests", 1),
        ("missing_metric", 1),
        ("outliers", 1),
        ("position_imbalance", 1),
        ("same_order", 1),
        ("environment_changed", 1),
    ] {
        assert_eq!(warnings_with(&judged, code).len(), many, "{code}: {:?}", judged.warnings);
    }
    // There is one warning for the percentile, not one for each arm. The driver of the third never
    // reports it.
    let few = &warnings_with(&judged, "few_requests")[0].text;
    for part in ["p99.9", "100000", "glibc, glibc-repeat"] {
        assert!(few.contains(part), "{part}: {few}");
    }
    assert!(!few.contains("jemalloc"), "{few}");
    let outlier = &warnings_with(&judged, "outliers")[0].text;
    assert!(outlier.contains("block 3"), "{outlier}");
    assert_eq!(comparison_of(&judged, "jemalloc", "subject_us_per_response").pairs.len(), 11);
}

#[test]
fn several_loads_and_arms_are_reported_compactly() {
    let mut plan = plan(&["c10", "c50"]);
    plan.arms.push(arm("mimalloc", &[("subject.env.LD_PRELOAD", "libmimalloc.so")]));
    let cost = |arm: &str| match arm {
        "jemalloc" => 0.95,
        "mimalloc" => 1.05,
        _ => 1.0,
    };
    let judged = judged(&plan, &trials(&plan, BLOCKS, cost));
    let (first, second) = (&judged.summary[0], &judged.summary[1]);
    assert!(first.starts_with("jemalloc ") && first.contains("2 arms"), "{first}");
    for (outcome, arm) in [(ComparisonOutcome::Faster, "jemalloc"), (ComparisonOutcome::Slower, "mimalloc")] {
        let group = format!("{}: {arm} under c", outcome.as_str_for_unit("us"));
        assert!(second.contains(&group), "{group}: {second}");
    }
    let decisive = comparison_of(&judged, "mimalloc", "subject_us_per_response");
    // Four claims in one family: the p is four times what it would be alone, or less.
    assert!(decisive.p_adjusted.unwrap() >= decisive.p.unwrap());
    assert!(decisive.text.contains("c10: mimalloc "), "{}", decisive.text);
    // The secondary metrics are corrected among themselves and never decide.
    let secondary = comparison_of(&judged, "mimalloc", "p99_ns");
    assert!(!secondary.primary && secondary.text.ends_with(".)"), "{}", secondary.text);
}

#[test]
fn two_stored_sets_are_not_pairs() {
    let us = metric("subject_us_per_response", "us", BetterDirection::Lower);
    let a: Vec<f64> = (0..10).map(|n| 20.0 * wobble(n)).collect();
    let b: Vec<f64> = (0..10).map(|n| 19.0 * wobble(n + 3)).collect();
    let unpaired = |a: &[f64], b: &[f64], metric, effect, confidence| {
        let set = UnpairedSets { a: a.to_vec(), b: b.to_vec(), metric, is_primary: true };
        compare_unpaired(&[set], effect, confidence).remove(0)
    };
    let results = unpaired(&a, &b, &us, 0.02, 0.95);
    assert_eq!(results.outcome, ComparisonOutcome::Faster);
    assert!((results.ratio.unwrap() - 0.95).abs() < 0.005, "{results:?}");
    assert!(results.p.unwrap() < 0.001 && results.better_fraction == Some(1.0));
    let phrase = difference_phrase(&us, results.ratio.unwrap());
    assert!(results.text.contains(&phrase), "{}", results.text);
    assert_eq!(unpaired(&a, &a, &us, 0.02, 0.95).outcome, ComparisonOutcome::Equivalent);
    assert_eq!(unpaired(&a[..3], &b, &us, 0.02, 0.95).outcome, ComparisonOutcome::Inconclusive);
    assert_eq!(unpaired(&[], &b, &us, 0.02, 0.95).ratio, None);
    assert_eq!(unpaired(&[0.0; 5], &b, &us, 0.02, 0.95).ratio, None);
}

#[test]
fn sets_of_a_comparison_are_corrected_for_each_other() {
    let us = metric("subject_us_per_response", "us", BetterDirection::Lower);
    let set = |scale: f64, primary: bool| UnpairedSets {
        a: (0..6).map(|n| 20.0 * wobble(n)).collect(),
        b: (0..6).map(|n| 20.0 * scale * wobble(n + 30)).collect(),
        metric: &us,
        is_primary: primary,
    };
    let alone = compare_unpaired(&[set(0.95, true)], 0.02, 0.95).remove(0);
    assert_eq!((alone.outcome, alone.p), (ComparisonOutcome::Faster, alone.p_adjusted));
    // The primary metric is not corrected for the other metrics; these are corrected for each
    // other.
    let mut sets = vec![set(0.95, true)];
    sets.extend((0..30).map(|_| set(0.95, false)));
    let results = compare_unpaired(&sets, 0.02, 0.95);
    assert_eq!(results[0], alone);
    assert_eq!(results[1].p, alone.p);
    assert!((results[1].p_adjusted.unwrap() - 30.0 * alone.p.unwrap()).abs() < 1e-9);
    assert_eq!(results[1].outcome, ComparisonOutcome::Inconclusive);
}

#[test]
fn one_arm_reports_its_smallest_detectable_effect() {
    let mut plan = plan(&["load"]);
    plan.arms.truncate(2);
    let judged = judged(&plan, &trials(&plan, BLOCKS, |_| 1.0));
    let first = &judged.summary[0];
    let noise = comparison_of(&judged, "glibc-repeat", "subject_us_per_response");
    let difference = percent((noise.ratio.unwrap() - 1.0).abs());
    for part in ["glibc ", difference.as_str(), "12 blocks)", " 2 %"] {
        assert!(first.contains(part), "{part}: {first}");
    }
    let cause = &judged.summary[1];
    assert!(cause.contains("glibc") && cause.contains("user_cpu_bound ("), "{cause}");
    for part in ["12 blocks", "2 trials", "8 s"] {
        assert!(judged.summary[2].contains(part), "{part}: {:?}", judged.summary);
    }
    let few = judge(&plan, &trials(&plan, 3, |_| 1.0), &JudgeExtras::default());
    assert!(few.summary[0].contains("3 blocks") && few.summary[0].contains(" 4 "), "{:?}", few.summary);
}

#[test]
fn one_arm_under_loads_of_two_factors_reports_its_noise() {
    let mut plan = plan(&["t1-c2", "t2-c2"]);
    plan.arms.truncate(2);
    plan.metrics.swap(0, 1);
    for (load, threads) in plan.loads.iter_mut().zip(["1", "2"]) {
        load.levels = [("threads".to_owned(), threads.to_owned()), ("c".to_owned(), "2".to_owned())].into();
    }
    let judged = judged(&plan, &trials(&plan, BLOCKS, |_| 1.0));
    let first = &judged.summary[0];
    assert!(first.starts_with("glibc "), "{first}");
    assert!(first.contains("(under t1-c2)") && first.contains("(under t2-c2)"), "{first}");
    // With one factor the ladder is the result, followed by the noise.
    plan.loads.iter_mut().for_each(|load| {
        load.levels.remove("c");
    });
    let judged = judge(&plan, &trials(&plan, BLOCKS, |_| 1.0), &JudgeExtras::default());
    assert!(judged.summary[0].contains("threads at 1 to 2"), "{:?}", judged.summary);
    assert!(judged.summary[1].starts_with("glibc "), "{:?}", judged.summary);
}
