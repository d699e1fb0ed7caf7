//! Answer about a subject that is not observable from here: what the client alone knows of connections, times of
//! each phase, TCP and the course of the load, and the commands that would tell more.

use record::histogram::LatencySummary;
use record::run::{Answer, Run};
use record::units::format_rate;
use stats::median;

use super::answer;
use super::network::round_trip;
use crate::facts::{Facts, format_ns};
use crate::signals as s;
use crate::window::GENERATOR;

/// Maximum length of the reason in characters: a reader takes in no more.
const WHY_CHARS_MAX: usize = 470;
/// Part of the mean latency from which a phase is worth a word.
const PHASE_PART_MIN: f64 = 0.02;
/// Part of the time with bytes to send from which a full receive window is worth a word.
const WINDOW_PART_MIN: f64 = 0.05;
/// Part of retransmitted packets from which loss is worth a word.
const LOSS_MIN: f64 = 0.001;
/// Ratio of the last to the first third of the seconds up to which the load had a steady course.
const STEADY_RATIO_MAX: f64 = 1.15;
/// Minimum number of measured seconds that have a course.
const SECONDS_MIN: usize = 6;

pub(super) fn remote(facts: &Facts<'_>, what: String, alone: String, failures: String) -> Answer {
    let network = round_trip(facts)
        .map_or_else(String::new, |time| format!("a round trip of the network takes only {time} of that"));
    let retransmitted = facts.phrase_from(LOSS_MIN, &s::RETRANSMITTED, "{} of the packets were sent again");
    // The first to go if there is no room for all is the last.
    let by_weight = [
        facts.transfer(),
        network,
        retransmitted,
        window(facts),
        first_byte(facts),
        course(facts.view.run),
        connecting(facts),
        facts.phrase(&s::GENERATOR_THREAD, "this client was {} busy"),
        failures,
    ];
    let unknown = "only the server can tell which of its resources is full: a CPU, a lock, a pool or a server behind it";
    let mut why = vec![alone];
    let mut room = WHY_CHARS_MAX.saturating_sub(length(&why[0]) + length(unknown));
    for clause in by_weight {
        if length(&clause) <= room {
            room -= length(&clause);
            why.push(clause);
        }
    }
    why.push(unknown.to_owned());
    answer(what, &why, &[next_command(facts.view.run)])
}

/// Returns the length of a clause with its separator.
fn length(clause: &str) -> usize {
    clause.chars().count() + 2
}

/// Names the command that would tell more: a watch of the server, or its role in a run of a fleet.
fn next_command(run: &Run) -> String {
    if run.fleet.is_some() {
        return "give the server an agent and a `[machine]` of its own in `weir fleet run FILE`: it then runs `weir fleet \
                role` there, and the record names the resource"
            .to_owned();
    }
    let watch = "run `weir watch --json watch.json` on the server during this load (with `--json run.json`); then \
                 `weir lab diagnose run.json watch.json` names the resource; an agent of a fleet on the server does that with \
                 `weir fleet role`";
    match run.observed.is_empty() {
        true => format!("repeat it without `--no-watch` if the server runs here; if it does not, {watch}"),
        false if is_on_this_machine(run) => {
            "repeat it as root, and outside of a container (or in one with the host's processes, as with `--pid=host`): \
             then weir reads the processes that listen there, and names the resource"
                .to_owned()
        }
        false => watch.to_owned(),
    }
}

/// Returns whether the server listens on this machine, so that only a missing permission hides its processes.
fn is_on_this_machine(run: &Run) -> bool {
    let url = run.plan["requests"][0]["url"].as_str().unwrap_or_default();
    let authority = url.split_once("://").map_or(url, |(_, rest)| rest).split('/').next().unwrap_or_default();
    let is_loopback = |host: &str| {
        let address = host.trim_start_matches('[').trim_end_matches(']').parse();
        host == "localhost" || address.is_ok_and(|address: std::net::IpAddr| address.is_loopback())
    };
    let host = authority.rsplit_once(':').map_or(authority, |(host, _)| host);
    run.plan["unix"].is_string() || is_loopback(authority) || is_loopback(host)
}

