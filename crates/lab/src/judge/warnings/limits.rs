//! Warnings about what the arms were and what they ran into.

use std::collections::BTreeSet;

use record::experiment::{Arm, Comparison};

use super::{Case, Found};
use crate::judge::bottleneck::{CLIENT_BOUND, claim, is_bounded, majority};
use crate::judge::decide::effect_log;
use crate::judge::words::{list, percent};
use crate::statistics::median;

/// A generator's thread that is busy for this share of a trial has no time left.
const GENERATOR_BUSY: f64 = 0.95;
/// What one counted call costs where it was not measured: a uprobe's hit was 0.63 to 0.7 us on a virtual
/// machine of 2026.
const CALL_COST_NS: f64 = 650.0;
/// The metrics that a probe's cost is told from.
const CALLS: &str = "calls_per_response";
const SUBJECT_US: &str = "subject_us_per_response";
const RATE: &str = "responses_per_s";

pub(super) fn two_factors(case: &Case<'_>) -> Vec<Found> {
    let baseline = case.blocks.plan.arm(case.baseline());
    let differing = |arm: &Arm| -> BTreeSet<String> {
        let of_baseline = baseline.map(|baseline| &baseline.changes);
        let own = arm.changes.iter();
        let own =
            own.filter(|(key, value)| of_baseline.and_then(|all| all.get(*key)) != Some(value));
        let gone = of_baseline.into_iter().flat_map(|all| all.keys());
        let gone = gone.filter(|key| !arm.changes.contains_key(*key));
        own.map(|(key, _)| key.clone()).chain(gone.cloned()).collect()
    };
    let arms = case.arms().map(|arm| (arm, differing(arm)));
    arms.filter(|(_, keys)| keys.len() > 1)
        .map(|(arm, keys)| {
            let keys: Vec<String> = keys.into_iter().collect();
            let text = format!(
                "{} differs from {} in {} things at once: {}. A difference between them cannot be put \
                 down to one of these; an arm for each would tell.",
                arm.name,
                case.baseline(),
                keys.len(),
                list(&keys)
            );
            (Some(arm.name.clone()), text)
        })
        .collect()
}

pub(super) fn client_bound(case: &Case<'_>) -> Vec<Found> {
    let mut found = Vec::new();
    for cell in case.cells {
        let busiest = case
            .blocks
            .cell(&cell.arm, &cell.load)
            .filter_map(|trial| trial.covariates.generator_busiest_share);
        let busy = median(&busiest.collect::<Vec<f64>>()).filter(|&share| share >= GENERATOR_BUSY);
        let why = match (majority(cell), busy) {
            (Some(CLIENT_BOUND), _) => "the load generator was the limit of most trials".to_owned(),
            (_, Some(share)) => {
                format!(
                    "the load generator's busiest thread was busy {} of the time",
                    percent(share)
                )
            }
            _ => continue,
        };
        let text = format!(
            "{}{}: {why}. Its rates and latencies are the generator's and say nothing of the subject; \
             what one response costs the subject still does. More generator threads, or another machine \
             for it, would help.",
            cell.arm,
            case.under(&cell.load)
        );
        found.push((Some(cell.arm.clone()), text));
    }
    found
}

pub(super) fn different_bottlenecks(case: &Case<'_>) -> Vec<Found> {
    let mut found = Vec::new();
    for load in case.loads() {
        let baseline = case.cell(case.baseline(), load).and_then(majority);
        for arm in case.arms() {
            let of_arm = case.cell(&arm.name, load).and_then(majority);
            let (Some(of_arm), Some(of_baseline)) = (of_arm, baseline) else { continue };
            if of_arm == of_baseline {
                continue;
            }
            let is_bound =
                |one: &&Comparison| one.arm == arm.name && one.load == load && one.bound.is_some();
            let meaning = if case.comparisons.iter().any(|one| is_bound(&one)) {
                "The one that is ahead could have done more: in rates and latencies the difference is \
                 at least what was measured."
            } else if case.blocks.plan.primary().is_some_and(is_bounded) {
                "The difference is one between two limits, not between two programs at the same one."
            } else {
                "What one response costs can still be compared; rates and latencies hardly."
            };
            let text = format!(
                "{} and {} were limited by different things{}: {} by {}, {} by {}. {meaning}",
                arm.name,
                case.baseline(),
                case.under(load),
                arm.name,
                claim(of_arm),
                case.baseline(),
                claim(of_baseline)
            );
            found.push((Some(arm.name.clone()), text));
        }
    }
    found
}

