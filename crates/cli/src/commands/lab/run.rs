//! `weir lab run FILE|NAME`: runs an experiment, from its file to its report.

pub(super) mod environment_checks;
mod file_trials;
mod options;
mod progress;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use experiment::definition::{ExperimentFile, ExperimentOptions, ready};
use experiment::engine::environment::{self, EnvironmentFacts, ExecutableSet};
use experiment::engine::experiment_dir::{
    CONCLUSIONS_FILE, ChangedSettings, ExperimentDir, ExperimentDirError, ExperimentStart,
};
use experiment::engine::{EngineContext, EngineError, expected_duration_s};
use experiment::format::duration_estimate;
use experiment::judge::is_concluded;
use experiment::judgement::{judge, machine_cpus, parse, parse_stored};
use experiment::scenario::setup::LabSetup;
use experiment::trial::TrialTools;
use record::experiment::{Experiment, ExperimentPlan, FinishStep, StopReason, TrialSummary, counted_blocks};
use record::file::{wall_clock_now, wall_clock_ns};
use record::problem::{InputProblem, suggestion};
use record::trial::TrialKind;
use report::text::experiment::{ArmText, format_experiment, plan as plan_text};
use report::text::junit_suite::experiment_junit;
use rt::clock::now_ns;
use rt::drain::{Drain, DrainStage, DrainWatch, SignalSet, block_signals};
use runner::run_record::host_record;

pub(in crate::commands) use self::environment_checks::with_environment_checks;
pub(in crate::commands) use self::options::{changed_settings, parse_options};

use self::file_trials::FileTrials;
use self::progress::Progress;
use record::sorted::CollectSorted;

use super::experiments::{DIRECTORY_DEFAULT, directory_failure};
use super::report_files::{REPORT_HTML, Records, write_reports};
use super::{context, own_path};
use crate::commands::fleet::{ExperimentAgents, FleetRunner};
use crate::commands::text_file::decode_text;
use crate::commands::weir_version;
use crate::exit::{Exit, Failure};
use crate::flags::{CommandArgs, nats_options, nats_problems};
use crate::output::file::{write_json, write_text};
use crate::output::{print, print_valid};

const STDOUT_FLAGS: &[&str] = &["json", "junit"];
/// Interval at which a pause polls for a stop request.
const PAUSE_POLL_INTERVAL: std::time::Duration = std::time::Duration::from_millis(100);

pub(super) fn run(args: CommandArgs<'_>, arguments: &[String]) -> Result<Exit, Failure> {
    if args.is_set("list") {
        parse_flags(args)?;
        print(&list());
        return Ok(Exit::Done);
    }
    if let Some(name) = args.text("print") {
        parse_flags(args)?;
        let text = ready::find_ready_made(&name).map(|ready| ready.text).unwrap_or_default();
        print(text);
        return Ok(Exit::Done);
    }
    let json = args.text("json");
    crate::preflight::outputs(args, STDOUT_FLAGS, &[])?;
    match args.text("resume") {
        Some(path) => {
            let settings = changed_settings(&parse_flags(args)?);
            if !args.values().is_empty() {
                let text = "the file comes from the directory; use --resume without FILE";
                return Err(vec![InputProblem::new("FILE", text)].into());
            }
            resume_experiment(args, Path::new(&path), settings, json.as_deref())
        }
        None => start_experiment(args, arguments, json.as_deref()),
    }
}

/// Parses the flags; reports every problem at once.
fn parse_flags(args: CommandArgs<'_>) -> Result<ExperimentOptions, Vec<InputProblem>> {
    let mut problems = nats_problems(args);
    let options = parse_options(args).map_err(|others| problems.extend(others));
    options.ok().filter(|_| problems.is_empty()).ok_or(problems)
}

/// Returns everything that is wrong with the flags.
#[cfg(test)]
pub(super) fn check(args: CommandArgs<'_>) -> Result<(), Vec<InputProblem>> {
    parse_flags(args).map(|_| ())
}

