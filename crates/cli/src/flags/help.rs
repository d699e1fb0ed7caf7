//! Texts of `-h` and `--help`, from the tables of flags. `-h` has the essential flags in at most 30
//! lines; `--help` has everything.

use report::text::layout;

use super::groups::{FlagGroup, flag_groups};
use super::variables::variable_name;
use super::{COMMANDS, CommandInfo, Flag, is_subcommand};

/// Maximum number of columns of a line.
pub(super) const WIDTH: usize = 100;
#[cfg(test)]
pub(super) const LINES_MAX: usize = 30;
const EXAMPLES_SHOWN: usize = 2;
/// Minimum length of the first part of a doc; `Open loop:` alone explains no flag.
const FIRST_PART_MIN: usize = 16;
/// Widest column of flags in `-h`; the help of a longer flag begins behind it.
const FLAG_COLUMN_MAX: usize = 38;

pub(super) fn short_help(row: &'static CommandInfo) -> String {
    let mut lines = vec![fit(row.about), String::new(), fit(&usage(row))];
    lines.extend(row.values.map(|(name, doc)| fit(&format!("  {name}  {}", first_part(doc)))));
    lines.push(String::new());
    let groups = flag_groups(row);
    let shown: Vec<&Flag> = groups.iter().flat_map(essential_flags).collect();
    let column = shown.iter().map(|flag| spec(flag).chars().count()).max().unwrap_or(0);
    for group in &groups {
        let flags = essential_flags(group);
        if flags.is_empty() {
            continue;
        }
        lines.push(format!("{}:", group.heading));
        lines.extend(flags.iter().map(|flag| short_line(flag, column.min(FLAG_COLUMN_MAX))));
    }
    lines.extend(short_subcommands(row));
    lines.push(String::new());
    let count = row.examples.len().min(EXAMPLES_SHOWN);
    lines.push(if count == 1 { "Example:" } else { "Examples:" }.to_owned());
    lines.extend(row.examples.iter().take(count).map(|(line, _)| fit(&format!("  {line}"))));
    lines.push(String::new());
    lines.push(match row.listed_flags().count() {
        0 => format!("weir {} --help has the complete description", row.name),
        1 => format!("weir {} --help describes the option", row.name),
        all => format!("weir {} --help lists all {all} options", row.name),
    });
    lines.join("\n")
}

pub(super) fn long_help(row: &'static CommandInfo) -> String {
    let mut text = format!("{}\n\n{}\n\n{}\n", row.about, wrapped(row.doc, 0), usage(row));
    if let Some((name, doc)) = row.values {
        text += &format!("\nArguments:\n  {name}\n{}\n", wrapped(doc, 6));
    }
    text += &subcommands(row);
    text += &proxy_commands(row);
    for group in flag_groups(row) {
        text += &format!("\n{}:\n", group.heading);
        for flag in &group.flags {
            text += &long_entry(flag);
        }
    }
    text += "\nHelp:\n  -h\n      Essential options\n  --help\n      This description\n  -V, --version\n      Version\n";
    text += &environment(row);
    let examples = row
        .examples
        .iter()
        .map(|(line, effect)| format!("{}\n  {line}\n", wrapped(&format!("# {effect}"), 2)));
    text += &format!("\nExamples:\n{}", examples.collect::<String>());
    format!("{text}\n{}", exit_codes())
}

/// Returns the text of `-h` of the program itself.
pub(super) fn program_short_help() -> String {
    let mut lines =
        vec![ABOUT.to_owned(), String::new(), "Usage: weir COMMAND [OPTIONS]".to_owned(), String::new()];
    lines.push("Commands:".to_owned());
    let rows = COMMANDS.iter().filter(|row| !row.name.contains(' '));
    lines.extend(rows.map(|row| fit(&format!("  {:<12} {}", row.name, row.about))));
    lines.push(String::new());
    lines.push("Options:".to_owned());
    lines.push("  -h, --help     Print help; weir COMMAND -h for a command".to_owned());
    lines.push("  -V, --version  Print the version".to_owned());
    lines.join("\n")
}

pub(super) fn program_long_help() -> String {
    let subcommands = COMMANDS.iter().filter(|row| row.name.contains(' '));
    let subcommands = subcommands.map(|row| fit(&format!("  {:<18} {}", row.name, row.about)) + "\n");
    format!("{}\n\nSubcommands:\n{}\n{}", program_short_help(), subcommands.collect::<String>(), exit_codes())
}

