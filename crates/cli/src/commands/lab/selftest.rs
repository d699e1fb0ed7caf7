//! `weir lab selftest`: induces each illness, and counts what is said about it.

use std::path::{Path, PathBuf};

use lab::engine::environment::program_file;
use lab::selftest::cases::{Case, Machine, NOT_INDUCED, Set};
use lab::selftest::matrix::{NotHere, Outcome, SCHEMA, SelfTest, text};
use lab::selftest::order::order;
use lab::selftest::split::Part;
use lab::selftest::{markdown, reliability};
use lab::trial::Tools;
use record::problem::Problem;
use record::run::Run;
use record::units::{DurationUnit, parse_count, parse_duration_ns};
use rt::clock::now_ns;
use rt::drain::{Drain, Held, Stage, hold_signals};

use super::try_::DURATION;
use super::{build, context, own_path};
use crate::exit::{Exit, Failure};
use crate::flags::Typed;
use crate::output::print;

const REPETITIONS: u32 = 5;
const REPETITIONS_MAX: u64 = 1000;
/// The length of each load with --quick.
const QUICK_NS: u64 = 3_000_000_000;
/// What a run takes besides its load: scenario, programs, warm-up.
const AROUND_S: f64 = 2.5;

/// What was asked for.
#[derive(Debug)]
pub(super) struct Asked {
    set: Set,
    /// Of the proving ground; absent: all of it.
    part: Option<Part>,
    only: Vec<String>,
    repetitions: u32,
    duration_ns: u64,
    seed: u64,
}

pub(super) fn run(typed: Typed<'_>) -> Result<Exit, Failure> {
    let asked = asked(typed)?;
    if typed.is_set("reliability") {
        return super::selftest_results::add_up(typed);
    }
    let (cases, not_here) = chosen(typed, &asked);
    if typed.is_set("list") {
        print(&list(&cases, &not_here));
        return Ok(Exit::Done);
    }
    if cases.is_empty() {
        let why = not_here.iter().map(|one| format!("{}: {}", one.name, one.why));
        let why: Vec<String> = why.collect();
        return Err(Failure::cannot("nothing to run here", why.join("; ")));
    }
    let json = typed.text("json");
    crate::preflight::outputs(typed, &["json"], &["markdown"])?;
    let keep = typed.text("keep").map(PathBuf::from);
    if let Some(folder) = &keep {
        std::fs::create_dir_all(folder)
            .map_err(|error| Failure::cannot(folder.display(), error))?;
    }
    let result = test(typed, &asked, &cases, not_here, keep.as_deref())?;
    show(&result, json.as_deref())?;
    write_markdown(&result, typed.text("markdown").as_deref())?;
    Ok(if result.passed { Exit::Done } else { Exit::Invalid })
}

