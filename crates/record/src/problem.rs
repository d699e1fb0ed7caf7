//! One thing wrong with what somebody asked for: where it stands, what is wrong, what to do.
//! Parsers collect all of them before they give up.

use std::fmt;

/// A problem with a flag, a URL or a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Where: `--rate`, `URL 2`, `plan.toml:3:7`.
    pub place: String,
    /// What is wrong and what would be right.
    pub text: String,
}

impl Problem {
    /// A problem at `place`.
    pub fn new(place: impl Into<String>, text: impl Into<String>) -> Self {
        Self { place: place.into(), text: text.into() }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.text)
    }
}

impl std::error::Error for Problem {}
