//! Summary of an experiment for readers of only the first lines: the result, its reason, the
//! comparison, other findings, and the next step.
//!
//! Every comparison has its own text elsewhere.

use record::experiment::{Arm, Comparison, ComparisonOutcome, ExperimentMetric, FinishStep, Warning};
use record::run::Answer;
use record::sorted::sort_by;
use record::trial::TrialKind;
use record::units::format_plural;

use super::bottleneck::{code_with_claim, majority_verdict};
use super::finish::finish_text;
use super::ladder::describe_ladder;
use super::phrases::{difference_phrase, explain_p, interval_text, noun};
use super::sentence::{basis, blocks_beyond_text, list_up_to};
use super::warnings::{WarningInput, longer_trials_for};
use crate::definition::changed_keys;
use crate::format::{bound_percent, count, is_wide, percent};
use stats::median;
use stats::sequential::BLOCKS_MIN;

/// Maximum number of names in a sentence, for each outcome.
const NAMED_MAX: usize = 5;
const LOADS_NAMED_MAX: usize = 12;
/// Maximum number of changed keys that are repeated.
const CHANGED_KEYS_MAX: usize = 3;
/// Maximum length of a repeated changed value, in characters.
const VALUE_CHARS_MAX: usize = 60;
const CALLS_METRIC: &str = "calls_per_response";

/// Returns the sentences of the summary, the result first.
pub(super) fn summary(
    input: &WarningInput<'_>,
    warnings: &[Warning],
    finish: Option<&FinishStep>,
    draws: u32,
) -> Vec<String> {
    let Some(metric) = input.blocks.plan.primary() else {
        return vec!["No conclusion: the plan has no metric.".to_owned()];
    };
    let claims: Vec<&Comparison> =
        input.comparisons.iter().filter(|comparison| comparison.primary && !comparison.noise).collect();
    let headline = headline_comparison(&claims);
    let Some(headline) = headline else {
        return single_arm_summary(input, metric, warnings, (finish, draws));
    };
    let mut sentences = vec![headline_text(input, metric, &claims, headline)];
    if claims.len() > 1 && input.blocks.block_count() > 0 {
        sentences.push(overview(input, metric, &claims));
    }
    if input.blocks.block_count() > 0 {
        sentences.push(cause_text(input, headline));
        sentences.push(method_text(input));
    } else {
        sentences.push(missing_text(input));
    }
    sentences.extend(secondary_results(input));
    let longer = longer_trials_for(input).map(|advice| format!("{STEP_PREFIX}{advice}."));
    sentences.extend(longer.or_else(|| suggested_step(Some(headline), warnings, finish)));
    sentences
}

/// Returns the answer of an experiment from the sentences of its summary: the result, its reason, and the next step.
pub fn answer_of_summary(summary: &[String]) -> Answer {
    let is_step = |sentence: &&String| sentence.starts_with(STEP_PREFIX);
    let results: Vec<&String> = summary.iter().filter(|sentence| !is_step(sentence)).collect();
    let step = summary.iter().find(is_step).map(|sentence| sentence.trim_start_matches(STEP_PREFIX));
    let step = step.unwrap_or("read the comparisons: none of them calls for another step.");
    let mut letters = step.chars();
    let next = letters.next().map(|first| first.to_uppercase().chain(letters).collect());
    Answer {
        what: results.first().map(|text| (*text).clone()).unwrap_or_default(),
        why: results
            .get(1)
            .map_or_else(|| "No other sentence of the summary applies.".to_owned(), |text| (*text).clone()),
        next: next.unwrap_or_default(),
    }
}

/// Start of the sentence about the next step.
const STEP_PREFIX: &str = "Next: ";

