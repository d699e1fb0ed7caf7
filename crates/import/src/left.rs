//! Report of an import: directives that have no equivalent, with their place and the reason.

use std::fmt;
use std::rc::Rc;

use record::sorted::sort_by_key;

use crate::document::Origin;

/// Kind of a directive that the config does not contain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// weir has no such feature, or none with the same meaning.
    NotSupported,
    /// The operator must add something: a file, a key, a decision.
    Needs,
    /// weir always does so, or the setting is one of the other program's implementation.
    NoEffect,
    /// Translated, with a difference that no key removes.
    Differs,
}

impl Kind {
    /// Returns the word at the start of a line of the report.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::NotSupported => "not supported",
            Self::Needs => "needs",
            Self::NoEffect => "no effect here",
            Self::Differs => "differs",
        }
    }

    /// Returns whether something is left to do.
    #[must_use]
    pub fn is_left(self) -> bool {
        matches!(self, Self::NotSupported | Self::Needs)
    }
}

/// One line of the report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Left {
    /// File of the directive.
    pub file: Rc<str>,
    /// Line of the directive, from 1.
    pub line: usize,
    pub kind: Kind,
    /// The directive, shortened.
    pub directive: String,
    /// The reason, or what to add.
    pub reason: String,
}

impl fmt::Display for Left {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, line, kind, directive, reason } = self;
        let file = record::problem::printable(file, 400);
        write!(f, "{file}:{line}: {}: {reason} ({directive})", kind.name())
    }
}

/// Maximum length of a directive in the report.
const DIRECTIVE_BYTES_MAX: usize = 80;
/// Maximum length of a reason, which may quote the source.
const REASON_BYTES_MAX: usize = 600;
/// Maximum number of lines of the report; a hostile file has more directives than anybody reads.
const LINES_MAX: usize = 5_000;

/// The lines of a report, in the order of their discovery.
#[derive(Debug, Default)]
pub(crate) struct Report {
    lines: Vec<Left>,
    omitted: usize,
}

impl Report {
    /// Adds a line, unless the same line is there.
    pub(crate) fn add(&mut self, kind: Kind, origin: &Origin, reason: impl Into<String>) {
        let reason = record::problem::printable(&reason.into(), REASON_BYTES_MAX);
        let is_same =
            |left: &Left| left.line == origin.line && left.file == origin.file && left.reason == reason;
        // Duplicates come from rules that are compiled for several listeners, so they are near.
        if self.lines.iter().rev().take(64).any(is_same) {
            return;
        }
        if self.lines.len() >= LINES_MAX {
            self.omitted += 1;
            return;
        }
        let mut directive = record::problem::printable(&origin.text, DIRECTIVE_BYTES_MAX);
        if origin.text.len() > DIRECTIVE_BYTES_MAX {
            directive.push('…');
        }
        self.lines.push(Left { file: Rc::clone(&origin.file), line: origin.line, kind, directive, reason });
    }

    pub(crate) fn not_supported(&mut self, origin: &Origin, reason: impl Into<String>) {
        self.add(Kind::NotSupported, origin, reason);
    }

    pub(crate) fn needs(&mut self, origin: &Origin, reason: impl Into<String>) {
        self.add(Kind::Needs, origin, reason);
    }

    /// Returns the lines in the order of the files.
    pub(crate) fn into_lines(mut self) -> Vec<Left> {
        if let Some(last) = self.lines.last().cloned().filter(|_| self.omitted > 0) {
            let reason = format!("{} more lines of this report are omitted", self.omitted);
            self.lines.push(Left { kind: Kind::NotSupported, reason, ..last });
        }
        let files: Vec<Rc<str>> = self.lines.iter().fold(Vec::new(), |mut files, left| {
            if !files.contains(&left.file) {
                files.push(Rc::clone(&left.file));
            }
            files
        });
        let rank = |left: &Left| files.iter().position(|file| *file == left.file).unwrap_or_default();
        sort_by_key(&mut self.lines, |left| (rank(left), left.line));
        self.lines
    }
}
