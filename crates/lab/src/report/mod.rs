//! The report of an experiment: one HTML file that needs nothing but itself, and a short text for a pull
//! request. Both are made from the experiment's record and from its trials, never by looking at a
//! machine.
//!
//! Not for what an experiment means: the words, the outcomes and the warnings are in the record.

mod again;
mod charts;
mod csv;
mod markdown;
mod page;
#[cfg(test)]
mod sample;
mod svg;
#[cfg(test)]
mod tests;
mod unseen;

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

/// The report as one HTML file, and what did not fit into it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// The file: at most [`HTML_BYTES_MAX`] long, and it loads nothing from anywhere.
    pub html: String,
    /// Data of charts that would have made it longer; the page names these files.
    pub beside: Vec<Beside>,
}

/// A file beside a page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Beside {
    /// Its name, without a folder.
    pub name: String,
    /// What is in it.
    pub text: String,
}

/// The table of all cells as text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grid {
    /// Its rows, the heads first.
    pub rows: Vec<Vec<String>>,
    /// Rows that it does not have, because they are too many.
    pub left_out: usize,
}

/// The report as a page.
#[must_use]
pub fn html(experiment: &Experiment, raw: &dyn Raw) -> Page {
    page::page(experiment, raw)
}

/// The report in Markdown, as a comment of a pull request wants it.
#[must_use]
pub fn markdown(experiment: &Experiment, raw: &dyn Raw) -> String {
    markdown::text(experiment, raw)
}

/// What an experiment with one arm under loads of several levels is read as, in place of comparisons of
/// the arm with itself: a row for each load. None of any other experiment.
#[must_use]
pub fn grid(experiment: &Experiment, raw: &dyn Raw) -> Option<Grid> {
    charts::grid(experiment, raw)
}

/// A report is no longer than this, so that it can be mailed and kept beside each change: charts that
/// would make it longer are left out, data of charts stand in files beside it, and it says which.
pub const HTML_BYTES_MAX: usize = 1_500_000;
