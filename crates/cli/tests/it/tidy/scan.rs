//! A minimal scanner of Rust source: the positions of comments and literals, the lines of tests,
//! and the start and end of each function. It is no parser: it relies on code that compiles.

use std::ops::Range;

/// Blanks every comment and the inside of every literal. All bytes and line ends keep their
/// positions, so that offsets and line numbers hold for both texts.
pub(crate) fn mask(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut masked = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let (kept_ends, end) = token(bytes, at);
        for byte in &mut masked[at + kept_ends..end.saturating_sub(kept_ends).max(at + kept_ends)] {
            if *byte != b'\n' {
                *byte = b' ';
            }
        }
        at = end;
    }
    String::from_utf8_lossy(&masked).into_owned()
}

/// Returns every string and character literal with its line number, from 1. Comments have none.
pub(crate) fn literals(text: &str) -> Vec<(usize, &str)> {
    let bytes = text.as_bytes();
    let (mut literals, mut at, mut line) = (Vec::new(), 0, 1);
    while at < bytes.len() {
        let (kept_ends, end) = token(bytes, at);
        if kept_ends == 1 && end > at + 1 {
            literals.push((line, text.get(at..end).unwrap_or_default()));
        }
        line += bytes[at..end.min(bytes.len())].iter().filter(|byte| **byte == b'\n').count();
        at = end;
    }
    literals
}

/// Words that no docstring starts with: a relative clause without a head names nothing.
pub(crate) const HEADLESS_STARTS: &[&str] =
    &["What", "Whether", "How", "Who", "Whose", "Where", "Which", "One that", "Those that", "That"];

/// The line numbers, from 1, of docstrings that start with one of [`HEADLESS_STARTS`].
pub(crate) fn headless_docstrings(text: &str) -> impl Iterator<Item = usize> + '_ {
    let is_doc_line = |line: &'_ str| {
        let line = line.trim_start();
        line.starts_with("///") || line.starts_with("//!")
    };
    let before = std::iter::once("").chain(text.lines());
    text.lines().zip(before).zip(1..).filter_map(move |((line, before), number)| {
        let starts = is_doc_line(line) && !is_doc_line(before);
        let words = line.trim_start().get(3..)?.trim_start();
        let is_headless = HEADLESS_STARTS.iter().any(|start| {
            words.strip_prefix(start).is_some_and(|rest| !rest.starts_with(char::is_alphabetic))
        });
        (starts && is_headless).then_some(number)
    })
}

/// Returns how many bytes of the token at `at` to keep at both ends, and where it ends.
fn token(bytes: &[u8], at: usize) -> (usize, usize) {
    let rest = &bytes[at..];
    let after_name = at > 0 && is_name(bytes[at - 1]);
    match rest {
        [b'/', b'/', ..] => (0, at + line_length(rest)),
        [b'/', b'*', ..] => (0, at + block_comment_length(rest)),
        [b'"', ..] => (1, at + string_length(rest)),
        [b'r', b'"' | b'#', ..] if !after_name => match raw_string_length(rest) {
            Some(length) => (1, at + length),
            None => plain(at),
        },
        [b'b' | b'c', b'r', b'"' | b'#', ..] if !after_name => match raw_string_length(&rest[1..]) {
            Some(length) => (1, at + 1 + length),
            None => plain(at),
        },
        [b'\'', ..] => match char_length(rest) {
            Some(length) => (1, at + length),
            None => plain(at),
        },
        _ => plain(at),
    }
}

/// Returns one byte of code, which is kept.
fn plain(at: usize) -> (usize, usize) {
    (1, at + 1)
}

fn line_length(rest: &[u8]) -> usize {
    rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len())
}

/// Returns the length of a block comment; block comments nest.
fn block_comment_length(rest: &[u8]) -> usize {
    let mut depth = 0_usize;
    let mut at = 0;
    while at < rest.len() {
        match &rest[at..] {
            [b'/', b'*', ..] => {
                depth += 1;
                at += 2;
            }
            [b'*', b'/', ..] => {
                depth -= 1;
                at += 2;
                if depth == 0 {
                    return at;
                }
            }
            _ => at += 1,
        }
    }
    rest.len()
}

