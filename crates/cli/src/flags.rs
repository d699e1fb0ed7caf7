//! The command line as data: one row per flag with its doc, its default, and valid and invalid
//! values. Help, the manual, completions, the reference page and tests come from these rows.

mod calibrate;
mod ctl;
mod edge;
mod fleet;
mod fleet_edge;
mod fleet_nats;
mod fleet_run;
mod groups;
mod help;
mod http;
mod lab;
mod lab_experiment;
mod lab_profile;
mod load;
mod load_examples;
mod load_output;
mod load_report;
mod load_requests;
mod plan;
mod proxy;
mod proxy_fmt;
mod proxy_import;
mod serve;
mod server;
mod tls;
mod tools;
mod tune;
mod typed;
mod variables;
mod watch;

use std::fmt::Display;

use clap::{Arg, ArgAction, ArgMatches, Command};
use record::invalid_value;
use record::problem::{InputProblem, InvalidValue};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Flag {
    /// Long name, without dashes.
    pub(crate) long: &'static str,
    pub(crate) short: Option<char>,
    /// Other names, as users of similar programs type them: `-z`, `--body`.
    pub(crate) aliases: &'static [&'static str],
    /// Name of its value; empty: it takes none.
    pub(crate) value: &'static str,
    /// True if it may be given several times.
    pub(crate) repeatable: bool,
    /// Default, in words; empty: none.
    pub(crate) default: &'static str,
    pub(crate) doc: &'static str,
    /// Valid values; the reference shows the first.
    pub(crate) valid: &'static [&'static str],
    /// Invalid values; each is rejected with a problem that names the flag.
    #[cfg_attr(not(test), expect(dead_code, reason = "the test of the row reads it"))]
    pub(crate) invalid: &'static [&'static str],
}

const FLAG_DEFAULTS: Flag = switch("");

/// Returns the row of a flag with a value.
pub(crate) const fn flag(long: &'static str, value: &'static str) -> Flag {
    Flag { value, ..switch(long) }
}

/// Returns the row of a flag without a value.
pub(crate) const fn switch(long: &'static str) -> Flag {
    Flag {
        long,
        short: None,
        aliases: &[],
        value: "",
        repeatable: false,
        default: "",
        doc: "",
        valid: &[],
        invalid: &[],
    }
}

impl Flag {
    const fn short(self, short: char) -> Self {
        Self { short: Some(short), ..self }
    }

    const fn aliases(self, aliases: &'static [&'static str]) -> Self {
        Self { aliases, ..self }
    }

    const fn repeatable(self) -> Self {
        Self { repeatable: true, ..self }
    }

    const fn default(self, default: &'static str) -> Self {
        Self { default, ..self }
    }

    const fn doc(self, doc: &'static str) -> Self {
        Self { doc, ..self }
    }

    const fn values(self, valid: &'static [&'static str], invalid: &'static [&'static str]) -> Self {
        Self { valid, invalid, ..self }
    }
}

macro_rules! join_flags {
    ($($table:expr),+ $(,)?) => {{
        const TABLES: &[&[$crate::flags::Flag]] = &[$($table),+];
        const JOINED: [$crate::flags::Flag; $crate::flags::count_flags(TABLES)] = $crate::flags::join_tables(TABLES);
        &JOINED
    }};
}
use join_flags;

const fn count_flags(tables: &[&[Flag]]) -> usize {
    let (mut count, mut table) = (0, 0);
    while table < tables.len() {
        count += tables[table].len();
        table += 1;
    }
    count
}

/// Returns the rows of several tables as one table with `N` rows, which is the sum of theirs.
const fn join_tables<const N: usize>(tables: &[&[Flag]]) -> [Flag; N] {
    let mut joined = [FLAG_DEFAULTS; N];
    let (mut at, mut table) = (0, 0);
    while table < tables.len() {
        let mut row = 0;
        while row < tables[table].len() {
            joined[at] = tables[table][row];
            at += 1;
            row += 1;
        }
        table += 1;
    }
    joined
}

