//! First screen: the comparison, its outcome, size, certainty and reason. The sections below repeat
//! everything in full.

use std::collections::BTreeMap;

use diagnose::verdicts;
use experiment::format;
use experiment::trial_counts::LeftOutCounts;
use maud::{Markup, html};
use record::experiment::{Arm, Comparison, ComparisonOutcome, Experiment, Warning, counted_blocks};
use record::run::Answer;

use super::figure::first_sentence;
use crate::charts::small_forest;
use crate::data::comparisons::{change, change_with_interval, has_few_blocks, outcome};
use crate::data::trials::has_several_loads;
use crate::text::experiment::{answer, other_findings};
use stats::sequential::BLOCKS_MIN;

/// Maximum number of comparisons on the first screen; the forest plot below has the others.
const SHOWN_MAX: usize = 12;
/// Maximum number of listed arms, and of listed changes of an arm.
const LISTED_MAX: usize = 12;
/// Maximum number of warnings: nobody reads more, and the record has all of them.
const WARNINGS_MAX: usize = 40;

/// Returns the first screen: the answer, and the comparisons with their drawings.
pub(super) fn summary(experiment: &Experiment) -> Markup {
    let answer = answer(experiment);
    let warnings = experiment.warnings.len();
    html! {
        section #result aria-label="Result" {
            h1 { (experiment.plan.title) }
            (early_end(experiment, &answer.what))
            (answer_card(&answer))
            @if warnings > 0 {
                p {
                    a.flag href="#warnings" {
                        (format::count(warnings, "warning")) ": check them before you use the result"
                    }
                }
            }
            (comparisons(experiment))
        }
    }
}

/// Returns what is below the first drawing: the other findings, folded, the arms, the certainty, the limits and the
/// warnings.
pub(super) fn context(experiment: &Experiment) -> Markup {
    html! {
        section #context aria-label="Findings, arms and certainty" {
            (other_words(experiment))
            div.three {
                div { h2 { "Arms" } (arms(experiment)) }
                div { h2 { "Certainty" } (certainty(experiment)) }
                div { h2 { "Bottleneck" } (bottlenecks(experiment)) }
            }
            (warning_list(&experiment.warnings))
        }
    }
}

/// Returns whether the first screen has comparisons, each with a drawing.
pub(super) fn has_comparisons(experiment: &Experiment) -> bool {
    experiment.comparisons.iter().any(|comparison| comparison.primary && !comparison.noise)
}

/// Returns the three sentences. Of a long one the first part is visible, and the rest on demand.
fn answer_card(answer: &Answer) -> Markup {
    let (what, more) = first_sentence(&answer.what).unwrap_or((&answer.what, ""));
    html! {
        div.answer {
            p.result { (what) }
            (answer_line("why", "", &answer.why))
            (answer_line("next", "Next: ", &answer.next))
            @if !more.is_empty() { p.more { (more) } }
        }
    }
}

fn answer_line(class: &str, label: &str, text: &str) -> Markup {
    html! {
        @if let Some((first, rest)) = first_sentence(text) {
            details.fold.(class) { summary { @if !label.is_empty() { b { (label) } } (first) } p { (rest) } }
        } @else if !text.is_empty() {
            p.(class) { @if !label.is_empty() { b { (label) } } (text) }
        }
    }
}

/// Returns the findings that are not in the answer, folded: the drawings say most of them.
fn other_words(experiment: &Experiment) -> Markup {
    let answer = answer(experiment);
    let others: Vec<&String> = other_findings(experiment, &answer).collect();
    html! {
        @if !others.is_empty() {
            details.fold.words-of-result {
                summary { "The result in words" }
                @for sentence in others { p.more { (sentence) } }
            }
        }
    }
}

/// Returns the reason why the experiment ended early, unless the result repeats it.
fn early_end(experiment: &Experiment, result: &str) -> Markup {
    let reason = &experiment.stopped.text;
    html! {
        @if experiment.partial && !result.contains(reason.trim_end_matches('.')) {
            p.warning {
                strong { "Not finished." } " " (format::capitalized(reason))
                ": the report covers the trials until then."
            }
        }
    }
}

/// Returns the comparisons of the primary metric, without those of the baseline with itself.
fn comparisons(experiment: &Experiment) -> Markup {
    let own = experiment.comparisons.iter().filter(|comparison| comparison.primary && !comparison.noise);
    let all: Vec<&Comparison> = own.collect();
    html! {
        @if let Some(metric) = experiment.plan.primary().filter(|_| !all.is_empty()) {
            p.metric {
                "Primary metric: " b { (metric.title) } ", " (format::better_direction(metric))
                ". Compared with " b { (experiment.plan.baseline) } ":"
            }
        }
        ul.cards {
            @for (index, comparison) in all.iter().take(SHOWN_MAX).enumerate() {
                li { (card(experiment, comparison, &all, index)) }
            }
        }
        @if all.len() > SHOWN_MAX {
            p.note {
                a href="#forest" { (format::count(all.len() - SHOWN_MAX, "more comparison")) " below" }
            }
        }
    }
}

