//! `weir lab run FILE|NAME`: an experiment, from its file to its report.

mod around;
mod asked;
mod progress;
mod trials;

use std::path::{Path, PathBuf};

use lab::engine::environment::{self, Here, Wanted};
use lab::engine::folder::{EXPERIMENT, Folder, FolderError, Start};
use lab::engine::{EngineError, Hooks, expected_s};
use lab::experiment::{Asked, File, ready};
use lab::scenario::setup::Setup;
use lab::trial::Tools;
use record::experiment::{Experiment, Plan, Stopped, TrialLine, blocks_counting};
use record::file::{wall_clock, wall_clock_ns};
use record::problem::{Problem, suggestion};
use record::trial::Kind;
use rt::clock::now_ns;
use rt::drain::{Drain, Held, Stage, hold_signals};

use self::around::with_around;
use self::asked::asked;
use self::progress::Progress;
use self::trials::Trials;
use super::experiments::{FOLDER, failure};
use super::judging::{REPORT_HTML, Records, judge, parse, parse_again, write_reports};
use super::{build, context, own_path};
use crate::commands::load::recorded_host;
use crate::exit::{Exit, Failure};
use crate::flags::Typed;
use crate::output::experiment::{plan as plan_text, text};
use crate::output::file::write_json;
use crate::output::print;

/// How often it is looked, while it waits, whether it is to end.
const REST_LOOK: std::time::Duration = std::time::Duration::from_millis(100);

pub(super) fn run(typed: Typed<'_>, arguments: &[String]) -> Result<Exit, Failure> {
    if typed.is_set("list") {
        asked(typed)?;
        print(&list());
        return Ok(Exit::Done);
    }
    if let Some(name) = typed.text("print") {
        asked(typed)?;
        let text = ready::find(&name).map(|ready| ready.text).unwrap_or_default();
        print(text);
        return Ok(Exit::Done);
    }
    let json = typed.text("json");
    crate::preflight::outputs(typed, &["json"], &[])?;
    match typed.text("resume") {
        Some(path) => {
            asked(typed)?;
            if !typed.values().is_empty() {
                let text = "the file is taken from the folder: give --resume alone";
                return Err(vec![Problem::new("FILE", text)].into());
            }
            resume(typed, Path::new(&path), json.as_deref())
        }
        None => begin(typed, arguments, json.as_deref()),
    }
}

/// Everything that is wrong with the flags.
#[cfg(test)]
pub(super) fn check(typed: Typed<'_>) -> Result<(), Vec<Problem>> {
    asked(typed).map(|_| ())
}

/// The ready-made experiments, and what each needs.
fn list() -> String {
    let width = ready::READY.iter().map(|one| one.name.len()).max().unwrap_or(0);
    let mut text = String::new();
    for one in ready::READY {
        let programs = one.programs.iter().map(|program| (*program).to_owned());
        let mut needs: Vec<String> = programs.collect();
        needs.extend((!one.besides.is_empty()).then(|| one.besides.to_owned()));
        text.push_str(&format!("{:width$}  {}\n", one.name, one.title));
        text.push_str(&format!("{:width$}  {}\n", "", one.question));
        if !needs.is_empty() {
            text.push_str(&format!("{:width$}  needs {}\n", "", needs.join(", ")));
        }
    }
    text
}

/// A new experiment.
fn begin(typed: Typed<'_>, arguments: &[String], json: Option<&str>) -> Result<Exit, Failure> {
    let file = read(typed)?;
    let plan = file.plan();
    check_run(&file)?;
    if typed.is_set("check") {
        print(&plan_text(plan, expected_s(plan)));
        return Ok(Exit::Done);
    }
    let weir = own_path()?;
    let wanted = wanted(&file, &weir);
    let start = Start {
        weir: build(),
        command: arguments.to_vec(),
        started_at: wall_clock(),
        host: recorded_host(host::facts::read(), Vec::new()),
        environment: environment::read(&wanted),
        plan: plan.clone(),
        ..Start::default()
    };
    let folder = match typed.text("folder") {
        Some(path) => Folder::create(Path::new(&path), start),
        None => Folder::create_below(Path::new(FOLDER), &start),
    };
    let mut folder = folder.map_err(failure)?;
    note!("{}: seed {}, in {}", plan.name, plan.seed, folder.path().display());
    go(typed, &mut folder, &file, json)
}

