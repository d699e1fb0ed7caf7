//! What came of an experiment, for who reads only the first lines: the answer, why, what was compared, what
//! else was seen, and what would be next.
//!
//! Not for every comparison: each has its own text.

use record::experiment::{Arm, Comparison, Metric, Outcome, Warning};

use super::bottleneck::{claim, majority};
use super::ladder::ladder;
use super::said::{basis, some};
use super::warnings::Case;
use super::words::{difference, noun, range, sureness};
use crate::experiment::differing;
use crate::statistics::median;
use crate::statistics::signed_rank::PAIRS_MIN;
use crate::words::{bound, count, percent};

/// How many names a sentence lists of each outcome.
const NAMED_MAX: usize = 5;
/// How many loads are named.
const LOADS_NAMED_MAX: usize = 12;
/// How many changed keys are repeated.
const KEYS_MAX: usize = 3;
/// The most of a changed value that is repeated, in characters.
const VALUE_CHARS_MAX: usize = 60;
/// What counted calls are told from.
const CALLS: &str = "calls_per_response";

/// The sentences, the answer first.
pub(super) fn summary(case: &Case<'_>, warnings: &[Warning], draws: u32) -> Vec<String> {
    let Some(metric) = case.blocks.plan.primary() else {
        return vec!["Nothing can be said: the plan has no metric.".to_owned()];
    };
    let claims: Vec<&Comparison> =
        case.comparisons.iter().filter(|one| one.primary && !one.noise).collect();
    let head = head(&claims);
    let Some(head) = head else { return alone(case, metric, warnings, draws) };
    let mut sentences = vec![answer(case, metric, &claims, head)];
    if claims.len() > 1 && case.blocks.count() > 0 {
        sentences.push(overview(case, metric, &claims));
    }
    if case.blocks.count() > 0 {
        sentences.push(why(case, head));
        sentences.push(compared(case));
    }
    sentences.extend(also(case));
    sentences.extend(next(Some(head), warnings).filter(|_| !too_few(case)).or_else(|| more(case)));
    sentences
}

/// Of an experiment with one arm: what its ladder says, where its loads are one; and how far the arm is
/// from itself, which is what any other would have to be beyond.
fn alone(case: &Case<'_>, metric: &Metric, warnings: &[Warning], draws: u32) -> Vec<String> {
    let mut sentences = Vec::new();
    sentences.extend(ladder(case, draws));
    sentences.push(noise(case, metric));
    if case.blocks.count() > 0 {
        let limit = case.loads().next().and_then(|load| case.cell(case.baseline(), load));
        if let Some(limit) = limit.and_then(majority).filter(|_| case.loads().count() == 1) {
            sentences.push(format!("What limited {}: {}.", case.baseline(), claim(limit)));
        }
        let held = if too_few(case) { String::new() } else { format!(" {}", held(case)) };
        sentences.push(format!("{}.{held}", blocks_run(case, "run")));
    }
    sentences.extend(next(None, warnings));
    sentences
}

/// The smallest effect that can be seen where the same thing differs from itself like this: one within
/// half an interval of none has none in its own, and one within the A/A difference is noise.
fn smallest_seen(noise: &Comparison) -> Option<f64> {
    let ((low, high), ratio) = (noise.interval?, noise.ratio?);
    Some(((high / low).ln() / 2.0).max(ratio.ln().abs()).exp_m1())
}

/// How far the only arm is from itself, and what could be seen beside that.
fn noise(case: &Case<'_>, metric: &Metric) -> String {
    let (arm, noun, effect) = (case.baseline(), noun(metric), case.blocks.plan.effect);
    let noises = case.comparisons.iter().filter(|one| one.noise && one.primary);
    let mut seen: Vec<(f64, f64, &Comparison)> = noises
        .filter_map(|one| Some((smallest_seen(one)?, (one.ratio? - 1.0).abs(), one)))
        .collect();
    seen.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (Some(least), Some(most)) = (seen.first(), seen.last()) else {
        return format!(
            "Nothing can be said yet of how far {arm} differs from itself in {noun}: there are {}, and it \
             takes {PAIRS_MIN}.",
            count(case.blocks.count(), "block")
        );
    };
    let matters = if most.0 > effect {
        format!(
            "more than the {} that matters: it takes more blocks, longer trials or a quieter machine",
            bound(effect)
        )
    } else {
        format!("less than the {} that matters", bound(effect))
    };
    if seen.len() == 1 {
        return format!(
            "{arm} differs from itself by {} in {noun} ({}): the smallest effect that as many blocks can \
             see here is about {}, {matters}.",
            percent(least.1),
            measured(least.2),
            percent(least.0)
        );
    }
    let far = |pick: fn(f64, f64) -> f64| seen.iter().map(|it| it.1).reduce(pick).unwrap_or(0.0);
    format!(
        "{arm} differs from itself by {} to {} in {noun}, from load to load: the smallest effect that as \
         many blocks can see here is about {} (under {}) to {} (under {}). The latter is {matters}.",
        percent(far(f64::min)),
        percent(far(f64::max)),
        percent(least.0),
        least.2.load,
        percent(most.0),
        most.2.load
    )
}

