//! Parameters put into the texts of a file, and unknown placeholders, each with its position.
//!
//! The placeholders that a trial fills in ([`TRIAL_PLACEHOLDERS`]) are left as they are. So are doubled
//! braces, which the trial makes single ones.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use record::document::{Problems, text_or_number};
use record::problem::suggestion;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::file::PARAMETERS_KEY;
use crate::scenario::placeholders::{
    self, DURATION_PLACEHOLDER, TRIAL_PLACEHOLDERS, TextPiece, split_pieces,
};

/// The key of the load's flags.
const FLAGS: &str = "load.flags";
/// Maximum depth of parameters in parameters.
const DEPTH_MAX: usize = 8;
/// Maximum number of placeholders of a file that are filled in.
const FILLS_MAX: u32 = 20_000;
/// Maximum length of a filled text; the longest file of a trial is shorter.
const TEXT_BYTES_MAX: usize = 1 << 20;

/// State of filling parameters into texts.
pub(super) struct ParameterFiller<'a> {
    pub(super) text: &'a str,
    pub(super) parameters: BTreeMap<String, (Range<usize>, String)>,
    /// Parameters that have no text; their placeholders are left as they are.
    pub(super) without_text: BTreeSet<String>,
    /// Parameters that are used somewhere.
    pub(super) used: BTreeSet<String>,
    /// Positions of values that wait for a parameter: their problems are not known yet.
    pub(super) pending_values: BTreeSet<usize>,
    pub(super) problems: Problems,
    /// Number of placeholders that may still be filled in. A few nested parameters can expand to
    /// more text than there is time for.
    fills_left: u32,
    /// True for the file of one trial, which cannot declare parameters.
    is_scenario: bool,
}

impl<'a> ParameterFiller<'a> {
    /// Returns a filler with these parameters; those of `without` are known but have no text.
    pub(super) fn new(
        text: &'a str,
        parameters: BTreeMap<String, (Range<usize>, String)>,
        without: BTreeSet<String>,
    ) -> Self {
        Self {
            text,
            parameters,
            without_text: without,
            used: BTreeSet::new(),
            pending_values: BTreeSet::new(),
            problems: Problems::default(),
            fills_left: FILLS_MAX,
            is_scenario: false,
        }
    }

    /// Returns a filler for the file of one trial: only the placeholders of trials are known.
    pub(super) fn for_scenario(text: &'a str) -> Self {
        Self { is_scenario: true, ..Self::new(text, BTreeMap::new(), BTreeSet::new()) }
    }

    /// Fills in every text of a table; `path` names it.
    pub(super) fn fill_table(&mut self, table: &mut DeTable<'_>, path: &str) {
        for (key, value) in table.iter_mut() {
            let path = match path {
                "" => key.get_ref().to_string(),
                _ => format!("{path}.{}", key.get_ref()),
            };
            self.fill_value(value, &path);
        }
    }

    fn fill_value(&mut self, value: &mut Spanned<DeValue<'_>>, path: &str) {
        let span = value.span();
        match value.get_mut() {
            DeValue::Table(inner) => self.fill_table(inner, path),
            DeValue::Array(inner) => inner.iter_mut().for_each(|element| self.fill_value(element, path)),
            DeValue::String(text) if text.contains('{') => {
                let target = FillTarget { span: &span, value_offset: span.start, path };
                let filled = self.fill_text(text, &target, 0);
                *text = filled.into();
            }
            _ => {}
        }
    }

    fn fill_text(&mut self, text: &str, target: &FillTarget<'_>, depth: usize) -> String {
        let mut filled = String::new();
        for (at, piece) in split_pieces(text) {
            match piece {
                TextPiece::Plain(text) | TextPiece::EscapedBraces(text) => filled.push_str(text),
                TextPiece::Placeholder(name) => {
                    let count = text[..at].matches(&format!("{{{name}}}")).count();
                    match self.resolve(name, target, count, depth) {
                        Some(value) => filled.push_str(&value),
                        None => filled.push_str(&format!("{{{name}}}")),
                    }
                }
            }
            if filled.len() > TEXT_BYTES_MAX {
                let text = format!("longer than {TEXT_BYTES_MAX} bytes with its parameters");
                self.problems.add_error(target.value_offset, text);
                return String::new();
            }
        }
        filled
    }

