//! `show`: state, settings, and counters since the start.

use rt::clock::{MonotonicTime, SECOND_NS, unix_ns};

use super::table::{Cell, OutputTable, render};
use super::{CommandRequest, CommandResult};
use crate::control::active_config::ActiveConfig;
use crate::health::display_state;
use crate::metrics::{MetricTotals, MetricsSummary, ReloadResults};
use crate::plan::{Mode, PoolPlan, ServerId};
use crate::pool::SharedPool;
use crate::session::{SessionFilter, SessionQuery};

/// Maximum number of connections that each core describes. The note below the list has the number
/// of the others.
const CONNECTIONS_SHOWN_MAX: usize = 1_000;

pub(super) fn run(request: &CommandRequest<'_>) -> CommandResult {
    let tables = match request.args {
        [] => {
            let (active, summary) = (
                request.context.active_config()?,
                MetricsSummary::from_snapshot(&request.context.snapshot()?),
            );
            let (listeners, pools) = (listeners_table(&active, &summary), pools_table(&active, &summary));
            vec![info_table(request, &active, &summary), listeners, pools, servers_table(&active, &summary)]
        }
        ["config"] => return show_config(request),
        ["connections"] => vec![connections_table(request)?],
        ["certificates"] => vec![certificates_table()],
        [topic] => {
            let build = match *topic {
                "info" => None,
                "listeners" => Some(listeners_table as fn(&ActiveConfig, &MetricsSummary) -> OutputTable),
                "pools" => Some(pools_table as fn(&ActiveConfig, &MetricsSummary) -> OutputTable),
                "servers" => Some(servers_table as fn(&ActiveConfig, &MetricsSummary) -> OutputTable),
                _ => return Err(request.usage_error("show")),
            };
            let (active, summary) = (
                request.context.active_config()?,
                MetricsSummary::from_snapshot(&request.context.snapshot()?),
            );
            vec![build.map_or_else(|| info_table(request, &active, &summary), |make| make(&active, &summary))]
        }
        _ => return Err(request.usage_error("show")),
    };
    Ok(Some(render(&tables, request.wants_json)))
}

fn info_table(request: &CommandRequest<'_>, active: &ActiveConfig, summary: &MetricsSummary) -> OutputTable {
    let columns = &[
        "version",
        "pid",
        "threads",
        "state",
        "uptime_ns",
        "reloads",
        "last_reload",
        "last_reload_age_ns",
        "listeners",
        "pools",
        "connections",
        "requests",
        "errors",
        "in_flight",
        "queued",
    ];
    let mut table = OutputTable { is_vertical: true, ..OutputTable::new("info", columns) };
    let state = if request.context.is_draining() { "draining" } else { "running" };
    table.rows.push(vec![
        env!("CARGO_PKG_VERSION").into(),
        u64::from(std::process::id()).into(),
        active.plan.threads.into(),
        state.into(),
        Cell::TimeNs(MonotonicTime::now().since(request.context.started)),
        active.reloads.into(),
        active.reload_results.summary().into(),
        Cell::time(reload_age_ns(&active.reload_results)),
        active.plan.listeners.len().into(),
        active.plan.pools.len().into(),
        summary.total.open.into(),
        summary.total.requests.into(),
        summary.total.errors.into(),
        summary.total.in_flight.into(),
        summary.total.queued.into(),
    ]);
    table
}

/// Returns the automatic certificates (ACME).
fn certificates_table() -> OutputTable {
    let columns = &["domain", "expires_in_ns", "next_order_in_ns", "issued", "failed", "last_error"];
    let mut table = OutputTable::new("certificates", columns);
    let left = |at_s: u64| (at_s > 0).then(|| (at_s * SECOND_NS).saturating_sub(unix_ns()));
    table.rows = crate::acme::statuses()
        .into_iter()
        .map(|(domain, status)| {
            vec![
                domain.into(),
                Cell::time(left(status.expires_at_s)),
                Cell::time(left(status.next_order_s)),
                status.issued.into(),
                status.failed.into(),
                if status.last_error.is_empty() { Cell::Empty } else { status.last_error.into() },
            ]
        })
        .collect();
    table
}

fn reload_age_ns(results: &ReloadResults) -> Option<u64> {
    let last_ns = results.applied_unix_ns.max(results.refused_unix_ns);
    (last_ns > 0).then(|| unix_ns().saturating_sub(last_ns))
}

fn show_config(request: &CommandRequest<'_>) -> CommandResult {
    let source = request.context.active_config()?.plan.source.to_string();
    match request.wants_json {
        true => Ok(Some(format!("{:#}\n", serde_json::json!({ "config": source })))),
        false => Ok(Some(source)),
    }
}

fn listeners_table(active: &ActiveConfig, summary: &MetricsSummary) -> OutputTable {
    let columns = &[
        "listener",
        "mode",
        "address",
        "open",
        "accepted",
        "requests",
        "errors",
        "received_bytes",
        "sent_bytes",
    ];
    let mut table = OutputTable::new("listeners", columns);
    let zero_totals = MetricTotals::default();
    for listener in active.plan.listeners.iter() {
        let listen_address = active.listen_addresses.iter().filter(|opened| opened.listener == listener.name);
        let addresses: Vec<String> = listen_address.map(|opened| opened.address.to_string()).collect();
        let totals = summary.listeners.get(&listener.name).unwrap_or(&zero_totals);
        table.rows.push(vec![
            listener.name.to_string().into(),
            if listener.mode == Mode::Http { "http" } else { "tcp" }.into(),
            addresses.join(",").into(),
            totals.open.into(),
            totals.accepted.into(),
            totals.requests.into(),
            totals.errors.into(),
            Cell::Bytes(totals.bytes_in as f64),
            Cell::Bytes(totals.bytes_out as f64),
        ]);
    }
    table
}