/// Returns the sentences for an experiment with one arm: the result of its ladder, if its loads
/// form one, and the difference of the arm from itself, which any other arm would have to exceed.
fn single_arm_summary(
    input: &WarningInput<'_>,
    metric: &ExperimentMetric,
    warnings: &[Warning],
    (finish, draws): (Option<&FinishStep>, u32),
) -> Vec<String> {
    let mut sentences = Vec::new();
    sentences.extend(describe_ladder(input, draws));
    sentences.push(noise_text(input, metric));
    if input.blocks.block_count() > 0 {
        let limit = input.loads().next().and_then(|load| input.cell(input.baseline(), load));
        if let Some(limit) = limit.and_then(majority_verdict).filter(|_| input.loads().count() == 1) {
            sentences.push(format!("Bottleneck of {}: {}.", input.baseline(), code_with_claim(limit)));
        }
        let note =
            if has_too_few_blocks(input) { String::new() } else { format!(" {}", interval_note(input)) };
        sentences.push(format!("{}.{note}", blocks_text(input, "run")));
    }
    sentences.extend(suggested_step(None, warnings, finish));
    sentences
}

/// Returns the smallest effect that this noise allows to see. An effect within half the interval is
/// not distinguishable from none, and an effect within the A/A difference is noise.
fn smallest_detectable_effect(noise: &Comparison) -> Option<f64> {
    let ((low, high), ratio) = (noise.interval?, noise.ratio?);
    Some(((high / low).ln() / 2.0).max(ratio.ln().abs()).exp_m1())
}

/// Describes the difference of the only arm from itself, and the smallest visible effect.
fn noise_text(input: &WarningInput<'_>, metric: &ExperimentMetric) -> String {
    let (arm, noun, effect) = (input.baseline(), noun(metric), input.blocks.plan.effect);
    let noises = input.comparisons.iter().filter(|comparison| comparison.noise && comparison.primary);
    let mut detectable: Vec<(f64, f64, &Comparison)> = noises
        .filter_map(|noise| Some((smallest_detectable_effect(noise)?, (noise.ratio? - 1.0).abs(), noise)))
        .collect();
    sort_by(&mut detectable, |a, b| a.0.total_cmp(&b.0));
    let (Some(min), Some(max)) = (detectable.first(), detectable.last()) else {
        return format!(
            "No conclusion yet about the noise of {arm} in {noun}: there are {}, {BLOCKS_MIN} are required.",
            count(input.blocks.block_count(), "block")
        );
    };
    let matters = if max.0 > effect {
        format!(
            "more than the {} that matters: more blocks, longer trials or an idle machine are required",
            bound_percent(effect)
        )
    } else {
        format!("less than the {} that matters", bound_percent(effect))
    };
    if detectable.len() == 1 {
        return format!(
            "{arm} differs from itself by {} in {noun} ({}): the smallest effect that this number of \
             blocks can detect here is about {}, {matters}.",
            percent(min.1),
            measured_text(min.2),
            percent(min.0)
        );
    }
    let far = |pick: fn(f64, f64) -> f64| detectable.iter().map(|it| it.1).reduce(pick).unwrap_or(0.0);
    format!(
        "{arm} differs from itself by {} to {} in {noun}, depending on the load: the smallest effect that \
         this number of blocks can detect here is about {} (under {}) to {} (under {}). The latter is {matters}.",
        percent(far(f64::min)),
        percent(far(f64::max)),
        percent(min.0),
        min.2.load,
        percent(max.0),
        max.2.load
    )
}

/// Returns the comparison for the first sentence: the only one, or the largest gain, else the
/// largest loss, else the first.
fn headline_comparison<'a>(claims: &[&'a Comparison]) -> Option<&'a Comparison> {
    let size = |claim: &Comparison| claim.ratio.map_or(0.0, |ratio| ratio.ln().abs());
    let largest = |outcome| {
        let matching_claims = claims.iter().filter(move |claim| claim.outcome == outcome);
        matching_claims.max_by(|a, b| size(a).total_cmp(&size(b))).copied()
    };
    largest(ComparisonOutcome::Faster)
        .or_else(|| largest(ComparisonOutcome::Slower))
        .or_else(|| claims.first().copied())
}