/// An experiment that was begun.
fn resume(typed: Typed<'_>, path: &Path, json: Option<&str>) -> Result<Exit, Failure> {
    let resumed = |error| match failure(error) {
        Failure::Usage(problems) => {
            let texts = problems.into_iter().map(|problem| Problem::new("--resume", problem.text));
            Failure::Usage(texts.collect())
        }
        other => other,
    };
    let mut folder = Folder::open(path).map_err(resumed)?;
    if let Some(experiment) = finished(&folder).map_err(resumed)? {
        let report = path.join(REPORT_HTML);
        note!("weir: {} is finished: {}", path.display(), experiment.stopped.text);
        note!("weir: its report is {}; weir lab show says it again", report.display());
        write_json(&experiment, json)?;
        return Ok(Exit::Done);
    }
    let file = with_around(|around| parse_again(&folder, Some(around)))?;
    folder.check_plan(file.plan()).map_err(resumed)?;
    check_run(&file)?;
    if typed.is_set("check") {
        print(&plan_text(file.plan(), expected_s(file.plan())));
        return Ok(Exit::Done);
    }
    go(typed, &mut folder, &file, json)
}

/// What came of an experiment that its rule ended, and that has its report.
fn finished(folder: &Folder) -> Result<Option<Experiment>, FolderError> {
    let path = folder.path();
    if !path.join(EXPERIMENT).exists() {
        return Ok(None);
    }
    let experiment = folder.experiment()?;
    Ok(Some(experiment).filter(|it| !it.partial && path.join(REPORT_HTML).is_file()))
}

/// Whether it can be run, everything that is wrong at once.
fn check_run(file: &File) -> Result<(), Failure> {
    lab::engine::check(file.plan()).map_err(not_run)
}

/// The flags and the file; everything that is wrong with both.
fn read(typed: Typed<'_>) -> Result<File, Failure> {
    let asked = asked(typed);
    let names = typed.values();
    let [name] = names.as_slice() else {
        let mut problems = asked.err().unwrap_or_default();
        let text = "give one: an experiment's file, or the name of a ready-made one (--list)";
        problems.push(Problem::new("FILE|NAME", text));
        return Err(problems.into());
    };
    let path = PathBuf::from(name);
    let (named, text) = match ready::find(name).filter(|_| !path.is_file()) {
        Some(ready) => (format!("{name}.toml"), ready.text.to_owned()),
        None => match text_of(name) {
            Ok(text) => (name.clone(), text),
            Err(problem) => {
                let mut problems = asked.err().unwrap_or_default();
                problems.push(problem);
                return Err(problems.into());
            }
        },
    };
    let parse = |asked: &Asked| with_around(|around| parse(&named, &text, asked, Some(around)));
    match asked {
        Ok(asked) => Ok(parse(&asked)?),
        Err(mut problems) => {
            problems.extend(parse(&Asked::default()).err().unwrap_or_default());
            Err(problems.into())
        }
    }
}

/// The text of an experiment's file.
fn text_of(name: &str) -> Result<String, Problem> {
    let bytes = std::fs::read(name).map_err(|error| {
        let near = suggestion(name, ready::READY.iter().map(|one| one.name));
        Problem::new("FILE|NAME", format!("{name}: {error}{near}; ready-made experiments: --list"))
    })?;
    String::from_utf8(bytes).map_err(|error| {
        let right = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let right = String::from_utf8_lossy(right);
        let (line, last) = (right.matches('\n').count() + 1, right.rsplit('\n').next());
        let column = last.unwrap_or_default().chars().count() + 1;
        Problem::new(
            format!("{name}:{line}:{column}"),
            "what stands here is no UTF-8, which a file has to be",
        )
    })
}

