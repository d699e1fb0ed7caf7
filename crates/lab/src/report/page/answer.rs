//! The first screen: what was compared, what came of it, by how much, how sure, and why.
//! Not for details: everything here has its place below, in full.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use record::experiment::{Arm, Comparison, Experiment, Outcome, blocks_counting};

use crate::diagnosis::verdicts;
use crate::report::charts::{change, is_of_few, outcome, several_loads, small_forest};
use crate::report::svg::escaped;
use crate::statistics::signed_rank::PAIRS_MIN;
use crate::tally::LeftOut;
use crate::words;

/// Comparisons on the first screen at most: the others are in the forest plot right below.
const SHOWN_MAX: usize = 12;
/// Changes of an arm, and arms, that are listed at most.
const LISTED_MAX: usize = 12;
/// Warnings at most: nobody reads more, and the record has them all.
const WARNINGS_MAX: usize = 40;

/// The first screen.
#[must_use]
pub(super) fn answer(experiment: &Experiment) -> String {
    let mut out = String::from("<section id=\"answer\" aria-label=\"The answer\">");
    let _ = write!(out, "<h1>{}</h1>", escaped(&experiment.plan.title));
    ended_early(&mut out, experiment);
    let none = "There is no answer yet: no block is complete.".to_owned();
    let first = experiment.summary.first().unwrap_or(&none);
    let _ = write!(out, "<p class=\"answer\">{}</p>", escaped(first));
    if !experiment.warnings.is_empty() {
        let _ = write!(
            out,
            "<p><a class=\"flag\" href=\"#warnings\">{} to read before it is believed</a></p>",
            words::count(experiment.warnings.len(), "warning"),
        );
    }
    for sentence in experiment.summary.iter().skip(1) {
        let _ = write!(out, "<p class=\"more\">{}</p>", escaped(sentence));
    }
    comparisons(&mut out, experiment);
    out.push_str("<div class=\"three\">");
    compared(&mut out, experiment);
    sure(&mut out, experiment);
    why(&mut out, experiment);
    out.push_str("</div>");
    warnings(&mut out, experiment);
    out.push_str("</section>");
    out
}

fn ended_early(out: &mut String, experiment: &Experiment) {
    if experiment.partial {
        let _ = write!(
            out,
            "<p class=\"warning\"><strong>Not finished.</strong> {}: what follows is what was measured \
             until then.</p>",
            escaped(&words::capital(&experiment.stopped.text))
        );
    }
}

/// The comparisons of the primary metric, without those of the baseline with itself.
fn primary(experiment: &Experiment) -> Vec<&Comparison> {
    experiment.comparisons.iter().filter(|one| one.primary && !one.noise).collect()
}

fn comparisons(out: &mut String, experiment: &Experiment) {
    let all = primary(experiment);
    if let (Some(metric), false) = (experiment.plan.primary(), all.is_empty()) {
        let _ = write!(
            out,
            "<p class=\"metric\">Decided by <b>{}</b>, {}. Against <b>{}</b>:</p>",
            escaped(&metric.title),
            words::better(metric),
            escaped(&experiment.plan.baseline),
        );
    }
    out.push_str("<ul class=\"cards\">");
    for (index, one) in all.iter().take(SHOWN_MAX).enumerate() {
        card(out, experiment, one, &all, index);
    }
    out.push_str("</ul>");
    if all.len() > SHOWN_MAX {
        let rest = words::count(all.len() - SHOWN_MAX, "more comparison");
        let _ = write!(out, "<p class=\"note\"><a href=\"#forest\">{rest} below</a></p>");
    }
}

fn card(
    out: &mut String,
    experiment: &Experiment,
    one: &Comparison,
    all: &[&Comparison],
    index: usize,
) {
    let load = match several_loads(&experiment.plan) {
        true => format!(" <span class=\"load\">under {}</span>", escaped(&one.load)),
        false => String::new(),
    };
    let ratio = change(experiment, one);
    let interval = one.interval.map_or_else(
        || match one.pairs.len() < PAIRS_MIN {
            true => format!("too few blocks for an interval: it takes at least {PAIRS_MIN}"),
            false => "no interval".to_owned(),
        },
        |ends| {
            format!(
                "{} interval {}",
                words::bound(experiment.plan.confidence),
                words::interval(ends)
            )
        },
    );
    let better = one.better_share.filter(|_| !is_of_few(one));
    let better = better.map(|share| format!("; P(better) {}", words::better_share(share)));
    let interval = format!("{interval}{}", better.unwrap_or_default());
    let svg = small_forest(experiment, one, all.iter().copied());
    let _ = write!(
        out,
        "<li><div class=\"words\"><p><b>{}</b>{load} {}</p><p class=\"ratio\">{}</p><p \
         class=\"interval\">{}</p></div>{}",
        escaped(&one.arm),
        badge(one.outcome, outcome(experiment, one)),
        escaped(&ratio),
        escaped(&interval),
        svg.markup(&format!("card-{index}")),
    );
    if let Some(bound) = &one.bound {
        let _ = write!(out, "<p class=\"note\">Only a bound: {}</p>", escaped(bound));
    }
    out.push_str("</li>");
}

