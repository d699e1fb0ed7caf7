//! First screen: load, rate, latency, responses and the generator's own health, each as a tile; the objectives,
//! and the changes since a baseline.

use experiment::format;
use maud::{Markup, html};
use record::capacity_search::CapacitySearch;
use record::run::Run;
use record::sorted::sort_by_key;
use record::units::{format_duration_ns, format_plural, format_rate};
use record::validity::ValidityLevel;

use super::PageBaseline;
use super::layout::{prose, short};
use crate::run_comparison::{FigureChange, RegressionOutcome};

/// Maximum number of objectives, and of kinds of errors.
const SHOWN_MAX: usize = 8;
const KINDS_MAX: usize = 3;
/// Maximum length of a text of a tile or a list, in characters.
const DETAIL_CHARS_MAX: usize = 600;

pub(super) fn tiles(run: &Run, load_text: &str) -> Markup {
    let (totals, response) = (&run.totals, &run.latency.last_byte.response);
    let time = |ns: u64| if response.count == 0 { "–".to_owned() } else { format_duration_ns(ns) };
    html! {
        div.tiles {
            (tile("Load", &prose(load_text, DETAIL_CHARS_MAX), &attempted(run), ""))
            (tile("Rate", &format_rate(run.goodput_per_s()), &achieved(run), ""))
            (tile("Latency p50 / p99", &format!("{} / {}", time(response.p50_ns), time(response.p99_ns)),
                &format!("from due to last byte; max {}", time(response.max_ns)), ""))
            (tile("Responses", &format!("{} good", format::value(totals.good() as f64, "1")),
                &failures(run), if totals.error_fraction() > 0.001 { "bad" } else { "" }))
            (tile("Generator", generator_word(run).0, &generator_figures(run), generator_word(run).1))
        }
    }
}

fn tile(label: &str, value: &str, detail: &str, class: &str) -> Markup {
    html! {
        div.tile.(class) {
            p.label { (label) }
            p.value { (value) }
            @if !detail.is_empty() { p.detail { (detail) } }
        }
    }
}

fn attempted(run: &Run) -> String {
    match run.rates.offered_per_s {
        Some(offered) => format!("attempted {}", format_rate(offered)),
        None => "as fast as the responses return".to_owned(),
    }
}

/// Returns the achieved rate in relation to the attempted one.
fn achieved(run: &Run) -> String {
    let bytes = record::units::format_byte_rate(run.rates.bytes_in_per_s);
    match run.rates.answered_fraction() {
        Some(fraction) => format!(
            "good responses; {} of the attempted requests answered; {bytes}",
            format::percent(fraction)
        ),
        None => format!("good responses; {bytes}"),
    }
}

fn failures(run: &Run) -> String {
    let totals = &run.totals;
    let mut kinds: Vec<(&String, &u64)> = totals.errors.iter().collect();
    sort_by_key(&mut kinds, |(kind, count)| (std::cmp::Reverse(**count), *kind));
    let mut parts = Vec::new();
    if totals.bad() > 0 {
        parts.push(format!("{} bad", totals.bad()));
    }
    parts.extend(kinds.iter().take(KINDS_MAX).map(|(kind, count)| format!("{} {count}", short(kind, 30))));
    if kinds.len() > KINDS_MAX {
        parts.push(format!("{} other kinds", kinds.len() - KINDS_MAX));
    }
    if totals.dropped > 0 {
        parts.push(format!("{} never sent", totals.dropped));
    }
    match parts.is_empty() {
        true => "none failed".to_owned(),
        false => format!("{} without one: {}", format::percent(totals.error_fraction()), parts.join(", ")),
    }
}

/// Reasons for the validity that are about the generator or its machine.
const GENERATOR_REASONS: &[&str] = &[
    "client_bound",
    "send_lag",
    "generator_stalled",
    "run_queue_wait",
    "near_calibrated_limit",
    "ports_scarce",
    "littles_law",
    "cpu_steal",
    "cpu_contended",
];

/// Returns the state of the generator in a word, with the class of its tile.
fn generator_word(run: &Run) -> (&'static str, &'static str) {
    let reasons = run.validity.reasons.iter();
    let own = reasons.filter(|reason| GENERATOR_REASONS.contains(&reason.code.as_str()));
    match own.map(|reason| reason.verdict).max() {
        Some(ValidityLevel::Invalid) => ("was the limit", "bad"),
        Some(ValidityLevel::Suspect) => ("disturbed", "open"),
        _ => ("healthy", "good"),
    }
}

