//! Checks that a plan can be run, before its first trial. No I/O. Not for the syntax of its file.

use std::collections::BTreeSet;

use record::experiment::{Arm, ExperimentPlan};
use record::sorted::CollectSorted;

use super::discard;
use super::engine_context::EngineError;
use super::schedule::CELLS_MAX;
use crate::scenario::keys::RERUNS_FRACTION_MAX;

/// Maximum number of blocks of a plan: a week of blocks of a minute.
const BLOCKS_MAX: u32 = 10_000;
/// Maximum length of the name of an arm or a load: a file name contains two of them.
const NAME_BYTES_MAX: usize = 80;

/// Checks that a plan can be run.
///
/// # Errors
/// All problems of the plan.
pub fn check(plan: &ExperimentPlan) -> Result<(), EngineError> {
    let mut wrong = Vec::new();
    let mut say = |is_wrong: bool, text: &str| {
        if is_wrong {
            wrong.push(text.to_owned());
        }
    };
    let repeats_baseline = |arm: &Arm| arm.repeats.as_ref() == Some(&plan.baseline);
    say(plan.arm(&plan.baseline).is_none(), "the baseline is not one of its arms");
    say(!plan.arms.iter().any(repeats_baseline), "no arm repeats the baseline (A/A)");
    say(plan.loads.is_empty(), "it has no load");
    say(plan.metrics.is_empty(), "it has no metric");
    say(plan.arms.len() * plan.loads.len() > CELLS_MAX, "more than 360 combinations of arms and loads");
    let blocks = 1..=plan.blocks_max.min(BLOCKS_MAX);
    say(!blocks.contains(&plan.blocks_min), "the number of blocks is from 1 to 10,000, the minimum first");
    say(!plan.duration_s.is_finite() || plan.duration_s <= 0.0, "its loads have no duration");
    let reruns = 0.0..=RERUNS_FRACTION_MAX;
    say(!reruns.contains(&plan.reruns_max_fraction), "the fraction of reruns is from 0 to 1000%");
    for name in discard::unknown_names(&plan.discard) {
        say(true, &format!("there is no covariate '{name}'"));
    }
    for names in [
        plan.arms.iter().map(|arm| &arm.name).collect::<Vec<_>>(),
        plan.loads.iter().map(|load| &load.name).collect(),
    ] {
        let unique: BTreeSet<_> = names.iter().collect_set();
        say(unique.len() < names.len(), "a name is used twice");
        for name in names.into_iter().filter(|name| !is_name(name)) {
            say(
                true,
                &format!("'{name}' is not a valid name: letters, digits, '.', '-' and '_', at most 80"),
            );
        }
    }
    if wrong.is_empty() { Ok(()) } else { Err(EngineError::Plan(wrong)) }
}

/// Returns whether a name may be part of a file name.
fn is_name(name: &str) -> bool {
    let fits = |character: char| character.is_ascii_alphanumeric() || ".-_".contains(character);
    (1..=NAME_BYTES_MAX).contains(&name.len()) && name.chars().all(fits) && !name.starts_with('.')
}
