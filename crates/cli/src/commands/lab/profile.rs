//! `weir lab profile`: samples processes and shows their functions; counts calls.

use std::net::{Ipv4Addr, SocketAddr};

use host::NotObservable;
use host::perf::calls::{Budget, Call, Counted, count};
use host::perf::{
    FREQUENCY, FREQUENCY_MAX, Folded, HaproxyProfiling, Profiler, TaskRow, difference_svg, svg,
};
use record::file::wall_clock;
use record::problem::Problem;
use record::units::{DurationUnit, SECOND_NS, parse_count, parse_duration_ns};
use rt::clock::now_ns;
use rt::drain::{Drain, DrainWatch, Held, Stage, hold_signals};

use super::subject::{Running, Subject, pause};
use crate::exit::{Exit, Failure};
use crate::flags::Typed;
use crate::output::file::{write_json, write_text};
use crate::output::print;
use crate::output::profile::{Outcome, json, words};
use crate::preflight::{self, STDOUT};

/// The longest sampling, and the one without a flag.
const LENGTH_MAX_NS: u64 = 3600 * SECOND_NS;
const LENGTH_NS: u64 = 10 * SECOND_NS;
/// How long HAProxy measures itself.
const OWN_PROFILE_NS: u64 = SECOND_NS;
/// What the sampled processes are called in records.
const ROLE: &str = "subject";

/// What was asked for.
pub(super) struct Asked {
    subject: Subject,
    length_ns: u64,
    frequency: u32,
    calls: Vec<Call>,
    top: usize,
    svg: Option<String>,
    folded: Option<String>,
    json: Option<String>,
    against: Option<String>,
}

pub(super) fn run(typed: Typed<'_>) -> Result<Exit, Failure> {
    let asked = check(typed)?;
    preflight::outputs(typed, &["json", "folded", "svg"], &[])?;
    check_calls(&asked.calls)?;
    let against = asked.against.as_deref().map(read_folded).transpose()?;
    let drain = Drain::default();
    let stop = drain.watch();
    hold_signals(Held::Stop)?.follow(drain, None)?;
    let mut running = asked.subject.start()?;
    let started_at = wall_clock();
    let profiler = Profiler::start(&running.family(), asked.frequency, now_ns)
        .map_err(|error| Failure::CannotRun(error.to_string()))?;
    running.go()?;
    wait(&mut running, asked.length_ns, &stop);
    // Names are looked up while the programs are still there.
    let profile = profiler.stop();
    let (counted, mut missing) = calls(&asked, &mut running, &stop);
    let tasks = own_profile(&mut running, &stop, &mut missing);
    drop(running);
    let outcome = Outcome { started_at, profile, against, counted, tasks, missing, role: ROLE };
    finish(&asked, &outcome)
}

/// Refuses system calls that this kernel does not have.
fn check_calls(calls: &[Call]) -> Result<(), Failure> {
    let unknown = calls.iter().filter(|call| call.is_known() == Some(false));
    let problems: Vec<Problem> = unknown
        .map(|call| {
            let text = format!(
                "this kernel has no system call '{call}' (those that can be counted are the \
                 sys_enter_NAME in /sys/kernel/tracing/events/syscalls)"
            );
            Problem::new("--calls", text)
        })
        .collect();
    if problems.is_empty() { Ok(()) } else { Err(problems.into()) }
}

/// Waits until the time is over, or there is nothing left to wait for.
fn wait(running: &mut Running, length_ns: u64, stop: &DrainWatch) {
    let until_ns = now_ns() + length_ns;
    while now_ns() < until_ns && goes_on(running, stop) {
        pause(until_ns.saturating_sub(now_ns()));
    }
}

fn goes_on(running: &mut Running, stop: &DrainWatch) -> bool {
    stop.stage() == Stage::Running && !running.has_ended()
}

fn calls(
    asked: &Asked,
    running: &mut Running,
    stop: &DrainWatch,
) -> (Vec<Counted>, Vec<NotObservable>) {
    let (mut counted, mut missing) = (Vec::new(), Vec::new());
    for call in &asked.calls {
        if !goes_on(running, stop) {
            missing.push(NotObservable {
                what: format!("calls of {call}"),
                why: "the program had ended before they were counted".to_owned(),
            });
            continue;
        }
        let one = std::slice::from_ref(call);
        let done = count(ROLE, &running.family(), one, Budget::default(), now_ns, now_ns());
        counted.extend(done.0);
        missing.extend(done.1);
    }
    (counted, missing)
}

/// HAProxy's own table, if one of the processes is HAProxy.
fn own_profile(
    running: &mut Running,
    stop: &DrainWatch,
    missing: &mut Vec<NotObservable>,
) -> Option<Vec<TaskRow>> {
    if !goes_on(running, stop) {
        return None;
    }
    // A master holds the sockets too, but its workers do the work: the last one answers.
    let started = running.family().iter().rev().find_map(|&pid| HaproxyProfiling::start(pid))?;
    let table = started.and_then(|profiling| {
        wait(running, OWN_PROFILE_NS, stop);
        profiling.stop()
    });
    table.map_err(|why| missing.push(why)).ok()
}

