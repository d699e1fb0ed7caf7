//! Commands that change the proxy: servers, connections, config, logs, drain.

use std::net::SocketAddr;

use rt::address::Address;
use rt::clock::MonotonicTime;

use super::table::{Cell, OutputTable, render};
use super::{CommandError, CommandRequest, CommandResult, ControlCommand, socket};
use super::{maintenance, split};
use crate::config::{check_server_name, suggestion};
use crate::control::active_config::ActiveConfig;
use crate::control::runtime_servers::{NewServer, ServerSetChange, ServerSetChangeKind};
use crate::maintenance::MaintenancePage;
use crate::percent::parse_percent;
use crate::plan::{PoolId, ServerId};
use crate::pool::AdminState;
use crate::session::{SessionFilter, SessionId, SessionQuery};

const WEIGHT_MAX: u32 = 256;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::control) enum ServerChange {
    AdminState(AdminState),
    Weight(Option<u32>),
    Maxconn(Option<usize>),
}

/// Reason for refusing a change of a server.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum ServerChangeError {
    #[error("'{0}' is not a weight (0 to {WEIGHT_MAX}, or default)")]
    Weight(Box<str>),
    #[error("'{0}' is not a maxconn (1 or more, or default)")]
    Maxconn(Box<str>),
}

impl ServerChange {
    /// Parses the arguments after a server's name. `None`: unknown arguments.
    pub(super) fn parse(args: &[&str]) -> Result<Option<Self>, ServerChangeError> {
        let change = match args {
            [word] if AdminState::from_word(word).is_some() => {
                Self::AdminState(AdminState::from_word(word).unwrap_or(AdminState::Ready))
            }
            ["weight", "default"] => Self::Weight(None),
            ["weight", text] => match text.parse() {
                Ok(weight) if weight <= WEIGHT_MAX => Self::Weight(Some(weight)),
                _ => return Err(ServerChangeError::Weight((*text).into())),
            },
            ["maxconn", "default"] => Self::Maxconn(None),
            ["maxconn", text] => match text.parse::<u32>() {
                Ok(max) if max > 0 => Self::Maxconn(Some(max as usize)),
                _ => return Err(ServerChangeError::Maxconn((*text).into())),
            },
            _ => return Ok(None),
        };
        Ok(Some(change))
    }
}

/// A change of an operator that a state file keeps: a command of `weir ctl`.
#[derive(Debug)]
pub(in crate::control) enum KeptChange {
    Server {
        pool: Box<str>,
        server: Box<str>,
        change: ServerChange,
    },
    /// A server of a pool is added or removed.
    Servers(ServerSetChange),
    Pool {
        pool: Box<str>,
        state: AdminState,
    },
    /// A percentage of conditions; `None`: that of the config.
    Percent {
        name: Box<str>,
        percent: Option<f64>,
    },
    /// Weights of a split; empty: those of the config.
    Split {
        name: Box<str>,
        weights: Vec<(Box<str>, u32)>,
    },
    /// The page of pools in maintenance.
    MaintenancePage(MaintenancePage),
}

impl KeptChange {
    /// Parses a command with its arguments. `None`: it is another command, or has other arguments.
    pub(in crate::control) fn parse(words: &[&str]) -> Result<Option<Self>, CommandError> {
        match words {
            ["server", name, args @ ..] => Self::parse_server(name, args),
            ["pool", pool, word] => {
                Ok(AdminState::from_word(word).map(|state| Self::Pool { pool: (*pool).into(), state }))
            }
            ["percent", name, "default"] => Ok(Some(Self::Percent { name: (*name).into(), percent: None })),
            ["percent", name, text] => {
                let percent = parse_percent(text).ok_or_else(|| {
                    CommandError::Invalid(format!("'{text}' is not a percentage (0 to 100, or default)"))
                })?;
                Ok(Some(Self::Percent { name: (*name).into(), percent: Some(percent) }))
            }
            ["split", name, "default"] => Ok(Some(Self::Split { name: (*name).into(), weights: Vec::new() })),
            ["split", name, weights @ ..] if !weights.is_empty() => {
                Ok(Some(Self::Split { name: (*name).into(), weights: split::parse_weights(weights)? }))
            }
            ["maintenance", "page", words @ ..] => {
                Ok(Some(Self::MaintenancePage(maintenance::parse_page(words)?)))
            }
            _ => Ok(None),
        }
    }

