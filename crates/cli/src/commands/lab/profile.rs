//! `weir lab profile`: samples processes, shows their functions, and counts calls.

use std::net::{Ipv4Addr, SocketAddr};

use host::NotObservable;
use host::perf::call_counter::{CallKind, CountBudget, CountedCalls, count_calls};
use host::perf::profile_report::{ProfileReport, format_profile, json};
use host::perf::{FREQUENCY, FREQUENCY_MAX, FoldedStacks, HaproxyProfiling, Profiler, TaskRow};
use record::file::wall_clock_now;
use record::invalid_value;
use record::problem::InputProblem;
use record::units::{DurationUnit, SECOND_NS, parse_count, parse_duration_ns};
use rt::clock::now_ns;
use rt::drain::{Drain, DrainStage, DrainWatch, SignalSet, block_signals};

use super::profile_target::{ProfileTarget, RunningTarget, pause};
use crate::exit::{Exit, Failure};
use crate::flags::{CommandArgs, FlagReader};
use crate::output::file::{write_json, write_text};
use crate::output::print;
use crate::preflight::{self, STDOUT};

/// Maximum and default length of the sampling.
const DURATION_NS_MAX: u64 = 3600 * SECOND_NS;
const DURATION_NS_DEFAULT: u64 = 10 * SECOND_NS;
/// Duration for which HAProxy profiles itself.
const HAPROXY_PROFILE_NS: u64 = SECOND_NS;
/// Role of the sampled processes in records.
const ROLE: &str = "subject";

/// Options of `weir lab profile`.
pub(super) struct ProfileOptions {
    target: ProfileTarget,
    duration_ns: u64,
    frequency: u32,
    calls: Vec<CallKind>,
    top: usize,
    svg: Option<String>,
    folded: Option<String>,
    json: Option<String>,
    baseline_path: Option<String>,
}

pub(super) fn run(args: CommandArgs<'_>) -> Result<Exit, Failure> {
    let options = parse_flags(args)?;
    preflight::outputs(args, &["json", "folded", "svg"], &[])?;
    check_calls(&options.calls)?;
    let against = options.baseline_path.as_deref().map(read_folded).transpose()?;
    let drain = Drain::default();
    let stop = drain.watch();
    block_signals(SignalSet::Termination)?.spawn_handler(drain, None)?;
    let mut running = options.target.start()?;
    let started_at = wall_clock_now();
    let profiler =
        Profiler::start(&running.process_tree(), options.frequency, now_ns).map_err(Failure::cannot_run)?;
    running.release_command()?;
    wait(&mut running, options.duration_ns, &stop);
    // Symbols are resolved while the processes still exist.
    let profile = profiler.stop();
    let (counted, mut missing) = count_all_calls(&options, &mut running, &stop);
    let tasks = haproxy_profile(&mut running, &stop, &mut missing);
    drop(running);
    let outcome = ProfileReport {
        started_at,
        profile,
        baseline: against,
        call_counts: counted,
        tasks,
        missing,
        role: ROLE,
    };
    write_results(&options, &outcome)
}

/// Rejects system calls that this kernel does not have.
fn check_calls(calls: &[CallKind]) -> Result<(), Failure> {
    let unknown = calls.iter().filter(|call| call.is_known() == Some(false));
    let problems: Vec<InputProblem> = unknown
        .map(|call| {
            let text = format!(
                "this kernel has no system call '{call}' (those that can be counted are the \
                 sys_enter_NAME in /sys/kernel/tracing/events/syscalls)"
            );
            InputProblem::new("--calls", text)
        })
        .collect();
    if problems.is_empty() { Ok(()) } else { Err(problems.into()) }
}

/// Waits until the time is over, or nothing is left to wait for.
fn wait(running: &mut RunningTarget, length_ns: u64, stop: &DrainWatch) {
    let until_ns = now_ns() + length_ns;
    while now_ns() < until_ns && is_running(running, stop) {
        pause(until_ns.saturating_sub(now_ns()));
    }
}

fn is_running(running: &mut RunningTarget, stop: &DrainWatch) -> bool {
    stop.stage() == DrainStage::Running && !running.has_ended()
}

fn count_all_calls(
    options: &ProfileOptions,
    running: &mut RunningTarget,
    stop: &DrainWatch,
) -> (Vec<CountedCalls>, Vec<NotObservable>) {
    let (mut counted, mut missing) = (Vec::new(), Vec::new());
    for call in &options.calls {
        if !is_running(running, stop) {
            missing.push(NotObservable {
                figure: format!("calls of {call}"),
                reason: "the process ended before its calls were counted".to_owned(),
            });
            continue;
        }
        let calls = std::slice::from_ref(call);
        let done =
            count_calls(ROLE, &running.process_tree(), calls, CountBudget::default(), now_ns, now_ns());
        counted.extend(done.0);
        missing.extend(done.1);
    }
    (counted, missing)
}

