//! Findings of a run in four lines each: what, when, what it may mean, what to do. The most serious come first.

use experiment::format;
use maud::{Markup, html};
use record::capacity_search::CapacitySearch;
use record::run::{Confidence, Diagnosis, Interval, ObjectiveOutcome, Run};
use record::sorted::sort_by_key;
use record::units::{format_duration_ns, format_plural};
use record::validity::ValidityLevel;

use super::FINDING_CHARS_MAX;
use super::answer_card::sentence;
use super::layout::prose;
use crate::text::conclusions::figures_text;

const FINDINGS_MAX: usize = 12;
const PROOFS_MAX: usize = 3;
/// Ratio of a second's p99 to that of the typical second from which it is a spike.
const SPIKE_RATIO: f64 = 3.0;

/// Observation in four lines.
struct Finding {
    /// Class of the style sheet: `bad`, `open` or `same`.
    class: &'static str,
    what: String,
    when: String,
    meaning: String,
    action: String,
}

pub(super) fn list(run: &Run) -> Markup {
    let mut all = validity(run);
    all.extend(objectives(run));
    all.extend(failures(run));
    all.extend(run.diagnosis.as_ref().and_then(|diagnosis| bottleneck(diagnosis, run)));
    all.extend(spikes(run));
    all.extend(run.diagnosis.as_ref().map(|diagnosis| others(diagnosis, run)).unwrap_or_default());
    markup(&all)
}

/// Returns the findings of a search: those of the run where it stopped, and of the search itself.
pub(super) fn list_search(search: &CapacitySearch, run: &Run) -> Markup {
    let mut all = Vec::new();
    let diagnosis = search.stopped_by.as_ref().or(run.diagnosis.as_ref());
    all.extend(diagnosis.and_then(|diagnosis| bottleneck(diagnosis, run)));
    if let Some(drift) = &search.conclusion.drift {
        all.push(Finding {
            class: "open",
            what: format::capitalized(drift),
            when: format!("during the search of {}", format::duration_text(search.duration_s)),
            meaning: "The service became slower, or the level is too near its limit to hold every time."
                .to_owned(),
            action: "Run below the knee, and repeat the search on an idle machine.".to_owned(),
        });
    }
    all.extend(validity(run));
    all.extend(diagnosis.map(|diagnosis| others(diagnosis, run)).unwrap_or_default());
    let notes = search.notes.iter().take(FINDINGS_MAX);
    html! {
        (markup(&all))
        @for note in notes { p.note { (prose(note, FINDING_CHARS_MAX)) } }
    }
}

fn markup(all: &[Finding]) -> Markup {
    html! {
        @if all.is_empty() { p.calm { "No finding: nothing failed, and no limit was reached." } }
        ol.findings {
            @for finding in all.iter().take(FINDINGS_MAX) {
                li class=(finding.class) {
                    p.what { (prose(&finding.what, FINDING_CHARS_MAX)) }
                    @for (name, text) in [
                        ("When", &finding.when), ("May mean", &finding.meaning), ("Do", &finding.action),
                    ] {
                        @if !text.is_empty() { p { b { (name) } " " (prose(text, FINDING_CHARS_MAX)) } }
                    }
                }
            }
        }
        @if all.len() > FINDINGS_MAX { p.note { (all.len() - FINDINGS_MAX) " more in the record." } }
    }
}

fn window(run: &Run) -> String {
    format!("{:.0} to {:.0} s, the measured window", run.window.from_s, run.window.to_s)
}

/// Returns the reasons against the result.
fn validity(run: &Run) -> Vec<Finding> {
    let finding = |reason: &record::validity::ValidityReason| {
        let (meaning, action) = validity_advice(&reason.code);
        Finding {
            class: if reason.verdict == ValidityLevel::Invalid { "bad" } else { "open" },
            what: format!("{}: {}", format::capitalized(&format::code_words(&reason.code)), reason.text),
            when: stall_seconds(run, &reason.code).unwrap_or_else(|| window(run)),
            meaning: meaning.to_owned(),
            action: action.to_owned(),
        }
    };
    let figures = figures_text(run).map(|text| Finding {
        class: "open",
        what: format!("Figures: {text}"),
        when: window(run),
        meaning: "Each conclusion is judged by what the disturbance can have changed of it.".to_owned(),
        action: String::new(),
    });
    run.validity.reasons.iter().map(finding).chain(figures).collect()
}

