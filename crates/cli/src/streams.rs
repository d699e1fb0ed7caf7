//! The standard streams: the only way to print. A stream that is closed or full causes no panic,
//! and no lost output stays unnoticed.
//!
//! A reader of stdout that has left (`| head`) has what it wanted: the rest is dropped silently,
//! and the command ends with its own exit code. Any other error (a full disk) is reported once, at
//! the end, and the exit code is 1. An error of stderr cannot be reported.

use std::borrow::Cow;
use std::fmt;
use std::io::{self, ErrorKind, Write};
use std::sync::OnceLock;

use record::problem::without_error_number;

static STDOUT_ERROR: OnceLock<io::Error> = OnceLock::new();

/// Prints to stdout, without control characters other than line ends, tabs and colours.
pub(crate) fn print(text: &str) {
    print_with_controls(&without_controls(text));
}

/// Prints to stdout with all control characters, for texts of weir alone.
pub(crate) fn print_with_controls(text: &str) {
    if STDOUT_ERROR.get().is_some() {
        return;
    }
    let mut stdout = io::stdout().lock();
    record_result(stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()));
}

/// Attributes of SGR sequences that stay: those of weir's own texts. Others could hide a text, such as 8.
const ATTRIBUTES: [&str; 10] = ["", "0", "1", "2", "31", "32", "33", "34", "35", "36"];

/// Returns whether a character could change the terminal, or the order in which it shows a line (Unicode UAX #9).
fn is_forbidden(letter: char) -> bool {
    let changes_order = matches!(
        letter,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    );
    letter.is_control() && !matches!(letter, '\n' | '\t') || changes_order
}

/// Replaces the control characters in a text that may contain texts of peers: of records, of agents, of
/// servers. They could change the terminal. Line ends, tabs and weir's own colours stay.
fn without_controls(text: &str) -> Cow<'_, str> {
    if !text.contains(is_forbidden) {
        return Cow::Borrowed(text);
    }
    let mut clean = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(is_forbidden) {
        clean.push_str(&rest[..at]);
        rest = &rest[at..];
        let length = colour_length(rest).unwrap_or_else(|| {
            clean.push(char::REPLACEMENT_CHARACTER);
            0
        });
        clean.push_str(&rest[..length]);
        let skipped = rest.chars().next().map_or(0, char::len_utf8);
        rest = &rest[length.max(skipped)..];
    }
    clean.push_str(rest);
    Cow::Owned(clean)
}

/// Returns the length of the SGR sequence at the start of a text, such as `ESC [ 1 ; 31 m`, if weir has it.
fn colour_length(text: &str) -> Option<usize> {
    let parameters = text.strip_prefix("\x1b[")?;
    let end = parameters.find(|letter: char| !letter.is_ascii_digit() && letter != ';')?;
    let is_own = parameters[..end].split(';').all(|attribute| ATTRIBUTES.contains(&attribute));
    (is_own && parameters[end..].starts_with('m')).then_some(2 + end + 1)
}

/// Stores the error of a failed print to stdout.
pub(crate) fn record_result(printed: io::Result<()>) {
    if let Err(error) = printed {
        // Only the first error is kept: it is the cause.
        let _ = STDOUT_ERROR.set(error);
    }
}

/// Returns whether printing to stdout has failed. An endless command then ends.
pub(crate) fn is_stdout_broken() -> bool {
    STDOUT_ERROR.get().is_some()
}

/// Returns why the output on stdout is incomplete, if it is and somebody wanted it.
pub(crate) fn stdout_error_text() -> Option<String> {
    let error = STDOUT_ERROR.get().filter(|error| error.kind() != ErrorKind::BrokenPipe)?;
    Some(format!("standard output: {}", without_error_number(&error.to_string())))
}

/// Prints text for `warn!` as [`print`] does, and ignores a failure.
pub(crate) fn write_stderr(text: fmt::Arguments<'_>) {
    let text = text.to_string();
    let _ = io::stderr().lock().write_all(without_controls(&text).as_bytes());
}

/// Prints a line to stderr, as `eprintln!` does, but without a panic if the stream is closed or
/// full.
macro_rules! warn {
    ($($text:tt)*) => {
        $crate::streams::write_stderr(format_args!("{}\n", format_args!($($text)*)))
    };
}

/// Prints a line to stderr with the name of the program, for crates that report by a function.
pub(crate) fn notice(text: &str) {
    warn!("weir: {text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_line_ends_tabs_and_colours_reach_a_terminal() {
        for (text, clean) in [
            ("a\tb\n", "a\tb\n"),
            ("\x1b[1;31mx\x1b[0m", "\x1b[1;31mx\x1b[0m"),
            ("\x1b[2J\x1b]0;title\x07", "\u{fffd}[2J\u{fffd}]0;title\u{fffd}"),
            ("\u{9b}2J\r\x1b[", "\u{fffd}2J\u{fffd}\u{fffd}["),
            ("\x1b[31\x1b[m", "\u{fffd}[31\x1b[m"),
            ("é\0é", "é\u{fffd}é"),
            // Hidden, and black on black.
            ("\x1b[8mx\x1b[1;8mx", "\u{fffd}[8mx\u{fffd}[1;8mx"),
            ("\x1b[30;40mx\x1b[38;5;0mx", "\u{fffd}[30;40mx\u{fffd}[38;5;0mx"),
            ("a\u{202e}b\u{2066}c\u{200f}", "a\u{fffd}b\u{fffd}c\u{fffd}"),
            // Letters of scripts from right to left need no control characters.
            ("שלום \u{200d}", "שלום \u{200d}"),
        ] {
            assert_eq!(without_controls(text), clean, "{text:?}");
        }
    }
}
