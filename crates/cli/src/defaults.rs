//! Defaults of options from the environment, `WEIR_LOAD_RATE=10k` for `weir load --rate=10k`, and from a
//! scenario file. An option on the command line takes precedence, then the file. Pure: the variables and
//! the reader of the file are arguments.

use clap::ArgMatches;
use clap::parser::ValueSource;
use load::plan::{ScenarioFile, URLS_KEY};
use record::problem::{InputProblem, suggestion};

use crate::flags::{COMMANDS, CommandArgs, CommandInfo, variable_name, variable_prefix};

pub(crate) use record::control::NO_DEFAULTS;

/// Arguments with defaults, and the origin of each default.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct DefaultArguments {
    pub(crate) arguments: Vec<String>,
    /// Flag and origin of each default: `--rate`, `WEIR_LOAD_RATE`.
    pub(crate) origins: Vec<(String, String)>,
}

/// Adds the defaults of `variables` to a command line that clap has parsed.
///
/// # Errors
/// Variables of this command that are no option, or have a wrong value for an option without one.
pub(crate) fn add_environment(
    arguments: &[String],
    matches: &ArgMatches,
    variables: &[(String, String)],
) -> Result<DefaultArguments, Vec<InputProblem>> {
    let mut added = DefaultArguments { arguments: arguments.to_vec(), origins: Vec::new() };
    let Some((row, args)) = command_of(matches) else { return Ok(added) };
    if variables.iter().any(|(name, value)| name == NO_DEFAULTS && !value.is_empty()) {
        return Ok(added);
    }
    let prefix = variable_prefix(row);
    let mut problems = Vec::new();
    // They follow the words of the command, so that `--` hides none of them.
    let mut at = 1 + row.name.split(' ').count();
    for (name, value) in variables.iter().filter(|(name, _)| name.starts_with(&prefix)) {
        if is_of_subcommand(name, row) {
            continue;
        }
        let Some(flag) = row.flags.iter().find(|flag| variable_name(row, flag) == *name) else {
            let names: Vec<String> = row.flags.iter().map(|flag| variable_name(row, flag)).collect();
            let near = record::problem::nearest(name, names.iter().map(String::as_str));
            let near = near.map_or_else(String::new, |near| format!(" (did you mean '{near}'?)"));
            problems.push(InputProblem::new(name, format!("weir {} has no such option{near}", row.name)));
            continue;
        };
        if args.value_source(flag.long) == Some(ValueSource::CommandLine) {
            continue;
        }
        let long = format!("--{}", flag.long);
        let word = match (flag.value, switch_value(value)) {
            ("", Some(true)) => long.clone(),
            ("", Some(false)) => continue,
            ("", None) => {
                let near = suggestion(value, ["true", "false"]);
                problems.push(InputProblem::new(name, format!("'{value}' is neither true nor false{near}")));
                continue;
            }
            _ => format!("{long}={value}"),
        };
        added.arguments.insert(at, word);
        at += 1;
        added.origins.push((long, name.clone()));
    }
    if problems.is_empty() { Ok(added) } else { Err(problems) }
}

/// Adds the settings of a scenario file, which `weir load --file` names, to a command line that clap has
/// parsed. `parse` reads the file; its problems are those of the flag, and reported with all others.
pub(crate) fn add_file(
    arguments: &[String],
    matches: &ArgMatches,
    parse: impl FnOnce(&str) -> Option<ScenarioFile>,
) -> DefaultArguments {
    let mut added = DefaultArguments { arguments: arguments.to_vec(), origins: Vec::new() };
    let Some((row, args)) = command_of(matches).filter(|(row, _)| row.name == "load") else { return added };
    let Some(file) = args.get_one::<String>("file").and_then(|path| parse(path)) else { return added };
    let mut at = 1 + row.name.split(' ').count();
    for setting in file.settings {
        if setting.name == URLS_KEY {
            let urls = CommandArgs(args).values();
            added.arguments.extend(setting.values.into_iter().filter(|_| urls.is_empty()));
            continue;
        }
        if args.value_source(&setting.name) == Some(ValueSource::CommandLine) {
            continue;
        }
        let long = format!("--{}", setting.name);
        let words: Vec<String> = match setting.values.is_empty() {
            true => vec![long.clone()],
            false => setting.values.iter().map(|value| format!("{long}={value}")).collect(),
        };
        let count = words.len();
        added.arguments.splice(at..at, words);
        at += count;
        added.origins.push((long, setting.location));
    }
    added
}