/// Meaning and remedy of a reason, by its code.
const VALIDITY_ADVICE: &[(&str, &str, &str)] = &[
    (
        "client_bound",
        "The generator was the limit: the server may carry more.",
        "Use more threads (-t) or a second machine (weir fleet).",
    ),
    (
        "near_calibrated_limit",
        "The generator was near the most that it can drive.",
        "Use more threads (-t) or a second machine (weir fleet).",
    ),
    (
        "send_lag",
        "Requests were sent late, so that the response latency contains the generator's own delay.",
        "Give the generator CPUs of its own, or a lower rate.",
    ),
    (
        "run_queue_wait",
        "The generator's threads waited for a CPU.",
        "Give the generator CPUs of its own (--pin).",
    ),
    (
        "generator_stalled",
        "Something stopped the generator; its latencies contain the stall.",
        "Repeat on an idle machine.",
    ),
    (
        "cpu_contended",
        "Other processes used the CPUs that the server or the generator needed.",
        "Stop them, or repeat on an idle machine.",
    ),
    (
        "cpu_steal",
        "The hypervisor gave CPU time to other guests.",
        "Repeat later, or on a machine of your own.",
    ),
    ("errors", "Most figures describe failures and not the service.", "Find the reason of the errors first."),
    (
        "dropped",
        "Requests were due and never sent: the queue was full.",
        "Lower the rate, or raise the number of connections (-c).",
    ),
    (
        "unsteady",
        "The figures changed during the run; a mean hides it.",
        "Exclude the start (--ramp), or load for longer (-d).",
    ),
    ("too_short", "There are too few responses for its percentiles.", "Load for longer (-d)."),
    (
        "connections_failed",
        "The load was lighter than planned.",
        "Raise the server's limits of connections, or lower -c.",
    ),
];

fn validity_advice(code: &str) -> (&'static str, &'static str) {
    let row = VALIDITY_ADVICE.iter().find(|(name, _, _)| *name == code);
    row.map_or(("", "Repeat the run after mending it."), |(_, meaning, action)| (meaning, action))
}

/// Returns the seconds in which the generator stalled, for the reason about stalls.
fn stall_seconds(run: &Run, code: &str) -> Option<String> {
    (code == "generator_stalled").then(|| spans(run, |second| second.stalled_ns > 0))?
}

fn objectives(run: &Run) -> Vec<Finding> {
    let missed = run.objectives.iter().filter(|objective| objective.outcome() == ObjectiveOutcome::Missed);
    let finding = |objective: &record::run::ObjectiveResult| Finding {
        class: "bad",
        what: format!("Objective {} missed: {}", objective.text, objective.value_text()),
        when: window(run),
        meaning: "The service does not hold the objective under this load.".to_owned(),
        action: format!(
            "Find the highest load that holds it: weir edge --slo '{}' {}",
            objective.text,
            url(run)
        ),
    };
    missed.map(finding).collect()
}

/// Returns the first URL, whole: it is a part of a command.
fn url(run: &Run) -> &str {
    run.plan["requests"][0]["url"].as_str().unwrap_or("URL")
}

/// Returns the failed requests by kind.
fn failures(run: &Run) -> Vec<Finding> {
    let totals = &run.totals;
    let mut all = Vec::new();
    let mut kinds: Vec<(&String, &u64)> = totals.errors.iter().collect();
    sort_by_key(&mut kinds, |(kind, count)| (std::cmp::Reverse(**count), *kind));
    for (kind, count) in kinds {
        let phases = match (kind.as_str(), totals.timeout_age_ns) {
            ("timeout", Some((_, oldest_ns))) => {
                let phases = totals
                    .timeouts_by_phase
                    .iter()
                    .map(|(phase, count)| format!("{count} waited for: {phase}"));
                format!(
                    "The requests were up to {} old; {}.",
                    format_duration_ns(oldest_ns),
                    phases.collect::<Vec<_>>().join(", ")
                )
            }
            ("parse", _) => {
                let reasons = totals.parse_errors_by_count();
                let texts = reasons.iter().map(|(_, error)| format!("{} times: {}", error.count, error.text));
                format::capitalized(&texts.collect::<Vec<_>>().join("; "))
            }
            _ => String::new(),
        };
        all.push(Finding {
            class: "bad",
            what: format!(
                "{}: {}",
                format::capitalized(&format::code_words(kind)),
                format_plural(*count, "request")
            ),
            when: spans(run, |second| second.errors.contains_key(kind)).unwrap_or_else(|| window(run)),
            meaning: phases,
            action: "Compare these seconds with the server's log.".to_owned(),
        });
    }
    if totals.bad() > 0 {
        let status = totals.status.range(400..).map(|(status, count)| format!("{status}: {count}"));
        let status = status.collect::<Vec<_>>().join(", ");
        let bad = |second: &Interval| second.good.is_some_and(|good| good < second.responses);
        all.push(Finding {
            class: "bad",
            what: format!(
                "{} without the expected content or status",
                format_plural(totals.bad(), "response")
            ),
            when: spans(run, bad).unwrap_or_else(|| window(run)),
            meaning: if status.is_empty() { String::new() } else { format!("Statuses: {status}.") },
            action: "Check one of them by hand, or allow them with --expect-status.".to_owned(),
        });
    }
    all
}

