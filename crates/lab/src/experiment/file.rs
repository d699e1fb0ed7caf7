//! The parts of an experiment's file: the keys of its own, one trial's file below them, and the
//! parameters.

use std::borrow::Cow;
use std::collections::BTreeMap;

use record::problem::{Problem, suggestion};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{AGAIN, Parameter};
use crate::scenario::keys::{EXPERIMENT, FILE};
use crate::scenario::placeholders::{OF_THE_LAB, is_name};
use crate::scenario::read::{Problems, Values, table};

/// Names go into names of files.
const NAME_BYTES_MAX: usize = 40;
/// Parameters of a file.
const PARAMETERS_MAX: usize = 64;
/// The key of the parameters, in files and in patches.
pub(super) const PARAMETERS: &str = "parameters";

/// The parts of a file.
pub(super) struct Parts<'t> {
    /// What an experiment has besides one trial's file.
    pub(super) own: Values,
    /// One trial's file, and `parameters` as texts.
    pub(super) base: DeTable<'t>,
    /// `[arms]` and `[loads]`, as they stand.
    pub(super) arms: Option<Spanned<DeValue<'t>>>,
    pub(super) loads: Option<Spanned<DeValue<'t>>>,
    /// Every parameter, and where it stands.
    pub(super) parameters: BTreeMap<String, usize>,
}

impl<'t> Parts<'t> {
    /// Takes a file apart.
    pub(super) fn of(document: &DeTable<'t>, problems: &mut Problems) -> Self {
        let (mut own, mut base) = (DeTable::default(), DeTable::default());
        for (key, value) in document {
            let name: &str = key.get_ref();
            if FILE.iter().any(|row| row.name == name) {
                base.insert(key.clone(), value.clone());
            } else if EXPERIMENT.iter().any(|row| row.name == name) {
                own.insert(key.clone(), value.clone());
            } else {
                problems.add(key.span().start, no_key(name));
            }
        }
        let (arms, loads) = (own.get("arms").cloned(), own.get("loads").cloned());
        let given = own.get(PARAMETERS).and_then(|given| given.get_ref().as_table());
        if let Some((key, _)) = own.iter().find(|(key, _)| *key.get_ref() == PARAMETERS) {
            let texts = given.map(texts).unwrap_or_default();
            base.insert(key.clone(), Spanned::new(key.span(), DeValue::Table(texts)));
        }
        let own = table(&own, EXPERIMENT, problems);
        let parameters = parameters(&own, problems);
        Self { own, base, arms, loads, parameters }
    }

    /// Puts texts in place of parameters; what is wrong with that.
    pub(super) fn set(&mut self, given: &[(String, String)]) -> Vec<Problem> {
        let mut problems = Vec::new();
        for (name, text) in given {
            let Some(at) = self.parameters.get(name) else {
                problems.push(Problem::new("--set", self.no_parameter(name)));
                continue;
            };
            let span = *at..*at + name.len();
            let texts = self.base.get_mut(PARAMETERS).map(Spanned::get_mut);
            if let Some(DeValue::Table(texts)) = texts {
                let key = Spanned::new(span.clone(), Cow::Owned(name.clone()));
                texts.remove(name.as_str());
                let text = DeValue::String(Cow::Owned(text.clone()));
                texts.insert(key, Spanned::new(span, text));
            }
        }
        problems
    }

    /// That there is no such parameter.
    pub(super) fn no_parameter(&self, name: &str) -> String {
        let near = suggestion(name, self.parameters.keys().map(String::as_str));
        let known: Vec<&str> = self.parameters.keys().map(String::as_str).collect();
        let known = if known.is_empty() { "there are none".to_owned() } else { known.join(", ") };
        format!("there is no parameter '{name}'{near}; in [parameters]: {known}")
    }

