//! Row of a table of keys: a key with the form of its value.

#[derive(Clone, Copy, Debug)]
pub enum ValueForm {
    Word(&'static [&'static str]),
    Text,
    /// Integer from the first to the second, inclusive.
    Count(u64, u64),
    /// Decimal number above 0.
    Number,
    /// Fraction: `2%` or `0.02`.
    Fraction,
    /// Fraction that may exceed 1, up to this maximum: `150%` or `1.5`.
    FractionTo(f64),
    /// Time: `20ms`.
    Time,
    /// Size in bytes: `64k`.
    Size,
    /// Rate in bits per second: `50mbit`.
    Rate,
    /// CPUs: `0,2-3`.
    Cpus,
    /// `true` or `false`.
    Flag,
    /// Time, or this word.
    TimeOr(&'static str),
    /// Text, or a number, which is kept as written.
    Plain,
    /// Texts or numbers: `["1", "2"]`.
    List,
    /// Table of texts by any name.
    Texts,
    Table(&'static [KeySpec]),
    /// Table of tables of these keys, by any name. A value other than a table is the value of the
    /// first key.
    Tables(&'static [KeySpec]),
    /// Table of tables by any name. Each has these keys and any key of [`super::keys::FILE`]. Those of [`super::keys::FILE`]
    /// are read when the table is merged with a file.
    Patches(&'static [KeySpec]),
}

#[derive(Clone, Copy, Debug)]
pub struct KeySpec {
    pub name: &'static str,
    pub form: ValueForm,
    pub is_required: bool,
    pub doc: &'static str,
}

pub(super) const fn key(name: &'static str, form: ValueForm, doc: &'static str) -> KeySpec {
    KeySpec { name, form, is_required: false, doc }
}

pub(super) const fn required(name: &'static str, form: ValueForm, doc: &'static str) -> KeySpec {
    KeySpec { name, form, is_required: true, doc }
}

pub(super) const NODE: ValueForm = ValueForm::Word(&["client", "subject", "origin"]);

/// Build step, which makes a program from its source.
pub(super) const BUILD: KeySpec = key(
    "build",
    ValueForm::Text,
    "Command that runs in `{dir}` before any program starts, for instance a compiler; the limits of the \
     scenario do not apply, and its timeout is 3 minutes",
);

pub(super) fn describe(form: ValueForm) -> String {
    match form {
        ValueForm::Word(words) => words.join(", ").replace(", ", " or "),
        ValueForm::Text => "a string".to_owned(),
        ValueForm::Count(low, high) if high >= 1 << 40 => format!("an integer from {low}"),
        ValueForm::Count(low, high) => format!("an integer from {low} to {high}"),
        ValueForm::Number => "a number above 0".to_owned(),
        ValueForm::Fraction => "a fraction: \"2%\"".to_owned(),
        ValueForm::FractionTo(max) => format!("a fraction, up to {:.0}%: \"150%\"", max * 100.0),
        ValueForm::Time => "a time: \"20ms\"".to_owned(),
        ValueForm::Size => "a size: \"64k\"".to_owned(),
        ValueForm::Rate => "a rate: \"50mbit\"".to_owned(),
        ValueForm::Cpus => "CPUs: \"0,2-3\"".to_owned(),
        ValueForm::Flag => "a boolean: true or false".to_owned(),
        ValueForm::TimeOr(word) => format!("a time: \"20ms\", or \"{word}\""),
        ValueForm::Plain => "a string or a number".to_owned(),
        ValueForm::List => "an array of strings: [\"1\", \"2\"]".to_owned(),
        ValueForm::Texts => "a table of strings: { NAME = \"value\" }".to_owned(),
        ValueForm::Table(_) => "a table".to_owned(),
        ValueForm::Tables(_) | ValueForm::Patches(_) => "named tables: NAME = { KEY = value }".to_owned(),
    }
}
