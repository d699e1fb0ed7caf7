//! What would keep a proxy from recovering once there was too much load: a table of settings that
//! are allowed, and that one should know about. `weir proxy --check` prints it; nothing is refused.

use crate::plan::{ListenerPlan, OnLimit, Plan, PoolPlan, QueueOrder};

use super::source::Problems;
use super::value::Section;

/// Many clients leave after so long.
const PATIENCE_NS: u64 = 500_000_000;
/// A queue as long as that is none that anything bounds.
const LONG_QUEUE: usize = 65_536;
/// No client waits so long for a connection to a server.
const CONNECTING_NS: u64 = 30_000_000_000;
/// What waits in the kernel is not seen, and may have left.
const LONG_BACKLOG: u32 = 4_096;

/// One thing to know: of a pool, or of a listener.
struct Row<P> {
    /// Its place: a table in the section, or none, and a key.
    place: (&'static str, &'static str),
    holds: fn(&P) -> bool,
    text: &'static str,
}

const POOLS: &[Row<PoolPlan>] = &[
    Row {
        place: ("", "servers"),
        holds: |pool| {
            let unbounded = pool.servers.iter().any(|server| server.maxconn.is_none());
            unbounded && pool.bounds.maxconn.is_none() && pool.bounds.adaptive.is_none()
        },
        text: "a server without a maxconn gets all that comes, and slows down for everybody when it \
               is too much: give it one, or the pool a maxconn or adaptive = {}",
    },
    Row {
        place: ("queue", "timeout"),
        holds: |pool| pool.queue.timeout_ns >= PATIENCE_NS,
        text: "requests wait longer than many clients (500ms): what is served then is served to \
               nobody; 100ms is enough for a burst",
    },
    Row {
        place: ("queue", "limit"),
        holds: |pool| pool.queue.limit >= LONG_QUEUE,
        text: "nothing bounds a queue of that length but memory: what a server answers within the \
               queue's timeout is enough",
    },
    Row {
        place: ("queue", "order"),
        holds: |pool| pool.queue.order == QueueOrder::OldestFirst,
        text: "under too much load the oldest first are those whose clients leave next: adaptive \
               serves the newest then",
    },
    Row {
        place: ("retry-budget", "share"),
        holds: |pool| pool.retries_max > 0 && pool.bounds.retry_budget.share >= 1.0,
        text: "retries without a budget multiply the load when servers fail: 20% is enough",
    },
    Row {
        place: ("", "retries"),
        holds: |pool| {
            let tries = u64::from(pool.retries_max) + 1;
            tries.saturating_mul(pool.timeouts.connect_ns) > CONNECTING_NS
        },
        text: "all tries to connect together take longer than 30s, for which a request keeps its \
               memory and its client waits: lower retries or timeouts.connect",
    },
];

const LISTENERS: &[Row<ListenerPlan>] = &[
    Row {
        place: ("", "on-limit"),
        holds: |listener| {
            let admission = &listener.admission;
            admission.on_limit == Some(OnLimit::Wait) && admission.connections_rate.is_some()
        },
        text: "connections over the rate wait unread, and their clients may have left when their \
               turn comes: reject tells them at once",
    },
    Row {
        place: ("", "backlog"),
        holds: |listener| listener.admission.backlog > LONG_BACKLOG,
        text: "what waits in the kernel is not seen, and its clients may have left when it is \
               accepted: 1024 is enough",
    },
];

/// Notes what there is to know.
pub(super) fn check(plan: &Plan, listeners: &[Section], pools: &[Section], advice: &mut Problems) {
    for (pool, section) in plan.pools.iter().zip(pools) {
        let name = format!("pool '{}'", pool.name);
        say(POOLS, pool, &name, section, advice);
    }
    for (listener, section) in plan.listeners.iter().zip(listeners) {
        let name = format!("listener '{}'", listener.name);
        say(LISTENERS, listener, &name, section, advice);
    }
}

fn say<P>(rows: &[Row<P>], part: &P, name: &str, section: &Section, advice: &mut Problems) {
    for row in rows.iter().filter(|row| (row.holds)(part)) {
        let (table, key) = row.place;
        let at = match table {
            "" => section.value_place(key),
            // A table that is not there stands where the section does.
            table => section.table(table).value_place(key),
        };
        advice.warn(at, format!("{name}: {}", row.text));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A config with these lines in its listener and in its pool, which is otherwise without fault.
    fn advice(listener: &str, servers: &str, pool: &str) -> Vec<String> {
        let text = format!(
            "[listener.web]\nbind = '127.0.0.1:0'\npool = 'app'\n{listener}\n\
             [pool.app]\nservers = [{servers}]\n{pool}\n"
        );
        let parsed = super::super::parse("t", &text).unwrap();
        assert!(parsed.warnings.is_empty(), "{:?}", parsed.warnings);
        parsed.recovery.iter().map(ToString::to_string).collect()
    }

    const BOUNDED: &str = "{ address = '127.0.0.1:9001', maxconn = 10 }";

    #[test]
    fn the_defaults_with_a_bound_need_no_advice() {
        assert!(advice("", BOUNDED, "").is_empty());
        assert!(advice("", "'127.0.0.1:9001'", "maxconn = 10").is_empty());
        assert!(advice("", "'127.0.0.1:9001'", "adaptive = {}").is_empty());
    }

    #[test]
    fn every_row_speaks_where_it_should() {
        let cases = [
            ("", "'127.0.0.1:9001'", "", "t:6:11: pool 'app': a server without a maxconn"),
            ("", BOUNDED, "queue = { timeout = '500ms' }", "t:7:21: pool 'app': requests wait"),
            ("", BOUNDED, "queue = { limit = '100k' }", "t:7:19: pool 'app': nothing bounds"),
            ("", BOUNDED, "queue = { order = 'oldest-first' }", "t:7:19: pool 'app': under too"),
            ("", BOUNDED, "retry-budget = { share = 1.0 }", "t:7:26: pool 'app': retries without"),
            ("", BOUNDED, "retries = 9", "t:7:11: pool 'app': all tries"),
            (
                "on-limit = 'wait'\nconnections-rate = 5",
                BOUNDED,
                "",
                "t:4:12: listener 'web': connections over",
            ),
            ("backlog = 10000", BOUNDED, "", "t:4:11: listener 'web': what waits in the kernel"),
        ];
        assert_eq!(cases.len(), POOLS.len() + LISTENERS.len());
        for (listener, servers, pool, wanted) in cases {
            let said = advice(listener, servers, pool);
            assert!(said.len() == 1 && said[0].starts_with(wanted), "{wanted}: {said:?}");
        }
        assert!(advice("on-limit = 'wait'", BOUNDED, "retries = 0").is_empty());
    }
}