/// Lists the ready-made experiments, and what each needs.
fn list() -> String {
    let width = ready::READY_MADE.iter().map(|experiment| experiment.name.len()).max().unwrap_or(0);
    let mut text = String::new();
    for experiment in ready::READY_MADE {
        let programs = experiment.programs.iter().map(|program| (*program).to_owned());
        let mut needs: Vec<String> = programs.collect();
        needs.extend(
            (!experiment.other_requirements.is_empty()).then(|| experiment.other_requirements.to_owned()),
        );
        text.push_str(&format!("{:width$}  {}\n", experiment.name, experiment.title));
        text.push_str(&format!("{:width$}  {}\n", "", experiment.question));
        if !needs.is_empty() {
            text.push_str(&format!("{:width$}  needs {}\n", "", needs.join(", ")));
        }
    }
    text
}

fn start_experiment(
    args: CommandArgs<'_>,
    arguments: &[String],
    json: Option<&str>,
) -> Result<Exit, Failure> {
    let file = read_file(args)?;
    let plan = file.plan();
    check_run(&file)?;
    if args.is_set("check") {
        print_checked(&args.values().join(" "), plan, ArmText::Changes);
        return Ok(Exit::Done);
    }
    let stop = watch_termination()?;
    let agents =
        FleetRunner::new(nats_options(args, "weir lab run"), &stop).read_agents(&experiment_agents(&file))?;
    let mut directory = create_directory(&file, arguments, args.text("output").map(PathBuf::from), agents)?;
    run_to_end(args, &mut directory, &file, json, &stop)
}

/// Returns the agents that the trials use; none for an experiment of this machine.
fn experiment_agents(file: &ExperimentFile) -> ExperimentAgents {
    ExperimentAgents::from_setups(setups(file).map(|(_, setup)| setup))
}

/// Creates the directory of a new experiment. `agents` are the facts of its agents.
pub(in crate::commands) fn create_directory(
    file: &ExperimentFile,
    arguments: &[String],
    output: Option<PathBuf>,
    agents: BTreeMap<String, String>,
) -> Result<ExperimentDir, Failure> {
    let (weir, plan) = (own_path()?, file.plan());
    let recorded_programs = programs_to_record(file, &weir);
    let start = ExperimentStart {
        weir: weir_version(),
        command: arguments.to_vec(),
        started_at: wall_clock_now(),
        host: host_record(host::facts::read(), Vec::new()),
        environment: environment::read(&recorded_programs).into_iter().chain(agents).collect_map(),
        plan: plan.clone(),
        ..ExperimentStart::default()
    };
    let directory = match output {
        Some(path) => ExperimentDir::create(&path, start),
        None => ExperimentDir::create_below(Path::new(DIRECTORY_DEFAULT), &start),
    };
    let directory = directory.map_err(directory_failure)?;
    warn!("{}: seed {}, in {}", plan.name, plan.seed, directory.path().display());
    Ok(directory)
}

fn resume_experiment(
    args: CommandArgs<'_>,
    path: &Path,
    settings: ChangedSettings,
    json: Option<&str>,
) -> Result<Exit, Failure> {
    let resumed = |error| match directory_failure(error) {
        Failure::Usage(problems) => {
            let texts = problems.into_iter().map(|problem| InputProblem::new("--resume", problem.text));
            Failure::Usage(texts.collect())
        }
        other => other,
    };
    let mut directory = ExperimentDir::open(path).map_err(resumed)?;
    let is_changed = settings != ChangedSettings::default();
    if let Some(experiment) = finished_experiment(&directory).map_err(resumed)?.filter(|_| !is_changed) {
        let report = path.join(REPORT_HTML);
        warn!("weir: {} is finished: {}", path.display(), experiment.stopped.text);
        warn!("weir: report: {} (weir lab show prints it again)", report.display());
        if let Some(step) = &experiment.finish {
            warn!("weir: {}", finish_note(step));
        }
        write_files(args, &experiment, json)?;
        return Ok(Exit::Done);
    }
    directory.change_settings(settings);
    let file = with_environment_checks(|checks| parse_stored(&directory, Some(checks)))?;
    directory.check_plan(file.plan()).map_err(resumed)?;
    check_run(&file)?;
    if args.is_set("check") {
        print_checked(&path.display().to_string(), file.plan(), ArmText::Changes);
        return Ok(Exit::Done);
    }
    run_to_end(args, &mut directory, &file, json, &watch_termination()?)
}

/// Returns the result of an experiment that its stopping rule ended and that has its report.
fn finished_experiment(directory: &ExperimentDir) -> Result<Option<Experiment>, ExperimentDirError> {
    let path = directory.path();
    if !path.join(CONCLUSIONS_FILE).exists() {
        return Ok(None);
    }
    let experiment = directory.experiment()?;
    Ok(Some(experiment).filter(|it| !it.partial && path.join(REPORT_HTML).is_file()))
}

