//! Files in TOML that people write: the parsed document with all its syntax errors, and the problems that its
//! reader finds, each with line and column. Independent of the keys of a file.

mod format;
mod syntax;
pub mod table;

use std::fmt;

use toml::de::{DeTable, DeValue};

use crate::problem::InputProblem;

pub use format::format_toml;

/// A value and the byte offset where it starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Located<T> {
    /// Byte offset in the file.
    pub offset: usize,
    pub value: T,
}

impl<T> Located<T> {
    pub fn new(value: T, offset: usize) -> Self {
        Self { offset, value }
    }
}

/// Maximum number of syntax errors that are described; their number is.
const SYNTAX_ERRORS_MAX: usize = 100;

/// Parsed text of a file. Keys and tables around syntax errors are there too, so that a reader can report
/// their problems at the same time.
#[derive(Debug)]
pub struct TomlDocument<'t> {
    text: &'t str,
    table: DeTable<'t>,
    syntax_errors: Vec<Located<String>>,
    /// Byte offsets of errors after which the meaning of the file is uncertain: all except for keys and
    /// tables that are given twice.
    unreadable: Vec<usize>,
}

impl<'t> TomlDocument<'t> {
    /// Parses a text, with all its syntax errors.
    #[must_use]
    pub fn parse(text: &'t str) -> Self {
        let (table, mut errors) = DeTable::parse_recoverable(text);
        let omitted = errors.split_off(errors.len().min(SYNTAX_ERRORS_MAX));
        let unreadable = errors.iter().filter(|error| !syntax::is_duplicate(error));
        let unreadable = unreadable.map(|error| syntax::error_offset(text, error)).collect();
        let mut syntax_errors = syntax::describe_errors(text, &errors);
        if let Some(first) = omitted.first() {
            let more = format!("{} more syntax errors from here on", omitted.len());
            syntax_errors.push(Located::new(more, syntax::error_offset(text, first)));
        }
        Self { text, table: table.into_inner(), syntax_errors, unreadable }
    }

    /// Returns the top-level table.
    pub fn table(&self) -> &DeTable<'t> {
        &self.table
    }

    pub fn table_mut(&mut self) -> &mut DeTable<'t> {
        &mut self.table
    }

    /// Consumes the document for its top-level table.
    #[must_use]
    pub fn into_table(self) -> DeTable<'t> {
        self.table
    }

    /// Returns whether the text is TOML, apart from keys and tables that are given twice. If not, a missing
    /// key or table means nothing.
    pub fn is_readable(&self) -> bool {
        self.unreadable.is_empty()
    }

    /// Returns whether the text has no syntax error.
    pub fn is_valid(&self) -> bool {
        self.syntax_errors.is_empty()
    }

    /// Adds the syntax errors to the problems of a reader, and drops those that a syntax error explains.
    pub fn report_syntax_errors(&self, problems: &mut Problems) {
        if !self.is_readable() {
            problems.drop_syntax_fallout(self.text, &self.unreadable);
        }
        problems.errors.extend_from_slice(&self.syntax_errors);
    }

    /// Returns every problem of the file: those of its syntax, and those that its reader found.
    pub fn all_problems(&self, file_name: &str, mut problems: Problems) -> Vec<InputProblem> {
        self.report_syntax_errors(&mut problems);
        problems.into_input_problems(file_name, self.text)
    }
}

/// Returns a text, or a number as it is written; `None` for any other value.
pub fn text_or_number(value: &DeValue<'_>) -> Option<String> {
    match value {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Integer(number) => Some(number.to_string()),
        DeValue::Float(number) => Some(number.to_string()),
        _ => None,
    }
}

/// Problems and warnings so far, in the order of discovery.
#[derive(Clone, Debug, Default)]
pub struct Problems {
    errors: Vec<Located<String>>,
    warnings: Vec<Located<String>>,
}

impl Problems {
    /// Adds an error, because of which there is no plan.
    pub fn add_error(&mut self, offset: usize, text: impl fmt::Display) {
        self.errors.push(Located::new(text.to_string(), offset));
    }

    /// Adds a warning about a setting that works, but hardly as intended.
    pub fn warn(&mut self, offset: usize, text: impl Into<String>) {
        self.warnings.push(Located::new(text.into(), offset));
    }

    /// Returns the value of `result`, or adds its error as a problem.
    pub fn ok_or_report<T>(&mut self, offset: usize, result: Result<T, impl fmt::Display>) -> Option<T> {
        result.map_err(|error| self.add_error(offset, error)).ok()
    }

    /// Returns the errors in the order of discovery.
    #[must_use]
    pub fn into_errors(self) -> Vec<Located<String>> {
        self.errors
    }

    /// Returns the errors, sorted by position and without duplicates.
    #[must_use]
    pub fn into_input_problems(self, file_name: &str, text: &str) -> Vec<InputProblem> {
        self.into_problems(file_name, text).0
    }

    /// Adds the problems of another reader of the same file.
    pub fn append(&mut self, mut other: Self) {
        self.errors.append(&mut other.errors);
        self.warnings.append(&mut other.warnings);
    }

    /// Moves all problems behind `base` bytes of other files.
    pub fn shift(&mut self, base: usize) {
        for located in self.errors.iter_mut().chain(&mut self.warnings) {
            located.offset += base;
        }
    }

