//! Whether a plan can be run, before anything is. Pure. Not for what its file may say.

use std::collections::BTreeSet;

use record::experiment::{Arm, Plan};

use super::discard;
use super::hooks::EngineError;
use super::schedule::CELLS_MAX;
use crate::scenario::keys::RERUNS_SHARE_MAX;

/// The most blocks of a plan: a week of blocks of a minute.
const BLOCKS_MAX: u32 = 10_000;
/// The longest name of an arm or a load: two of them are in the name of a file.
const NAME_BYTES_MAX: usize = 80;

/// Whether a plan can be run.
///
/// # Errors
/// Everything that is wrong with it.
pub fn check(plan: &Plan) -> Result<(), EngineError> {
    let mut wrong = Vec::new();
    let mut say = |is_wrong: bool, text: &str| {
        if is_wrong {
            wrong.push(text.to_owned());
        }
    };
    let again = |arm: &Arm| arm.again.as_ref() == Some(&plan.baseline);
    say(plan.arm(&plan.baseline).is_none(), "the baseline is none of its arms");
    say(!plan.arms.iter().any(again), "no arm is the baseline again (A/A)");
    say(plan.loads.is_empty(), "it has no load");
    say(plan.metrics.is_empty(), "it has no metric");
    say(plan.arms.len() * plan.loads.len() > CELLS_MAX, "more than 360 arms under loads");
    let blocks = 1..=plan.blocks_max.min(BLOCKS_MAX);
    say(
        !blocks.contains(&plan.blocks_min),
        "blocks are from 1 to 10,000, the fewest before the most",
    );
    say(!plan.duration_s.is_finite() || plan.duration_s <= 0.0, "its loads have no length");
    let reruns = 0.0..=RERUNS_SHARE_MAX;
    say(!reruns.contains(&plan.reruns_max_share), "the share of reruns is from 0 to 1000%");
    for name in discard::unknown(&plan.discard) {
        say(true, &format!("there is no covariate '{name}'"));
    }
    for names in [
        plan.arms.iter().map(|arm| &arm.name).collect::<Vec<_>>(),
        plan.loads.iter().map(|load| &load.name).collect(),
    ] {
        let unique: BTreeSet<_> = names.iter().collect();
        say(unique.len() < names.len(), "a name is there twice");
        for name in names.into_iter().filter(|name| !is_name(name)) {
            say(
                true,
                &format!("'{name}' is no name: letters, digits, '.', '-' and '_', at most 80"),
            );
        }
    }
    if wrong.is_empty() { Ok(()) } else { Err(EngineError::Plan(wrong)) }
}

/// Whether a name may be in the name of a file.
fn is_name(name: &str) -> bool {
    let fits = |one: char| one.is_ascii_alphanumeric() || ".-_".contains(one);
    (1..=NAME_BYTES_MAX).contains(&name.len()) && name.chars().all(fits) && !name.starts_with('.')
}
