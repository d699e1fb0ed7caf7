//! Files of patterns (`-f`) and of maps: what HAProxy reads in them, and whether weir reads the same.

/// Maximum length of a key or value of weir.
const TEXT_BYTES_MAX: usize = 4_096;

/// Patterns of a file, or entries of a map.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Content<T> {
    pub(super) items: Vec<T>,
    /// Reason why weir reads the file in another way.
    pub(super) fault: Option<String>,
}

impl<T> Content<T> {
    fn add_fault(&mut self, line: usize, text: &str) {
        self.fault
            .get_or_insert_with(|| format!("weir reads line {line} of the file in another way: {text}"));
    }
}

/// Returns the lines that HAProxy reads: without spaces in front, empty ones and comments in the first column.
fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let lines = text.split('\n').enumerate().map(|(index, line)| (index + 1, line));
    lines.filter(|(_, line)| !line.starts_with('#')).filter_map(|(number, line)| {
        let line = line.split('\r').next().unwrap_or_default().trim_start_matches([' ', '\t']);
        (!line.is_empty()).then_some((number, line))
    })
}

/// Returns the reason why weir does not read this as one key.
fn key_fault(key: &str) -> Option<&'static str> {
    match key {
        _ if key.starts_with('#') => Some("it is a comment there"),
        _ if key.starts_with('\u{feff}') => Some("the file begins with a byte order mark"),
        _ if key.contains(char::is_whitespace) => Some("a key ends at white space"),
        _ if key.chars().any(char::is_control) => Some("a control character"),
        _ if key.len() > TEXT_BYTES_MAX => Some("a key has at most 4096 bytes"),
        _ => None,
    }
}

/// Reads a file of patterns: one on each line.
pub(super) fn patterns(text: &str) -> Content<String> {
    let mut content = Content::default();
    for (number, line) in lines(text) {
        if let Some(fault) = key_fault(line) {
            content.add_fault(number, fault);
        }
        content.items.push(line.to_owned());
    }
    content
}

/// Reads a file of a map: a key, white space and a value on each line.
pub(super) fn entries(text: &str) -> Content<(String, String)> {
    let mut content = Content::default();
    for (number, line) in lines(text) {
        let (key, value) = line.split_once([' ', '\t']).unwrap_or((line, ""));
        let value = value.trim_matches([' ', '\t']);
        if let Some(fault) = key_fault(key) {
            content.add_fault(number, fault);
        }
        if value.chars().any(|letter| letter.is_control() && letter != '\t') || value.len() > TEXT_BYTES_MAX {
            content.add_fault(number, "a value has no control characters, and at most 4096 bytes");
        }
        content.items.push((key.to_owned(), value.to_owned()));
    }
    content
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_patterns_are_those_of_haproxy() {
        let content = patterns("# a\n\n  b\r\n\tc\n#d\ne");
        assert_eq!(content, Content { items: ["b", "c", "e"].map(str::to_owned).into(), fault: None });
        for (text, item) in [("  # a\n", "# a"), ("a b\n", "a b"), ("a \n", "a "), ("\u{1}\n", "\u{1}")] {
            let content = patterns(text);
            assert_eq!(content.items, [item], "{text:?}");
            assert!(content.fault.is_some(), "{text:?}");
        }
        assert_eq!(
            patterns("a\n b c\n").fault.unwrap(),
            "weir reads line 2 of the file in another way: a key ends at white space"
        );
    }

    #[test]
    fn lines_of_maps_have_keys_and_values() {
        let content = entries("a  1 2 \r\n\tb\t3\nc\n#x y\n");
        let expected = [("a", "1 2"), ("b", "3"), ("c", "")];
        assert_eq!(content.items, expected.map(|(key, value)| (key.to_owned(), value.to_owned())));
        assert_eq!(content.fault, None);
        for text in [" #a b\n", "\u{1}a b\n", "a b\u{2}c\n", &format!("a {}\n", "b".repeat(4_097))] {
            assert!(entries(text).fault.is_some(), "{text:?}");
        }
    }
}
