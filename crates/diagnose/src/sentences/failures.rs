//! Answers for failures: a resource ran out, and requests or connections fail.

use record::run::{Answer, Run};
use record::sorted::sort_by_key;
use record::units::{format_count, format_duration_ns, format_plural, format_rate, round_to_digits};

use super::answer;
use crate::facts::{Facts, format_number};
use crate::figures as f;
use crate::signals as s;
use crate::unit::{Unit, format_value};
use crate::window::{GENERATOR, SUBJECT};

pub(crate) fn port_exhaustion(facts: &Facts<'_>) -> Answer {
    let run = facts.view.run;
    let failed = run.totals.errors.get("no_port").copied().unwrap_or(0);
    let is_client = failed > 0;
    let (who, count) = if is_client { ("this machine", failed) } else { ("your service", run.totals.bad()) };
    let role = if is_client { GENERATOR } else { SUBJECT };
    let ports = facts.view.machine(role).and_then(|machine| machine.local_port_count());
    let port_count = ports.map_or_else(String::new, |ports| format!(" {ports:.0}"));
    let keep = if is_client { "this load (no `-r`)" } else { "your service to its servers" };
    answer(
        format!("{who} has no free local port for a new connection: {} failed", format_requests(run, count)),
        &[
            facts.phrase(&s::PORTS, &format!("{{}} of the{port_count} ports to that address are in use")),
            format!(
                "{} new connections were opened, and Linux holds the port of a closed one for 60 s",
                format_rate(facts.opened_per_s())
            ),
        ],
        &[
            format!("keep connections open from {keep}"),
            "if each request needs a new one, add source addresses, or run \
             `weir tune apply --host 'net.ipv4.ip_local_port_range=1024 65023'` there"
                .to_owned(),
        ],
    )
}

pub(crate) fn fd_limit(facts: &Facts<'_>) -> Answer {
    let max = facts.descriptors_max();
    let limit = max.map_or_else(String::new, |max| format!("{max:.0} "));
    // More than the connections of this load need, and more than there are.
    let wanted = (2 * facts.connections() + 100).max(max.map_or(0, |max| 2 * max as u64));
    answer(
        format!("your service has used up its {limit}file descriptors, and cannot accept more connections"),
        &[
            facts.phrase(&s::DESCRIPTORS, "{} of them are open"),
            format!("the load has {}", format_plural(facts.connections(), "connection")),
            waiting_phrase(facts),
            failed_phrase(facts.view.run),
        ],
        &[
            format!(
                "raise the limit to {wanted} or more (`LimitNOFILE=` in systemd, `ulimit -n` in a shell)"
            ),
            "or let the service accept fewer connections than it has descriptors".to_owned(),
        ],
    )
}

pub(crate) fn conntrack_full(facts: &Facts<'_>) -> Answer {
    let max = facts.read_machine_median(|sample| sample.conntrack.map(|table| table.entries_max as f64));
    let size = max.map_or_else(String::new, |max| format!(" of {} entries", format_number(max)));
    let larger = max.map_or(1_048_576, |max| (max as u64).saturating_mul(4));
    answer(
        format!("the kernel's connection tracking table{size} is full, and drops new connections"),
        &[
            facts.phrase(&s::CONNTRACK, "{} of the entries are used"),
            facts.phrase(&s::CONNTRACK_DROPS, "packets were dropped at a rate of {}"),
            facts.phrase_from(0.001, &s::CONNECT_RETRIES, "{} of the connects took a second or more"),
        ],
        &[
            "exclude the port of the service from tracking (`notrack`)".to_owned(),
            format!("or enlarge the table: `weir tune apply --host net.netfilter.nf_conntrack_max={larger}`"),
        ],
    )
}

