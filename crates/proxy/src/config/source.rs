//! Where in a file something stands, and what is wrong there. It knows no directive.

use record::problem::Problem;
pub(crate) use record::problem::suggestion;

/// A value and the byte at which it starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct At<T> {
    pub(super) value: T,
    pub(super) at: usize,
}

impl<T> At<T> {
    pub(super) fn new(value: T, at: usize) -> Self {
        Self { value, at }
    }
}

/// Problems and warnings so far, in the order in which they were found.
#[derive(Debug, Default)]
pub(super) struct Problems {
    found: Vec<At<String>>,
    warnings: Vec<At<String>>,
}

impl Problems {
    /// Something for which there is no plan.
    pub(super) fn add(&mut self, at: usize, text: impl Into<String>) {
        self.found.push(At::new(text.into(), at));
    }

    /// Something that works, and hardly as it was meant.
    pub(super) fn warn(&mut self, at: usize, text: impl Into<String>) {
        self.warnings.push(At::new(text.into(), at));
    }

    /// What `result` holds; its error is noted.
    pub(super) fn take<T>(&mut self, at: usize, result: Result<T, String>) -> Option<T> {
        result.map_err(|text| self.add(at, text)).ok()
    }

    /// Problems and warnings by their place, each once.
    pub(super) fn placed(self, file_name: &str, text: &str) -> (Vec<Problem>, Vec<Problem>) {
        let placed = |mut found: Vec<At<String>>| {
            found.sort_by_key(|problem| problem.at);
            found.dedup();
            let problem = |At { value, at }| {
                let (line, column) = position(text, at);
                Problem::new(format!("{file_name}:{line}:{column}"), value)
            };
            found.into_iter().map(problem).collect()
        };
        (placed(self.found), placed(self.warnings))
    }

    /// Leaves only those that no error of syntax at `places` explains: none on the same lines, and
    /// none behind a broken `[table]`, where keys seem to belong to the table before.
    pub(super) fn keep_to_what_was_read(&mut self, text: &str, places: &[usize]) {
        let lines: Vec<usize> = places.iter().map(|&at| position(text, at).0).collect();
        let is_header = |line: &&usize| {
            text.lines().nth(**line - 1).is_some_and(|line| line.trim_start().starts_with('['))
        };
        let broken_from = lines.iter().filter(is_header).min().copied().unwrap_or(usize::MAX);
        self.found.retain(|problem| {
            let line = position(text, problem.at).0;
            line < broken_from && !lines.contains(&line)
        });
    }
}

/// Line and column of a byte, both from 1; columns are characters.
fn position(text: &str, at: usize) -> (usize, usize) {
    let before = text.get(..at).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |end| end + 1);
    (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_characters() {
        let text = "a\nä = ö x\r\n";
        assert_eq!(position(text, 0), (1, 1));
        assert_eq!(position(text, text.find('x').unwrap()), (2, 7));
        assert_eq!(position(text, text.len()), (3, 1));
    }
}
