//! The program `weir`: the only crate that knows the command line, stdout and exit codes. It is a library, because
//! Cargo compiles a library beside the crates that it uses, and a binary after them.
//!
//! Reads flags into texts, lets the engines parse the texts into plans, runs the plans, and shows
//! the records. It decides nothing that an engine decides.

#![forbid(unsafe_code)]
// These macros panic if a stream is closed or full: `streams` prints instead.
#![warn(clippy::print_stdout, clippy::print_stderr)]

// First, because of its macro.
#[macro_use]
mod streams;

mod commands;
mod defaults;
mod exit;
mod flags;
mod full_screen;
mod input_file;
mod load_control;
mod output;
mod peer_flags;
mod preflight;
mod progress_bar;

use std::io::Write;
use std::process::ExitCode;

use clap::ArgMatches;
use exit::{Exit, Failure};
use record::invalid_value;
use record::problem::{InputProblem, InvalidValue};

/// A task of the runtime is two blocks of 256 bytes, aligned to 128: glibc's allocator spends 384
/// on each, this one 256. An idle connection of `serve` costs 524 bytes instead of 918.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Runs the command of the process's arguments. Returns its exit code.
pub fn run() -> ExitCode {
    rt::address::limit_static_lookups();
    let arguments: Vec<String> = match arguments() {
        Ok(arguments) => arguments,
        Err(error) => {
            warn!("weir: {error}");
            return Exit::Usage.into();
        }
    };
    let arguments = with_version_flag(arguments);
    if let Some(instead) = peer_flags::misread(&arguments) {
        warn!("weir: {instead}");
        return Exit::Usage.into();
    }
    let matches = match flags::command_line_with_help().try_get_matches_from(&arguments) {
        Ok(matches) => matches,
        Err(error) => {
            if error.use_stderr() {
                warn!("{}", usage_error_text(&error.to_string(), &arguments));
                return Exit::Usage.into();
            }
            // Help and version are no errors.
            streams::record_result(error.print().and_then(|()| std::io::stdout().flush()));
            return final_exit_code(Exit::Done);
        }
    };
    let (matches, arguments, origins) = match with_defaults(matches, arguments) {
        Ok(all) => all,
        Err(failure) => return report(&failure),
    };
    output::set_page_width();
    match commands::run(&matches, &arguments) {
        Ok(exit) => final_exit_code(exit),
        Err(Failure::Usage(problems)) => report(&Failure::Usage(defaults::locate(problems, &origins))),
        Err(failure) => report(&failure),
    }
}

/// Returns `--version` for the command `version`, as other programs have it.
fn with_version_flag(arguments: Vec<String>) -> Vec<String> {
    match arguments.as_slice() {
        [program, command] if command == "version" => vec![program.clone(), "--version".to_owned()],
        _ => arguments,
    }
}

fn report(failure: &Failure) -> ExitCode {
    for line in failure.lines() {
        warn!("weir: {line}");
    }
    Exit::from(failure).into()
}

type Origins = Vec<(String, String)>;

