//! `weir lab faulty-server`: a server with an injected fault.

use std::path::PathBuf;
use std::time::Duration;

use proving_ground::faulty_server::FaultConfig;
use record::invalid_value;
use record::problem::{InputProblem, InvalidValue};
use record::units::{DurationUnit, parse_count, parse_duration_ns, parse_fraction, parse_size};
use rt::address::Address;
use rt::drain::{Drain, DrainStage, SignalSet, block_signals};

use crate::exit::{Exit, Failure};
use crate::flags::{CommandArgs, FlagReader};
use crate::output::print;

/// Interval at which it polls for a stop request.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
const LISTEN_DEFAULT: &str = "127.0.0.1:8000";

pub(super) fn run(args: CommandArgs<'_>) -> Result<Exit, Failure> {
    let fault = parse_fault(args)?;
    let drain = Drain::default();
    let stop = drain.watch();
    block_signals(SignalSet::Termination)?.spawn_handler(drain, None)?;
    let running = proving_ground::faulty_server::start(fault, rt::clock::now_ns)?;
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
    let mut flags = FlagReader::new(args);
    let none = FaultConfig::default();
    let us = |text: &str| parse_duration_ns(text, DurationUnit::Microseconds);
    let ms = |text: &str| parse_duration_ns(text, DurationUnit::Milliseconds);
    let threads = flags.parse("threads", parse_thread_count);
    let log_pipe_bytes_per_s = flags.parse("log-pipe", parse_size);
    let listen = args.text("listen").unwrap_or_else(|| LISTEN_DEFAULT.to_owned());
    let listen = match listen.parse::<Address>() {
        Ok(Address::Tcp(address)) => address,
        Ok(Address::Unix(_)) => {
            flags.add_problem(
                "listen",
                format_args!("'{listen}' is not a TCP address (write 127.0.0.1:8000)"),
            );
            none.listen
        }
        Err(error) => {
            flags.add_problem("listen", error);
            none.listen
        }
    };
    let data_bytes = flags.parse("data-bytes", parse_size).unwrap_or(0);
    let fault = FaultConfig {
        listen,
        threads,
        data: args.text("data").map(|path| (PathBuf::from(path), data_bytes)),
        log: args.text("log").map(PathBuf::from),
        log_dsync: args.is_set("log-dsync"),
        log_pipe_bytes_per_s,
        split_write: args.is_set("split-write"),
        close_after_response: args.is_set("close-after-response"),
        ignore_close: args.is_set("ignore-close"),
        pages: flags.parse("pages", parse_count_u32).unwrap_or(none.pages),
        burn_ns: flags.parse("burn", us).unwrap_or(none.burn_ns),
        lock_ns: flags.parse("lock", us).unwrap_or(none.lock_ns),
        delay_ns: flags.parse("delay", ms).unwrap_or(none.delay_ns),
        accept_delay_ns: flags.parse("accept-delay", ms).unwrap_or(none.accept_delay_ns),
        syscalls: flags.parse("syscalls", parse_count_u32).unwrap_or(none.syscalls),
        allocations: flags.parse("allocations", parse_count_u32).unwrap_or(none.allocations),
        error_fraction: flags.parse("error-fraction", parse_fraction).unwrap_or(none.error_fraction),
        drop_fraction: flags.parse("drop-fraction", parse_fraction).unwrap_or(none.drop_fraction),
        body_bytes: flags.parse("body", parse_body_bytes).unwrap_or(none.body_bytes),
        backlog: flags.parse("backlog", parse_backlog).unwrap_or(none.backlog),
    };
    flags.finish(fault)
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