    /// The parameters, in the order of the file.
    pub(super) fn declared(&self) -> Vec<Parameter> {
        let parameter = |entry: &crate::scenario::read::Entry| Parameter {
            name: entry.name.clone(),
            doc: entry.values.text("doc").unwrap_or_default().to_owned(),
            value: entry.values.text("value").map(str::to_owned),
        };
        self.own.each(PARAMETERS).iter().map(parameter).collect()
    }

    /// The experiment's name, or else the file's.
    pub(super) fn name(&self, file: &str) -> String {
        self.own.text("name").map_or_else(|| of_file(file), str::to_owned)
    }

    /// Its title, or else its name.
    pub(super) fn title(&self, file: &str) -> String {
        let title = self.base.get("title").and_then(|title| title.get_ref().as_str());
        title.map_or_else(|| self.name(file), str::to_owned)
    }
}

fn no_key(name: &str) -> String {
    let known = || EXPERIMENT.iter().chain(FILE).map(|row| row.name);
    let near = suggestion(name, known());
    let known: Vec<&str> = known().collect();
    format!("there is no key '{name}'{near}; there are: {}", known.join(", "))
}

/// The texts of parameters. What is no text is told of where they are read by their keys.
fn texts<'t>(given: &DeTable<'t>) -> DeTable<'t> {
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

fn parameters(own: &Values, problems: &mut Problems) -> BTreeMap<String, usize> {
    if let Some(name) = own.text("name").filter(|name| !is_name_of_file(name)) {
        problems.add(own.place("name"), no_name(name));
    }
    let entries = own.each(PARAMETERS);
    if entries.len() > PARAMETERS_MAX {
        let text = format!("there may be {PARAMETERS_MAX} parameters");
        problems.add(own.place(PARAMETERS), text);
    }
    for entry in entries {
        let name = &entry.name;
        if !is_name(name) {
            let text = format!(
                "'{name}' is no name of a parameter: small letters, digits, '-' and '_', a letter first"
            );
            problems.add(entry.at, text);
        } else if OF_THE_LAB.contains(&name.as_str()) {
            problems
                .add(entry.at, format!("'{{{name}}}' has a meaning already: choose another name"));
        }
    }
    entries.iter().map(|entry| (entry.name.clone(), entry.at)).collect()
}

/// Whether names of files can be made of it.
pub(super) fn is_name_of_file(name: &str) -> bool {
    let fits = |one: char| one.is_ascii_alphanumeric() || one == '-';
    name.chars().all(fits)
        && !name.starts_with('-')
        && (1..=NAME_BYTES_MAX).contains(&name.len())
        && !name.ends_with(AGAIN)
}

/// What a name has to be.
pub(super) fn no_name(name: &str) -> String {
    match name.ends_with(AGAIN) {
        true => format!("'{name}' is no name: '{AGAIN}' is for the baseline's second arm"),
        false => format!(
            "'{name}' is no name: letters, digits and '-', {NAME_BYTES_MAX} at the most, and not '-' first"
        ),
    }
}

/// `a/b.toml` is `b`, with `-` for what names do not have.
fn of_file(file: &str) -> String {
    let stem = file.rsplit('/').next().unwrap_or(file);
    let stem = stem.rsplit_once('.').map_or(stem, |(stem, _)| stem);
    slug(stem)
}

/// A text as a part of a name.
pub(super) fn slug(text: &str) -> String {
    let word = |one: char| if one.is_ascii_alphanumeric() { one } else { '-' };
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
        assert_eq!(of_file("/a/b c.d/two words.toml"), "two-words");
        assert_eq!(
            (slug("0.25"), slug("§"), slug("-Os -g")),
            ("0-25".into(), "x".into(), "Os-g".into())
        );
        assert!(is_name_of_file("a-1") && !is_name_of_file("") && !is_name_of_file("a_b"));
        assert!(!is_name_of_file("a-again") && no_name("a-again").contains("second arm"));
        assert!(!is_name_of_file(&"a".repeat(41)));
        assert!(is_name_of_file(&slug(&"ab-".repeat(41))));
    }
}
