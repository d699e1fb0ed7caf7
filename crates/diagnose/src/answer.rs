//! Answer of a run: three sentences for people, from its verdict and with its figures. The sentences of each
//! verdict are a part of its row in the catalogue.

use record::capacity_search::{CapacitySearch, SearchEnd};
use record::run::{Answer, Confidence, Confirmation, Diagnosis, Run};
use record::units::format_rate;
use record::validity::ValidityLevel;

use crate::counter_test::is_testable;
use crate::diagnosis::{diagnose, ended_processes};
use crate::facts::{Facts, Slots};
use crate::run_view::RunView;
use crate::sentences::pushed::pushed;
use crate::sentences::{accepting, client_only, failures};
use crate::signals;
use crate::verdicts::{LimitClass, NONE, RUN_INVALID, UNKNOWN, find_rule};

/// Returns the answer of a run, by its diagnosis; a record without one is diagnosed first.
#[must_use]
pub fn answer(run: &Run) -> Answer {
    match &run.diagnosis {
        Some(diagnosis) => answer_diagnosis(run, diagnosis),
        None => answer_diagnosis(run, &diagnose(run)),
    }
}

/// Returns the number of requests that the subject serves at a time, by its rate and the latency without load; `None`
/// without a baseline.
#[must_use]
pub fn served_at_a_time(run: &Run) -> Option<f64> {
    Facts { view: &RunView::new(run) }.value(&signals::PARALLELISM)
}

/// Most that a subject carries, as a load at its limit shows it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ceiling {
    /// Good responses per second.
    pub rate_per_s: f64,
    /// Requests that it works on at a time; `None` without a baseline, or if time limits it and not their number.
    pub slots: Option<f64>,
}

/// Returns the ceiling of the subject, if the load of a run was at its limit by the run's own diagnosis.
#[must_use]
pub fn ceiling(run: &Run) -> Option<Ceiling> {
    let verdict = run.diagnosis.as_ref()?.verdict.as_str();
    let rule = find_rule(verdict)?;
    let is_its_own = matches!(rule.class, LimitClass::Cpu | LimitClass::Limit)
        && !matches!(verdict, "cpu_steal" | "cpu_contended");
    let view = RunView::new(run);
    let slots = match (Facts { view: &view }).slots() {
        Some(Slots::Number { count, .. }) => Some(count),
        _ => None,
    };
    (is_its_own && view.goodput() > 0.0).then(|| Ceiling { rate_per_s: view.goodput(), slots })
}

/// Returns the answer of a run for its diagnosis.
fn answer_diagnosis(run: &Run, diagnosis: &Diagnosis) -> Answer {
    let view = RunView::new(run);
    let facts = Facts { view: &view };
    let rule = find_rule(&diagnosis.verdict);
    let pushed = pushed(&facts).filter(|_| rule.is_none_or(|rule| rule.class != LimitClass::Failure));
    let is_pushed = pushed.is_some();
    let overriding_answer = pushed
        .or_else(|| is_general(run, &diagnosis.verdict).then(|| accepting::unaccepted(&facts)).flatten());
    let has_own_answer = overriding_answer.is_some();
    let mut answer = overriding_answer.unwrap_or_else(|| match rule {
        Some(rule) => (rule.answer)(&facts),
        None if diagnosis.verdict == NONE => client_only::none(&facts),
        None => client_only::unknown(&facts),
    });
    let ended = ended_processes(&view);
    if let Some(first) = ended.first() {
        add_sentence(&mut answer.why, &format!("{}.", capitalised(first)));
    }
    if !is_pushed {
        add_proof(&mut answer, diagnosis);
    }
    let says_it =
        has_own_answer || ["fd_limit", "accept_backlog_overflow"].contains(&diagnosis.verdict.as_str());
    let beside = accepting::beside(&facts);
    if !says_it && !beside.is_empty() {
        add_sentence(&mut answer.why, &beside);
    }
    if let Some(reason) = invalid_reason(run, diagnosis) {
        answer.next =
            format!("First repeat the run, because its figures are not valid: {reason}. {}", answer.next);
    }
    answer
}

/// Returns whether a verdict says less than connections that are never accepted: one without a cause, or the limit
/// without a name.
fn is_general(run: &Run, verdict: &str) -> bool {
    match verdict {
        NONE | UNKNOWN | "subject_limited" => true,
        RUN_INVALID => failures::is_without_response(run),
        _ => false,
    }
}

