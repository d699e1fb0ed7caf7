//! Text of a map: one entry on each line, its key, white space and its value. A line that starts with `#` is a
//! comment. Pure.

use std::fmt;

use super::table::{EntryFault, Table, TableBuilder, TableForm};

/// Maximum size of a file.
pub(super) const FILE_BYTES_MAX: usize = 64 << 20;
/// Maximum number of faults that are reported at a time.
const FAULTS_MAX: usize = 20;

/// Faults of a text, each with its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FileFaults {
    faults: Vec<LineFault>,
    /// Number of faults beyond [`FAULTS_MAX`].
    more: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct LineFault {
    line: usize,
    column: usize,
    fault: Fault,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Fault {
    #[error(transparent)]
    Entry(#[from] EntryFault),
    #[error("invalid UTF-8")]
    NotText,
    #[error("a control character")]
    Control,
    #[error("the key is in line {0} with another value: remove one of them")]
    Conflict(u32),
}

impl FileFaults {
    fn add(&mut self, line: usize, column: usize, fault: impl Into<Fault>) {
        match self.faults.len() {
            FAULTS_MAX => self.more += 1,
            _ => self.faults.push(LineFault { line, column, fault: fault.into() }),
        }
    }

    /// Returns one text for each fault, with the place in a file of this name.
    pub(super) fn texts(&self, name: &dyn fmt::Display) -> Vec<String> {
        let faults = self.faults.iter();
        let mut texts: Vec<String> = faults
            .map(|line_fault| {
                format!("{name}:{}:{}: {}", line_fault.line, line_fault.column, line_fault.fault)
            })
            .collect();
        if self.more > 0 {
            texts.push(format!("{name}: {} more faults", self.more));
        }
        texts
    }
}

/// Parses the content of a file. With `has_comments`, `#` starts a comment anywhere in a line.
///
/// # Errors
/// Returns the faults of all lines; beyond [`FAULTS_MAX`] of them, only their number.
pub(super) fn parse(content: &[u8], form: TableForm, has_comments: bool) -> Result<Table, FileFaults> {
    let mut builder = TableBuilder::new(form);
    let mut faults = FileFaults { faults: Vec::new(), more: 0 };
    // Line of each entry, for conflicts.
    let mut lines: Vec<u32> = Vec::new();
    let content = content.strip_prefix(b"\xef\xbb\xbf").unwrap_or(content);
    for (index, line) in content.split(|&byte| byte == b'\n').enumerate() {
        let number = index + 1;
        let line = match has_comments {
            true => line.split(|&byte| byte == b'#').next().unwrap_or_default(),
            false => line,
        };
        let entry = line.trim_ascii();
        if entry.is_empty() || entry.starts_with(b"#") {
            continue;
        }
        let column = line.len() - line.trim_ascii_start().len() + 1;
        let entry = match check_text(entry) {
            Ok(entry) => entry,
            Err((at, fault)) => {
                faults.add(number, column + at, fault);
                continue;
            }
        };
        let (key, value) = entry.split_once([' ', '\t']).unwrap_or((entry, ""));
        match builder.add(key, Some(value.trim_ascii_start().as_bytes())) {
            Ok(()) => lines.push(number as u32),
            Err(fault @ (EntryFault::TooMany | EntryFault::TooManyExpressions)) => {
                faults.add(number, column, fault);
                return Err(faults);
            }
            Err(fault) => faults.add(number, column, fault),
        }
    }
    if !faults.faults.is_empty() {
        return Err(faults);
    }
    builder.build().map_err(|conflicts| {
        let line = |position: u32| lines.get(position as usize).copied().unwrap_or_default();
        let mut conflicts: Vec<_> =
            conflicts.iter().map(|conflict| (line(conflict.later), line(conflict.earlier))).collect();
        conflicts.sort_unstable();
        for (later, earlier) in conflicts {
            faults.add(later as usize, 1, Fault::Conflict(earlier));
        }
        faults
    })
}

/// Returns the text of an entry, or the position of the first byte that it cannot have.
pub(super) fn check_text(entry: &[u8]) -> Result<&str, (usize, Fault)> {
    let text = std::str::from_utf8(entry).map_err(|error| (error.valid_up_to(), Fault::NotText))?;
    match text.find(|character: char| character.is_control() && character != '\t') {
        Some(at) => Err((at, Fault::Control)),
        None => Ok(text),
    }
}

#[cfg(test)]
mod tests {
    use super::super::table::{Key, MatchKind};
    use super::*;

    const EXACT: TableForm = TableForm { kind: MatchKind::Exact, ignores_case: false };

    fn value(table: &Table, key: &str) -> Option<String> {
        let found = table.find(Key::Text(key.as_bytes()), u32::MAX)?;
        Some(String::from_utf8(found.value?.to_vec()).unwrap())
    }

    #[test]
    fn lines_have_keys_and_values() {
        let text = b"\xef\xbb\xbf# comment\n\n  a   one two \r\nb\t3 #x\nc\n  # indented\nd#e f\n";
        let table = parse(text, EXACT, false).unwrap();
        assert_eq!(table.len(), 4);
        for (key, expected) in [("a", "one two"), ("b", "3 #x"), ("c", ""), ("d#e", "f")] {
            assert_eq!(value(&table, key).as_deref(), Some(expected), "{key}");
        }
        assert_eq!(value(&table, "#"), None);
        assert_eq!(value(&parse(b"a 1 # 2\n#b\nc#d", EXACT, true).unwrap(), "c").as_deref(), Some(""));
    }

    #[test]
    fn all_faults_have_their_places() {
        let text = b"a 1\n \xff\nb \x01\na 2\n";
        let faults = parse(text, EXACT, false).unwrap_err().texts(&"f");
        assert_eq!(faults, ["f:2:2: invalid UTF-8", "f:3:3: a control character"]);
        let faults = parse(b"a 1\nb 1\n a 1\na 2\nb 3", EXACT, false).unwrap_err().texts(&"f");
        let other = |line, first| {
            format!("f:{line}:1: the key is in line {first} with another value: remove one of them")
        };
        assert_eq!(faults, [other(4, 1), other(5, 2)]);
        let network = TableForm { kind: MatchKind::Network, ignores_case: false };
        let faults = parse(b"10.0.0.0/8 x\n10.1.0.0/8\n\nhost\n", network, false).unwrap_err().texts(&"f");
        assert!(faults[0].contains("f:2:1: '10.1.0.0/8' has bits set after its prefix: write 10.0.0.0/8"));
        assert!(faults[1].starts_with("f:4:1: 'host' is not a network"), "{faults:?}");
        let many = "\u{1}\n".repeat(FAULTS_MAX + 5);
        let faults = parse(many.as_bytes(), EXACT, false).unwrap_err().texts(&"f");
        assert_eq!((faults.len(), &*faults[FAULTS_MAX]), (FAULTS_MAX + 1, "f: 5 more faults"));
    }

    #[test]
    fn entries_and_texts_are_bounded() {
        let long = "x".repeat(4_097);
        let faults = parse(format!("{long} 1\na {long}\n").as_bytes(), EXACT, false).unwrap_err().texts(&"f");
        assert!(faults[0].contains("the key has more than 4096 bytes"), "{faults:?}");
        assert!(faults[1].contains("the value has more than 4096 bytes"), "{faults:?}");
        let mut text: String = (0..1_000_000).map(|number| format!("{number}\n")).collect();
        let table = parse(text.as_bytes(), EXACT, false).unwrap();
        assert!(table.len() == 1_000_000 && value(&table, "999999").is_some());
        text.push_str("more\n");
        let faults = parse(text.as_bytes(), EXACT, false).unwrap_err().texts(&"f");
        assert_eq!(faults, ["f:1000001:1: more than 1000000 entries"]);
    }
}