/// Prints the result of `--check`: no problem was found, and the plan.
pub(in crate::commands) fn print_checked(name: &str, plan: &ExperimentPlan, arm_text: ArmText) {
    print_valid(name);
    print(&format!("\n{}", plan_text(plan, expected_duration_s(plan), arm_text)));
}

/// Returns every reason why the experiment cannot run, all at once.
pub(in crate::commands) fn check_run(file: &ExperimentFile) -> Result<(), Failure> {
    experiment::engine::check(file.plan()).map_err(engine_failure)
}

/// Reads the flags and the file; reports everything that is wrong with both.
fn read_file(args: CommandArgs<'_>) -> Result<ExperimentFile, Failure> {
    let options = parse_flags(args);
    let names = args.values();
    let [name] = names.as_slice() else {
        let mut problems = options.err().unwrap_or_default();
        let text = "name one experiment file, or a ready-made one (--list)";
        problems.push(InputProblem::new("FILE|NAME", text));
        return Err(problems.into());
    };
    let (named, text) = match read_named(name) {
        Ok(read) => read,
        Err(problem) => {
            let mut problems = options.err().unwrap_or_default();
            problems.push(problem);
            return Err(problems.into());
        }
    };
    let parse = |options: &ExperimentOptions| parse_text(&named, &text, options);
    match options {
        Ok(options) => Ok(parse(&options)?),
        Err(mut problems) => {
            problems.extend(parse(&ExperimentOptions::default()).err().unwrap_or_default());
            Err(problems.into())
        }
    }
}

/// Returns the file name and the text of an experiment: of a file, or of a ready-made one.
pub(in crate::commands) fn read_named(name: &str) -> Result<(String, String), InputProblem> {
    match ready::find_ready_made(name).filter(|_| !Path::new(name).is_file()) {
        Some(ready) => Ok((format!("{name}.toml"), ready.text.to_owned())),
        None => read_text(name).map(|text| (name.to_owned(), text)),
    }
}

pub(in crate::commands) fn parse_text(
    name: &str,
    text: &str,
    options: &ExperimentOptions,
) -> Result<ExperimentFile, Vec<InputProblem>> {
    with_environment_checks(|checks| parse(name, text, options, Some(checks)))
}

/// Returns the text of an experiment's file.
fn read_text(name: &str) -> Result<String, InputProblem> {
    let bytes = std::fs::read(name).map_err(|error| {
        let near = suggestion(name, ready::READY_MADE.iter().map(|experiment| experiment.name));
        InputProblem::new(name, format!("{error}{near}; ready-made experiments: --list"))
    })?;
    decode_text(name, bytes)
}

/// Iterates over what each arm runs under each load, with both names. The second arm of the
/// baseline runs the same as the baseline.
fn setups(file: &ExperimentFile) -> impl Iterator<Item = (&str, &LabSetup)> {
    let plan = file.plan();
    let arms = plan.arms.iter().filter(|arm| arm.repeats.is_none());
    let cells = arms.flat_map(|arm| plan.loads.iter().map(move |load| (&*arm.name, &*load.name)));
    cells.filter_map(|(arm, load)| Some((arm, file.setup(arm, load)?)))
}

fn programs_to_record(file: &ExperimentFile, weir: &Path) -> ExecutableSet {
    ExecutableSet::from_setups(setups(file).map(|(_, setup)| setup), weir)
}

fn run_to_end(
    args: CommandArgs<'_>,
    directory: &mut ExperimentDir,
    file: &ExperimentFile,
    json: Option<&str>,
    stop: &DrainWatch,
) -> Result<Exit, Failure> {
    let cpus = machine_cpus(directory);
    let experiment = run_trials(args, directory, file, stop, &|plan, lines| is_concluded(plan, lines, cpus))?;
    write_reports(&experiment, directory)?;
    show(args, &experiment, directory, json)?;
    exit_code(&experiment, directory.path())
}

/// Starts to receive the signals that end an experiment.
pub(in crate::commands) fn watch_termination() -> Result<DrainWatch, Failure> {
    let drain = Drain::default();
    let stop = drain.watch();
    block_signals(SignalSet::Termination)?.spawn_handler(drain, None)?;
    Ok(stop)
}