/// Adds the result of a counter-test, or how sure the verdict is without one.
fn add_proof(answer: &mut Answer, diagnosis: &Diagnosis) {
    let is_limit = find_rule(&diagnosis.verdict).is_some();
    match (&diagnosis.confirmation, &diagnosis.untested_reason) {
        (Some(test), _) => add_sentence(&mut answer.why, &tested(test)),
        (None, Some(reason)) => add_sentence(&mut answer.why, &format!("Not tested: {reason}.")),
        (None, None) if is_limit && diagnosis.confidence == Confidence::Possible => {
            let other = diagnosis.alternatives.first();
            let rival =
                other.map_or_else(String::new, |other| format!(": the figures also fit `{}`", other.verdict));
            add_sentence(&mut answer.why, &format!("This is possible, not proven{rival}."));
        }
        (None, None) => {}
    }
    let is_open_question = diagnosis.confirmation.is_none() && diagnosis.untested_reason.is_none();
    let is_failure = find_rule(&diagnosis.verdict).is_some_and(|rule| rule.class == LimitClass::Failure);
    let can_test = is_testable(&diagnosis.verdict) && !is_failure;
    if is_open_question && diagnosis.confidence == Confidence::Possible && can_test {
        add_sentence(
            &mut answer.next,
            "Before that, repeat the load with `--confirm`, which tests the cause.",
        );
    }
}

/// Formats the result of a counter-test: "Tested: with twice the connections the throughput was × 1.01: confirmed."
pub(crate) fn tested(test: &Confirmation) -> String {
    let ratios = test.measured.split("throughput × ").skip(1);
    let ratios = ratios.filter_map(|part| part.split([' ', ':', ';']).next());
    let changes = test.perturbation.split("; ").zip(ratios);
    let changes: Vec<String> =
        changes.map(|(change, ratio)| format!("with {change} the throughput was × {ratio}")).collect();
    let outcome = match test.confirmed {
        true => "confirmed".to_owned(),
        false => format!("that refutes `{}`", test.verdict),
    };
    match changes.is_empty() {
        true => format!("Tested by a change of the load: {outcome}."),
        false => format!("Tested: {}: {outcome}.", changes.join(", ")),
    }
}

/// Returns the reason why the figures of a run are not valid, if the verdict does not say so itself.
fn invalid_reason<'a>(run: &'a Run, diagnosis: &Diagnosis) -> Option<&'a str> {
    let is_explained =
        [RUN_INVALID, "client_bound", "port_exhaustion", "fd_limit"].contains(&diagnosis.verdict.as_str());
    let invalid = |reason: &&record::validity::ValidityReason| {
        reason.verdict == ValidityLevel::Invalid && reason.code != "errors"
    };
    let reason = run.validity.reasons.iter().find(invalid).filter(|_| !is_explained)?;
    Some(reason.text.trim_end_matches(['.', ' ']))
}

/// Returns the answer of a capacity search: what the subject holds, and what stops it above.
#[must_use]
pub fn answer_search(search: &CapacitySearch, level_sentence: &str) -> Answer {
    let run = match (&search.stopped_run, &search.stopped_by) {
        (Some(run), Some(diagnosis)) => Some((run, diagnosis)),
        _ => search.at_edge.as_ref().and_then(|run| Some((run, run.diagnosis.as_ref()?))),
    };
    let what = format!("{}.", capitalised(level_sentence.trim_end_matches('.')));
    let Some((run, diagnosis)) = run else {
        let why = match search.conclusion.reasons.is_empty() {
            true => "The search ended before a run that could be diagnosed.".to_owned(),
            false => format!("{}.", capitalised(&search.conclusion.reasons.join("; "))),
        };
        return Answer { what, why, next: "Repeat the search, and let it end.".to_owned() };
    };
    let mut limit = answer_diagnosis(run, diagnosis);
    let held = search.conclusion.level.or(search.conclusion.lower);
    if let Some(held) = held.filter(|held| *held >= run.goodput_per_s()) {
        limit.what = without_maximum(&limit.what, run.goodput_per_s(), held);
    }
    let is_limited = diagnosis.verdict != NONE && search.conclusion.end != SearchEnd::MaxLevel;
    match is_limited {
        true => Answer { what: format!("{what} {}", limit.what), ..limit },
        false => Answer { what, why: limit.why, next: "Search higher: raise `--to`.".to_owned() },
    }
}

/// Returns a sentence about a run that carried less than a level that held: its rate is no maximum then. A level may
/// hold for a while a little above what full load gives, and a disturbed generator sends less than before.
fn without_maximum(what: &str, rate_per_s: f64, held_per_s: f64) -> String {
    let [rate, held] = [rate_per_s, held_per_s].map(format_rate);
    what.replace(" is its ceiling", " is what it carries at full load")
        .replace(" is their ceiling, not that of", " is what they carry at full load, and limits")
        .replace(&format!("no more than {rate}"), &format!("{rate} at full load"))
        .replace(&format!("lets {rate} through and no more,"), &format!("lets {rate} through at full load,"))
        .replace(
            &format!("{rate} is what this machine can send"),
            &format!("at {held}, which it sent, the limit of the service is not reached"),
        )
}

fn add_sentence(text: &mut String, sentence: &str) {
    if !text.is_empty() {
        text.push(' ');
    }
    text.push_str(sentence);
}

fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| format!("{}{}", first.to_uppercase(), letters.as_str()))
}
