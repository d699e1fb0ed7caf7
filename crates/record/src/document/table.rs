//! Table of keys: one row for each key of a file, with the form of its value and its doc. The reader of a file, its
//! messages and its reference come from these rows.
//!
//! Not for the meaning of the values together, which is the task of whoever has the table.

mod read;
mod scalar;
mod values;

pub use read::{read_document, read_table, unknown_key_text};
pub use scalar::parse_cpus;
pub use values::{NamedTable, TableValues};

/// Key of a table.
#[derive(Clone, Copy, Debug)]
pub struct KeySpec {
    pub name: &'static str,
    pub form: ValueForm,
    pub is_required: bool,
    pub doc: &'static str,
}

/// Makes the row of a key that may be missing.
pub const fn key(name: &'static str, form: ValueForm, doc: &'static str) -> KeySpec {
    KeySpec { name, form, is_required: false, doc }
}

/// Makes the row of a key without which the file is wrong.
pub const fn required(name: &'static str, form: ValueForm, doc: &'static str) -> KeySpec {
    KeySpec { name, form, is_required: true, doc }
}

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
    /// Array of texts.
    List(ListForm),
    /// Table of texts by any name.
    Texts,
    Table(&'static [KeySpec]),
    /// Array of tables of these keys: `[[NAME]]`.
    TableList(&'static [KeySpec]),
    /// Table of tables of these keys, by any name.
    Tables(&'static [KeySpec]),
    /// Like [`ValueForm::Tables`], but a value other than a table is the value of the first key.
    ShortTables(&'static [KeySpec]),
    /// Table of tables by any name, which are merged with other tables before they are read. These keys are for the
    /// reference.
    Patches(&'static [KeySpec]),
}

/// Form of an array of texts.
#[derive(Clone, Copy, Debug)]
pub struct ListForm {
    /// Minimum number of entries.
    pub min: usize,
    /// Maximum number of entries.
    pub max: usize,
    /// True if an entry may be a number, which is kept as written.
    pub has_numbers: bool,
    /// True if a single entry may be written without the array.
    pub takes_one: bool,
    /// Example of the array, for messages.
    pub example: &'static str,
}

impl ListForm {
    /// Returns the form of an entry.
    fn entry(self) -> ValueForm {
        if self.has_numbers { ValueForm::Plain } else { ValueForm::Text }
    }
}

impl ValueForm {
    /// Describes the form, for messages and the reference.
    #[must_use]
    pub fn describe(self) -> String {
        match self {
            Self::Word(words) => words.join(" or "),
            Self::Text => "a string".to_owned(),
            Self::Count(low, high) if high >= 1 << 40 => format!("an integer from {low}"),
            Self::Count(low, high) => format!("an integer from {low} to {high}"),
            Self::Number => "a number above 0".to_owned(),
            Self::Fraction => "a fraction: \"2%\"".to_owned(),
            Self::FractionTo(max) => format!("a fraction, up to {:.0}%: \"150%\"", max * 100.0),
            Self::Time => "a time: \"20ms\"".to_owned(),
            Self::Size => "a size: \"64k\"".to_owned(),
            Self::Rate => "a rate: \"50mbit\"".to_owned(),
            Self::Cpus => "CPUs: \"0,2-3\"".to_owned(),
            Self::Flag => "a boolean: true or false".to_owned(),
            Self::TimeOr(word) => format!("a time: \"20ms\", or \"{word}\""),
            Self::Plain => "a string or a number".to_owned(),
            Self::List(form) if form.takes_one => {
                format!("{}, or an array of them: {}", form.entry().describe(), form.example)
            }
            Self::List(form) => format!("an array of strings: {}", form.example),
            Self::Texts => "a table of strings: { NAME = \"value\" }".to_owned(),
            Self::Table(_) => "a table".to_owned(),
            Self::TableList(_) => "an array of tables: write [[NAME]]".to_owned(),
            Self::Tables(_) | Self::ShortTables(_) | Self::Patches(_) => {
                "named tables: NAME = { KEY = value }".to_owned()
            }
        }
    }
}
