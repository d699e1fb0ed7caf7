//! `weir fleet load`.

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fleet::coordinator::service::{CoordinatorSession, FleetObserver, FleetRecords};
use fleet::coordinator::{AgentSecond, FleetPlan, LossPolicy, MemberPlan, RunEnd};
use fleet::message::{AgentCommand, AgentFacts, AgentName, AgentRole, Job, RunId, encode};
use fleet::result::{ClockPair, MemberRecord, merge};
use fleet::split::{AgentSelection, Split, SplitBasis, split};
use fleet::transport::NatsOptions;
use load::plan::{LoadFlags, RunPlan};
use load::report::reevaluate_objectives;
use record::problem::InputProblem;
use record::run::{Interval, Run};
use record::units::{DurationUnit, SECOND_NS, format_plural, parse_duration_ns};
use rt::drain::{Drain, DrainStage};
use rt::tokio::sync::watch;

use super::runs::StorePlan;
use super::{clocks, connect, count_signals, job};
use crate::commands::load::{metrics_export, random_id};
use crate::exit::{Exit, Failure};
use crate::flags::{CommandArgs, agent_load_arguments, load_flags, nats_options, nats_problems};
use crate::output::file::{write_json, write_text};
use crate::output::fleet::format_fleet_agents;
use crate::output::live::LiveTable;
use crate::output::load_plan::describe_plan;
use crate::output::openmetrics::MetricsExport;
use crate::output::peer_format::PeerFormat;
use crate::output::summary::summary;
use crate::output::{csv, is_coloured, junit, markdown, print};
use crate::preflight;

/// Results that may go to stdout.
const STDOUT_FLAGS: &[&str] = &["json", "csv", "markdown", "junit"];
/// Maximum time for the search of agents; it ends as soon as there are enough.
const SEARCH_TIME: Duration = Duration::from_secs(3);
/// The same if all agents are wanted: nobody knows how many there are.
const SEARCH_TIME_ALL: Duration = Duration::from_millis(1500);
/// Maximum time for the connections of all agents and their baselines.
const PREPARE_NS: u64 = 60 * SECOND_NS;

/// Flags of `weir fleet load` itself.
#[derive(Clone, Debug)]
pub(super) struct FleetFlags {
    pub(super) selection: AgentSelection,
    on_loss: LossPolicy,
    wait_ns: u64,
    store: Option<StorePlan>,
}

/// Programs around a load.
pub(super) trait LoadSurroundings {
    /// Gets the number of the user's requests to end, before the start.
    fn follow(&mut self, _: &watch::Receiver<u32>) {}
    /// Starts them before the load, whose maximum duration is given in ns. Returns their description.
    fn start(&mut self, load_ns: u64) -> Result<String, Failure>;
    /// Ends them, and adds their observations to the result of the load that started at this time.
    fn finish(&mut self, run: &mut Run, load_start_ns: u64) -> Result<(), Failure>;
}

/// No programs.
struct NoSurroundings;

impl LoadSurroundings for NoSurroundings {
    fn start(&mut self, _: u64) -> Result<String, Failure> {
        Ok(String::new())
    }

