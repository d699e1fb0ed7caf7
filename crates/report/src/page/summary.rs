//! First screen: the comparison, its outcome, size, certainty and reason. The sections below repeat
//! everything in full.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use diagnose::verdicts;
use experiment::format;
use experiment::trial_counts::LeftOutCounts;
use record::experiment::{Arm, Comparison, ComparisonOutcome, Experiment, counted_blocks};

use super::figure::{first_sentence, folded_paragraph};
use crate::charts::{change, has_few_blocks, has_several_loads, outcome, small_forest};
use crate::svg::escaped;
use stats::signed_rank::PAIRS_MIN;

/// Maximum number of comparisons on the first screen; the forest plot below has the others.
const SHOWN_MAX: usize = 12;
/// Maximum number of listed arms, and of listed changes of an arm.
const LISTED_MAX: usize = 12;
/// Maximum number of warnings: nobody reads more, and the record has all of them.
const WARNINGS_MAX: usize = 40;

/// Returns the first screen.
#[must_use]
pub(super) fn summary(experiment: &Experiment) -> String {
    let mut out = String::from("<section id=\"result\" aria-label=\"Result\">");
    let _ = write!(out, "<h1>{}</h1>", escaped(&experiment.plan.title));
    let none = "No result yet: no block is complete.".to_owned();
    let first = experiment.summary.first().unwrap_or(&none);
    write_early_end(&mut out, experiment, first);
    let (result, rest) = first_sentence(first).unwrap_or((first, ""));
    let _ = write!(out, "<p class=\"result\">{}</p>", escaped(result));
    if !rest.is_empty() {
        let _ = write!(out, "<p class=\"more\">{}</p>", escaped(rest));
    }
    if !experiment.warnings.is_empty() {
        let _ = write!(
            out,
            "<p><a class=\"flag\" href=\"#warnings\">{}: check them before you use the result</a></p>",
            format::count(experiment.warnings.len(), "warning"),
        );
    }
    for sentence in experiment.summary.iter().skip(1) {
        let _ = write!(out, "<div class=\"more\">{}</div>", folded_paragraph(sentence));
    }
    write_comparisons(&mut out, experiment);
    out.push_str("<div class=\"three\">");
    write_arms(&mut out, experiment);
    write_certainty(&mut out, experiment);
    write_verdicts(&mut out, experiment);
    out.push_str("</div>");
    write_warnings(&mut out, experiment);
    out.push_str("</section>");
    out
}

/// Writes the reason why the experiment ended early, unless the result repeats it.
fn write_early_end(out: &mut String, experiment: &Experiment, result: &str) {
    if experiment.partial && !result.contains(experiment.stopped.text.trim_end_matches('.')) {
        let _ = write!(
            out,
            "<p class=\"warning\"><strong>Not finished.</strong> {}: the report covers the trials until then.</p>",
            escaped(&format::capitalized(&experiment.stopped.text))
        );
    }
}

/// Returns the comparisons of the primary metric, without those of the baseline with itself.
fn primary_comparisons(experiment: &Experiment) -> Vec<&Comparison> {
    experiment.comparisons.iter().filter(|one| one.primary && !one.noise).collect()
}

fn write_comparisons(out: &mut String, experiment: &Experiment) {
    let all = primary_comparisons(experiment);
    if let (Some(metric), false) = (experiment.plan.primary(), all.is_empty()) {
        let _ = write!(
            out,
            "<p class=\"metric\">Primary metric: <b>{}</b>, {}. Compared with <b>{}</b>:</p>",
            escaped(&metric.title),
            format::better_direction(metric),
            escaped(&experiment.plan.baseline),
        );
    }
    out.push_str("<ul class=\"cards\">");
    for (index, one) in all.iter().take(SHOWN_MAX).enumerate() {
        write_card(out, experiment, one, &all, index);
    }
    out.push_str("</ul>");
    if all.len() > SHOWN_MAX {
        let rest = format::count(all.len() - SHOWN_MAX, "more comparison");
        let _ = write!(out, "<p class=\"note\"><a href=\"#forest\">{rest} below</a></p>");
    }
}

fn write_card(
    out: &mut String,
    experiment: &Experiment,
    comparison: &Comparison,
    all: &[&Comparison],
    index: usize,
) {
    let load = match has_several_loads(&experiment.plan) {
        true => format!(" <span class=\"load\">under {}</span>", escaped(&comparison.load)),
        false => String::new(),
    };
    let ratio = change(experiment, comparison);
    let interval = comparison.interval.map_or_else(
        || match comparison.pairs.len() < PAIRS_MIN {
            true => format!("too few blocks for an interval (min {PAIRS_MIN})"),
            false => "no interval".to_owned(),
        },
        |ends| {
            format!(
                "{} interval {}",
                format::bound_percent(experiment.plan.confidence),
                format::ratio_interval(ends)
            )
        },
    );
    let better = comparison.better_fraction.filter(|_| !has_few_blocks(comparison));
    let better = better.map(|fraction| format!("; P(better) {}", format::better_fraction(fraction)));
    let interval = format!("{interval}{}", better.unwrap_or_default());
    let svg = small_forest(experiment, comparison, all.iter().copied());
    let _ = write!(
        out,
        "<li><div class=\"words\"><p><b>{}</b>{load} {}</p><p class=\"ratio\">{}</p><p \
         class=\"interval\">{}</p></div>{}",
        escaped(&comparison.arm),
        badge(comparison.outcome, outcome(experiment, comparison)),
        escaped(&ratio),
        escaped(&interval),
        svg.markup(&format!("card-{index}")),
    );
    if let Some(bound) = &comparison.bound {
        let _ = write!(out, "<p class=\"note\">Only a bound: {}</p>", escaped(bound));
    }
    out.push_str("</li>");
}

