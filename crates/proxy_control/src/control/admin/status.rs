//! The status page: one HTML file, and the JSON that it fetches each second. The JSON holds current
//! values and counters. The page computes rates and percentiles of the last seconds from
//! differences, so that nothing here depends on the number of viewers or their polling interval.

use std::collections::BTreeMap;

use serde::Serialize;

use rt::clock::MonotonicTime;

use crate::control::active_config::ActiveConfig;
use crate::health::display_state;
use crate::metrics::{FINE_BOUNDS_NS, Snapshot};
use crate::plan::{ListenerPlan, Mode, PoolPlan, ServerPlan};
use crate::pool::{Eligibility, SharedPool};

/// The page, with its style and script inline.
pub(super) const PAGE: &str = include_str!("status.html");

/// All data that the page shows.
#[derive(Debug, Serialize)]
struct Status<'a> {
    version: &'static str,
    /// Process id. The counters of a new process start at 0.
    pid: u32,
    /// Time in `CLOCK_MONOTONIC`.
    at_ns: u64,
    draining: bool,
    /// Upper bounds of all buckets but the last.
    bucket_bounds_ns: &'static [u64],
    listeners: Vec<ListenerStatus<'a>>,
    pools: Vec<PoolStatus<'a>>,
    limits: Vec<LimitCount>,
}

#[derive(Debug, Serialize)]
struct ListenerStatus<'a> {
    name: &'a str,
    mode: &'static str,
    addresses: Vec<String>,
    open: u64,
    connections_max: Option<usize>,
    accepted: u64,
    bytes_in: u64,
    bytes_out: u64,
    /// Requests by their end code.
    ends: BTreeMap<&'a str, u64>,
}

#[derive(Debug, Serialize)]
struct PoolStatus<'a> {
    name: &'a str,
    balance: &'static str,
    queued: u64,
    queue_limit: usize,
    retries: u64,
    wasted: u64,
    servers: Vec<ServerStatus<'a>>,
}

#[derive(Debug, Serialize)]
struct ServerStatus<'a> {
    name: &'a str,
    address: String,
    state: &'static str,
    /// True if the server gets requests.
    usable: bool,
    /// Effective weight, including an agent's percentage.
    weight: f64,
    maxconn: Option<usize>,
    /// Result of the last check, with the reason if it failed.
    last_check: Option<String>,
    last_check_age_ns: Option<u64>,
    in_flight: u64,
    idle: u64,
    classes: BTreeMap<&'a str, u64>,
    /// Request durations, as a histogram.
    buckets: Vec<u64>,
}

/// Number of times a limit was reached.
#[derive(Debug, Serialize)]
struct LimitCount {
    name: String,
    count: u64,
}

pub(super) fn status_json(
    active: &ActiveConfig,
    snapshot: &Snapshot,
    draining: bool,
    now: MonotonicTime,
) -> String {
    let listeners = active.plan.listeners.iter().map(|listener| listener_status(listener, active, snapshot));
    let pools = active.plan.pools.iter().zip(&active.shared.pools);
    let status = Status {
        version: env!("CARGO_PKG_VERSION"),
        pid: std::process::id(),
        at_ns: now.as_ns(),
        draining,
        bucket_bounds_ns: &FINE_BOUNDS_NS,
        listeners: listeners.collect(),
        pools: pools.map(|(pool, shared)| pool_status(pool, shared, snapshot, now)).collect(),
        limits: limit_counts(snapshot),
    };
    // Numbers and strings always serialize.
    serde_json::to_string(&status).unwrap_or_default()
}

fn listener_status<'a>(
    listener: &'a ListenerPlan,
    active: &ActiveConfig,
    snapshot: &'a Snapshot,
) -> ListenerStatus<'a> {
    let name = &*listener.name;
    let listen_address = active.listen_addresses.iter().filter(|opened| opened.listener == listener.name);
    let sum_of = |metric| snapshot.sum(metric, &[name]);
    ListenerStatus {
        name,
        mode: if listener.mode == Mode::Http { "http" } else { "tcp" },
        addresses: listen_address.map(|opened| opened.address.to_string()).collect(),
        open: sum_of("weir_connections_open"),
        connections_max: listener.connections_max,
        accepted: sum_of("weir_connections_accepted_total"),
        bytes_in: sum_of("weir_bytes_in_total"),
        bytes_out: sum_of("weir_bytes_out_total"),
        ends: sum_by_last_label(snapshot, "weir_requests_total", &[name]),
    }
}

fn pool_status<'a>(
    pool: &'a PoolPlan,
    shared: &SharedPool,
    snapshot: &'a Snapshot,
    now: MonotonicTime,
) -> PoolStatus<'a> {
    let sum_of = |metric| snapshot.sum(metric, &[&pool.name]);
    let server = |(id, server)| {
        let live_state = (shared.eligibility(id), shared.requests_max(id));
        server_status(&pool.name, server, live_state, snapshot, now)
    };
    PoolStatus {
        name: &pool.name,
        balance: pool.balance.name(),
        queued: sum_of("weir_pool_queued_requests"),
        queue_limit: pool.queue.limit,
        retries: sum_of("weir_retries_total"),
        wasted: sum_of("weir_wasted_responses_total"),
        servers: pool.servers.enumerate().map(server).collect(),
    }
}