/// The comparison that the first sentence is about: the only one, or the largest gain, else the largest
/// loss, else the first.
fn head<'a>(claims: &[&'a Comparison]) -> Option<&'a Comparison> {
    let size = |one: &Comparison| one.ratio.map_or(0.0, |ratio| ratio.ln().abs());
    let largest = |outcome| {
        let of_outcome = claims.iter().filter(move |one| one.outcome == outcome);
        of_outcome.max_by(|a, b| size(a).total_cmp(&size(b))).copied()
    };
    largest(Outcome::Faster)
        .or_else(|| largest(Outcome::Slower))
        .or_else(|| claims.first().copied())
}

fn answer(case: &Case<'_>, metric: &Metric, claims: &[&Comparison], head: &Comparison) -> String {
    let plan = case.blocks.plan;
    if claims.iter().all(|one| one.pairs.is_empty()) {
        return "Nothing can be said yet: no block has both an arm and the baseline.".to_owned();
    }
    let settled = matches!(head.outcome, Outcome::Faster | Outcome::Slower);
    if claims.len() > 1 && too_few(case) {
        return format!(
            "Nothing can be said yet: there {} {}, and it takes at least {PAIRS_MIN}.",
            if case.blocks.count() == 1 { "is" } else { "are" },
            count(case.blocks.count(), "block")
        );
    }
    if claims.len() > 1 && !settled {
        let all = |outcome| claims.iter().all(|one| one.outcome == outcome);
        let arms = arms_text(case);
        return if all(Outcome::Equivalent) {
            format!(
                "{arms} {} {} are equivalent in {}: no difference is as large as the {} that matters.",
                if case.arms().count() > 1 { "and the baseline" } else { "and" },
                plan.baseline,
                noun(metric),
                bound(plan.effect)
            )
        } else {
            format!("Of no arm can be said that it differs from {}.", plan.baseline)
        };
    }
    match (settled, head.ratio) {
        (true, Some(ratio)) => {
            let least = if head.bound.is_some() { " That is a lower bound." } else { "" };
            let best = if case.arms().count() > 1 && head.outcome == Outcome::Faster {
                format!(
                    " It is the best of {} arms; arms other than the baseline are not tested \
                     against each other.",
                    case.arms().count()
                )
            } else {
                String::new()
            };
            format!(
                "{} {} {}{} ({}; {}).{least}{best}",
                head.arm,
                difference(metric, ratio),
                head.baseline,
                case.under(&head.load),
                measured(head),
                sureness(head.p_adjusted.unwrap_or(1.0))
            )
        }
        _ => head.text.clone(),
    }
}

fn arms_text(case: &Case<'_>) -> String {
    let names: Vec<&str> = case.arms().map(|arm| arm.name.as_str()).collect();
    some(&names, NAMED_MAX)
}

/// `2.4 % to 3.9 %, 12 blocks`.
fn measured(comparison: &Comparison) -> String {
    let blocks = count(comparison.pairs.len(), "block");
    comparison
        .interval
        .map_or_else(|| blocks.clone(), |interval| format!("{}, {blocks}", range(interval)))
}

