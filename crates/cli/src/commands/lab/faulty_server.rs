//! `weir lab faulty-server`: a server with an injected fault.

use std::path::PathBuf;
use std::time::Duration;

use experiment::faulty_server::FaultConfig;
use record::invalid_value;
use record::problem::{InputProblem, InvalidValue};
use record::units::{DurationUnit, parse_count, parse_duration_ns, parse_fraction, parse_size};
use rt::address::Address;
use rt::drain::{Drain, DrainStage, SignalSet, block_signals};

use crate::exit::{Exit, Failure};
use crate::flags::CommandArgs;
use crate::output::print;

/// Interval at which it polls for a stop request.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
const LISTEN_DEFAULT: &str = "127.0.0.1:8000";

pub(super) fn run(args: CommandArgs<'_>) -> Result<Exit, Failure> {
    let fault = parse_fault(args)?;
    let drain = Drain::default();
    let stop = drain.watch();
    block_signals(SignalSet::Termination)?.spawn_handler(drain, None)?;
    let running = experiment::faulty_server::start(fault, rt::clock::now_ns)?;
    print(&format!("listening on http://{}/\n", running.address));
    while stop.stage() == DrainStage::Running {
        if running.has_ended() {
            return Ok(Exit::CannotRun);
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    Ok(Exit::Done)
}

/// Parses the flags; returns everything that is wrong with them.
pub(in crate::commands) fn parse_fault(args: CommandArgs<'_>) -> Result<FaultConfig, Vec<InputProblem>> {
    let mut problems = Vec::new();
    let no_fault = FaultConfig::default();
    let mut fault = FaultConfig {
        threads: parse_value(args, "threads", parse_thread_count, &mut problems),
        log: args.text("log").map(PathBuf::from),
        log_dsync: args.is_set("log-dsync"),
        log_pipe_bytes_per_s: parse_value(args, "log-pipe", parse_size, &mut problems),
        split_write: args.is_set("split-write"),
        close_after_response: args.is_set("close-after-response"),
        ignore_close: args.is_set("ignore-close"),
        ..no_fault
    };
    let us = |text: &str| parse_duration_ns(text, DurationUnit::Microseconds);
    let ms = |text: &str| parse_duration_ns(text, DurationUnit::Milliseconds);
    let listen = args.text("listen").unwrap_or_else(|| LISTEN_DEFAULT.to_owned());
    match listen.parse::<Address>() {
        Ok(Address::Tcp(address)) => fault.listen = address,
        Ok(Address::Unix(_)) => {
            let text = format!("'{listen}' is not a TCP address (write 127.0.0.1:8000)");
            problems.push(InputProblem::new("--listen", text));
        }
        Err(error) => problems.push(InputProblem::new("--listen", error)),
    }
    let data_bytes = parse_value(args, "data-bytes", parse_size, &mut problems);
    fault.data = args.text("data").map(|path| (PathBuf::from(path), data_bytes.unwrap_or(0)));
    set_if_given(&mut fault.pages, parse_value(args, "pages", parse_count_u32, &mut problems));
    set_if_given(&mut fault.burn_ns, parse_value(args, "burn", us, &mut problems));
    set_if_given(&mut fault.lock_ns, parse_value(args, "lock", us, &mut problems));
    set_if_given(&mut fault.delay_ns, parse_value(args, "delay", ms, &mut problems));
    set_if_given(&mut fault.accept_delay_ns, parse_value(args, "accept-delay", ms, &mut problems));
    set_if_given(&mut fault.syscalls, parse_value(args, "syscalls", parse_count_u32, &mut problems));
    set_if_given(&mut fault.allocations, parse_value(args, "allocations", parse_count_u32, &mut problems));
    set_if_given(
        &mut fault.error_fraction,
        parse_value(args, "error-fraction", parse_fraction, &mut problems),
    );
    set_if_given(&mut fault.drop_fraction, parse_value(args, "drop-fraction", parse_fraction, &mut problems));
    set_if_given(&mut fault.body_bytes, parse_value(args, "body", parse_body_bytes, &mut problems));
    set_if_given(&mut fault.backlog, parse_value(args, "backlog", parse_backlog, &mut problems));
    if problems.is_empty() { Ok(fault) } else { Err(problems) }
}

fn set_if_given<T>(field: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *field = value;
    }
}

fn parse_value<T>(
    args: CommandArgs<'_>,
    flag: &str,
    parse: impl FnOnce(&str) -> Result<T, InvalidValue>,
    problems: &mut Vec<InputProblem>,
) -> Option<T> {
    let text = args.text(flag)?;
    parse(&text).map_err(|why| problems.push(InputProblem::new(format!("--{flag}"), why))).ok()
}

fn parse_count_u32(text: &str) -> Result<u32, InvalidValue> {
    u32::try_from(parse_count(text)?).map_err(|_| invalid_value!("'{text}' is too many"))
}

fn parse_thread_count(text: &str) -> Result<usize, InvalidValue> {
    const THREADS_MAX: u32 = 1024;
    let threads = parse_count_u32(text)?;
    if (1..=THREADS_MAX).contains(&threads) {
        return Ok(threads as usize);
    }
    Err(invalid_value!("'{text}' is not between 1 and {THREADS_MAX}"))
}

fn parse_backlog(text: &str) -> Result<i32, InvalidValue> {
    i32::try_from(parse_count(text)?).map_err(|_| invalid_value!("'{text}' is too many"))
}

fn parse_body_bytes(text: &str) -> Result<usize, InvalidValue> {
    const BODY_BYTES_MAX: u64 = 64 << 20;
    let bytes = parse_size(text)?;
    if bytes > BODY_BYTES_MAX {
        return Err(invalid_value!("'{text}' is more than 64m"));
    }
    Ok(bytes as usize)
}