/// Runs the trials of an experiment until its stopping rule, or until a signal.
pub(in crate::commands) fn run_trials(
    args: CommandArgs<'_>,
    directory: &mut ExperimentDir,
    file: &ExperimentFile,
    stop: &DrainWatch,
    is_concluded: &dyn Fn(&ExperimentPlan, &[TrialSummary]) -> bool,
) -> Result<Experiment, Failure> {
    let context = context(args);
    let (weir, build) = (own_path()?, weir_version());
    let is_stopped = || stop.stage() > DrainStage::Running;
    let recorded_programs = programs_to_record(file, &weir);
    let fleet = FleetRunner::new(nats_options(args, "weir lab run"), stop);
    let agents = experiment_agents(file);
    let known_agents = fleet.read_agents(&agents)?;
    let first_read = Cell::new(Some(known_agents.clone()));
    let current_environment = || {
        let agents_now = first_read.take().or_else(|| fleet.read_agents(&agents).ok());
        // Agents that cannot be asked at the end are no change.
        let agents_now = agents_now.unwrap_or_else(|| known_agents.clone());
        EnvironmentFacts {
            weir: weir_version(),
            host: host_record(host::facts::read(), Vec::new()),
            environment: environment::read(&recorded_programs).into_iter().chain(agents_now).collect_map(),
        }
    };
    let pause = |ns: u64| {
        let end_ns = now_ns() + ns;
        while !is_stopped() && now_ns() < end_ns {
            std::thread::sleep(PAUSE_POLL_INTERVAL);
        }
    };
    let tools = TrialTools {
        load_prefix: &[],
        weir: &weir,
        build: &build,
        context: &context,
        wall_ns: wall_clock_ns,
        duration_ns: 0,
        shows_output: false,
        should_stop: &is_stopped,
        fleet: Some(&fleet),
    };
    let progress = Progress::from_plan(file.plan());
    let hooks = EngineContext {
        clock: &now_ns,
        wall_clock: &wall_clock_now,
        should_stop: &is_stopped,
        pause: &pause,
        read_environment: &current_environment,
        allow_changed_environment: args.is_set("allow-changed-environment"),
        is_concluded,
        judge: &|case| judge(file, case),
        on_event: &mut |event| progress.report(event),
    };
    let result = experiment::engine::run(directory, &mut FileTrials { file, tools }, hooks);
    drop(progress);
    result.map_err(engine_failure)
}

fn engine_failure(error: EngineError) -> Failure {
    match error {
        EngineError::Plan(problems) => {
            let problems = problems.into_iter().map(|text| InputProblem::new("FILE", text));
            Failure::Usage(problems.collect())
        }
        EngineError::EnvironmentDiffers(_) => {
            let text = error.to_string();
            Failure::Usage(vec![InputProblem::new(
                "--resume",
                format!("{text} by --allow-changed-environment"),
            )])
        }
        EngineError::Io(text) => Failure::CannotRun(text),
    }
}

fn show(
    args: CommandArgs<'_>,
    experiment: &Experiment,
    directory: &ExperimentDir,
    json: Option<&str>,
) -> Result<(), Failure> {
    if !crate::preflight::writes_to_stdout(args, STDOUT_FLAGS) {
        let (text, report) =
            (format_experiment(experiment, &Records(directory)), directory.path().join(REPORT_HTML));
        print(&format!("{text}\nreport      {}\n", report.display()));
    }
    match &experiment.finish {
        Some(step) => warn!("weir: {}", finish_note(step)),
        None if experiment.stopped.code == "interrupted" => {
            warn!("weir: continue with: weir lab run --resume {}", directory.path().display());
        }
        None => {}
    }
    write_files(args, experiment, json)
}

fn write_files(args: CommandArgs<'_>, experiment: &Experiment, json: Option<&str>) -> Result<(), Failure> {
    write_json(experiment, json)?;
    write_text(&experiment_junit(experiment), args.text("junit").as_deref())
}

pub(in crate::commands) fn finish_note(step: &FinishStep) -> String {
    let time =
        step.duration_s.map_or_else(String::new, |seconds| format!(" ({})", duration_estimate(seconds)));
    format!("continue with{time}: {}", step.command)
}

