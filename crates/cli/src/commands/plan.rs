//! `weir plan`: inputs from flags, a plan file and records; prints the sizes, or a config.

mod subject;

use std::path::Path;

use diagnose::Ceiling;
use plan::config::{ConfigTarget, documentation_address};
use plan::inputs::{INPUTS, Inputs};
use plan::sizing::Sizing;
use plan::verification::{Verification, VerifiedPlan};
use record::capacity_search::CapacitySearch;
use record::file::write_atomically;
use record::problem::InputProblem;
use rt::drain::{Drain, SignalSet, block_signals};
use runner::verify::subject::VerifySubject;
use runner::verify::{PhaseLengths, verify};
use serde::Serialize;

use self::subject::parse_subject;
use super::text_file::read_text_file;
use crate::exit::{Exit, Failure};
use crate::flags::CommandArgs;
use crate::output::file::write_json;
use crate::output::{print, print_valid};
use crate::preflight;
use crate::streams::notice;
use report::text::plan::{format_plan, format_verification};
use report::text::plan_markdown::format_markdown;

#[derive(Serialize)]
struct PlanRecord {
    #[serde(flatten)]
    sizing: Sizing,
    #[serde(skip_serializing_if = "Option::is_none")]
    verification: Option<Verification>,
}

/// Everything that the user gave.
pub(super) struct PlanRequest {
    inputs: Inputs,
    /// Limit of a load whose record was given.
    ceiling: Option<Ceiling>,
    config: Option<ConfigTarget>,
    subject: VerifySubject,
}

pub(super) fn run(args: CommandArgs<'_>) -> Result<Exit, Failure> {
    let request = read_request(args)?;
    preflight::outputs(args, &["json", "markdown"], &[])?;
    if args.is_set("check") {
        print_valid(&args.text("file").unwrap_or_else(|| "flags".to_owned()));
        return Ok(Exit::Done);
    }
    let sizing = Sizing::compute(&request.inputs);
    if let Some(target) = request.config {
        if sizing.backends.is_empty() {
            let text = "the plan has no servers: give --backend, or --servers with --maxconn or --service";
            return Err(vec![InputProblem::new("--config", text)].into());
        }
        print(&plan::config::write(&sizing, target, &documentation_address));
        for finding in &sizing.findings {
            warn!("weir: {}: {}", finding.code, finding.text);
        }
    } else if !preflight::writes_to_stdout(args, &["json", "markdown"]) {
        print(&format_plan(&sizing, request.ceiling, args.is_set("verbose")));
    }
    let has_error = sizing.has_error();
    let verification = match args.is_set("verify") {
        true => Some(verify_plan(&sizing, &request, args.is_set("quick"))?),
        false => None,
    };
    if let Some(verification) = &verification
        && !preflight::writes_to_stdout(args, &["json", "markdown"])
    {
        print(&format_verification(verification));
    }
    let is_off = verification
        .iter()
        .flat_map(|verification| &verification.comparisons)
        .any(|comparison| comparison.holds == Some(false));
    if let Some(path) = args.text("markdown") {
        let text = format_markdown(&sizing, verification.as_ref());
        match path.as_str() {
            preflight::STDOUT => print(&text),
            path => write_atomically(Path::new(path), text.as_bytes())?,
        }
    }
    write_json(&PlanRecord { sizing, verification }, args.text("json").as_deref())?;
    Ok(if has_error || is_off { Exit::ObjectiveMissed } else { Exit::Done })
}

/// Runs a plan on this machine and compares its figures.
fn verify_plan(sizing: &Sizing, request: &PlanRequest, is_quick: bool) -> Result<Verification, Failure> {
    let inputs = &request.inputs;
    let lengths = if is_quick { PhaseLengths::QUICK } else { PhaseLengths::FULL };
    let mut plan = VerifiedPlan::new(sizing, inputs).map_err(|why| Failure::cannot("--verify", why))?;
    let timeout_s = inputs.number("client-timeout").unwrap_or(5.0);
    let drain = Drain::default();
    let stop = drain.watch();
    block_signals(SignalSet::Termination)?.spawn_handler(drain, None)?;
    let measured = verify(&mut plan, timeout_s, (&request.subject, lengths), (&stop, notice))?;
    let queue = request.subject.queue();
    let comparisons = plan.compare(queue, &measured);
    Ok(Verification { queue, plan, comparisons })
}