fn test(
    typed: Typed<'_>,
    asked: &Asked,
    cases: &[&'static Case],
    not_here: Vec<NotHere>,
    keep: Option<&Path>,
) -> Result<SelfTest, Failure> {
    let drain = Drain::default();
    let stop = drain.watch();
    hold_signals(Held::Stop)?.follow(drain, None)?;
    let context = context(typed);
    let weir = own_path()?;
    let stopped = || stop.stage() > Stage::Running;
    let duration_ns = asked.duration_ns;
    let build = build();
    let tools = Tools {
        weir: &weir,
        build: &build,
        context: &context,
        wall_ns: record::file::wall_clock_ns,
        duration_ns,
        show: false,
        stop: &stopped,
    };
    let order = order(cases, asked.repetitions, asked.seed);
    announce(order.len(), cases.len(), asked);
    let started_at = record::file::wall_clock();
    let begin_ns = now_ns();
    let mut number = 0;
    let mut not_kept = None;
    let outcomes = lab::selftest::run(&order, tools, &mut |outcome, run| {
        number += 1;
        note!("{number:4}/{} {}", order.len(), line(outcome));
        if let (Some(folder), Some(run)) = (keep, run)
            && let Err(error) = kept(folder, outcome, run)
        {
            not_kept = Some(error);
        }
    });
    if let Some(error) = not_kept {
        note!("weir: --keep: {error}");
    }
    let part = (asked.set == Set::Foreign).then(|| asked.part.map_or("all", Part::name).to_owned());
    let result = SelfTest {
        schema: SCHEMA.to_owned(),
        started_at,
        duration_s: (now_ns() - begin_ns) as f64 / 1e9,
        seed: asked.seed,
        set: asked.set.name().to_owned(),
        part,
        partial: outcomes.len() < order.len(),
        not_here,
        outcomes,
        ..SelfTest::default()
    };
    Ok(result.summed_up())
}

/// Says how many runs there will be, and how long they take.
fn announce(runs: usize, cases: usize, asked: &Asked) {
    let expected_s = runs as f64 * (asked.duration_ns as f64 / 1e9 + AROUND_S);
    note!(
        "{} of {}, about {}; seed {}",
        lab::words::count(runs, "run"),
        lab::words::count(cases, "case"),
        lab::words::estimate(expected_s),
        asked.seed
    );
}

fn kept(folder: &Path, outcome: &Outcome, run: &Run) -> std::io::Result<()> {
    let path = folder.join(Case::record_name(&outcome.case, outcome.repetition));
    record::file::write_json(&path, run)
}

fn line(outcome: &Outcome) -> String {
    let mark = match (outcome.is_right(), &outcome.reported) {
        (true, _) => "right ",
        (false, Some(_)) => "WRONG ",
        (false, None) => "FAILED",
    };
    let said = match (&outcome.reported, &outcome.error) {
        (Some(verdict), _) => {
            let level = outcome.confidence.as_deref().map(|level| format!(" ({level})"));
            format!("{verdict}{}", level.unwrap_or_default())
        }
        (None, why) => format!("failed: {}", why.clone().unwrap_or_default()),
    };
    format!("{mark} {}: {said}", outcome.case)
}

pub(super) fn show(result: &SelfTest, json: Option<&str>) -> Result<(), Failure> {
    if json != Some("-") {
        let early = if result.partial { "ended early; " } else { "" };
        let part = result.part.as_ref().map(|part| format!(", part {part}")).unwrap_or_default();
        print(&format!(
            "{}\n{}\n{}\n{}{}set {}{part}; {early}took {:.0} s, seed {}: {}\n",
            text(&result.verdicts),
            text(&result.cases),
            reliability::text(&result.reliability),
            not_here_text(&result.not_here),
            counts_text(result),
            result.set,
            result.duration_s,
            result.seed,
            if result.passed { "passed" } else { "not passed" }
        ));
    }
    crate::output::file::write_json(result, json)
}

fn counts_text(result: &SelfTest) -> String {
    let mut text = format!("{} wrong and sure", result.wrong_sure);
    if result.failed > 0 {
        let failed = lab::words::count(result.failed as usize, "run");
        text.push_str(&format!("; {failed} failed, and counted as not right"));
    }
    if let (runs @ 1.., both) = result.both {
        text.push_str(&format!("; of {runs} runs of two causes {both} reported both"));
    }
    text.push('\n');
    text
}

/// Fills the marked places of a document that is there, or writes one of its own.
pub(super) fn write_markdown(result: &SelfTest, path: Option<&str>) -> Result<(), Failure> {
    let Some(path) = path else { return Ok(()) };
    let sections = markdown::sections(result);
    let before = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(Failure::cannot(path, error)),
    };
    let text = match markdown::filled(&before, &sections) {
        Some(text) => text,
        None if before.is_empty() => markdown::document(&sections),
        None => {
            let why =
                "it has no place marked '<!-- begin selftest ... -->', and is not overwritten";
            return Err(Failure::cannot(path, why));
        }
    };
    std::fs::write(path, text).map_err(|error| Failure::cannot(path, error))
}

fn not_here_text(not_here: &[NotHere]) -> String {
    let lines = not_here.iter().map(|one| format!("  {}: {}\n", one.name, one.why));
    match not_here.is_empty() {
        true => String::new(),
        false => format!("not induced here:\n{}\n", lines.collect::<String>()),
    }
}

