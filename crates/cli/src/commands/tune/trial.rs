//! `weir tune trial`: an ablation of a profile as an ordinary experiment, its conclusions and the minimal profile.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use experiment::definition::{ExperimentFile, ExperimentOptions, declares_arms};
use experiment::engine::JudgeInput;
use experiment::engine::experiment_dir::{ChangedSettings, ExperimentDir};
use experiment::judge::is_concluded;
use experiment::judgement::{judge, machine_cpus, parse_stored};
use experiment::scenario::plan::Node;
use experiment::trial::metrics::{METRICS, find_metric};
use record::experiment::{Comparison, Experiment, ExperimentPlan, TrialSummary};
use record::file::write_atomically;
use record::problem::{InputProblem, suggestion};
use report::text::experiment::ArmText;
use rt::drain::{DrainStage, DrainWatch};
use tune::ablation::{
    AblationComparisons, AblationDesign, AblationMethod, AblationReport, CONFIRM_SUFFIX, METHODS, MINIMAL,
    TRIAL_SCHEMA, ablation_text, conclude, confirmation_text, plan_against_profile, profile_text,
    read_ablation,
};
use tune::apply::{ApplyPlan, RequestedValue, plan_apply};
use tune::check::judge_context;
use tune::link::{is_of_link, parse_trial_requests};
use tune::observation::{MachineState, observe_machine};
use tune::setting::Role;

use super::apply::expand_files;
use crate::commands::lab::report_files::{REPORT_HTML, write_reports};
use crate::commands::lab::run::{
    changed_settings, check_run, create_directory, exit_code, finish_note, parse_options, parse_text,
    print_checked, read_named, run_trials, watch_termination,
};
use crate::exit::{Exit, Failure};
use crate::flags::{CommandArgs, FlagReader, parse_role};
use crate::output::file::write_json;
use crate::output::print;
use report::text::tune::format_ablation;

/// File of the design and the result.
const TRIAL_FILE: &str = "tune-trial.json";
/// File of the experiment without the arms.
const BASE_FILE: &str = "base.toml";
const MINIMAL_FILE: &str = "minimal.conf";
const CONFIRM_DIRECTORY: &str = "confirm";
const NODES: [&str; 3] = ["client", "subject", "origin"];

pub(super) struct TrialRequest {
    role: Role,
    node: String,
    method: AblationMethod,
    options: ExperimentOptions,
}

/// Trial that is ready to run, or to be continued.
struct PreparedTrial {
    design: AblationDesign,
    base: String,
    name: String,
    options: ExperimentOptions,
}

pub(super) fn run(args: CommandArgs<'_>, arguments: &[String]) -> Result<Exit, Failure> {
    let json = args.text("json");
    crate::preflight::outputs(args, &["json"], &[])?;
    let request = parse_flags(args);
    let is_check = args.is_set("check");
    let (trial, file, mut directory) = match args.text("resume") {
        Some(path) => {
            let settings = changed_settings(&request?.options);
            let (trial, file, directory) = open_trial(args, Path::new(&path), settings)?;
            (trial, file, Some(directory))
        }
        None => {
            let (trial, file) = prepare(args, request)?;
            (trial, file, None)
        }
    };
    check_run(&file)?;
    warn_about_skipped(&trial.design);
    if is_check {
        let name = args.text("experiment").or_else(|| args.text("resume"));
        // Each arm's title names its settings; the values would be repeated for every arm.
        print_checked(&name.unwrap_or_default(), file.plan(), ArmText::Title);
        return Ok(Exit::Done);
    }
    let directory = match &mut directory {
        Some(directory) => directory,
        None => {
            let created =
                create_directory(&file, arguments, args.text("output").map(PathBuf::from), BTreeMap::new())?;
            directory.insert(created)
        }
    };
    write_atomically(&directory.path().join(BASE_FILE), trial.base.as_bytes())?;
    let unfinished = AblationReport {
        schema: TRIAL_SCHEMA.to_owned(),
        design: trial.design.clone(),
        is_partial: true,
        stopped: "not finished".to_owned(),
        ..AblationReport::default()
    };
    store_report(&unfinished, directory.path())?;
    let stop = watch_termination()?;
    let directory_cpus = machine_cpus(directory);
    let mut experiment = run_trials(args, directory, &file, &stop, &stopping_rule(directory_cpus))?;
    let mut report = conclude_trial(&trial.design, &experiment, &file, directory);
    store_report(&report, directory.path())?;
    if report.needs_confirmation() && !args.is_set("no-confirm") && stop.stage() == DrainStage::Running {
        confirm(args, arguments, &trial, &mut report, directory.path(), &stop)?;
    }
    finish(&mut experiment, &report, directory, json.as_deref())?;
    exit_code(&experiment, directory.path())
}

