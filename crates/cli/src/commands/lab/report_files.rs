//! Files of the reports of an experiment in its directory.

use std::path::Path;

use experiment::engine::experiment_dir::ExperimentDir;
use record::experiment::Experiment;
use record::file::write_atomically;
use record::trial::ExperimentTrial;
use report::{ReportPage, TrialRecords};

use crate::exit::Failure;

/// File name of the report as a page; [`REPORT_MARKDOWN`] is the one for a pull request.
pub(in crate::commands) const REPORT_HTML: &str = "report.html";
/// See [`REPORT_HTML`].
pub(super) const REPORT_MARKDOWN: &str = "report.md";
#[derive(Debug)]
pub(super) struct Records<'a>(pub(super) &'a ExperimentDir);

impl TrialRecords for Records<'_> {
    fn trial(&self, file: &str) -> Option<ExperimentTrial> {
        self.0.trial(file).ok()
    }

    fn folded_stacks(&self, trial_file: &str) -> Option<String> {
        self.0.folded(trial_file)
    }
}

/// Writes both reports into the experiment's directory.
pub(in crate::commands) fn write_reports(
    experiment: &Experiment,
    directory: &ExperimentDir,
) -> Result<(), Failure> {
    let raw = &Records(directory);
    write_page(&report::html(experiment, raw), &directory.path().join(REPORT_HTML))?;
    let words = report::markdown(experiment, raw);
    write_atomically(&directory.path().join(REPORT_MARKDOWN), words.as_bytes())?;
    Ok(())
}

/// Writes a page, and beside it the files that did not fit into it.
pub(super) fn write_page(page: &ReportPage, path: &Path) -> Result<(), Failure> {
    write_atomically(path, page.html.as_bytes())?;
    for file in &page.data_files {
        write_atomically(&path.with_file_name(&file.name), file.text.as_bytes())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_that_exceeds_a_page_goes_to_a_file_beside_it() {
        let directory = tempfile::tempdir().unwrap();
        let beside = report::DataFile { name: "a.heat-map.csv".to_owned(), text: "x\n".to_owned() };
        let page = ReportPage { html: "<html>".to_owned(), data_files: vec![beside] };
        write_page(&page, &directory.path().join("report.html")).unwrap();
        for (name, text) in [("report.html", "<html>"), ("a.heat-map.csv", "x\n")] {
            assert_eq!(std::fs::read_to_string(directory.path().join(name)).unwrap(), text);
        }
    }
}
