//! `weir tune`: host settings. Each subcommand has its own file here.

mod apply;
mod check;
mod command;
mod revert;

use std::path::PathBuf;

use record::problem::{InputProblem, suggestion};
use record::units::{DurationUnit, parse_duration_ns};
use tune::session::{journal_directory, recover};
use tune::setting::{ROLES, Role};

use crate::exit::{Exit, Failure};
use crate::flags::CommandArgs;

/// Runs the subcommand of `weir tune`.
pub(super) fn run(args: CommandArgs<'_>, arguments: &[String]) -> Result<Exit, Failure> {
    match args.0.subcommand() {
        Some(("check", args)) => check::run(CommandArgs(args)),
        Some(("apply", args)) => apply::run(CommandArgs(args), arguments),
        Some(("revert", args)) => revert::run(CommandArgs(args)),
        Some(("status", args)) => revert::status(CommandArgs(args)),
        _ => {
            warn!("weir: missing command, for example weir tune check (--help lists them)");
            Ok(Exit::Usage)
        }
    }
}

/// Parses `--role`.
fn parse_role(args: CommandArgs<'_>) -> Result<Role, InputProblem> {
    let Some(text) = args.text("role") else { return Ok(Role::Proxy) };
    Role::from_name(&text).ok_or_else(|| {
        let near = suggestion(&text, ROLES.iter().map(|role| role.name()));
        InputProblem::new("--role", format!("'{text}' is no role: client, proxy or origin{near}"))
    })
}

/// Parses `--for`.
fn parse_time_limit(args: CommandArgs<'_>) -> Result<Option<u64>, InputProblem> {
    let Some(text) = args.text("for") else { return Ok(None) };
    match parse_duration_ns(&text, DurationUnit::Seconds) {
        Ok(0) => Err(InputProblem::new("--for", "the time must be above 0")),
        Ok(ns) => Ok(Some(ns)),
        Err(text) => Err(InputProblem::new("--for", text)),
    }
}

/// Returns the directory of journals.
fn journals(args: CommandArgs<'_>) -> PathBuf {
    let default = || {
        let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
        journal_directory(runtime.as_deref(), rustix::process::geteuid().is_root())
    };
    args.text("journals").map_or_else(default, PathBuf::from)
}

/// Restores the settings of killed processes, and reports it.
fn restore_leftovers(args: CommandArgs<'_>) {
    for (stored, result) in recover(&journals(args)) {
        let requested = stored.journal.header.requested.join(" ");
        match result {
            Ok(Some(report)) => {
                warn!("weir: restoring the settings of a killed 'weir tune apply {requested}'");
                revert::report_problems(&report);
            }
            Ok(None) => {}
            Err(error) => warn!("weir: settings of a killed 'weir tune apply {requested}': {error}"),
        }
    }
}

/// Returns everything that is wrong with the flags, for the test of the flag tables.
#[cfg(test)]
pub(super) fn check_flags(args: CommandArgs<'_>) -> Result<(), Vec<InputProblem>> {
    let mut problems = Vec::new();
    problems.extend(parse_role(args).err());
    problems.extend(parse_time_limit(args).err());
    if problems.is_empty() { Ok(()) } else { Err(problems) }
}

#[cfg(test)]
mod tests {
    use diagnose::verdicts::VERDICTS;
    use tune::apply::parse_requests;

    #[test]
    fn remedies_of_verdicts_name_settings_of_the_catalogue() {
        let mut named = Vec::new();
        for verdict in VERDICTS {
            for rest in verdict.remedy.split("`weir tune apply --host ").skip(1) {
                let words = rest.split('`').next().unwrap_or_default().trim_matches('\'');
                let requests = parse_requests(&[words.to_owned()]).unwrap();
                named.extend(requests.into_iter().map(|request| request.name));
            }
        }
        for name in ["net.core.somaxconn", "net.ipv4.tcp_tw_reuse", "net.ipv4.tcp_notsent_lowat"] {
            assert!(named.iter().any(|other| other == name), "{name}: {named:?}");
        }
    }
}
