//! `top`: rates of one second, by listener, pool and server.

use std::time::Duration;

use rt::clock::{MonotonicTime, SECOND_NS};

use super::table::{Cell, OutputTable, render};
use super::{CommandRequest, CommandResult};
use crate::metrics::{MetricTotals, MetricsSummary};
use crate::plan::Plan;

const MEASURE_TIME: Duration = Duration::from_secs(1);

pub(super) fn run(request: &CommandRequest<'_>) -> CommandResult {
    let [] = request.args else { return Err(request.usage_error("top")) };
    let (before, start) = (MetricsSummary::from_snapshot(&request.context.snapshot()?), MonotonicTime::now());
    std::thread::sleep(MEASURE_TIME);
    let (mut after, end) =
        (MetricsSummary::from_snapshot(&request.context.snapshot()?), MonotonicTime::now());
    remove_deleted(&mut after, &request.context.active_config()?.plan);
    let span_s = (end - start) as f64 / SECOND_NS as f64;
    Ok(Some(render(&rate_tables(&before, &after, span_s), request.wants_json)))
}

/// Removes counters of listeners, pools and servers that a reload has removed. The snapshots keep
/// them.
fn remove_deleted(summary: &mut MetricsSummary, plan: &Plan) {
    summary.listeners.retain(|name, _| plan.listeners.iter().any(|listener| listener.name == *name));
    let find_pool = |name: &str| plan.pools.iter().find(|pool| *pool.name == *name);
    summary.pools.retain(|name, _| find_pool(name).is_some());
    summary.servers.retain(|(pool_name, name), _| {
        find_pool(pool_name).is_some_and(|pool| pool.servers.iter().any(|server| server.name == *name))
    });
}

pub(super) fn rate_tables(before: &MetricsSummary, after: &MetricsSummary, span_s: f64) -> Vec<OutputTable> {
    let zero_totals = MetricTotals::default();
    let mut all = OutputTable::new(
        "all",
        &[
            "scope",
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
    let delta = after.total.since(&before.total);
    let rate_cell = |count: u64| Cell::Number(count as f64 / span_s);
    let bytes_cell = |bytes: u64| Cell::Bytes(bytes as f64 / span_s);
    all.rows.push(vec![
        "all".into(),
        delta.open.into(),
        rate_cell(delta.accepted),
        rate_cell(delta.requests),
        rate_cell(delta.errors),
        delta.in_flight.into(),
        delta.queued.into(),
        Cell::time(delta.times.quantile_ns(0.5)),
        Cell::time(delta.times.quantile_ns(0.99)),
        bytes_cell(delta.bytes_in),
        bytes_cell(delta.bytes_out),
    ]);
    let mut listeners = OutputTable::new(
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
    for (name, totals) in &after.listeners {
        let delta = totals.since(before.listeners.get(name).unwrap_or(&zero_totals));
        listeners.rows.push(vec![
            name.to_string().into(),
            delta.open.into(),
            rate_cell(delta.accepted),
            rate_cell(delta.requests),
            rate_cell(delta.errors),
            bytes_cell(delta.bytes_in),
            bytes_cell(delta.bytes_out),
        ]);
    }
    vec![all, listeners, pools_table(before, after, span_s), servers_table(before, after, span_s)]
}

fn pools_table(before: &MetricsSummary, after: &MetricsSummary, span_s: f64) -> OutputTable {
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
    let mut table = OutputTable::new("pools", columns);
    let zero_totals = MetricTotals::default();
    for (name, totals) in &after.pools {
        let delta = totals.since(before.pools.get(name).unwrap_or(&zero_totals));
        table.rows.push(vec![
            name.to_string().into(),
            Cell::Number(delta.requests as f64 / span_s),
            Cell::Number(delta.errors as f64 / span_s),
            delta.in_flight.into(),
            delta.queued.into(),
            Cell::Number(delta.retries as f64 / span_s),
            Cell::time(delta.times.quantile_ns(0.5)),
            Cell::time(delta.times.quantile_ns(0.99)),
        ]);
    }
    table
}

fn servers_table(before: &MetricsSummary, after: &MetricsSummary, span_s: f64) -> OutputTable {
    let columns = &["server", "requests_per_s", "errors_per_s", "in_flight", "idle", "p50_ns", "p99_ns"];
    let mut table = OutputTable::new("servers", columns);
    let zero_totals = MetricTotals::default();
    for (key, totals) in &after.servers {
        let delta = totals.since(before.servers.get(key).unwrap_or(&zero_totals));
        table.rows.push(vec![
            format!("{}/{}", key.0, key.1).into(),
            Cell::Number(delta.requests as f64 / span_s),
            Cell::Number(delta.errors as f64 / span_s),
            delta.in_flight.into(),
            delta.idle.into(),
            Cell::time(delta.times.quantile_ns(0.5)),
            Cell::time(delta.times.quantile_ns(0.99)),
        ]);
    }
    table
}
