//! Regular expressions in their order, of which the first one that matches decides.

use regex::{Regex, RegexBuilder};

use super::{Conflict, EntryFault, Match, Records};

/// Maximum size in bytes of a compiled regular expression; its state cache may take four times
/// that. Larger expressions are rejected: `\w{1000}` is short to write.
pub const REGEX_BYTES_MAX: usize = 256 << 10;
/// Maximum number of expressions of a table. A search tries one after the other.
pub(crate) const EXPRESSIONS_MAX: usize = 256;

pub(super) struct ExpressionIndex {
    entries: Box<[Expression]>,
}

struct Expression {
    offset: u32,
    regex: Regex,
}

/// Compiles an expression with the limits of those of routes.
pub(super) fn compile(key: &str, ignores_case: bool) -> Result<Regex, EntryFault> {
    let mut builder = RegexBuilder::new(key);
    builder.case_insensitive(ignores_case).size_limit(REGEX_BYTES_MAX).dfa_size_limit(4 * REGEX_BYTES_MAX);
    builder.build().map_err(|error| match error {
        regex::Error::CompiledTooBig(_) => {
            EntryFault::LargeExpression { text: key.into(), kib_max: REGEX_BYTES_MAX >> 10 }
        }
        // The last line has the reason; those before it mark the position.
        other => {
            let message = other.to_string();
            let reason = message.lines().last().unwrap_or_default().trim_start_matches("error: ");
            EntryFault::Expression { text: key.into(), reason: reason.into() }
        }
    })
}

impl ExpressionIndex {
    pub(super) fn build(
        records: &Records,
        expressions: Vec<(u32, Regex)>,
        conflicts: &mut Vec<Conflict>,
    ) -> Self {
        let mut entries: Vec<Expression> = Vec::with_capacity(expressions.len());
        // Positions in the input of those that are kept.
        let mut kept: Vec<u32> = Vec::new();
        for (position, (offset, regex)) in expressions.into_iter().enumerate() {
            let (key, value) = records.get(offset);
            match entries.iter().position(|other| records.key(other.offset) == key) {
                Some(earlier) if records.get(entries[earlier].offset).1 != value => {
                    conflicts.push(Conflict { earlier: kept[earlier], later: position as u32 });
                }
                Some(_) => {}
                None => {
                    entries.push(Expression { offset, regex });
                    kept.push(position as u32);
                }
            }
        }
        Self { entries: entries.into() }
    }

    /// Returns the first entry that matches. All entries count alike: a table of expressions has no changes beside it.
    pub(super) fn find<'t>(&self, text: &[u8], below: u32, records: &'t Records) -> Option<Match<'t>> {
        let text = String::from_utf8_lossy(text);
        let is_match = |entry: &&Expression| below > 1 && entry.regex.is_match(&text);
        let entry = self.entries.iter().find(is_match)?;
        Some(Match { specificity: 1, value: records.get(entry.offset).1 })
    }

    /// Returns the record of an expression.
    pub(super) fn own_record(&self, key: &[u8], records: &Records) -> Option<u32> {
        self.entries.iter().map(|entry| entry.offset).find(|&offset| records.key(offset) == key)
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns the memory of the index, without that of the compiled expressions, which nobody reports.
    pub(super) fn memory_bytes(&self) -> usize {
        size_of_val(&*self.entries)
    }

    /// Returns the records in the order of the entries.
    pub(super) fn offsets(&self) -> impl Iterator<Item = u32> {
        self.entries.iter().map(|entry| entry.offset)
    }
}