pub(crate) fn accept_backlog_overflow(facts: &Facts<'_>) -> Answer {
    let backlog = backlog(facts);
    let size = backlog.map_or_else(String::new, |backlog| format!(" of {}", format_number(backlog)));
    let longer = match backlog {
        // Any kernel allows more.
        Some(backlog) if backlog < SOMAXCONN_DEFAULT_MIN => {
            format!(
                "accept on more threads, and raise the backlog of `listen` above {}",
                format_number(backlog)
            )
        }
        _ => "accept on more threads, and raise the backlog of `listen` together with \
              `weir tune apply --host net.core.somaxconn=16384`"
            .to_owned(),
    };
    let opened = format_count(facts.view.run.totals.connections.opened as f64);
    let keep = match facts.keep_connections() {
        text if text.is_empty() => "keep connections open".to_owned(),
        _ => "turn on keep-alive in your service".to_owned(),
    };
    answer(
        format!("connections arrive faster than your service accepts them: its accept queue{size} is full"),
        &[
            facts.phrase(&s::LISTEN_OVERFLOWS, "the kernel dropped connections at a rate of {}"),
            facts.phrase_from(0.01, &s::LISTENER_FULL, "the queue was full in {} of the samples"),
            facts.phrase_from(0.001, &s::CONNECT_RETRIES, "{} of the connects took a second or more"),
        ],
        &[
            format!(
                "{keep}: {opened} connections were opened for {}",
                format_plural(facts.view.run.totals.requests, "request")
            ),
            longer,
        ],
    )
}

/// Lowest default of `net.core.somaxconn` (before Linux 5.4).
const SOMAXCONN_DEFAULT_MIN: f64 = 128.0;

pub(crate) fn syn_backlog_overflow(facts: &Facts<'_>) -> Answer {
    answer(
        "half-open connections fill the queue of your service's listener: handshakes are lost or delayed"
            .to_owned(),
        &[
            facts.phrase(&s::SYN_QUEUE, "the kernel dropped them, or sent cookies, at a rate of {}"),
            facts.phrase_from(0.01, &s::SYN_RECEIVED, "they fill {} of the backlog"),
            facts.phrase_from(0.001, &s::CONNECT_RETRIES, "{} of the connects took a second or more"),
        ],
        &[
            "raise the backlog of `listen` together with `weir tune apply --host net.core.somaxconn=16384`"
                .to_owned(),
            format!("keep connections open: {} new ones were opened", format_rate(facts.opened_per_s())),
        ],
    )
}

pub(crate) fn run_invalid(facts: &Facts<'_>) -> Answer {
    let run = facts.view.run;
    let totals = &run.totals;
    let bad = totals.requests.saturating_sub(totals.good());
    let cause = main_cause(run);
    let max = run.plan["max_error_rate"].as_f64().unwrap_or(0.001);
    let kinds = failure_kinds(run);
    answer(
        match totals.good() {
            0 => format!("no request got a good response: {}", cause.description(run)),
            _ => format!("{} got no good response: {}", format_requests(run, bad), cause.description(run)),
        },
        &[
            format!("the counts are {kinds}"),
            format!(
                "that is {} of the requests, and the limit is {} (--max-error-rate), so rate and latency do not describe \
                 the service",
                format_value(totals.error_fraction(), Unit::Fraction),
                format_args!("{} %", round_to_digits(max * 100.0, 3))
            ),
        ],
        &[cause.remedy(facts)],
    )
}

/// Formats the failures by kind, the most frequent first: "404: 935, timeout 12".
pub(crate) fn failure_kinds(run: &Run) -> String {
    let mut kinds: Vec<(String, u64)> =
        bad_statuses(run).map(|(status, n)| (format!("{status}:"), n)).collect();
    kinds.extend(run.totals.errors.iter().map(|(kind, count)| (format!("`{kind}`"), *count)));
    sort_by_key(&mut kinds, |(_, count)| std::cmp::Reverse(*count));
    let texts: Vec<String> = kinds.iter().take(3).map(|(kind, count)| format!("{kind} {count}")).collect();
    match texts.is_empty() {
        true => format!("{} bad responses", run.totals.bad()),
        false => texts.join(", "),
    }
}

/// Statuses of bad responses, by the default of `--expect-status` if the record does not show others.
fn bad_statuses(run: &Run) -> impl Iterator<Item = (u16, u64)> + '_ {
    let from = if run.totals.status.range(400..).next().is_some() { 400 } else { 300 };
    let has_bad = run.totals.bad() > 0;
    run.totals.status.range(from..).filter(move |_| has_bad).map(|(status, count)| (*status, *count))
}

