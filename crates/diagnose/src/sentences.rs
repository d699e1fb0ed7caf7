//! Answers of the verdicts: for each row of the catalogue the three sentences about a run, with its figures:
//! the limit in everyday words, the figures that show it, and the next step. Each sentence is complete if a figure
//! is not observable.

pub(crate) mod accepting;
pub(crate) mod client_only;
pub(crate) mod cpu;
pub(crate) mod failures;
pub(crate) mod network;
pub(crate) mod pushed;
pub(crate) mod rejections;
mod remote;
pub(crate) mod waiting;

use record::run::Answer;

use crate::facts::{Facts, sentence};

/// Sentences about a run, for one row of the catalogue.
pub(crate) type AnswerFn = fn(&Facts<'_>) -> Answer;

/// Builds an answer of the clauses of its sentences.
fn answer(what: String, why: &[String], next: &[String]) -> Answer {
    let why = match sentence(why) {
        why if why.is_empty() => "The record has no figures of it.".to_owned(),
        why => why,
    };
    Answer { what: sentence(&[what]), why, next: sentence(next) }
}

/// Answer of a row that no run can have.
pub(crate) fn not_observable(_: &Facts<'_>) -> Answer {
    answer(
        "this version cannot observe the limit".to_owned(),
        &["it does not read the counters that would show it".to_owned()],
        &["read them with the tool that the catalogue names".to_owned()],
    )
}
