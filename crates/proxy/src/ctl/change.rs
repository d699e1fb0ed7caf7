//! The commands that change something: servers, connections, the config, the logs, the end.

use rt::clock::now_ns;

use super::{Call, Order, Outcome, Refusal, socket};
use crate::control::Running;
use crate::pool::Wanted as WantedState;
use crate::session::{Query, SessionId, Wanted};

/// The greatest weight, as in a config.
const WEIGHT_MAX: u32 = 256;

/// What is changed of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Want(WantedState),
    Weight(Option<u32>),
    Maxconn(Option<usize>),
}

impl Change {
    /// Reads the words behind a server's name; `None`: they are others.
    pub(super) fn parse(words: &[&str]) -> Result<Option<Self>, String> {
        let change = match words {
            ["ready"] => Self::Want(WantedState::Ready),
            ["drain"] => Self::Want(WantedState::Drain),
            ["maint"] => Self::Want(WantedState::Maintenance),
            ["weight", "default"] => Self::Weight(None),
            ["weight", text] => match text.parse() {
                Ok(weight) if weight <= WEIGHT_MAX => Self::Weight(Some(weight)),
                _ => return Err(format!("'{text}' is no weight (0 to {WEIGHT_MAX}, or default)")),
            },
            ["maxconn", "default"] => Self::Maxconn(None),
            ["maxconn", text] => match text.parse::<u32>() {
                Ok(max) if max > 0 => Self::Maxconn(Some(max as usize)),
                _ => return Err(format!("'{text}' is no maxconn (1 or more, or default)")),
            },
            _ => return Ok(None),
        };
        Ok(Some(change))
    }
}

pub(super) fn server(call: &Call<'_>) -> Outcome {
    let Some((name, words)) = call.words.split_first() else {
        return Err(call.wrong_words("server"));
    };
    let change = Change::parse(words).map_err(Refusal::Wrong)?;
    let Some(change) = change else { return Err(call.wrong_words("server")) };
    let place = split(name)?;
    call.desk.errand(move |running| apply(running, &place, change))??;
    call.desk.follow_servers()?;
    call.note(&format!("server {}", call.words.join(" ")));
    Ok(Some(format!("server {name}: {}\n", words.join(" "))))
}

/// Pool and server of `POOL/NAME`.
fn split(name: &str) -> Result<(Box<str>, Box<str>), Refusal> {
    let (pool, server) = name.split_once('/').ok_or_else(|| {
        Refusal::Wrong(format!("'{name}' is no server: write POOL/NAME (`show servers` has them)"))
    })?;
    Ok((pool.into(), server.into()))
}

fn apply(running: &Running, place: &(Box<str>, Box<str>), change: Change) -> Result<(), Refusal> {
    let force = running.in_force();
    let (pool, server) = find(&force, place)?;
    let (plan, shared) = (&force.plan.pools[pool], &force.shared.pools[pool]);
    let standing = shared.standing(server);
    let now_ns = now_ns();
    match change {
        Change::Want(wanted) => standing.want(wanted, now_ns),
        Change::Weight(weight) => standing.set_weight(weight),
        Change::Maxconn(max) => shared.set_maxconn(server, max, plan.servers[server].maxconn),
    }
    shared.settle(plan, now_ns);
    Ok(())
}

/// The indices of a pool and of a server of it.
fn find(
    force: &super::InForce,
    (pool, server): &(Box<str>, Box<str>),
) -> Result<(usize, usize), Refusal> {
    let pools = &force.plan.pools;
    let Some(at) = pools.iter().position(|known| known.name == *pool) else {
        let near = crate::config::suggestion(pool, pools.iter().map(|known| &*known.name));
        return Err(Refusal::Wrong(format!("there is no pool '{pool}'{near}")));
    };
    let servers = &pools[at].servers;
    let found = servers.iter().position(|known| known.name == *server).ok_or_else(|| {
        let near = crate::config::suggestion(server, servers.iter().map(|known| &*known.name));
        Refusal::Wrong(format!("pool '{pool}' has no server '{server}'{near}"))
    })?;
    Ok((at, found))
}

pub(super) fn kill(call: &Call<'_>) -> Outcome {
    let wanted = match call.words {
        [] | ["server"] => return Err(call.wrong_words("kill")),
        ["server", name] => {
            let (pool, server) = split(name)?;
            find(&call.desk.in_force()?, &(pool.clone(), server.clone()))?;
            Wanted::Server(pool, server)
        }
        ids => {
            let ids: Result<Vec<SessionId>, String> = ids.iter().map(|id| id.parse()).collect();
            Wanted::Ids(ids.map_err(Refusal::Wrong)?)
        }
    };
    let by_id = matches!(wanted, Wanted::Ids(_));
    let found = call.desk.sessions(&Query { wanted, kill: true, most: 0 })?;
    if found.matched == 0 && by_id {
        let text = "there is no such connection (any more); `show connections` has them";
        return Err(Refusal::Wrong(text.to_owned()));
    }
    let text = format!("kill {}: {} ended", call.words.join(" "), found.matched);
    call.note(&text);
    Ok(Some(format!("{text}\n")))
}

pub(super) fn reload(call: &Call<'_>) -> Outcome {
    let [] = call.words else { return Err(call.wrong_words("reload")) };
    let result = call.desk.order(Order::Reload);
    call.note(if result.is_ok() { "reload" } else { "reload: refused" });
    result.map(Some)
}

pub(super) fn reopen(call: &Call<'_>) -> Outcome {
    let [] = call.words else { return Err(call.wrong_words("reopen")) };
    let result = call.desk.order(Order::Reopen);
    call.note(if result.is_ok() { "reopen" } else { "reopen: not all logs were opened" });
    // Nothing was wrong with the command.
    result.map(Some).map_err(|refusal| match refusal {
        Refusal::Wrong(text) | Refusal::Cannot(text) => Refusal::Cannot(text),
    })
}

/// Answers before it does it: nobody could answer afterwards.
pub(super) fn drain(call: &Call<'_>) -> Outcome {
    let [] = call.words else { return Err(call.wrong_words("drain")) };
    call.note("drain");
    // Who left does not want it less.
    let _ = socket::send(call.stream, b"ok\nit drains\n");
    let _ = call.stream.shutdown(std::net::Shutdown::Write);
    call.desk.give(Order::Drain)?;
    Ok(None)
}
