//! Lines of a config of HAProxy: words with quotes, escapes, comments and environment variables.

use std::rc::Rc;

use crate::document::Origin;
use crate::{BYTES_MAX, ParseError, Surroundings};

/// Maximum number of words of a line, as in HAProxy.
const WORDS_MAX: usize = 256;

/// One line with at least one word.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) words: Vec<String>,
    /// False if a variable without a value is missing in it.
    pub(crate) is_complete: bool,
    pub(crate) origin: Rc<Origin>,
}

impl Line {
    /// Returns the word at a position, or an empty text.
    pub(crate) fn word(&self, index: usize) -> &str {
        self.words.get(index).map_or("", String::as_str)
    }

    /// Returns the words from a position.
    pub(crate) fn rest(&self, index: usize) -> &[String] {
        self.words.get(index..).unwrap_or_default()
    }
}

/// Variables without a value, with their lines.
pub(super) type Unset = Vec<(Rc<Origin>, String)>;

/// Splits a config into its lines.
pub(super) fn lines(
    file: &str,
    text: &str,
    surroundings: &mut dyn Surroundings,
) -> Result<(Vec<Line>, Unset), ParseError> {
    let file: Rc<str> = file.into();
    let error =
        |line: usize, reason: &str| ParseError { file: file.to_string(), line, reason: reason.into() };
    if text.len() > BYTES_MAX {
        return Err(error(1, "the config is longer than 4 MiB"));
    }
    let (mut lines, mut unset) = (Vec::new(), Vec::new());
    // Variables may be long: the words together have at most twice the length of a config.
    let mut expanded = 0;
    for (number, raw) in text.lines().enumerate().map(|(index, raw)| (index + 1, raw)) {
        let mut missing = Vec::new();
        let words = words_of(raw, surroundings, &mut missing).map_err(|reason| error(number, reason))?;
        if words.len() > WORDS_MAX {
            return Err(error(number, "the line has more than 256 words"));
        }
        expanded += words.iter().map(String::len).sum::<usize>();
        if expanded > 2 * BYTES_MAX {
            return Err(error(number, "the config is too long with the values of its variables"));
        }
        if !words.is_empty() {
            let origin = Origin { file: Rc::clone(&file), line: number, text: raw.trim().to_owned() };
            let origin = Rc::new(origin);
            let is_complete = missing.is_empty();
            unset.extend(missing.into_iter().map(|name| (Rc::clone(&origin), name)));
            lines.push(Line { words, is_complete, origin });
        }
    }
    Ok((lines, unset))
}

/// Splits one line. Fails with the reason.
fn words_of(
    line: &str,
    surroundings: &mut dyn Surroundings,
    missing: &mut Vec<String>,
) -> Result<Vec<String>, &'static str> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut letters = line.chars().peekable();
    let mut is_quoted = false;
    while let Some(letter) = letters.next() {
        match letter {
            '"' => {
                is_quoted = !is_quoted;
                word.get_or_insert_default();
            }
            '\'' if !is_quoted => {
                let word = word.get_or_insert_default();
                loop {
                    match letters.next() {
                        Some('\'') => break,
                        Some(letter) => word.push(letter),
                        None => return Err("a single quote is not closed"),
                    }
                }
            }
            '\\' => {
                let Some(escaped) = letters.next() else { return Err("a backslash ends the line") };
                let word = word.get_or_insert_default();
                match escaped {
                    'n' => word.push('\n'),
                    't' => word.push('\t'),
                    'r' => word.push('\r'),
                    ' ' | '#' | '"' | '\'' | '\\' | '$' => word.push(escaped),
                    // A regular expression keeps its escapes.
                    escaped => word.extend(['\\', escaped]),
                }
            }
            '#' if !is_quoted => break,
            '$' if is_quoted => {
                let name = variable_name(&mut letters);
                match surroundings.variable(&name) {
                    Some(value) => word.get_or_insert_default().push_str(&value),
                    None => missing.push(name),
                }
            }
            letter if letter.is_whitespace() && !is_quoted => words.extend(word.take()),
            letter => word.get_or_insert_default().push(letter),
        }
    }
    if is_quoted {
        return Err("a double quote is not closed");
    }
    words.extend(word);
    Ok(words)
}

/// Reads the name of a variable: `NAME`, `{NAME}` or `{NAME-default}`, of which the default is dropped.
fn variable_name(letters: &mut std::iter::Peekable<std::str::Chars<'_>>) -> String {
    let is_name = |letter: &char| letter.is_ascii_alphanumeric() || *letter == '_';
    let has_braces = letters.next_if_eq(&'{').is_some();
    let mut name = String::new();
    while let Some(letter) = letters.next_if(is_name) {
        name.push(letter);
    }
    if has_braces {
        for letter in letters.by_ref() {
            if letter == '}' {
                break;
            }
        }
    }
    name
}

/// Replaces `${NAME}` in an address, where HAProxy does that without quotes, too.
pub(crate) fn expand_address(text: &str, surroundings: &mut dyn Surroundings) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${") {
        out.push_str(before);
        let Some((name, after)) = after.split_once('}') else { break };
        out.push_str(&surroundings.variable(name).unwrap_or_default());
        rest = after;
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuzzing::NoSurroundings;

    fn words(line: &str) -> Vec<String> {
        words_of(line, &mut NoSurroundings, &mut Vec::new()).unwrap()
    }

    #[test]
    fn words_have_quotes_escapes_comments_and_variables() {
        assert_eq!(words("  bind *:80 # x"), ["bind", "*:80"]);
        assert_eq!(words(r#"a "b c" 'd "e' f\ g \#h"#), ["a", "b c", "d \"e", "f g", "#h"]);
        assert_eq!(words(r"acl a path_reg ^/a\.b"), ["acl", "a", "path_reg", "^/a\\.b"]);
        assert_eq!(words(r#"x "a$HOMEb" "${HOST}:1" '$HOST'"#), ["x", "a", "host:1", "$HOST"]);
        assert_eq!(words(r#"x """#), ["x", ""]);
        let is_open = |line: &str| words_of(line, &mut NoSurroundings, &mut Vec::new()).is_err();
        assert!(is_open("a \"b") && is_open("a 'b") && is_open("a\\"));
        assert_eq!(expand_address("${HOST}:80", &mut NoSurroundings), "host:80");
    }
}