/// All claims by outcome, in one sentence.
fn overview(case: &Case<'_>, metric: &Metric, claims: &[&Comparison]) -> String {
    let (arms, loads) = (case.arms().count(), case.blocks.plan.loads.len());
    let label = |one: &Comparison| match (arms > 1, loads > 1) {
        (true, true) => format!("{} under {}", one.arm, one.load),
        (false, true) => format!("under {}", one.load),
        _ => one.arm.clone(),
    };
    let group = |outcome: Outcome, word: &str, sized: bool| {
        let mut members: Vec<&&Comparison> =
            claims.iter().filter(|one| one.outcome == outcome).collect();
        let size = |one: &Comparison| one.ratio.map_or(0.0, |ratio| ratio.ln().abs());
        members.sort_by(|a, b| size(b).total_cmp(&size(a)));
        let texts: Vec<String> = members
            .iter()
            .map(|one| match one.ratio.filter(|_| sized) {
                Some(ratio) => format!("{} ({})", label(one), percent((ratio - 1.0).abs())),
                None => label(one),
            })
            .collect();
        (!texts.is_empty()).then(|| format!("{word}: {}", some(&texts, NAMED_MAX)))
    };
    let groups: Vec<String> = [
        group(Outcome::Faster, Outcome::Faster.of(&metric.unit), true),
        group(Outcome::Slower, Outcome::Slower.of(&metric.unit), true),
        group(Outcome::Equivalent, "equivalent", false),
        group(Outcome::Inconclusive, "nothing can be said yet", false),
    ]
    .into_iter()
    .flatten()
    .collect();
    format!("Against {} in {}: {}.", case.baseline(), noun(metric), groups.join("; "))
}

/// What was changed, and what limited both.
fn why(case: &Case<'_>, head: &Comparison) -> String {
    let mut parts = Vec::new();
    let arm = case.blocks.plan.arm(&head.arm);
    let change = |arm: &Arm, key: String| match arm.changes.get(&key) {
        Some(value) => format!("{key} = {}", shortened(value)),
        None => format!("{key} as the file has it"),
    };
    let changes = arm.map_or_else(Vec::new, |arm| {
        differing(case.blocks.plan, arm).into_iter().map(|key| change(arm, key)).collect()
    });
    if !changes.is_empty() {
        let more = match changes.len().saturating_sub(KEYS_MAX) {
            0 => String::new(),
            more => format!("; and {more} more"),
        };
        let shown = changes[..changes.len().min(KEYS_MAX)].join("; ");
        parts.push(format!("What {} changes: {shown}{more}.", head.arm));
    }
    let limit = |arm: &str| case.cell(arm, &head.load).and_then(majority);
    parts.push(match (limit(&head.arm), limit(&head.baseline)) {
        (Some(arm), Some(baseline)) if arm == baseline => {
            format!("What limited both: {}.", claim(arm))
        }
        (Some(arm), Some(baseline)) => format!(
            "What limited {}: {}; {}: {}.",
            head.arm,
            claim(arm),
            head.baseline,
            claim(baseline)
        ),
        _ => "What limited them is not known.".to_owned(),
    });
    parts.extend(calls(case, head));
    parts.join(" ")
}

/// The counted calls, from whichever trials counted them.
fn calls(case: &Case<'_>, head: &Comparison) -> Option<String> {
    let of = |arm: &str| {
        let trials = case.blocks.all.iter();
        let of_arm = trials.filter(|trial| {
            trial.place.arm == arm && trial.place.load == head.load && trial.failed.is_none()
        });
        let counted = of_arm.filter_map(|trial| trial.metrics.get(CALLS).copied());
        median(&counted.collect::<Vec<f64>>())
    };
    let what = match case.blocks.plan.calls.as_deref()? {
        "allocations" => "allocations".to_owned(),
        "syscalls" => "system calls".to_owned(),
        function => format!("calls of {function}"),
    };
    let (arm, baseline) = (of(&head.arm)?, of(&head.baseline)?);
    Some(format!(
        "Per response there were {arm:.2} {what} in {} and {baseline:.2} in {}.",
        head.arm, head.baseline
    ))
}

fn shortened(value: &str) -> String {
    if value.chars().count() <= VALUE_CHARS_MAX {
        return value.to_owned();
    }
    value.chars().take(VALUE_CHARS_MAX).chain("..".chars()).collect()
}

/// How many blocks of what were compared, or run.
fn blocks_run(case: &Case<'_>, done: &str) -> String {
    let plan = case.blocks.plan;
    let (blocks, trials) = (case.blocks.count(), plan.arms.len() * plan.loads.len());
    let mut text = format!(
        "{} of {} of {} s {} {done}, every arm once in each block",
        count(blocks, "block"),
        count(trials, "trial"),
        plan.duration_s,
        if blocks == 1 { "was" } else { "were" }
    );
    if plan.loads.len() > 1 {
        let loads: Vec<&str> = case.loads().collect();
        text.push_str(&format!(" under each load ({})", some(&loads, LOADS_NAMED_MAX)));
    }
    text
}

/// Whether there are fewer blocks than anything can be said from.
fn too_few(case: &Case<'_>) -> bool {
    case.blocks.count() < PAIRS_MIN
}

/// What a range of this experiment is.
fn held(case: &Case<'_>) -> String {
    let held = bound(case.blocks.plan.confidence);
    format!("A range holds the true difference in {held} of such experiments.")
}

