//! Table of keys that have no effect together with others: `weir proxy --check` and a start warn of them. Keys whose
//! effect depends on one key beside them only are checked where they are read.

use std::sync::Arc;

use record::document::Problems;

use crate::plan::{Admission, ListenerPlan, Plan, PoolPlan, RateKey, ServerPlan};

use super::value::Section;

/// A key that was given, and has no effect.
struct IneffectiveKey<F> {
    /// Table in the section (or empty for none), and key.
    key_path: (&'static str, &'static str),
    /// Returns whether the key has no effect, from the facts of its part and from its section.
    applies: fn(&F, &Section) -> bool,
    reason: &'static str,
}

struct PoolFacts {
    pool: Arc<PoolPlan>,
    /// True if its requests may be retried, by the pool or by one of its routes.
    has_retries: bool,
    /// True if `weir ctl` can take a server out and back.
    has_control: bool,
}

fn all_servers(pool: &PoolPlan) -> impl Iterator<Item = &ServerPlan> {
    pool.servers.iter().chain(pool.named_servers.iter().map(|named| &named.template))
}

/// Returns whether requests may wait for a server.
fn has_limit(pool: &PoolPlan) -> bool {
    let limits = &pool.overload_limits;
    limits.maxconn.is_some()
        || limits.adaptive.is_some()
        || all_servers(pool).any(|server| server.maxconn.is_some())
}

const POOL_KEYS: &[IneffectiveKey<PoolFacts>] = &[
    IneffectiveKey {
        key_path: ("", "sticky"),
        applies: |facts, _| facts.pool.servers.len() == 1 && facts.pool.named_servers.is_empty(),
        reason: "the pool has one server",
    },
    IneffectiveKey {
        key_path: ("", "servers"),
        applies: |facts, _| all_servers(&facts.pool).all(|server| server.backup),
        reason: "all servers are `backup`, so that none is",
    },
    IneffectiveKey {
        key_path: ("", "queue"),
        applies: |facts, _| !has_limit(&facts.pool),
        reason: "no request waits, because neither the pool nor a server has a maxconn, and there is no `adaptive`",
    },
    IneffectiveKey {
        key_path: ("", "slow-start"),
        applies: |facts, _| facts.pool.check.is_none() && !facts.pool.outlier.is_on() && !facts.has_control,
        reason: "no server recovers without `check`, `outlier` or `control`",
    },
    IneffectiveKey {
        key_path: ("", "retry-budget"),
        applies: |facts, _| !facts.has_retries,
        reason: "there are no retries (retries = 0), and no `hedge`",
    },
    IneffectiveKey {
        key_path: ("", "resolve"),
        applies: |facts, _| facts.pool.named_servers.is_empty(),
        reason: "all servers have addresses, no names",
    },
    IneffectiveKey {
        key_path: ("check", "fast-interval"),
        applies: |facts, _| facts.pool.check.as_ref().is_some_and(|check| (check.rise, check.fall) == (1, 1)),
        reason: "one check decides with rise = 1 and fall = 1",
    },
    IneffectiveKey {
        key_path: ("outlier", "statuses"),
        applies: |facts, _| facts.pool.outlier.errors.is_none() && facts.pool.outlier.error_rate.is_none(),
        reason: "without `errors` or `error-rate` no status counts",
    },
    IneffectiveKey {
        key_path: ("outlier", "window"),
        applies: has_no_window,
        reason: "without `error-rate` or `latency-factor` there is no window",
    },
    IneffectiveKey {
        key_path: ("outlier", "requests-min"),
        applies: has_no_window,
        reason: "without `error-rate` or `latency-factor` there is no window",
    },
    IneffectiveKey { key_path: ("outlier", "ejection"), applies: ejects_nothing, reason: EJECTS_NOTHING },
    IneffectiveKey { key_path: ("outlier", "ejection-max"), applies: ejects_nothing, reason: EJECTS_NOTHING },
    IneffectiveKey { key_path: ("outlier", "max-ejected"), applies: ejects_nothing, reason: EJECTS_NOTHING },
    IneffectiveKey {
        key_path: ("retry-budget", "min"),
        applies: |facts, _| facts.has_retries && facts.pool.overload_limits.retry_budget.fraction >= 1.0,
        reason: "ratio = 1 is no limit",
    },
];

const EJECTS_NOTHING: &str = "no server is ejected with failures = 0 and without other conditions";

fn ejects_nothing(facts: &PoolFacts, _: &Section) -> bool {
    !facts.pool.outlier.is_on()
}

fn has_no_window(facts: &PoolFacts, _: &Section) -> bool {
    facts.pool.outlier.error_rate.is_none() && facts.pool.outlier.latency_factor.is_none()
}

fn lacks(section: &Section, table: &str, key: &str) -> bool {
    section_of(section, table).key_offset(key).is_none()
}

