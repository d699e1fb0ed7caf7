//! The status page: one HTML file, and the JSON that it fetches each second. What is now and what has
//! been counted; rates and percentiles of the last seconds are the page's to work out, by difference,
//! so that nothing here depends on who looks, or how often.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use record::digest::sha256_base64;
use serde::Serialize;

use crate::ctl::InForce;
use crate::health::shown_state;
use crate::metrics::{Amount, FINE_NS, Snapshot};
use crate::plan::{ListenerPlan, Mode, PoolPlan, ServerPlan};
use crate::pool::{SharedPool, Standing};

/// The page, with its style and its script in it.
pub(super) const PAGE: &str = include_str!("status.html");

/// What the page may do: run its own script, use its own style, and ask where it came from.
pub(super) static POLICY: LazyLock<String> = LazyLock::new(|| {
    let digest = |tag: &str| sha256_base64(inside(tag));
    format!(
        "default-src 'none'; script-src 'sha256-{}'; style-src 'sha256-{}'; connect-src 'self'; \
         img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
        digest("script"),
        digest("style")
    )
});

/// What stands between the tags of this name.
fn inside(tag: &str) -> &'static str {
    let (start, end) = (format!("<{tag}>"), format!("</{tag}>"));
    let rest = PAGE.split_once(&start).map_or("", |(_, rest)| rest);
    rest.split_once(&end).map_or("", |(inside, _)| inside)
}

/// All that the page shows.
#[derive(Debug, Serialize)]
struct Status<'a> {
    version: &'static str,
    /// Another one counts from 0.
    process: u32,
    /// In `CLOCK_MONOTONIC`.
    at_ns: u64,
    draining: bool,
    /// The upper bounds of all buckets but the last.
    bounds_ns: &'static [u64],
    listeners: Vec<Listener<'a>>,
    pools: Vec<Pool<'a>>,
    limits: Vec<Limit>,
}

#[derive(Debug, Serialize)]
struct Listener<'a> {
    name: &'a str,
    mode: &'static str,
    addresses: Vec<String>,
    open: u64,
    connections_max: Option<usize>,
    accepted: u64,
    bytes_in: u64,
    bytes_out: u64,
    /// Requests by how they ended.
    ends: BTreeMap<&'a str, u64>,
}

#[derive(Debug, Serialize)]
struct Pool<'a> {
    name: &'a str,
    balance: &'static str,
    queued: u64,
    queue_limit: usize,
    retries: u64,
    wasted: u64,
    servers: Vec<Server<'a>>,
}

#[derive(Debug, Serialize)]
struct Server<'a> {
    name: &'a str,
    address: String,
    state: &'static str,
    /// Whether it gets requests.
    usable: bool,
    /// The weight in force, an agent's percentage included.
    weight: f64,
    maxconn: Option<usize>,
    /// The result of the last check, with the reason where it did not pass.
    last_check: Option<String>,
    /// How long ago that was.
    last_check_age_ns: Option<u64>,
    in_flight: u64,
    idle: u64,
    /// Requests by the class of their status.
    classes: BTreeMap<&'a str, u64>,
    /// How long they took.
    buckets: Vec<u64>,
}

/// How often something was at its limit.
#[derive(Debug, Serialize)]
struct Limit {
    what: String,
    count: u64,
}

/// The JSON of one moment.
pub(super) fn json(now: &InForce, counted: &Snapshot, draining: bool, at_ns: u64) -> String {
    let listeners = now.plan.listeners.iter().map(|listener| of_listener(listener, now, counted));
    let pools = now.plan.pools.iter().zip(&now.shared.pools);
    let status = Status {
        version: env!("CARGO_PKG_VERSION"),
        process: std::process::id(),
        at_ns,
        draining,
        bounds_ns: &FINE_NS,
        listeners: listeners.collect(),
        pools: pools.map(|(pool, shared)| of_pool(pool, shared, counted, at_ns)).collect(),
        limits: limits(counted),
    };
    // Numbers and texts can be written.
    serde_json::to_string(&status).unwrap_or_default()
}

fn of_listener<'a>(
    listener: &'a ListenerPlan,
    now: &InForce,
    counted: &'a Snapshot,
) -> Listener<'a> {
    let name = &*listener.name;
    let opened = now.opened.iter().filter(|opened| opened.listener == listener.name);
    let number = |metric| counted.sum(metric, &[name]);
    Listener {
        name,
        mode: if listener.mode == Mode::Http { "http" } else { "tcp" },
        addresses: opened.map(|opened| opened.address.to_string()).collect(),
        open: number("weir_connections_open"),
        connections_max: listener.connections_max,
        accepted: number("weir_connections_accepted_total"),
        bytes_in: number("weir_bytes_in_total"),
        bytes_out: number("weir_bytes_out_total"),
        ends: by_last_label(counted, "weir_requests_total", &[name]),
    }
}

fn of_pool<'a>(
    pool: &'a PoolPlan,
    shared: &SharedPool,
    counted: &'a Snapshot,
    at_ns: u64,
) -> Pool<'a> {
    let number = |metric| counted.sum(metric, &[&pool.name]);
    let servers = pool.servers.iter().enumerate();
    let server = |(at, server)| {
        let now = (shared.standing(at), shared.bound(at));
        of_server(&pool.name, server, now, counted, at_ns)
    };
    Pool {
        name: &pool.name,
        balance: pool.balance.name(),
        queued: number("weir_pool_queued_requests"),
        queue_limit: pool.queue.limit,
        retries: number("weir_retries_total"),
        wasted: number("weir_wasted_responses_total"),
        servers: servers.map(server).collect(),
    }
}

