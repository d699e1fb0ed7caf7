//! `weir tune`: host settings. Each subcommand has its own file here.

mod apply;
mod check;
mod command;
mod revert;
mod trial;
mod trial_links;

use std::path::PathBuf;

use host::trusted_dir::TrustedDir;
#[cfg(test)]
use record::problem::InputProblem;
use tune::session::{JournalError, Recovery, SUBDIRECTORY, journal_directory, recover};

use crate::exit::{Exit, Failure};
use crate::flags::CommandArgs;
#[cfg(test)]
use crate::flags::{ApplyFlags, CommandFlags, TuneCheckFlags};

/// Runs the subcommand of `weir tune`.
pub(super) fn run(args: CommandArgs<'_>, arguments: &[String]) -> Result<Exit, Failure> {
    match args.0.subcommand() {
        Some(("check", args)) => check::run(CommandArgs(args)),
        Some(("apply", args)) => apply::run(CommandArgs(args), arguments),
        Some(("trial", args)) => trial::run(CommandArgs(args), arguments),
        Some(("revert", args)) => revert::run(CommandArgs(args)),
        Some(("status", args)) => revert::status(CommandArgs(args)),
        _ => {
            warn!("{}", crate::flags::short_help_of("tune"));
            Ok(Exit::Usage)
        }
    }
}

fn journals_path(journals: Option<&str>) -> PathBuf {
    journals.map_or_else(journal_directory, PathBuf::from)
}

/// Opens the directory of journals. `None` if there is none yet.
fn open_journals(journals: Option<&str>) -> Result<Option<TrustedDir>, Failure> {
    super::lab::list_old_journals(SUBDIRECTORY, "weir tune revert");
    TrustedDir::open(&journals_path(journals))
        .map_err(|error| Failure::CannotRun(format!("the journals are not obeyed: {error}")))
}

fn report_refused(refused: &[JournalError]) {
    for reason in refused {
        warn!("weir: not obeyed: {reason}");
    }
}

/// Restores the settings of killed processes, and reports it, except for journals that are not obeyed.
fn restore_leftovers(journals: Option<&TrustedDir>) {
    // A killed trial leaves settings of its own.
    super::lab::remove_leftovers();
    let Recovery { reverted, .. } = journals.map(recover).unwrap_or_default();
    for (stored, result) in reverted {
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
pub(super) fn check_flags(command: &str, args: CommandArgs<'_>) -> Result<(), Vec<InputProblem>> {
    match command {
        "tune trial" => trial::check_flags(args),
        "tune check" => TuneCheckFlags::parse(args).map(|_| ()),
        _ => ApplyFlags::parse(args).map(|_| ()),
    }
}

#[cfg(test)]
mod tests {
    use diagnose::verdicts::VERDICTS;
    use plan::inputs::Inputs;
    use plan::sizing::Sizing;
    use tune::apply::parse_requests;

    use crate::flags::build_command_line;

    /// Returns the texts in backticks.
    fn quoted(text: &str) -> impl Iterator<Item = &str> {
        text.split('`').skip(1).step_by(2)
    }

    /// Splits a command line as a shell does; only single quotes occur.
    fn words(line: &str) -> Vec<String> {
        let parts = line.split('\'').enumerate();
        let words = parts.flat_map(|(at, part)| match at % 2 {
            0 => part.split_whitespace().map(str::to_owned).collect(),
            _ => vec![part.to_owned()],
        });
        words.collect()
    }

    #[test]
    fn commands_of_remedies_are_accepted_by_the_command_line() {
        for verdict in VERDICTS {
            let outside: String = verdict.remedy.split('`').step_by(2).collect();
            for command in ["weir tune", "weir plan", "weir lab"] {
                assert!(!outside.contains(command), "{}: put commands in backticks", verdict.code);
            }
            for line in quoted(verdict.remedy).filter(|line| line.starts_with("weir ")) {
                let parsed = build_command_line().try_get_matches_from(words(line));
                let problem = parsed.err().map(|error| error.to_string()).unwrap_or_default();
                assert_eq!(problem, "", "{}: {line}", verdict.code);
            }
        }
    }

    #[test]
    fn remedies_of_verdicts_name_settings_of_the_catalogue_that_can_be_written() {
        let mut named = Vec::new();
        for line in VERDICTS.iter().flat_map(|verdict| quoted(verdict.remedy)) {
            let Some(rest) = line.strip_prefix("weir tune apply --host ") else { continue };
            for request in parse_requests(&words(rest)).unwrap() {
                assert!(request.setting.is_writable(), "{line}");
                named.push(request.name);
            }
        }
        for name in [
            "net.core.somaxconn",
            "net.ipv4.tcp_tw_reuse",
            "net.ipv4.tcp_notsent_lowat",
            "net.netfilter.nf_conntrack_max",
        ] {
            assert!(named.iter().any(|other| other == name), "{name}: {named:?}");
        }
    }

    #[test]
    fn remedies_of_verdicts_name_figures_of_plans() {
        let mut inputs = Inputs::default();
        for (name, text) in [
            ("rate", "1k"),
            ("service", "20ms"),
            ("servers", "4"),
            ("slo", "p99<200ms"),
            ("requests-per-connection", "1"),
            ("server-requests", "1"),
            ("response-size", "1k"),
            ("tls", "100%"),
            ("client-rate", "50k"),
        ] {
            inputs.give_texts(name, &[text.to_owned()], "test").unwrap();
        }
        let sizing = Sizing::compute(&inputs);
        let mut verdicts_with_a_figure = 0;
        for verdict in VERDICTS {
            let has_plan = quoted(verdict.remedy).any(|text| text.starts_with("weir plan "));
            verdicts_with_a_figure += usize::from(has_plan);
            for figure in quoted(verdict.remedy).filter(|text| !text.starts_with("weir ")) {
                assert!(sizing.value(figure).is_some(), "{}: no figure {figure}", verdict.code);
            }
        }
        assert!(verdicts_with_a_figure >= 10, "{verdicts_with_a_figure}");
    }
}