const LISTENER_KEYS: &[IneffectiveKey<ListenerPlan>] = &[
    IneffectiveKey {
        key_path: ("", "connections-burst"),
        applies: |_, section| lacks(section, "", "connections-rate"),
        reason: "there is no connections-rate",
    },
    IneffectiveKey {
        key_path: ("per-source", "connections-burst"),
        applies: |_, section| lacks(section, "per-source", "connections-rate"),
        reason: "there is no connections-rate for each source",
    },
    IneffectiveKey {
        key_path: ("per-source", "requests-burst"),
        applies: |_, section| lacks(section, "per-source", "requests-rate"),
        reason: "there is no requests-rate",
    },
    IneffectiveKey {
        key_path: ("", "on-limit"),
        applies: |listener, _| {
            let Admission { connections_rate, per_source, .. } = &listener.admission;
            listener.connections_max.is_none() && connections_rate.is_none() && per_source.is_none()
        },
        reason: "there is no limit: neither connections-max nor connections-rate nor per-source",
    },
    IneffectiveKey {
        key_path: ("", "handshakes-max"),
        applies: |_, section| lacks(section, "", "tls"),
        reason: "there is no `tls`",
    },
    IneffectiveKey {
        key_path: ("forwarding", "forwarded-for"),
        applies: |listener, _| listener.trusted.is_empty() && !listener.is_unix_trusted,
        reason: "the fields of peers that are not `trusted` are removed",
    },
];

struct RouteFacts {
    /// True if it forwards to a pool in which no request waits.
    never_waits: bool,
    /// True if its only limit has one key for all requests.
    has_one_key: bool,
}

const ROUTE_KEYS: &[IneffectiveKey<RouteFacts>] = &[
    IneffectiveKey {
        key_path: ("", "priority"),
        applies: |facts, _| facts.never_waits,
        reason: "no request of its pool waits, because neither the pool nor a server has a maxconn",
    },
    IneffectiveKey {
        key_path: ("rate-limit", "keys-max"),
        applies: |facts, _| facts.has_one_key,
        reason: "key = \"route\" is one key",
    },
];

/// Warns of the keys of a config that have no effect. The sections are those of its parts, in order.
pub(super) fn warn_of_keys(
    plan: &Plan,
    [listeners, routes, pools]: [&[Section]; 3],
    problems: &mut Problems,
) {
    for (listener, section) in plan.listeners.iter().zip(listeners) {
        add_warnings(LISTENER_KEYS, listener, section, problems);
    }
    for (route, section) in plan.routes.iter().zip(routes) {
        let pools = route.action.pools();
        let never_waits = !pools.is_empty()
            && pools.iter().all(|id| plan.pools.get(*id).is_some_and(|pool| !has_limit(pool)));
        let has_one_key = matches!(&route.rate_limits[..], [limit] if limit.key == RateKey::Route);
        add_warnings(ROUTE_KEYS, &RouteFacts { never_waits, has_one_key }, section, problems);
    }
    for (pool, section) in plan.pools.iter().zip(pools) {
        let retries = |route: &Section| {
            let split_pools = route.table("split").pairs("pools");
            let mut names =
                route.text("pool").into_iter().chain(split_pools.into_iter().map(|pair| pair.name));
            names.any(|name| name.value == pool.name)
                && (route.integer("retries").is_some_and(|retries| retries > 0)
                    || route.key_offset("hedge").is_some())
        };
        let has_retries = pool.retries_max > 0 || routes.iter().any(retries);
        let facts = PoolFacts { pool: Arc::clone(pool), has_retries, has_control: plan.control.is_some() };
        add_warnings(POOL_KEYS, &facts, section, problems);
    }
}

fn add_warnings<F>(rows: &[IneffectiveKey<F>], facts: &F, section: &Section, problems: &mut Problems) {
    for row in rows {
        let (table, key) = row.key_path;
        if let Some(offset) =
            section_of(section, table).key_offset(key).filter(|_| (row.applies)(facts, section))
        {
            problems.warn(offset, format!("'{key}' has no effect: {}", row.reason));
        }
    }
}