pub(super) const ABOUT: &str = "HTTP/TCP proxy, load generator and bottleneck diagnosis";

pub(super) fn exit_codes() -> String {
    let lines = crate::exit::EXIT_CODES.iter().map(|(exit, meaning)| {
        let text = wrapped(meaning, 5);
        format!("  {}  {}", exit.code(), text.trim_start())
    });
    format!("Exit codes:\n{}", lines.collect::<Vec<_>>().join("\n"))
}

/// Returns the commands that a proxy accepts; the proxy itself defines them.
pub(super) fn proxy_commands(row: &CommandInfo) -> String {
    match row.name {
        "ctl" => format!("\nCommands:\n{}", proxy_control::ctl::help()),
        _ => String::new(),
    }
}

pub(super) fn examples(row: &CommandInfo) -> String {
    let lines = row.examples.iter().map(|(line, description)| format!("  # {description}\n  {line}"));
    match row.examples.is_empty() {
        true => String::new(),
        false => format!("Examples:\n{}", lines.collect::<Vec<_>>().join("\n")),
    }
}

/// Describes the variables that set defaults; empty without an option.
fn environment(row: &CommandInfo) -> String {
    let Some(flag) = row.flags.first() else { return String::new() };
    let doc = format!(
        "{} sets the default of --{}, and so on for every option; the command line takes precedence",
        variable_name(row, flag),
        flag.long
    );
    format!("\nEnvironment:\n{}\n", wrapped(&doc, 2))
}

fn essential_flags(group: &FlagGroup) -> Vec<&'static Flag> {
    group.flags.iter().copied().take(group.essential).collect()
}

fn usage(row: &CommandInfo) -> String {
    let options = if row.flags.is_empty() { "" } else { " [OPTIONS]" };
    let has_subcommands = COMMANDS.iter().any(|below| is_subcommand(below.name, row.name));
    let values = match row.values {
        Some((name, _)) => format!(" [{name}]..."),
        None if has_subcommands => " COMMAND".to_owned(),
        None => String::new(),
    };
    format!("Usage: weir {}{options}{values}", row.name)
}

/// Returns the subcommands, or the names of the commands of a proxy, for `-h`.
fn short_subcommands(row: &CommandInfo) -> Vec<String> {
    let mut lines: Vec<_> = subcommands(row).lines().skip(1).map(fit).collect();
    if row.name == "ctl" {
        // A new process sends `upgrade`; no user types it.
        let names = proxy_control::ctl::command_names().filter(|name| *name != "upgrade");
        let names = names.collect::<Vec<_>>().join(", ");
        lines.push("Commands:".to_owned());
        lines.extend(wrapped(&names, 2).lines().map(ToOwned::to_owned));
    }
    lines
}

fn subcommands(row: &CommandInfo) -> String {
    let below: Vec<_> = COMMANDS.iter().filter(|below| is_subcommand(below.name, row.name)).collect();
    let lines = below.iter().map(|below| {
        let name = below.name.rsplit(' ').next().unwrap_or(below.name);
        format!("  {name:<14} {}\n", below.about)
    });
    match below.is_empty() {
        true => String::new(),
        false => format!("\nCommands:\n{}", lines.collect::<String>()),
    }
}

/// Formats the names of a flag and its value: `-c, --connections N`.
fn spec(flag: &Flag) -> String {
    let short = flag.short.map_or_else(|| "    ".to_owned(), |short| format!("-{short}, "));
    let space = if flag.value.is_empty() { "" } else { " " };
    format!("{short}--{}{space}{}", flag.long, flag.value)
}

/// Formats a flag in one line. The default follows where it fits.
fn short_line(flag: &Flag, column: usize) -> String {
    let line = format!("  {:<column$}  {}", spec(flag), first_part(flag.doc));
    let with_default = match flag.default {
        "" => line.clone(),
        default => format!("{line} [{default}]"),
    };
    if with_default.chars().count() <= WIDTH { with_default } else { fit(&line) }
}