fn card(experiment: &Experiment, comparison: &Comparison, all: &[&Comparison], index: usize) -> Markup {
    let interval = match comparison.interval {
        Some(ends) => {
            let confidence = format::bound_percent(experiment.plan.confidence);
            format!("{confidence} interval {}", format::ratio_interval(ends))
        }
        None if comparison.pairs.len() < BLOCKS_MIN => {
            format!("too few blocks for an interval (min {BLOCKS_MIN})")
        }
        None => "no interval".to_owned(),
    };
    let better = comparison.better_fraction.filter(|_| !has_few_blocks(comparison));
    let svg = small_forest(experiment, comparison, all);
    html! {
        div.words {
            p {
                b { (comparison.arm) }
                (arm_title(experiment, &comparison.arm))
                @if has_several_loads(&experiment.plan) {
                    " " span.load { "under " (comparison.load) }
                }
                " " (badge(comparison.outcome, outcome(experiment, comparison)))
            }
            p.ratio { (change(experiment, comparison)) }
            p.interval {
                (interval)
                @if let Some(fraction) = better { "; P(better) " (format::better_fraction(fraction)) }
            }
        }
        (svg.markup(&format!("card-{index}")))
        @if let Some(bound) = &comparison.bound { p.note { "Only a bound: " (bound) } }
    }
}

/// Returns the title of an arm, unless it is its name.
fn arm_title(experiment: &Experiment, name: &str) -> Markup {
    let title = experiment.plan.arm(name).map(|arm| arm.title.as_str()).filter(|title| *title != name);
    html! { @if let Some(title) = title.filter(|title| !title.is_empty()) { ": " (title) } }
}

/// Returns the word of an outcome, with a symbol of its own, so that colour is not the only sign.
fn badge(outcome: ComparisonOutcome, word: &str) -> Markup {
    let (sign, class) = match outcome {
        ComparisonOutcome::Faster => ("▲", "good"),
        ComparisonOutcome::Slower => ("▼", "bad"),
        ComparisonOutcome::Equivalent => ("=", "same"),
        ComparisonOutcome::Inconclusive => ("?", "open"),
    };
    html! { span.badge.(class) { span aria-hidden="true" { (sign) } " " (word) } }
}

/// Returns a list of the arms, without the baseline's repetition.
fn arm_list(experiment: &Experiment, describe: impl Fn(&Arm) -> Markup) -> Markup {
    let arms: Vec<&Arm> = experiment.plan.arms.iter().filter(|arm| arm.repeats.is_none()).collect();
    html! {
        dl {
            @for arm in arms.iter().take(LISTED_MAX) {
                dt {
                    (arm.name)
                    @if arm.name == experiment.plan.baseline { " " span.load { "baseline" } }
                }
                dd { (describe(arm)) }
            }
        }
        (more(arms.len(), "more arm"))
    }
}

/// Returns the number of things that are not listed.
fn more(count: usize, thing: &str) -> Markup {
    html! {
        @if count > LISTED_MAX { p.muted { (format::count(count - LISTED_MAX, thing)) } }
    }
}

fn arms(experiment: &Experiment) -> Markup {
    let loads: Vec<&str> = experiment.plan.loads.iter().map(|load| load.name.as_str()).collect();
    let listed = loads[..loads.len().min(LISTED_MAX)].join(", ");
    let describe = |arm: &Arm| {
        let is_baseline = arm.name == experiment.plan.baseline;
        html! {
            @if !arm.title.is_empty() && arm.title != arm.name { p { (arm.title) } }
            @if arm.changes.is_empty() {
                p.muted { (if is_baseline { "unchanged file" } else { "no change" }) }
            }
            @for (key, value) in arm.changes.iter().take(LISTED_MAX) {
                p.change { code { (key) } " = " code { (value) } }
            }
            (more(arm.changes.len(), "more change"))
        }
    };
    html! {
        (arm_list(experiment, describe))
        @if has_several_loads(&experiment.plan) {
            p {
                "Under the loads " (listed)
                @if loads.len() > LISTED_MAX { ", " (loads.len() - LISTED_MAX) " more" }
                "."
            }
        }
    }
}

