//! Parts of an experiment's file: its own keys, one trial's file, and the parameters.

use std::borrow::Cow;
use std::collections::BTreeMap;

use record::document::Problems;
use record::document::table::{NamedTable, TableValues, unknown_key_text};
use record::problem::{InputProblem, suggestion};
use record::sorted::CollectSorted;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{Parameter, REPEAT_SUFFIX};
use crate::scenario::keys::{EXPERIMENT, FILE};
use crate::scenario::placeholders::{TRIAL_PLACEHOLDERS, is_name};
use crate::scenario::read::read_table;

/// Maximum length of a name, which becomes part of file names.
const NAME_BYTES_MAX: usize = 40;
const PARAMETERS_MAX: usize = 64;
/// The key of the parameters, in files and in patches.
pub(super) const PARAMETERS_KEY: &str = "parameters";

pub(super) struct FileParts<'t> {
    /// Keys that only an experiment has, not the file of one trial.
    pub(super) experiment: TableValues,
    /// The file of one trial, with `parameters` as texts.
    pub(super) base: DeTable<'t>,
    /// `[arms]` and `[loads]`, as in the file.
    pub(super) arms: Option<Spanned<DeValue<'t>>>,
    pub(super) loads: Option<Spanned<DeValue<'t>>>,
    /// Every parameter, with its position.
    pub(super) parameters: BTreeMap<String, usize>,
}

impl<'t> FileParts<'t> {
    pub(super) fn split(document: &DeTable<'t>, problems: &mut Problems) -> Self {
        let (mut own, mut base) = (DeTable::default(), DeTable::default());
        for (key, value) in document {
            let name: &str = key.get_ref();
            if FILE.iter().any(|row| row.name == name) {
                base.insert(key.clone(), value.clone());
            } else if EXPERIMENT.iter().any(|row| row.name == name) {
                own.insert(key.clone(), value.clone());
            } else {
                let names: Vec<&str> = EXPERIMENT.iter().chain(FILE).map(|row| row.name).collect();
                problems.add_error(key.span().start, unknown_key_text("", name, &names));
            }
        }
        let (arms, loads) = (own.get("arms").cloned(), own.get("loads").cloned());
        let given = own.get(PARAMETERS_KEY).and_then(|given| given.get_ref().as_table());
        if let Some((key, _)) = own.iter().find(|(key, _)| *key.get_ref() == PARAMETERS_KEY) {
            let texts = given.map(parameter_texts).unwrap_or_default();
            base.insert(key.clone(), Spanned::new(key.span(), DeValue::Table(texts)));
        }
        let own = read_table(&own, EXPERIMENT, problems);
        let parameters = parameter_positions(&own, problems);
        Self { experiment: own, base, arms, loads, parameters }
    }

    pub(super) fn set_parameters(&mut self, given: &[(String, String)]) -> Vec<InputProblem> {
        let mut problems = Vec::new();
        for (name, text) in given {
            let Some(at) = self.parameters.get(name) else {
                problems.push(InputProblem::new("--set", self.unknown_parameter_text(name)));
                continue;
            };
            let span = *at..*at + name.len();
            let texts = self.base.get_mut(PARAMETERS_KEY).map(Spanned::get_mut);
            if let Some(DeValue::Table(texts)) = texts {
                let key = Spanned::new(span.clone(), Cow::Owned(name.clone()));
                texts.remove(name.as_str());
                let text = DeValue::String(Cow::Owned(text.clone()));
                texts.insert(key, Spanned::new(span, text));
            }
        }
        problems
    }

    /// Returns the message that a parameter does not exist.
    pub(super) fn unknown_parameter_text(&self, name: &str) -> String {
        let hint = suggestion(name, self.parameters.keys().map(String::as_str));
        let names: Vec<&str> = self.parameters.keys().map(String::as_str).collect();
        let names = if names.is_empty() { "there are none".to_owned() } else { names.join(", ") };
        format!("there is no parameter '{name}'{hint}; in [parameters]: {names}")
    }

    /// Returns the parameters, in the order of the file.
    pub(super) fn declared_parameters(&self) -> Vec<Parameter> {
        let parameter = |entry: &NamedTable| Parameter {
            name: entry.name.clone(),
            doc: entry.values.text("doc").unwrap_or_default().to_owned(),
            value: entry.values.text("value").map(str::to_owned),
        };
        self.experiment.tables(PARAMETERS_KEY).iter().map(parameter).collect()
    }

