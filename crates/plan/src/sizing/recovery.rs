//! The queue, and the time of a recovery: after a stall of all servers, and in an overload.

use crate::inputs::InputKind::{Count, Rate, Time};
use crate::queueing::{SlotPool, service_quantile_s};

use super::{Draft, time};

/// Shortest timeout of a queue that a plan proposes, in s.
const QUEUE_S_MIN: f64 = 0.001;

/// Bounds the queue in time and length.
pub(super) fn size_queue(draft: &mut Draft<'_>) {
    let rate = draft.rate_per_s();
    let timeout_s = draft.inputs.default_number("client-timeout");
    let service_s = draft.pool().map(|pool| service_quantile_s(pool.service_s, pool.service_cv, 0.99));
    let left_s = draft.inputs.objective().map_or(timeout_s, |slo| slo.limit_s.min(timeout_s))
        - service_s.unwrap_or(0.0);
    let queue_s = match draft.inputs.number("queue-time") {
        Some(queue_s) => {
            draft.add(("queue", "queue-timeout", Time), queue_s, "queue-time", "given".to_owned())
        }
        None => draft.add(
            ("queue", "queue-timeout", Time),
            left_s.max(QUEUE_S_MIN),
            "the lower of slo and client-timeout, less the 99th percentile of service",
            format!("{} - {}", time(left_s + service_s.unwrap_or(0.0)), time(service_s.unwrap_or(0.0))),
        ),
    };
    let limit = (rate * queue_s).ceil().max(1.0);
    draft.add(
        ("queue", "queue-limit", Count),
        limit,
        "rate * queue-timeout",
        format!("{rate} * {}", time(queue_s)),
    );
    if queue_s + service_s.unwrap_or(0.0) > timeout_s {
        draft.find(
            "queue_longer_than_clients_wait",
            format!(
                "{} in the queue and {} of service exceed the {} of clients: shorten --queue-time",
                time(queue_s),
                time(service_s.unwrap_or(0.0)),
                time(timeout_s)
            ),
        );
    }
    let retries = draft.inputs.default_number("retries");
    if retries > 0.0 {
        draft.add(
            ("queue", "rate-with-retries", Rate),
            rate * (1.0 + retries),
            "rate * (1 + retries)",
            format!("{rate} * {}", 1.0 + retries),
        );
        draft.find(
            "retries",
            format!(
                "a failure is hidden for {} and multiplies the load by {}: bound retries by a budget",
                time((1.0 + retries) * timeout_s),
                1.0 + retries
            ),
        );
    }
}

/// Computes backlog and drain after a stall, and the goodput in an overload.
pub(super) fn size(draft: &mut Draft<'_>) {
    let Some(pool) = draft.pool().filter(|pool| pool.slots > 0) else { return };
    size_stall(draft, &pool);
    size_overload(draft, &pool);
}

/// Computes the queue after a stall of all servers, and the time of its drain.
fn size_stall(draft: &mut Draft<'_>, pool: &SlotPool) {
    let (rate, stall_s) = (pool.rate_per_s, draft.inputs.default_number("stall"));
    let (slots, capacity) = (pool.slots as f64, pool.capacity_per_s());
    let spare_per_s = capacity - rate;
    let free = (slots - pool.erlangs()).max(0.0);
    let drain = |queued: f64| match spare_per_s > 0.0 {
        true => (queued - slots).max(0.0) / spare_per_s,
        false => f64::INFINITY,
    };
    let backlog = (rate * stall_s - free).max(0.0);
    draft.add(
        ("recovery", "backlog", Count),
        backlog,
        "rate * stall - (slots - busy-slots), without a bound",
        format!("{rate} * {} - {free:.0}", time(stall_s)),
    );
    let drain_s = draft.add(
        ("recovery", "drain-time", Time),
        drain(backlog),
        "(backlog - slots) / (capacity - rate)",
        format!("({backlog:.0} - {slots}) / {spare_per_s:.0}/s"),
    );
    let (queue_s, limit) =
        (draft.value("queue-timeout").unwrap_or(0.0), draft.value("queue-limit").unwrap_or(0.0));
    let bounded = backlog.min(limit).min(rate * queue_s);
    draft.add(
        ("recovery", "backlog-with-shedding", Count),
        bounded,
        "min(backlog, queue-limit, rate * queue-timeout)",
        format!("min({backlog:.0}, {limit:.0}, {:.0})", rate * queue_s),
    );
    draft.add(
        ("recovery", "drain-time-with-shedding", Time),
        drain(bounded),
        "(backlog-with-shedding - slots) / (capacity - rate)",
        format!("({bounded:.0} - {slots}) / {spare_per_s:.0}/s"),
    );
    let timeout_s = draft.inputs.default_number("client-timeout");
    if spare_per_s > 0.0 && bounded / capacity + pool.service_s > timeout_s {
        draft.find(
            "no_recovery",
            format!(
                "the last request of the queue waits {}, clients {}: it is wasted work",
                time(bounded / capacity),
                time(timeout_s)
            ),
        );
    }
    if drain_s.is_finite() && drain_s > 0.0 {
        draft.add(
            ("recovery", "shed-in-stall", Count),
            backlog - bounded,
            "backlog - backlog-with-shedding",
            format!("{backlog:.0} - {bounded:.0}"),
        );
    }
}

fn size_overload(draft: &mut Draft<'_>, pool: &SlotPool) {
    let (rate, capacity) = (pool.rate_per_s, pool.capacity_per_s());
    let (queue_s, limit) =
        (draft.value("queue-timeout").unwrap_or(0.0), draft.value("queue-limit").unwrap_or(0.0));
    let timeout_s = draft.inputs.default_number("client-timeout");
    let factor = draft.inputs.default_number("overload");
    let offered = rate * factor;
    draft.add(("overload", "offered", Rate), offered, "rate * overload", format!("{rate} * {factor}"));
    draft.add(
        ("overload", "goodput", Rate),
        offered.min(capacity),
        "min(offered, capacity), with shedding",
        format!("min({offered:.0}, {capacity:.0})"),
    );
    let excess = offered - capacity;
    if excess > 0.0 {
        draft.add(
            ("overload", "rejected", Rate),
            excess,
            "offered - capacity",
            format!("{offered:.0} - {capacity:.0}"),
        );
        draft.add(
            ("overload", "queue", Count),
            limit.min(excess * queue_s),
            "min(queue-limit, rejected * queue-timeout)",
            format!("min({limit:.0}, {:.0})", excess * queue_s),
        );
        let collapse_s = (timeout_s - pool.service_s).max(0.0) * capacity / excess;
        draft.add(
            ("overload", "collapse-without-shedding", Time),
            collapse_s,
            "(client-timeout - service) * capacity / rejected: then only clients that have left are served",
            format!("{} * {capacity:.0} / {excess:.0}", time(timeout_s - pool.service_s)),
        );
    }
}