/// Adds the defaults of the environment to a command line.
fn with_defaults(
    matches: ArgMatches,
    arguments: Vec<String>,
) -> Result<(ArgMatches, Vec<String>, Origins), Failure> {
    // A variable that is not UTF-8 is no option.
    let variables = std::env::vars_os().filter_map(|(name, value)| {
        Some((name.into_string().ok()?, value.into_string().ok()?))
            .filter(|(name, _)| name.starts_with("WEIR_"))
    });
    let mut variables: Vec<_> = variables.collect();
    variables.sort();
    let parse = |arguments: &[String]| {
        flags::command_line_with_help()
            .try_get_matches_from(arguments)
            .map_err(|error| Failure::Usage(vec![InputProblem::new("defaults", error)]))
    };
    // A file that cannot be read is a problem of its flag.
    let file_defaults = defaults::add_file(&arguments, &matches, |path| {
        let text = std::fs::read_to_string(path).ok()?;
        Some(flags::parse_scenario(path, &input_file::without_byte_order_mark(text)))
    });
    let (matches, mut origins) = match file_defaults.arguments == arguments {
        true => (matches, Vec::new()),
        false => (parse(&file_defaults.arguments)?, file_defaults.origins),
    };
    let added = defaults::add_environment(&file_defaults.arguments, &matches, &variables)?;
    if added.origins.is_empty() {
        return Ok((matches, added.arguments, origins));
    }
    origins.extend(added.origins);
    Ok((parse(&added.arguments)?, added.arguments, origins))
}
/// Returns the text of an error of clap, with the prefix of all errors of weir.
fn usage_error_text(text: &str, arguments: &[String]) -> String {
    let text = text.trim_end();
    // Without a command the text is the help.
    let Some(text) = text.strip_prefix("error: ") else { return text.to_owned() };
    let (first, rest) = text.split_once('\n').unwrap_or((text, ""));
    let is_proxy = arguments.get(1).is_some_and(|command| command == "proxy");
    if let Some(file) = is_proxy.then(|| no_subcommand(first)).flatten() {
        return format!(
            "weir: unexpected argument '{file}' found (for a config file: use --config {file})\n{rest}"
        );
    }
    let unexpected = first.strip_prefix("unexpected argument '").and_then(|text| text.split('\'').next());
    let hint = match unexpected.filter(|word| is_proxy && !word.starts_with('-')) {
        Some(file) => format!(" (for a config file: use --config {file})"),
        None => String::new(),
    };
    let peer_hint = unexpected.and_then(|flag| peer_flags::hint(arguments.get(1).map(String::as_str), flag));
    if let Some(instead) = peer_hint {
        // The guess of clap would only distract from it.
        return format!("weir: {first} ({instead}; weir load -h lists all flags)");
    }
    format!("weir: {first}{hint}\n{rest}").trim_end().to_owned()
}

/// Returns the word that clap took for the name of a subcommand, which it is not.
fn no_subcommand(message: &str) -> Option<&str> {
    let word = message
        .strip_prefix("unrecognized subcommand '")
        .or_else(|| message.strip_prefix("the subcommand '"))?;
    let word = word.split('\'').next()?;
    (!["import", "fmt"].contains(&word)).then_some(word)
}

/// Returns the exit code of a finished command: a result that could not be printed is lost.
fn final_exit_code(exit: Exit) -> ExitCode {
    let Some(error) = streams::stdout_error_text() else { return exit.into() };
    warn!("weir: {error}");
    Exit::CannotRun.into()
}

fn arguments() -> Result<Vec<String>, InvalidValue> {
    let texts = std::env::args_os()
        .map(|argument| argument.into_string().map_err(|raw| invalid_value!("{raw:?} is not UTF-8")));
    texts.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_clap_have_the_prefix_of_all_errors() {
        let text_of = |words: &[&str]| {
            let arguments: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            let error = flags::command_line_with_help().try_get_matches_from(&arguments).unwrap_err();
            usage_error_text(&error.to_string(), &arguments)
        };
        let text = text_of(&["weir", "load", "--bogus"]);
        assert!(text.starts_with("weir: ") && text.contains("'--bogus'"), "{text}");
        let text = text_of(&["weir", "proxy", "--check", "a.toml"]);
        assert!(text.lines().next().unwrap().contains("--config a.toml"), "{text}");
        let text = text_of(&["weir", "proxy", "a.toml"]);
        assert!(text.lines().next().unwrap().contains("--config a.toml"), "{text}");
        assert!(!text_of(&["weir", "proxy", "--chek"]).contains("--config"));
        let text = text_of(&["weir", "load", "-p", "4", "http://a/"]);
        assert!(
            text.starts_with("weir: unexpected argument '-p' found (") && text.contains("--http 2"),
            "{text}"
        );
    }
}