    /// Returns the experiment's name, or else the file's.
    pub(super) fn name(&self, file: &str) -> String {
        self.experiment.text("name").map_or_else(|| name_from_file(file), str::to_owned)
    }

    /// Returns the title, or else the name.
    pub(super) fn title(&self, file: &str) -> String {
        let title = self.base.get("title").and_then(|title| title.get_ref().as_str());
        title.map_or_else(|| self.name(file), str::to_owned)
    }
}

/// Returns the texts of parameters. Values that are not texts are reported when their keys are
/// read.
fn parameter_texts<'t>(given: &DeTable<'t>) -> DeTable<'t> {
    let mut texts = DeTable::default();
    for (key, value) in given {
        let text = match value.get_ref() {
            DeValue::Table(inner) => inner.get("value"),
            _ => Some(value),
        };
        if let Some(text) = text {
            texts.insert(key.clone(), text.clone());
        }
    }
    texts
}

fn parameter_positions(own: &TableValues, problems: &mut Problems) -> BTreeMap<String, usize> {
    if let Some(name) = own.text("name").filter(|name| !is_valid_name(name)) {
        problems.add_error(own.offset_of("name"), invalid_name_text(name));
    }
    let entries = own.tables(PARAMETERS_KEY);
    if entries.len() > PARAMETERS_MAX {
        let text = format!("more than {PARAMETERS_MAX} parameters");
        problems.add_error(own.offset_of(PARAMETERS_KEY), text);
    }
    for entry in entries {
        let name = &entry.name;
        if !is_name(name) {
            let text = format!(
                "'{name}' is not a valid parameter name: lower-case letters, digits, '-' and '_', a letter first"
            );
            problems.add_error(entry.offset, text);
        } else if TRIAL_PLACEHOLDERS.contains(&name.as_str()) {
            problems.add_error(entry.offset, format!("'{{{name}}}' is reserved: choose another name"));
        }
    }
    entries.iter().map(|entry| (entry.name.clone(), entry.offset)).collect_map()
}

/// Returns whether file names can be made of a name.
pub(super) fn is_valid_name(name: &str) -> bool {
    let fits = |character: char| character.is_ascii_alphanumeric() || character == '-';
    name.chars().all(fits)
        && !name.starts_with('-')
        && (1..=NAME_BYTES_MAX).contains(&name.len())
        && !name.ends_with(REPEAT_SUFFIX)
}

pub(super) fn invalid_name_text(name: &str) -> String {
    match name.ends_with(REPEAT_SUFFIX) {
        true => format!(
            "'{name}' is not a valid name: '{REPEAT_SUFFIX}' is reserved for the baseline's second arm"
        ),
        false => format!(
            "'{name}' is not a valid name: at most {NAME_BYTES_MAX} letters, digits and '-', not starting with '-'"
        ),
    }
}

/// Returns the name for a file: `b` for `a/b.toml`, with `-` for characters that names cannot have.
fn name_from_file(file: &str) -> String {
    let stem = file.rsplit('/').next().unwrap_or(file);
    let stem = stem.rsplit_once('.').map_or(stem, |(stem, _)| stem);
    slug(stem)
}

/// Converts a text to a part of a name.
pub(super) fn slug(text: &str) -> String {
    let word = |character: char| if character.is_ascii_alphanumeric() { character } else { '-' };
    let plain: String = text.chars().map(word).collect();
    let words: Vec<&str> = plain.split('-').filter(|word| !word.is_empty()).collect();
    let mut name = words.join("-");
    name.truncate(NAME_BYTES_MAX);
    let name = name.trim_end_matches('-').to_owned();
    if name.is_empty() { "x".to_owned() } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_made_of_files_and_levels() {
        assert_eq!(name_from_file("/a/b c.d/two words.toml"), "two-words");
        assert_eq!((slug("0.25"), slug("§"), slug("-Os -g")), ("0-25".into(), "x".into(), "Os-g".into()));
        assert!(is_valid_name("a-1") && !is_valid_name("") && !is_valid_name("a_b"));
        assert!(!is_valid_name("a-repeat") && invalid_name_text("a-repeat").contains("second arm"));
        assert!(!is_valid_name(&"a".repeat(41)));
        assert!(is_valid_name(&slug(&"ab-".repeat(41))));
    }
}
