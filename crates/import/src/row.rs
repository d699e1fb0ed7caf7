//! One row of a table of directives: what it becomes, and an example that a test converts.

use crate::left::Kind;

/// Row of a table.
#[derive(Debug)]
pub struct Row {
    /// Directive, with the words that select the row: `timeout client`.
    pub directive: &'static str,
    /// Kind of the report; `None`: translated.
    pub kind: Option<Kind>,
    /// The key of weir that it becomes, or the reason or remedy.
    pub becomes: &'static str,
    /// A fragment with it.
    pub example: &'static str,
    /// Text in the config of the example; of rows with a kind, in its report. Empty: only that nothing is left.
    pub expected: &'static str,
}

/// Returns the row of a directive: the one with the most words that its words begin with.
pub(crate) fn find<'a>(table: &'a [Row], words: &[&str]) -> Option<&'a Row> {
    let matches = |row: &Row| {
        let mut row_words = row.directive.split(' ');
        let mut own = words.iter();
        row_words.all(|word| own.next() == Some(&word))
    };
    table.iter().filter(|row| matches(row)).max_by_key(|row| row.directive.split(' ').count())
}

/// Returns the row of a directive that is translated.
pub(crate) const fn to(
    directive: &'static str,
    becomes: &'static str,
    example: &'static str,
    expected: &'static str,
) -> Row {
    Row { directive, kind: None, becomes, example, expected }
}

/// Returns the row of a directive of which weir has no equivalent.
pub(crate) const fn no(directive: &'static str, reason: &'static str, example: &'static str) -> Row {
    Row { directive, kind: Some(Kind::NotSupported), becomes: reason, example, expected: "" }
}

/// Returns the row of a directive without an effect in weir.
pub(crate) const fn idle(directive: &'static str, reason: &'static str, example: &'static str) -> Row {
    Row { directive, kind: Some(Kind::NoEffect), becomes: reason, example, expected: "" }
}

/// Returns the row of a directive that the operator must decide about.
pub(crate) const fn needs(directive: &'static str, remedy: &'static str, example: &'static str) -> Row {
    Row { directive, kind: Some(Kind::Needs), becomes: remedy, example, expected: "" }
}