pub(in crate::commands) fn exit_code(experiment: &Experiment, directory: &Path) -> Result<Exit, Failure> {
    let stopped = &experiment.stopped;
    let is_concluded = experiment.is_concluded();
    if let Some(exit) = ended_early(stopped, is_concluded, &experiment.trials, directory)? {
        return Ok(exit);
    }
    if counted_blocks(&experiment.trials) == 0 {
        warn!("weir: no undisturbed block: no result");
        return Ok(Exit::Invalid);
    }
    let is_bound = |cell: &record::experiment::ExperimentCell| {
        2 * cell.verdicts.get("client_bound").copied().unwrap_or(0) > cell.trials
    };
    let mut measured = experiment.cells.iter().filter(|cell| cell.trials > 0).peekable();
    if measured.peek().is_some() && measured.all(is_bound) {
        warn!("weir: the load generator was always the limit: no result about the subject");
        return Ok(Exit::Invalid);
    }
    Ok(Exit::Done)
}

/// Returns the exit code of an experiment that ended before its stopping rule applied.
fn ended_early(
    stopped: &StopReason,
    is_concluded: bool,
    trials: &[TrialSummary],
    directory: &Path,
) -> Result<Option<Exit>, Failure> {
    let text = &stopped.text;
    if stopped.code == "interrupted" {
        if is_concluded {
            return Ok(Some(Exit::Done));
        }
        warn!("weir: stopped before a conclusion");
        return Ok(Some(Exit::Invalid));
    }
    if !["failed", "reruns"].contains(&stopped.code.as_str()) {
        return Ok(None);
    }
    let failed = |trial: &&TrialSummary| trial.failed.is_some() && trial.position.kind != TrialKind::Probe;
    if let Some(last) = trials.iter().rfind(failed) {
        let (why, position) = (last.failed.as_deref().unwrap_or_default(), &last.position);
        let cause = match text.contains(why) {
            true => String::new(),
            false => format!("\n{} under {} failed last: {why}", position.arm, position.load),
        };
        let record = directory.join(&last.file);
        let text = format!("{text}{cause}\nits record, with the program output: {}", record.display());
        return Err(Failure::CannotRun(text));
    }
    if stopped.code == "failed" {
        return Err(Failure::CannotRun(text.clone()));
    }
    if !is_concluded {
        warn!("weir: {text}");
        return Ok(Some(Exit::Invalid));
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use record::trial::TrialPosition;

    use super::*;

    #[test]
    fn the_exit_code_says_why_it_ended_early() {
        let line = |number: u32, failed: Option<&str>| TrialSummary {
            position: TrialPosition {
                number,
                block: 1,
                attempt: number,
                arm: "b".to_owned(),
                load: "x".to_owned(),
                ..TrialPosition::default()
            },
            file: format!("trials/{number}.json"),
            failed: failed.map(str::to_owned),
            ..TrialSummary::default()
        };
        let ended_with = |code: &str, is_concluded: bool, trials: &[TrialSummary]| {
            let stopped = StopReason { code: code.to_owned(), text: "why it ended".to_owned() };
            ended_early(&stopped, is_concluded, trials, Path::new("kept"))
        };
        let ended = |code: &str, trials: &[TrialSummary]| ended_with(code, false, trials);
        let (good, bad) = (line(1, None), line(2, Some("it does not start")));
        assert_eq!(ended("interrupted", &[]).unwrap(), Some(Exit::Invalid));
        assert_eq!(ended("interrupted", std::slice::from_ref(&good)).unwrap(), Some(Exit::Invalid));
        assert_eq!(ended_with("interrupted", true, std::slice::from_ref(&good)).unwrap(), Some(Exit::Done));
        assert_eq!(ended_with("concluded", true, std::slice::from_ref(&good)).unwrap(), None);
        assert_eq!(ended_with("reruns", true, std::slice::from_ref(&good)).unwrap(), None);
        assert_eq!(ended("reruns", std::slice::from_ref(&good)).unwrap(), Some(Exit::Invalid));
        for code in ["reruns", "failed"] {
            let failure = ended(code, &[good.clone(), bad.clone()]).unwrap_err();
            assert_eq!(Exit::from(&failure), Exit::CannotRun, "{code}");
            let text = failure.lines().join("\n");
            for part in ["why it ended", "b under x ", "it does not start", "kept/trials/2.json"] {
                assert!(text.contains(part), "{part}: {text}");
            }
        }
        assert_eq!(Exit::from(&ended("failed", &[]).unwrap_err()), Exit::CannotRun);
    }
}
