//! Reports from records, never by measuring: of an experiment, one self-contained HTML file and a short text
//! for a pull request; of a load, the text forms in [`text`], and a page as of a search for the edge.
//!
//! The record contains the words, the outcomes and the warnings; the report only presents them.

#![forbid(unsafe_code)]

mod charts;
mod data;
mod data_table;
mod flame_file;
pub mod lab_pages;
mod markdown;
mod page;
mod plot;
mod repro_command;
mod run_comparison;
mod run_page;
#[cfg(test)]
mod synthetic;
#[cfg(test)]
mod tests;
pub mod text;
mod unobservable;

pub use run_comparison::{
    ComparedFigure, ConditionResult, FigureChange, RegressionCondition, RegressionOutcome, RunComparison,
    Undecided, compare_searches,
};
pub use run_page::{PageBaseline, RUN_PAGE_BYTES_MAX, edge_page, run_page};

use record::experiment::Experiment;
use record::trial::ExperimentTrial;

/// Records of the trials, which an experiment names by their files.
pub trait TrialRecords {
    /// Returns the record of a trial (`record::experiment::TrialSummary::file`); `None` if it is
    /// missing or cannot be read.
    fn trial(&self, file: &str) -> Option<ExperimentTrial>;

    /// Returns the folded stacks of a trial's profile, a line each: `frame;frame;frame count`.
    /// `trial_file` is the trial's own file. `None` if nothing was sampled.
    fn folded_stacks(&self, trial_file: &str) -> Option<String>;
}

/// The report as one HTML file, and the data that did not fit into it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReportPage {
    /// The file: at most [`HTML_BYTES_MAX`] long, without external resources.
    pub html: String,
    /// Data of charts that would have made the file longer; the page names these files.
    pub data_files: Vec<DataFile>,
}

/// A file beside a page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DataFile {
    /// File name, without a directory.
    pub name: String,
    pub text: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TextTable {
    /// Rows, the heads first.
    pub rows: Vec<Vec<String>>,
    /// Number of rows that were left out because there are too many.
    pub rows_omitted: usize,
}

pub fn html(experiment: &Experiment, raw: &dyn TrialRecords) -> ReportPage {
    page::render_page(experiment, raw)
}

/// Returns the report in Markdown, for a comment of a pull request.
pub fn markdown(experiment: &Experiment, raw: &dyn TrialRecords) -> String {
    markdown::render(experiment, raw)
}

/// Returns a flame graph as an SVG file with zoom and search, from folded stacks: lines
/// `process;outer;inner COUNT`. With a baseline, it is the graph of the difference. `None` without
/// samples.
pub fn flame_graph(title: &str, folded: &str, baseline: Option<&str>) -> Option<String> {
    flame_file::render(title, folded, baseline)
}

/// Returns a table with a row for each load, for an experiment with one arm under loads of several
/// levels. It replaces the comparisons of the arm with itself. `None` for any other experiment.
pub fn text_table(experiment: &Experiment, raw: &dyn TrialRecords) -> Option<TextTable> {
    charts::text_table(experiment, raw)
}

/// Maximum length of a report, so that it can be mailed and kept beside each change. Charts beyond
/// it are left out, and data of charts are put into files beside it. The page names the omissions.
pub const HTML_BYTES_MAX: usize = 1_500_000;