#[derive(Debug)]
pub(crate) struct CommandInfo {
    /// Name; several words for a subcommand.
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) doc: &'static str,
    /// Name and doc of the positional values, if any.
    pub(crate) values: Option<(&'static str, &'static str)>,
    pub(crate) flags: &'static [Flag],
    /// Command lines that work, with their effect; the tests run them.
    pub(crate) examples: &'static [(&'static str, &'static str)],
}

impl CommandInfo {
    pub(crate) fn listed_flags(&'static self) -> impl Iterator<Item = &'static Flag> {
        self.flags.iter().filter(|flag| fleet::is_listed(self.name, flag))
    }
}

/// All commands, in the order of the help.
pub(crate) const COMMANDS: &[&CommandInfo] = &[
    &serve::SERVE,
    &proxy::PROXY,
    &proxy_import::IMPORT,
    &proxy_fmt::FMT,
    &ctl::CTL,
    &load::LOAD,
    &load_report::REPORT,
    &calibrate::CALIBRATE,
    &edge::EDGE,
    &plan::PLAN,
    &watch::WATCH,
    &lab::LAB,
    &lab::DIAGNOSE,
    &lab_profile::PROFILE,
    &lab_experiment::RUN,
    &lab_experiment::LIST,
    &lab_experiment::SHOW,
    &lab_experiment::COMPARE,
    &lab_experiment::SERVE,
    &lab::TRY,
    &lab::SELFTEST,
    &lab::FAULTY_SERVER,
    &tune::TUNE,
    &tune::CHECK,
    &tune::APPLY,
    &tune::TRIAL,
    &tune::REVERT,
    &tune::STATUS,
    &fleet::FLEET,
    &fleet::SERVE,
    &fleet::AGENT,
    &fleet::LS,
    &fleet::LOAD,
    &fleet_edge::EDGE,
    &fleet::RUNS,
    &fleet_run::RUN,
    &fleet_run::ROLE,
    &tools::COMPLETIONS,
    &tools::MAN,
    &tools::REFERENCE,
];

/// Returns whether a command has a long flag or an alias of this name.
pub(crate) fn has_long_flag(command: &str, name: &str) -> bool {
    let rows = COMMANDS.iter().filter(|row| row.name == command).flat_map(|row| row.flags);
    let is_alias = |alias: &&str| alias.strip_prefix("--") == Some(name);
    rows.into_iter().any(|flag| flag.long == name || flag.aliases.iter().any(is_alias))
}

/// Name of the positional values in clap.
const VALUES: &str = "positional-values";

/// Returns the command line with the help that users see. [`build_command_line`] is for manual pages
/// and completions, which lay out the flags themselves.
pub(crate) fn command_line_with_help() -> Command {
    let program = with_help(build_command_line(), help::program_short_help(), help::program_long_help());
    COMMANDS.iter().fold(program, |program, row| {
        let mut names = row.name.split(' ');
        let help = |command| with_help(command, help::short_help(row), help::long_help(row));
        match (names.next(), names.next()) {
            (Some(parent), Some(name)) => {
                program.mut_subcommand(parent, |parent| parent.mut_subcommand(name, help))
            }
            (Some(name), None) => program.mut_subcommand(name, help),
            _ => program,
        }
    })
}

/// Returns the text of `-h` of a command.
pub(crate) fn short_help_of(name: &str) -> String {
    let row = COMMANDS.iter().find(|row| row.name == name);
    row.map_or_else(help::program_short_help, |row| help::short_help(row))
}

fn with_help(command: Command, short: String, long: String) -> Command {
    command.help_template("{before-help}").before_help(short).before_long_help(long)
}

pub(crate) fn build_command_line() -> Command {
    let mut program = Command::new("weir")
        .version(env!("WEIR_VERSION"))
        .propagate_version(true)
        .about(help::ABOUT)
        .subcommand_required(true)
        .arg_required_else_help(true)
        .after_help(help::exit_codes());
    for row in COMMANDS.iter().filter(|row| !row.name.contains(' ')) {
        program = program.subcommand(command(row));
    }
    program
}

fn command(row: &'static CommandInfo) -> Command {
    let name = row.name.rsplit(' ').next().unwrap_or(row.name);
    let mut command = Command::new(name)
        .about(row.about)
        .long_about(format!("{}\n\n{}", row.about, row.doc))
        .after_help(format!("{}{}", help::proxy_commands(row), help::examples(row)))
        .args(row.flags.iter().map(|flag| argument(flag).hide(!fleet::is_listed(row.name, flag))));
    if let Some((name, doc)) = row.values {
        command = command.arg(Arg::new(VALUES).value_name(name).help(doc).num_args(0..));
    }
    for subcommand in COMMANDS.iter().filter(|below| is_subcommand(below.name, row.name)) {
        command = command.subcommand(self::command(subcommand)).args_conflicts_with_subcommands(true);
    }
    command
}

fn is_subcommand(name: &str, parent: &str) -> bool {
    name.strip_prefix(parent).is_some_and(|rest| rest.starts_with(' '))
}

fn argument(flag: &'static Flag) -> Arg {
    let help = match flag.default {
        "" => flag.doc.to_owned(),
        default => format!("{} [default: {default}]", flag.doc),
    };
    let argument = Arg::new(flag.long).long(flag.long).help(help);
    let argument = match flag.short {
        Some(short) => argument.short(short),
        None => argument,
    };
    let argument = flag.aliases.iter().fold(argument, |argument, alias| match alias.strip_prefix("--") {
        Some(long) => argument.visible_alias(long),
        None => argument.visible_short_aliases(alias.chars().skip(1)),
    });
    match (flag.value, flag.repeatable) {
        ("", _) => argument.action(ArgAction::SetTrue),
        (value, true) => argument.value_name(value).action(ArgAction::Append),
        (value, false) => argument.value_name(value).action(ArgAction::Set).allow_hyphen_values(true),
    }
}

/// Parses the words after `weir COMMAND`, which a file or another machine has. Fails with the reason in one line.
pub(crate) fn parse_command(
    command: &str,
    words: impl IntoIterator<Item = String>,
) -> Result<ArgMatches, InvalidValue> {
    let line = ["weir"].into_iter().chain(command.split(' ')).map(str::to_owned).chain(words);
    let parsed = build_command_line().try_get_matches_from(line);
    let mut matches = parsed.map_err(|error| match error.use_stderr() {
        true => InvalidValue::new(one_line(&error.to_string())),
        false => invalid_value!("it prints help or the version, and does nothing else"),
    })?;
    for _ in command.split(' ') {
        // Invariant: the line begins with the command.
        matches = matches.remove_subcommand().map(|(_, inner)| inner).unwrap_or_default();
    }
    match matches.subcommand_name() {
        None => Ok(matches),
        Some(other) => Err(invalid_value!("it is the command weir {command} {other}")),
    }
}

/// Returns the error message of clap without its usage text.
fn one_line(error: &str) -> String {
    let lines = error.lines().map(str::trim).filter(|line| !line.is_empty());
    let error_lines: Vec<&str> = lines.take_while(|line| !line.starts_with("Usage:")).collect();
    error_lines.join("; ").trim_start_matches("error: ").to_owned()
}

/// Names of flags, with spaces between them.
#[derive(Clone, Copy, Debug)]
struct FlagNames(&'static str);

impl FlagNames {
    fn contains(self, name: &str) -> bool {
        self.0.split(' ').any(|flag| flag == name)
    }

    /// Returns those that were given.
    fn given(self, args: CommandArgs<'_>) -> Vec<&'static str> {
        self.0.split(' ').filter(|flag| args.is_given(flag)).collect()
    }
}

/// Parsed arguments of one command.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CommandArgs<'a>(pub(crate) &'a ArgMatches);

impl CommandArgs<'_> {
    pub(crate) fn text(self, long: &str) -> Option<String> {
        self.0.try_get_one::<String>(long).ok().flatten().cloned()
    }

    /// Returns all values of a flag that may be given several times.
    pub(crate) fn texts(self, long: &str) -> Vec<String> {
        let values = self.0.try_get_many::<String>(long).ok().flatten();
        values.map(|values| values.cloned().collect()).unwrap_or_default()
    }

    /// Returns whether a flag without a value was given.
    pub(crate) fn is_set(self, long: &str) -> bool {
        self.0.try_get_one::<bool>(long).ok().flatten().copied().unwrap_or(false)
    }

    /// Returns whether a flag was given, with a value or without. A flag that the command does not have was not given.
    pub(crate) fn is_given(self, long: &str) -> bool {
        let has_value = self.0.try_contains_id(long).unwrap_or(false);
        has_value && self.0.value_source(long) == Some(clap::parser::ValueSource::CommandLine)
    }

    pub(crate) fn values(self) -> Vec<String> {
        self.texts(VALUES)
    }
}

/// Reads typed values of flags, and collects every problem.
#[derive(Debug)]
pub(crate) struct FlagReader<'a> {
    args: CommandArgs<'a>,
    pub(crate) problems: Vec<InputProblem>,
}

impl<'a> FlagReader<'a> {
    pub(crate) fn new(args: CommandArgs<'a>) -> Self {
        Self { args, problems: Vec::new() }
    }

