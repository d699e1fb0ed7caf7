//! Answer of a page: three sentences, and the validity of the run that they come from.

use maud::{Markup, html};
use record::capacity_search::CapacitySearch;
use record::run::{Diagnosis, Run};
use record::validity::ValidityVerdict;

use super::TEXT_CHARS_MAX;
use super::layout::short;

/// Result in three sentences.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PageAnswer {
    /// Limit, in everyday words.
    pub what: String,
    /// Figures that show it.
    pub why: String,
    /// Next step.
    pub next: String,
}

impl PageAnswer {
    /// Returns the verdict of a run as three sentences.
    #[must_use]
    pub fn of_run(run: &Run) -> Self {
        match &run.diagnosis {
            Some(diagnosis) => Self::of_diagnosis(diagnosis, &diagnosis.claim),
            None => Self {
                what: "The limit of this run was not analysed.".to_owned(),
                why: "The record has no observation of the machines.".to_owned(),
                next: "Run it without --no-watch, on a machine that can see the server.".to_owned(),
            },
        }
    }

    /// Returns the result of a search as three sentences.
    #[must_use]
    pub fn of_search(search: &CapacitySearch) -> Self {
        match &search.stopped_by {
            Some(diagnosis) => Self {
                why: format!("Above it: {}", sentence(&diagnosis.claim)),
                ..Self::of_diagnosis(diagnosis, &search.summary)
            },
            None => Self { what: sentence(&search.summary), ..Self::default() },
        }
    }

    fn of_diagnosis(diagnosis: &Diagnosis, what: &str) -> Self {
        let why = diagnosis.evidence.first().map(|line| sentence(line)).unwrap_or_default();
        Self { what: sentence(what), why, next: sentence(&diagnosis.remedy) }
    }
}

/// Returns a text as a sentence.
pub(super) fn sentence(text: &str) -> String {
    let text = experiment::format::capitalized(text);
    if text.is_empty() || text.ends_with('.') { text } else { text + "." }
}

/// Returns the card: the limit, its figures, the next step.
pub(super) fn card(answer: &PageAnswer, run: Option<&Run>) -> Markup {
    let [what, why, next] = [&answer.what, &answer.why, &answer.next].map(|text| short(text, TEXT_CHARS_MAX));
    html! {
        div.answer {
            @if let Some(run) = run { p.status { (badge(run)) } }
            h1.result { (what) }
            @if !why.is_empty() { p.why { (why) } }
            @if !next.is_empty() { p.next { b { "Next: " } (next) } }
        }
    }
}

/// Returns the validity with a sign of its own, so that colour is not the only one.
fn badge(run: &Run) -> Markup {
    let (sign, class, text) = match run.validity.verdict {
        ValidityVerdict::Valid => ("✓", "good", "valid: no problem found"),
        ValidityVerdict::Suspect => ("?", "open", "suspect: the figures may have been disturbed"),
        ValidityVerdict::Invalid => ("✗", "bad", "not valid: the figures mislead"),
    };
    let reason = run.validity.reasons.first();
    html! {
        span.badge.(class) { span aria-hidden="true" { (sign) } " " (text) }
        @if let Some(reason) = reason {
            " " a href="#findings" { (experiment::format::code_words(&short(&reason.code, 40))) }
            @if run.validity.reasons.len() > 1 { " and " (run.validity.reasons.len() - 1) " more" }
        }
        @if run.partial { " " span.badge.open { "ended early" } }
    }
}