fn finish(asked: &Asked, outcome: &Outcome) -> Result<Exit, Failure> {
    let folded = outcome.profile.folded();
    let outputs = [&asked.json, &asked.folded, &asked.svg];
    if !outputs.iter().any(|to| to.as_deref() == Some(STDOUT)) {
        print(&words(outcome, asked.top));
    }
    write_json(&json(outcome), asked.json.as_deref())?;
    write_text(&folded.to_string(), asked.folded.as_deref())?;
    if outcome.profile.samples == 0 {
        // A picture of nothing cannot be drawn; that there was nothing has been said.
        return Ok(Exit::Invalid);
    }
    if let Some(path) = &asked.svg {
        let title = outcome.title();
        let drawn = match &outcome.against {
            Some(before) => difference_svg(before, &folded, &title),
            None => svg(&folded, &title),
        };
        let drawn = drawn.map_err(|error| Failure::cannot("--svg", error))?;
        write_text(&String::from_utf8_lossy(&drawn), Some(path))?;
    }
    Ok(Exit::Done)
}

fn read_folded(path: &str) -> Result<Folded, Failure> {
    let wrong = |why: String| Failure::from(vec![Problem::new("--against", why)]);
    let bytes = std::fs::read(path).map_err(|error| wrong(format!("{path}: {error}")))?;
    let text = String::from_utf8_lossy(&bytes);
    Folded::parse(&text).map_err(|error| wrong(format!("{path}: {error}")))
}

/// Reads all flags; every problem at once.
pub(super) fn check(typed: Typed<'_>) -> Result<Asked, Vec<Problem>> {
    let mut problems = Vec::new();
    let subject = subject(typed, &mut problems);
    let mut read = |flag: &str, default: u64, parse: &dyn Fn(&str) -> Result<u64, String>| {
        let Some(text) = typed.text(flag) else { return default };
        parse(&text).unwrap_or_else(|why| {
            problems.push(Problem::new(format!("--{flag}"), why));
            default
        })
    };
    let length_ns = read("duration", LENGTH_NS, &|text| {
        let ns = parse_duration_ns(text, DurationUnit::Seconds)?;
        let within = (1..=LENGTH_MAX_NS).contains(&ns);
        if within { Ok(ns) } else { Err(format!("'{text}' is not above 0 and at most 1h")) }
    });
    let counted = |most: u64| {
        move |text: &str| match parse_count(text)? {
            count if (1..=most).contains(&count) => Ok(count),
            _ => Err(format!("from 1 to {most}")),
        }
    };
    let frequency = read("frequency", u64::from(FREQUENCY), &counted(u64::from(FREQUENCY_MAX)));
    let top = read("top", 20, &counted(100_000)) as usize;
    let words = typed.text("calls").unwrap_or_default();
    let words = words.split(',').filter(|_| typed.is_given("calls"));
    let (mut calls, mut wrong) = (Vec::new(), Vec::new());
    for word in words {
        match Call::parse(word.trim()) {
            Ok(call) => calls.push(call),
            Err(why) => wrong.push(Problem::new("--calls", why)),
        }
    }
    problems.append(&mut wrong);
    match subject {
        Some(subject) if problems.is_empty() => Ok(Asked {
            subject,
            length_ns,
            frequency: frequency as u32,
            calls,
            top,
            svg: typed.text("svg"),
            folded: typed.text("folded"),
            json: typed.text("json"),
            against: typed.text("against"),
        }),
        _ => Err(problems),
    }
}

/// The program, of which exactly one is named.
fn subject(typed: Typed<'_>, problems: &mut Vec<Problem>) -> Option<Subject> {
    let before = problems.len();
    let (pids, port, command) = (typed.texts("pid"), typed.text("port"), typed.values());
    let named = usize::from(!pids.is_empty())
        + usize::from(port.is_some())
        + usize::from(!command.is_empty());
    if named != 1 {
        let text = "name one program: --pid PID, --port PORT, or -- COMMAND";
        problems.push(Problem::new("COMMAND", text));
    }
    let mut numbers = Vec::new();
    for text in &pids {
        match text.parse::<i32>() {
            Ok(pid) if pid > 0 => numbers.push(pid),
            _ => problems.push(Problem::new("--pid", format!("'{text}' is no process's number"))),
        }
    }
    let listener = port.map(|text| {
        let port = text.parse::<u16>().ok().filter(|&port| port > 0);
        let local = port.map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
        local.or_else(|| text.parse::<SocketAddr>().ok()).or_else(|| {
            let text = format!("'{text}' is no port (write 8080, or 10.0.0.1:8080)");
            problems.push(Problem::new("--port", text));
            None
        })
    });
    if problems.len() > before {
        return None;
    }
    match listener.flatten() {
        Some(address) => Some(Subject::Listener(address)),
        None if !numbers.is_empty() => Some(Subject::Pids(numbers)),
        None => Some(Subject::Command(command)),
    }
}