/// Returns the word of an outcome, with a symbol of its own, so that colour is not the only sign.
fn badge(outcome: ComparisonOutcome, word: &str) -> String {
    let (sign, class) = match outcome {
        ComparisonOutcome::Faster => ("▲", "good"),
        ComparisonOutcome::Slower => ("▼", "bad"),
        ComparisonOutcome::Equivalent => ("=", "same"),
        ComparisonOutcome::Inconclusive => ("?", "open"),
    };
    format!("<span class=\"badge {class}\"><span aria-hidden=\"true\">{sign}</span> {word}</span>")
}

/// Returns the listed arms. The baseline's repetition is not listed.
fn listed_arms(experiment: &Experiment) -> impl Iterator<Item = &Arm> {
    experiment.plan.arms.iter().filter(|arm| arm.repeats.is_none()).take(LISTED_MAX)
}

fn write_omitted_arms(out: &mut String, experiment: &Experiment) {
    let all = experiment.plan.arms.iter().filter(|arm| arm.repeats.is_none()).count();
    if all > LISTED_MAX {
        let rest = format::count(all - LISTED_MAX, "more arm");
        let _ = write!(out, "<p class=\"muted\">{rest}</p>");
    }
}

fn write_arms(out: &mut String, experiment: &Experiment) {
    out.push_str("<div><h2>Arms</h2><dl>");
    for arm in listed_arms(experiment) {
        let baseline = arm.name == experiment.plan.baseline;
        let role = if baseline { " <span class=\"load\">baseline</span>" } else { "" };
        let _ = write!(out, "<dt>{}{role}</dt><dd>", escaped(&arm.name));
        if !arm.title.is_empty() && arm.title != arm.name {
            let _ = write!(out, "<p>{}</p>", escaped(&arm.title));
        }
        write_changes(out, &arm.changes, if baseline { "unchanged file" } else { "no change" });
        out.push_str("</dd>");
    }
    out.push_str("</dl>");
    write_omitted_arms(out, experiment);
    if has_several_loads(&experiment.plan) {
        let named = experiment.plan.loads.iter().take(LISTED_MAX).map(|load| load.name.clone());
        let named: Vec<String> = named.collect();
        let rest = experiment.plan.loads.len() - named.len();
        let rest = if rest > 0 { format!(", {rest} more") } else { String::new() };
        let _ = write!(out, "<p>Under the loads {}{rest}.</p>", escaped(&named.join(", ")));
    }
    out.push_str("</div>");
}

fn write_changes(out: &mut String, changes: &BTreeMap<String, String>, none: &str) {
    if changes.is_empty() {
        let _ = write!(out, "<p class=\"muted\">{none}</p>");
    }
    for (key, value) in changes.iter().take(LISTED_MAX) {
        let _ = write!(
            out,
            "<p class=\"change\"><code>{}</code> = <code>{}</code></p>",
            escaped(key),
            escaped(value)
        );
    }
    if changes.len() > LISTED_MAX {
        let rest = format::count(changes.len() - LISTED_MAX, "more change");
        let _ = write!(out, "<p class=\"muted\">{rest}</p>");
    }
}

fn write_certainty(out: &mut String, experiment: &Experiment) {
    let plan = &experiment.plan;
    let blocks = counted_blocks(&experiment.trials);
    let left_out = LeftOutCounts::count(&experiment.trials);
    out.push_str("<div><h2>Certainty</h2><ul>");
    let _ = write!(
        out,
        "<li>{} of {} of {} each; planned: {}. Ended: {}.</li>",
        format::count(blocks, "block"),
        format::count(plan.arms.len() * plan.loads.len(), "trial"),
        format::duration_text(plan.duration_s),
        format::count_range((plan.blocks_min, plan.blocks_max), "block"),
        escaped(experiment.stopped.text.trim_end_matches('.')),
    );
    write_noise(out, experiment);
    let _ =
        write!(out, "<li>Effects below {} do not matter (plan).</li>", format::bound_percent(plan.effect));
    if left_out.total() > 0 {
        let _ = write!(
            out,
            "<li><a href=\"#trials\">{left_out}</a>, by rules that are independent of the results.</li>",
        );
    }
    out.push_str("</ul></div>");
}