pub(super) fn probe_overhead(case: &Case<'_>) -> Vec<Found> {
    let mut found = Vec::new();
    for load in case.loads() {
        for arm in case.arms() {
            found.extend(counted(case, arm, load));
            found.extend(profiled(case, arm, load));
        }
    }
    found
}

/// Share of a response's processor time that counting its calls takes; `None` where none were counted in
/// judged trials.
fn counting_share(case: &Case<'_>, arm: &str, load: &str) -> Option<f64> {
    let middle = |metric: &str| median(&case.blocks.values(arm, load, metric));
    let calls = middle(CALLS)?;
    let cost_us = case.extras.call_cost_ns.unwrap_or(CALL_COST_NS) / 1e3;
    // Without the processor time: what one processor has for each response.
    let response_us = middle(SUBJECT_US).or_else(|| middle(RATE).map(|rate| 1e6 / rate));
    response_us.filter(|us| *us > 0.0).map(|us| (calls * cost_us / us).min(1.0))
}

fn counted(case: &Case<'_>, arm: &Arm, load: &str) -> Option<Found> {
    let plan = case.blocks.plan;
    let of_arm = counting_share(case, &arm.name, load);
    let of_baseline = counting_share(case, case.baseline(), load);
    if of_arm.is_none() && of_baseline.is_none() {
        return None;
    }
    let one_sided = of_arm.is_none() || of_baseline.is_none();
    let (arm_share, baseline_share) = (of_arm.unwrap_or(0.0), of_baseline.unwrap_or(0.0));
    let apart = (arm_share - baseline_share).abs();
    let is_primary = |one: &&Comparison| one.arm == arm.name && one.load == load && one.primary;
    let effect = case.comparisons.iter().find(is_primary).and_then(|one| one.ratio);
    let effect = effect.map(|ratio| ratio.ln().abs());
    let explains = effect.is_some_and(|effect| effect > 0.0 && apart >= effect / 2.0);
    if !one_sided && !explains && apart < effect_log(plan.effect) / 2.0 {
        return None;
    }
    let measured = if case.extras.call_cost_ns.is_some() {
        "as measured here"
    } else {
        "at 0.65 us a call, as elsewhere: it was not measured here"
    };
    let meaning = match (explains, one_sided) {
        (true, _) => "That explains the difference, or half of it at least.",
        (false, true) => {
            "Calls were counted in only one of them: the difference is not one of the arms."
        }
        (false, false) => "That is not small beside what matters.",
    };
    let text = format!(
        "calls were counted in judged trials{}; it took about {} of the processor time of {}, and {} of \
         {} ({measured}). {meaning} Counting belongs in trials of its own.",
        case.under(load),
        percent(arm_share),
        arm.name,
        percent(baseline_share),
        case.baseline()
    );
    Some((Some(arm.name.clone()), text))
}

fn profiled(case: &Case<'_>, arm: &Arm, load: &str) -> Option<Found> {
    let share = |name: &str| {
        let trials: Vec<u32> =
            case.blocks.cell(name, load).map(|trial| trial.place.number).collect();
        let profiled = trials.iter().filter(|number| case.extras.profiled.contains(number)).count();
        (!trials.is_empty()).then(|| profiled as f64 / trials.len() as f64)
    };
    let (of_arm, of_baseline) = (share(&arm.name)?, share(case.baseline())?);
    if of_arm == 0.0 && of_baseline == 0.0 {
        return None;
    }
    let cost = case.extras.profile_cost_share;
    let cost_text = cost.map_or_else(
        || "its cost is not known".to_owned(),
        |cost| format!("it takes about {} of the subject's processor time", percent(cost)),
    );
    let one_sided = (of_arm - of_baseline).abs() > 0.0;
    let large = cost.is_some_and(|cost| cost >= effect_log(case.blocks.plan.effect));
    let text = match (one_sided, large) {
        (true, _) => format!(
            "functions were sampled in {} of the judged trials of {} and in {} of those of {}{}: \
             {cost_text}, and that is in the difference.",
            percent(of_arm),
            arm.name,
            percent(of_baseline),
            case.baseline(),
            case.under(load)
        ),
        (false, true) => format!(
            "functions were sampled in the judged trials{}: {cost_text}, in both arms alike; figures of \
             either are worse by that than without it.",
            case.under(load)
        ),
        (false, false) => return None,
    };
    Some((Some(arm.name.clone()), text))
}
