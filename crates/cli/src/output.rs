//! User output: the line per second, the summary, the comparison; and the files.

pub(crate) mod file;
pub(crate) mod fleet;
pub(crate) mod live;
pub(crate) mod load_screen;
pub(crate) mod openmetrics;
pub(crate) mod percentiles;
pub(crate) mod reference;
pub(crate) mod watch_screen;

use std::io::IsTerminal;

use crate::flags::CommandArgs;
pub(crate) use crate::streams::print;
use report::text::layout;
use report::text::summary::Detail;

pub(crate) fn set_page_width() {
    let columns = std::env::var("COLUMNS").ok();
    let size = std::io::stdout().is_terminal().then(ratatui::crossterm::terminal::size);
    let terminal = size.and_then(Result::ok).map(|(columns, _)| usize::from(columns));
    layout::set_page_width(columns.as_deref(), terminal);
}

/// Returns the amount of a result that the flags choose.
pub(crate) fn detail(args: CommandArgs<'_>) -> Detail {
    match (args.is_set("brief"), args.is_set("verbose")) {
        (true, _) => Detail::Brief,
        (false, true) => Detail::Verbose,
        (false, false) => Detail::Default,
    }
}

/// Prints that the check of a file, or of the flags, found no problem.
pub(crate) fn print_valid(name: &str) {
    print(&format!("{name}: valid\n"));
}

/// Returns whether output may be coloured: on a terminal, or everywhere with `CLICOLOR_FORCE`
/// (<https://bixense.com/clicolors>), and never with `NO_COLOR` (<https://no-color.org>).
pub(crate) fn is_coloured() -> bool {
    let variable = |name: &str| std::env::var_os(name).map(|value| value.to_string_lossy().into_owned());
    let terminal = std::io::stdout().is_terminal();
    may_colour(terminal, variable("NO_COLOR"), variable("CLICOLOR"), variable("CLICOLOR_FORCE"))
}

fn may_colour(
    terminal: bool,
    no_color: Option<String>,
    clicolor: Option<String>,
    force: Option<String>,
) -> bool {
    let is_on =
        |value: &Option<String>| value.as_ref().is_some_and(|value| !value.is_empty() && value != "0");
    if no_color.is_some_and(|value| !value.is_empty()) {
        return false;
    }
    is_on(&force) || (terminal && clicolor.is_none_or(|value| value != "0"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_follow_the_terminal_and_the_three_variables() {
        let some = |text: &str| Some(text.to_owned());
        assert!(may_colour(true, None, None, None) && !may_colour(false, None, None, None));
        assert!(may_colour(false, None, None, some("1")) && !may_colour(false, None, None, some("0")));
        assert!(!may_colour(true, some("1"), None, some("1")) && may_colour(true, some(""), None, None));
        assert!(!may_colour(true, None, some("0"), None) && may_colour(true, None, some("0"), some("1")));
    }
}