/// Names the connections that wait to be accepted, as a number: the queue may also have some that ended.
fn waiting_phrase(facts: &Facts<'_>) -> String {
    let waiting = s::unaccepted_connections(facts.view);
    waiting.map_or_else(String::new, |waiting| {
        format!("{} of these wait to be accepted, and get no response", format_number(waiting))
    })
}

fn failed_phrase(run: &Run) -> String {
    match run.totals.requests.saturating_sub(run.totals.good()) {
        0 => String::new(),
        bad => format!("{} failed", format_requests(run, bad)),
    }
}

/// Formats "935 of 935 requests".
fn format_requests(run: &Run, count: u64) -> String {
    format!("{count} of {}", format_plural(run.totals.requests, "request"))
}

fn backlog(facts: &Facts<'_>) -> Option<f64> {
    let machine = facts.view.machine(SUBJECT)?;
    let listeners = machine.snapshots().into_iter().flat_map(|snapshot| &snapshot.listeners);
    listeners.map(f::accept_capacity).reduce(f64::max)
}

/// Returns whether most requests that failed were sent, and got no response.
pub(crate) fn is_without_response(run: &Run) -> bool {
    let is_timeout = matches!(main_cause(run), Cause::Error(kind) if kind == "timeout");
    is_timeout && run.totals.timeouts_by_phase.get("connect").copied().unwrap_or(0) == 0
}

/// Most frequent cause of the failures of a run.
enum Cause {
    Status(u16),
    Error(String),
    Unknown,
}

fn main_cause(run: &Run) -> Cause {
    let status = bad_statuses(run).max_by_key(|(_, count)| *count);
    let error = run.totals.errors.iter().max_by_key(|(_, count)| **count);
    match (status, error) {
        (Some((status, n)), Some((_, count))) if n >= *count => Cause::Status(status),
        (Some((status, _)), None) => Cause::Status(status),
        (_, Some((kind, _))) => Cause::Error(kind.clone()),
        (None, None) => Cause::Unknown,
    }
}

impl Cause {
    fn description(&self, run: &Run) -> String {
        let connecting = run.totals.timeouts_by_phase.get("connect").copied().unwrap_or(0);
        match self {
            Self::Status(status @ (429 | 503)) if admits_nothing(run) => {
                format!("the server answered with status {status}, because a limit rejects all of them")
            }
            Self::Status(status @ 500..) => {
                format!("the server answered with status {status}, an error of its own")
            }
            Self::Status(429) => "the server answered with status 429, because it limits the rate".to_owned(),
            Self::Status(status) => format!("the server answered with status {status}"),
            Self::Error(kind) => match kind.as_str() {
                "timeout" if connecting > 0 => "no connection was established in time".to_owned(),
                "timeout" => "no response came in time".to_owned(),
                "too_late" => format!(
                    "they found no free connection in time, because {} were offered and {} answered",
                    format_rate(run.rates.offered_per_s.unwrap_or(run.rates.responses_per_s)),
                    format_rate(run.goodput_per_s())
                ),
                "refused" => "the connection was refused".to_owned(),
                "reset" | "closed" => "the server closed the connection before its response".to_owned(),
                "parse" => match run.totals.parse_errors_by_count().first() {
                    Some((code, error)) if !["invalid_status_line", "invalid_version"].contains(code) => {
                        format!("the server's response is malformed: {}", error.text)
                    }
                    _ => "the server's bytes are no HTTP response".to_owned(),
                },
                "tls_port" => "this port speaks TLS, and the load speaks plain HTTP".to_owned(),
                "tls" => "the TLS handshake failed".to_owned(),
                "check" => "the response failed a check".to_owned(),
                "no_port" => "this machine has no local port left".to_owned(),
                "no_descriptor" => "this process has no file descriptor left".to_owned(),
                other => format!("the error is `{other}`"),
            },
            Self::Unknown => "the responses are not those that were expected".to_owned(),
        }
    }

