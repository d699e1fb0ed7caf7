//! `weir serve`.

use std::net::SocketAddr;
use std::sync::mpsc;
use std::time::Duration;

use record::problem::InputProblem;
use record::units::format_plural;
use rt::address::Address;
use rt::drain::{Drain, DrainStage, SignalHandlers, SignalSet, block_signals};
use rt::listen::AcceptMode;
use serve::plan::OriginPlan;
use serve::{OriginStats, RunningOrigin};
use server_shell::web_ui::{self, WebPage, WebRequest, WebRoute};

use super::drain_on_stdin_close;
use crate::exit::{Exit, Failure};
use crate::flags::{CommandArgs, serve_flags};
use crate::output::print;

pub(super) fn run(args: CommandArgs<'_>) -> Result<Exit, Failure> {
    check_values(args)?;
    let plan = OriginPlan::parse(&serve_flags(args))?;
    if args.is_set("check") {
        let survey = plan.survey_user_tcp().map_err(Failure::cannot_run)?;
        let user_tcp = survey.as_ref().map(|survey| survey.describe(plan.connections_max()));
        print(&(plan.describe() + &user_tcp.unwrap_or_default()));
        return Ok(match survey {
            Some(survey) if !survey.problems.is_empty() => Exit::CannotRun,
            _ => Exit::Done,
        });
    }
    if !plan.has_user_tcp() {
        runner::preflight::check_descriptors(plan.connections_max().unwrap_or(0) as u64)?;
    }
    let (threads, uses_tls, stats_listen) = (plan.threads(), plan.uses_tls(), plan.stats_listen());
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
    // The counters have a runtime of their own, so the cores cannot have descriptor tables of their own.
    let running = match stats_listen {
        Some(_) => serve::start(plan, drain.clone())?,
        None => serve::start_exclusive(plan, drain.clone())?,
    };
    if let Some(address) = stats_listen
        && let Err(failure) = serve_stats(&running, address, &drain)
    {
        drain.advance(DrainStage::Abort);
        return Err(failure);
    }
    print(&format_addresses(&running, threads, uses_tls));
    if args.is_set("until-stdin-closes") {
        drain_on_stdin_close(drain);
    }
    reopen_until_drain(&running, &received_signals);
    let stats = running.join().map_err(|failure| Failure::cannot("serve", failure))?;
    warn!("{}", format_totals(&stats, uses_tls));
    Ok(Exit::Done)
}

/// Serves the counters at an address of their own, until the drain.
fn serve_stats(running: &RunningOrigin, address: SocketAddr, drain: &Drain) -> Result<(), Failure> {
    let (reader, stop) = (running.stats_reader(), drain.watch());
    let (started, result) = mpsc::channel();
    let failed = started.clone();
    let serve = move || {
        let page = move |_: &WebRequest| WebPage::new(web_ui::JSON, reader.read().to_json());
        let listening = |address: SocketAddr| {
            // Without a receiver the start was given up.
            let _ = started.send(Ok(address));
        };
        if let Err(error) = web_ui::run(address, vec![WebRoute::new("/stats", page)], stop, listening) {
            let _ = failed.send(Err(error.to_string()));
        }
    };
    std::thread::Builder::new().name("stats".to_owned()).spawn(serve)?;
    match result.recv() {
        Ok(Ok(address)) => warn!("weir: counters at http://{address}/stats"),
        Ok(Err(why)) => return Err(Failure::cannot(format!("--stats-listen {address}"), why)),
        Err(_) => return Err(Failure::cannot("--stats-listen", "its thread has ended")),
    }
    Ok(())
}

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
    let user = running.user_tcp().map(|user| {
        let how = format!("TCP in user space on {}, {}", user.interface, user.mode);
        let scheme = if uses_tls { "https" } else { "http" };
        let threads = format_plural(threads as u64, "thread");
        let lines = user
            .addresses
            .iter()
            .map(|address| format!("listening on {scheme}://{address}/ ({threads}; {how})\n"));
        lines.collect::<String>()
    });
    running.addresses().into_iter().map(line).chain(user).collect()
}

fn format_totals(stats: &OriginStats, uses_tls: bool) -> String {
    let totals = &stats.sum.totals;
    let handshakes = format!(
        ", {} ({} resumed, {} failed)",
        format_plural(totals.tls_handshakes, "TLS handshake"),
        totals.tls_resumed,
        totals.tls_failed
    );
    format!(
        "served {} on {}{}{}{}",
        format_plural(totals.requests, "request"),
        format_plural(stats.sum.connections_accepted, "connection"),
        if totals.h2_connections > 0 { http2_summary(stats) } else { String::new() },
        if uses_tls { &handshakes } else { "" },
        files_summary(stats)
    )
}

/// Returns the counts of files that an operator should know: those that are 0 are left out.
fn files_summary(stats: &OriginStats) -> String {
    let totals = &stats.sum.totals;
    let mut text = String::new();
    for (count, noun, what) in [
        (totals.files_failed, "response", "cut off because its file could not be read to its end"),
        (totals.files_uncompressed, "response", "not compressed for lack of memory (--compress-memory)"),
    ] {
        if count > 0 {
            text += &format!(", {} {what}", format_plural(count, noun));
        }
    }
    text
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