/// Reads the flags; reports everything that is wrong with them.
fn parse_flags(args: CommandArgs<'_>) -> Result<TrialRequest, Vec<InputProblem>> {
    let mut problems = Vec::new();
    let mut reader = FlagReader::new(args);
    let role = reader.parse("role", parse_role).unwrap_or(Role::Proxy);
    problems.extend(reader.problems);
    let node = args.text("at").unwrap_or_else(|| "subject".to_owned());
    if !NODES.contains(&node.as_str()) {
        problems.push(InputProblem::new("--at", format!("'{node}' is no node: client, subject or origin")));
    }
    let method = args.text("method").unwrap_or_else(|| AblationMethod::Both.name().to_owned());
    let method = AblationMethod::from_name(&method).unwrap_or_else(|| {
        let names = METHODS.map(AblationMethod::name).join(", ");
        problems.push(InputProblem::new("--method", format!("'{method}' is no method: {names}")));
        AblationMethod::Both
    });
    let mut options = parse_options(args).map_err(|found| problems.extend(found)).unwrap_or_default();
    options.metric = args.text("metric");
    if let Some(metric) = options.metric.as_deref().filter(|metric| find_metric(metric).is_none()) {
        let near = suggestion(metric, METRICS.iter().map(|known_metric| known_metric.name));
        problems.push(InputProblem::new("--metric", format!("no metric '{metric}'{near}")));
    }
    if problems.is_empty() { Ok(TrialRequest { role, node, method, options }) } else { Err(problems) }
}

/// Returns everything that is wrong with the flags, for the test of the flag tables.
#[cfg(test)]
pub(super) fn check_flags(args: CommandArgs<'_>) -> Result<(), Vec<InputProblem>> {
    parse_flags(args).map(|_| ())
}

/// Designs a new trial: reads the settings and the experiment, and compares both with this machine.
fn prepare(
    args: CommandArgs<'_>,
    request: Result<TrialRequest, Vec<InputProblem>>,
) -> Result<(PreparedTrial, ExperimentFile), Failure> {
    let words = args.values();
    let requests = expand_files(&words).and_then(|words| parse_trial_requests(&words));
    let base = match args.text("experiment") {
        Some(name) => read_named(&name).and_then(|(name, text)| match declares_arms(&text) {
            false => Ok((name, text)),
            true => {
                let text = "the experiment has arms of its own; a trial makes the arms: remove [arms], and \
                            factors of arms";
                Err(InputProblem::new(name, text))
            }
        }),
        None => Err(InputProblem::new(
            "--experiment",
            "missing: name an experiment without arms, for instance connection-per-request",
        )),
    };
    let (request, requests, (name, base)) = match (request, requests, base) {
        (Ok(request), Ok(requests), Ok(base)) => (request, requests, base),
        (request, requests, base) => {
            let mut problems = request.err().unwrap_or_default();
            problems.extend(requests.err().unwrap_or_default());
            problems.extend(base.err());
            return Err(problems.into());
        }
    };
    let own = own_sysctls(&parse_text(&name, &base, &request.options)?, &request.node);
    let plan = plan_settings(&requests, (request.role, &own), args.is_set("allow-global"))?;
    let design = AblationDesign::new(&words, &request.node, request.method, &plan)
        .map_err(|problem| Failure::Usage(vec![problem]))?;
    let text = ablation_text(&base, &design);
    let file = parse_text(&name, &text, &request.options)?;
    Ok((PreparedTrial { design, base, name, options: request.options }, file))
}

/// Returns the sysctls that the experiment itself sets at the node.
fn own_sysctls(file: &ExperimentFile, node: &str) -> Vec<(String, String)> {
    let plan = file.plan();
    let setup = plan.loads.first().and_then(|load| file.setup(&plan.baseline, &load.name));
    let sysctls = setup.and_then(|setup| setup.scenario.sysctls.get(&Node::from_name(node)?));
    let full_name = |name: &String| match name.starts_with("net.") {
        true => name.clone(),
        false => format!("net.{name}"),
    };
    sysctls.into_iter().flatten().map(|(name, value)| (full_name(name), value.clone())).collect()
}