    /// Describes the next step.
    fn remedy(&self, facts: &Facts<'_>) -> String {
        let url = facts.url();
        let timeout_ns = facts.view.run.plan["timeout_ns"].as_u64();
        let timeout = timeout_ns.map_or_else(String::new, |ns| format!(" above {}", format_duration_ns(ns)));
        match self {
            Self::Status(401 | 403) => {
                format!("send the credentials (`-H 'Authorization: …'`); `curl -i {url}` shows the response")
            }
            Self::Status(400) if url.starts_with("http://") => format!(
                "correct the request: `curl -i {url}` shows the response; a port with TLS also answers 400 to plain \
                 HTTP: try {}",
                url.replacen("http://", "https://", 1)
            ),
            Self::Status(status @ 400..=428) => format!(
                "correct the request: `curl -i {url}` shows the response; if {status} is the right one, add \
                 `--expect-status {status}`"
            ),
            Self::Status(status @ (429 | 503)) if admits_nothing(facts.view.run) => format!(
                "find the limit that answers {status}: it counts rejected requests as well (`http_req_rate` of HAProxy \
                 does), and so admits nothing while more is offered; drive less, in an open loop (`-R`)"
            ),
            Self::Status(status @ (429 | 503)) => format!(
                "find the limit that answers {status} in the service or in front of it, or drive less load than {}",
                format_rate(facts.view.goodput().max(1.0))
            ),
            Self::Status(status) => format!(
                "read the log of the service at the time of the run: it answered {status}; `curl -i {url}` shows the \
                 response"
            ),
            Self::Error(kind) => match kind.as_str() {
                "timeout" => format!(
                    "find out whether the service hangs (`curl -i {url}`), use fewer connections ({}), or raise \
                     `-w`{timeout}",
                    facts.halved_connections()
                ),
                "too_late" => format!(
                    "offer less than {} (`-R`), or let `weir edge {url}` find what it holds; without `-R` this load shows \
                     what stops it",
                    facts.rate()
                ),
                "refused" => remedy_of_refused(facts, url),
                "reset" | "closed" => remedy_of_closed(facts, url),
                "parse" => remedy_of_malformed(facts, url),
                "tls_port" => format!("write {} in the command", url.replacen("http://", "https://", 1)),
                "tls" => {
                    "check certificate and name: `--cacert FILE` names the authority, `-k` skips the check"
                        .to_owned()
                }
                "no_port" => "keep connections open (no `-r`), or load from more addresses".to_owned(),
                "no_descriptor" => {
                    format!(
                        "raise `ulimit -n` of this shell above {}",
                        format_count((facts.connections() + 100) as f64)
                    )
                }
                _ => format!("read the log of the service; `curl -i {url}` shows one response"),
            },
            Self::Unknown => format!("compare the response (`curl -i {url}`) with the checks of this load"),
        }
    }
}

/// Returns whether the server had good responses before the load, and hardly one under it.
fn admits_nothing(run: &Run) -> bool {
    let was_good = run.baseline.as_ref().is_some_and(|baseline| baseline.good > baseline.requests / 10);
    was_good && run.totals.good() * 100 < run.totals.responses
}

/// Describes the next step if nothing listened.
fn remedy_of_refused(facts: &Facts<'_>, url: &str) -> String {
    match facts.view.run.totals.good() {
        0 => format!("start the service, or correct the address: nothing listens at {url}"),
        _ => format!(
            "start the service again, and read in its log why nothing listened at {url} for a part of the run"
        ),
    }
}

/// Describes the next step if the bytes of the server are no response.
fn remedy_of_malformed(facts: &Facts<'_>, url: &str) -> String {
    match facts.view.run.totals.parse_errors.contains_key("head_too_large") {
        true => format!(
            "shorten the fields of the response (`curl -sI {url} | wc -c` shows their size): weir and most servers and \
             proxies read no head of that size"
        ),
        false => format!(
            "check that {url} speaks HTTP: a port with TLS needs https://, and HTTP/2 without TLS needs the flag for it"
        ),
    }
}

/// Describes the next step if the server closes connections: a port with TLS does so with plain HTTP.
fn remedy_of_closed(facts: &Facts<'_>, url: &str) -> String {
    let log = format!(
        "read the log of the service and its limit of connections; test with {}",
        facts.halved_connections()
    );
    match facts.view.run.totals.responses == 0 && url.starts_with("http://") {
        true => format!(
            "if this port speaks TLS, write {}; if not, {log}",
            url.replacen("http://", "https://", 1)
        ),
        false => log,
    }
}
