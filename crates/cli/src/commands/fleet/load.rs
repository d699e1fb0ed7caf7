//! `weir fleet load`.

use std::io::IsTerminal;
use std::path::PathBuf;

use fleet::coordinator::AgentSecond;
use fleet::coordinator::service::FleetObserver;
use fleet::fleet_load::{find_agents, format_division};
use fleet::machines::LoadSurroundings;
use fleet::message::AgentName;
use fleet::run_files;
use fleet::transport::NatsOptions;
use record::problem::InputProblem;
use record::run::{Interval, Run};
use report::text::csv::csv;
use report::text::fleet::format_fleet_agents;
use report::text::junit::junit;
use report::text::markdown::markdown;
use report::text::peer_format::PeerFormat;
use report::text::summary::summary;
use rt::drain::{Drain, DrainStage};
use rt::tokio::sync::watch;

use super::load_options::parse_load;
use super::{connect, count_signals};
use crate::commands::load::metrics_export;
use crate::exit::{Exit, Failure, OnInvalid};
use crate::flags::{CommandArgs, nats_options};
use crate::output;
use crate::output::file::{write_json, write_text};
use crate::output::fleet::run_description;
use crate::output::live::LiveTable;
use crate::output::openmetrics::MetricsExport;
use crate::output::{is_coloured, print};
use crate::preflight;
use crate::streams::notice;
use load::plan::describe::describe_plan;

/// Results that may go to stdout.
const STDOUT_FLAGS: &[&str] = &["json", "csv", "markdown", "junit"];
/// No programs.
struct NoSurroundings;

impl LoadSurroundings for NoSurroundings {
    fn start(&mut self, _: u64) -> Result<String, Failure> {
        Ok(String::new())
    }

    fn finish(&mut self, _: &mut Run, _: u64) {}
}

pub(super) fn run(args: CommandArgs<'_>) -> Result<Exit, Failure> {
    run_in(args, nats_options(args, "weir fleet load"), &mut NoSurroundings)
}

/// Drives a load within its surroundings.
pub(super) fn run_in(
    args: CommandArgs<'_>,
    nats: NatsOptions,
    surroundings: &mut dyn LoadSurroundings,
) -> Result<Exit, Failure> {
    let load = parse_load(args)?;
    if args.is_set("check") {
        print(&describe_plan(&load.plan));
        return Ok(Exit::Done);
    }
    let format = peer_format(args)?;
    preflight::outputs(args, STDOUT_FLAGS, &["openmetrics"])?;
    let output = args.text("output").map(|path| create_output(&path)).transpose()?;
    let quiet = format.is_some() || preflight::writes_to_stdout(args, STDOUT_FLAGS);
    let drain = Drain::default();
    let stop = drain.watch();
    let signals = count_stops(drain)?;
    let mut session = connect(&nats, Some(&signals))?;
    let agents = find_agents(&mut session, &load.flags.selection)?;
    let divided = load.divide(&agents)?;
    if !quiet {
        print(&format_division(&agents));
    }
    if let Some(store) = &load.flags.store {
        store.check(&nats, notice);
    }
    let show_lines =
        !quiet && !args.is_set("quiet") && (std::io::stdout().is_terminal() || args.is_set("live"));
    let metrics = metrics_export(args)?;
    let mut view = LiveView { table: show_lines.then(LiveTable::default), metrics };
    surroundings.follow(&signals);
    let description = surroundings.start(load.duration_ns())?;
    if !quiet {
        print(&description);
    }
    let ended = divided.drive(&mut session, signals, &mut view)?;
    let start_ns = ended.start_ns();
    let directory = output.as_ref().map(|output| output.join(ended.run.as_str()));
    if let Some(directory) = &directory {
        // Before the merge: the records of the agents are kept if it fails.
        run_files::write_agents(directory, &ended.records.records)?;
    }
    let mut merged = ended.merge()?;
    surroundings.finish(&mut merged.run, start_ns);
    if let Some(directory) = &directory {
        run_files::write_merged(directory, &merged.run)?;
    }
    write_results(args, &merged.run, format.as_ref(), quiet, show_lines)?;
    if let Some(metrics) = view.metrics {
        metrics.finish(&stop)?;
    }
    if let Some(store) = &load.flags.store {
        let stored =
            store.put((&nats, notice), (&merged, &run_description(&merged.run)), output.as_deref())?;
        if !quiet {
            print(&stored);
        }
    }
    Ok(Exit::from_run(&merged.run, OnInvalid::parse(args.text("on-invalid").as_deref())?))
}

/// Counts the user's requests to end the run, which also advance `drain`.
fn count_stops(drain: Drain) -> Result<watch::Receiver<u32>, Failure> {
    count_signals(move |count| {
        drain.advance(if count == 1 { DrainStage::Draining } else { DrainStage::Abort });
        warn!(
            "weir: {}",
            match count {
                1 => "stopping all agents; a second Ctrl-C gives up requests in flight",
                2 => "giving up requests in flight; a third Ctrl-C does not wait for records",
                _ => "not waiting for records",
            }
        );
    })
}

fn peer_format(args: CommandArgs<'_>) -> Result<Option<PeerFormat>, Failure> {
    let text = args.text("format").unwrap_or_else(|| "text".to_owned());
    let format = PeerFormat::parse(&text).map_err(|why| vec![InputProblem::new("--format", why)])?;
    if format.is_some() && preflight::writes_to_stdout(args, STDOUT_FLAGS) {
        let text = "prints to stdout, as another flag does: name a file there";
        return Err(vec![InputProblem::new("--format", text)].into());
    }
    Ok(format)
}

fn create_output(path: &str) -> Result<PathBuf, Failure> {
    std::fs::create_dir_all(path)
        .map_err(|error| vec![InputProblem::new("--output", format!("{path}: {error}"))])?;
    Ok(PathBuf::from(path))
}

fn write_results(
    args: CommandArgs<'_>,
    run: &Run,
    format: Option<&PeerFormat>,
    quiet: bool,
    has_lines: bool,
) -> Result<(), Failure> {
    if let Some(format) = format {
        print(&format.format(run));
        warn!("{}", PeerFormat::verdict_comment(run));
    } else if !quiet {
        let text = summary(run, output::detail(args), is_coloured());
        let agents = run.fleet.as_ref().map(format_fleet_agents).unwrap_or_default();
        print(&format!("{}{text}\n{agents}", if has_lines { "\n" } else { "" }));
    }
    write_json(run, args.text("json").as_deref())?;
    write_text(&csv(run), args.text("csv").as_deref())?;
    write_text(&markdown(run), args.text("markdown").as_deref())?;
    write_text(&junit(run), args.text("junit").as_deref())
}

/// Live view: the line per second of all agents together.
struct LiveView {
    table: Option<LiveTable>,
    metrics: Option<MetricsExport>,
}

impl FleetObserver for LiveView {
    fn on_agent_second(&mut self, agent: &AgentName, second: &AgentSecond) {
        if let Some(metrics) = &mut self.metrics {
            metrics.add_agent(agent.as_str(), &second.interval, second.latencies.as_ref());
        }
    }

    fn on_second(&mut self, interval: &Interval) {
        if let Some(metrics) = &mut self.metrics {
            metrics.publish_second(interval);
        }
        if let Some(table) = &mut self.table {
            table.print_second(interval);
        }
    }

    fn on_notice(&mut self, text: &str) {
        warn!("weir: {text}");
    }
}
