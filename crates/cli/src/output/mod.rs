//! User output: the line per second, the summary, the comparison; and the files.

pub(crate) mod compare;
pub(crate) mod csv;
pub(crate) mod diagnosis;
pub(crate) mod edge;
pub(crate) mod experiment;
pub(crate) mod file;
pub(crate) mod histogram;
pub(crate) mod live;
pub(crate) mod percentiles;
pub(crate) mod plan;
pub(crate) mod plan_markdown;
pub(crate) mod profile;
pub(crate) mod reference;
pub(crate) mod run_ratios;
pub(crate) mod settings_reference;
pub(crate) mod summary;
pub(crate) mod table;
pub(crate) mod tune;
pub(crate) mod verbose;
pub(crate) mod watch;

use std::io::IsTerminal;

pub(crate) use crate::streams::print;

/// Prints that the check of a file, or of the flags, found no problem.
pub(crate) fn print_valid(name: &str) {
    print(&format!("{name}: valid\n"));
}

/// Returns whether stdout is a terminal that may be coloured (<https://no-color.org>).
pub(crate) fn is_coloured() -> bool {
    let allowed = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    allowed && std::io::stdout().is_terminal()
}