    fn parse_server(name: &str, args: &[&str]) -> Result<Option<Self>, CommandError> {
        let (pool, server) = split_server_name(name)?;
        if let Some(kind) = parse_server_set_change(args)? {
            check_server_name(&server).map_err(CommandError::invalid)?;
            return Ok(Some(Self::Servers(ServerSetChange { pool, server, kind })));
        }
        let change = ServerChange::parse(args).map_err(CommandError::invalid)?;
        Ok(change.map(|change| Self::Server { pool, server, change }))
    }

    /// Applies any change but one of the set of servers and one of the page, which need the owner of the proxy itself.
    pub(in crate::control) fn apply(&self, active: &ActiveConfig) -> Result<(), CommandError> {
        match self {
            Self::Server { pool, server, change } => apply_change(active, (pool, server), *change).map(drop),
            Self::Pool { pool, state } => {
                set_pool_state(active, find_pool(active, pool)?, *state);
                Ok(())
            }
            Self::Percent { name, percent } => change_percent(active, name, *percent),
            Self::Split { name, weights } => split::change(&active.plan, name, weights),
            Self::Servers(_) | Self::MaintenancePage(_) => Ok(()),
        }
    }
}

pub(super) fn run_server(request: &CommandRequest<'_>) -> CommandResult {
    let [name, args @ ..] = request.args else { return Err(request.usage_error("server")) };
    let note = match KeptChange::parse_server(name, args)? {
        None => return Err(request.usage_error("server")),
        Some(KeptChange::Servers(change)) => {
            request.context.run_command(|reply| ControlCommand::ChangeServers(change, reply))?;
            ""
        }
        Some(KeptChange::Server { pool, server, change }) => {
            let is_sticky = request
                .context
                .run_on_owner(move |active| apply_change(active, (&pool, &server), change))??;
            request.context.refresh_servers()?;
            let keeps_clients =
                matches!(change, ServerChange::AdminState(AdminState::Drain) | ServerChange::Weight(Some(0)));
            if is_sticky && keeps_clients { STICKY_NOTE } else { "" }
        }
        Some(_) => "",
    };
    request.log_change(&format!("server {}", request.args.join(" ")));
    request.context.save_state()?;
    Ok(Some(format!("server {name}: {}{note}\n", args.join(" "))))
}

/// `percent`: percentages of conditions that have a name.
pub(super) fn run_percent(request: &CommandRequest<'_>) -> CommandResult {
    let [name, value] = request.args else {
        return match request.args {
            [] => list_percents(request),
            _ => Err(request.usage_error("percent")),
        };
    };
    let Some(change) = KeptChange::parse(&["percent", name, value])? else {
        return Err(request.usage_error("percent"));
    };
    request.context.run_on_owner(move |active| change.apply(active))??;
    request.log_change(&format!("percent {name} {value}"));
    request.context.save_state()?;
    Ok(Some(format!("percent {name}: {value}\n")))
}

fn list_percents(request: &CommandRequest<'_>) -> CommandResult {
    let active = request.context.active_config()?;
    let mut table = OutputTable::new("percents", &["name", "percent", "configured", "key"]);
    for percent in active.plan.named_percents() {
        table.rows.push(vec![
            percent.named.name().into(),
            Cell::Number(percent.current()),
            Cell::Number(percent.configured),
            percent.key.into(),
        ]);
    }
    Ok(Some(render(&[table], request.wants_json)))
}

