//! Layout of text in columns: lines that are cut, and paragraphs that are broken into lines, at the width of the
//! page.

use std::borrow::Cow;
use std::sync::OnceLock;

use textwrap::{Options, WordSplitter};

/// Width of a page in a pipe or a file.
const PIPE_WIDTH: usize = 100;
/// Smallest and largest width of a page.
const WIDTHS: (usize, usize) = (40, 160);

static PAGE_WIDTH: OnceLock<usize> = OnceLock::new();

/// Returns the width at which text wraps: that of [`set_page_width`], or 100 in a pipe.
pub fn page_width() -> usize {
    PAGE_WIDTH.get().copied().unwrap_or(PIPE_WIDTH)
}

/// Chooses the width of the page, once: the value of `COLUMNS`, the width of the terminal, or 100 in a pipe.
pub fn set_page_width(columns: Option<&str>, terminal: Option<usize>) {
    let _ = PAGE_WIDTH.set(choose_width(columns, terminal));
}

fn choose_width(columns: Option<&str>, terminal: Option<usize>) -> usize {
    let given = columns.and_then(|text| text.parse().ok());
    let width = [given, terminal].into_iter().flatten().find(|width| *width > 0).unwrap_or(PIPE_WIDTH);
    width.clamp(WIDTHS.0, WIDTHS.1)
}

/// Column at which the text behind a label begins.
pub const LABEL_WIDTH: usize = 13;

/// Formats a label and its text, broken into lines behind the label; an item of a list ("- …") has a further indent.
pub fn wrap_labelled(label: &str, text: &str, width: usize) -> String {
    let label = format!("{label:<LABEL_WIDTH$}");
    let indent = " ".repeat(LABEL_WIDTH + if text.starts_with("- ") { 2 } else { 0 });
    let options = between_words(width).initial_indent(&label).subsequent_indent(&indent);
    textwrap::wrap(&single_spaced(text), options)
        .iter()
        .map(|line| format!("{}\n", line.trim_end()))
        .collect()
}

/// Cuts a line to at most `width` columns; an ellipsis marks the cut.
pub fn fit(line: &str, width: usize) -> String {
    if line.chars().count() <= width {
        return line.to_owned();
    }
    let cut: String = line.chars().take(width.saturating_sub(1)).collect();
    format!("{}…", cut.trim_end())
}

/// Breaks a text between words into lines of at most `width` columns; at least one line, which may be empty. A longer word
/// has a line of its own.
pub fn wrap(text: &str, width: usize) -> Vec<String> {
    wrap_with(text, between_words(width))
}

/// Breaks a text into lines as [`wrap`] does, and a longer word into pieces.
pub fn wrap_anywhere(text: &str, width: usize) -> Vec<String> {
    wrap_with(text, between_words(width).break_words(true))
}

fn wrap_with(text: &str, options: Options<'_>) -> Vec<String> {
    textwrap::wrap(&single_spaced(text), options).into_iter().map(Cow::into_owned).collect()
}

/// Names and addresses stay whole: no line ends at a hyphen.
fn between_words<'a>(width: usize) -> Options<'a> {
    Options::new(width).word_splitter(WordSplitter::NoHyphenation).break_words(false)
}

fn single_spaced(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_line_is_cut_with_an_ellipsis() {
        assert_eq!((fit("short", 5), fit("longer", 5)), ("short".to_owned(), "long…".to_owned()));
    }

    #[test]
    fn the_width_is_that_of_the_variable_or_the_terminal() {
        assert_eq!(choose_width(None, None), 100);
        assert_eq!(choose_width(None, Some(132)), 132);
        assert_eq!(choose_width(Some("70"), Some(132)), 70);
        assert_eq!([Some("x"), Some("0"), Some("5")].map(|text| choose_width(text, None)), [100, 100, 40]);
    }

    #[test]
    fn lines_continue_behind_the_label() {
        let text = wrap_labelled("remedy", &"word ".repeat(40), 100);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines.len() > 1 && lines.iter().all(|line| line.chars().count() <= 100));
        assert!(lines[0].starts_with("remedy       word") && lines[1].starts_with("             word"));
        assert_eq!(text.matches("word").count(), 40);
        let item = wrap_labelled("", &format!("- {}", "word ".repeat(40)), 60);
        assert!(item.lines().nth(1).unwrap().starts_with("               word"), "{item}");
    }

    #[test]
    fn a_text_is_broken_between_words() {
        assert_eq!(wrap("one two  three", 7), ["one two", "three"]);
        assert_eq!(wrap("incomprehensible it is", 5), ["incomprehensible", "it is"]);
        assert_eq!(wrap("", 5), [""]);
    }
}
