//! Positions in a config file, and the problems found there. Independent of the config's keys.

use std::fmt;

use record::problem::InputProblem;
pub(crate) use record::problem::suggestion;

/// A value and the byte offset where it starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Located<T> {
    pub(super) value: T,
    pub(super) offset: usize,
}

impl<T> Located<T> {
    pub(super) fn new(value: T, offset: usize) -> Self {
        Self { value, offset }
    }
}

/// Problems and warnings so far, in the order of discovery.
#[derive(Debug, Default)]
pub(super) struct Problems {
    errors: Vec<Located<String>>,
    warnings: Vec<Located<String>>,
}

impl Problems {
    /// Adds an error, because of which there is no plan.
    pub(super) fn add_error(&mut self, offset: usize, text: impl Into<String>) {
        self.errors.push(Located::new(text.into(), offset));
    }

    /// Adds a warning about a setting that works, but hardly as intended.
    pub(super) fn warn(&mut self, offset: usize, text: impl Into<String>) {
        self.warnings.push(Located::new(text.into(), offset));
    }

    /// Returns the value of `result`, or adds its error as a problem.
    pub(super) fn ok_or_report<T>(
        &mut self,
        offset: usize,
        result: Result<T, impl fmt::Display>,
    ) -> Option<T> {
        result.map_err(|error| self.add_error(offset, error.to_string())).ok()
    }

    /// Returns problems and warnings, each sorted by position and without duplicates.
    pub(super) fn into_problems(self, file_name: &str, text: &str) -> (Vec<InputProblem>, Vec<InputProblem>) {
        let to_problems = |mut located: Vec<Located<String>>| {
            located.sort_by_key(|problem| problem.offset);
            located.dedup();
            let problem = |Located { value, offset }| {
                let (line, column) = line_and_column(text, offset);
                InputProblem::new(format!("{file_name}:{line}:{column}"), value)
            };
            located.into_iter().map(problem).collect()
        };
        (to_problems(self.errors), to_problems(self.warnings))
    }

    /// Drops problems that one of the `syntax_errors` explains. These are on the same lines,
    /// or after a broken `[table]`, where keys seem to belong to the table before.
    pub(super) fn drop_syntax_fallout(&mut self, text: &str, syntax_errors: &[usize]) {
        let lines: Vec<usize> = syntax_errors.iter().map(|&offset| line_and_column(text, offset).0).collect();
        let is_header = |line: &&usize| {
            text.lines().nth(**line - 1).is_some_and(|line| line.trim_start().starts_with('['))
        };
        let broken_from = lines.iter().filter(is_header).min().copied().unwrap_or(usize::MAX);
        self.errors.retain(|problem| {
            let line = line_and_column(text, problem.offset).0;
            line < broken_from && !lines.contains(&line)
        });
    }
}

/// Returns line and column of a byte offset, both from 1. Columns count characters.
fn line_and_column(text: &str, offset: usize) -> (usize, usize) {
    let before = text.get(..offset).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |end| end + 1);
    (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_characters() {
        let text = "a\nä = ö x\r\n";
        assert_eq!(line_and_column(text, 0), (1, 1));
        assert_eq!(line_and_column(text, text.find('x').unwrap()), (2, 7));
        assert_eq!(line_and_column(text, text.len()), (3, 1));
    }
}