/// Returns HAProxy's own table, if one of the processes is HAProxy.
fn haproxy_profile(
    running: &mut RunningTarget,
    stop: &DrainWatch,
    missing: &mut Vec<NotObservable>,
) -> Option<Vec<TaskRow>> {
    if !is_running(running, stop) {
        return None;
    }
    // A master holds the sockets too, but its workers do the work: the last process is asked.
    let started = running.process_tree().iter().rev().find_map(|&pid| HaproxyProfiling::start(pid))?;
    let table = started.and_then(|profiling| {
        wait(running, HAPROXY_PROFILE_NS, stop);
        profiling.stop()
    });
    table.map_err(|why| missing.push(why)).ok()
}

fn write_results(options: &ProfileOptions, outcome: &ProfileReport) -> Result<Exit, Failure> {
    let folded = outcome.profile.folded();
    let outputs = [&options.json, &options.folded, &options.svg];
    if !outputs.iter().any(|to| to.as_deref() == Some(STDOUT)) {
        print(&format_profile(outcome, options.top));
    }
    write_json(&json(outcome), options.json.as_deref())?;
    write_text(&folded.to_string(), options.folded.as_deref())?;
    if outcome.profile.samples == 0 {
        // Without samples there is nothing to draw, which was reported above.
        return Ok(Exit::Invalid);
    }
    if let Some(path) = &options.svg {
        let before = outcome.baseline.as_ref().map(FoldedStacks::to_string);
        let svg = report::flame_graph(&outcome.title(), &folded.to_string(), before.as_deref());
        let svg = svg.ok_or_else(|| Failure::cannot("--svg", "no samples to draw"))?;
        write_text(&svg, Some(path))?;
    }
    Ok(Exit::Done)
}

fn read_folded(path: &str) -> Result<FoldedStacks, Failure> {
    let wrong = |why: String| Failure::from(vec![InputProblem::new("--baseline", why)]);
    let bytes = std::fs::read(path).map_err(|error| wrong(format!("{path}: {error}")))?;
    let text = String::from_utf8_lossy(&bytes);
    FoldedStacks::parse(&text).map_err(|error| wrong(format!("{path}: {error}")))
}

/// Reads all flags; reports every problem at once.
pub(super) fn parse_flags(args: CommandArgs<'_>) -> Result<ProfileOptions, Vec<InputProblem>> {
    let mut flags = FlagReader::new(args);
    let target = parse_target(args, &mut flags);
    let length_ns = flags.parse("duration", |text| {
        let ns = parse_duration_ns(text, DurationUnit::Seconds)?;
        let within = (1..=DURATION_NS_MAX).contains(&ns);
        if within { Ok(ns) } else { Err(invalid_value!("'{text}' is not above 0 and up to 1h")) }
    });
    let count_up_to = |max: u64| {
        move |text: &str| match parse_count(text)? {
            count if (1..=max).contains(&count) => Ok(count),
            _ => Err(invalid_value!("from 1 to {max}")),
        }
    };
    let frequency = flags.parse("frequency", count_up_to(u64::from(FREQUENCY_MAX)));
    let top = flags.parse("top", count_up_to(100_000));
    let call_names = args.text("calls").unwrap_or_default();
    let mut calls = Vec::new();
    for call_name in call_names.split(',').filter(|_| args.is_given("calls")) {
        match CallKind::parse(call_name.trim()) {
            Ok(call) => calls.push(call),
            Err(why) => flags.add_problem("calls", why),
        }
    }
    let options = target.map(|target| ProfileOptions {
        target,
        duration_ns: length_ns.unwrap_or(DURATION_NS_DEFAULT),
        frequency: frequency.map_or(FREQUENCY, |frequency| frequency as u32),
        calls,
        top: top.unwrap_or(20) as usize,
        svg: args.text("svg"),
        folded: args.text("folded"),
        json: args.text("json"),
        baseline_path: args.text("baseline"),
    });
    // Invariant: without a target there is a problem.
    flags.finish(())?;
    options.ok_or_else(Vec::new)
}

/// Parses the target process; exactly one must be named.
fn parse_target(args: CommandArgs<'_>, flags: &mut FlagReader<'_>) -> Option<ProfileTarget> {
    let (pids, port, command) = (args.texts("pid"), args.text("port"), args.values());
    let targets_given =
        usize::from(!pids.is_empty()) + usize::from(port.is_some()) + usize::from(!command.is_empty());
    if targets_given != 1 {
        let text = "name one target: --pid PID, --port PORT, or -- COMMAND";
        flags.problems.push(InputProblem::new("COMMAND", text));
    }
    let numbers = flags.parse_all("pid", |text| match text.parse::<i32>() {
        Ok(pid) if pid > 0 => Ok(pid),
        _ => Err(invalid_value!("'{text}' is not a PID")),
    });
    let listener = port.map(|text| {
        let port = text.parse::<u16>().ok().filter(|&port| port > 0);
        let local = port.map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
        local.or_else(|| text.parse::<SocketAddr>().ok()).or_else(|| {
            let why = format_args!("'{text}' is not a port (write 8080, or 10.0.0.1:8080)");
            flags.add_problem("port", why);
            None
        })
    });
    if !flags.problems.is_empty() {
        return None;
    }
    match listener.flatten() {
        Some(address) => Some(ProfileTarget::Listener(address)),
        None if !numbers.is_empty() => Some(ProfileTarget::Pids(numbers)),
        None => Some(ProfileTarget::Command(command)),
    }
}
