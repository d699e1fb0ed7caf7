//! Reads files of experiments by their keys, and names the kind of file that a misplaced key belongs to.
//!
//! Not for the meaning of the values together: see [`super::setup`].

use std::collections::BTreeMap;

use record::document::table::{self, KeySpec, TableValues};
use record::document::{Problems, TomlDocument};
use record::sorted::CollectSorted;
use toml::de::DeTable;

use super::experiment_keys::EXPERIMENT;
use super::plan::{NODES, Node};

/// Reads a complete file by its keys.
pub(crate) fn read_file(text: &str, keys: &[KeySpec], problems: &mut Problems) -> TableValues {
    let (document, is_valid) = parse_document(text, problems);
    let mut key_problems = Problems::default();
    let values = read_table(&document, keys, &mut key_problems);
    if is_valid {
        problems.append(key_problems);
    }
    values
}

/// Parses the tables of a text, and returns whether it is valid TOML. If not, missing keys mean
/// nothing.
pub(crate) fn parse_document<'t>(text: &'t str, problems: &mut Problems) -> (DeTable<'t>, bool) {
    let document = TomlDocument::parse(text);
    document.report_syntax_errors(problems);
    let is_valid = document.is_valid();
    (document.into_table(), is_valid)
}

/// Reads the top-level table by its keys.
pub(crate) fn read_table(document: &DeTable<'_>, keys: &[KeySpec], problems: &mut Problems) -> TableValues {
    let explain = |name: &str| {
        let is_of_experiments = EXPERIMENT.iter().any(|key| key.name == name);
        is_of_experiments.then(|| format!("'{name}' is a key of experiments, which `weir lab run` runs"))
    };
    table::read_table(document, keys, explain, problems)
}

/// Reads a table with a key for each node.
pub(super) fn by_node<T>(
    values: &TableValues,
    key: &str,
    read: impl Fn(&TableValues, &str) -> Option<T>,
) -> BTreeMap<Node, T> {
    let Some(table) = values.table(key) else { return BTreeMap::new() };
    NODES.into_iter().filter_map(|node| Some((node, read(table, node.name())?))).collect_map()
}
