//! `weir tune apply`: plans the change, writes it, and restores it at its end.

use record::units::format_plural;
use std::io;
use std::path::Path;

use host::trusted_dir::TrustedDir;
use record::file::{format_wall_clock, wall_clock_now, wall_clock_ns, write_atomically};
use record::problem::InputProblem;
use rt::drain::{SignalSet, block_signals};
use tune::apply::{ApplyPlan, RequestedValue, parse_requests, persistent_text, plan_apply};
use tune::check::judge_context;
use tune::foreign::parse_file;
use tune::journal::{EndsWith, PersistedFile, Target, is_namespace_name};
use tune::observation::{MachineState, observe_machine};
use tune::profiles::find_profile;
use tune::session::{
    ApplyOptions, ApplyStep, apply, conflicts, namespace_target, remove_persisted, revert, run_in_target,
    stored_journals,
};
use tune::setting::Role;

use super::command::{self, Foreground};
use super::{journals_path, report_refused, restore_leftovers};
use crate::commands::text_file::read_text_file;
use crate::exit::{Exit, Failure};
use crate::flags::{ApplyFlags, CommandArgs, CommandFlags, FlagReader};
use crate::output::print;
use report::text::tune::format_plan;

/// Environment variable of tests: the number of the step at which this process kills itself.
const KILL_AT: &str = "WEIR_TEST_TUNE_KILL_AT";

/// Parsed command line.
struct ApplyRequest {
    role: Role,
    target: Target,
    requests: Vec<RequestedValue>,
    words: Vec<String>,
    command: Vec<String>,
    time_limit_ns: Option<u64>,
    is_dry_run: bool,
}

pub(super) fn run(args: CommandArgs<'_>, arguments: &[String]) -> Result<Exit, Failure> {
    let (request, flags) = parse(args, arguments)?;
    // Before the plan, so that the values of a killed apply are not taken for those of the machine.
    let directory = if request.is_dry_run { None } else { Some(create_journals(&flags)?) };
    if let Some(directory) = &directory {
        restore_leftovers(Some(directory));
    }
    let state = run_in_target(&request.target, observe_machine)?;
    let plan = plan(&request, &state)?;
    print(&format_plan(&plan, &request.target, request.is_dry_run));
    let Some(directory) = directory else { return Ok(Exit::Done) };
    let stored = stored_journals(&directory);
    report_refused(&stored.refused);
    let managed = conflicts(&plan, &request.target, &stored.journals);
    if !managed.is_empty() {
        let texts = managed.iter().map(|(name, text)| format!("{name}: {text}"));
        return Err(Failure::CannotRun(texts.collect::<Vec<_>>().join("\nweir: ")));
    }
    // Before the first write, so that a signal cannot end this process between two of them.
    let signals = block_signals(SignalSet::All)?;
    let foreground = Foreground::new(request.time_limit_ns, &request.command, signals)?;
    let mut options = ApplyOptions {
        target: request.target.clone(),
        ends_with: ends_with(&request),
        requested: request.words.clone(),
        started_at: wall_clock_now(),
        persisted: None,
    };
    if let Some(path) = &flags.persist {
        options.persisted = Some(persist(path, &plan, arguments)?);
    }
    if plan.changes.is_empty() && request.command.is_empty() {
        print("nothing to change\n");
        return Ok(Exit::Done);
    }
    let journals = directory.try_clone()?;
    let journal = run_in_target(&request.target, || apply(&plan, &options, journals, &mut kill_hook()))?;
    let journal = journal.map_err(|error| {
        // The apply failed; the error of the apply is the one to report.
        options.persisted.iter().for_each(remove_persisted);
        Failure::cannot_run(error)
    })?;
    if options.ends_with == EndsWith::Revert {
        print("applied; weir tune revert restores the old values\n");
        return Ok(Exit::Done);
    }
    let result = run_in_target(&request.target, move || foreground.wait());
    restore(&directory, &journal)?;
    result?.map_err(Failure::from)
}

fn parse(args: CommandArgs<'_>, arguments: &[String]) -> Result<(ApplyRequest, ApplyFlags), Failure> {
    let mut problems = Vec::new();
    let command = command::words_after_dashes(arguments);
    let mut words = args.values();
    words.truncate(words.len() - command.len().min(words.len()));
    let requests = expand_files(&words).and_then(|words| parse_requests(&words));
    let requests = requests.map_err(|found| problems.extend(found)).unwrap_or_default();
    let mut reader = FlagReader::new(args);
    reader.problems = problems;
    let flags = ApplyFlags::read(&mut reader);
    let mut problems = reader.problems;
    let target = parse_target(&flags, &mut problems);
    if flags.persist.is_some() && (flags.time_limit_ns.is_some() || !command.is_empty()) {
        let text = "not with --for or a command: these settings do not persist";
        problems.push(InputProblem::new("--persist", text));
    }
    if flags.persist.is_some() && flags.netns.is_some() {
        problems.push(InputProblem::new("--persist", "not with --netns: sysctl.d is for the host"));
    }
    if !problems.is_empty() {
        return Err(problems.into());
    }
    let (role, time_limit_ns, is_dry_run) = (flags.role, flags.time_limit_ns, flags.dry_run);
    Ok((ApplyRequest { role, target, requests, words, command, time_limit_ns, is_dry_run }, flags))
}

