//! `weir lab selftest`: injects each fault, and counts the diagnoses.

use std::path::{Path, PathBuf};

use experiment::engine::environment::program_file;
use experiment::trial::TrialTools;
use proving_ground::case_part::CasePart;
use proving_ground::cases::{CaseSet, HostCapabilities, TestCase};
use proving_ground::foreign::{self, CASES_DIRECTORY};
use proving_ground::induced::induced_cases;
use proving_ground::matrix::{NotInducible, SCHEMA, SelfTest};
use proving_ground::order::order;
use proving_ground::outcome::CaseOutcome;
use proving_ground::selection::Selection;
use proving_ground::{markdown, self_test, text};
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
    /// All cases of the set.
    cases: Vec<TestCase>,
    /// Part of the proving ground; `None`: all of it.
    part: Option<CasePart>,
    only: Vec<String>,
    repetitions: u32,
    duration_ns: u64,
    seed: u64,
    /// Words of the command that starts each load; empty: weir itself.
    load_prefix: Vec<String>,
}

impl SelftestOptions {
    fn selection(&self) -> Selection<'_> {
        Selection { set: self.set, part: self.part, only: &self.only }
    }
}

pub(super) fn run(args: CommandArgs<'_>) -> Result<Exit, Failure> {
    let options = parse_options(args)?;
    if args.is_set("reliability") {
        return super::selftest_results::print_sum(args);
    }
    let machine = HostCapabilities {
        is_root: experiment::scenario::testbed::is_root(),
        cpus: rt::cores::available_cpus().len() as u32,
        allow_global: args.is_set("allow-global"),
        has_program: &|name| program_file(name).is_some(),
    };
    let (cases, skipped) = options.selection().select(&options.cases, machine);
    if args.is_set("list") {
        print(&text::list(&cases, &skipped));
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
    cases: &[&TestCase],
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
    let outcomes = self_test::run(&order, tools, &mut |outcome, run| {
        number += 1;
        warn!("{number:4}/{} {}", order.len(), text::outcome_line(outcome));
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
        part: options.selection().part_name(),
        load_prefix: args.text("load-prefix"),
        partial: outcomes.len() < order.len(),
        not_inducible: skipped,
        outcomes,
        ..SelfTest::default()
    };
    Ok(result.with_summaries())
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

pub(super) fn show(result: &SelfTest, json: Option<&str>) -> Result<(), Failure> {
    if json != Some("-") {
        print(&text::result_text(result));
    }
    crate::output::file::write_json(result, json)
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

/// Reads the cases of the set: those of the program, or those of a directory.
fn read_cases(args: CommandArgs<'_>, set: CaseSet, flags: &mut FlagReader<'_>) -> Vec<TestCase> {
    let directory = args.text("cases");
    if set == CaseSet::Induced {
        if directory.is_some() {
            flags.add_problem("cases", "only the set foreign is in files: add --set foreign");
        }
        return induced_cases();
    }
    if args.is_set("reliability") {
        return Vec::new();
    }
    let directory = directory.unwrap_or_else(|| CASES_DIRECTORY.to_owned());
    foreign::read_cases(Path::new(&directory)).unwrap_or_else(|problems| {
        flags.problems.extend(problems);
        Vec::new()
    })
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
    let cases = read_cases(args, set, &mut flags);
    let selection = Selection { set, part, only: &only };
    // Without cases their directory is the problem.
    let unknown = if cases.is_empty() { Vec::new() } else { selection.unknown_names(&cases) };
    for name in unknown {
        flags.add_problem("only", format_args!("no verdict or case '{name}' (--list lists them)"));
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
    flags.finish(SelftestOptions { set, cases, part, only, repetitions, duration_ns, seed, load_prefix })
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