fn generator_figures(run: &Run) -> String {
    let generator = &run.generator;
    let busy = match generator.busiest_thread_fraction {
        Some(fraction) => format!("busiest thread {}", format::percent(fraction)),
        None => "CPU not observable".to_owned(),
    };
    let lag =
        format!("{} lag p99 {}", short(&generator.lag_kind, 10), format_duration_ns(generator.lag_p99_ns));
    let stalls = match generator.stalls.count {
        0 => String::new(),
        count => format!("; {}", format_plural(count, "stall")),
    };
    format!("{busy}; {lag}{stalls}")
}

pub(super) fn objectives(texts: &[String]) -> Markup {
    html! {
        @if !texts.is_empty() {
            ul.objectives {
                @for text in texts.iter().take(SHOWN_MAX) {
                    @let (class, sign) = objective_sign(text);
                    li class=(class) {
                        span aria-hidden="true" { (sign) } " " (prose(text, DETAIL_CHARS_MAX))
                    }
                }
                @if texts.len() > SHOWN_MAX { li { (texts.len() - SHOWN_MAX) " more in the record" } }
            }
        }
    }
}

/// Returns the class and the sign of an objective, by its outcome.
fn objective_sign(text: &str) -> (&'static str, &'static str) {
    if text.contains(": MISSED (") {
        ("bad", "✗")
    } else if text.contains(": NOT PROVEN (") {
        ("open", "?")
    } else {
        ("good", "✓")
    }
}

/// Returns the changes since the baseline, and the results of the conditions.
pub(super) fn comparison(baseline: &PageBaseline<'_>) -> Markup {
    let comparison = baseline.comparison;
    html! {
        div.compared {
            h2 { "Compared with " (short(&baseline.name, 80)) }
            ul {
                @for change in &comparison.changes {
                    li class=(change_class(change)) { b { (change.figure.name()) } " " (change.values_text()) ": " (change.change_text()) }
                }
            }
            @for result in &comparison.results {
                @let class = match result.outcome {
                    RegressionOutcome::Regression => "bad",
                    RegressionOutcome::Within => "good",
                    RegressionOutcome::Undecided(_) => "open",
                };
                p { span.badge.(class) { (short(result.condition.text(), 60)) } " " (result.outcome_text()) }
            }
            @if !comparison.plan_differences.is_empty() {
                p.note { "The plans differ in: " (prose(&comparison.plan_differences.join(", "), DETAIL_CHARS_MAX)) "." }
            }
            p.note {
                "The intervals come from the seconds of both runs. A difference between two runs may have other "
                "reasons than the change: repeat both alternately (" code { "weir lab run" } ")."
            }
        }
    }
}

/// Returns the class of a change: grey if the interval contains no change.
fn change_class(change: &FigureChange) -> &'static str {
    let is_higher = change.change.is_some_and(|change| change > 0.0);
    match (change.is_change(), is_higher == change.figure.is_worse_if_higher()) {
        (false, _) => "muted",
        (true, true) => "worse",
        (true, false) => "better",
    }
}

pub(super) fn search_tiles(search: &CapacitySearch, load_text: Option<&str>) -> Markup {
    let conclusion = &search.conclusion;
    let level =
        |level: Option<f64>| level.map_or_else(|| "none".to_owned(), |level| level_text(search, level));
    let verified = match conclusion.verifications {
        0 => "not verified".to_owned(),
        total => format!("held in {} of {total} verifying trials", conclusion.verified),
    };
    let range = search.operating_range.map_or_else(String::new, |(from, to)| {
        format!("run it at {} to {}", level_text(search, from), level_text(search, to))
    });
    let run = search.at_edge.as_deref();
    html! {
        div.tiles {
            (tile("Held level", &level(conclusion.level.or(conclusion.lower)), &verified, ""))
            (tile("Missed at", &level(conclusion.upper), &prose(&conclusion.reasons.join("; "), DETAIL_CHARS_MAX), ""))
            (tile("Objective", &prose(&search.objectives.join(", "), DETAIL_CHARS_MAX), &range, ""))
            (tile("Load", &prose(load_text.unwrap_or(&search.quantity), DETAIL_CHARS_MAX),
                &format!("{} in {}", format::count(search.trials.len(), "trial"), format::duration_text(search.duration_s)), ""))
            @if let Some(run) = run {
                (tile("Generator", generator_word(run).0, &generator_figures(run), generator_word(run).1))
            }
        }
    }
}

pub(super) fn level_text(search: &CapacitySearch, level: f64) -> String {
    match search.quantity.as_str() {
        "connections" => format!("{} connections", format::value(level, "1")),
        "streams" => format!("{} streams per connection", format::value(level, "1")),
        _ => format_rate(level),
    }
}
