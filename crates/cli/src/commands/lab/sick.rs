//! `weir lab sick`: the server with a known illness.

use std::path::PathBuf;
use std::time::Duration;

use lab::sick::Illness;
use record::problem::Problem;
use record::units::{DurationUnit, parse_count, parse_duration_ns, parse_share, parse_size};
use rt::drain::{Drain, Held, Stage, hold_signals};

use crate::exit::{Exit, Failure};
use crate::flags::Typed;
use crate::output::print;

/// How often it is looked whether it should end.
const LOOK: Duration = Duration::from_millis(50);
/// Where it listens, if nothing else is said.
const LISTEN: &str = "127.0.0.1:8000";

pub(super) fn run(typed: Typed<'_>) -> Result<Exit, Failure> {
    let illness = illness(typed)?;
    let drain = Drain::default();
    let stop = drain.watch();
    hold_signals(Held::Stop)?.follow(drain, None)?;
    let running = lab::sick::start(illness, rt::clock::now_ns)?;
    print(&format!("listening on http://{}/\n", running.address));
    while stop.stage() == Stage::Running {
        if running.has_ended() {
            return Ok(Exit::CannotRun);
        }
        std::thread::sleep(LOOK);
    }
    Ok(Exit::Done)
}

/// What was typed, or everything that is wrong with it.
pub(in crate::commands) fn illness(typed: Typed<'_>) -> Result<Illness, Vec<Problem>> {
    let mut problems = Vec::new();
    let healthy = Illness::default();
    let mut ill = Illness {
        threads: value(typed, "threads", thread_count, &mut problems),
        log: typed.text("log").map(PathBuf::from),
        log_dsync: typed.is_set("log-dsync"),
        log_pipe_bytes_per_s: value(typed, "log-pipe", parse_size, &mut problems),
        split_write: typed.is_set("split-write"),
        close_each: typed.is_set("close-each"),
        ignore_close: typed.is_set("ignore-close"),
        ..healthy
    };
    let us = |text: &str| parse_duration_ns(text, DurationUnit::Microseconds);
    let ms = |text: &str| parse_duration_ns(text, DurationUnit::Milliseconds);
    let listen = typed.text("listen").unwrap_or_else(|| LISTEN.to_owned());
    match listen.parse() {
        Ok(address) => ill.listen = address,
        Err(_) => {
            problems.push(Problem::new("--listen", format!("'{listen}' is no address with a port")))
        }
    }
    let data_bytes = value(typed, "data-bytes", parse_size, &mut problems);
    ill.data = typed.text("data").map(|path| (PathBuf::from(path), data_bytes.unwrap_or(0)));
    set(&mut ill.pages, value(typed, "pages", count, &mut problems));
    set(&mut ill.burn_ns, value(typed, "burn", us, &mut problems));
    set(&mut ill.lock_ns, value(typed, "lock", us, &mut problems));
    set(&mut ill.delay_ns, value(typed, "delay", ms, &mut problems));
    set(&mut ill.accept_delay_ns, value(typed, "accept-delay", ms, &mut problems));
    set(&mut ill.syscalls, value(typed, "syscalls", count, &mut problems));
    set(&mut ill.allocations, value(typed, "allocations", count, &mut problems));
    set(&mut ill.fail_share, value(typed, "fail-share", parse_share, &mut problems));
    set(&mut ill.drop_share, value(typed, "drop-share", parse_share, &mut problems));
    set(&mut ill.body_bytes, value(typed, "body", body, &mut problems));
    set(&mut ill.backlog, value(typed, "backlog", backlog, &mut problems));
    if problems.is_empty() { Ok(ill) } else { Err(problems) }
}

fn set<T>(field: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *field = value;
    }
}

fn value<T>(
    typed: Typed<'_>,
    flag: &str,
    parse: impl FnOnce(&str) -> Result<T, String>,
    problems: &mut Vec<Problem>,
) -> Option<T> {
    let text = typed.text(flag)?;
    parse(&text).map_err(|why| problems.push(Problem::new(format!("--{flag}"), why))).ok()
}

fn count(text: &str) -> Result<u32, String> {
    u32::try_from(parse_count(text)?).map_err(|_| format!("'{text}' is too many"))
}

fn thread_count(text: &str) -> Result<usize, String> {
    const THREADS_MAX: u32 = 1024;
    let threads = count(text)?;
    if (1..=THREADS_MAX).contains(&threads) {
        return Ok(threads as usize);
    }
    Err(format!("'{text}' is not between 1 and {THREADS_MAX}"))
}

fn backlog(text: &str) -> Result<i32, String> {
    i32::try_from(parse_count(text)?).map_err(|_| format!("'{text}' is too many"))
}

fn body(text: &str) -> Result<usize, String> {
    const BODY_BYTES_MAX: u64 = 64 << 20;
    let bytes = parse_size(text)?;
    if bytes > BODY_BYTES_MAX {
        return Err(format!("'{text}' is more than 64m"));
    }
    Ok(bytes as usize)
}
