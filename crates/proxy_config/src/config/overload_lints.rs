//! Table of settings that are allowed, but would keep a proxy from recovering after overload. `weir
//! proxy --check` prints them; nothing is rejected.

use record::document::Problems;

use crate::plan::{ListenerPlan, OnLimit, Plan, PoolPlan, QueueOrder};

use super::value::Section;

/// Time after which many clients give up.
const CLIENT_TIMEOUT_NS: u64 = 500_000_000;
/// Queue length above which only memory is a bound.
const QUEUE_LIMIT_HIGH: usize = 65_536;
/// Time that no client waits for a connection to a server.
const CONNECT_TOTAL_MAX_NS: u64 = 30_000_000_000;
/// Backlog above which connections wait too long in the kernel. They are not visible there, and
/// their clients may have left.
const BACKLOG_HIGH: u32 = 4_096;

/// One piece of advice about a pool or a listener.
struct OverloadLint<P> {
    /// Position of the advice: a table in the section (or empty for none), and a key.
    key_path: (&'static str, &'static str),
    applies: fn(&P) -> bool,
    text: &'static str,
}

const POOL_LINTS: &[OverloadLint<PoolPlan>] = &[
    OverloadLint {
        key_path: ("", "servers"),
        applies: |pool| {
            let unbounded = pool.servers.iter().any(|server| server.maxconn.is_none());
            unbounded && pool.overload_limits.maxconn.is_none() && pool.overload_limits.adaptive.is_none()
        },
        text: "a server without maxconn gets every request, and slows down for all clients under \
               overload: set maxconn for it or for the pool, or adaptive = {}",
    },
    OverloadLint {
        key_path: ("queue", "timeout"),
        applies: |pool| pool.queue.timeout_ns >= CLIENT_TIMEOUT_NS,
        text: "requests may wait longer than many clients (500 ms), whose responses are then wasted: \
               100ms is enough for a burst",
    },
    OverloadLint {
        key_path: ("queue", "limit"),
        applies: |pool| pool.queue.limit >= QUEUE_LIMIT_HIGH,
        text: "only memory limits a queue of this length: the requests that a server completes within \
               the queue's timeout are enough",
    },
    OverloadLint {
        key_path: ("queue", "order"),
        applies: |pool| pool.queue.order == QueueOrder::OldestFirst,
        text: "under overload, oldest-first serves the requests whose clients leave next: adaptive \
               serves the newest ones then",
    },
    OverloadLint {
        key_path: ("retry-budget", "ratio"),
        applies: |pool| pool.retries_max > 0 && pool.overload_limits.retry_budget.fraction >= 1.0,
        text: "retries without a budget multiply the load when servers fail: 20% is enough",
    },
    OverloadLint {
        key_path: ("", "retries"),
        applies: |pool| {
            let attempts = u64::from(pool.retries_max) + 1;
            attempts.saturating_mul(pool.timeouts.connect_ns) > CONNECT_TOTAL_MAX_NS
        },
        text: "all connection attempts together may take longer than 30 s, while the client waits and \
               the request holds memory: lower retries or timeouts.connect",
    },
];

const LISTENER_LINTS: &[OverloadLint<ListenerPlan>] = &[
    OverloadLint {
        key_path: ("", "on-limit"),
        applies: |listener| {
            let admission = &listener.admission;
            admission.on_limit == Some(OnLimit::Wait) && admission.connections_rate.is_some()
        },
        text: "connections over the rate wait unread, and their clients may leave before their turn: \
               reject responds at once",
    },
    OverloadLint {
        key_path: ("", "backlog"),
        applies: |listener| listener.admission.backlog > BACKLOG_HIGH,
        text: "connections in the kernel's queue are not visible, and their clients may leave before \
               they are accepted: 1024 is enough",
    },
];

/// Names of pools or listeners that a piece of advice lists.
const NAMES_SHOWN: usize = 3;

pub(super) fn check_overload(plan: &Plan, listeners: &[Section], pools: &[Section], lints: &mut Problems) {
    let pools = plan.pools.iter().zip(pools).map(|(pool, section)| (&**pool, &*pool.name, section));
    add_lints(POOL_LINTS, "pool", pools, lints);
    let listeners = plan.listeners.iter().zip(listeners);
    let listeners = listeners.map(|(listener, section)| (listener, &*listener.name, section));
    add_lints(LISTENER_LINTS, "listener", listeners, lints);
}