/// Returns the reason why no block counts: the latest one for which a trial did not count, and the number of such trials.
fn missing_text(input: &WarningInput<'_>) -> String {
    let ran: Vec<_> =
        input.blocks.all.iter().filter(|trial| trial.position.kind == TrialKind::Judged).collect();
    if ran.is_empty() {
        return "No trial of a block has run.".to_owned();
    }
    let reasons = ran.iter().filter_map(|trial| {
        let discarded = trial.discarded.as_ref().map(|reason| format!("discarded ({})", reason.text));
        discarded.or_else(|| trial.failed.as_ref().map(|text| format!("failed ({text})")))
    });
    let (lost, latest) = reasons.fold((0, None), |(lost, _), reason| (lost + 1, Some(reason)));
    let trials = format_plural(ran.len() as u64, "trial");
    match latest {
        Some(latest) => format!("{lost} of {trials} did not count; the latest was {latest}."),
        None => format!("{trials} ran, and no block is complete."),
    }
}

fn headline_text(
    input: &WarningInput<'_>,
    metric: &ExperimentMetric,
    claims: &[&Comparison],
    headline: &Comparison,
) -> String {
    let plan = input.blocks.plan;
    if claims.iter().all(|claim| claim.pairs.is_empty()) {
        return no_figures_text(input, metric);
    }
    let settled = matches!(headline.outcome, ComparisonOutcome::Faster | ComparisonOutcome::Slower);
    if claims.len() > 1 && has_too_few_blocks(input) {
        return format!(
            "No conclusion yet: there {} {}, at least {BLOCKS_MIN} are required. {}",
            if input.blocks.block_count() == 1 { "is" } else { "are" },
            count(input.blocks.block_count(), "block"),
            headline.text
        );
    }
    if claims.len() > 1 && !settled {
        let all = |outcome| claims.iter().all(|claim| claim.outcome == outcome);
        let arms = arms_text(input);
        return if all(ComparisonOutcome::Equivalent) {
            format!(
                "{arms} {} {} are equivalent in {}: no difference is as large as the {} that matters.",
                if input.arms().count() > 1 { "and the baseline" } else { "and" },
                plan.baseline,
                noun(metric),
                bound_percent(plan.effect)
            )
        } else {
            format!("No arm is known to differ from {}.", plan.baseline)
        };
    }
    match (settled, headline.ratio) {
        (true, Some(ratio)) => {
            let bound_note = if headline.bound.is_some() { " That is a lower bound." } else { "" };
            let best = if input.arms().count() > 1 && headline.outcome == ComparisonOutcome::Faster {
                format!(
                    " It is the best of {} arms; arms other than the baseline are not tested \
                     against each other.",
                    input.arms().count()
                )
            } else {
                String::new()
            };
            format!(
                "{} {} {}{} ({}; {}).{bound_note}{best}",
                headline.arm,
                difference_phrase(metric, ratio),
                headline.baseline,
                input.load_suffix(&headline.load),
                measured_text(headline),
                explain_p(headline.p_adjusted.unwrap_or(1.0))
            )
        }
        _ => headline.text.clone(),
    }
}

fn no_figures_text(input: &WarningInput<'_>, metric: &ExperimentMetric) -> String {
    match input.blocks.block_count() {
        0 => "No conclusion yet: no block has both an arm and the baseline.".to_owned(),
        _ => format!("No conclusion: no trial has the {}, which decides.", noun(metric)),
    }
}

fn arms_text(input: &WarningInput<'_>) -> String {
    let names: Vec<&str> = input.arms().map(|arm| arm.name.as_str()).collect();
    list_up_to(&names, NAMED_MAX)
}

/// Returns the range and the number of blocks: `2.4 % to 3.9 %, 12 blocks`.
fn measured_text(comparison: &Comparison) -> String {
    let blocks = blocks_beyond_text(comparison);
    comparison
        .interval
        .map_or_else(|| blocks.clone(), |interval| format!("{}, {blocks}", interval_text(interval)))
}

