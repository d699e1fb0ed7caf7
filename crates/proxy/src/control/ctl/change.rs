//! Commands that change the proxy: servers, connections, config, logs, drain.

use rt::clock::MonotonicTime;

use super::{CommandError, CommandRequest, CommandResult, ControlCommand, socket};
use crate::control::active_config::ActiveConfig;
use crate::plan::{PoolId, ServerId};
use crate::pool::AdminState;
use crate::session::{SessionFilter, SessionId, SessionQuery};

const WEIGHT_MAX: u32 = 256;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ServerChange {
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
            ["ready"] => Self::AdminState(AdminState::Ready),
            ["drain"] => Self::AdminState(AdminState::Drain),
            ["maint"] => Self::AdminState(AdminState::Maintenance),
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

pub(super) fn run_server(request: &CommandRequest<'_>) -> CommandResult {
    let Some((name, args)) = request.args.split_first() else {
        return Err(request.usage_error("server"));
    };
    let change = ServerChange::parse(args).map_err(CommandError::invalid)?;
    let Some(change) = change else { return Err(request.usage_error("server")) };
    let server_name = split_server_name(name)?;
    let is_sticky =
        request.context.run_on_owner(move |active| apply_change(active, &server_name, change))??;
    request.context.refresh_servers()?;
    request.log_change(&format!("server {}", request.args.join(" ")));
    let keeps_clients =
        matches!(change, ServerChange::AdminState(AdminState::Drain) | ServerChange::Weight(Some(0)));
    let note = if is_sticky && keeps_clients { STICKY_NOTE } else { "" };
    Ok(Some(format!("server {name}: {}{note}\n", args.join(" "))))
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
    server_name: &(Box<str>, Box<str>),
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

/// Returns the indices of a pool and of one of its servers.
fn find_server(
    active: &ActiveConfig,
    (pool, server): &(Box<str>, Box<str>),
) -> Result<(PoolId, ServerId), CommandError> {
    let pools = &active.plan.pools;
    let Some(pool_id) = pools.position(|known| known.name == *pool) else {
        let hint = crate::config::suggestion(pool, pools.iter().map(|known| &*known.name));
        return Err(CommandError::Invalid(format!("unknown pool '{pool}'{hint}")));
    };
    let servers = &pools[pool_id].servers;
    let server_id = servers.position(|known| known.name == *server).ok_or_else(|| {
        let hint = crate::config::suggestion(server, servers.iter().map(|known| &*known.name));
        CommandError::Invalid(format!("unknown server '{server}' in pool '{pool}'{hint}"))
    })?;
    Ok((pool_id, server_id))
}

pub(super) fn run_kill(request: &CommandRequest<'_>) -> CommandResult {
    let selection = match request.args {
        [] | ["server"] => return Err(request.usage_error("kill")),
        ["server", name] => {
            let (pool, server) = split_server_name(name)?;
            find_server(&request.context.active_config()?, &(pool.clone(), server.clone()))?;
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
