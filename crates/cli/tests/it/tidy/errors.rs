//! Finds product code whose error type is a text.

use super::scan;

/// Returns the lines, from 1, of error types that are a `String`: of a `Result`, also across lines, and of the
/// associated types `Err` and `Error`.
pub(super) fn untyped(text: &str) -> Vec<usize> {
    let masked = scan::mask(text);
    let tests = scan::test_ranges(&masked);
    let results = scan::words(&masked, "Result")
        .filter(|at| second_argument(&masked[at + "Result".len()..]).is_some_and(is_string));
    let associated = ["Err", "Error"].into_iter().flat_map(|name| {
        scan::words(&masked, name).filter(|at| {
            let value = masked[at + name.len()..].trim_start().strip_prefix('=');
            value.is_some_and(|value| is_string(value.split([';', '>', ',']).next().unwrap_or_default()))
        })
    });
    let found = results.chain(associated).filter(|at| !tests.iter().any(|range| range.contains(at)));
    let mut lines: Vec<usize> = found.map(|at| scan::line_of(&masked, at) + 1).collect();
    lines.sort_unstable();
    lines
}

fn is_string(name: &str) -> bool {
    name.trim().rsplit("::").next() == Some("String")
}

/// Returns the second of the generic arguments at the start of a text.
fn second_argument(text: &str) -> Option<&str> {
    let text = text.strip_prefix("::").unwrap_or(text).strip_prefix('<')?;
    let (mut depth, mut second, mut previous) = (0_usize, None, ' ');
    for (at, letter) in text.char_indices() {
        match letter {
            '<' | '(' | '[' => depth += 1,
            // The head of an arrow closes nothing.
            '>' if previous == '-' => {}
            '>' if depth == 0 => return second.map(|start| &text[start..at]),
            '>' | ')' | ']' => depth = depth.checked_sub(1)?,
            // A comma may follow the last argument.
            ',' if depth == 0 && second.is_some() => return second.map(|start| &text[start..at]),
            ',' if depth == 0 => second = Some(at + 1),
            _ => {}
        }
        previous = letter;
    }
    None
}

#[test]
fn texts_as_errors_are_found() {
    let text = "\
fn a() -> Result<(u8, String), String> {}
fn b(read: &dyn Fn(&str) -> Result<Vec<u8>, std::string::String>) -> Result<BTreeMap<String, String>, Failure> {}
struct C { d: Option<Result<
    u8,
    String,
>> }
type Err = String;
fn e<T: FromStr<Err = String>>() -> Result<Box<dyn Fn(u8) -> u8>, String> {}
fn f() -> fmt::Result { g::<Result<String, Vec<String>>, String>() }
// Result<u8, String>
fn h() { collect::<Result::<u8, String>>(\"Result<u8, String>\") }
type Error = InvalidValue;
#[cfg(test)]
mod tests {
    fn i() -> Result<u8, String> {}
}
";
    assert_eq!(untyped(text), [1, 2, 3, 7, 8, 8, 11]);
}
