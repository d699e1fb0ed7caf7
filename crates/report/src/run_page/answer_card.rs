//! Answer of a page: three sentences, and the validity of the run that they come from.

use maud::{Markup, html};
use record::capacity_search::CapacitySearch;
use record::run::{Answer, Run};
use record::validity::ValidityLevel;

use super::ANSWER_CHARS_MAX;
use super::layout::{prose, short};
use crate::text::decision::decision_rows;

pub(super) fn sentence(text: &str) -> String {
    let text = experiment::format::capitalized(text);
    if text.is_empty() || text.ends_with('.') { text } else { text + "." }
}

/// Returns the card: the limit, its figures, the next step.
pub(super) fn card(answer: &Answer, run: Option<&Run>) -> Markup {
    let [what, why, next] =
        [&answer.what, &answer.why, &answer.next].map(|text| prose(text, ANSWER_CHARS_MAX));
    html! {
        div.answer {
            @if let Some(run) = run { p.status { (badge(run)) } }
            h1.result { (what) }
            @if !why.is_empty() { p.why { (why) } }
            @if !next.is_empty() { p.next { b { "Next: " } (next) } }
        }
    }
}

/// Returns the decision of a search: proof, change with its gain, sizes, and the command that proves the change.
pub(super) fn decision(search: &CapacitySearch) -> Markup {
    let rows = decision_rows(search);
    html! {
        @if !rows.is_empty() {
            dl.decision {
                @for (label, text) in rows {
                    dt { (experiment::format::capitalized(label)) }
                    @match label {
                        "prove it" => dd { code { (prose(&text, ANSWER_CHARS_MAX)) } },
                        _ => dd { (prose(&text, ANSWER_CHARS_MAX)) },
                    }
                }
            }
        }
    }
}

/// Returns the validity with a sign of its own, so that colour is not the only one.
fn badge(run: &Run) -> Markup {
    let (sign, class, (word, more)) = match run.validity.verdict {
        ValidityLevel::Valid => ("✓", "good", ("valid", ": no problem found")),
        ValidityLevel::Suspect => ("?", "open", ("suspect", ": the figures may have been disturbed")),
        ValidityLevel::Invalid => ("✗", "bad", ("not valid", ": the figures mislead")),
    };
    let reason = run.validity.reasons.first();
    html! {
        span.badge.(class) { span aria-hidden="true" { (sign) } " " (word) span.rest { (more) } }
        @if let Some(reason) = reason {
            " " a href="#findings" { (experiment::format::code_words(&short(&reason.code, 40))) }
            @if run.validity.reasons.len() > 1 { " and " (run.validity.reasons.len() - 1) " more" }
        }
        @if run.partial { " " span.badge.open { "ended early" } }
    }
}
