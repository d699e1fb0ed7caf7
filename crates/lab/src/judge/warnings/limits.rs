//! Warnings about what the arms were and what they ran into.

use record::experiment::{Arm, Cell, Comparison};

use super::{Case, Found, NAMED_MAX, together};
use crate::experiment::differing;
use crate::judge::blocks::Blocks;
use crate::judge::bottleneck::{CLIENT_BOUND, claim, is_bounded, majority};
use crate::judge::decide::effect_log;
use crate::judge::said::some;
use crate::judge::words::list;
use crate::statistics::median;
use crate::words::percent;

/// A generator's thread that is busy for this share of a trial has no time left.
const GENERATOR_BUSY: f64 = 0.95;

pub(super) fn two_factors(case: &Case<'_>) -> Vec<Found> {
    let mut by_keys: Vec<(Vec<String>, Vec<&str>)> = Vec::new();
    for arm in case.arms() {
        let keys = differing(case.blocks.plan, arm);
        match by_keys.iter_mut().find(|(other, _)| *other == keys) {
            Some((_, arms)) => arms.push(&arm.name),
            None => by_keys.push((keys, vec![&arm.name])),
        }
    }
    let several = by_keys.into_iter().filter(|(keys, _)| keys.len() > 1);
    let found = several.map(|(keys, arms)| {
        let differ = if arms.len() == 1 { "differs" } else { "each differ" };
        let text = format!(
            "{} {differ} from {} in {} things at once: {}. A difference between them cannot be put down to \
             one of these; an arm for each would tell.",
            some(&arms, NAMED_MAX),
            case.baseline(),
            keys.len(),
            list(&keys)
        );
        (arms.first().filter(|_| arms.len() == 1).map(|arm| (*arm).to_owned()), text)
    });
    found.collect()
}

/// Why the figures of a cell are the load generator's, where they are.
pub(in crate::judge) fn generator_limit(blocks: &Blocks<'_>, cell: &Cell) -> Option<String> {
    let trials = blocks.cell(&cell.arm, &cell.load);
    let busiest = trials.filter_map(|trial| trial.covariates.generator_busiest_share);
    let busy = median(&busiest.collect::<Vec<f64>>()).filter(|&share| share >= GENERATOR_BUSY);
    match (majority(cell), busy) {
        (Some(CLIENT_BOUND), _) => {
            Some("the load generator was the limit of most trials".to_owned())
        }
        (_, Some(share)) => Some(format!(
            "the load generator's busiest thread was busy {} of the time",
            percent(share)
        )),
        _ => None,
    }
}

pub(super) fn client_bound(case: &Case<'_>) -> Vec<Found> {
    let mut found = Vec::new();
    for cell in case.cells {
        let Some(why) = generator_limit(case.blocks, cell) else { continue };
        let text = format!("{}{}: {why}", cell.arm, case.under(&cell.load));
        found.push((Some(cell.arm.clone()), text));
    }
    let whose = if found.len() == 1 { "Its" } else { "Their" };
    let follows = format!(
        ". {whose} rates and latencies are the generator's and say nothing of the subject; what one response \
         costs the subject still does. More generator threads, or another machine for it, would help."
    );
    together(found, "; ", &follows)
}

pub(super) fn different_bottlenecks(case: &Case<'_>) -> Vec<Found> {
    // By what limited the arm and the baseline, and by what follows.
    let mut found: Vec<([&str; 3], Vec<Found>)> = Vec::new();
    for load in case.loads() {
        let baseline = case.cell(case.baseline(), load).and_then(majority);
        for arm in case.arms() {
            let of_arm = case.cell(&arm.name, load).and_then(majority);
            let (Some(of_arm), Some(of_baseline)) = (of_arm, baseline) else { continue };
            if of_arm == of_baseline {
                continue;
            }
            let key = [of_arm, of_baseline, meaning(case, &arm.name, load)];
            let cell = (Some(arm.name.clone()), format!("{}{}", arm.name, case.under(load)));
            match found.iter_mut().find(|(other, _)| *other == key) {
                Some((_, cells)) => cells.push(cell),
                None => found.push((key, vec![cell])),
            }
        }
    }
    let said = found.into_iter().flat_map(|([of_arm, of_baseline, meaning], cells)| {
        let follows = format!(
            " by {}, {} by {}. {meaning}",
            claim(of_arm),
            case.baseline(),
            claim(of_baseline)
        );
        together(cells, ", ", &follows)
    });
    let whole = |(arm, text)| (arm, format!("they were limited by different things: {text}"));
    said.map(whole).collect()
}

/// What it means for a comparison that both sides had another limit.
fn meaning(case: &Case<'_>, arm: &str, load: &str) -> &'static str {
    let is_bound = |one: &&Comparison| one.arm == arm && one.load == load && one.bound.is_some();
    if case.comparisons.iter().any(|one| is_bound(&one)) {
        "The one that is ahead could have done more: in rates and latencies the difference is at least \
         what was measured."
    } else if case.blocks.plan.primary().is_some_and(is_bounded) {
        "The difference is one between two limits, not between two programs at the same one."
    } else {
        "What one response costs can still be compared; rates and latencies hardly."
    }
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

/// Share of the subject's processor time that counting its calls took; `None` where none were counted.
fn counting_share(case: &Case<'_>, arm: &str, load: &str) -> Option<f64> {
    let trials = case.blocks.cell(arm, load).map(|trial| trial.place.number);
    let shares = trials.filter_map(|number| case.extras.counting_shares.get(&number).copied());
    median(&shares.collect::<Vec<f64>>())
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
    let meaning = match (explains, one_sided) {
        (true, _) => "That explains the difference, or half of it at least.",
        (false, true) => {
            "Calls were counted in only one of them: the difference is not one of the arms."
        }
        (false, false) => "That is not small beside what matters.",
    };
    let text = format!(
        "calls were counted in judged trials{}; it took about {} of the processor time of {}, and {} of \
         {}. {meaning} Without watching (--no-watch) none are counted.",
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
    // Sampled alike, both pay alike.
    if of_arm == of_baseline {
        return None;
    }
    let text = format!(
        "functions were sampled in {} of the judged trials of {} and in {} of those of {}{}: what that \
         costs is in the difference.",
        percent(of_arm),
        arm.name,
        percent(of_baseline),
        case.baseline(),
        case.under(load)
    );
    Some((Some(arm.name.clone()), text))
}