/// Adds each piece of advice once, at the first place to which it applies, with the names of all.
fn add_lints<'a, P: 'a>(
    rows: &[OverloadLint<P>],
    kind: &str,
    plans: impl Iterator<Item = (&'a P, &'a str, &'a Section)> + Clone,
    lints: &mut Problems,
) {
    for row in rows {
        let affected: Vec<_> = plans.clone().filter(|(plan, ..)| (row.applies)(plan)).collect();
        let Some((_, _, section)) = affected.first() else { continue };
        let (table, key) = row.key_path;
        let offset = match table {
            "" => section.value_offset(key),
            // A table that is missing has the position of the section.
            table => section.table(table).value_offset(key),
        };
        let names: Vec<String> =
            affected.iter().take(NAMES_SHOWN).map(|(_, name, _)| format!("'{name}'")).collect();
        let plural = if affected.len() > 1 { "s" } else { "" };
        let others = match affected.len() - names.len() {
            0 => String::new(),
            count => format!(" and {count} more"),
        };
        lints.warn(offset, format!("{kind}{plural} {}{others}: {}", names.join(", "), row.text));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the advice for a config with these lines in its listener and its pool, which has no
    /// other problems.
    fn lint_messages(listener: &str, servers: &str, pool: &str) -> Vec<String> {
        let text = format!(
            "[listener.web]\nbind = '127.0.0.1:0'\npool = 'app'\n{listener}\n\
             [pool.app]\nservers = [{servers}]\n{pool}\n"
        );
        let parsed = super::super::parse("t", &text).unwrap();
        assert!(parsed.warnings.is_empty(), "{:?}", parsed.warnings);
        parsed.overload_lints.iter().map(ToString::to_string).collect()
    }

    const BOUNDED: &str = "{ address = '127.0.0.1:9001', maxconn = 10 }";

    #[test]
    fn the_defaults_with_a_bound_need_no_advice() {
        assert!(lint_messages("", BOUNDED, "").is_empty());
        assert!(lint_messages("", "'127.0.0.1:9001'", "maxconn = 10").is_empty());
        assert!(lint_messages("", "'127.0.0.1:9001'", "adaptive = {}").is_empty());
    }

    #[test]
    fn advice_for_many_pools_is_given_once() {
        let pool = |name: &str| format!("[pool.{name}]\nservers = ['127.0.0.1:9001']\n");
        let route = |name: &str| format!("[[route]]\npath = '/{name}'\npool = '{name}'\n");
        let names = ["a", "b", "c", "d"];
        let text = format!(
            "[listener.web]\nbind = '127.0.0.1:0'\n{}{}",
            names.map(pool).concat(),
            names.map(route).concat()
        );
        let parsed = super::super::parse("t", &text).unwrap();
        let messages: Vec<String> = parsed.overload_lints.iter().map(ToString::to_string).collect();
        let expected = "t:4:11: pools 'a', 'b', 'c' and 1 more: a server without maxconn";
        assert!(messages.len() == 1 && messages[0].starts_with(expected), "{messages:?}");
    }

    #[test]
    fn every_lint_applies_to_its_setting() {
        let cases = [
            ("", "'127.0.0.1:9001'", "", "t:6:11: pool 'app': "),
            ("", BOUNDED, "queue = { timeout = '500ms' }", "t:7:21: pool 'app': "),
            ("", BOUNDED, "queue = { limit = '100k' }", "t:7:19: pool 'app': "),
            ("", BOUNDED, "queue = { order = 'oldest-first' }", "t:7:19: pool 'app': "),
            ("", BOUNDED, "retry-budget = { ratio = 1.0 }", "t:7:26: pool 'app': "),
            ("", BOUNDED, "retries = 9", "t:7:11: pool 'app': "),
            ("on-limit = 'wait'\nconnections-rate = 5", BOUNDED, "", "t:4:12: listener 'web': "),
            ("backlog = 10000", BOUNDED, "", "t:4:11: listener 'web': "),
        ];
        assert_eq!(cases.len(), POOL_LINTS.len() + LISTENER_LINTS.len());
        let mut seen = std::collections::BTreeSet::new();
        for (listener, servers, pool, expected) in cases {
            let messages = lint_messages(listener, servers, pool);
            assert!(messages.len() == 1 && messages[0].starts_with(expected), "{expected}: {messages:?}");
            assert!(seen.insert(messages[0].clone()), "{messages:?} twice");
        }
        assert!(
            lint_messages("on-limit = 'wait'\nconnections-max = 5000", BOUNDED, "retries = 0").is_empty()
        );
    }
}
