//! Tables of settings: those that differ between arms or loads, command lines, and fixed ones.

use std::collections::{BTreeMap, BTreeSet};

use record::sorted::CollectSorted;

use super::{ChartTable, TableCell};
use crate::plot::shortened;

/// Maximum number of letters of a value; the records contain longer ones.
pub(super) const VALUE_CHARS_MAX: usize = 300;
pub(super) const ROWS_MAX: usize = 200;
/// Maximum number of arms or loads with a column; the figures have all of them.
pub(super) const COLUMNS_MAX: usize = 8;

/// A named side of a table, with its values by key.
pub(super) type TableSide<'a> = (&'a str, &'a BTreeMap<String, String>);

/// Builds a table with a row for each key of any side and a column for each side; `None` if it
/// would be empty.
pub(super) fn differences(sides: &[TableSide<'_>], otherwise: &str) -> Option<ChartTable> {
    let sides = &sides[..sides.len().min(COLUMNS_MAX)];
    let keys: BTreeSet<&String> = sides.iter().flat_map(|(_, values)| values.keys()).collect_set();
    if keys.is_empty() {
        return None;
    }
    let mut columns = vec!["Key".to_owned()];
    columns.extend(sides.iter().map(|(name, _)| (*name).to_owned()));
    let row = |key: &String| {
        let mut cells = vec![TableCell::plain(key.clone()).class("mono")];
        cells.extend(sides.iter().map(|(_, values)| match values.get(key) {
            Some(value) => TableCell::plain(shortened(value, VALUE_CHARS_MAX)).class("mono"),
            None => TableCell::plain(otherwise).class("muted"),
        }));
        cells
    };
    Some(ChartTable { columns, rows: keys.into_iter().take(ROWS_MAX).map(row).collect() })
}

/// Builds a table with a row for each program and command line, with the arms or loads that used
/// it.
pub(super) fn command_table(names: &[String], commands: &[BTreeMap<String, String>]) -> Option<ChartTable> {
    let mut commands_by_role: BTreeMap<(&String, &String), Vec<&str>> = BTreeMap::new();
    for (name, values) in names.iter().zip(commands) {
        for (role, command) in values {
            commands_by_role.entry((role, command)).or_default().push(name);
        }
    }
    let row = |((role, command), by): ((&String, &String), Vec<&str>)| {
        let by = if by.len() == names.len() { "all".to_owned() } else { by.join("; ") };
        vec![
            TableCell::plain(role.clone()),
            TableCell::plain(shortened(command, VALUE_CHARS_MAX)).class("mono"),
            TableCell::plain(shortened(&by, VALUE_CHARS_MAX)),
        ]
    };
    let rows: Vec<Vec<TableCell>> = commands_by_role.into_iter().take(ROWS_MAX).map(row).collect();
    let columns = ["Process", "Command line", "In"].map(str::to_owned).to_vec();
    (!rows.is_empty()).then_some(ChartTable { columns, rows })
}

pub(super) fn key_value_table(heading: &str, facts: &[(String, String)]) -> ChartTable {
    let row = |(key, value): &(String, String)| {
        vec![TableCell::plain(key.clone()), TableCell::plain(shortened(value, VALUE_CHARS_MAX)).class("mono")]
    };
    ChartTable {
        columns: vec![heading.to_owned(), "Value".to_owned()],
        rows: facts.iter().map(row).collect(),
    }
}
