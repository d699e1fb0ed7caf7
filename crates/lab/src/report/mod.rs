//! The report of an experiment: one HTML file that needs nothing but itself, and a short text for a pull
//! request. Both are made from the experiment's record and from its trials, never by looking at a
//! machine.
//!
//! Not for what an experiment means: the words, the outcomes and the warnings are in the record.

mod charts;
mod csv;
mod markdown;
mod page;
#[cfg(test)]
mod sample;
mod svg;
#[cfg(test)]
mod tests;
mod words;

use record::experiment::Experiment;
use record::trial::Trial;

/// The trials' own records, which an experiment names by their files.
pub trait Raw {
    /// The record of a trial ([`record::experiment::TrialLine::file`]); none when it is not there or
    /// cannot be read.
    fn trial(&self, file: &str) -> Option<Trial>;

    /// The folded stacks of a trial's profile, a line each: `frame;frame;frame count`. `trial_file` is
    /// the trial's own file. None when nothing was sampled.
    fn folded(&self, trial_file: &str) -> Option<String>;
}

/// The report as one HTML file, at most [`HTML_BYTES_MAX`] long, which loads nothing from anywhere.
#[must_use]
pub fn html(experiment: &Experiment, raw: &dyn Raw) -> String {
    page::page(experiment, raw)
}

/// The report in Markdown, as a comment of a pull request wants it.
#[must_use]
pub fn markdown(experiment: &Experiment) -> String {
    markdown::text(experiment)
}

/// A report is no longer than this, so that it can be mailed and kept beside each change: charts that
/// would make it longer are left out, and it says which.
pub const HTML_BYTES_MAX: usize = 1_500_000;
