//! Warnings about the arms and their limits.

use record::experiment::{Arm, Comparison, ExperimentCell};

use super::{NAMED_MAX, WarningFinding, WarningInput, merge_findings};
use crate::definition::changed_keys;
use crate::format::percent;
use crate::judge::bottleneck::{CLIENT_BOUND, code_with_claim, is_limited_by_bottlenecks, majority_verdict};
use crate::judge::decide::effect_log;
use crate::judge::judged_trials::JudgedTrials;
use crate::judge::phrases::join_list;
use crate::judge::sentence::list_up_to;
use stats::median;

/// Busy fraction of a trial from which a generator's thread has no time left.
const GENERATOR_BUSY: f64 = 0.95;

/// Reports arms with several changes, unless each of the changes has an arm of its own, as in an ablation.
pub(super) fn two_factors(input: &WarningInput<'_>) -> Vec<WarningFinding> {
    let changes = |arm| changed_keys(input.blocks.plan, arm);
    let alone = input.arms().filter_map(|arm| match &changes(arm)[..] {
        [key] => Some((key.clone(), arm.changes.get(key))),
        _ => None,
    });
    let alone: Vec<(String, Option<&String>)> = alone.collect();
    let mut by_keys: Vec<(Vec<String>, Vec<&str>)> = Vec::new();
    for arm in input.arms() {
        let keys = changes(arm);
        if keys.iter().all(|key| alone.contains(&(key.clone(), arm.changes.get(key)))) {
            continue;
        }
        match by_keys.iter_mut().find(|(other, _)| *other == keys) {
            Some((_, arms)) => arms.push(&arm.name),
            None => by_keys.push((keys, vec![&arm.name])),
        }
    }
    let several = by_keys.into_iter().filter(|(keys, _)| keys.len() > 1);
    let findings = several.map(|(keys, arms)| {
        let differ = if arms.len() == 1 { "differs" } else { "each differ" };
        let text = format!(
            "{} {differ} from {} in {} things at once: {}. A difference between them cannot be put down to \
             one of these; an arm for each would tell.",
            list_up_to(&arms, NAMED_MAX),
            input.baseline(),
            keys.len(),
            join_list(&keys)
        );
        (arms.first().filter(|_| arms.len() == 1).map(|arm| (*arm).to_owned()), text)
    });
    findings.collect()
}

/// Returns the reason why the figures of a cell are the load generator's, if they are.
pub(in crate::judge) fn generator_limit(blocks: &JudgedTrials<'_>, cell: &ExperimentCell) -> Option<String> {
    let trials = blocks.cell(&cell.arm, &cell.load);
    let busiest = trials.filter_map(|trial| trial.covariates.generator_busiest_fraction);
    let busy = median(&busiest.collect::<Vec<f64>>()).filter(|&fraction| fraction >= GENERATOR_BUSY);
    match (majority_verdict(cell), busy) {
        (Some(CLIENT_BOUND), _) => Some("the load generator was the limit of most trials".to_owned()),
        (_, Some(fraction)) => {
            Some(format!("the load generator's busiest thread was busy {} of the time", percent(fraction)))
        }
        _ => None,
    }
}

pub(super) fn client_bound(input: &WarningInput<'_>) -> Vec<WarningFinding> {
    let mut findings = Vec::new();
    for cell in input.cells {
        let Some(reason) = generator_limit(input.blocks, cell) else { continue };
        let text = format!("{}{}: {reason}", cell.arm, input.load_suffix(&cell.load));
        findings.push((Some(cell.arm.clone()), text));
    }
    let pronoun = if findings.len() == 1 { "Its" } else { "Their" };
    let follows = format!(
        ". {pronoun} rates and latencies are those of the generator, not of the subject; costs per response are \
         still valid. Use more generator threads, or another machine for it."
    );
    merge_findings(findings, "; ", &follows)
}

pub(super) fn different_bottlenecks(input: &WarningInput<'_>) -> Vec<WarningFinding> {
    // Grouped by the limits of the arm and the baseline, and by their consequence.
    let mut groups: Vec<([&str; 3], Vec<WarningFinding>)> = Vec::new();
    for load in input.loads() {
        let baseline = input.cell(input.baseline(), load).and_then(majority_verdict);
        for arm in input.arms() {
            let arm_verdict = input.cell(&arm.name, load).and_then(majority_verdict);
            let (Some(arm_verdict), Some(baseline_verdict)) = (arm_verdict, baseline) else { continue };
            if arm_verdict == baseline_verdict {
                continue;
            }
            let key = [arm_verdict, baseline_verdict, consequence(input, &arm.name, load)];
            let cell = (Some(arm.name.clone()), format!("{}{}", arm.name, input.load_suffix(load)));
            match groups.iter_mut().find(|(other, _)| *other == key) {
                Some((_, cells)) => cells.push(cell),
                None => groups.push((key, vec![cell])),
            }
        }
    }
    let texts = groups.into_iter().flat_map(|([arm_verdict, baseline_verdict, meaning], cells)| {
        let follows = format!(
            " limited by {}, {} by {}. {meaning}",
            code_with_claim(arm_verdict),
            input.baseline(),
            code_with_claim(baseline_verdict)
        );
        merge_findings(cells, ", ", &follows)
    });
    let finding = |(arm, text)| (arm, format!("different bottlenecks: {text}"));
    texts.map(finding).collect()
}