fn server_status<'a>(
    pool: &str,
    server: &'a ServerPlan,
    (eligibility, maxconn): (&Eligibility, Option<usize>),
    snapshot: &'a Snapshot,
    now: MonotonicTime,
) -> ServerStatus<'a> {
    let labels = [pool, &*server.name];
    let mut buckets = vec![0; FINE_BOUNDS_NS.len() + 1];
    for (_, amount) in snapshot.series_of("weir_server_request_seconds", &labels) {
        for (total, bucket) in buckets.iter_mut().zip(amount.buckets()) {
            *total += bucket;
        }
    }
    let last = eligibility.last_check();
    ServerStatus {
        name: &server.name,
        address: server.address.to_string(),
        state: display_state(eligibility, now),
        usable: eligibility.effective_weight() > 0,
        weight: f64::from(eligibility.weight_hundredths(server.weight)) / 100.0,
        maxconn,
        last_check: last.as_ref().map(|last| last.describe()),
        last_check_age_ns: last.as_ref().map(|last| now.since(last.at)),
        in_flight: snapshot.sum("weir_server_requests_in_flight", &labels),
        idle: snapshot.sum("weir_pool_idle_connections", &labels),
        classes: sum_by_last_label(snapshot, "weir_server_request_seconds", &labels),
        buckets,
    }
}

fn sum_by_last_label<'a>(
    snapshot: &'a Snapshot,
    metric: &'static str,
    first_labels: &[&str],
) -> BTreeMap<&'a str, u64> {
    let mut counts = BTreeMap::new();
    for (labels, amount) in snapshot.series_of(metric, first_labels) {
        *counts.entry(labels.last().map_or("", |label| &**label)).or_default() += amount.total();
    }
    counts
}

/// Collects the counters of reached limits. Counters at 0 are left out.
fn limit_counts(snapshot: &Snapshot) -> Vec<LimitCount> {
    let mut limits = Vec::new();
    for (metric, kind) in [
        ("weir_connections_refused_total", "connections"),
        ("weir_messages_rejected_total", "messages"),
        ("weir_buffers_exhausted_total", "buffers"),
        ("weir_log_lines_total", "log lines"),
        ("weir_requests_total", "requests"),
        ("weir_retries_denied_total", "retries"),
    ] {
        for (labels, amount) in snapshot.series_of(metric, &[]) {
            let count = amount.total();
            let last = labels.last().map_or("", |label| &**label);
            // Not all labels of these metrics are about limits.
            let is_limit = match kind {
                "log lines" => last != "written",
                "requests" => LIMIT_ENDS.contains(&last),
                _ => true,
            };
            if count > 0 && is_limit {
                let labels: Vec<&str> = labels.iter().map(|label| &**label).collect();
                let name = format!("{kind} {}", labels.join(" "));
                limits.push(LimitCount { name: name.trim_end().to_owned(), count });
            }
        }
    }
    limits
}

/// Request ends that one of the proxy's own limits caused.
const LIMIT_ENDS: &[&str] = &[
    "queue_full",
    "queue_timeout",
    "queue_shed",
    "deadline_exceeded",
    "rate_limited",
    "connection_limited",
    "source_limited",
    "no_buffer",
    "no_descriptor",
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::{AdminState, CheckStatus};
    use crate::test_time::at;

    #[test]
    fn the_page_is_one_file_that_needs_nothing_else() {
        let page = PAGE.replace("http://www.w3.org/2000/svg", "");
        for other in ["http://", "https://", "src=", "@import", "url(", "style=", "onclick", "<script "] {
            assert!(!page.contains(other), "{other}");
        }
        assert_eq!(PAGE.matches("<script").count(), 1);
        assert_eq!(PAGE.matches("<style").count(), 1);
    }

    #[test]
    fn the_ends_that_are_limits_are_ends() {
        for end in LIMIT_ENDS {
            let is_known = crate::outcome::EndReason::ALL.iter().any(|known| known.code() == *end);
            assert!(is_known, "{end}");
        }
    }

    #[test]
    fn a_servers_state_is_what_keeps_it_from_requests() {
        let eligibility = Eligibility::new(2);
        let active = |eligibility: &Eligibility| {
            eligibility.recompute(2, 0, at(10));
            display_state(eligibility, at(10))
        };
        assert_eq!(active(&eligibility), "no check");
        eligibility.set_check_status(CheckStatus::Up, at(1));
        assert_eq!(active(&eligibility), "up");
        eligibility.set_operator_weight(Some(0));
        assert_eq!(active(&eligibility), "up, weight 0");
        eligibility.eject_until(at(20));
        assert_eq!(active(&eligibility), "ejected");
        eligibility.set_check_status(CheckStatus::Down, at(1));
        assert_eq!(active(&eligibility), "down");
        eligibility.set_operator_state(AdminState::Maintenance, at(1));
        assert_eq!(active(&eligibility), "maintenance");
        let eligibility = Eligibility::new(2);
        eligibility.set_operator_state(AdminState::Drain, at(1));
        assert_eq!(active(&eligibility), "drain");
    }
}