/// Replaces the flags of problems by the origin of their default.
pub(crate) fn locate(problems: Vec<InputProblem>, origins: &[(String, String)]) -> Vec<InputProblem> {
    let located = problems.into_iter().map(|problem| {
        match origins.iter().find(|(flag, _)| *flag == problem.location) {
            Some((flag, origin)) => {
                InputProblem::new(origin, format!("{}: {}", flag.trim_start_matches('-'), problem.text))
            }
            None => problem,
        }
    });
    located.collect()
}

/// Returns the command that was typed, and its arguments.
fn command_of(matches: &ArgMatches) -> Option<(&'static CommandInfo, &ArgMatches)> {
    let (mut name, mut args) = matches.subcommand()?;
    let mut full = name.to_owned();
    while let Some((next, below)) = args.subcommand() {
        (name, args) = (next, below);
        full = format!("{full} {name}");
    }
    let row = COMMANDS.iter().find(|row| row.name == full)?;
    Some((row, args))
}

/// Returns whether a variable belongs to a subcommand, as `WEIR_LAB_RUN_JSON` does for `weir lab`.
fn is_of_subcommand(name: &str, row: &CommandInfo) -> bool {
    let below = COMMANDS.iter().filter(|below| below.name.starts_with(&format!("{} ", row.name)));
    below.map(|below| variable_prefix(below)).any(|prefix| name.starts_with(&prefix))
}

fn switch_value(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "1" | "true" | "yes" | "on" => Some(true),
        "" | "0" | "false" | "no" | "off" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(line: &str, variables: &[(&str, &str)]) -> Result<String, String> {
        let arguments: Vec<String> = line.split(' ').map(ToOwned::to_owned).collect();
        let matches = crate::flags::command_line_with_help().try_get_matches_from(&arguments).unwrap();
        let variables: Vec<(String, String)> =
            variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        match add_environment(&arguments, &matches, &variables) {
            Ok(added) => Ok(added.arguments.join(" ")),
            Err(problems) => Err(problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")),
        }
    }

    #[test]
    fn variables_set_defaults_and_the_command_line_takes_precedence() {
        let variables = [("WEIR_LOAD_RATE", "1k"), ("WEIR_LOAD_QUIET", "1"), ("WEIR_LOAD_SPIN", "off")];
        assert_eq!(add("weir load -- u", &variables).unwrap(), "weir load --rate=1k --quiet -- u");
        assert_eq!(add("weir load -R 5 u", &variables).unwrap(), "weir load --quiet -R 5 u");
        assert_eq!(add("weir serve", &variables).unwrap(), "weir serve");
        assert_eq!(add("weir lab run a", &[("WEIR_LAB_RUN_QUICK", "")]).unwrap(), "weir lab run a");
        assert_eq!(add("weir load u", &[("WEIR_LOAD_REPORT_JSON", "a")]).unwrap(), "weir load u");
        let off = [variables[0], (NO_DEFAULTS, "1")];
        assert_eq!(add("weir load u", &off).unwrap(), "weir load u");
    }

    #[test]
    fn wrong_variables_are_reported_at_once_and_problems_name_them() {
        let wrong = [("WEIR_LOAD_RATES", "1k"), ("WEIR_LOAD_QUIET", "maybe")];
        let problems = add("weir load u", &wrong).unwrap_err();
        assert!(problems.contains("WEIR_LOAD_RATES: weir load has no such option"), "{problems}");
        assert!(problems.contains("did you mean 'WEIR_LOAD_RATE'"), "{problems}");
        assert!(problems.contains("WEIR_LOAD_QUIET: 'maybe' is neither true nor false"), "{problems}");
        let origins = [("--rate".to_owned(), "WEIR_LOAD_RATE".to_owned())];
        let located = locate(vec![InputProblem::new("--rate", "x")], &origins);
        assert_eq!(located[0].location, "WEIR_LOAD_RATE");
    }
}