/// What was compared, on what, and how large the noise is.
fn compared(case: &Case<'_>) -> String {
    let plan = case.blocks.plan;
    let mut text = blocks_run(case, "compared");
    let noises = case.comparisons.iter().filter(|one| one.noise && one.primary);
    // Of fewer blocks a figure is one of chance.
    let (known, few): (Vec<_>, Vec<_>) = noises.partition(|one| one.pairs.len() >= PAIRS_MIN);
    let noises: Vec<String> = known
        .into_iter()
        .filter_map(|one| {
            let apart = percent((one.ratio? - 1.0).abs());
            let measured = one.interval.map(|interval| format!(" ({})", range(interval)));
            Some(format!("{apart}{}{}", measured.unwrap_or_default(), case.under(&one.load)))
        })
        .collect();
    if noises.is_empty() && few.is_empty() {
        text.push('.');
    } else if noises.is_empty() {
        text.push_str(&format!(
            "; how far {} is from itself is not known yet, it takes at least {PAIRS_MIN} blocks.",
            plan.baseline
        ));
    } else {
        let noises = some(&noises, NAMED_MAX);
        text.push_str(&format!("; {} differs from itself by {noises}.", plan.baseline));
    }
    if too_few(case) { text } else { format!("{text} {}", held(case)) }
}

/// What the metrics say that do not decide.
fn also(case: &Case<'_>) -> Option<String> {
    let plan = case.blocks.plan;
    let is_clear = |one: &&Comparison| {
        !one.primary && !one.noise && matches!(one.outcome, Outcome::Faster | Outcome::Slower)
    };
    let texts: Vec<String> = case
        .comparisons
        .iter()
        .filter(is_clear)
        .filter_map(|one| {
            let metric = plan.metrics.iter().find(|metric| metric.name == one.metric)?;
            let said = difference(metric, one.ratio?);
            let under = case.under(&one.load);
            Some(format!("{} {said} {}{under} ({})", one.arm, one.baseline, basis(one)))
        })
        .collect();
    (!texts.is_empty()).then(|| {
        let shown = texts[..texts.len().min(NAMED_MAX)].join("; ");
        format!("Seen too, but not what decides: {shown}.")
    })
}

/// What would be next after a warning.
const AFTER: &[(&str, &str)] = &[
    ("client_bound", "Next: more threads or another machine for the load generator; then again."),
    ("two_factors", "Next: an arm for each of the things that were changed at once."),
    (
        "different_bottlenecks",
        "Next: give the faster arm room (a wider link, more connections, more generator threads), so \
         that both meet the same limit.",
    ),
    ("probe_overhead", "Next: the same without probes in judged trials."),
    ("noise_floor", "Next: find what makes the baseline differ from itself, or run more blocks."),
];

/// What would be next where there are too few blocks for anything else.
fn more(case: &Case<'_>) -> Option<String> {
    too_few(case).then(|| format!("Next: more blocks, {PAIRS_MIN} at least."))
}

/// What would be next where trials failed and nothing could be said.
const AFTER_FAILED: &str = "Next: see to why trials failed. What they said is below, and whole in the records of these trials.";

fn next(head: Option<&Comparison>, warnings: &[Warning]) -> Option<String> {
    let after = AFTER.iter().find(|(code, _)| warnings.iter().any(|one| one.code == *code));
    if let Some((_, text)) = after {
        return Some((*text).to_owned());
    }
    let has_failed = warnings.iter().any(|one| one.code == "failed");
    if has_failed && head.is_none_or(|head| head.outcome == Outcome::Inconclusive) {
        return Some(AFTER_FAILED.to_owned());
    }
    let text = match head?.outcome {
        Outcome::Faster | Outcome::Slower => {
            "Next: other loads. What holds under one does not have to under another."
        }
        Outcome::Equivalent => {
            "Next: what limits both. Here nothing is to be gained by this change."
        }
        Outcome::Inconclusive => "Next: more blocks, longer trials, or a quieter machine.",
    };
    Some(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_next_is_about_warnings_that_exist() {
        for (code, text) in AFTER {
            assert!(
                super::super::warnings::WARNINGS.iter().any(|kind| kind.code == *code),
                "{code}"
            );
            assert!(text.starts_with("Next: "), "{code}");
        }
    }

    #[test]
    fn long_values_are_cut_between_characters() {
        assert_eq!(shortened("abc"), "abc");
        assert_eq!(shortened(&"ä".repeat(100)).chars().count(), VALUE_CHARS_MAX + 2);
    }
}