/// Writes the difference of the baseline from itself: the worst of the loads.
fn write_noise(out: &mut String, experiment: &Experiment) {
    let own = experiment.comparisons.iter().filter(|one| one.noise && one.primary);
    let (own, too_few): (Vec<_>, Vec<_>) = own.partition(|one| one.pairs.len() >= PAIRS_MIN);
    let log_distance = |one: &Comparison| one.ratio.map_or(0.0, |ratio| ratio.ln().abs());
    let worst = own.into_iter().max_by(|a, b| log_distance(a).total_cmp(&log_distance(b)));
    let Some((worst, ratio)) = worst.and_then(|one| Some((one, one.ratio?))) else {
        let why = match too_few.is_empty() {
            true => String::new(),
            false => format!(" yet (min {PAIRS_MIN} blocks)"),
        };
        let _ =
            write!(out, "<li>Noise: the difference of the baseline from itself (A/A) is unknown{why}.</li>");
        return;
    };
    let interval = worst.interval.map(|ends| format!(" ({})", format::ratio_interval(ends)));
    let load = if has_several_loads(&experiment.plan) {
        format!(", worst under {}", escaped(&worst.load))
    } else {
        String::new()
    };
    let _ = write!(
        out,
        "<li>Noise: {} against itself (A/A): {}{}{load}.</li>",
        escaped(&worst.baseline),
        format::signed_change(ratio),
        interval.unwrap_or_default(),
    );
}

/// Writes the most frequent verdict of an arm's trials, and the loads with that verdict.
fn write_verdicts(out: &mut String, experiment: &Experiment) {
    out.push_str("<div><h2>Bottleneck</h2><dl>");
    for arm in listed_arms(experiment) {
        let mut by_code: BTreeMap<&str, (u32, u32, Vec<&str>)> = BTreeMap::new();
        for cell in experiment.cells.iter().filter(|cell| cell.arm == arm.name) {
            let most_frequent = cell.verdicts.iter().max_by_key(|(_, count)| **count);
            let Some((code, count)) = most_frequent else { continue };
            let entry = by_code.entry(code).or_default();
            entry.0 += count;
            entry.1 += cell.trials;
            entry.2.push(&cell.load);
        }
        let _ = write!(out, "<dt>{}</dt><dd>", escaped(&arm.name));
        if by_code.is_empty() {
            out.push_str("<p class=\"muted\">no verdict</p>");
        }
        for (code, (count, trials, loads)) in &by_code {
            write_verdict(out, experiment, code, (*count, *trials), loads, by_code.len() > 1);
        }
        out.push_str("</dd>");
    }
    out.push_str("</dl>");
    write_omitted_arms(out, experiment);
    out.push_str("</div>");
}

fn write_verdict(
    out: &mut String,
    experiment: &Experiment,
    code: &str,
    (count, trials): (u32, u32),
    loads: &[&str],
    differ: bool,
) {
    let claim = verdicts::find_rule(code).map_or_else(
        || match code {
            verdicts::NONE => "no limit reached",
            verdicts::UNKNOWN => "the limit could not be proven",
            _ => "",
        },
        |row| row.claim,
    );
    let under = if differ && has_several_loads(&experiment.plan) {
        format!(" under {}", escaped(&loads.join(", ")))
    } else {
        String::new()
    };
    let colon = if claim.is_empty() { "" } else { ": " };
    let _ = write!(
        out,
        "<p><b>{}</b>{under} in {count} of {}{colon}{}</p>",
        escaped(&format::code_words(code)),
        format::count(trials as usize, "trial"),
        escaped(claim),
    );
}

fn write_warnings(out: &mut String, experiment: &Experiment) {
    if experiment.warnings.is_empty() {
        out.push_str("<p class=\"calm\" id=\"warnings\">No warnings.</p>");
        return;
    }
    out.push_str("<div class=\"warnings\" id=\"warnings\" role=\"note\"><h2>Warnings</h2><ul>");
    for warning in experiment.warnings.iter().take(WARNINGS_MAX) {
        let arm = warning.arm.as_ref().map(|arm| format!(" ({})", escaped(arm)));
        let code = escaped(&format::code_words(&warning.code));
        let arm = arm.unwrap_or_default();
        let text = match first_sentence(&warning.text) {
            Some((first, rest)) => format!(
                "<details class=\"fold\"><summary><b>{code}</b>{arm}: {}</summary><p>{}</p></details>",
                escaped(first),
                escaped(rest)
            ),
            None => format!("<b>{code}</b>{arm}: {}", escaped(&warning.text)),
        };
        let _ = write!(out, "<li>{text}</li>");
    }
    out.push_str("</ul>");
    if experiment.warnings.len() > WARNINGS_MAX {
        let rest = experiment.warnings.len() - WARNINGS_MAX;
        let _ = write!(out, "<p>{rest} more are in the record.</p>");
    }
    out.push_str("</div>");
}