/// Returns the consequence of different limits on both sides of a comparison.
fn consequence(input: &WarningInput<'_>, arm: &str, load: &str) -> &'static str {
    let is_bound = |comparison: &&Comparison| {
        comparison.arm == arm && comparison.load == load && comparison.bound.is_some()
    };
    if input.comparisons.iter().any(|comparison| is_bound(&comparison)) {
        "The faster one could have done more: in rates and latencies, the measured difference is a lower \
         bound."
    } else if input.blocks.plan.primary().is_some_and(is_limited_by_bottlenecks) {
        "The difference is one between two limits, not between two arms at the same limit."
    } else {
        "Costs per response are still comparable; rates and latencies hardly are."
    }
}

pub(super) fn probe_overhead(input: &WarningInput<'_>) -> Vec<WarningFinding> {
    let mut findings = Vec::new();
    for load in input.loads() {
        for arm in input.arms() {
            findings.extend(counting_overhead(input, arm, load));
            findings.extend(profiling_overhead(input, arm, load));
        }
    }
    findings
}

/// Returns the fraction of the subject's CPU time that counting its calls took; `None` if none were
/// counted.
fn counting_fraction(input: &WarningInput<'_>, arm: &str, load: &str) -> Option<f64> {
    let trials = input.blocks.cell(arm, load).map(|trial| trial.position.number);
    let fractions = trials.filter_map(|number| input.extras.counting_fractions.get(&number).copied());
    median(&fractions.collect::<Vec<f64>>())
}

fn counting_overhead(input: &WarningInput<'_>, arm: &Arm, load: &str) -> Option<WarningFinding> {
    let plan = input.blocks.plan;
    let arm_fraction = counting_fraction(input, &arm.name, load);
    let baseline_counting_fraction = counting_fraction(input, input.baseline(), load);
    if arm_fraction.is_none() && baseline_counting_fraction.is_none() {
        return None;
    }
    let one_sided = arm_fraction.is_none() || baseline_counting_fraction.is_none();
    let (arm_fraction, baseline_fraction) =
        (arm_fraction.unwrap_or(0.0), baseline_counting_fraction.unwrap_or(0.0));
    let difference = (arm_fraction - baseline_fraction).abs();
    let is_primary = |comparison: &&Comparison| {
        comparison.arm == arm.name && comparison.load == load && comparison.primary
    };
    let effect = input.comparisons.iter().find(is_primary).and_then(|comparison| comparison.ratio);
    let effect = effect.map(|ratio| ratio.ln().abs());
    let explains = effect.is_some_and(|effect| effect > 0.0 && difference >= effect / 2.0);
    if !one_sided && !explains && difference < effect_log(plan.effect) / 2.0 {
        return None;
    }
    let meaning = match (explains, one_sided) {
        (true, _) => "That explains at least half of the difference.",
        (false, true) => "Calls were counted in only one of the arms: the difference may be due to counting.",
        (false, false) => "That is not negligible relative to the effect that matters.",
    };
    let text = format!(
        "calls were counted in judged trials{}; counting took about {} of the CPU time of {}, and {} of \
         {}. {meaning} --no-watch disables counting.",
        input.load_suffix(load),
        percent(arm_fraction),
        arm.name,
        percent(baseline_fraction),
        input.baseline()
    );
    Some((Some(arm.name.clone()), text))
}

fn profiling_overhead(input: &WarningInput<'_>, arm: &Arm, load: &str) -> Option<WarningFinding> {
    let fraction_of = |name: &str| {
        let trials: Vec<u32> = input.blocks.cell(name, load).map(|trial| trial.position.number).collect();
        let profiled = trials.iter().filter(|number| input.extras.profiled.contains(number)).count();
        (!trials.is_empty()).then(|| profiled as f64 / trials.len() as f64)
    };
    let (arm_value, baseline_value) = (fraction_of(&arm.name)?, fraction_of(input.baseline())?);
    // If both were sampled alike, both have the same cost.
    if arm_value == baseline_value {
        return None;
    }
    let text = format!(
        "functions were sampled in {} of the judged trials of {} and in {} of those of {}{}: the \
         difference includes the cost of sampling.",
        percent(arm_value),
        arm.name,
        percent(baseline_value),
        input.baseline(),
        input.load_suffix(load)
    );
    Some((Some(arm.name.clone()), text))
}