    pub(crate) fn add_problem(&mut self, flag: &str, why: impl Display) {
        self.problems.push(InputProblem::new(format!("--{flag}"), why));
    }

    /// Parses the value of a flag; `None` if it was not given, or is invalid.
    pub(crate) fn parse<T, E: Display>(
        &mut self,
        flag: &str,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Option<T> {
        parse(&self.args.text(flag)?).map_err(|why| self.add_problem(flag, why)).ok()
    }

    /// Parses all values of a flag, without the invalid ones.
    pub(crate) fn parse_all<T, E: Display>(
        &mut self,
        flag: &str,
        parse: impl Fn(&str) -> Result<T, E>,
    ) -> Vec<T> {
        let texts = self.args.texts(flag).into_iter();
        texts.filter_map(|text| parse(&text).map_err(|why| self.add_problem(flag, why)).ok()).collect()
    }

    /// Returns the value that was made of the flags, or every problem.
    pub(crate) fn finish<T>(self, value: T) -> Result<T, Vec<InputProblem>> {
        if self.problems.is_empty() { Ok(value) } else { Err(self.problems) }
    }
}

pub(crate) use calibrate::CalibrateFlags;
pub(crate) use ctl::{CtlFlags, SOCKET_DEFAULT};
pub(crate) use edge::edge_flags;
pub(crate) use fleet::{agent_load_arguments, coordinator_flags_given};
pub(crate) use fleet_edge::{edge_trial_arguments, refused_edge_flags};
pub(crate) use fleet_nats::{nats_flags_given, nats_options, nats_problems};
pub(crate) use fleet_run::{passed_on, role_arguments};
pub(crate) use lab::DiagnoseFlags;
pub(crate) use lab_experiment::{CompareFlags, ListFlags, ShowFlags};
pub(crate) use load::{embedded_placeholder_url, load_flags, subject_pids};
pub(crate) use load_requests::parse_scenario;
pub(crate) use proxy::proxy_flags;
pub(crate) use proxy_fmt::FmtFlags;
pub(crate) use proxy_import::ImportFlags;
pub(crate) use serve::serve_flags;
pub(crate) use tools::ReferenceFlags;
pub(crate) use tune::{ApplyFlags, RevertFlags, StatusFlags, TuneCheckFlags, parse_role};
pub(crate) use typed::{CommandFlags, Destination, STDOUT, TypedFlag, all_of, command_flags};
pub(crate) use variables::{variable_name, variable_prefix};
pub(crate) use watch::{WATCH_DURATION, WATCH_INTERVAL, WatchFlags};

#[cfg(test)]
mod tests;
