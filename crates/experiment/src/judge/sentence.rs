//! Text of one comparison: a sentence or two with its figures.
//!
//! [`super::summary`] describes the complete experiment.

use record::experiment::{Comparison, ExperimentMetric};

use super::decide::OutcomeReason;
use super::judged_trials::JudgedTrials;
use super::phrases::{difference_phrase, interval_text, join_list, noun};
use crate::format::{bound_percent, count, duration_estimate, is_wide, p_value, percent, value};
use stats::median;
use stats::sequential::{BLOCKS_MIN, BLOCKS_NAMED_MAX, DisturbedBlocks, Look};

/// Returns the text of a comparison with a ratio. `block_s` is the duration of a block, if known.
pub(super) fn comparison_text(
    comparison: &Comparison,
    metric: &ExperimentMetric,
    (reason, look): (OutcomeReason, &Look),
    blocks: &JudgedTrials<'_>,
    block_s: Option<f64>,
) -> String {
    let plan = blocks.plan;
    let ratio = comparison.ratio.unwrap_or(1.0);
    let (arm, baseline) = side_names(comparison);
    let prefix = load_prefix(comparison, blocks);
    let differs = format!("{arm} {} {baseline}", difference_phrase(metric, ratio));
    let (matters, noun, basis) = (bound_percent(plan.effect), noun(metric), basis(comparison));
    let sentence = match reason {
        OutcomeReason::TooFewValues if comparison.noise => format!(
            "no conclusion yet about the noise of {baseline} in {noun}: there {} {}, at least {BLOCKS_MIN} are \
             required.",
            if comparison.pairs.len() == 1 { "is" } else { "are" },
            block_count_text(comparison)
        ),
        OutcomeReason::TooFewValues => format!(
            "so far ({}) {differs}{}. A conclusion is possible from block {BLOCKS_MIN} on{}.",
            block_count_text(comparison),
            agreement(comparison),
            duration_note(BLOCKS_MIN - comparison.pairs.len().min(BLOCKS_MIN), block_s)
        ),
        OutcomeReason::NoRelevantDifference => format!(
            "{arm} and {baseline} are equivalent in {noun}: any difference is smaller than the \
             {matters} that matters ({basis})."
        ),
        OutcomeReason::BelowRelevantEffect => {
            format!("{differs} ({basis}). That is less than the {matters} that matters: equivalent.")
        }
        OutcomeReason::RelevantEffect => format!("{differs} ({basis})."),
        OutcomeReason::MaybeRelevant => format!(
            "{differs} ({basis}). The difference is significant, but may be smaller than the {matters} that \
             matters."
        ),
        OutcomeReason::Open if comparison.interval.is_some_and(is_wide) => format!(
            "no conclusion yet ({}): the difference between {arm} and {baseline} in {noun} is not clear, its interval is \
             wider than twofold. {}",
            block_count_text(comparison),
            blocks_needed_text(comparison, look, plan.blocks_max, block_s)
        ),
        OutcomeReason::Open => format!(
            "no conclusion yet ({}): so far {differs}, between {}. {}",
            block_count_text(comparison),
            comparison.interval.map(range_text).unwrap_or_default(),
            blocks_needed_text(comparison, look, plan.blocks_max, block_s)
        ),
    };
    let sentence = capitalize_if(&sentence, prefix.is_empty());
    prefix
        + &sentence
        + &disturbance_text(comparison, look)
        + &missing_blocks_text(comparison, blocks)
        + side_note(comparison)
}

/// Returns how many blocks agree: `, in each of them`, if the arm is beyond the baseline in all.
fn agreement(comparison: &Comparison) -> &'static str {
    let blocks = comparison.pairs.len() as u32;
    let agrees = blocks > 1 && (comparison.beyond.0 == blocks || comparison.beyond.1 == blocks);
    if agrees { ", in each of them" } else { "" }
}