/// Compares the settings with a new namespace that has the experiment's own sysctls, and those of the complete
/// machine with this host.
fn plan_settings(
    requests: &[RequestedValue],
    (role, own): (Role, &[(String, String)]),
    allow_global: bool,
) -> Result<ApplyPlan, Failure> {
    let (links, others): (Vec<_>, Vec<_>) = requests.iter().cloned().partition(is_of_link);
    let (namespaced, global): (Vec<_>, Vec<_>) = others.into_iter().partition(tune::ablation::is_namespaced);
    let plan = |requests: &[RequestedValue], is_namespace: bool| {
        let state = observe_machine();
        plan_here(requests, &state, role, is_namespace)
    };
    let planned = host::sandbox::namespace::run_in_new_netns(|| {
        for (name, value) in own {
            // A value that cannot be written fails the first trial, with its reason.
            let _ = host::tuning::sysctl_path(name).map(|path| host::tuning::write_value(&path, value));
        }
        let planned = plan(&namespaced, true)?;
        // The kernel may reject a value, so each is written once where it changes nothing.
        let rejected = planned.changes.iter().filter_map(|change| {
            let error = host::tuning::write_value(&change.requested.path, &change.requested.value).err()?;
            Some(InputProblem::new(change.requested.name.as_str(), error))
        });
        let rejected: Vec<InputProblem> = rejected.collect();
        if rejected.is_empty() { Ok(planned) } else { Err(rejected) }
    });
    let mut planned = planned.map_err(|error| Failure::cannot("weir tune trial", error))??;
    let link_plan = super::trial_links::plan(&links, role)?;
    planned.changes.extend(link_plan.changes);
    planned.unchanged.extend(link_plan.unchanged);
    if allow_global {
        let host = plan(&global, false)?;
        planned.changes.extend(host.changes);
        planned.unchanged.extend(host.unchanged);
        planned.skipped.extend(host.skipped);
        return Ok(planned);
    }
    for request in global {
        let scope = request.setting.scope.name();
        let text = format!(
            "{scope}: a network namespace has no value of its own (--allow-global changes this host)"
        );
        planned.skipped.push((request.name, text));
    }
    Ok(planned)
}

fn plan_here(
    requests: &[RequestedValue],
    state: &MachineState,
    role: Role,
    is_namespace: bool,
) -> Result<ApplyPlan, Vec<InputProblem>> {
    let values = state.values();
    let context = judge_context(state, &values, role);
    plan_apply(requests, &context, is_namespace, |requested| host::tuning::read_choice(&requested.path))
}

fn warn_about_skipped(design: &AblationDesign) {
    for (name, reason) in &design.skipped {
        warn!("weir: not measured: {name}: {reason}");
    }
    let global: Vec<&str> = design.global_settings().map(|setting| setting.name.as_str()).collect();
    if !global.is_empty() {
        warn!("weir: changes this host during the trials, with a journal: {}", global.join(", "));
    }
}

fn open_trial(
    args: CommandArgs<'_>,
    path: &Path,
    settings: ChangedSettings,
) -> Result<(PreparedTrial, ExperimentFile, ExperimentDir), Failure> {
    let problem = |text: String| Failure::Usage(vec![InputProblem::new("--resume", text)]);
    if !args.values().is_empty() || args.is_given("experiment") {
        return Err(problem(
            "the settings and the experiment come from the directory; name neither".to_owned(),
        ));
    }
    let report = read_ablation(&path.join(TRIAL_FILE))
        .map_err(|error| problem(format!("{error}; weir tune trial makes such a directory")))?;
    let base = std::fs::read_to_string(path.join(BASE_FILE))
        .map_err(|error| problem(format!("{}: {error}", path.join(BASE_FILE).display())))?;
    let mut directory = ExperimentDir::open(path).map_err(|error| problem(error.to_string()))?;
    directory.change_settings(settings);
    let plan = &directory.start().plan;
    let (name, options) = (format!("{}.toml", plan.name), ExperimentOptions::from_plan(plan));
    let file =
        crate::commands::lab::run::with_environment_checks(|checks| parse_stored(&directory, Some(checks)))?;
    directory.check_plan(file.plan()).map_err(|error| problem(error.to_string()))?;
    Ok((PreparedTrial { design: report.design, base, name, options }, file, directory))
}

