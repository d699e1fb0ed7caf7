//! The command line as data: one row a flag with its doc, its default, and values that are right
//! and wrong. Help, the manual, completions, the reference page and tests come from these rows.

mod calibrate;
mod ctl;
mod edge;
mod lab;
mod lab_experiment;
mod lab_profile;
mod load;
mod proxy;
mod serve;
mod tools;
mod watch;

use clap::{Arg, ArgAction, ArgMatches, Command};

/// One flag.
#[derive(Debug)]
pub(crate) struct Flag {
    /// Its long name, without dashes.
    pub(crate) long: &'static str,
    /// Its letter.
    pub(crate) short: Option<char>,
    /// What its value is called; empty: it takes none.
    pub(crate) value: &'static str,
    /// Whether it may be given several times.
    pub(crate) many: bool,
    /// What holds without it, in words; empty: nothing.
    pub(crate) default: &'static str,
    /// What it does.
    pub(crate) doc: &'static str,
    /// Values that are right; the reference shows the first.
    pub(crate) right: &'static [&'static str],
    /// Values that are refused with a problem that names the flag.
    #[cfg_attr(not(test), expect(dead_code, reason = "the test of the row reads it"))]
    pub(crate) wrong: &'static [&'static str],
}

/// A flag with a value; rows change what differs.
pub(crate) const FLAG: Flag = Flag {
    long: "",
    short: None,
    value: "",
    many: false,
    default: "",
    doc: "",
    right: &[],
    wrong: &[],
};

/// One command.
#[derive(Debug)]
pub(crate) struct CommandRow {
    /// Its name; several words for a command below another.
    pub(crate) name: &'static str,
    /// One line.
    pub(crate) about: &'static str,
    /// The rest.
    pub(crate) doc: &'static str,
    /// Name and doc of its positional values, if it takes any.
    pub(crate) values: Option<(&'static str, &'static str)>,
    /// Its flags.
    pub(crate) flags: &'static [Flag],
    /// Command lines that work, with what they do; the tests run them.
    pub(crate) examples: &'static [(&'static str, &'static str)],
}

/// All commands, in the order of the help.
pub(crate) const COMMANDS: &[&CommandRow] = &[
    &serve::SERVE,
    &proxy::PROXY,
    &ctl::CTL,
    &load::LOAD,
    &load::REPORT,
    &calibrate::CALIBRATE,
    &edge::EDGE,
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
    &lab::SICK,
    &tools::COMPLETIONS,
    &tools::MAN,
    &tools::REFERENCE,
];

/// Name of the positional values in clap.
const VALUES: &str = "values";

/// The whole command line, for clap.
pub(crate) fn program() -> Command {
    let mut program = Command::new("weir")
        .version(env!("CARGO_PKG_VERSION"))
        .about("Carries HTTP, loads it to its edge, and says what stops it there")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .after_help(exit_codes());
    for row in COMMANDS.iter().filter(|row| !row.name.contains(' ')) {
        program = program.subcommand(command(row));
    }
    program
}

fn command(row: &'static CommandRow) -> Command {
    let name = row.name.rsplit(' ').next().unwrap_or(row.name);
    let mut command = Command::new(name)
        .about(row.about)
        .long_about(format!("{}\n\n{}", row.about, row.doc))
        .after_help(format!("{}{}", below(row), examples(row)))
        .args(row.flags.iter().map(argument));
    if let Some((name, doc)) = row.values {
        command = command.arg(Arg::new(VALUES).value_name(name).help(doc).num_args(0..));
    }
    for below in COMMANDS.iter().filter(|below| is_below(below.name, row.name)) {
        command = command.subcommand(self::command(below)).args_conflicts_with_subcommands(true);
    }
    command
}

fn is_below(name: &str, parent: &str) -> bool {
    name.strip_prefix(parent).is_some_and(|rest| rest.starts_with(' '))
}

fn argument(flag: &'static Flag) -> Arg {
    let help = match flag.default {
        "" => flag.doc.to_owned(),
        default => format!("{} [default: {default}]", flag.doc),
    };
    let argument = Arg::new(flag.long).long(flag.long).help(help);
    let argument = match flag.short {
        Some(letter) => argument.short(letter),
        None => argument,
    };
    match (flag.value, flag.many) {
        ("", _) => argument.action(ArgAction::SetTrue),
        (value, true) => argument.value_name(value).action(ArgAction::Append),
        (value, false) => {
            argument.value_name(value).action(ArgAction::Set).allow_hyphen_values(true)
        }
    }
}

/// What may be sent to a proxy: those commands are the proxy's own.
fn below(row: &CommandRow) -> String {
    match row.name {
        "ctl" => format!("Commands:\n{}\n", ::proxy::ctl::help()),
        _ => String::new(),
    }
}

fn examples(row: &CommandRow) -> String {
    let lines = row.examples.iter().map(|(line, what)| format!("  # {what}\n  {line}"));
    match row.examples.is_empty() {
        true => String::new(),
        false => format!("Examples:\n{}", lines.collect::<Vec<_>>().join("\n")),
    }
}

fn exit_codes() -> String {
    let lines = crate::exit::EXIT_CODES
        .iter()
        .map(|(exit, meaning)| format!("  {}  {meaning}", *exit as u8));
    format!("Exit codes:\n{}", lines.collect::<Vec<_>>().join("\n"))
}

/// What was typed for one command.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Typed<'a>(pub(crate) &'a ArgMatches);

impl Typed<'_> {
    /// The value of a flag, if it was given.
    pub(crate) fn text(self, long: &str) -> Option<String> {
        self.0.try_get_one::<String>(long).ok().flatten().cloned()
    }

    /// All values of a flag that may be given several times.
    pub(crate) fn texts(self, long: &str) -> Vec<String> {
        let values = self.0.try_get_many::<String>(long).ok().flatten();
        values.map(|values| values.cloned().collect()).unwrap_or_default()
    }

    /// Whether a flag without a value was given.
    pub(crate) fn is_set(self, long: &str) -> bool {
        self.0.try_get_one::<bool>(long).ok().flatten().copied().unwrap_or(false)
    }

    /// Whether a flag was given, with a value or without.
    pub(crate) fn is_given(self, long: &str) -> bool {
        self.0.value_source(long) == Some(clap::parser::ValueSource::CommandLine)
    }

    /// The positional values.
    pub(crate) fn values(self) -> Vec<String> {
        self.texts(VALUES)
    }
}

pub(crate) use calibrate::calibrate_text;
pub(crate) use ctl::SOCKET_DEFAULT;
pub(crate) use edge::edge_text;
pub(crate) use load::{load_text, subject_pids};
pub(crate) use proxy::proxy_text;
pub(crate) use serve::serve_text;

#[cfg(test)]
mod tests;
