//! Rows and forms that several tables of an experiment's file share.

use record::document::table::{KeySpec, ListForm, ValueForm, key};

/// Maximum number of entries of a list: each of them causes a run.
const ENTRIES_MAX: usize = 64;

/// Texts or numbers: `["1", "2"]`.
pub(super) const LIST: ValueForm = ValueForm::List(ListForm {
    min: 1,
    max: ENTRIES_MAX,
    has_numbers: true,
    takes_one: false,
    example: "[\"1\", \"2\"]",
});

pub(super) const NODE: ValueForm = ValueForm::Word(&["client", "subject", "origin"]);

/// Build step, which makes a program from its source.
pub(super) const BUILD: KeySpec = key(
    "build",
    ValueForm::Text,
    "Command that runs in `{dir}` before any program starts, for instance a compiler; the limits of the \
     scenario do not apply, and its timeout is 3 minutes",
);
