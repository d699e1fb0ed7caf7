//! `weir lab selftest`: injects each fault, and counts the diagnoses.

use std::path::{Path, PathBuf};

use experiment::engine::environment::program_file;
use experiment::selftest::case_part::CasePart;
use experiment::selftest::cases::{CaseSet, HostCapabilities, NOT_INDUCED, TestCase};
use experiment::selftest::matrix::{CaseOutcome, NotInducible, SCHEMA, SelfTest, matrix_text};
use experiment::selftest::order::order;
use experiment::selftest::{markdown, reliability};
use experiment::trial::TrialTools;
use record::invalid_value;
use record::problem::{InputProblem, InvalidValue};
use record::run::Run;
use record::shell::split_words;
use record::units::{DurationUnit, parse_count, parse_duration_ns};
use rt::clock::now_ns;
use rt::drain::{Drain, DrainStage, SignalSet, block_signals};

use super::run_once::DURATION_DEFAULT;
use super::{context, own_path};
use crate::commands::weir_version;
use crate::exit::{Exit, Failure};
use crate::flags::{CommandArgs, FlagReader};
use crate::output::print;

const REPETITIONS: u32 = 5;
const REPETITIONS_MAX: u64 = 1000;
/// Length of each load with --quick.
const QUICK_NS: u64 = 3_000_000_000;
/// Estimated time of a run besides its load: scenario, programs, warm-up.
const OVERHEAD_S: f64 = 2.5;

/// Options of `weir lab selftest`.
#[derive(Debug)]
pub(super) struct SelftestOptions {
    set: CaseSet,
    /// Part of the proving ground; `None`: all of it.
    part: Option<CasePart>,
    only: Vec<String>,
    repetitions: u32,
    duration_ns: u64,
    seed: u64,
    /// Words of the command that starts each load; empty: weir itself.
    load_prefix: Vec<String>,
}

pub(super) fn run(args: CommandArgs<'_>) -> Result<Exit, Failure> {
    let options = parse_options(args)?;
    if args.is_set("reliability") {
        return super::selftest_results::print_sum(args);
    }
    let (cases, skipped) = select_cases(args, &options);
    if args.is_set("list") {
        print(&list(&cases, &skipped));
        return Ok(Exit::Done);
    }
    if cases.is_empty() {
        let why = skipped.iter().map(|case| format!("{}: {}", case.name, case.why));
        let why: Vec<String> = why.collect();
        return Err(Failure::cannot("nothing to run here", why.join("; ")));
    }
    let json = args.text("json");
    crate::preflight::outputs(args, &["json"], &["markdown"])?;
    let keep = args.text("keep").map(PathBuf::from);
    if let Some(directory) = &keep {
        std::fs::create_dir_all(directory).map_err(|error| Failure::cannot(directory.display(), error))?;
    }
    let result = run_cases(args, &options, &cases, skipped, keep.as_deref())?;
    show(&result, json.as_deref())?;
    write_markdown(&result, args.text("markdown").as_deref())?;
    Ok(if result.passed { Exit::Done } else { Exit::Invalid })
}