/// Returns a table of a section, or the section itself for an empty name. Of a list of tables, the first.
fn section_of(section: &Section, table: &str) -> Section {
    match table {
        "" => section.clone(),
        table => section.tables(table).into_iter().next().unwrap_or_else(|| section.table(table)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the warnings of a config with these lines in its listener, route and pool.
    fn warnings(listener: &str, route: &str, pool: &str) -> Vec<String> {
        let servers = if pool.contains("servers =") { "" } else { "servers = ['127.0.0.1:9001']\n" };
        let text = format!(
            "[listener.web]\nbind = '127.0.0.1:0'\n{listener}\n[[route]]\npath = '/a'\npool = 'app'\n{route}\n\
             [[route]]\npool = 'app'\n[pool.app]\n{servers}{pool}\n"
        );
        let parsed =
            super::super::parse("t", &text).unwrap_or_else(|problems| panic!("{text}: {problems:#?}"));
        parsed.warnings.iter().map(|warning| warning.text.clone()).collect()
    }

    #[test]
    fn each_row_warns_of_its_key_and_not_of_a_useful_one() {
        // Listener, route and pool: without an effect, and with one.
        let cases: &[([&str; 3], [&str; 3])] = &[
            (["connections-burst = 5", "", ""], ["connections-burst = 5\nconnections-rate = 5", "", ""]),
            (
                ["per-source = { connections = 9, connections-burst = 5 }", "", ""],
                ["per-source = { connections-rate = 9, connections-burst = 5 }", "", ""],
            ),
            (
                ["per-source = { connections = 9, requests-burst = 5 }", "", ""],
                ["per-source = { requests-rate = 9, requests-burst = 5 }", "", ""],
            ),
            (["on-limit = 'reject'", "", ""], ["on-limit = 'reject'\nconnections-max = 5000", "", ""]),
            (
                ["handshakes-max = 5000", "", ""],
                ["handshakes-max = 5000\ntls = { self-signed = true }", "", ""],
            ),
            (
                ["forwarding = { forwarded-for = 'if-none' }", "", ""],
                ["forwarding = { forwarded-for = 'if-none' }\ntrusted = '10.0.0.0/8'", "", ""],
            ),
            (["", "priority = 'high'", ""], ["", "priority = 'high'", "adaptive = {}"]),
            (
                ["", "rate-limit = { rate = 5, key = 'route', keys-max = 50 }", ""],
                ["", "rate-limit = { rate = 5, keys-max = 50 }", ""],
            ),
            (
                ["", "", "sticky = { cookie = 'S', key = 'a key of 16 bytes or more' }"],
                [
                    "",
                    "",
                    "sticky = { cookie = 'S', key = 'a key of 16 bytes or more' }\nservers = ['127.0.0.1:1', '127.0.0.1:2']",
                ],
            ),
            (
                ["", "", "servers = [{ address = '127.0.0.1:1', backup = true }]"],
                ["", "", "servers = ['127.0.0.1:2', { address = '127.0.0.1:1', backup = true }]"],
            ),
            (["", "", "queue = { limit = 5 }"], ["", "", "queue = { limit = 5 }\nmaxconn = 5"]),
            (
                ["", "", "slow-start = '5s'\noutlier = { failures = 0 }"],
                ["", "", "slow-start = '5s'\noutlier = { failures = 0 }\ncheck = { type = 'tcp' }"],
            ),
            (
                ["", "", "retry-budget = { ratio = 0.1 }\nretries = 0"],
                ["", "retries = 1", "retry-budget = { ratio = 0.1 }\nretries = 0"],
            ),
            (
                ["", "", "resolve = { interval = '5s' }"],
                ["", "", "resolve = { interval = '5s' }\nservers = ['localhost:80']"],
            ),
            (
                ["", "", "check = { type = 'tcp', fast-interval = '1s', rise = 1, fall = 1 }"],
                ["", "", "check = { type = 'tcp', fast-interval = '1s' }"],
            ),
            (
                ["", "", "outlier = { statuses = '5xx' }"],
                ["", "", "outlier = { statuses = '5xx', errors = 5 }"],
            ),
            (
                ["", "", "outlier = { window = '5s' }"],
                ["", "", "outlier = { window = '5s', latency-factor = 3 }"],
            ),
            (
                ["", "", "outlier = { requests-min = 5 }"],
                ["", "", "outlier = { requests-min = 5, error-rate = 0.5 }"],
            ),
            (
                ["", "", "outlier = { failures = 0, ejection = '5s' }"],
                ["", "", "outlier = { ejection = '5s' }"],
            ),
            (
                ["", "", "outlier = { failures = 0, ejection-max = '5s' }"],
                ["", "", "outlier = { ejection-max = '5s' }"],
            ),
            (
                ["", "", "outlier = { failures = 0, max-ejected = 0.5 }"],
                ["", "", "outlier = { max-ejected = 0.5 }"],
            ),
            (
                ["", "", "retry-budget = { ratio = 1, min = 5 }"],
                ["", "", "retry-budget = { ratio = 0.5, min = 5 }"],
            ),
        ];
        let keys = LISTENER_KEYS.iter().map(|row| (row.key_path.1, row.reason));
        let keys = keys.chain(ROUTE_KEYS.iter().map(|row| (row.key_path.1, row.reason)));
        let keys: Vec<_> = keys.chain(POOL_KEYS.iter().map(|row| (row.key_path.1, row.reason))).collect();
        assert_eq!(cases.len(), keys.len());
        for ((ineffective, effective), (key, reason)) in cases.iter().zip(keys) {
            let expected = format!("'{key}' has no effect: {reason}");
            let [listener, route, pool] = ineffective;
            assert_eq!(warnings(listener, route, pool), [expected], "{ineffective:?}");
            let [listener, route, pool] = effective;
            let found = warnings(listener, route, pool);
            assert!(!found.iter().any(|text| text.contains("no effect")), "{effective:?}: {found:?}");
        }
    }
}
