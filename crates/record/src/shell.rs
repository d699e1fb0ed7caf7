//! Command lines for a shell, as people type them.

use std::borrow::Cow;

use crate::invalid_value;
use crate::problem::InvalidValue;

/// Formats words for a shell, with quotes where needed.
pub fn quoted(words: &[String]) -> String {
    // NUL cannot be quoted, and the arguments of a process never contain it.
    let words = words.iter().map(|word| word.replace('\0', ""));
    let quoted = words.map(|word| shlex::try_quote(&word).map(Cow::into_owned).unwrap_or_default());
    quoted.collect::<Vec<_>>().join(" ")
}

/// Splits a command line into words as a POSIX shell does: quotation marks, backslashes and comments. Variables
/// and wildcards stay as they are.
///
/// # Errors
/// A quotation mark is not closed, or the last character is a backslash.
pub fn split_words(line: &str) -> Result<Vec<String>, InvalidValue> {
    shlex::split(line).ok_or_else(|| {
        // The character that would complete the line shows what it lacks.
        let is_complete_with = |end: char| shlex::split(&format!("{line}{end}")).is_some();
        match ['\\', '\''].into_iter().find(|end| is_complete_with(*end)) {
            Some('\\') => invalid_value!("a backslash is the last character: write \\\\ for a backslash"),
            Some(_) => invalid_value!(
                "the quotation mark ' is not closed: close it, or write \"'\" for an apostrophe"
            ),
            None => invalid_value!(
                "the quotation mark \" is not closed: close it, or write '\"' for a quotation mark"
            ),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_split_as_a_shell_does() {
        let words = |line: &str| split_words(line).unwrap();
        assert_eq!(words(" a  'b c'\"d\" '' "), ["a", "b cd", ""]);
        assert_eq!(words(r#"sh -c 'a\n' a\ b "c\"d" e"#), ["sh", "-c", r"a\n", "a b", "c\"d", "e"]);
        assert_eq!(words("-H 'x: #1' http://h/#top # a comment"), ["-H", "x: #1", "http://h/#top"]);
        assert_eq!(words("{subject} $HOME *"), ["{subject}", "$HOME", "*"]);
        assert_eq!(words(""), [""; 0]);
    }

    #[test]
    fn an_incomplete_line_says_what_it_lacks() {
        let problem = |line: &str| split_words(line).unwrap_err().to_string();
        assert_eq!(
            problem("a 'b"),
            "the quotation mark ' is not closed: close it, or write \"'\" for an apostrophe"
        );
        let double = "the quotation mark \" is not closed: close it, or write '\"' for a quotation mark";
        for line in ["a \"b", "it \"isn't", "a \"b\\"] {
            assert_eq!(problem(line), double);
        }
        assert_eq!(problem("a b\\"), "a backslash is the last character: write \\\\ for a backslash");
    }

    #[test]
    fn a_shell_reads_the_same_words() {
        let words = ["weir", "--set", "a b", "it's", "", "load=10,20"].map(str::to_owned);
        let line = quoted(&words);
        assert_eq!(shlex::split(&line), Some(words.to_vec()), "{line}");
        assert!(line.starts_with("weir --set 'a b' "), "{line}");
    }
}