fn string_length(rest: &[u8]) -> usize {
    let mut at = 1;
    while at < rest.len() {
        match rest[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

/// Returns the length of `r"…"`, `r#"…"#` and so on; `None` for a raw name such as `r#type`.
fn raw_string_length(rest: &[u8]) -> Option<usize> {
    let hashes = rest[1..].iter().take_while(|byte| **byte == b'#').count();
    if rest.get(1 + hashes) != Some(&b'"') {
        return None;
    }
    let body = 2 + hashes;
    let closes = |at: &usize| {
        rest[*at] == b'"' && rest[at + 1..].iter().take_while(|byte| **byte == b'#').count() >= hashes
    };
    Some((body..rest.len()).find(closes).map_or(rest.len(), |at| at + 1 + hashes))
}

/// Returns the length of `'x'`, `'\n'` and so on; `None` for a lifetime or a label.
fn char_length(rest: &[u8]) -> Option<usize> {
    if rest.get(1) == Some(&b'\\') {
        // The character after the backslash may itself be a quote.
        let close = rest.iter().skip(3).position(|byte| *byte == b'\'')?;
        return Some(3 + close + 1);
    }
    let width = match rest.get(1)? {
        b'\'' => return None,
        0..=0x7f => 1,
        0xc0..=0xdf => 2,
        0xe0..=0xef => 3,
        _ => 4,
    };
    (rest.get(1 + width) == Some(&b'\'')).then_some(width + 2)
}

fn is_name(byte: u8) -> bool {
    byte == b'_' || byte.is_ascii_alphanumeric() || byte >= 0x80
}

/// Returns the number of the line that contains `offset`, counted from 0.
pub(crate) fn line_of(text: &str, offset: usize) -> usize {
    text.as_bytes()[..offset].iter().filter(|byte| **byte == b'\n').count()
}

/// Returns the positions of `word` in masked code, except as a part of a longer name.
pub(crate) fn words<'a>(masked: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let bytes = masked.as_bytes();
    masked.match_indices(word).map(|(at, _)| at).filter(move |at| {
        let before = at.checked_sub(1).is_none_or(|before| !is_name(bytes[before]));
        let after = bytes.get(at + word.len()).is_none_or(|after| !is_name(*after));
        before && after
    })
}

/// Returns the end of the item that starts at `from`: after its `;` or its closing brace.
fn item_end(masked: &str, from: usize) -> usize {
    match body_start(masked, from) {
        Some(open) => brace_end(masked, open),
        None => masked[from..].find(';').map_or(masked.len(), |at| from + at + 1),
    }
}

/// Returns the `{` that opens the body of the item at `from`; `None` if a `;` comes first. Braces
/// within parentheses or brackets belong to the signature.
fn body_start(masked: &str, from: usize) -> Option<usize> {
    let mut depth = 0_usize;
    for (at, byte) in masked.bytes().enumerate().skip(from) {
        match byte {
            b'(' | b'[' => depth += 1,
            b')' | b']' => depth = depth.saturating_sub(1),
            b'{' if depth == 0 => return Some(at),
            b';' if depth == 0 => return None,
            _ => {}
        }
    }
    None
}

/// Returns the position after the brace that closes the one at `open`.
fn brace_end(masked: &str, open: usize) -> usize {
    let mut depth = 0_usize;
    for (at, byte) in masked.bytes().enumerate().skip(open) {
        match byte {
            b'{' => depth += 1,
            b'}' => {
                depth -= 1;
                if depth == 0 {
                    return at + 1;
                }
            }
            _ => {}
        }
    }
    masked.len()
}

/// Returns the byte ranges of items that exist only in tests and for fuzzers: `#[cfg(test)]`, `#[test]` and the like.
pub(crate) fn test_ranges(masked: &str) -> Vec<Range<usize>> {
    let mut ranges: Vec<Range<usize>> = Vec::new();
    for (at, _) in masked.match_indices("#[") {
        if ranges.last().is_some_and(|last| at < last.end) {
            continue;
        }
        let end = attribute_end(masked, at);
        let inside: String = masked[at + 2..end - 1].split_whitespace().collect();
        let is_test = ["test", "cfg(test)", "cfg(any(test,fuzzing))"].contains(&&*inside);
        if is_test || inside.starts_with("cfg(all(test,") {
            let mut item = end;
            while masked[item..].trim_start().starts_with("#[") {
                let next = item + masked[item..].find("#[").unwrap_or(0);
                item = attribute_end(masked, next);
            }
            ranges.push(at..item_end(masked, item));
        }
    }
    ranges
}

/// Returns the position after the bracket that closes the attribute at `at`.
fn attribute_end(masked: &str, at: usize) -> usize {
    let mut depth = 0_usize;
    for (offset, byte) in masked.bytes().enumerate().skip(at) {
        match byte {
            b'[' => depth += 1,
            b']' => {
                depth -= 1;
                if depth == 0 {
                    return offset + 1;
                }
            }
            _ => {}
        }
    }
    masked.len()
}

/// Returns the names of modules in their own files that exist only in tests.
pub(crate) fn test_modules(masked: &str) -> Vec<&str> {
    let items = test_ranges(masked).into_iter().map(|range| &masked[range]);
    items
        .filter_map(|item| item.strip_suffix(';')?.rsplit_once("mod ").map(|(_, name)| name.trim()))
        .collect()
}

/// Returns the number of lines outside test items.
pub(crate) fn product_lines(masked: &str) -> usize {
    let all = masked.lines().count();
    let tests = test_ranges(masked).into_iter();
    let in_tests: usize = tests
        .map(|range| line_of(masked, range.end.saturating_sub(1)) - line_of(masked, range.start) + 1)
        .sum();
    all.saturating_sub(in_tests)
}

/// One function with a body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Function {
    pub(crate) name: String,
    /// Line of its `fn`, counted from 1.
    pub(crate) line: usize,
    /// Number of lines from its `fn` to its closing brace.
    pub(crate) lines: usize,
}

/// Returns the functions outside test items. A nested function counts for both.
pub(crate) fn functions(masked: &str) -> Vec<Function> {
    let tests = test_ranges(masked);
    let mut functions_found = Vec::new();
    for at in words(masked, "fn") {
        if tests.iter().any(|range| range.contains(&at)) {
            continue;
        }
        let rest = masked[at + 2..].trim_start();
        let name: String = rest.bytes().take_while(|byte| is_name(*byte)).map(char::from).collect();
        if name.is_empty() {
            continue; // A pointer type or a macro's pattern.
        }
        let Some(open) = body_start(masked, at) else {
            continue;
        };
        let first = line_of(masked, at);
        let last = line_of(masked, brace_end(masked, open) - 1);
        functions_found.push(Function { name, line: first + 1, lines: last - first + 1 });
    }
    functions_found
}

#[test]
fn only_the_first_words_of_a_docstring_count() {
    let text = "/// What it is.\n/// How much.\nx\n    //! Whose.\n// What\n/// Whatever holds.\n";
    assert_eq!(headless_docstrings(text).collect::<Vec<_>>(), [1, 4]);
}

#[test]
fn comments_and_literals_are_blanked_and_nothing_else() {
    let check = |text: &str, expected: &str| assert_eq!(mask(text), expected);
    check("a // b {\nc", "a       \nc");
    check("a /* { /* } */ } */ b", "a                   b");
    check(r#"f("{ \" }", x)"#, r#"f("      ", x)"#);
    check(r##"f(r#"{ " }"#, x)"##, r##"f(r        #, x)"##);
    check(r#"f(b"{", c"}")"#, r#"f(b" ", c" ")"#);
    check(r#"f(br"\")"#, r#"f(b   ")"#);
    check("r#type { r#fn }", "r#type { r#fn }");
    check(
        "'a: loop { x::<'b>('{', '\\'', '\\u{7b}', b'}') }",
        "'a: loop { x::<'b>(' ', '  ', '      ', b' ') }",
    );
    check("&'static str, '\u{e9}'", "&'static str, '  '");
    check("\"open", "\"   n");
}

#[test]
fn words_match_completely() {
    assert_eq!(words("fn fnord a_fn fn", "fn").collect::<Vec<_>>(), [0, 14]);
}

#[test]
fn functions_are_measured_by_their_braces() {
    let text = r##"
//! fn not_this() {
fn one() { '{'; }
pub(crate) async fn two<'a>(x: [u8; { 3 }]) -> &'a str
where
    Self: Sized,
{
    let s = "}";  // }
    let r = r#"}"#;
    if x { '}' } else { b'{' };
    fn inner() {
    }
}
trait T { fn declared(&self) -> u8; fn given(&self) { } }
type F = fn(u8) -> u8;
#[cfg(test)]
mod tests {
    fn helper() {
    }
}
"##;
    let functions_found = functions(&mask(text));
    let got: Vec<_> = functions_found.iter().map(|f| (f.name.as_str(), f.line, f.lines)).collect();
    let expected = [("one", 3, 1), ("two", 4, 10), ("inner", 11, 2), ("given", 14, 1)];
    assert_eq!(got, expected);
}

#[test]
fn test_items_are_not_product() {
    let text = "\
fn a() {}
#[cfg(test)]
use x::{a, b};
#[cfg(test)]
#[allow(clippy::all, reason = \"]\")]
mod tests {
    #[test]
    fn t() {}
}
#[cfg(test)]
pub(crate) mod testing;
#[cfg(any(test, fuzzing))]
fn checked() {}
fn b() {}
#[cfg(not(test))]
fn c() {}
#[cfg(target_os = \"test\")]
fn d() {}
";
    let masked = mask(text);
    assert_eq!(product_lines(&masked), 6);
    assert_eq!(test_modules(&masked), ["testing"]);
    let names: Vec<_> = functions(&masked).into_iter().map(|f| f.name).collect();
    assert_eq!(names, ["a", "b", "c", "d"]);
}
