//! `show`: what there is, how it is set, and what was counted since the start.

use rt::clock::{now_ns, unix_ns};

use super::sheet::{Cell, Sheet, render};
use super::{Call, InForce, Outcome, ReloadResults};
use crate::health::shown_state;
use crate::metrics::{Counted, View};
use crate::plan::{Mode, PoolPlan, ServerPlan};
use crate::pool::SharedPool;
use crate::session::{Query, Wanted};

/// Connections that each core describes; the note below the list tells of more.
const CONNECTIONS_SHOWN_MAX: usize = 1_000;

pub(super) fn run(call: &Call<'_>) -> Outcome {
    let sheets = match call.words {
        [] => {
            let (force, view) = (call.desk.in_force()?, View::of(&call.desk.snapshot()?));
            let (listeners, pools) = (listeners(&force, &view), pools(&force, &view));
            vec![info(call, &force, &view), listeners, pools, servers(&force, &view)]
        }
        ["config"] => return config(call),
        ["connections"] => vec![connections(call)?],
        [what] => {
            let make = match *what {
                "info" => None,
                "listeners" => Some(listeners as fn(&InForce, &View) -> Sheet),
                "pools" => Some(pools as fn(&InForce, &View) -> Sheet),
                "servers" => Some(servers as fn(&InForce, &View) -> Sheet),
                _ => return Err(call.wrong_words("show")),
            };
            let (force, view) = (call.desk.in_force()?, View::of(&call.desk.snapshot()?));
            vec![make.map_or_else(|| info(call, &force, &view), |make| make(&force, &view))]
        }
        _ => return Err(call.wrong_words("show")),
    };
    Ok(Some(render(&sheets, call.json)))
}

fn info(call: &Call<'_>, force: &InForce, view: &View) -> Sheet {
    let columns = &[
        "version",
        "process",
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
    let mut sheet = Sheet { upright: true, ..Sheet::new("info", columns) };
    let state = if call.desk.is_draining() { "draining" } else { "running" };
    sheet.rows.push(vec![
        env!("CARGO_PKG_VERSION").into(),
        u64::from(std::process::id()).into(),
        force.plan.threads.into(),
        state.into(),
        Cell::TimeNs(now_ns().saturating_sub(call.desk.started_ns)),
        force.reloads.into(),
        force.results.shown().into(),
        Cell::time(reload_age_ns(&force.results)),
        force.plan.listeners.len().into(),
        force.plan.pools.len().into(),
        view.all.open.into(),
        view.all.requests.into(),
        view.all.errors.into(),
        view.all.in_flight.into(),
        view.all.queued.into(),
    ]);
    sheet
}

fn reload_age_ns(results: &ReloadResults) -> Option<u64> {
    let last_ns = results.applied_unix_ns.max(results.refused_unix_ns);
    (last_ns > 0).then(|| unix_ns().saturating_sub(last_ns))
}

fn config(call: &Call<'_>) -> Outcome {
    let source = call.desk.in_force()?.plan.source.to_string();
    match call.json {
        true => Ok(Some(format!("{:#}\n", serde_json::json!({ "config": source })))),
        false => Ok(Some(source)),
    }
}

fn listeners(force: &InForce, view: &View) -> Sheet {
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
    let mut sheet = Sheet::new("listeners", columns);
    let nothing = Counted::default();
    for listener in &force.plan.listeners {
        let opened = force.opened.iter().filter(|opened| opened.listener == listener.name);
        let addresses: Vec<String> = opened.map(|opened| opened.address.to_string()).collect();
        let counted = view.listeners.get(&listener.name).unwrap_or(&nothing);
        sheet.rows.push(vec![
            listener.name.to_string().into(),
            if listener.mode == Mode::Http { "http" } else { "tcp" }.into(),
            addresses.join(",").into(),
            counted.open.into(),
            counted.accepted.into(),
            counted.requests.into(),
            counted.errors.into(),
            Cell::Bytes(counted.bytes_in as f64),
            Cell::Bytes(counted.bytes_out as f64),
        ]);
    }
    sheet
}

fn pools(force: &InForce, view: &View) -> Sheet {
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
    ];
    let mut sheet = Sheet::new("pools", columns);
    let nothing = Counted::default();
    for (pool, shared) in force.plan.pools.iter().zip(&force.shared.pools) {
        let counted = view.pools.get(&pool.name).unwrap_or(&nothing);
        let usable = |server: &usize| shared.standing(*server).share() > 0;
        sheet.rows.push(vec![
            pool.name.to_string().into(),
            pool.balance.name().into(),
            pool.servers.len().into(),
            (0..pool.servers.len()).filter(usable).count().into(),
            counted.in_flight.into(),
            counted.queued.into(),
            pool.queue.limit.into(),
            counted.idle.into(),
            counted.requests.into(),
            counted.errors.into(),
            counted.retries.into(),
        ]);
    }
    sheet
}