fn certainty(experiment: &Experiment) -> Markup {
    let plan = &experiment.plan;
    let left_out = LeftOutCounts::count(&experiment.trials);
    html! {
        ul {
            li {
                (format::count(counted_blocks(&experiment.trials), "block")) " of "
                (format::count(plan.arms.len() * plan.loads.len(), "trial")) " of "
                (format::duration_text(plan.duration_s)) " each; planned: "
                (format::count_range((plan.blocks_min, plan.blocks_max), "block"))
                ". Ended: " (experiment.stopped.text.trim_end_matches('.')) "."
            }
            li { "Noise: " (noise(experiment)) }
            li { "Effects below " (format::bound_percent(plan.effect)) " do not matter (plan)." }
            @if left_out.total() > 0 {
                li {
                    a href="#trials" { (left_out.to_string()) }
                    ", by rules that are independent of the results."
                }
            }
        }
    }
}

/// Describes the difference of the baseline from itself: the worst of the loads.
fn noise(experiment: &Experiment) -> String {
    let own = experiment.comparisons.iter().filter(|comparison| comparison.noise && comparison.primary);
    let (own, too_few): (Vec<_>, Vec<_>) = own.partition(|comparison| comparison.pairs.len() >= BLOCKS_MIN);
    let log_distance = |comparison: &Comparison| comparison.ratio.map_or(0.0, |ratio| ratio.ln().abs());
    let worst = own.into_iter().max_by(|a, b| log_distance(a).total_cmp(&log_distance(b)));
    let Some(worst) = worst.filter(|comparison| comparison.ratio.is_some()) else {
        let why = if too_few.is_empty() { "" } else { &format!(" yet (min {BLOCKS_MIN} blocks)") };
        return format!("the difference of the baseline from itself (A/A) is unknown{why}.");
    };
    let load = has_several_loads(&experiment.plan).then(|| format!(", worst under {}", worst.load));
    let change = change_with_interval(experiment, worst);
    format!("{} against itself (A/A): {change}{}.", worst.baseline, load.unwrap_or_default())
}

/// Returns the most frequent verdict of each arm's trials, and the loads with that verdict.
fn bottlenecks(experiment: &Experiment) -> Markup {
    arm_list(experiment, |arm| {
        let mut by_code: BTreeMap<&str, (u32, u32, Vec<&str>)> = BTreeMap::new();
        for cell in experiment.cells.iter().filter(|cell| cell.arm == arm.name) {
            let most_frequent = cell.verdicts.iter().max_by_key(|(_, count)| **count);
            let Some((code, count)) = most_frequent else { continue };
            let entry = by_code.entry(code).or_default();
            entry.0 += count;
            entry.1 += cell.trials;
            entry.2.push(&cell.load);
        }
        let differ = by_code.len() > 1 && has_several_loads(&experiment.plan);
        html! {
            @if by_code.is_empty() { p.muted { "no verdict" } }
            @for (code, (count, trials, loads)) in &by_code {
                @let claim = claim(code);
                p {
                    b { (format::code_words(code)) }
                    @if differ { " under " (loads.join(", ")) }
                    " in " (count) " of " (format::count(*trials as usize, "trial"))
                    @if !claim.is_empty() { ": " (claim) }
                }
            }
        }
    })
}

/// Returns the claim of a verdict; empty if it is unknown.
fn claim(code: &str) -> &'static str {
    let otherwise = match code {
        verdicts::NONE => "no limit reached",
        verdicts::UNKNOWN => "the limit could not be proven",
        _ => "",
    };
    verdicts::find_rule(code).map_or(otherwise, |row| row.claim)
}

fn warning_list(warnings: &[Warning]) -> Markup {
    if warnings.is_empty() {
        return html! { p #warnings.calm { "No warnings." } };
    }
    html! {
        div #warnings.warnings role="note" {
            h2 { "Warnings" }
            ul {
                @for warning in warnings.iter().take(WARNINGS_MAX) {
                    li { (warning_text(warning)) }
                }
            }
            @if warnings.len() > WARNINGS_MAX {
                p { (warnings.len() - WARNINGS_MAX) " more are in the record." }
            }
        }
    }
}

fn warning_text(warning: &Warning) -> Markup {
    let arm = warning.arm.as_ref().map(|arm| format!(" ({arm})")).unwrap_or_default();
    let name = html! { b { (format::code_words(&warning.code)) } (arm) ": " };
    html! {
        @if let Some((first, rest)) = first_sentence(&warning.text) {
            details.fold { summary { (name) (first) } p { (rest) } }
        } @else {
            (name) (warning.text)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic::synthetic_experiment;

    #[test]
    fn the_first_drawing_comes_before_the_prose() {
        let (mut experiment, _) = synthetic_experiment();
        experiment.summary.push("Another finding.".to_owned());
        let (first, context) = (summary(&experiment).0, context(&experiment).0);
        assert!(first.contains("<svg") && !first.contains("words-of-result"));
        assert!(context.contains("words-of-result") && !context.contains("<svg"));
        let places = ["class=\"result\"", "why\"", "next\"", "<svg"].map(|part| first.find(part).unwrap());
        assert!(places.is_sorted(), "{first}");
    }
}
