//! Problem with user input: its position, a description, and a remedy. Parsers collect all problems
//! before they give up.

use std::fmt;

use strsim::osa_distance;

/// A problem with a flag, a URL or a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InputProblem {
    /// Position: `--rate`, `URL 2`, `plan.toml:3:7`; empty if the text begins with it.
    pub location: String,
    /// Description of the error and of correct input.
    pub text: String,
}

impl InputProblem {
    pub fn new(location: impl Into<String>, text: impl fmt::Display) -> Self {
        Self { location: location.into(), text: text.to_string() }
    }

    /// Creates a problem of which the text begins with the position, as errors of files do.
    pub fn from_file_error(text: impl fmt::Display) -> Self {
        Self::new("", text)
    }
}

impl fmt::Display for InputProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.location.is_empty() {
            true => f.write_str(&self.text),
            false => write!(f, "{}: {}", self.location, self.text),
        }
    }
}

impl std::error::Error for InputProblem {}

/// Value that a user wrote and that is wrong, without its position: an [`InputProblem`] adds that. The text
/// names the value and says what to write instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidValue(String);

impl InvalidValue {
    /// Creates the error from the reason of another parser. [`invalid_value!`](crate::invalid_value) has the
    /// short form for a text.
    pub fn new(reason: impl fmt::Display) -> Self {
        Self(reason.to_string())
    }
}

/// Returns a text of a peer for a person: at most `bytes_max` bytes, and control characters replaced, which
/// could change a terminal or forge a line of a log. Line ends and tabs become spaces.
pub fn printable(text: &str, bytes_max: usize) -> String {
    let shown = &text[..text.floor_char_boundary(bytes_max)];
    let shown = shown.chars().map(|letter| match letter {
        '\n' | '\r' | '\t' => ' ',
        letter if letter.is_control() => char::REPLACEMENT_CHARACTER,
        letter => letter,
    });
    let shown: String = shown.collect();
    if shown.len() <= bytes_max { shown } else { shown[..shown.floor_char_boundary(bytes_max)].to_owned() }
}

/// Removes ` (os error 2)`, which the standard library adds to the words of the operating system.
pub fn without_error_number(text: &str) -> String {
    const BEGIN: &str = " (os error ";
    let mut parts = text.split(BEGIN);
    let mut shown = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part.split_once(')') {
            Some((number, rest))
                if !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()) =>
            {
                shown += rest;
            }
            _ => {
                shown += BEGIN;
                shown += part;
            }
        }
    }
    shown
}

/// Creates an [`InvalidValue`](crate::problem::InvalidValue) from the arguments of `format!`.
#[macro_export]
macro_rules! invalid_value {
    ($($text:tt)+) => { $crate::problem::InvalidValue::new(format_args!($($text)+)) };
}

/// Returns ` (did you mean 'x'?)` for the nearest of `known`, if one is near.
pub fn suggestion<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let normalized = word.replace('_', "-").to_lowercase();
    let nearest = known
        .into_iter()
        // A word from a file may be long, and then it is not near to anything.
        .filter(|known| known.len().abs_diff(normalized.len()) <= known.len())
        .map(|known| (word_distance(&normalized, known), known))
        .filter(|(distance, known)| *distance <= (known.len() / 3).max(1))
        .min();
    nearest.map_or_else(String::new, |(_, known)| format!(" (did you mean '{known}'?)"))
}

/// Returns the edit distance of two names, whose words may be in any order, as of `max-idle` and `idle-max`. A name
/// of one long word is near to those that contain it.
fn word_distance(name: &str, known: &str) -> usize {
    const LONG_WORD_BYTES: usize = 4;
    let ordered = |name: &str| {
        let mut words: Vec<&str> = name.split('-').collect();
        words.sort_unstable();
        words.join("-")
    };
    if name.len() >= LONG_WORD_BYTES && known.split('-').any(|word| word == name) {
        return 1;
    }
    osa_distance(name, known).min(osa_distance(&ordered(name), &ordered(known)))
}

/// Returns the nearest of `known`, if one is near. Unlike [`suggestion`] it takes names as they are.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let near = known
        .into_iter()
        .filter(|known| known.len().abs_diff(word.len()) <= known.len() / 3)
        .map(|known| (osa_distance(word, known), known))
        .filter(|(distance, known)| *distance <= (known.len() / 4).max(1));
    near.min().map(|(_, known)| known)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_of_a_peer_changes_no_terminal_and_has_a_maximum_length() {
        assert_eq!(printable("a\u{1b}[2J\nb\u{9b}c\u{7f}é", 100), "a\u{fffd}[2J b\u{fffd}c\u{fffd}é");
        assert_eq!((printable("éé", 3), printable("\0\0\0", 4)), ("é".to_owned(), "\u{fffd}".to_owned()));
    }

    #[test]
    fn the_nearest_word_is_suggested() {
        let known = ["retries", "reuse", "queue", "idle-max"];
        assert_eq!(suggestion("retrys", known), " (did you mean 'retries'?)");
        assert_eq!(suggestion("Idle_Max", known), " (did you mean 'idle-max'?)");
        assert_eq!(suggestion("max-idle", known), " (did you mean 'idle-max'?)");
        assert_eq!(suggestion("skew", ["clock-skew", "issuer"]), " (did you mean 'clock-skew'?)");
        assert_eq!(suggestion("frobnicate", known), "");
        assert_eq!(suggestion("wbe", ["web"]), " (did you mean 'web'?)");
        assert_eq!((osa_distance("kitten", "sitting"), osa_distance("", "ab")), (3, 2));
    }
}
