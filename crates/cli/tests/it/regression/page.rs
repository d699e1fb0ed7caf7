//! The section of docs/conformance.md that is generated from the rows.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::rows::{ConformanceRow, THEMES, parse_rows};

/// Tests of the other suite without a counterpart: a reason, and their names after `: `.
const UNCOVERED: &str = include_str!("others.txt");

/// Returns the section, with its heading.
pub(crate) fn generated_section() -> String {
    let themes: Vec<(&str, Vec<ConformanceRow>)> =
        THEMES.iter().map(|(title, _)| (*title, parse_rows(title))).collect();
    let all = || themes.iter().flat_map(|(_, rows)| rows);
    let others = uncovered_tests();
    let asking: BTreeSet<&str> = all().map(|row| test_name(row)).collect();
    let tests = asking.len() + others.iter().map(|(_, names)| names.len()).sum::<usize>();
    let differing = all().filter(|row| row.differs.is_some()).count();
    let differ: BTreeSet<&str> =
        all().filter(|row| row.differs.is_some()).map(|row| test_name(row)).collect();
    let mut page = format!(
        "\n## Behaviours checked by the regression tests of another proxy\n\n\
         HAProxy has {tests} regression tests (`reg-tests` at its commit 50872daa6a85). {} of them check \
         features of a proxy for HTTP/1.1 and TCP. Tests with our own words and bytes check the same \
         {} behaviours in weir: {} hold, and the other {differing} differ by design. All supported \
         behaviours of {} tests hold (see below for unsupported ones).\n\n\
         | Theme | Behaviours | Hold | Differ by design |\n| --- | --- | --- | --- |\n",
        asking.len(),
        all().count(),
        all().count() - differing,
        asking.len() - differ.len(),
    );
    let mut line = |text: std::fmt::Arguments<'_>| page.write_fmt(text).unwrap();
    for (title, rows) in &themes {
        let differing = rows.iter().filter(|row| row.differs.is_some()).count();
        let (behaviours, hold) = (rows.len(), rows.len() - differing);
        line(format_args!("| {title} | {behaviours} | {hold} | {differing} |\n"));
    }
    for (title, rows) in &themes {
        line(format_args!("\n### {title}\n\n| Behaviour | Test |\n| --- | --- |\n"));
        for row in rows.iter().filter(|row| row.differs.is_none()) {
            line(format_args!("| {} | {} |\n", row.requirement, row.foreign_test));
        }
    }
    line(format_args!("\n### Different by design\n\n| Behaviour | Test | Behaviour of weir |\n"));
    line(format_args!("| --- | --- | --- |\n"));
    for row in all() {
        if let Some(reason) = &row.differs {
            line(format_args!("| {} | {} | {reason} |\n", row.requirement, row.foreign_test));
        }
    }
    line(format_args!("\n### Not supported\n\nFurther behaviours of the tests above.\n\n"));
    line(format_args!("| Test | Not supported |\n| --- | --- |\n"));
    for row in all() {
        if let Some(without) = &row.not_offered {
            line(format_args!("| {} | {without} |\n", row.foreign_test));
        }
    }
    line(format_args!("\nTests without a counterpart.\n\n| Tests | Reason |\n| --- | --- |\n"));
    for (reason, names) in &others {
        line(format_args!("| {} | {reason} |\n", names.len()));
    }
    page
}

/// Returns the foreign test, without the part that a row covers.
fn test_name(row: &ConformanceRow) -> &'static str {
    row.foreign_test.split(" (").next().unwrap_or(row.foreign_test)
}

fn uncovered_tests() -> Vec<(&'static str, Vec<&'static str>)> {
    let lines = UNCOVERED.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let split = lines.map(|line| {
        let (reason, names) = line.rsplit_once(": ").expect("a reason and names");
        (reason, names.split(' ').collect())
    });
    split.collect()
}

#[test]
fn a_test_has_a_row_or_a_reason_and_never_both() {
    let asking: BTreeSet<&str> =
        THEMES.iter().flat_map(|(title, _)| parse_rows(title)).map(|row| test_name(&row)).collect();
    let mut names_seen = BTreeSet::new();
    for (reason, names) in uncovered_tests() {
        for name in names {
            assert!(!asking.contains(name), "{name} has a row: {reason}");
            assert!(names_seen.insert(name), "{name} has two reasons");
        }
    }
}