/// The word of an outcome, with a sign of its own so that colour is not all.
fn badge(outcome: Outcome, word: &str) -> String {
    let (sign, class) = match outcome {
        Outcome::Faster => ("▲", "good"),
        Outcome::Slower => ("▼", "bad"),
        Outcome::Equivalent => ("=", "same"),
        Outcome::Inconclusive => ("?", "open"),
    };
    format!("<span class=\"badge {class}\"><span aria-hidden=\"true\">{sign}</span> {word}</span>")
}

/// The arms that are listed: the baseline's repetition says nothing of its own.
fn arms(experiment: &Experiment) -> impl Iterator<Item = &Arm> {
    experiment.plan.arms.iter().filter(|arm| arm.again.is_none()).take(LISTED_MAX)
}

fn more_arms(out: &mut String, experiment: &Experiment) {
    let all = experiment.plan.arms.iter().filter(|arm| arm.again.is_none()).count();
    if all > LISTED_MAX {
        let rest = words::count(all - LISTED_MAX, "more arm");
        let _ = write!(out, "<p class=\"muted\">{rest}</p>");
    }
}

fn compared(out: &mut String, experiment: &Experiment) {
    out.push_str("<div><h2>What was compared</h2><dl>");
    for arm in arms(experiment) {
        let baseline = arm.name == experiment.plan.baseline;
        let role = if baseline { " <span class=\"load\">baseline</span>" } else { "" };
        let _ = write!(out, "<dt>{}{role}</dt><dd>", escaped(&arm.name));
        if !arm.title.is_empty() && arm.title != arm.name {
            let _ = write!(out, "<p>{}</p>", escaped(&arm.title));
        }
        changes(out, &arm.changes, if baseline { "the file as it is" } else { "no change" });
        out.push_str("</dd>");
    }
    out.push_str("</dl>");
    more_arms(out, experiment);
    if several_loads(&experiment.plan) {
        let named = experiment.plan.loads.iter().take(LISTED_MAX).map(|load| load.name.clone());
        let named: Vec<String> = named.collect();
        let rest = experiment.plan.loads.len() - named.len();
        let rest = if rest > 0 { format!(", {rest} more") } else { String::new() };
        let _ = write!(out, "<p>Under the loads {}{rest}.</p>", escaped(&named.join(", ")));
    }
    out.push_str("</div>");
}

fn changes(out: &mut String, changes: &BTreeMap<String, String>, none: &str) {
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
        let rest = words::count(changes.len() - LISTED_MAX, "more change");
        let _ = write!(out, "<p class=\"muted\">{rest}</p>");
    }
}

fn sure(out: &mut String, experiment: &Experiment) {
    let plan = &experiment.plan;
    let blocks = blocks_counting(&experiment.trials);
    let left_out = LeftOut::of(&experiment.trials);
    out.push_str("<div><h2>How sure</h2><ul>");
    let _ = write!(
        out,
        "<li>{} of {} of {} each; planned were {}. Ended: {}.</li>",
        words::count(blocks, "block"),
        words::count(plan.arms.len() * plan.loads.len(), "trial"),
        words::length(plan.duration_s),
        words::counts((plan.blocks_min, plan.blocks_max), "block"),
        escaped(experiment.stopped.text.trim_end_matches('.')),
    );
    noise(out, experiment);
    let _ = write!(
        out,
        "<li>Effects below {} do not matter, by the plan.</li>",
        words::bound(plan.effect)
    );
    if left_out.total() > 0 {
        let _ = write!(
            out,
            "<li><a href=\"#trials\">{left_out}</a>; by rules that never look at results.</li>",
        );
    }
    out.push_str("</ul></div>");
}