fn duration_note(blocks: usize, block_s: Option<f64>) -> String {
    block_s.map_or_else(String::new, |block_s| {
        format!(" (about {} more)", duration_estimate(blocks as f64 * block_s))
    })
}

/// Describes the treatment of the blocks that other programs disturbed.
fn disturbance_text(comparison: &Comparison, look: &Look) -> String {
    let (arm, disturbed) = (&comparison.arm, look.disturbed);
    if comparison.noise {
        return String::new();
    }
    let were = if disturbed == 1 { "was" } else { "were" };
    let disturbed = format!("{} {were} disturbed by other programs", count(disturbed, "block"));
    match look.treatment {
        DisturbedBlocks::None => String::new(),
        DisturbedBlocks::Harmless if look.above == look.kept || look.below == look.kept => {
            format!(" {disturbed}; that could not explain it: all count.")
        }
        DisturbedBlocks::Harmless => format!(" {disturbed}, by less than the noise: all count."),
        DisturbedBlocks::TooMany => format!(" {disturbed}, too many to set them aside: all count."),
        DisturbedBlocks::SetAside => {
            let numbers: Vec<String> = look.set_aside.iter().map(u32::to_string).collect();
            let (word, are) = if numbers.len() == 1 { ("block", "is") } else { ("blocks", "are") };
            let names = list_up_to(&numbers, BLOCKS_LISTED_MAX);
            format!(
                " {disturbed}; {word} {names} {are} set aside, because that could explain the difference."
            )
        }
        DisturbedBlocks::OfArm => format!(
            " {disturbed}, the trials of {arm} more or less often than the others: perhaps by its own processes. \
             All count."
        ),
    }
}

const BLOCKS_LISTED_MAX: usize = 6;

/// Returns `Under LOAD: ` if there are several loads.
fn load_prefix(comparison: &Comparison, blocks: &JudgedTrials<'_>) -> String {
    let several = blocks.plan.loads.len() > 1;
    if several { format!("Under {}: ", comparison.load) } else { String::new() }
}

/// Returns the text of a comparison without a ratio: no blocks, or values that are not above zero.
pub(super) fn text_without_ratio(
    comparison: &Comparison,
    metric: &ExperimentMetric,
    blocks: &JudgedTrials<'_>,
) -> String {
    let (arm, baseline) = side_names(comparison);
    let noun = noun(metric);
    let pairs = &comparison.pairs;
    let prefix = load_prefix(comparison, blocks);
    let Some(first) = pairs.first() else {
        let sentence = format!("{prefix}no block has {noun} of both {arm} and {baseline}.");
        return capitalize_if(&sentence, true);
    };
    if pairs.iter().all(|pair| pair.arm == first.arm && pair.baseline == first.arm) {
        let same = value(first.arm, &metric.unit);
        let sentence = format!(
            "{prefix}{noun} of both {arm} and {baseline} was {same} in every one of {}.",
            block_count_text(comparison)
        );
        return capitalize_if(&sentence, true);
    }
    let zeros = pairs.iter().filter(|pair| pair.arm <= 0.0 || pair.baseline <= 0.0).count();
    let median_text =
        |values: Vec<f64>| median(&values).map(|center| value(center, &metric.unit)).unwrap_or_default();
    let sentence = format!(
        "{prefix}no ratio in {noun}: in {zeros} of {} a value is not above zero. Medians: {} of {arm}, \
         {} of {baseline}.",
        block_count_text(comparison),
        median_text(pairs.iter().map(|pair| pair.arm).collect()),
        median_text(pairs.iter().map(|pair| pair.baseline).collect())
    );
    capitalize_if(&sentence, true) + side_note(comparison)
}

fn block_count_text(comparison: &Comparison) -> String {
    count(comparison.pairs.len(), "block")
}

fn side_names(comparison: &Comparison) -> (&str, &str) {
    (&comparison.arm, &comparison.baseline)
}