fn bottleneck(diagnosis: &Diagnosis, run: &Run) -> Option<Finding> {
    if diagnosis.confidence == Confidence::None {
        return None;
    }
    let mut proofs: Vec<String> =
        diagnosis.evidence.iter().take(PROOFS_MAX).map(|line| proof(line)).collect();
    if let Some(test) = &diagnosis.confirmation {
        let word = if test.confirmed { "Confirmed" } else { "Not confirmed" };
        proofs.insert(
            0,
            format!(
                "{word}: {}; predicted {}; measured {}.",
                test.perturbation, test.prediction, test.measured
            ),
        );
    }
    let test = match (&diagnosis.confirmation, diagnosis.counter_test.is_empty()) {
        (None, false) => format!(" To test it: {}.", diagnosis.counter_test.trim_end_matches('.')),
        _ => String::new(),
    };
    let words = format::capitalized(&format::code_words(&diagnosis.verdict));
    Some(Finding {
        class: "same",
        what: format!("{words} ({}): {}", diagnosis.confidence, diagnosis.claim),
        when: window(run),
        meaning: proofs.join(" "),
        action: format!("{}{test}", sentence(&diagnosis.remedy)),
    })
}

/// Returns a line of evidence without its bound and source, which the list of the record has.
fn proof(line: &str) -> String {
    sentence(line.split_once(" (bound: ").map_or(line, |(figure, _)| figure))
}

/// Returns other explanations, and patterns of the latency.
fn others(diagnosis: &Diagnosis, run: &Run) -> Vec<Finding> {
    let alternative = |other: &record::run::AlternativeVerdict| Finding {
        class: "same",
        what: format!("Or {} ({})", format::code_words(&other.verdict), other.confidence),
        when: window(run),
        meaning: other.evidence.iter().take(PROOFS_MAX).map(|line| proof(line)).collect::<Vec<_>>().join(" "),
        action: diagnosis.distinguishing_change.clone(),
    };
    let pattern = |text: &String| Finding {
        class: "same",
        what: format::capitalized(text),
        when: window(run),
        meaning: "A pattern of the latency with one known cause.".to_owned(),
        action: String::new(),
    };
    let alternatives = diagnosis.alternatives.iter().map(alternative);
    alternatives.chain(diagnosis.fingerprints.iter().map(pattern)).collect()
}

/// Returns the seconds whose p99 is a multiple of the typical one.
fn spikes(run: &Run) -> Option<Finding> {
    let measured: Vec<f64> = run
        .intervals
        .iter()
        .filter(|second| second.measured)
        .filter_map(|second| Some(second.p99_ns? as f64))
        .collect();
    let typical = stats::median(&measured).filter(|_| measured.len() >= 5)?;
    let is_spike = |second: &Interval| {
        second.measured && second.p99_ns.is_some_and(|ns| ns as f64 > typical * SPIKE_RATIO)
    };
    let count = run.intervals.iter().filter(|second| is_spike(second)).count();
    let worst =
        run.intervals.iter().filter(|second| is_spike(second)).filter_map(|second| second.p99_ns).max()?;
    Some(Finding {
        class: "open",
        what: format!(
            "p99 of {} is above {} times the typical one: up to {}, typical {}",
            format::count(count, "second"), SPIKE_RATIO, format_duration_ns(worst), format_duration_ns(typical as u64)
        ),
        when: spans(run, is_spike)?,
        meaning: "Something stops the service for a moment: garbage collection, a log that is written, a batch job.".to_owned(),
        action: "Compare these seconds with the server's log and with the CPUs in use below.".to_owned(),
    })
}

/// Maximum number of time spans in a text.
const SPANS_MAX: usize = 4;

/// Formats the spans of the seconds that satisfy `is_included`; `None` without any.
fn spans(run: &Run, is_included: impl Fn(&Interval) -> bool) -> Option<String> {
    let mut spans: Vec<(f64, f64)> = Vec::new();
    for second in run.intervals.iter().filter(|second| is_included(second)) {
        let from_s = second.time_s - second.length_s;
        match spans.last_mut() {
            Some(last) if from_s - last.1 < 0.5 => last.1 = second.time_s,
            _ => spans.push((from_s, second.time_s)),
        }
    }
    let shown = spans.iter().take(SPANS_MAX);
    let text = shown.map(|(from_s, to_s)| format!("{:.0} to {:.0} s", from_s.max(0.0), to_s));
    let text = text.collect::<Vec<_>>().join(", ");
    match spans.len() {
        0 => None,
        count if count > SPANS_MAX => Some(format!("{text} and {} more times", count - SPANS_MAX)),
        _ => Some(text),
    }
}
