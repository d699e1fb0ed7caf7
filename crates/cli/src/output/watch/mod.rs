//! How a watched machine is shown: lines as rows of styled text, which a terminal draws and a pipe
//! gets as they are. What the lines say, `lab::marks` decides.

mod bars;
pub(crate) mod layout;
pub(crate) mod screen;
pub(crate) mod text;

use lab::marks::Mark;

/// What a piece of text is, for its colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    Plain,
    /// Beside the matter: names of columns, history.
    Dim,
    /// Headings.
    Heading,
    /// A line that is marked.
    Marked(Mark),
    /// Parts of a bar.
    User,
    System,
    Interrupt,
    Steal,
    Share,
}

/// A piece of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) text: String,
    pub(crate) style: Style,
}

impl Span {
    pub(crate) fn new(style: Style, text: impl Into<String>) -> Self {
        Self { text: text.into(), style }
    }
}

/// One row of the screen.
pub(crate) type Row = Vec<Span>;

/// Which characters the terminal has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Glyphs {
    /// Block elements of Unicode.
    Blocks,
    Ascii,
}

impl Glyphs {
    /// By the locale, as nl_langinfo(3) would: the first of these variables that is set decides.
    pub(crate) fn of_locale() -> Self {
        let set = |name: &&str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"].iter().find_map(set).unwrap_or_default();
        let locale = locale.to_ascii_lowercase();
        if locale.contains("utf-8") || locale.contains("utf8") { Self::Blocks } else { Self::Ascii }
    }
}

/// Characters of a text, which is as wide as it is drawn: all of ours are one column wide.
fn width(text: &str) -> usize {
    text.chars().count()
}

/// A text cut to a width; what is left out is shown.
fn cut(text: &str, width_max: usize) -> String {
    if width(text) <= width_max {
        return text.to_owned();
    }
    let kept: String = text.chars().take(width_max.saturating_sub(1)).collect();
    format!("{kept}~")
}

/// A text in lines of a width, broken between words; a word that is longer is cut in pieces.
fn wrapped(text: &str, width_max: usize) -> Vec<String> {
    let width_max = width_max.max(8);
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let mut word: Vec<char> = word.chars().collect();
        while word.len() > width_max {
            lines.push(word.drain(..width_max).collect());
        }
        let word: String = word.into_iter().collect();
        let last = lines.len() - 1;
        let line = &mut lines[last];
        if line.is_empty() {
            line.push_str(&word);
        } else if width(line) + 1 + width(&word) <= width_max {
            line.push(' ');
            line.push_str(&word);
        } else {
            lines.push(word);
        }
    }
    lines.retain(|line| !line.is_empty());
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_cut_and_broken_at_their_width() {
        assert_eq!(cut("abcdef", 6), "abcdef");
        assert_eq!(cut("abcdefg", 6), "abcde~");
        assert_eq!(wrapped("one two three four", 9), ["one two", "three", "four"]);
        assert_eq!(wrapped("123456789012", 8), ["12345678", "9012"]);
        assert!(wrapped("", 8).is_empty());
    }
}