/// Replaces files in the form of sysctl.conf by their settings. A word without `=` that is no profile and names a
/// file is one.
pub(super) fn expand_files(words: &[String]) -> Result<Vec<String>, Vec<InputProblem>> {
    let (mut expanded, mut problems) = (Vec::new(), Vec::new());
    for word in words {
        let is_file = !word.contains('=') && find_profile(word).is_none() && Path::new(word).is_file();
        if !is_file {
            expanded.push(word.clone());
            continue;
        }
        match read_text_file(word) {
            Ok(text) => {
                for line in parse_file(word, &text) {
                    match line.problem.as_ref().or(line.unresolved.as_ref()) {
                        Some(why) => problems.push(InputProblem::new(line.location(), why.clone())),
                        None => expanded.push(format!("{}={}", line.name, line.value)),
                    }
                }
            }
            Err(problem) => problems.push(problem),
        }
    }
    if expanded.is_empty() && problems.is_empty() && !words.is_empty() {
        problems.push(InputProblem::new(words.join(" "), "no setting in it"));
    }
    if problems.is_empty() { Ok(expanded) } else { Err(problems) }
}

fn parse_target(flags: &ApplyFlags, problems: &mut Vec<InputProblem>) -> Target {
    match (&flags.netns, flags.host) {
        (Some(_), true) => problems.push(InputProblem::new("--netns", "give either --netns or --host")),
        (Some(name), false) if !is_namespace_name(name) => {
            problems.push(InputProblem::new("--netns", format!("'{name}' is no name of a namespace")));
        }
        (Some(name), false) => match namespace_target(name) {
            Ok(target) => return target,
            Err(error) => {
                let text = format!("{error} (ip netns add {name} makes it)");
                problems.push(InputProblem::new("--netns", text));
            }
        },
        (None, false) if !flags.dry_run => {
            let text = "this changes settings: add --host for this host, --netns NAME for a network namespace, or \
                        --dry-run";
            problems.push(InputProblem::new("--host", text));
        }
        (None, _) => {}
    }
    Target::Host
}

fn plan(request: &ApplyRequest, state: &MachineState) -> Result<ApplyPlan, Failure> {
    let values = state.values();
    let mut context = judge_context(state, &values, request.role);
    // Settings of the same apply are in force together.
    for requested in &request.requests {
        let replaced = tune::judge::ReplacedValue {
            value: requested.value.clone(),
            location: "in the same apply".to_owned(),
        };
        context.replaced.insert(requested.name.clone(), replaced);
    }
    let is_namespace = request.target != Target::Host;
    let planned = run_in_target(&request.target, || {
        plan_apply(&request.requests, &context, is_namespace, |requested| {
            host::tuning::read_choice(&requested.path)
        })
    })?;
    Ok(planned?)
}

fn ends_with(request: &ApplyRequest) -> EndsWith {
    if !request.command.is_empty() {
        return EndsWith::Command { command: request.command.clone() };
    }
    match request.time_limit_ns {
        Some(ns) => EndsWith::Time { at: format_wall_clock(wall_clock_ns().saturating_add(ns)) },
        None => EndsWith::Revert,
    }
}

/// Writes the file for `sysctl.d`. Never replaces a file of somebody else.
fn persist(path: &str, plan: &ApplyPlan, arguments: &[String]) -> Result<PersistedFile, Failure> {
    let text = persistent_text(plan, &arguments.join(" "));
    if Path::new(path).exists() {
        return Err(vec![InputProblem::new("--persist", format!("{path} exists: remove it first"))].into());
    }
    let failed = |error| Failure::cannot(format!("--persist {path}"), error);
    // A revert may run in another directory.
    let absolute = std::path::absolute(path).map_err(failed)?;
    write_atomically(&absolute, text.as_bytes()).map_err(failed)?;
    Ok(PersistedFile { path: absolute, text })
}

/// Opens the directory of journals, and creates it if it is missing.
fn create_journals(flags: &ApplyFlags) -> Result<TrustedDir, Failure> {
    TrustedDir::open_or_create(&journals_path(flags.journals.as_deref()))
        .map_err(|error| Failure::CannotRun(format!("the journal cannot be written: {error}")))
}

/// Restores the settings of this apply, and reports it.
fn restore(directory: &TrustedDir, journal: &str) -> Result<(), Failure> {
    let report = revert(directory, journal, false).map_err(Failure::cannot_run)?;
    let Some(report) = report else {
        warn!("weir: already restored by another weir tune revert");
        return Ok(());
    };
    let restored = report.restored.len() + report.unchanged.len();
    warn!("weir: restored {}", format_plural(restored as u64, "setting"));
    super::revert::report_problems(&report);
    if report.is_complete() {
        Ok(())
    } else {
        Err(Failure::CannotRun("not everything is restored".to_owned()))
    }
}

/// Returns the hook that kills this process at the step that a test asks for.
fn kill_hook() -> impl FnMut(ApplyStep) + Send {
    let wanted = std::env::var(KILL_AT).ok().and_then(|text| text.parse::<usize>().ok());
    let mut step = 0;
    move |_| {
        if wanted == Some(step) {
            let own = rustix::process::getpid();
            // SIGKILL to this process does not return.
            let _: io::Result<()> =
                rustix::process::kill_process(own, rustix::process::Signal::KILL).map_err(io::Error::from);
        }
        step += 1;
    }
}
