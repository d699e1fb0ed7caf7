//! What one comparison says, in a sentence or two with its figures.
//!
//! Not for the whole experiment: that is [`super::summary`]'s.

use record::experiment::{Comparison, Metric};

use super::blocks::Blocks;
use super::compare;
use super::decide::{BLOCKS_NAMED_MAX, Numbers, Reason, blocks_needed};
use super::words::{difference, list, noun, range};
use crate::statistics::signed_rank::{PAIRS_MIN, p_min};
use crate::statistics::{deviation, median};
use crate::words::{bound, count, of_chance, percent, value};

/// A comparison with a ratio.
pub(super) fn text(
    comparison: &Comparison,
    metric: &Metric,
    numbers: &Numbers,
    reason: Reason,
    blocks: &Blocks<'_>,
) -> String {
    let plan = blocks.plan;
    let ratio = comparison.ratio.unwrap_or(1.0);
    let (arm, baseline) = names(comparison);
    let place = place(comparison, blocks);
    let differs = format!("{arm} {} {baseline}", difference(metric, ratio));
    let (matters, noun, basis) = (bound(plan.effect), noun(metric), basis(comparison));
    let said = match reason {
        Reason::TooFew if comparison.noise => format!(
            "nothing can be said yet of how far {baseline} is from itself in {noun}: there {} {}, and it \
             takes at least {PAIRS_MIN}.",
            if comparison.pairs.len() == 1 { "is" } else { "are" },
            blocks_of(comparison)
        ),
        Reason::TooFew => format!(
            "nothing can be said of {arm} against {baseline} in {noun} from {}; it takes at least \
             {PAIRS_MIN}. So far {differs}.",
            blocks_of(comparison)
        ),
        Reason::NoneThatMatters => format!(
            "{arm} and {baseline} are equivalent in {noun}: whatever difference there is, it is \
             smaller than the {matters} that matters ({basis})."
        ),
        Reason::LessThanMatters => format!(
            "{differs} ({basis}). That is less than the {matters} that matters: equivalent."
        ),
        Reason::AllOfItMatters => format!("{differs} ({basis})."),
        Reason::MayMatter => format!(
            "{differs} ({basis}). There is a difference; whether it is as large as the {matters} that \
             matters is open."
        ),
        Reason::NotTested => {
            format!("nothing can be said yet: {differs} ({basis}), but {}.", untested(numbers))
        }
        Reason::WithinNoise => format!(
            "nothing can be said: {differs} ({basis}), but {baseline} differs from itself by {}, \
             measured in the same way.",
            percent(numbers.noise.unwrap_or(0.0).exp_m1().abs())
        ),
        Reason::Wide => format!(
            "nothing can be said yet of {arm} against {baseline} in {noun}: the difference lies between \
             {} ({}). {}",
            comparison.interval.map(between).unwrap_or_default(),
            blocks_of(comparison),
            needed(comparison, numbers, blocks)
        ),
    };
    let said = capital(&said, place.is_empty());
    place + &said + &missing(comparison, blocks) + not_decisive(comparison)
}

/// `Under LOAD: `, where there are several.
fn place(comparison: &Comparison, blocks: &Blocks<'_>) -> String {
    let several = blocks.plan.loads.len() > 1;
    if several { format!("Under {}: ", comparison.load) } else { String::new() }
}

/// A comparison without one: no blocks, or values that are not above zero.
pub(super) fn without_ratio(
    comparison: &Comparison,
    metric: &Metric,
    blocks: &Blocks<'_>,
) -> String {
    let (arm, baseline) = names(comparison);
    let noun = noun(metric);
    let pairs = &comparison.pairs;
    let place = place(comparison, blocks);
    let Some(first) = pairs.first() else {
        let said = format!("{place}no block has {noun} of both {arm} and {baseline}.");
        return capital(&said, true);
    };
    if pairs.iter().all(|pair| pair.arm == first.arm && pair.baseline == first.arm) {
        let same = value(first.arm, &metric.unit);
        let said = format!(
            "{place}{noun} of both {arm} and {baseline} was {same} in every one of {}.",
            blocks_of(comparison)
        );
        return capital(&said, true);
    }
    let zeros = pairs.iter().filter(|pair| pair.arm <= 0.0 || pair.baseline <= 0.0).count();
    let middle = |values: Vec<f64>| {
        median(&values).map(|middle| value(middle, &metric.unit)).unwrap_or_default()
    };
    let said = format!(
        "{place}no ratio in {noun}: in {zeros} of {} a value is not above zero. Medians: {} of {arm}, \
         {} of {baseline}.",
        blocks_of(comparison),
        middle(pairs.iter().map(|pair| pair.arm).collect()),
        middle(pairs.iter().map(|pair| pair.baseline).collect())
    );
    capital(&said, true) + not_decisive(comparison)
}

