//! `weir fleet runs`, and the storage of the runs of `weir fleet load --store`.

use std::path::PathBuf;

use fleet::message::{AgentName, RunId};
use fleet::run_files;
use fleet::run_store::{BUCKET_DEFAULT, MERGED, RunEntry, RunStore, StoreError};
use fleet::session::CONNECT_WAIT;
use fleet::storage::StorePlan;
use record::fleet::MERGED_FILE;
use record::invalid_value;
use record::problem::{InputProblem, InvalidValue};
use record::run::Run;
use record::units::format_bytes;
use report::text::fleet::format_fleet_agents;
use report::text::summary::summary;
use report::text::table::table;

use crate::exit::{Exit, Failure};
use crate::flags::{CommandArgs, nats_options, nats_problems};
use crate::output;
use crate::output::{is_coloured, print};
use crate::streams::notice;

/// Options of `weir fleet runs`.
#[derive(Clone, Debug)]
pub(super) struct RunsOptions {
    bucket: String,
    names: Vec<RunId>,
    fetch: Option<PathBuf>,
}

/// Parses `--store` and `--run-name`; `None` without a storage.
pub(super) fn parse_store(args: CommandArgs<'_>) -> Result<Option<StorePlan>, Vec<InputProblem>> {
    let mut problems = Vec::new();
    let bucket = parse_bucket(args).map_err(|problem| problems.push(problem)).unwrap_or_default();
    let name = args.text("run-name").map(|text| RunId::parse(&text)).transpose();
    let name = name.map_err(|why| problems.push(InputProblem::new("--run-name", why))).unwrap_or_default();
    if name.is_some() && bucket.is_none() && problems.is_empty() {
        problems.push(InputProblem::new("--run-name", "needs --store jetstream"));
    }
    if problems.is_empty() { Ok(bucket.map(|bucket| StorePlan { bucket, name })) } else { Err(problems) }
}

pub(in crate::commands) fn parse_bucket(args: CommandArgs<'_>) -> Result<Option<String>, InputProblem> {
    let Some(text) = args.text("store") else { return Ok(None) };
    let problem = |why: InvalidValue| InputProblem::new("--store", why);
    let bucket = match text.split_once(':') {
        None if text == "jetstream" => return Ok(Some(BUCKET_DEFAULT.to_owned())),
        Some(("jetstream", bucket)) => bucket,
        _ => return Err(problem(invalid_value!("'{text}' is not jetstream[:BUCKET]"))),
    };
    // The names of buckets have the letters of those of agents.
    AgentName::parse(bucket).map(|name| Some(name.to_string())).map_err(problem)
}

/// Parses the flags; reports every problem at once.
pub(super) fn parse(args: CommandArgs<'_>) -> Result<RunsOptions, Vec<InputProblem>> {
    let mut problems = nats_problems(args);
    let bucket = parse_bucket(args).map_err(|problem| problems.push(problem)).unwrap_or_default();
    let mut names = Vec::new();
    for text in args.values() {
        match RunId::parse(&text) {
            Ok(name) => names.push(name),
            Err(why) => problems.push(InputProblem::new("NAME", why)),
        }
    }
    let bucket = bucket.unwrap_or_else(|| BUCKET_DEFAULT.to_owned());
    let options = RunsOptions { bucket, names, fetch: args.text("fetch").map(PathBuf::from) };
    if problems.is_empty() { Ok(options) } else { Err(problems) }
}

pub(super) fn run(args: CommandArgs<'_>) -> Result<Exit, Failure> {
    let options = parse(args)?;
    let cannot = |error: StoreError| Failure::cannot_run(error);
    let nats = nats_options(args, "weir fleet runs");
    let store = RunStore::open(&nats, &options.bucket, false, CONNECT_WAIT, notice).map_err(cannot)?;
    let mut runs = store.list().map_err(cannot)?;
    if let Some(missing) = options.names.iter().find(|name| runs.iter().all(|run| run.name != **name)) {
        return Err(cannot(StoreError::NoRun(missing.clone())));
    }
    if !options.names.is_empty() {
        runs.retain(|run| options.names.contains(&run.name));
    }
    match options.fetch {
        Some(directory) => {
            for run in &runs {
                let directory = directory.join(run.name.as_str());
                for record in &run.records {
                    let bytes = store.get(run, record).map_err(cannot)?;
                    run_files::write_record(&directory, record, &bytes)?;
                }
                print(&format!("{}\n", directory.join(MERGED_FILE).display()));
            }
        }
        None if options.names.is_empty() => print(&format_runs(&runs)),
        None => {
            for run in &runs {
                let bytes = store.get(run, MERGED).map_err(cannot)?;
                let record: Run = serde_json::from_slice(&bytes)
                    .map_err(|error| Failure::cannot(format!("the record of run {}", run.name), error))?;
                let agents = record.fleet.as_ref().map(format_fleet_agents).unwrap_or_default();
                print(&format!("{}\n{agents}", summary(&record, output::detail(args), is_coloured())));
            }
        }
    }
    Ok(Exit::Done)
}

fn format_runs(runs: &[RunEntry]) -> String {
    if runs.is_empty() {
        return "no run (store one with weir fleet load --store jetstream)\n".to_owned();
    }
    let mut rows = vec![["run", "stored", "size", "result"].map(str::to_owned).to_vec()];
    rows.extend(runs.iter().map(|run| {
        let stored = record::file::format_wall_clock(run.stored_unix_ns);
        vec![
            run.name.to_string(),
            stored,
            format_bytes(run.bytes as f64),
            format!("{}, {}", run.description.result, run.description.verdict),
        ]
    }));
    table(&rows)
}