fn pools_table(active: &ActiveConfig, summary: &MetricsSummary) -> OutputTable {
    let columns = &[
        "pool",
        "balance",
        "servers",
        "usable",
        "in_flight",
        "queued",
        "queue_max",
        "idle",
        "requests",
        "errors",
        "retries",
        "state",
    ];
    let mut table = OutputTable::new("pools", columns);
    let zero_totals = MetricTotals::default();
    for (pool, shared) in active.plan.pools.iter().zip(&active.shared.pools) {
        let totals = summary.pools.get(&pool.name).unwrap_or(&zero_totals);
        let is_usable = |server: &ServerId| shared.eligibility(*server).effective_weight() > 0;
        table.rows.push(vec![
            pool.name.to_string().into(),
            pool.balance.name().into(),
            pool.servers.len().into(),
            pool.servers.ids().filter(is_usable).count().into(),
            totals.in_flight.into(),
            totals.queued.into(),
            pool.queue.limit.into(),
            totals.idle.into(),
            totals.requests.into(),
            totals.errors.into(),
            totals.retries.into(),
            shared.operator_state().word().into(),
        ]);
    }
    table
}

fn servers_table(active: &ActiveConfig, summary: &MetricsSummary) -> OutputTable {
    let columns = &[
        "server",
        "address",
        "state",
        "weight",
        "weight_configured",
        "weight_percent",
        "maxconn",
        "maxconn_configured",
        "last_check",
        "last_check_age_ns",
        "in_flight",
        "idle",
        "requests",
        "errors",
    ];
    let mut table = OutputTable::new("servers", columns);
    let zero_totals = MetricTotals::default();
    for (pool, shared) in active.plan.pools.iter().zip(&active.shared.pools) {
        for (id, server) in pool.servers.enumerate() {
            let key = (pool.name.clone(), server.name.clone());
            let totals = summary.servers.get(&key).unwrap_or(&zero_totals);
            let mut row = settings_cells(pool, shared, id);
            row.extend([
                totals.in_flight.into(),
                totals.idle.into(),
                totals.requests.into(),
                totals.errors.into(),
            ]);
            table.rows.push(row);
        }
    }
    table
}

/// Returns a server's effective settings, the configured ones, and its last check.
fn settings_cells(pool: &PoolPlan, shared: &SharedPool, id: ServerId) -> Vec<Cell> {
    let (server, eligibility) = (&pool.servers[id], shared.eligibility(id));
    let weight_of = |id| u64::from(shared.eligibility(id).effective_weight());
    let weight_sum: u64 = pool.servers.ids().map(weight_of).sum();
    let limit = |bound: Option<usize>| bound.map_or(Cell::Empty, Cell::from);
    let now = MonotonicTime::now();
    let last_check = eligibility.last_check();
    vec![
        format!("{}/{}", pool.name, server.name).into(),
        server.address.to_string().into(),
        display_state(eligibility, now).into(),
        hundredths_cell(eligibility.weight_hundredths(server.weight)),
        u64::from(server.weight).into(),
        Cell::Number((weight_of(id) * 100) as f64 / weight_sum.max(1) as f64),
        limit(shared.requests_max(id)),
        limit(server.maxconn),
        last_check.as_ref().map_or(Cell::Empty, |last| last.describe().into()),
        Cell::time(last_check.as_ref().map(|last| now.since(last.at))),
    ]
}

/// Returns a cell that prints integers without decimals.
fn hundredths_cell(hundredths: u32) -> Cell {
    match hundredths % 100 {
        0 => Cell::Count((hundredths / 100).into()),
        _ => Cell::Number(f64::from(hundredths) / 100.0),
    }
}

fn connections_table(request: &CommandRequest<'_>) -> Result<OutputTable, super::CommandError> {
    let columns = &[
        "id",
        "client",
        "listener",
        "server",
        "state",
        "age_ns",
        "requests",
        "received_bytes",
        "sent_bytes",
    ];
    let mut table = OutputTable::new("connections", columns);
    let query = SessionQuery { filter: SessionFilter::All, closes: false, max: CONNECTIONS_SHOWN_MAX };
    let sessions = request.context.sessions(&query)?;
    let shown_count = sessions.sessions.len();
    for session in sessions.sessions {
        let client =
            session.client.map(|(address, port)| std::net::SocketAddr::new(address, port).to_string());
        let target = match (session.pool, session.server) {
            (Some(pool), Some(server)) => format!("{pool}/{server}"),
            (Some(pool), None) => pool.to_string(),
            _ => "-".to_owned(),
        };
        table.rows.push(vec![
            session.id.to_string().into(),
            client.unwrap_or_else(|| "unix".to_owned()).into(),
            session.listener.to_string().into(),
            target.into(),
            session.state.code().into(),
            Cell::TimeNs(session.age_ms * 1_000_000),
            u64::from(session.requests).into(),
            Cell::Bytes(session.bytes_in as f64),
            Cell::Bytes(session.bytes_out as f64),
        ]);
    }
    let omitted = sessions.matched - shown_count;
    if omitted > 0 {
        table.note = format!("and {omitted} more");
    }
    Ok(table)
}