fn run_cases(
    args: CommandArgs<'_>,
    options: &SelftestOptions,
    cases: &[&'static TestCase],
    skipped: Vec<NotInducible>,
    keep: Option<&Path>,
) -> Result<SelfTest, Failure> {
    let drain = Drain::default();
    let stop = drain.watch();
    block_signals(SignalSet::Termination)?.spawn_handler(drain, None)?;
    let context = context(args);
    let weir = own_path()?;
    let stopped = || stop.stage() > DrainStage::Running;
    let duration_ns = options.duration_ns;
    let build = weir_version();
    let tools = TrialTools {
        weir: &weir,
        load_prefix: &options.load_prefix,
        build: &build,
        context: &context,
        wall_ns: record::file::wall_clock_ns,
        duration_ns,
        shows_output: false,
        should_stop: &stopped,
        fleet: None,
    };
    let order = order(cases, options.repetitions, options.seed);
    announce(order.len(), cases.len(), options);
    let started_at = record::file::wall_clock_now();
    let begin_ns = now_ns();
    let mut number = 0;
    let mut not_kept = None;
    let outcomes = experiment::selftest::run(&order, tools, &mut |outcome, run| {
        number += 1;
        warn!("{number:4}/{} {}", order.len(), outcome_line(outcome));
        if let (Some(directory), Some(run)) = (keep, run)
            && let Err(error) = save_record(directory, outcome, run)
        {
            not_kept = Some(error);
        }
    });
    if let Some(error) = not_kept {
        warn!("weir: --keep: {error}");
    }
    let result = SelfTest {
        schema: SCHEMA.to_owned(),
        started_at,
        duration_s: (now_ns() - begin_ns) as f64 / 1e9,
        seed: options.seed,
        set: options.set.name().to_owned(),
        part: part_name(options),
        load_prefix: args.text("load-prefix"),
        partial: outcomes.len() < order.len(),
        not_inducible: skipped,
        outcomes,
        ..SelfTest::default()
    };
    Ok(result.with_summaries())
}

/// Returns the name of the part in the result; only the foreign set has parts.
fn part_name(options: &SelftestOptions) -> Option<String> {
    (options.set == CaseSet::Foreign).then(|| options.part.map_or("all", CasePart::name).to_owned())
}

fn announce(runs: usize, cases: usize, options: &SelftestOptions) {
    let expected_s = runs as f64 * (options.duration_ns as f64 / 1e9 + OVERHEAD_S);
    warn!(
        "{} of {}, about {}; seed {}",
        experiment::format::count(runs, "run"),
        experiment::format::count(cases, "case"),
        experiment::format::duration_estimate(expected_s),
        options.seed
    );
}

fn save_record(directory: &Path, outcome: &CaseOutcome, run: &Run) -> std::io::Result<()> {
    let path = directory.join(TestCase::record_name(&outcome.case, outcome.repetition));
    record::file::write_json(&path, run)
}

fn outcome_line(outcome: &CaseOutcome) -> String {
    let mark = match (outcome.is_right(), &outcome.reported) {
        (true, _) => "right ",
        (false, Some(_)) => "WRONG ",
        (false, None) => "FAILED",
    };
    let verdict_text = match (&outcome.reported, &outcome.error) {
        (Some(verdict), _) => {
            let confidence = outcome.confidence.as_deref().map(|level| format!(" ({level})"));
            format!("{verdict}{}", confidence.unwrap_or_default())
        }
        (None, why) => format!("failed: {}", why.clone().unwrap_or_default()),
    };
    format!("{mark} {}: {verdict_text}", outcome.case)
}

pub(super) fn show(result: &SelfTest, json: Option<&str>) -> Result<(), Failure> {
    if json != Some("-") {
        let early = if result.partial { "stopped early; " } else { "" };
        let part = result.part.as_ref().map(|part| format!(", part {part}")).unwrap_or_default();
        let prefix =
            result.load_prefix.as_ref().map(|prefix| format!(", loads by {prefix}")).unwrap_or_default();
        print(&format!(
            "{}\n{}\n{}\n{}{}set {}{part}{prefix}; {early}took {:.0} s, seed {}: {}\n",
            matrix_text(&result.verdicts),
            matrix_text(&result.cases),
            reliability::reliability_text(&result.reliability),
            skipped_text(&result.not_inducible),
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
    let mut text = format!("{} wrong with high confidence", result.wrong_sure);
    if result.failed > 0 {
        let failed = experiment::format::count(result.failed as usize, "run");
        text.push_str(&format!("; {failed} failed, counted as incorrect"));
    }
    if let (runs @ 1.., both_count) = result.both {
        text.push_str(&format!("; of {runs} runs of two causes {both_count} reported both"));
    }
    text.push('\n');
    text
}

/// Fills the marked sections of an existing document, or writes a new one.
pub(super) fn write_markdown(result: &SelfTest, path: Option<&str>) -> Result<(), Failure> {
    let Some(path) = path else { return Ok(()) };
    let sections = markdown::sections(result);
    let before = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(Failure::cannot(path, error)),
    };
    let text = match markdown::fill_sections(&before, &sections) {
        Some(text) => text,
        None if before.is_empty() => markdown::document(&sections),
        None => {
            let why = "no section '<!-- begin selftest ... -->': the file is not overwritten";
            return Err(Failure::cannot(path, why));
        }
    };
    std::fs::write(path, text).map_err(|error| Failure::cannot(path, error))
}

fn skipped_text(skipped: &[NotInducible]) -> String {
    let lines = skipped.iter().map(|case| format!("  {}: {}\n", case.name, case.why));
    match skipped.is_empty() {
        true => String::new(),
        false => format!("not supported here:\n{}\n", lines.collect::<String>()),
    }
}

fn list(cases: &[&'static TestCase], skipped: &[NotInducible]) -> String {
    let mut text = String::new();
    for case in cases {
        let title = case.experiment().map(|experiment| experiment.title).unwrap_or_default();
        let part = case.part().map(|part| format!("{:12} ", part.name())).unwrap_or_default();
        text.push_str(&format!("{:24} {:32} {part}{title}\n", case.verdict, case.name));
    }
    format!("{text}{}", skipped_text(skipped))
}

/// Returns the cases that can run here, and the reasons why others cannot.
fn select_cases(
    args: CommandArgs<'_>,
    options: &SelftestOptions,
) -> (Vec<&'static TestCase>, Vec<NotInducible>) {
    let machine = HostCapabilities {
        is_root: experiment::scenario::testbed::is_root(),
        cpus: rt::cores::available_cpus().len() as u32,
        allow_global: args.is_set("allow-global"),
        has_program: &|name| program_file(name).is_some(),
    };
    let is_selected =
        |code: &str| options.only.is_empty() || options.only.iter().any(|selected| selected == code);
    let mut cases = Vec::new();
    let mut skipped = Vec::new();
    let in_part = |case: &&TestCase| options.part.is_none() || case.part() == options.part;
    let all = options.set.cases().iter().filter(in_part);
    for case in all.filter(|case| is_selected(case.verdict) || is_selected(case.name)) {
        match case.missing_requirement(machine) {
            None => cases.push(case),
            Some(why) => skipped.push(NotInducible { name: case.name.to_owned(), why }),
        }
    }
    let not_induced: &[_] = if options.set == CaseSet::Induced { NOT_INDUCED } else { &[] };
    for (code, why) in not_induced.iter().filter(|(code, _)| is_selected(code)) {
        skipped.push(NotInducible { name: (*code).to_owned(), why: (*why).to_owned() });
    }
    (cases, skipped)
}

/// Parses the flags; returns everything that is wrong with them.
pub(super) fn parse_options(args: CommandArgs<'_>) -> Result<SelftestOptions, Vec<InputProblem>> {
    let mut flags = FlagReader::new(args);
    let (set, part) = parse_set_and_part(args, &mut flags);
    let only: Vec<String> = args
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
        if !known.into_iter().any(|known_code| known_code == code) {
            flags.add_problem("only", format_args!("no verdict or case '{code}' (--list lists them)"));
        }
    }
    if args.is_set("reliability") == args.values().is_empty() {
        flags.add_problem("reliability", "files written by --json need --reliability, and it needs them");
    }
    let quick = args.is_set("quick");
    let repetitions = flags.parse("repetitions", |text| match parse_count(text)? {
        count if (1..=REPETITIONS_MAX).contains(&count) => Ok(count as u32),
        _ => Err(invalid_value!("'{text}' is not between 1 and {REPETITIONS_MAX}")),
    });
    let default = if quick { format!("{}ms", QUICK_NS / 1_000_000) } else { DURATION_DEFAULT.to_owned() };
    let duration = args.text("duration").unwrap_or(default);
    let duration_ns = parse_duration_ns(&duration, DurationUnit::Seconds);
    let duration_ns = duration_ns.map_err(|why| flags.add_problem("duration", why)).unwrap_or(0);
    let seed = flags.parse("seed", parse_count).unwrap_or_else(|| now_ns() % 1_000_000);
    let repetitions = repetitions.unwrap_or(if quick { 1 } else { REPETITIONS });
    let load_prefix = flags.parse("load-prefix", parse_load_prefix).unwrap_or_default();
    flags.finish(SelftestOptions { set, part, only, repetitions, duration_ns, seed, load_prefix })
}

fn parse_load_prefix(text: &str) -> Result<Vec<String>, InvalidValue> {
    let words = split_words(text)?;
    let program = words.first().ok_or_else(|| invalid_value!("a command is needed"))?;
    match program_file(program) {
        Some(_) => Ok(words),
        None => Err(invalid_value!("no program '{program}' in PATH")),
    }
}

/// Parses the set of cases and its part; reports what is wrong with them.
fn parse_set_and_part(args: CommandArgs<'_>, flags: &mut FlagReader<'_>) -> (CaseSet, Option<CasePart>) {
    let set = args.text("set").unwrap_or_else(|| CaseSet::Induced.name().to_owned());
    let set = CaseSet::from_name(&set).unwrap_or_else(|| {
        flags.add_problem("set", format_args!("'{set}' is neither induced nor foreign"));
        CaseSet::Induced
    });
    let mut part = None;
    if let Some(name) = args.text("part") {
        part = CasePart::from_name(&name);
        if part.is_none() && name != "all" {
            flags.add_problem("part", format_args!("'{name}' is not development, held-out or all"));
        }
        if set == CaseSet::Induced && part.is_some() {
            flags.add_problem("part", "only the set foreign has parts: add --set foreign");
        }
    }
    (set, part)
}
