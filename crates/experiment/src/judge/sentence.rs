//! Text of one comparison: a sentence or two with its figures.
//!
//! [`super::summary`] describes the complete experiment.

use record::experiment::{Comparison, ExperimentMetric};

use super::decide::{BLOCKS_NAMED_MAX, ComparisonFigures, OutcomeReason, blocks_needed};
use super::judged_trials::{JudgedTrials, log_ratios};
use super::phrases::{difference_phrase, interval_text, join_list, noun};
use crate::format::{bound_percent, count, p_value, percent, value};
use stats::signed_rank::{PAIRS_MIN, p_min};
use stats::{median, standard_deviation};

/// Returns the text of a comparison with a ratio.
pub(super) fn comparison_text(
    comparison: &Comparison,
    metric: &ExperimentMetric,
    numbers: &ComparisonFigures,
    reason: OutcomeReason,
    blocks: &JudgedTrials<'_>,
) -> String {
    let plan = blocks.plan;
    let ratio = comparison.ratio.unwrap_or(1.0);
    let (arm, baseline) = side_names(comparison);
    let prefix = load_prefix(comparison, blocks);
    let differs = format!("{arm} {} {baseline}", difference_phrase(metric, ratio));
    let (matters, noun, basis) = (bound_percent(plan.effect), noun(metric), basis(comparison));
    let sentence = match reason {
        OutcomeReason::TooFewBlocks if comparison.noise => format!(
            "no conclusion yet about the noise of {baseline} in {noun}: there {} {}, at least {PAIRS_MIN} are \
             required.",
            if comparison.pairs.len() == 1 { "is" } else { "are" },
            block_count_text(comparison)
        ),
        OutcomeReason::TooFewBlocks => format!(
            "no conclusion about {arm} and {baseline} in {noun} from {}: at least {PAIRS_MIN} are \
             required. So far {differs}.",
            block_count_text(comparison)
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
        OutcomeReason::NotSignificant => {
            format!("no conclusion yet: {differs} ({basis}), but {}.", not_significant_reason(numbers))
        }
        OutcomeReason::WithinNoise => format!(
            "no conclusion: {differs} ({basis}), but {baseline} differs from itself by {}, \
             measured in the same way.",
            percent(numbers.noise.unwrap_or(0.0).exp_m1().abs())
        ),
        OutcomeReason::IntervalTooWide => format!(
            "no conclusion yet about {arm} and {baseline} in {noun}: the difference is between {} ({}). {}",
            comparison.interval.map(range_text).unwrap_or_default(),
            block_count_text(comparison),
            blocks_needed_text(comparison, numbers, blocks)
        ),
    };
    let sentence = capitalize_if(&sentence, prefix.is_empty());
    prefix + &sentence + &missing_blocks_text(comparison, blocks) + side_note(comparison)
}

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

/// Returns the basis of a result: `2.4 % to 3.9 %, 12 blocks, p = 0.005`.
pub(super) fn basis(comparison: &Comparison) -> String {
    let mut parts = Vec::new();
    parts.extend(comparison.interval.map(interval_text));
    parts.push(block_count_text(comparison));
    parts.extend(comparison.p_adjusted.map(p_value));
    parts.join(", ")
}

fn range_text((low, high): (f64, f64)) -> String {
    let side = |ratio: f64| {
        let word = if ratio < 1.0 { "less" } else { "more" };
        format!("{} {word}", percent((ratio - 1.0).abs()))
    };
    format!("{} and {}", side(low), side(high))
}

/// Returns the reason why a test over blocks is not significant although the interval is.
fn not_significant_reason(numbers: &ComparisonFigures) -> String {
    let Some(adjusted) = numbers.p_adjusted else { return "it was not tested".to_owned() };
    let text = format!("the test over blocks is not significant ({})", p_value(adjusted));
    if p_min(numbers.pairs) * 2.0 > numbers.alpha {
        format!("{text}, which is hardly possible with so few blocks")
    } else {
        text
    }
}

/// Returns the number of blocks that would decide the comparison, as a sentence.
fn blocks_needed_text(
    comparison: &Comparison,
    numbers: &ComparisonFigures,
    blocks: &JudgedTrials<'_>,
) -> String {
    let plan = blocks.plan;
    let spread = log_ratios(&comparison.pairs).and_then(|logs| standard_deviation(&logs));
    let Some(spread) = spread else { return String::new() };
    match blocks_needed(spread, numbers.effect / 2.0, plan.confidence) {
        Some(needed) if needed > numbers.pairs => {
            let beyond = if needed > plan.blocks_max as usize {
                format!("; the plan allows {}", plan.blocks_max)
            } else {
                String::new()
            };
            format!(
                "At this spread ({} from block to block) about {needed} blocks would decide it{beyond}.",
                percent(spread)
            )
        }
        // The interval is narrow enough, but crosses the edge of what matters. Only a smaller
        // question helps.
        Some(_) => format!(
            "The interval contains the smallest effect that matters ({}); a smaller effect in the plan, \
             or more blocks, would decide it.",
            bound_percent(plan.effect)
        ),
        None => format!(
            "At this spread ({} from block to block) not even {BLOCKS_NAMED_MAX} blocks would decide \
             it: longer trials, an idle machine or a larger effect would.",
            percent(spread)
        ),
    }
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
    let words = ["nothing", "no "];
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
