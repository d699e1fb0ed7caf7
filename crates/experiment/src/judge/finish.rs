//! Step that finishes an experiment: the command line, and its estimated time. Does not decide what to run.

use record::experiment::{Comparison, FinishStep, primary_claims};

use super::warnings::WarningInput;
use crate::format::{count, duration_estimate};
use stats::sequential::BLOCKS_MIN;

/// Returns the step that concludes every claim in the primary metric; `None` if all are concluded, or if the command is
/// unknown.
pub(super) fn finish_step(input: &WarningInput<'_>) -> Option<FinishStep> {
    let (command, stopped) = input.extras.resume.as_ref()?;
    let plan = input.blocks.plan;
    let mut claims =
        primary_claims(input.comparisons).filter(|claim| claim.concluded_after.is_none()).peekable();
    claims.peek()?;
    // More blocks have no figure either.
    if input.blocks.block_count() > 0 && primary_claims(input.comparisons).all(|claim| claim.pairs.is_empty())
    {
        return None;
    }
    let blocks = input.blocks.block_count() as u32;
    // Claims that no practical number of blocks decides are run to the end of the plan; before the first look none is
    // known to be one.
    let unknown = |claim: &Comparison| match claim.pairs.len() < BLOCKS_MIN {
        true => BLOCKS_MIN as u32,
        false => plan.blocks_max,
    };
    let needed = claims.map(|claim| claim.blocks_needed.unwrap_or_else(|| unknown(claim))).max()?;
    let needed = needed.max(BLOCKS_MIN as u32);
    let is_over = stopped == "max_blocks" || blocks >= plan.blocks_max;
    let needed = if is_over && needed <= blocks { 2 * blocks.max(BLOCKS_MIN as u32) } else { needed };
    let more = needed.max(plan.blocks_min).saturating_sub(blocks).max(1);
    let option = if needed > plan.blocks_max {
        format!(" --blocks {}..{needed}", plan.blocks_min.min(needed))
    } else {
        String::new()
    };
    Some(FinishStep {
        command: format!("{command}{option}"),
        blocks: more,
        duration_s: input.extras.block_s.map(|block_s| f64::from(more) * block_s),
    })
}

/// Returns the step as a sentence, the command last.
pub(super) fn finish_text(step: &FinishStep) -> String {
    let time =
        step.duration_s.map_or_else(String::new, |seconds| format!(" ({})", duration_estimate(seconds)));
    format!("run about {}{time}: {}", count(step.blocks as usize, "more block"), step.command)
}