/// Names the time until a connection is open, if it is a part of the latency that counts.
fn connecting(facts: &Facts<'_>) -> String {
    let latency = &facts.view.run.latency;
    let loaded_ns = facts.loaded_ns();
    let counts = |summary: &LatencySummary| {
        summary.count > 0 && summary.mean_ns >= PHASE_PART_MIN * loaded_ns && summary.mean_ns > 0.0
    };
    let connect = Some(&latency.connect.service).filter(|summary| counts(summary));
    let handshake =
        latency.tls_handshake.as_ref().map(|pair| &pair.service).filter(|summary| counts(summary));
    match (connect, handshake) {
        (Some(connect), Some(tls)) => format!(
            "a new connection takes {}, and its TLS handshake {}",
            format_ns(connect.mean_ns),
            format_ns(tls.mean_ns)
        ),
        (Some(connect), None) => format!("a new connection takes {}", format_ns(connect.mean_ns)),
        (None, Some(tls)) => format!("a TLS handshake takes {}", format_ns(tls.mean_ns)),
        (None, None) => String::new(),
    }
}

/// Names the time until the first byte; the rest is the transfer, which has a clause of its own if it is most of it.
fn first_byte(facts: &Facts<'_>) -> String {
    let summary = &facts.view.run.latency.first_byte.service;
    let part = summary.mean_ns / facts.loaded_ns().max(1.0);
    match summary.count > 0 && part > PHASE_PART_MIN && part <= 1.0 && !facts.is_transfer() {
        true => format!(
            "the first byte comes after {}, {:.0} % of the time",
            format_ns(summary.mean_ns),
            part * 100.0
        ),
        false => String::new(),
    }
}

/// Names a full receive window: of the server for an upload, which the client's own sockets tell.
fn window(facts: &Facts<'_>) -> String {
    let last = facts.view.run.observed.iter().find_map(|machine| {
        machine.roles.iter().any(|role| role.name == GENERATOR).then_some(machine.queues.last()?)
    });
    let ends = last.into_iter().flat_map(|snapshot| &snapshot.ends);
    let own = ends.filter(|ends| ends.end == record::observed::ConnectionEnd::Client);
    let (full, busy) =
        own.fold((0, 0), |(full, busy), ends| (full + ends.receive_window_limited_us, busy + ends.busy_us));
    let part = full as f64 / busy.max(1) as f64;
    match busy > 0 && (WINDOW_PART_MIN..=1.0).contains(&part) {
        true => format!(
            "its TCP receive window was full in {:.0} % of the time in which this client sent",
            part * 100.0
        ),
        false => String::new(),
    }
}

/// Describes the course of the measured seconds: steady, or a change from the first to the last third of them.
fn course(run: &Run) -> String {
    let measured = run.intervals.iter().filter(|second| second.measured && second.length_s > 0.5);
    let rates: Vec<f64> =
        measured.map(|second| second.good.unwrap_or(second.responses) as f64 / second.length_s).collect();
    if rates.len() < SECONDS_MIN {
        return String::new();
    }
    let third = rates.len() / 3;
    let (Some(first), Some(last)) = (median(&rates[..third]), median(&rates[rates.len() - third..])) else {
        return String::new();
    };
    let ratio = if first > 0.0 { last / first } else { return String::new() };
    match ratio {
        ratio if ratio > STEADY_RATIO_MAX => {
            format!("it rose from {} at first to {} at the end", format_rate(first), format_rate(last))
        }
        ratio if ratio < 1.0 / STEADY_RATIO_MAX => {
            format!("it fell from {} at first to {} at the end", format_rate(first), format_rate(last))
        }
        _ => "the rate was steady from the first to the last second".to_owned(),
    }
}