/// Lists all claims by outcome, in one sentence.
fn overview(input: &WarningInput<'_>, metric: &ExperimentMetric, claims: &[&Comparison]) -> String {
    let (arms, loads) = (input.arms().count(), input.blocks.plan.loads.len());
    let label = |claim: &Comparison| match (arms > 1, loads > 1) {
        (true, true) => format!("{} under {}", claim.arm, claim.load),
        (false, true) => format!("under {}", claim.load),
        _ => claim.arm.clone(),
    };
    let group = |outcome: ComparisonOutcome, word: &str, sized: bool| {
        let mut members: Vec<&&Comparison> = claims.iter().filter(|claim| claim.outcome == outcome).collect();
        let size = |claim: &Comparison| claim.ratio.map_or(0.0, |ratio| ratio.ln().abs());
        sort_by(&mut members, |a, b| size(b).total_cmp(&size(a)));
        let texts: Vec<String> = members
            .iter()
            .map(|claim| match claim.ratio.filter(|_| sized) {
                Some(ratio) => format!("{} ({})", label(claim), percent((ratio - 1.0).abs())),
                None => label(claim),
            })
            .collect();
        (!texts.is_empty()).then(|| format!("{word}: {}", list_up_to(&texts, NAMED_MAX)))
    };
    let groups: Vec<String> = [
        group(ComparisonOutcome::Faster, ComparisonOutcome::Faster.as_str_for_unit(&metric.unit), true),
        group(ComparisonOutcome::Slower, ComparisonOutcome::Slower.as_str_for_unit(&metric.unit), true),
        group(ComparisonOutcome::Equivalent, "equivalent", false),
        group(ComparisonOutcome::Inconclusive, "no conclusion yet", false),
    ]
    .into_iter()
    .flatten()
    .collect();
    format!("Against {} in {}: {}.", input.baseline(), noun(metric), groups.join("; "))
}

/// Describes the change, and the limits of both arms.
fn cause_text(input: &WarningInput<'_>, headline: &Comparison) -> String {
    let mut parts = Vec::new();
    let arm = input.blocks.plan.arm(&headline.arm);
    let change = |arm: &Arm, key: String| match arm.changes.get(&key) {
        Some(value) => format!("{key} = {}", shorten(value)),
        None => format!("{key} as in the file"),
    };
    let changes = arm.map_or_else(Vec::new, |arm| {
        changed_keys(input.blocks.plan, arm).into_iter().map(|key| change(arm, key)).collect()
    });
    if !changes.is_empty() {
        let more = match changes.len().saturating_sub(CHANGED_KEYS_MAX) {
            0 => String::new(),
            more => format!("; and {more} more"),
        };
        let shown = changes[..changes.len().min(CHANGED_KEYS_MAX)].join("; ");
        parts.push(format!("{} changes {shown}{more}.", headline.arm));
    }
    let limit = |arm: &str| input.cell(arm, &headline.load).and_then(majority_verdict);
    parts.push(match (limit(&headline.arm), limit(&headline.baseline)) {
        (Some(arm), Some(baseline)) if arm == baseline => {
            format!("Bottleneck of both: {}.", code_with_claim(arm))
        }
        (Some(arm), Some(baseline)) => format!(
            "Bottleneck of {}: {}; of {}: {}.",
            headline.arm,
            code_with_claim(arm),
            headline.baseline,
            code_with_claim(baseline)
        ),
        (None, None) => "The bottleneck of neither is known.".to_owned(),
        (Some(known), None) => one_known(&headline.arm, known, &headline.baseline),
        (None, Some(known)) => one_known(&headline.baseline, known, &headline.arm),
    });
    parts.extend(calls_text(input, headline));
    parts.join(" ")
}

/// Describes the limits of two arms of which only one is known.
fn one_known(arm: &str, verdict: &str, other: &str) -> String {
    format!("Bottleneck of {arm}: {}; that of {other} is unknown.", code_with_claim(verdict))
}

