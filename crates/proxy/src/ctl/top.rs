//! `top`: what happened within one second, by listener, pool and server.

use std::time::Duration;

use rt::clock::{SECOND_NS, now_ns};

use super::sheet::{Cell, Sheet, render};
use super::{Call, Outcome};
use crate::metrics::{Counted, View};
use crate::plan::Plan;

/// What is looked at.
const SPAN: Duration = Duration::from_secs(1);

pub(super) fn run(call: &Call<'_>) -> Outcome {
    let [] = call.words else { return Err(call.wrong_words("top")) };
    let (before, start_ns) = (View::of(&call.desk.snapshot()?), now_ns());
    std::thread::sleep(SPAN);
    let (mut after, end_ns) = (View::of(&call.desk.snapshot()?), now_ns());
    forget_gone(&mut after, &call.desk.in_force()?.plan);
    let span_s = (end_ns - start_ns) as f64 / SECOND_NS as f64;
    Ok(Some(render(&sheets(&before, &after, span_s), call.json)))
}

/// Counts stay when a reload takes away what they are of; here only what there is counts.
fn forget_gone(view: &mut View, plan: &Plan) {
    view.listeners.retain(|name, _| plan.listeners.iter().any(|one| one.name == *name));
    let pool = |name: &str| plan.pools.iter().find(|one| *one.name == *name);
    view.pools.retain(|name, _| pool(name).is_some());
    view.servers.retain(|(of, name), _| {
        pool(of).is_some_and(|pool| pool.servers.iter().any(|one| one.name == *name))
    });
}

/// The tables of what happened in `span_s` seconds.
pub(super) fn sheets(before: &View, after: &View, span_s: f64) -> Vec<Sheet> {
    let nothing = Counted::default();
    let mut all = Sheet::new(
        "all",
        &[
            "what",
            "connections",
            "connections_per_s",
            "requests_per_s",
            "errors_per_s",
            "in_flight",
            "queued",
            "p50_ns",
            "p99_ns",
            "received_bytes_per_s",
            "sent_bytes_per_s",
        ],
    );
    let now = after.all.since(&before.all);
    let rate = |count: u64| Cell::Number(count as f64 / span_s);
    let bytes = |bytes: u64| Cell::Bytes(bytes as f64 / span_s);
    all.rows.push(vec![
        "all".into(),
        now.open.into(),
        rate(now.accepted),
        rate(now.requests),
        rate(now.errors),
        now.in_flight.into(),
        now.queued.into(),
        Cell::time(now.times.quantile_ns(0.5)),
        Cell::time(now.times.quantile_ns(0.99)),
        bytes(now.bytes_in),
        bytes(now.bytes_out),
    ]);
    let mut listeners = Sheet::new(
        "listeners",
        &[
            "listener",
            "connections",
            "connections_per_s",
            "requests_per_s",
            "errors_per_s",
            "received_bytes_per_s",
            "sent_bytes_per_s",
        ],
    );
    for (name, counted) in &after.listeners {
        let now = counted.since(before.listeners.get(name).unwrap_or(&nothing));
        listeners.rows.push(vec![
            name.to_string().into(),
            now.open.into(),
            rate(now.accepted),
            rate(now.requests),
            rate(now.errors),
            bytes(now.bytes_in),
            bytes(now.bytes_out),
        ]);
    }
    vec![all, listeners, pools(before, after, span_s), servers(before, after, span_s)]
}

fn pools(before: &View, after: &View, span_s: f64) -> Sheet {
    let columns = &[
        "pool",
        "requests_per_s",
        "errors_per_s",
        "in_flight",
        "queued",
        "retries_per_s",
        "p50_ns",
        "p99_ns",
    ];
    let mut sheet = Sheet::new("pools", columns);
    let nothing = Counted::default();
    for (name, counted) in &after.pools {
        let now = counted.since(before.pools.get(name).unwrap_or(&nothing));
        sheet.rows.push(vec![
            name.to_string().into(),
            Cell::Number(now.requests as f64 / span_s),
            Cell::Number(now.errors as f64 / span_s),
            now.in_flight.into(),
            now.queued.into(),
            Cell::Number(now.retries as f64 / span_s),
            Cell::time(now.times.quantile_ns(0.5)),
            Cell::time(now.times.quantile_ns(0.99)),
        ]);
    }
    sheet
}

fn servers(before: &View, after: &View, span_s: f64) -> Sheet {
    let columns =
        &["server", "requests_per_s", "errors_per_s", "in_flight", "idle", "p50_ns", "p99_ns"];
    let mut sheet = Sheet::new("servers", columns);
    let nothing = Counted::default();
    for (key, counted) in &after.servers {
        let now = counted.since(before.servers.get(key).unwrap_or(&nothing));
        sheet.rows.push(vec![
            format!("{}/{}", key.0, key.1).into(),
            Cell::Number(now.requests as f64 / span_s),
            Cell::Number(now.errors as f64 / span_s),
            now.in_flight.into(),
            now.idle.into(),
            Cell::time(now.times.quantile_ns(0.5)),
            Cell::time(now.times.quantile_ns(0.99)),
        ]);
    }
    sheet
}