/// Returns the basis of a result: `2.4 % to 3.9 %, 12 blocks, each beyond both runs of glibc, p = 0.005`.
pub(super) fn basis(comparison: &Comparison) -> String {
    let mut parts = Vec::new();
    parts.extend(comparison.interval.map(interval_text));
    parts.push(blocks_beyond_text(comparison));
    parts.extend(comparison.p_adjusted.map(p_value));
    parts.join(", ")
}

/// Returns the number of blocks, and whether the arm is beyond every run of the baseline in each of them.
pub(super) fn blocks_beyond_text(comparison: &Comparison) -> String {
    let kept = (comparison.pairs.len() - comparison.set_aside.len().min(comparison.pairs.len())) as u32;
    let is_beyond = kept > 1 && [comparison.beyond.0, comparison.beyond.1].contains(&kept);
    let blocks = block_count_text(comparison);
    let each = if comparison.set_aside.is_empty() { "each" } else { "each that counts" };
    match is_beyond && !comparison.noise {
        true => format!("{blocks}, {each} beyond both runs of {}", comparison.baseline),
        false => blocks,
    }
}

fn range_text((low, high): (f64, f64)) -> String {
    let side = |ratio: f64| {
        let word = if ratio < 1.0 { "less" } else { "more" };
        format!("{} {word}", percent((ratio - 1.0).abs()))
    };
    format!("{} and {}", side(low), side(high))
}

/// Returns the number of further blocks that would decide the comparison, as a sentence.
fn blocks_needed_text(comparison: &Comparison, look: &Look, blocks_max: u32, block_s: Option<f64>) -> String {
    let Some(needed) = comparison.blocks_needed else {
        return format!(
            "At this spread ({} from block to block) not even {BLOCKS_NAMED_MAX} blocks would decide it: longer \
             trials, an idle machine or a larger effect would.",
            percent(look.deviation)
        );
    };
    let more = (needed as usize).saturating_sub(comparison.pairs.len());
    let time =
        block_s.map_or_else(String::new, |block_s| format!("{}; ", duration_estimate(more as f64 * block_s)));
    let allowed = if needed > blocks_max {
        format!("; the plan allows {blocks_max} in all. Longer trials or an idle machine would help")
    } else {
        String::new()
    };
    format!(
        "At this spread ({} from block to block) about {} would decide it ({time}perhaps half or twice as \
         many){allowed}.",
        percent(look.deviation),
        count(more, "more block")
    )
}

/// Returns a note on the blocks in which one of the sides does not have the figure.
fn missing_blocks_text(comparison: &Comparison, blocks: &JudgedTrials<'_>) -> String {
    let all = blocks.block_count();
    match all.saturating_sub(comparison.pairs.len()) {
        0 => String::new(),
        missing => format!(" {missing} of {all} blocks lack the figure of an arm."),
    }
}

fn side_note(comparison: &Comparison) -> &'static str {
    match (comparison.noise, comparison.primary) {
        (true, _) => " (Both arms are the same: this is the noise.)",
        (false, true) => "",
        (false, false) => " (Not the primary metric.)",
    }
}

fn capitalize_if(text: &str, is_capital: bool) -> String {
    // Names of arms keep their case.
    let words = ["nothing", "no ", "so far "];
    let mut letters = text.chars();
    match letters.next() {
        Some(first) if is_capital && words.iter().any(|word| text.starts_with(word)) => {
            first.to_uppercase().chain(letters).collect()
        }
        _ => text.to_owned(),
    }
}

/// Lists at most `max` names of arms.
pub(super) fn list_up_to<T: AsRef<str>>(names: &[T], max: usize) -> String {
    if names.len() <= max {
        return join_list(names);
    }
    let shown: Vec<&str> = names[..max].iter().map(AsRef::as_ref).collect();
    format!("{} and {} more", shown.join(", "), names.len() - max)
}