    /// Removes the problems in a range of offsets, and returns them with offsets from its start.
    #[must_use]
    pub fn take_range(&mut self, range: std::ops::RangeInclusive<usize>) -> Self {
        let take = |problems: &mut Vec<Located<String>>| {
            let (mut own, others): (Vec<_>, Vec<_>) =
                std::mem::take(problems).into_iter().partition(|located| range.contains(&located.offset));
            own.iter_mut().for_each(|located| located.offset -= range.start());
            *problems = others;
            own
        };
        Self { errors: take(&mut self.errors), warnings: take(&mut self.warnings) }
    }

    /// Returns problems and warnings, each sorted by position and without duplicates.
    #[must_use]
    pub fn into_problems(self, file_name: &str, text: &str) -> (Vec<InputProblem>, Vec<InputProblem>) {
        let to_problems = |mut located: Vec<Located<String>>| {
            located.sort();
            located.dedup();
            let mut cursor = PositionCursor::new(text);
            let problem = |Located { value, offset }| {
                let (line, column) = cursor.advance_to(offset);
                InputProblem::new(format!("{file_name}:{line}:{column}"), value)
            };
            located.into_iter().map(problem).collect()
        };
        (to_problems(self.errors), to_problems(self.warnings))
    }

    /// Drops problems that one of the `syntax_errors` explains. These are on the same lines,
    /// or after a broken `[table]`, where keys seem to belong to the table before.
    fn drop_syntax_fallout(&mut self, text: &str, syntax_errors: &[usize]) {
        let ends: Vec<usize> = text.match_indices('\n').map(|(end, _)| end).collect();
        let line_of = |offset: usize| ends.partition_point(|&end| end < offset) + 1;
        let lines: Vec<usize> = syntax_errors.iter().map(|&offset| line_of(offset)).collect();
        let is_header = |line: &&usize| {
            text.lines().nth(**line - 1).is_some_and(|line| line.trim_start().starts_with('['))
        };
        let broken_from = lines.iter().filter(is_header).min().copied().unwrap_or(usize::MAX);
        self.errors.retain(|problem| {
            let line = line_of(problem.offset);
            line < broken_from && !lines.contains(&line)
        });
    }
}

/// Line and column of ascending byte offsets, found in one pass over the text.
struct PositionCursor<'t> {
    text: &'t str,
    offset: usize,
    line: usize,
    column: usize,
}

impl<'t> PositionCursor<'t> {
    fn new(text: &'t str) -> Self {
        Self { text, offset: 0, line: 1, column: 1 }
    }

    /// Returns line and column of an offset that is not before the last one. One behind the end is at the end.
    fn advance_to(&mut self, offset: usize) -> (usize, usize) {
        let passed = self.text.get(self.offset..offset).or_else(|| self.text.get(self.offset..));
        for character in passed.unwrap_or_default().chars() {
            match character {
                '\n' => (self.line, self.column) = (self.line + 1, 1),
                _ => self.column += 1,
            }
        }
        self.offset = offset.min(self.text.len());
        (self.line, self.column)
    }
}

/// Returns the position of a byte offset: `FILE:LINE:COLUMN`, both from 1. Columns count characters.
pub fn position(file_name: &str, text: &str, offset: usize) -> String {
    let (line, column) = line_and_column(text, offset);
    format!("{file_name}:{line}:{column}")
}

/// Returns line and column of a byte offset, both from 1. Columns count characters.
pub fn line_and_column(text: &str, offset: usize) -> (usize, usize) {
    let before = text.get(..offset).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |end| end + 1);
    (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_finds_the_same_positions() {
        let text = "a\nä = ö x\r\n\nlast";
        let mut cursor = PositionCursor::new(text);
        for offset in
            (0..=text.len() + 3).filter(|offset| *offset > text.len() || text.is_char_boundary(*offset))
        {
            assert_eq!(cursor.advance_to(offset), line_and_column(text, offset), "{offset}");
        }
    }

    #[test]
    fn of_many_syntax_errors_the_first_are_described_and_the_others_counted() {
        let text: String = (0..SYNTAX_ERRORS_MAX + 20).map(|number| format!("b{number} =\n")).collect();
        let problems = TomlDocument::parse(&text).all_problems("f", Problems::default());
        assert!(problems.len() <= SYNTAX_ERRORS_MAX + 1, "{}", problems.len());
        let more =
            problems.iter().filter(|problem| problem.text.ends_with("more syntax errors from here on"));
        assert_eq!(more.count(), 1, "{problems:?}");
    }

    #[test]
    fn columns_are_characters() {
        let text = "a\nä = ö x\r\n";
        assert_eq!(line_and_column(text, 0), (1, 1));
        assert_eq!(line_and_column(text, text.find('x').unwrap()), (2, 7));
        assert_eq!(line_and_column(text, text.len()), (3, 1));
        assert_eq!(position("a.toml", text, 2), "a.toml:2:1");
    }

    #[test]
    fn problems_that_a_syntax_error_explains_are_dropped() {
        let text = "a = 1\nb =\nc = 2\n[d\ne = 3\n";
        let document = TomlDocument::parse(text);
        assert!(!document.is_readable() && !document.is_valid());
        let mut problems = Problems::default();
        for key in ["a", "b", "c", "e"] {
            problems.add_error(text.find(&format!("{key} =")).unwrap(), format!("unknown key '{key}'"));
        }
        document.report_syntax_errors(&mut problems);
        let found = problems.into_input_problems("f.toml", text);
        let lines: Vec<&str> = found.iter().map(|problem| &problem.location[..8]).collect();
        assert_eq!(lines, ["f.toml:1", "f.toml:2", "f.toml:3", "f.toml:4"], "{found:?}");
        let document = TomlDocument::parse("a = 1\na = 2\n");
        assert!(document.is_readable() && !document.is_valid());
    }
}