    /// Returns the text for a placeholder; `None` if the placeholder stays as it is.
    fn resolve(&mut self, name: &str, target: &FillTarget<'_>, count: usize, depth: usize) -> Option<String> {
        if TRIAL_PLACEHOLDERS.contains(&name) {
            if name == DURATION_PLACEHOLDER && target.path != FLAGS {
                let text = format!("'{{{DURATION_PLACEHOLDER}}}' is only valid in '{FLAGS}'");
                self.problems.add_error(self.position(target.span, name, count), text);
            }
            return None;
        }
        let Some((span, text)) = self.parameters.get(name).cloned() else {
            if self.without_text.contains(name) {
                self.used.insert(name.to_owned());
                self.pending_values.insert(target.value_offset);
            } else {
                let text = self.unknown_placeholder_text(name);
                self.problems.add_error(self.position(target.span, name, count), text);
            }
            return None;
        };
        self.used.insert(name.to_owned());
        self.fills_left = self.fills_left.saturating_sub(1);
        if self.fills_left == 0 {
            let text = format!("more than {FILLS_MAX} placeholders");
            self.problems.add_error(target.value_offset, text);
            return None;
        }
        if depth == DEPTH_MAX {
            let text = format!("parameters are nested more than {DEPTH_MAX} deep: '{{{name}}}'");
            self.problems.add_error(self.position(target.span, name, count), text);
            return None;
        }
        Some(self.fill_text(&text, &FillTarget { span: &span, ..*target }, depth + 1))
    }

    fn unknown_placeholder_text(&self, name: &str) -> String {
        let names = self.parameters.keys().map(String::as_str).chain(TRIAL_PLACEHOLDERS.iter().copied());
        let hint = suggestion(name, names);
        let (kind, remedy) = match self.is_scenario {
            true => ("unknown placeholder", ""),
            false => ("no parameter", "add it to [parameters], or "),
        };
        format!("{kind} '{{{name}}}'{hint}: {remedy}write '{{{{{name}}}}}' for the literal text")
    }

    /// Returns the position of a placeholder that comes after `count` others of its name.
    fn position(&self, span: &Range<usize>, name: &str, count: usize) -> usize {
        let raw = self.text.get(span.clone()).unwrap_or_default();
        let occurrence = raw.match_indices(&format!("{{{name}}}")).nth(count);
        span.start + occurrence.map_or(0, |(at, _)| at)
    }
}

/// Returns a text for people, with the parameters of a table of the complete file put in. Problems
/// of the text are reported where it is run.
pub(super) fn display_text(text: &str, file_table: &DeTable<'_>) -> String {
    let given = file_table.get(PARAMETERS_KEY).and_then(|given| given.get_ref().as_table());
    let mut filler = ParameterFiller::new("", parameter_spans(given), BTreeSet::new());
    let text = filler.fill_text(text, &FillTarget { span: &(0..0), value_offset: 0, path: "" }, 0);
    placeholders::fill(&text, |_| None)
}

/// Position of a text.
#[derive(Clone, Copy)]
struct FillTarget<'a> {
    /// The text itself, which may be a parameter's.
    span: &'a Range<usize>,
    /// Position of the file's value that the text goes into.
    value_offset: usize,
    path: &'a str,
}

/// Returns the texts of a table of parameters, with their positions.
pub(super) fn parameter_spans(table: Option<&DeTable<'_>>) -> BTreeMap<String, (Range<usize>, String)> {
    let mut texts = BTreeMap::new();
    for (key, value) in table.into_iter().flatten() {
        if let Some(text) = text_or_number(value.get_ref()) {
            texts.insert(key.get_ref().to_string(), (value.span(), text));
        }
    }
    texts
}