fn change_percent(active: &ActiveConfig, name: &str, percent: Option<f64>) -> Result<(), CommandError> {
    let known = active.plan.named_percents();
    let found = known.iter().find(|known| known.named.name() == name).ok_or_else(|| {
        let hint = suggestion(name, known.iter().map(|known| known.named.name()));
        CommandError::Invalid(format!("nothing has a percentage with the name '{name}'{hint}"))
    })?;
    found.named.change(percent);
    Ok(())
}

/// Parses `add` and `remove` with their arguments. `None`: another change.
fn parse_server_set_change(args: &[&str]) -> Result<Option<ServerSetChangeKind>, CommandError> {
    let (address, mut rest) = match args {
        ["remove"] => return Ok(Some(ServerSetChangeKind::Remove)),
        ["add"] => return Ok(Some(ServerSetChangeKind::Restore)),
        ["add", address, rest @ ..] => (address, rest),
        _ => return Ok(None),
    };
    let address = parse_address(address)?;
    let mut server = NewServer { address, weight: 1, maxconn: None, is_backup: false };
    loop {
        rest = match rest {
            [] => return Ok(Some(ServerSetChangeKind::Add(server))),
            ["backup", rest @ ..] => {
                server.is_backup = true;
                rest
            }
            [key @ ("weight" | "maxconn"), value, rest @ ..] if *value != "default" => {
                match ServerChange::parse(&[key, value]).map_err(CommandError::invalid)? {
                    Some(ServerChange::Weight(Some(weight))) => server.weight = weight,
                    Some(ServerChange::Maxconn(maxconn)) => server.maxconn = maxconn,
                    _ => return Ok(None),
                }
                rest
            }
            _ => return Ok(None),
        };
    }
}

/// Parses an address without a name, which would have to be looked up here.
fn parse_address(text: &str) -> Result<Address, CommandError> {
    let is_usable = |address: &SocketAddr| address.port() > 0 && !address.ip().is_unspecified();
    let address = match text.starts_with("unix:") {
        true => text.parse().ok(),
        false => text.parse().ok().filter(is_usable).map(Address::Tcp),
    };
    address.ok_or_else(|| {
        let places = "write 127.0.0.1:80, [::1]:80 or unix:/path; names belong into the config";
        CommandError::Invalid(format!("'{text}' is not an address of a server: {places}"))
    })
}

pub(super) fn run_pool(request: &CommandRequest<'_>) -> CommandResult {
    let [name, word] = request.args else { return Err(request.usage_error("pool")) };
    let state = AdminState::from_word(word).ok_or_else(|| request.usage_error("pool"))?;
    let pool: Box<str> = (*name).into();
    let is_sticky = request.context.run_on_owner(move |active| {
        let pool = find_pool(active, &pool)?;
        set_pool_state(active, pool, state);
        Ok(active.plan.pools[pool].sticky.is_some())
    })??;
    request.context.refresh_servers()?;
    request.log_change(&format!("pool {name} {word}"));
    request.context.save_state()?;
    let note = if is_sticky && state == AdminState::Drain { STICKY_NOTE } else { "" };
    Ok(Some(format!("pool {name}: {word}{note}\n")))
}

pub(in crate::control) fn set_pool_state(active: &ActiveConfig, pool: PoolId, state: AdminState) {
    let shared = &active.shared.pools[pool];
    shared.set_operator_state(state);
    shared.recompute(&active.plan.pools[pool], MonotonicTime::now());
}

/// Text about the clients that such a change does not move.
const STICKY_NOTE: &str = " (clients that stick to it stay; maint moves them too)";

/// Splits `POOL/NAME` into pool and server.
fn split_server_name(name: &str) -> Result<(Box<str>, Box<str>), CommandError> {
    let (pool, server) = name.split_once('/').ok_or_else(|| {
        CommandError::Invalid(format!(
            "'{name}' is not a server: write POOL/NAME (`show servers` lists them)"
        ))
    })?;
    Ok((pool.into(), server.into()))
}

