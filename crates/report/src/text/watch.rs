//! Display of a watched machine: lines as rows of styled text, which a terminal draws and a pipe
//! gets unchanged. `diagnose::alerts` decides the content of the lines.

pub mod layout;
mod sparkline;
pub mod text;

use diagnose::alerts::Severity;

/// Kind of a piece of text, which selects its colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// Everything else.
    Plain,
    /// Secondary text: names of columns, history.
    Dim,
    Heading,
    /// A line with a mark.
    Alert(Severity),
    /// Part of a bar: user code.
    User,
    /// Part of a bar: kernel code.
    System,
    /// Part of a bar: interrupts.
    Interrupt,
    /// Part of a bar: steal.
    Steal,
    Fraction,
}

/// A piece of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    pub text: String,
    pub style: Style,
}

impl Span {
    #[must_use]
    pub fn new(style: Style, text: impl Into<String>) -> Self {
        Self { text: text.into(), style }
    }
}

pub type StyledRow = Vec<Span>;

/// Characters that the terminal can display.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Glyphs {
    /// Block elements of Unicode.
    Blocks,
    Ascii,
}

impl Glyphs {
    /// Detects the glyphs from the locale, as nl_langinfo(3) would: the first of these variables
    /// that is set decides.
    #[must_use]
    pub fn from_locale() -> Self {
        let set = |name: &&str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"].iter().find_map(set).unwrap_or_default();
        let locale = locale.to_ascii_lowercase();
        if locale.contains("utf-8") || locale.contains("utf8") { Self::Blocks } else { Self::Ascii }
    }
}

/// Returns the width of a text in columns. All characters in use are one column wide.
pub fn width(text: &str) -> usize {
    text.chars().count()
}

/// Cuts a text to a width, and marks the cut.
pub fn truncate(text: &str, width_max: usize) -> String {
    if width(text) <= width_max {
        return text.to_owned();
    }
    let head: String = text.chars().take(width_max.saturating_sub(1)).collect();
    format!("{head}~")
}

/// Breaks a text into lines of a width, at least 8, between words; cuts a longer word into pieces. Returns no line of an
/// empty text.
fn wrap(text: &str, width_max: usize) -> Vec<String> {
    let mut lines = super::layout::wrap_anywhere(text, width_max.max(8));
    lines.retain(|line| !line.is_empty());
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_cut_and_broken_at_their_width() {
        assert_eq!(truncate("abcdef", 6), "abcdef");
        assert_eq!(truncate("abcdefg", 6), "abcde~");
        assert_eq!(wrap("one two three four", 9), ["one two", "three", "four"]);
        assert_eq!(wrap("123456789012", 8), ["12345678", "9012"]);
        assert!(wrap("", 8).is_empty());
    }
}