fn blocks_of(comparison: &Comparison) -> String {
    count(comparison.pairs.len(), "block")
}

fn names(comparison: &Comparison) -> (&str, &str) {
    (&comparison.arm, &comparison.baseline)
}

/// `2.4 % to 3.9 %, 12 blocks, p = 0.005`.
pub(super) fn basis(comparison: &Comparison) -> String {
    let mut parts = Vec::new();
    parts.extend(comparison.interval.map(range));
    parts.push(blocks_of(comparison));
    parts.extend(comparison.p_adjusted.map(of_chance));
    parts.join(", ")
}

fn between((low, high): (f64, f64)) -> String {
    let side = |ratio: f64| {
        let word = if ratio < 1.0 { "less" } else { "more" };
        format!("{} {word}", percent((ratio - 1.0).abs()))
    };
    format!("{} and {}", side(low), side(high))
}

/// Why a test over blocks is not sure although the interval is.
fn untested(numbers: &Numbers) -> String {
    let Some(adjusted) = numbers.p_adjusted else { return "there is no test of it".to_owned() };
    let text = format!("the test over blocks is not sure ({})", of_chance(adjusted));
    if p_min(numbers.pairs) * 2.0 > numbers.alpha {
        format!("{text}: with so few blocks it hardly can be")
    } else {
        text
    }
}

/// What would decide it.
fn needed(comparison: &Comparison, numbers: &Numbers, blocks: &Blocks<'_>) -> String {
    let plan = blocks.plan;
    let spread = compare::logs(&comparison.pairs).and_then(|logs| deviation(&logs));
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
        // Narrow enough, and across the edge of what matters: no width helps but a smaller question.
        Some(_) => format!(
            "It lies across the edge of what matters ({}); a smaller effect in the plan, or more \
             blocks, would tell on which side.",
            bound(plan.effect)
        ),
        None => format!(
            "At this spread ({} from block to block) not even {BLOCKS_NAMED_MAX} blocks would decide \
             it: longer trials, a quieter machine or a larger effect would.",
            percent(spread)
        ),
    }
}

/// Blocks in which one of both has no such figure.
fn missing(comparison: &Comparison, blocks: &Blocks<'_>) -> String {
    let all = blocks.count();
    match all.saturating_sub(comparison.pairs.len()) {
        0 => String::new(),
        missing => format!(" {missing} of {all} blocks do not have it for both."),
    }
}

fn not_decisive(comparison: &Comparison) -> &'static str {
    match (comparison.noise, comparison.primary) {
        (true, _) => " (Both are the same thing: this is the noise.)",
        (false, true) => "",
        (false, false) => " (Not the metric that decides.)",
    }
}

fn capital(text: &str, wanted: bool) -> String {
    // Names of arms stay as they are written.
    let words = ["nothing", "no ", "whatever"];
    let mut letters = text.chars();
    match letters.next() {
        Some(first) if wanted && words.iter().any(|word| text.starts_with(word)) => {
            first.to_uppercase().chain(letters).collect()
        }
        _ => text.to_owned(),
    }
}

/// Names of arms for a list, at most so many.
pub(super) fn some<T: AsRef<str>>(names: &[T], most: usize) -> String {
    if names.len() <= most {
        return list(names);
    }
    let shown: Vec<&str> = names[..most].iter().map(AsRef::as_ref).collect();
    format!("{} and {} more", shown.join(", "), names.len() - most)
}