/// Returns a doc up to its first colon, semicolon or full stop. `e.g.` is no end.
fn first_part(doc: &str) -> &str {
    let mut ends = doc.match_indices([':', ';', '.']).map(|(at, _)| at);
    let end = ends.find(|at| {
        let rest = &doc[at + 1..];
        let is_abbreviation = doc[..*at].ends_with("e.g");
        *at >= FIRST_PART_MIN && !is_abbreviation && (rest.is_empty() || rest.starts_with(' '))
    });
    &doc[..end.unwrap_or(doc.len())]
}

fn long_entry(flag: &Flag) -> String {
    let mut doc = flag.doc.to_owned();
    if !flag.aliases.is_empty() {
        doc += &format!(" [also: {}]", flag.aliases.join(", "));
    }
    if !flag.default.is_empty() {
        doc += &format!(" [default: {}]", flag.default);
    }
    if let Some(example) = flag.valid.first() {
        doc += &format!(" [example: {example}]");
    }
    format!("  {}\n{}\n", spec(flag).trim_start(), wrapped(&doc, 6))
}

/// Cuts a line to [`WIDTH`]; an ellipsis marks the cut.
fn fit(line: &str) -> String {
    layout::fit(line, WIDTH)
}

/// Wraps paragraphs at [`WIDTH`], with an indent.
fn wrapped(paragraphs: &str, indent: usize) -> String {
    let margin = " ".repeat(indent);
    let lines = paragraphs.split('\n').flat_map(|paragraph| layout::wrap(paragraph, WIDTH - indent));
    let lines = lines.map(|line| if line.is_empty() { line } else { format!("{margin}{line}") });
    lines.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_help_of_every_command_fits_a_screen() {
        let texts = COMMANDS.iter().map(|row| (row.name, short_help(row)));
        for (name, text) in texts.chain([("weir", program_short_help())]) {
            let lines = text.lines().count();
            assert!(lines <= LINES_MAX, "{name}: {lines} lines\n{text}");
            for line in text.lines() {
                assert!(line.chars().count() <= WIDTH, "{name}: {line}");
            }
        }
    }

    #[test]
    fn long_help_has_every_flag_and_example() {
        for row in COMMANDS {
            let text = long_help(row);
            let listed: Vec<&str> = row.listed_flags().map(|flag| flag.long).collect();
            for flag in row.flags {
                let entry = format!("--{}", flag.long);
                let mut starts = text.lines().filter(|line| line.trim_start().starts_with('-'));
                let found = starts.any(|line| line.split([' ', ',']).any(|word| word == entry));
                assert_eq!(found, listed.contains(&flag.long), "{}: {entry}\n{text}", row.name);
            }
            assert!(listed.len() == row.flags.len() || ["fleet load", "fleet edge"].contains(&row.name));
            assert!(row.examples.iter().all(|(line, _)| text.contains(line)), "{text}");
            assert!(text.contains("Exit codes:"), "{text}");
        }
    }

    #[test]
    fn the_first_part_of_a_doc_explains_the_flag() {
        assert_eq!(first_part("Connections at a time; more wait"), "Connections at a time");
        assert_eq!(first_part("Open loop: requests per second"), "Open loop: requests per second");
        assert_eq!(first_part("Connect to http://host:80 first. Then"), "Connect to http://host:80 first");
        assert_eq!(first_part("Limit of disturbance, e.g. 5%; more"), "Limit of disturbance, e.g. 5%");
    }

    #[test]
    fn short_help_explains_the_value_and_the_defaults_of_a_load() {
        let load = COMMANDS.iter().find(|row| row.name == "load").unwrap();
        let text = short_help(load);
        let line = |part: &str| {
            let found = text.lines().find(|line| line.contains(part));
            found.unwrap_or_else(|| panic!("{text}"))
        };
        assert!(line("  URL  ").contains("embedded test origin"), "{text}");
        for (flag, part) in [("--threads", "half if"), ("--timeout", "[5s]"), ("--slo", "rate>=10k'")] {
            assert!(line(flag).contains(part), "{flag}: {text}");
        }
        assert!(line("--http").ends_with(']'), "{text}");
    }

    #[test]
    fn the_last_line_leads_to_all_options() {
        let load = COMMANDS.iter().find(|row| row.name == "load").unwrap();
        let last = format!("weir load --help lists all {} options", load.flags.len());
        assert_eq!(short_help(load).lines().last(), Some(last.as_str()));
    }
}