    fn finish(&mut self, _: &mut Run, _: u64) -> Result<(), Failure> {
        Ok(())
    }
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
    let (flags, text, plan, arguments) = parse(args)?;
    if args.is_set("check") {
        print(&describe_plan(&plan));
        return Ok(Exit::Done);
    }
    let format = peer_format(args)?;
    preflight::outputs(args, STDOUT_FLAGS, &["openmetrics"])?;
    let output = args.text("output").map(|path| create_output(&path)).transpose()?;
    let quiet = format.is_some() || preflight::writes_to_stdout(args, STDOUT_FLAGS);
    let drain = Drain::default();
    let stop = drain.watch();
    let signals = count_stops(drain)?;
    let cannot = |error: fleet::transport::TransportError| Failure::CannotRun(error.to_string());
    let mut session = connect(&nats, Some(&signals))?;
    let agents = find_agents(&mut session, &flags.selection)?;
    let division = split(&agents);
    check_slices(&text, &division)?;
    let fleet_plan = fleet_plan(&flags, &plan, &agents, &division, &arguments)?;
    if !quiet {
        print(&format_division(&agents, &division));
    }
    if let Some(store) = &flags.store {
        store.check(&nats);
    }
    let show_lines =
        !quiet && !args.is_set("quiet") && (std::io::stdout().is_terminal() || args.is_set("live"));
    let metrics = metrics_export(args)?;
    let mut view = LiveView { table: show_lines.then(LiveTable::default), has_header: false, metrics };
    surroundings.follow(&signals);
    let description = surroundings.start(fleet_plan.duration_ns)?;
    if !quiet {
        print(&description);
    }
    let run_id = fleet_plan.run.clone();
    let records = session.run(fleet_plan, signals, &mut view).map_err(cannot)?;
    check_start(&records)?;
    let start_ns = records.results.iter().filter_map(|result| result.start_ns).min().unwrap_or(0);
    let (mut merged, records) = merge_records(&run_id, records, &agents, &plan, output.as_deref())?;
    surroundings.finish(&mut merged, start_ns)?;
    write_results(args, &merged, format.as_ref(), quiet, show_lines)?;
    if let Some(metrics) = view.metrics {
        metrics.finish(&stop)?;
    }
    if let Some(store) = &flags.store {
        let stored = store.put(&nats, &run_id, &merged, &records, output.as_deref())?;
        if !quiet {
            print(&stored);
        }
    }
    Ok(Exit::from_run(&merged))
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

/// Parses all flags; reports every problem at once.
pub(super) fn parse(args: CommandArgs<'_>) -> Result<(FleetFlags, LoadFlags, RunPlan, Vec<String>), Failure> {
    let (arguments, refused) = agent_load_arguments(args);
    let mut problems: Vec<InputProblem> = refused.into_iter().map(job::refused_flag).collect();
    problems.extend(job::file_values(args));
    let text = load_flags(args);
    let flags = parse_own_flags(args).map_err(|own| problems.extend(own));
    if text.urls.is_empty() {
        problems.push(InputProblem::new("URL", "missing: agents have no embedded origin"));
        return Err(problems.into());
    }
    let plan =
        RunPlan::parse(&text, rt::cores::available_cpus().len()).map_err(|other| problems.extend(other));
    match (flags, plan) {
        (Ok(flags), Ok(plan)) if problems.is_empty() => Ok((flags, text, plan, arguments)),
        _ => Err(problems.into()),
    }
}

/// Parses the flags that `weir load` does not have.
pub(super) fn parse_own_flags(args: CommandArgs<'_>) -> Result<FleetFlags, Vec<InputProblem>> {
    let mut problems = nats_problems(args);
    let selection = args.text("agents").map_or(Ok(AgentSelection::All), |text| AgentSelection::parse(&text));
    let selection = selection.map_err(|why| problems.push(InputProblem::new("--agents", why)));
    let on_loss = match args.text("on-loss").as_deref() {
        None | Some("mark") => LossPolicy::Mark,
        Some("redistribute") => {
            if !args.is_given("rate") && !args.is_given("stages") {
                let text = "a closed loop has no rate that other agents could take over: use --rate, or mark";
                problems.push(InputProblem::new("--on-loss", text));
            }
            LossPolicy::Redistribute
        }
        Some(other) => {
            let text = format!("'{other}' is neither mark nor redistribute");
            problems.push(InputProblem::new("--on-loss", text));
            LossPolicy::Mark
        }
    };
    let wait =
        args.text("wait").map_or(Ok(10 * SECOND_NS), |text| parse_duration_ns(&text, DurationUnit::Seconds));
    let wait_ns = wait.map_err(|why| problems.push(InputProblem::new("--wait", why)));
    let store = StorePlan::parse(args).map_err(|others| problems.extend(others));
    match (selection, wait_ns, store) {
        (Ok(selection), Ok(wait_ns), Ok(store)) if problems.is_empty() => {
            Ok(FleetFlags { selection, on_loss, wait_ns, store })
        }
        _ => Err(problems),
    }
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

pub(super) fn find_agents(
    session: &mut CoordinatorSession,
    selection: &AgentSelection,
) -> Result<Vec<AgentFacts>, Failure> {
    let wait = if matches!(selection, AgentSelection::Count(_)) { SEARCH_TIME } else { SEARCH_TIME_ALL };
    let is_enough = |known: &[AgentFacts]| {
        matches!(selection, AgentSelection::Count(_)) && selection.select(AgentRole::Load, known).is_ok()
    };
    let known = session.find_agents(wait, &is_enough);
    let known: Vec<AgentFacts> = known.into_iter().map(|agent| agent.facts).collect();
    selection.select(AgentRole::Load, &known).map_err(Failure::CannotRun)
}

/// Checks that each agent gets a part of the load.
pub(super) fn check_slices(text: &LoadFlags, division: &Split) -> Result<(), Failure> {
    for (slice, _) in &division.slices {
        let sliced = LoadFlags { slice: Some(slice.clone()), ..text.clone() };
        if RunPlan::parse(&sliced, 1)
            .is_err_and(|problems| problems.iter().any(|one| one.location == "--slice"))
        {
            let text = format!(
                "{} cannot share this load: an agent would have no connection or no request; use fewer agents, or \
                 more connections (-c)",
                format_plural(division.slices.len() as u64, "agent")
            );
            return Err(vec![InputProblem::new("--agents", text)].into());
        }
    }
    Ok(())
}

pub(super) fn fleet_plan(
    flags: &FleetFlags,
    plan: &RunPlan,
    agents: &[AgentFacts],
    division: &Split,
    arguments: &[String],
) -> Result<FleetPlan, Failure> {
    // Invariant: 32 hexadecimal digits are a name.
    let run = RunId::from_host(&random_id());
    let members = agents.iter().zip(&division.slices).map(|(facts, (slice, fraction))| MemberPlan {
        name: facts.name.clone(),
        instance: facts.instance.clone(),
        job: Job { role: AgentRole::Load, arguments: arguments.to_vec(), slice: Some(slice.clone()) },
        fraction: *fraction,
    });
    let members: Vec<MemberPlan> = members.collect();
    if let Some(member) = members.first() {
        let command = AgentCommand::Prepare { run: run.clone(), job: member.job.clone() };
        encode(&command).map_err(|error| Failure::cannot("the plan", error))?;
    }
    Ok(FleetPlan {
        run,
        members,
        on_loss: flags.on_loss,
        duration_ns: plan.end.duration_ns.saturating_add(plan.drain_ns),
        prepare_ns: PREPARE_NS,
        collect_ns: flags.wait_ns,
    })
}

/// Describes the division of the load in one line.
pub(super) fn format_division(agents: &[AgentFacts], division: &Split) -> String {
    let basis = match division.basis {
        SplitBasis::Capacity => "by calibrated capacity",
        SplitBasis::Cpus => "by CPUs (an agent is not calibrated)",
    };
    let parts: Vec<String> = agents
        .iter()
        .zip(&division.slices)
        .take(8)
        .map(|(facts, (_, fraction))| format!("{} {:.0} %", facts.name, fraction * 100.0))
        .collect();
    let others = if agents.len() > 8 { ", …" } else { "" };
    let count = format_plural(agents.len() as u64, "agent");
    format!("fleet        {count}, load divided {basis}: {}{others}\n", parts.join(", "))
}

/// Reports why a run did not start, or has no record.
pub(super) fn check_start(records: &FleetRecords) -> Result<(), Failure> {
    let reason = match records.end {
        RunEnd::Records => return Ok(()),
        RunEnd::NotStarted if records.is_stopped => {
            return Err(Failure::CannotRun("stopped before the start".to_owned()));
        }
        RunEnd::NotStarted => "the load was not started",
        RunEnd::NoRecord => "no record arrived",
    };
    let problems = records
        .results
        .iter()
        .flat_map(|result| result.problems.iter().map(|problem| format!("agent {}: {problem}", result.name)));
    let problems: Vec<String> = problems.collect();
    Err(Failure::CannotRun(format!("{reason}: {}", problems.join("; "))))
}

pub(super) fn merge_records(
    run: &RunId,
    records: FleetRecords,
    agents: &[AgentFacts],
    plan: &RunPlan,
    output: Option<&Path>,
) -> Result<(Run, BTreeMap<AgentName, Vec<u8>>), Failure> {
    let (monotonic_ns, wall_ns) = clocks();
    let directory = output.map(|output| output.join(run.as_str()));
    if let Some(directory) = &directory {
        std::fs::create_dir_all(directory).map_err(|error| Failure::cannot(directory.display(), error))?;
    }
    let mut members = Vec::new();
    for (mut result, facts) in records.results.into_iter().zip(agents) {
        let bytes = records.records.get(&result.name);
        if let (Some(directory), Some(bytes)) = (&directory, bytes) {
            record::file::write_atomically(&directory.join(format!("{}.json", result.name)), bytes)?;
        }
        let record = bytes.map(|bytes| serde_json::from_slice::<Run>(bytes));
        let record = match record.transpose() {
            Ok(record) => record,
            Err(error) => {
                result.problems.push(format!("its record cannot be read: {error}"));
                None
            }
        };
        members.push(MemberRecord { result, run: record, clock_synchronized: facts.clock_synchronized });
    }
    let plan = serde_json::to_value(plan).unwrap_or_default();
    let mut merged = merge(run, members, plan, ClockPair { monotonic_ns, wall_ns })
        .map_err(|error| Failure::cannot("cannot merge the records", error))?;
    merged.plan["threads"] = merged.generator.threads.into();
    merged.command = std::env::args().collect();
    merged.partial |= records.is_stopped;
    merged.objectives = reevaluate_objectives(&merged)
        .map_err(|error| Failure::cannot("cannot evaluate the objectives", error))?;
    if let Some(directory) = &directory {
        record::file::write_json(&directory.join("merged.json"), &merged)?;
    }
    Ok((merged, records.records))
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
    } else if !quiet {
        let text = summary(run, args.is_set("verbose"), is_coloured());
        let agents = run.fleet.as_ref().map(format_fleet_agents).unwrap_or_default();
        print(&format!("{}{text}\n{agents}", if has_lines { "\n" } else { "" }));
    }
    write_json(run, args.text("json").as_deref())?;
    write_text(&csv::csv(run), args.text("csv").as_deref())?;
    write_text(&markdown::markdown(run), args.text("markdown").as_deref())?;
    write_text(&junit::junit(run), args.text("junit").as_deref())
}

/// Live view: the line per second of all agents together.
struct LiveView {
    table: Option<LiveTable>,
    has_header: bool,
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
        let Some(table) = &mut self.table else { return };
        if !std::mem::replace(&mut self.has_header, true) {
            table.print_header();
        }
        table.print_second(interval);
    }

    fn on_notice(&mut self, text: &str) {
        warn!("weir: {text}");
    }
}