/// Describes the counted calls, from all trials that counted them.
fn calls_text(input: &WarningInput<'_>, headline: &Comparison) -> Option<String> {
    let calls_of = |arm: &str| {
        let trials = input.blocks.all.iter();
        let arm_trials = trials.filter(|trial| {
            trial.position.arm == arm && trial.position.load == headline.load && trial.failed.is_none()
        });
        let counted = arm_trials.filter_map(|trial| trial.metrics.get(CALLS_METRIC).copied());
        median(&counted.collect::<Vec<f64>>())
    };
    let calls_phrase = match input.blocks.plan.calls.as_deref()? {
        "allocations" => "allocations".to_owned(),
        "syscalls" => "system calls".to_owned(),
        function => format!("calls of {function}"),
    };
    let (arm, baseline) = (calls_of(&headline.arm)?, calls_of(&headline.baseline)?);
    Some(format!(
        "Per response there were {arm:.2} {calls_phrase} in {} and {baseline:.2} in {}.",
        headline.arm, headline.baseline
    ))
}

fn shorten(value: &str) -> String {
    if value.chars().count() <= VALUE_CHARS_MAX {
        return value.to_owned();
    }
    value.chars().take(VALUE_CHARS_MAX).chain("..".chars()).collect()
}

/// Describes the number of blocks and trials that were compared or run.
fn blocks_text(input: &WarningInput<'_>, done: &str) -> String {
    let plan = input.blocks.plan;
    let (blocks, trials) = (input.blocks.block_count(), plan.arms.len() * plan.loads.len());
    let mut text = format!(
        "{} of {} of {} s {} {done}, every arm once in each block",
        count(blocks, "block"),
        count(trials, "trial"),
        plan.duration_s,
        if blocks == 1 { "was" } else { "were" }
    );
    if plan.loads.len() > 1 {
        let loads: Vec<&str> = input.loads().collect();
        text.push_str(&format!(" under each load ({})", list_up_to(&loads, LOADS_NAMED_MAX)));
    }
    text
}

fn has_too_few_blocks(input: &WarningInput<'_>) -> bool {
    input.blocks.block_count() < BLOCKS_MIN
}

/// Explains the ranges of this experiment.
fn interval_note(input: &WarningInput<'_>) -> String {
    let bound_text = bound_percent(input.blocks.plan.confidence);
    format!("A range contains the true difference in {bound_text} of such experiments.")
}

/// Describes the comparison: blocks, machine, and size of the noise.
fn method_text(input: &WarningInput<'_>) -> String {
    let plan = input.blocks.plan;
    let mut text = blocks_text(input, "compared");
    let noises = input.comparisons.iter().filter(|comparison| comparison.noise && comparison.primary);
    // With fewer blocks a figure would be chance.
    let (with_ratio, with_few_pairs): (Vec<_>, Vec<_>) =
        noises.partition(|noise| noise.pairs.len() >= BLOCKS_MIN);
    let noises: Vec<String> = with_ratio
        .into_iter()
        .filter_map(|noise| {
            if noise.interval.is_some_and(is_wide) {
                let text = "an amount that is not clear (its interval is wider than twofold)";
                return Some(format!("{text}{}", input.load_suffix(&noise.load)));
            }
            let difference = percent((noise.ratio? - 1.0).abs());
            let measured = noise.interval.map(|interval| format!(" ({})", interval_text(interval)));
            Some(format!("{difference}{}{}", measured.unwrap_or_default(), input.load_suffix(&noise.load)))
        })
        .collect();
    if noises.is_empty() && with_few_pairs.is_empty() {
        text.push('.');
    } else if noises.is_empty() {
        text.push_str(&format!(
            "; the noise of {} is not known yet: at least {BLOCKS_MIN} blocks are required.",
            plan.baseline
        ));
    } else {
        let noises = list_up_to(&noises, NAMED_MAX);
        text.push_str(&format!("; {} differs from itself by {noises}.", plan.baseline));
    }
    if has_too_few_blocks(input) { text } else { format!("{text} {}", interval_note(input)) }
}