/// Reads flags, file and records in the order of their precedence; reports every problem at once.
pub(super) fn read_request(args: CommandArgs<'_>) -> Result<PlanRequest, Vec<InputProblem>> {
    let mut inputs = Inputs::default();
    let (mut problems, mut ceiling) = (Vec::new(), None);
    for row in INPUTS {
        let flag = format!("--{}", row.name);
        let texts = match row.kind {
            plan::inputs::InputKind::Backends => args.texts(row.name),
            _ => args.text(row.name).into_iter().collect(),
        };
        if !texts.is_empty()
            && let Err(why) = inputs.give_texts(row.name, &texts, &format!("flag {flag}"))
        {
            problems.push(InputProblem::new(flag, why));
        }
    }
    if let Some(path) = args.text("file") {
        match read_text_file(&path) {
            Ok(text) => {
                problems.extend(plan::file::read(&path, &text, &mut inputs).err().unwrap_or_default())
            }
            Err(problem) => problems.push(problem),
        }
    }
    for path in args.values() {
        match read_record(&path, &mut inputs) {
            Ok(found) => ceiling = ceiling.or(found),
            Err(problem) => problems.push(problem),
        }
    }
    let config = args.text("config").map(|text| ConfigTarget::parse(&text)).transpose();
    let config = config.unwrap_or_else(|why| {
        problems.push(InputProblem::new("--config", why));
        None
    });
    let subject = parse_subject(args).unwrap_or_else(|found| {
        problems.extend(found);
        VerifySubject::default()
    });
    if problems.is_empty() {
        problems = inputs.problems();
    }
    if problems.is_empty() { Ok(PlanRequest { inputs, ceiling, config, subject }) } else { Err(problems) }
}

/// Takes the inputs of a capacity search. A limit of the requests at a time is that of its diagnosis.
pub(super) fn inputs_of_search(name: &str, search: &CapacitySearch, inputs: &mut Inputs) {
    let stopped = search.stopped_run.as_deref().and_then(diagnose::ceiling);
    if let Some(slots) = stopped.and_then(|ceiling| ceiling.slots) {
        inputs.give_number("server-connections", slots, &format!("{name}: requests at a time at its limit"));
    }
    plan::records::from_search(name, search, inputs);
}

/// Takes the inputs of a record, by its schema. Returns the limit of its load, if it was at one.
fn read_record(path: &str, inputs: &mut Inputs) -> Result<Option<Ceiling>, InputProblem> {
    let mut ceiling = None;
    let problem = |error: record::file::ReadError| InputProblem::from_file_error(error);
    let file = Path::new(path);
    match record::file::read_schema(file).map_err(problem)?.as_str() {
        record::run::SCHEMA => {
            let run = record::file::read_run(file).map_err(problem)?;
            ceiling = diagnose::ceiling(&run);
            if let Some(Ceiling { rate_per_s, slots }) = ceiling {
                plan::records::from_ceiling(path, rate_per_s, slots, inputs);
            }
            plan::records::from_run(path, &run, inputs);
        }
        record::capacity_search::SCHEMA => {
            let search = record::capacity_search::read_search(file).map_err(problem)?;
            inputs_of_search(path, &search, inputs);
        }
        load::calibrate::SCHEMA => {
            let calibration: load::calibrate::Calibration =
                record::file::read_record(file, load::calibrate::SCHEMA).map_err(problem)?;
            plan::records::from_calibration(path, calibration.all_per_s, inputs);
        }
        other => {
            let hint = if path.ends_with(".toml") { " (for a plan file: --file)" } else { "" };
            let text = match other {
                record::file::NO_SCHEMA => {
                    format!(
                        "not a weir record (it has no schema); the commands that measure write one with --json FILE{hint}"
                    )
                }
                other => format!(
                    "the schema is '{other}'; records of weir load, weir edge and weir calibrate have inputs{hint}"
                ),
            };
            return Err(InputProblem::new(path, text));
        }
    }
    Ok(ceiling)
}
