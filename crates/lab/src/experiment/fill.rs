//! Parameters put into the texts of a file, and placeholders that nobody knows, each with its place.
//!
//! Not for the placeholders that a trial fills in ([`OF_THE_LAB`]): these are left as they are, and so are
//! doubled braces, which the trial makes single ones.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use record::problem::suggestion;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::file::PARAMETERS;
use crate::scenario::placeholders::{self, DURATION, OF_THE_LAB, Piece, pieces};
use crate::scenario::read::{Problems, plain};

/// The key of the load's flags.
const FLAGS: &str = "load.flags";
/// Parameters may stand in parameters, so deep.
const DEPTH_MAX: usize = 8;
/// So many placeholders of a file are filled in.
const FILLED_MAX: u32 = 20_000;
/// A text may grow so long; the longest file of a trial is shorter.
const TEXT_BYTES_MAX: usize = 1 << 20;

/// What is put into texts, and what was seen on the way.
pub(super) struct Filler<'a> {
    /// The file's text, to find places in.
    pub(super) text: &'a str,
    /// Parameters with their texts, and where these stand.
    pub(super) parameters: BTreeMap<String, (Range<usize>, String)>,
    /// Parameters that have no text; their placeholders are left as they are.
    pub(super) without: BTreeSet<String>,
    /// Parameters that stand somewhere.
    pub(super) used: BTreeSet<String>,
    /// Where values stand that wait for a parameter: what is wrong with them is not known yet.
    pub(super) waiting: BTreeSet<usize>,
    /// What is wrong.
    pub(super) problems: Problems,
    /// How many placeholders may still be filled in: parameters in parameters may be few and stand for
    /// more than there is time for.
    left: u32,
}

impl<'a> Filler<'a> {
    /// With these parameters; those of `without` are known and have no text.
    pub(super) fn new(
        text: &'a str,
        parameters: BTreeMap<String, (Range<usize>, String)>,
        without: BTreeSet<String>,
    ) -> Self {
        Self {
            text,
            parameters,
            without,
            used: BTreeSet::new(),
            waiting: BTreeSet::new(),
            problems: Problems::default(),
            left: FILLED_MAX,
        }
    }

    /// Fills in every text of a table; `path` names it.
    pub(super) fn table(&mut self, table: &mut DeTable<'_>, path: &str) {
        for (key, value) in table.iter_mut() {
            let path = match path {
                "" => key.get_ref().to_string(),
                _ => format!("{path}.{}", key.get_ref()),
            };
            self.value(value, &path);
        }
    }

    fn value(&mut self, value: &mut Spanned<DeValue<'_>>, path: &str) {
        let span = value.span();
        match value.get_mut() {
            DeValue::Table(inner) => self.table(inner, path),
            DeValue::Array(inner) => inner.iter_mut().for_each(|one| self.value(one, path)),
            DeValue::String(text) if text.contains('{') => {
                let place = Place { span: &span, value: span.start, path };
                let filled = self.filled(text, &place, 0);
                *text = filled.into();
            }
            _ => {}
        }
    }

    /// A text with its parameters.
    fn filled(&mut self, text: &str, place: &Place<'_>, depth: usize) -> String {
        let mut filled = String::new();
        for (at, piece) in pieces(text) {
            match piece {
                Piece::Plain(text) | Piece::Doubled(text) => filled.push_str(text),
                Piece::Placeholder(name) => {
                    let count = text[..at].matches(&format!("{{{name}}}")).count();
                    match self.value_of(name, place, count, depth) {
                        Some(value) => filled.push_str(&value),
                        None => filled.push_str(&format!("{{{name}}}")),
                    }
                }
            }
            if filled.len() > TEXT_BYTES_MAX {
                let text = format!("with its parameters it is longer than {TEXT_BYTES_MAX} bytes");
                self.problems.add(place.value, text);
                return String::new();
            }
        }
        filled
    }

    /// What stands for a placeholder; none where it is left as it is.
    fn value_of(
        &mut self,
        name: &str,
        place: &Place<'_>,
        count: usize,
        depth: usize,
    ) -> Option<String> {
        if OF_THE_LAB.contains(&name) {
            if name == DURATION && place.path != FLAGS {
                let text = format!("'{{{DURATION}}}' is known in '{FLAGS}' only");
                self.problems.add(self.position(place.span, name, count), text);
            }
            return None;
        }
        let Some((span, text)) = self.parameters.get(name).cloned() else {
            if self.without.contains(name) {
                self.used.insert(name.to_owned());
                self.waiting.insert(place.value);
            } else {
                let text = self.unknown(name);
                self.problems.add(self.position(place.span, name, count), text);
            }
            return None;
        };
        self.used.insert(name.to_owned());
        self.left = self.left.saturating_sub(1);
        if self.left == 0 {
            let text = format!("there are more than {FILLED_MAX} placeholders to be filled in");
            self.problems.add(place.value, text);
            return None;
        }
        if depth == DEPTH_MAX {
            let text =
                format!("parameters stand in each other more than {DEPTH_MAX} deep: '{{{name}}}'");
            self.problems.add(self.position(place.span, name, count), text);
            return None;
        }
        Some(self.filled(&text, &Place { span: &span, ..*place }, depth + 1))
    }

    fn unknown(&self, name: &str) -> String {
        let known = self.parameters.keys().map(String::as_str).chain(OF_THE_LAB.iter().copied());
        let near = suggestion(name, known);
        format!(
            "nothing stands for '{{{name}}}'{near}: add it to [parameters], or write '{{{{{name}}}}}' \
             for the text itself"
        )
    }

    /// Where the placeholder stands that comes after `count` others of its name.
    fn position(&self, span: &Range<usize>, name: &str, count: usize) -> usize {
        let raw = self.text.get(span.clone()).unwrap_or_default();
        let found = raw.match_indices(&format!("{{{name}}}")).nth(count);
        span.start + found.map_or(0, |(at, _)| at)
    }
}

/// A text for people, with the parameters of a table of the whole file put in. What is wrong with it is
/// told where it is run.
pub(super) fn shown(text: &str, whole: &DeTable<'_>) -> String {
    let given = whole.get(PARAMETERS).and_then(|given| given.get_ref().as_table());
    let mut filler = Filler::new("", parameters(given), BTreeSet::new());
    let text = filler.filled(text, &Place { span: &(0..0), value: 0, path: "" }, 0);
    placeholders::filled(&text, |_| None)
}

/// Where a text stands.
#[derive(Clone, Copy)]
struct Place<'a> {
    /// It itself, which may be a parameter's.
    span: &'a Range<usize>,
    /// The value of the file that it goes into.
    value: usize,
    /// The key of that value.
    path: &'a str,
}

/// The texts of a table of parameters, and where they stand.
pub(super) fn parameters(table: Option<&DeTable<'_>>) -> BTreeMap<String, (Range<usize>, String)> {
    let mut found = BTreeMap::new();
    for (key, value) in table.into_iter().flatten() {
        if let Some(text) = plain(value.get_ref()) {
            found.insert(key.get_ref().to_string(), (value.span(), text));
        }
    }
    found
}