/// How far the baseline is from itself: the worst of the loads.
fn noise(out: &mut String, experiment: &Experiment) {
    let own = experiment.comparisons.iter().filter(|one| one.noise && one.primary);
    let (own, few): (Vec<_>, Vec<_>) = own.partition(|one| one.pairs.len() >= PAIRS_MIN);
    let far = |one: &Comparison| one.ratio.map_or(0.0, |ratio| ratio.ln().abs());
    let worst = own.into_iter().max_by(|a, b| far(a).total_cmp(&far(b)));
    let Some((worst, ratio)) = worst.and_then(|one| Some((one, one.ratio?))) else {
        let why = match few.is_empty() {
            true => String::new(),
            false => format!(" yet: it takes at least {PAIRS_MIN} blocks"),
        };
        let _ = write!(
            out,
            "<li>Noise: how far the baseline is from itself (A/A) is not known{why}.</li>"
        );
        return;
    };
    let interval = worst.interval.map(|ends| format!(" ({})", words::interval(ends)));
    let load = if several_loads(&experiment.plan) {
        format!(", at its worst under {}", escaped(&worst.load))
    } else {
        String::new()
    };
    let _ = write!(
        out,
        "<li>Noise: {} against itself (A/A) gives {}{}{load}.</li>",
        escaped(&worst.baseline),
        words::signed(ratio),
        interval.unwrap_or_default(),
    );
}

/// The verdict of most of an arm's trials, and the loads under which it was that.
fn why(out: &mut String, experiment: &Experiment) {
    out.push_str("<div><h2>What limited it</h2><dl>");
    for arm in arms(experiment) {
        let mut by_code: BTreeMap<&str, (u32, u32, Vec<&str>)> = BTreeMap::new();
        for cell in experiment.cells.iter().filter(|cell| cell.arm == arm.name) {
            let most = cell.verdicts.iter().max_by_key(|(_, count)| **count);
            let Some((code, count)) = most else { continue };
            let entry = by_code.entry(code).or_default();
            entry.0 += count;
            entry.1 += cell.trials;
            entry.2.push(&cell.load);
        }
        let _ = write!(out, "<dt>{}</dt><dd>", escaped(&arm.name));
        if by_code.is_empty() {
            out.push_str("<p class=\"muted\">no verdict was given</p>");
        }
        for (code, (count, trials, loads)) in &by_code {
            verdict(out, experiment, code, (*count, *trials), loads, by_code.len() > 1);
        }
        out.push_str("</dd>");
    }
    out.push_str("</dl>");
    more_arms(out, experiment);
    out.push_str("</div>");
}

fn verdict(
    out: &mut String,
    experiment: &Experiment,
    code: &str,
    (count, trials): (u32, u32),
    loads: &[&str],
    differ: bool,
) {
    let claim = verdicts::verdict(code).map_or_else(
        || match code {
            verdicts::NONE => "nothing limited it: it could do more",
            verdicts::UNKNOWN => "what limits it could not be proven",
            _ => "",
        },
        |row| row.claim,
    );
    let under = if differ && several_loads(&experiment.plan) {
        format!(" under {}", escaped(&loads.join(", ")))
    } else {
        String::new()
    };
    let colon = if claim.is_empty() { "" } else { ": " };
    let _ = write!(
        out,
        "<p><b>{}</b>{under} in {count} of {}{colon}{}</p>",
        escaped(&words::code(code)),
        words::count(trials as usize, "trial"),
        escaped(claim),
    );
}

fn warnings(out: &mut String, experiment: &Experiment) {
    if experiment.warnings.is_empty() {
        out.push_str("<p class=\"calm\" id=\"warnings\">No warnings.</p>");
        return;
    }
    out.push_str(
        "<div class=\"warnings\" id=\"warnings\" role=\"note\"><h2>Read this before you believe \
         it</h2><ul>",
    );
    for warning in experiment.warnings.iter().take(WARNINGS_MAX) {
        let arm = warning.arm.as_ref().map(|arm| format!(" ({})", escaped(arm)));
        let _ = write!(
            out,
            "<li><b>{}</b>{}: {}</li>",
            escaped(&words::code(&warning.code)),
            arm.unwrap_or_default(),
            escaped(&warning.text),
        );
    }
    out.push_str("</ul>");
    if experiment.warnings.len() > WARNINGS_MAX {
        let rest = experiment.warnings.len() - WARNINGS_MAX;
        let _ = write!(out, "<p>{rest} more are in the record.</p>");
    }
    out.push_str("</div>");
}