fn secondary_results(input: &WarningInput<'_>) -> Option<String> {
    let plan = input.blocks.plan;
    let is_clear = |comparison: &&Comparison| {
        !comparison.primary
            && !comparison.noise
            && matches!(comparison.outcome, ComparisonOutcome::Faster | ComparisonOutcome::Slower)
    };
    let texts: Vec<String> = input
        .comparisons
        .iter()
        .filter(is_clear)
        .filter_map(|comparison| {
            let metric = plan.metrics.iter().find(|metric| metric.name == comparison.metric)?;
            let phrase = difference_phrase(metric, comparison.ratio?);
            let under = input.load_suffix(&comparison.load);
            Some(format!(
                "{} {phrase} {}{under} ({})",
                comparison.arm,
                comparison.baseline,
                basis(comparison)
            ))
        })
        .collect();
    (!texts.is_empty()).then(|| {
        let shown = texts[..texts.len().min(NAMED_MAX)].join("; ");
        format!("Secondary metrics: {shown}.")
    })
}

/// Next step after each warning.
const NEXT_STEPS: &[(&str, &str)] = &[
    ("client_bound", "Next: give the load generator more threads or another machine, and run again."),
    ("two_factors", "Next: test each change in its own arm."),
    (
        "different_bottlenecks",
        "Next: remove the limit of the faster arm (a faster link, more connections, more generator \
         threads), so that both arms reach the same limit.",
    ),
    ("probe_overhead", "Next: repeat it without probes in judged trials."),
    (
        "noise_floor",
        "Next: find the cause of the difference between baseline and itself, or run more blocks.",
    ),
    (
        "noise_range",
        "Next: for a narrower range use longer trials (-d), more blocks (--blocks) or an idle machine.",
    ),
];

const NEXT_STEP_AFTER_FAILURE: &str =
    "Next: find out why trials failed. Their output is below, and complete in their records.";

fn suggested_step(
    headline: Option<&Comparison>,
    warnings: &[Warning],
    finish: Option<&FinishStep>,
) -> Option<String> {
    let after = NEXT_STEPS.iter().find(|(code, _)| warnings.iter().any(|warning| warning.code == *code));
    if let Some((_, text)) = after {
        return Some((*text).to_owned());
    }
    let has_failed = warnings.iter().any(|warning| warning.code == "failed_trials");
    if has_failed && headline.is_none_or(|head| head.outcome == ComparisonOutcome::Inconclusive) {
        return Some(NEXT_STEP_AFTER_FAILURE.to_owned());
    }
    if let Some(finish) = finish {
        return Some(format!("{STEP_PREFIX}{}", finish_text(finish)));
    }
    let text = match headline?.outcome {
        ComparisonOutcome::Faster | ComparisonOutcome::Slower => {
            "Next: test other loads; the result may differ."
        }
        ComparisonOutcome::Equivalent => "Next: find the limit of both arms; this change gains nothing here.",
        ComparisonOutcome::Inconclusive => "Next: more blocks, longer trials, or an idle machine.",
    };
    Some(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_the_result_the_reason_and_the_next_step() {
        let summary = ["b is faster.", "Bottleneck of both: x.", "Other.", "Next: test other loads."];
        let answer = answer_of_summary(&summary.map(str::to_owned));
        let Answer { what, why, next } = answer;
        assert_eq!([what, why, next], ["b is faster.", "Bottleneck of both: x.", "Test other loads."]);
        let short = answer_of_summary(&["No conclusion yet.".to_owned()]);
        assert!([short.why, short.next].iter().all(|text| text.ends_with('.')));
    }

    #[test]
    fn next_steps_are_for_existing_warnings() {
        for (code, text) in NEXT_STEPS {
            assert!(super::super::warnings::WARNINGS.iter().any(|kind| kind.code == *code), "{code}");
            assert!(text.starts_with("Next: "), "{code}");
        }
    }

    #[test]
    fn long_values_are_cut_between_characters() {
        assert_eq!(shorten("abc"), "abc");
        assert_eq!(shorten(&"ä".repeat(100)).chars().count(), VALUE_CHARS_MAX + 2);
    }
}