fn list(cases: &[&'static Case], not_here: &[NotHere]) -> String {
    let mut text = String::new();
    for case in cases {
        let title = case.experiment().map(|experiment| experiment.title).unwrap_or_default();
        let part = case.part().map(|part| format!("{:12} ", part.name())).unwrap_or_default();
        text.push_str(&format!("{:24} {:32} {part}{title}\n", case.verdict, case.name));
    }
    format!("{text}{}", not_here_text(not_here))
}

/// The cases that run here, and why others do not.
fn chosen(typed: Typed<'_>, asked: &Asked) -> (Vec<&'static Case>, Vec<NotHere>) {
    let machine = Machine {
        root: lab::scenario::kit::is_root(),
        cpus: rt::cores::available().len() as u32,
        allow_global: typed.is_set("allow-global"),
        has: &|name| program_file(name).is_some(),
    };
    let wanted = |code: &str| asked.only.is_empty() || asked.only.iter().any(|one| one == code);
    let mut cases = Vec::new();
    let mut not_here = Vec::new();
    let of_part = |case: &&Case| asked.part.is_none() || case.part() == asked.part;
    let all = asked.set.cases().iter().filter(of_part);
    for case in all.filter(|case| wanted(case.verdict) || wanted(case.name)) {
        match case.missing(machine) {
            None => cases.push(case),
            Some(why) => not_here.push(NotHere { name: case.name.to_owned(), why }),
        }
    }
    let not_induced: &[_] = if asked.set == Set::Induced { NOT_INDUCED } else { &[] };
    for (code, why) in not_induced.iter().filter(|(code, _)| wanted(code)) {
        not_here.push(NotHere { name: (*code).to_owned(), why: (*why).to_owned() });
    }
    (cases, not_here)
}

/// What was typed, or everything that is wrong with it.
pub(super) fn asked(typed: Typed<'_>) -> Result<Asked, Vec<Problem>> {
    let mut problems = Vec::new();
    let mut note = |flag: &str, why: String| problems.push(Problem::new(format!("--{flag}"), why));
    let (set, part) = set_and_part(typed, &mut note);
    let only: Vec<String> = typed
        .text("only")
        .unwrap_or_default()
        .split(',')
        .map(str::trim)
        .filter(|code| !code.is_empty())
        .map(str::to_owned)
        .collect();
    for code in &only {
        let known = set.cases().iter().flat_map(|case| [case.verdict, case.name]);
        let known = known.chain(NOT_INDUCED.iter().map(|(code, _)| *code));
        if !known.into_iter().any(|one| one == code) {
            note("only", format!("there is no verdict and no case '{code}'; --list lists them"));
        }
    }
    if typed.is_set("reliability") == typed.values().is_empty() {
        note(
            "reliability",
            "it takes the files that --json wrote, and nothing else does".to_owned(),
        );
    }
    let quick = typed.is_set("quick");
    let mut repetitions = if quick { 1 } else { REPETITIONS };
    if let Some(text) = typed.text("repetitions") {
        match parse_count(&text) {
            Ok(count) if (1..=REPETITIONS_MAX).contains(&count) => repetitions = count as u32,
            Ok(_) => {
                note("repetitions", format!("'{text}' is not between 1 and {REPETITIONS_MAX}"))
            }
            Err(why) => note("repetitions", why),
        }
    }
    let default = if quick { format!("{}ms", QUICK_NS / 1_000_000) } else { DURATION.to_owned() };
    let duration = typed.text("duration").unwrap_or(default);
    let duration_ns = parse_duration_ns(&duration, DurationUnit::Seconds);
    let duration_ns = duration_ns.map_err(|why| note("duration", why)).unwrap_or(0);
    let seed = match typed.text("seed").map(|text| parse_count(&text)) {
        None => now_ns() % 1_000_000,
        Some(Ok(seed)) => seed,
        Some(Err(why)) => {
            note("seed", why);
            0
        }
    };
    match problems.is_empty() {
        true => Ok(Asked { set, part, only, repetitions, duration_ns, seed }),
        false => Err(problems),
    }
}

/// The set of cases and its part, or what is wrong with them.
fn set_and_part(typed: Typed<'_>, note: &mut dyn FnMut(&str, String)) -> (Set, Option<Part>) {
    let set = typed.text("set").unwrap_or_else(|| Set::Induced.name().to_owned());
    let set = Set::named(&set).unwrap_or_else(|| {
        note("set", format!("'{set}' is neither induced nor foreign"));
        Set::Induced
    });
    let mut part = None;
    if let Some(name) = typed.text("part") {
        part = Part::named(&name);
        if part.is_none() && name != "all" {
            note("part", format!("'{name}' is not development, held-out or all"));
        }
        if set == Set::Induced && part.is_some() {
            note("part", "only the set foreign has parts: --set foreign".to_owned());
        }
    }
    (set, part)
}
