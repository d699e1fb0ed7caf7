//! `weir serve`.

use std::sync::mpsc;
use std::time::Duration;

use record::problem::InputProblem;
use record::units::format_plural;
use rt::address::Address;
use rt::drain::{Drain, SignalHandlers, SignalSet, block_signals};
use rt::listen::AcceptMode;
use serve::plan::OriginPlan;
use serve::{OriginStats, RunningOrigin};

use crate::exit::{Exit, Failure};
use crate::flags::{CommandArgs, serve_flags};
use crate::output::print;
use crate::preflight;

use super::drain_on_stdin_close;

pub(super) fn run(args: CommandArgs<'_>) -> Result<Exit, Failure> {
    check_values(args)?;
    let plan = OriginPlan::parse(&serve_flags(args))?;
    if args.is_set("check") {
        print(&plan.describe());
        return Ok(Exit::Done);
    }
    preflight::check_descriptors(plan.connections_max().unwrap_or(0) as u64)?;
    let (threads, uses_tls) = (plan.threads(), plan.uses_tls());
    if let Some(path) = plan.tls_key_log() {
        warn!("weir: warning: the secrets of all TLS sessions are written to {}", path.display());
    }
    let drain = Drain::default();
    let signals = block_signals(SignalSet::TerminationAndUser)?;
    let (signal_sender, received_signals) = mpsc::channel();
    let send = |signal| {
        let sender = signal_sender.clone();
        // The receiver may be gone.
        move || _ = sender.send(signal)
    };
    let signals_do = SignalHandlers {
        on_reopen: Box::new(send(OriginSignal::Reopen)),
        ..SignalHandlers::with_on_drain(send(OriginSignal::Drain))
    };
    signals.spawn_handler(drain.clone(), Some(signals_do))?;
    let running = serve::start_exclusive(plan, drain.clone())?;
    print(&format_addresses(&running, threads, uses_tls));
    if args.is_set("until-stdin-closes") {
        drain_on_stdin_close(drain);
    }
    reopen_until_drain(&running, &received_signals);
    let stats = running.join().map_err(|failure| Failure::cannot("serve", failure))?;
    warn!("{}", format_totals(&stats, uses_tls));
    Ok(Exit::Done)
}

/// Formats the listening addresses, one a line.
fn format_addresses(running: &RunningOrigin, threads: usize, uses_tls: bool) -> String {
    let line = |(address, mode): (Address, AcceptMode)| {
        let shown = match (&address, uses_tls) {
            (Address::Tcp(address), false) => format!("http://{address}/"),
            (Address::Tcp(address), true) => format!("https://{address}/"),
            (unix @ Address::Unix(_), false) => unix.to_string(),
            (unix @ Address::Unix(_), true) => format!("{unix} with TLS"),
        };
        let threads = format_plural(threads as u64, "thread");
        format!("listening on {shown} ({threads}; {})\n", mode.describe())
    };
    running.addresses().into_iter().map(line).collect()
}

/// Formats the counts of a complete run.
fn format_totals(stats: &OriginStats, uses_tls: bool) -> String {
    let totals = &stats.sum.totals;
    let handshakes = format!(
        ", {} ({} resumed, {} failed)",
        format_plural(totals.tls_handshakes, "TLS handshake"),
        totals.tls_resumed,
        totals.tls_failed
    );
    format!(
        "served {} on {}{}{}",
        format_plural(totals.requests, "request"),
        format_plural(stats.sum.connections_accepted, "connection"),
        if totals.h2_connections > 0 { http2_summary(stats) } else { String::new() },
        if uses_tls { &handshakes } else { "" }
    )
}

/// Signal that the main thread handles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OriginSignal {
    /// SIGUSR1: reopen the log.
    Reopen,
    /// SIGTERM or SIGINT: the drain has started.
    Drain,
}

/// Interval at which the origin is checked for an end without a signal.
const END_POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Reopens the access log at each SIGUSR1, until the origin drains or fails.
fn reopen_until_drain(running: &RunningOrigin, signals: &mpsc::Receiver<OriginSignal>) {
    while !running.is_stopping() {
        match signals.recv_timeout(END_POLL_INTERVAL) {
            Ok(OriginSignal::Reopen) => {
                if let Err(error) = running.reopen_log() {
                    warn!("weir: {error}");
                }
            }
            Ok(OriginSignal::Drain) => return,
            Err(_) => {}
        }
    }
}

/// Checks the positional values, which the plan does not know.
fn check_values(args: CommandArgs<'_>) -> Result<(), Failure> {
    let values = args.values();
    let mut problems = Vec::new();
    if let [_, second, ..] = values.as_slice() {
        let why = format!("'{second}' is one too many: weir serves one directory or file");
        problems.push(InputProblem::new("DIR|FILE|-", why));
    }
    if values.first().is_some_and(|value| value == "-") && args.is_set("until-stdin-closes") {
        let why = "standard input is served (-), so its end cannot stop the process";
        problems.push(InputProblem::new("--until-stdin-closes", why));
    }
    if problems.is_empty() { Ok(()) } else { Err(problems.into()) }
}

/// Returns the counts of HTTP/2: connections, streams, and those that ended early.
fn http2_summary(stats: &OriginStats) -> String {
    let totals = &stats.sum.totals;
    format!(
        ", {} of them with HTTP/2 ({}, {}, {})",
        totals.h2_connections,
        format_plural(totals.h2_streams, "stream"),
        format_plural(totals.h2_resets_received + totals.h2_resets_sent, "reset"),
        format_plural(stats.sum.h2_faults_by_kind.values().sum(), "fault"),
    )
}