/// What the arms run under each load, by their names; the baseline's second arm runs what it does.
fn setups(file: &File) -> impl Iterator<Item = (&str, &Setup)> {
    let plan = file.plan();
    let arms = plan.arms.iter().filter(|arm| arm.again.is_none());
    let cells = arms.flat_map(|arm| plan.loads.iter().map(move |load| (&*arm.name, &*load.name)));
    cells.filter_map(|(arm, load)| Some((arm, file.setup(arm, load)?)))
}

/// The programs whose versions are kept.
fn wanted(file: &File, weir: &Path) -> Wanted {
    Wanted::of(setups(file).map(|(_, setup)| setup), weir)
}

/// Runs it to its end, and shows what came of it.
fn go(
    typed: Typed<'_>,
    folder: &mut Folder,
    file: &File,
    json: Option<&str>,
) -> Result<Exit, Failure> {
    let drain = Drain::default();
    let stop = drain.watch();
    hold_signals(Held::Stop)?.follow(drain, None)?;
    let context = context(typed);
    let (weir, build) = (own_path()?, build());
    let stopped = || stop.stage() > Stage::Running;
    let wanted = wanted(file, &weir);
    let here = || Here {
        weir: super::build(),
        host: recorded_host(host::facts::read(), Vec::new()),
        environment: environment::read(&wanted),
    };
    let rest = |ns: u64| {
        let end_ns = now_ns() + ns;
        while !stopped() && now_ns() < end_ns {
            std::thread::sleep(REST_LOOK);
        }
    };
    let tools = Tools {
        weir: &weir,
        build: &build,
        context: &context,
        wall_ns: wall_clock_ns,
        duration_ns: 0,
        show: false,
        stop: &stopped,
    };
    let progress = Progress::of(file.plan());
    let hooks = Hooks {
        clock: &now_ns,
        wall: &wall_clock,
        stop: &stopped,
        rest: &rest,
        here: &here,
        allow_other: typed.is_set("allow-other"),
        settled: &lab::judge::settled,
        judge: &|case| judge(file, case),
        told: &mut |event| progress.tell(event),
    };
    let ran = lab::engine::run(folder, &mut Trials { file, tools }, hooks);
    progress.end();
    let experiment = ran.map_err(not_run)?;
    write_reports(&experiment, folder)?;
    show(&experiment, folder, json)?;
    exit_of(&experiment, folder.path())
}

fn not_run(error: EngineError) -> Failure {
    match error {
        EngineError::Plan(problems) => {
            let problems = problems.into_iter().map(|text| Problem::new("FILE", text));
            Failure::Usage(problems.collect())
        }
        EngineError::Differs(_) => {
            let text = error.to_string();
            Failure::Usage(vec![Problem::new("--resume", format!("{text} by --allow-other"))])
        }
        EngineError::Io(text) => Failure::CannotRun(text),
    }
}

fn show(experiment: &Experiment, folder: &Folder, json: Option<&str>) -> Result<(), Failure> {
    if json != Some("-") {
        let (text, report) = (text(experiment, &Records(folder)), folder.path().join(REPORT_HTML));
        print(&format!("{text}\nreport      {}\n", report.display()));
    }
    if experiment.stopped.code == "interrupted" {
        note!("weir: to go on: weir lab run --resume {}", folder.path().display());
    }
    write_json(experiment, json)
}