fn servers(force: &InForce, view: &View) -> Sheet {
    let columns = &[
        "server",
        "address",
        "state",
        "weight",
        "weight_planned",
        "share_percent",
        "maxconn",
        "maxconn_planned",
        "last_check",
        "last_check_age_ns",
        "in_flight",
        "idle",
        "requests",
        "errors",
    ];
    let mut sheet = Sheet::new("servers", columns);
    let nothing = Counted::default();
    for (pool, shared) in force.plan.pools.iter().zip(&force.shared.pools) {
        for (index, server) in pool.servers.iter().enumerate() {
            let key = (pool.name.clone(), server.name.clone());
            let counted = view.servers.get(&key).unwrap_or(&nothing);
            let mut row = settings(pool, shared, index, server);
            row.extend([
                counted.in_flight.into(),
                counted.idle.into(),
                counted.requests.into(),
                counted.errors.into(),
            ]);
            sheet.rows.push(row);
        }
    }
    sheet
}

/// The settings of a server that are in force, the planned ones, and its last check.
fn settings(pool: &PoolPlan, shared: &SharedPool, index: usize, server: &ServerPlan) -> Vec<Cell> {
    let standing = shared.standing(index);
    let shares = |index| u64::from(shared.standing(index).share());
    let all: u64 = (0..pool.servers.len()).map(shares).sum();
    let bound = |bound: Option<usize>| bound.map_or(Cell::Nothing, Cell::from);
    let now_ns = now_ns();
    let last = standing.last_check();
    vec![
        format!("{}/{}", pool.name, server.name).into(),
        server.address.to_string().into(),
        shown_state(standing, now_ns).into(),
        number(standing.weight_hundredths(server.weight)),
        u64::from(server.weight).into(),
        Cell::Number((shares(index) * 100) as f64 / all.max(1) as f64),
        bound(shared.bound(index)),
        bound(server.maxconn),
        last.as_ref().map_or(Cell::Nothing, |last| last.shown().into()),
        Cell::time(last.as_ref().map(|last| now_ns.saturating_sub(last.at_ns))),
    ]
}

/// Numbers that are whole are shown so.
fn number(hundredths: u32) -> Cell {
    match hundredths % 100 {
        0 => Cell::Count((hundredths / 100).into()),
        _ => Cell::Number(f64::from(hundredths) / 100.0),
    }
}

fn connections(call: &Call<'_>) -> Result<Sheet, super::Refusal> {
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
    let mut sheet = Sheet::new("connections", columns);
    let query = Query { wanted: Wanted::All, kill: false, most: CONNECTIONS_SHOWN_MAX };
    let found = call.desk.sessions(&query)?;
    let shown = found.sessions.len();
    for session in found.sessions {
        let client = session
            .client
            .map(|(address, port)| std::net::SocketAddr::new(address, port).to_string());
        let place = match (session.pool, session.server) {
            (Some(pool), Some(server)) => format!("{pool}/{server}"),
            (Some(pool), None) => pool.to_string(),
            _ => "-".to_owned(),
        };
        sheet.rows.push(vec![
            session.id.to_string().into(),
            client.unwrap_or_else(|| "unix".to_owned()).into(),
            session.listener.to_string().into(),
            place.into(),
            session.state.into(),
            Cell::TimeNs(session.age_ms * 1_000_000),
            u64::from(session.requests).into(),
            Cell::Bytes(session.bytes_in as f64),
            Cell::Bytes(session.bytes_out as f64),
        ]);
    }
    let more = found.matched - shown;
    if more > 0 {
        sheet.note = format!("and {more} more");
    }
    Ok(sheet)
}