fn of_server<'a>(
    pool: &str,
    server: &'a ServerPlan,
    (standing, maxconn): (&Standing, Option<usize>),
    counted: &'a Snapshot,
    at_ns: u64,
) -> Server<'a> {
    let own = [pool, &*server.name];
    let mut buckets = vec![0; FINE_NS.len() + 1];
    for (_, amount) in counted.rows("weir_server_request_seconds", &own) {
        for (sum, bucket) in buckets.iter_mut().zip(amount.buckets()) {
            *sum += bucket;
        }
    }
    let last = standing.last_check();
    Server {
        name: &server.name,
        address: server.address.to_string(),
        state: shown_state(standing, at_ns),
        usable: standing.share() > 0,
        weight: f64::from(standing.weight_hundredths(server.weight)) / 100.0,
        maxconn,
        last_check: last.as_ref().map(|last| last.shown()),
        last_check_age_ns: last.as_ref().map(|last| at_ns.saturating_sub(last.at_ns)),
        in_flight: counted.sum("weir_server_requests_in_flight", &own),
        idle: counted.sum("weir_pool_idle_connections", &own),
        classes: by_last_label(counted, "weir_server_request_seconds", &own),
        buckets,
    }
}

fn by_last_label<'a>(
    counted: &'a Snapshot,
    metric: &'static str,
    first: &[&str],
) -> BTreeMap<&'a str, u64> {
    let mut counts = BTreeMap::new();
    for (labels, amount) in counted.rows(metric, first) {
        *counts.entry(labels.last().map_or("", |label| &**label)).or_default() += amount.count();
    }
    counts
}

/// Everything that counts how often a limit was reached; what never happened is left out.
fn limits(counted: &Snapshot) -> Vec<Limit> {
    let mut limits = Vec::new();
    for (metric, what) in [
        ("weir_connections_refused_total", "connections"),
        ("weir_refusals_total", "messages"),
        ("weir_buffers_refused_total", "buffers"),
        ("weir_log_lines_total", "log lines"),
        ("weir_requests_total", "requests"),
        ("weir_retries_denied_total", "retries"),
    ] {
        for (labels, amount) in counted.rows(metric, &[]) {
            let count = amount.count();
            let last = labels.last().map_or("", |label| &**label);
            // Of these not all are about limits.
            let is_limit = match what {
                "log lines" => last != "written",
                "requests" => LIMIT_ENDS.contains(&last),
                _ => true,
            };
            if count > 0 && is_limit {
                let labels: Vec<&str> = labels.iter().map(|label| &**label).collect();
                let what = format!("{what} {}", labels.join(" "));
                limits.push(Limit { what: what.trim_end().to_owned(), count });
            }
        }
    }
    limits
}

/// Ends of requests that a bound of ours brought about.
const LIMIT_ENDS: &[&str] = &[
    "queue_full",
    "queue_timeout",
    "queue_shed",
    "deadline_missed",
    "rate_limited",
    "connection_limited",
    "source_limited",
    "no_buffer",
    "no_descriptor",
];

impl Amount<'_> {
    fn count(&self) -> u64 {
        match self {
            Self::Number(number) => *number,
            Self::Times(buckets) => buckets.iter().sum(),
        }
    }

    fn buckets(&self) -> &[u64] {
        match self {
            Self::Number(_) => &[],
            Self::Times(buckets) => buckets,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::{Checked, Wanted};

    #[test]
    fn the_page_is_one_file_that_needs_nothing_else() {
        assert!(!inside("script").is_empty() && !inside("style").is_empty());
        let page = PAGE.replace("http://www.w3.org/2000/svg", "");
        for other in
            ["http://", "https://", "src=", "@import", "url(", "style=", "onclick", "<script "]
        {
            assert!(!page.contains(other), "{other}");
        }
        assert_eq!(PAGE.matches("<script").count(), 1);
        assert_eq!(PAGE.matches("<style").count(), 1);
        assert!(POLICY.starts_with("default-src 'none'; script-src 'sha256-"), "{}", *POLICY);
    }

    #[test]
    fn the_ends_that_are_limits_are_ends() {
        for end in LIMIT_ENDS {
            let known = crate::outcome::End::ALL.iter().any(|known| known.code() == *end);
            assert!(known, "{end}");
        }
    }

    #[test]
    fn a_servers_state_is_what_keeps_it_from_requests() {
        let standing = Standing::new(2);
        let now = |standing: &Standing| {
            standing.settle(2, 0, 10);
            shown_state(standing, 10)
        };
        assert_eq!(now(&standing), "up, not checked");
        standing.found(Checked::Up, 1);
        assert_eq!(now(&standing), "up");
        standing.set_weight(Some(0));
        assert_eq!(now(&standing), "weight 0");
        standing.eject_until(20);
        assert_eq!(now(&standing), "ejected");
        standing.found(Checked::Down, 1);
        assert_eq!(now(&standing), "down");
        standing.want(Wanted::Maintenance, 1);
        assert_eq!(now(&standing), "maintenance");
        let standing = Standing::new(2);
        standing.want(Wanted::Drain, 1);
        assert_eq!(now(&standing), "drain");
    }
}
