//! Messages for texts that are not TOML, and for keys and tables that are given twice.

use std::ops::Range;

use toml::de::Error;

use super::Located;

pub(super) fn error_offset(text: &str, error: &Error) -> usize {
    error.span().map_or(text.len(), |span| span.start)
}

/// Returns whether a key or table is given twice. The rest of the file is readable then.
pub(super) fn is_duplicate(error: &Error) -> bool {
    error.message().contains("duplicate key")
}

/// Describes the errors, each at its byte offset. A table that is given twice is one error: its
/// keys, which the parser adds to the first table, are not reported again.
pub(super) fn describe_errors(text: &str, errors: &[Error]) -> Vec<Located<String>> {
    let duplicates = errors.iter().filter(|error| is_duplicate(error));
    let repeated_tables: Vec<Range<usize>> =
        duplicates.filter_map(|error| lines_below_heading(text, error_offset(text, error))).collect();
    let is_in_repeated_table = |offset: usize| repeated_tables.iter().any(|lines| lines.contains(&offset));
    let with_offsets = errors.iter().map(|error| (error_offset(text, error), error));
    let reported =
        with_offsets.filter(|(offset, error)| !is_duplicate(error) || !is_in_repeated_table(*offset));
    reported.map(|(offset, error)| Located::new(describe_error(text, offset, error), offset)).collect()
}

fn describe_error(text: &str, offset: usize, error: &Error) -> String {
    if is_duplicate(error) {
        return describe_duplicate(text, offset);
    }
    if let Some(key) = key_without_value(text, offset) {
        return format!("missing value after '{key} ='");
    }
    let message = error.message();
    let hint = if message.contains("string values must be quoted") { "" } else { " (this is not TOML)" };
    format!("{message}{hint}")
}

fn describe_duplicate(text: &str, offset: usize) -> String {
    let Some(heading) = heading_at(text, offset) else {
        let key = text.get(offset..).and_then(|rest| rest.split(['=', ']', '\n']).next()).unwrap_or_default();
        return format!("duplicate key '{}': each key can be given only once", key.trim());
    };
    let line = text.get(..offset).unwrap_or(text).matches('\n').count();
    let first = text.lines().take(line).position(|line| heading_of(line) == Some(heading));
    match first {
        Some(first) => format!("duplicate table {heading}: the first one is on line {}", first + 1),
        None => format!("duplicate table {heading}: each table can be given only once"),
    }
}

/// Returns the key before `offset` if its line ends there, after its `=`.
fn key_without_value(text: &str, offset: usize) -> Option<&str> {
    let (before, rest) = (text.get(..offset)?, text.get(offset..)?);
    let rest = rest.trim_start_matches([' ', '\t']);
    let is_end = rest.is_empty() || rest.starts_with(['\n', '\r', '#']);
    let key = before.rsplit('\n').next()?.trim_end().strip_suffix('=')?.trim();
    is_end.then_some(key)
}

/// Returns the byte range of the lines below the heading at `offset`; `None` if there is no heading.
fn lines_below_heading(text: &str, offset: usize) -> Option<Range<usize>> {
    heading_at(text, offset)?;
    let rest = text.get(offset..)?;
    let start = rest.find('\n')?;
    let length = rest[start..].find("\n[").unwrap_or(rest.len() - start);
    Some(offset + start..offset + start + length)
}

fn heading_at(text: &str, offset: usize) -> Option<&str> {
    let start = text.get(..offset)?.rfind('\n').map_or(0, |end| end + 1);
    heading_of(text[start..].lines().next()?)
}

/// Returns the heading of a table in a line: `[pool.app]`.
fn heading_of(line: &str) -> Option<&str> {
    let line = line.trim();
    let end = line.find(']')?;
    let is_name = |character: char| character.is_alphanumeric() || "._- :\"'".contains(character);
    line.strip_prefix('[')?[..end - 1].chars().all(is_name).then(|| &line[..=end])
}

#[cfg(test)]
mod tests {
    use toml::de::DeTable;

    use super::*;

    fn messages(text: &str) -> Vec<String> {
        let (_, errors) = DeTable::parse_recoverable(text);
        describe_errors(text, &errors).into_iter().map(|error| error.value).collect()
    }

    #[test]
    fn a_table_that_is_given_twice_is_one_error_with_the_first_line() {
        let text = "[a.b]\nx = 1\n[c]\ny = 1\n[a.b]\nx = 1\n[d]\nx = 1\nx = 2\n";
        let messages = messages(text);
        assert_eq!(messages.len(), 2, "{messages:?}");
        assert!(messages[0].contains("[a.b]") && messages[0].ends_with("line 1"), "{messages:?}");
        assert!(messages[1].contains("'x'"), "{messages:?}");
    }

    #[test]
    fn a_key_without_a_value_is_named() {
        for text in ["pool =\n", "pool = ", "a = 1\n  pool = # app\n"] {
            assert_eq!(messages(text), ["missing value after 'pool ='"], "{text}");
        }
        assert!(!messages("pool = app\n")[0].contains("missing"));
    }

    #[test]
    fn headings_are_distinguished_from_lists() {
        assert_eq!(heading_of(" [pool.\"a b\"] # x"), Some("[pool.\"a b\"]"));
        assert_eq!((heading_of("[{ a = 1 }]"), heading_of("x = [1]"), heading_of("]")), (None, None, None));
    }
}
