//! Command lines for a shell, as people type them.

use std::borrow::Cow;

/// Formats words for a shell, with quotes where needed.
pub fn quoted(words: &[String]) -> String {
    // NUL cannot be quoted, and the arguments of a process never contain it.
    let words = words.iter().map(|word| word.replace('\0', ""));
    let quoted = words.map(|word| shlex::try_quote(&word).map(Cow::into_owned).unwrap_or_default());
    quoted.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_reads_the_same_words() {
        let words = ["weir", "--set", "a b", "it's", "", "load=10,20"].map(str::to_owned);
        let line = quoted(&words);
        assert_eq!(shlex::split(&line), Some(words.to_vec()), "{line}");
        assert!(line.starts_with("weir --set 'a b' "), "{line}");
    }
}