/// Applies a change. Returns whether the clients of the pool stick to servers.
fn apply_change(
    active: &ActiveConfig,
    server_name: (&str, &str),
    change: ServerChange,
) -> Result<bool, CommandError> {
    let (pool, server) = find_server(active, server_name)?;
    let (plan, shared) = (&active.plan.pools[pool], &active.shared.pools[pool]);
    let eligibility = shared.eligibility(server);
    let now = MonotonicTime::now();
    match change {
        ServerChange::AdminState(state) => eligibility.set_operator_state(state, now),
        ServerChange::Weight(weight) => eligibility.set_operator_weight(weight),
        ServerChange::Maxconn(maxconn) => shared.set_maxconn(server, maxconn, plan.servers[server].maxconn),
    }
    shared.recompute(plan, now);
    Ok(plan.sticky.is_some())
}

fn find_pool(active: &ActiveConfig, pool: &str) -> Result<PoolId, CommandError> {
    let pools = &active.plan.pools;
    pools.position(|known| &*known.name == pool).ok_or_else(|| {
        let hint = suggestion(pool, pools.iter().map(|known| &*known.name));
        CommandError::Invalid(format!("unknown pool '{pool}'{hint}"))
    })
}

/// Returns the indices of a pool and of one of its servers.
fn find_server(
    active: &ActiveConfig,
    (pool, server): (&str, &str),
) -> Result<(PoolId, ServerId), CommandError> {
    let pool_id = find_pool(active, pool)?;
    let servers = &active.plan.pools[pool_id].servers;
    let server_id = servers.position(|known| *known.name == *server).ok_or_else(|| {
        let hint = suggestion(server, servers.iter().map(|known| &*known.name));
        CommandError::Invalid(format!("unknown server '{server}' in pool '{pool}'{hint}"))
    })?;
    Ok((pool_id, server_id))
}

pub(super) fn run_kill(request: &CommandRequest<'_>) -> CommandResult {
    let selection = match request.args {
        [] | ["server"] => return Err(request.usage_error("kill")),
        ["server", name] => {
            let (pool, server) = split_server_name(name)?;
            find_server(&request.context.active_config()?, (&pool, &server))?;
            SessionFilter::Server(pool, server)
        }
        ids => {
            let ids: Result<Vec<SessionId>, _> = ids.iter().map(|id| id.parse()).collect();
            SessionFilter::Ids(ids.map_err(CommandError::invalid)?)
        }
    };
    let by_id = matches!(selection, SessionFilter::Ids(_));
    let matching = request.context.sessions(&SessionQuery { filter: selection, closes: true, max: 0 })?;
    if matching.matched == 0 && by_id {
        let text = "no such connection; `show connections` lists them";
        return Err(CommandError::Invalid(text.to_owned()));
    }
    let text = format!("kill {}: {} closed", request.args.join(" "), matching.matched);
    request.log_change(&text);
    Ok(Some(format!("{text}\n")))
}

pub(super) fn run_reload(request: &CommandRequest<'_>) -> CommandResult {
    let [] = request.args else { return Err(request.usage_error("reload")) };
    let result = request.context.run_command(ControlCommand::Reload);
    request.log_change(if result.is_ok() { "reload" } else { "reload: refused" });
    result.map(Some)
}

pub(super) fn run_reopen(request: &CommandRequest<'_>) -> CommandResult {
    let [] = request.args else { return Err(request.usage_error("reopen")) };
    let result = request.context.run_command(ControlCommand::Reopen);
    request.log_change(if result.is_ok() { "reopen" } else { "reopen: failed for some logs" });
    // The command itself was valid.
    result.map(Some).map_err(|error| match error {
        CommandError::Invalid(text) | CommandError::Failed(text) => CommandError::Failed(text),
    })
}

/// Responds before the drain starts, because nothing could respond afterwards.
pub(super) fn run_drain(request: &CommandRequest<'_>) -> CommandResult {
    let [] = request.args else { return Err(request.usage_error("drain")) };
    request.log_change("drain");
    // The drain starts even if the client has left.
    let _ = socket::send(request.stream, b"ok\nit drains\n");
    let _ = request.stream.shutdown(std::net::Shutdown::Write);
    request.context.send_command(ControlCommand::Drain)?;
    Ok(None)
}