/// What the exit code says of the whole.
fn exit_of(experiment: &Experiment, folder: &Path) -> Result<Exit, Failure> {
    let (stopped, plan) = (&experiment.stopped, &experiment.plan);
    if let Some(exit) = ended_early(stopped, plan, &experiment.trials, folder)? {
        return Ok(exit);
    }
    if blocks_counting(&experiment.trials) == 0 {
        note!("weir: no block counts: nothing can be said");
        return Ok(Exit::Invalid);
    }
    let is_bound = |cell: &record::experiment::Cell| {
        2 * cell.verdicts.get("client_bound").copied().unwrap_or(0) > cell.trials
    };
    let mut measured = experiment.cells.iter().filter(|cell| cell.trials > 0).peekable();
    if measured.peek().is_some() && measured.all(is_bound) {
        note!("weir: the load generator was the limit everywhere: nothing is said of the subject");
        return Ok(Exit::Invalid);
    }
    Ok(Exit::Done)
}

/// The exit code of an experiment that was ended by something else than enough blocks.
fn ended_early(
    stopped: &Stopped,
    plan: &Plan,
    trials: &[TrialLine],
    folder: &Path,
) -> Result<Option<Exit>, Failure> {
    let (blocks, text) = (blocks_counting(trials), &stopped.text);
    if stopped.code == "interrupted" {
        if blocks > 0 {
            return Ok(Some(Exit::Done));
        }
        note!("weir: it was ended before its first block was whole: nothing can be said");
        return Ok(Some(Exit::Invalid));
    }
    if !["failed", "reruns"].contains(&stopped.code.as_str()) {
        return Ok(None);
    }
    let failed = |trial: &&TrialLine| trial.failed.is_some() && trial.place.kind != Kind::Probe;
    if let Some(last) = trials.iter().rfind(failed) {
        let (why, place) = (last.failed.as_deref().unwrap_or_default(), &last.place);
        let said = match text.contains(why) {
            true => String::new(),
            false => format!("\n{} under {} failed at last: {why}", place.arm, place.load),
        };
        let record = folder.join(&last.file);
        let text = format!("{text}{said}\nits record, with what it said: {}", record.display());
        return Err(Failure::CannotRun(text));
    }
    if stopped.code == "failed" {
        return Err(Failure::CannotRun(text.clone()));
    }
    if blocks < plan.blocks_min as usize {
        note!("weir: {text}");
        return Ok(Some(Exit::Invalid));
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use record::trial::Place;

    use super::*;

    #[test]
    fn the_exit_code_says_why_it_ended_early() {
        let plan = Plan { blocks_min: 6, ..Plan::default() };
        let line = |number: u32, failed: Option<&str>| TrialLine {
            place: Place {
                number,
                block: 1,
                attempt: number,
                arm: "b".to_owned(),
                load: "x".to_owned(),
                ..Place::default()
            },
            file: format!("trials/{number}.json"),
            failed: failed.map(str::to_owned),
            ..TrialLine::default()
        };
        let ended = |code: &str, trials: &[TrialLine]| {
            let stopped = Stopped { code: code.to_owned(), text: "why it ended".to_owned() };
            ended_early(&stopped, &plan, trials, Path::new("kept"))
        };
        let (good, bad) = (line(1, None), line(2, Some("it does not start")));
        assert_eq!(ended("interrupted", &[]).unwrap(), Some(Exit::Invalid));
        assert_eq!(ended("interrupted", std::slice::from_ref(&good)).unwrap(), Some(Exit::Done));
        assert_eq!(ended("precise", std::slice::from_ref(&good)).unwrap(), None);
        assert_eq!(ended("reruns", std::slice::from_ref(&good)).unwrap(), Some(Exit::Invalid));
        for code in ["reruns", "failed"] {
            let failure = ended(code, &[good.clone(), bad.clone()]).unwrap_err();
            assert_eq!(failure.exit(), Exit::CannotRun, "{code}");
            let text = failure.lines().join("\n");
            for part in [
                "why it ended",
                "b under x failed at last: it does not start",
                "kept/trials/2.json",
            ] {
                assert!(text.contains(part), "{part}: {text}");
            }
        }
        assert_eq!(ended("failed", &[]).unwrap_err().exit(), Exit::CannotRun);
    }
}