/// Returns the stopping rule: every arm has its conclusion against none of the settings, and against the complete profile.
fn stopping_rule(cpus: f64) -> impl Fn(&ExperimentPlan, &[TrialSummary]) -> bool {
    move |plan, lines| {
        let view = plan_against_profile(plan);
        is_concluded(plan, lines, cpus) && (view.arms.len() < 2 || is_concluded(&view, lines, cpus))
    }
}

/// Judges the trials against none of the settings and against the complete profile.
fn conclude_trial(
    design: &AblationDesign,
    experiment: &Experiment,
    file: &ExperimentFile,
    directory: &ExperimentDir,
) -> AblationReport {
    let view = plan_against_profile(&experiment.plan);
    let (trials, stopped) = (&experiment.trials, &experiment.stopped);
    let input = JudgeInput { plan: &view, trials, directory, changes: &[], stopped };
    // With one setting, no arm differs from the profile by one.
    let with_profile: Vec<Comparison> =
        if view.arms.len() > 1 { judge(file, input).comparisons } else { Vec::new() };
    let comparisons = AblationComparisons {
        plan: &experiment.plan,
        with_none: &experiment.comparisons,
        with_profile: &with_profile,
        stopped: &experiment.stopped,
        is_partial: experiment.partial,
    };
    conclude(design, comparisons, (env!("WEIR_VERSION"), &experiment.host.kernel))
}

/// Runs the minimal profile beside the complete one.
fn confirm(
    args: CommandArgs<'_>,
    arguments: &[String],
    trial: &PreparedTrial,
    report: &mut AblationReport,
    path: &Path,
    stop: &DrainWatch,
) -> Result<(), Failure> {
    let text = confirmation_text(&trial.base, &trial.design, &report.minimal);
    // The fewest blocks that can decide, unless the user asked for more.
    let quick = trial.options.blocks.is_none();
    let options = ExperimentOptions { quick, was_accepted: true, ..trial.options.clone() };
    let file = parse_text(&trial.name, &text, &options)?;
    let output = path.join(CONFIRM_DIRECTORY);
    let mut directory = match output.is_dir() {
        true => ExperimentDir::open(&output).map_err(Failure::cannot_run)?,
        false => create_directory(&file, arguments, Some(output), BTreeMap::new())?,
    };
    warn!("weir: confirmation{CONFIRM_SUFFIX}: the minimal profile beside the complete one");
    let cpus = machine_cpus(&directory);
    let rule = |plan: &ExperimentPlan, lines: &[TrialSummary]| is_concluded(plan, lines, cpus);
    let experiment = run_trials(args, &mut directory, &file, stop, &rule)?;
    write_reports(&experiment, &directory)?;
    report.confirm(&experiment.comparisons, MINIMAL, experiment.partial);
    store_report(report, path)
}

fn store_report(report: &AblationReport, path: &Path) -> Result<(), Failure> {
    let mut text = serde_json::to_string_pretty(report).map_err(std::io::Error::other)?;
    text.push('\n');
    write_atomically(&path.join(TRIAL_FILE), text.as_bytes())?;
    Ok(())
}

/// Writes the reports and the minimal profile, and prints the result.
fn finish(
    experiment: &mut Experiment,
    report: &AblationReport,
    directory: &ExperimentDir,
    json: Option<&str>,
) -> Result<(), Failure> {
    experiment.summary.splice(0..0, report.summary.iter().cloned());
    write_reports(experiment, directory)?;
    let (path, minimal) = (directory.path(), directory.path().join(MINIMAL_FILE));
    write_atomically(&minimal, profile_text(report, &path.display().to_string()).as_bytes())?;
    if json != Some(crate::preflight::STDOUT) {
        print(&format_ablation(report));
        let (html, minimal) = (path.join(REPORT_HTML), minimal.display());
        print(&format!("\nreport           {}\nminimal profile  {minimal}\n", html.display()));
        if !report.minimal.is_empty() {
            print(&format!("apply it         weir tune apply --host {minimal}\n"));
        }
    }
    match &experiment.finish {
        Some(step) => warn!("weir: {}", finish_note(step)),
        None if experiment.stopped.code == "interrupted" => {
            warn!("weir: continue with: weir tune trial --resume {}", path.display());
        }
        None => {}
    }
    write_json(report, json)
}
