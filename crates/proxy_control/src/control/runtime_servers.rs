//! Servers that an operator adds to pools and removes from them while the proxy runs. No I/O.
//!
//! The changes lie over the servers of the config and of DNS, by the names of pools and servers, so they outlive a
//! reload. A config that has the name of an added server itself takes its place.

use std::sync::Arc;

use rt::address::Address;

use crate::config::suggestion;
use crate::plan::{Plan, PoolPlan, ServerPlan};

/// Maximum number of changed servers, in all pools.
const CHANGES_MAX: usize = 1024;

/// A change of the servers of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerSetChange {
    pub pool: Box<str>,
    pub server: Box<str>,
    pub kind: ServerSetChangeKind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerSetChangeKind {
    Add(NewServer),
    /// Adds a server of the config, or of DNS, that was removed.
    Restore,
    Remove,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewServer {
    pub address: Address,
    pub weight: u32,
    pub maxconn: Option<usize>,
    pub is_backup: bool,
}

/// Reason for refusing a change.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ServerSetError {
    #[error("unknown pool '{name}'{hint}")]
    UnknownPool { name: Box<str>, hint: String },
    #[error("unknown server '{name}' in pool '{pool}'{hint}")]
    UnknownServer { name: Box<str>, pool: Box<str>, hint: String },
    #[error("pool '{pool}' has a server '{name}' already: choose another name, or remove it first")]
    Exists { name: Box<str>, pool: Box<str> },
    #[error("'{name}' was not removed from pool '{pool}': give the address of a new server")]
    NotRemoved { name: Box<str>, pool: Box<str> },
    #[error(
        "'{name}' is the only server of pool '{pool}': add another one first, or use `pool {pool} maint`"
    )]
    OnlyServer { name: Box<str>, pool: Box<str> },
    #[error("{CHANGES_MAX} servers are changed already: write them into the config")]
    TooMany,
    #[error("no server changed: this process is stopping")]
    Stopping,
}

#[derive(Clone, Debug)]
struct ChangedServer {
    pool: Box<str>,
    name: Box<str>,
    /// `None`: it was removed.
    added: Option<ServerPlan>,
}

/// All changes, in the order in which they were made.
#[derive(Clone, Debug, Default)]
pub(super) struct RuntimeServers(Vec<ChangedServer>);

impl RuntimeServers {
    /// Adds a change. `plan` is in force.
    ///
    /// # Errors
    /// The change does not fit to the servers in force. Nothing has changed then.
    pub(super) fn change(&mut self, change: ServerSetChange, plan: &Plan) -> Result<(), ServerSetError> {
        let ServerSetChange { pool, server: name, kind } = change;
        let Some(pool_plan) = plan.pools.iter().find(|known| known.name == pool) else {
            let hint = suggestion(&pool, plan.pools.iter().map(|known| &*known.name));
            return Err(ServerSetError::UnknownPool { name: pool, hint });
        };
        let is_there = pool_plan.servers.iter().any(|server| server.name == name);
        let before = self.0.iter().position(|changed| changed.pool == pool && changed.name == name);
        let was_removed = before.is_some_and(|at| self.0[at].added.is_none());
        let is_restored = kind == ServerSetChangeKind::Restore;
        let added = match kind {
            ServerSetChangeKind::Add(_) if is_there => return Err(ServerSetError::Exists { name, pool }),
            ServerSetChangeKind::Add(new) => Some(new.into_plan(name.clone())),
            ServerSetChangeKind::Restore if !was_removed => {
                return Err(ServerSetError::NotRemoved { name, pool });
            }
            ServerSetChangeKind::Remove if !is_there => {
                let hint = suggestion(&name, pool_plan.servers.iter().map(|server| &*server.name));
                return Err(ServerSetError::UnknownServer { name, pool, hint });
            }
            ServerSetChangeKind::Remove if pool_plan.servers.len() == 1 => {
                return Err(ServerSetError::OnlyServer { name, pool });
            }
            ServerSetChangeKind::Restore | ServerSetChangeKind::Remove => None,
        };
        let is_own = before.is_some_and(|at| self.0[at].added.is_some());
        if before.is_none() && self.0.len() == CHANGES_MAX {
            return Err(ServerSetError::TooMany);
        }
        if let Some(at) = before {
            self.0.remove(at);
        }
        // An added server that is removed, and a removed one that is restored, leave nothing.
        if !is_restored && (added.is_some() || !is_own) {
            self.0.push(ChangedServer { pool, name, added });
        }
        Ok(())
    }

    /// Writes the commands of `weir ctl` that make the changes again, one per line.
    pub(super) fn write_commands(&self, text: &mut String) {
        for ChangedServer { pool, name, added } in &self.0 {
            let change = match added {
                None => "remove".to_owned(),
                Some(server) => {
                    let maxconn = server.maxconn.map_or_else(String::new, |max| format!(" maxconn {max}"));
                    let backup = if server.backup { " backup" } else { "" };
                    format!("add {} weight {}{maxconn}{backup}", server.address, server.weight)
                }
            };
            text.push_str(&format!("server {pool}/{name} {change}\n"));
        }
    }

    /// Forgets the changes of pools that a new config does not have, and added servers that it has itself.
    pub(super) fn follow(&mut self, config: &Plan) {
        self.0.retain(|changed| {
            config.pools.iter().any(|pool| {
                let is_in_config = || pool.servers.iter().any(|server| server.name == changed.name);
                pool.name == changed.pool && !(changed.added.is_some() && is_in_config())
            })
        });
    }

    /// Returns a plan with the changes. Shares unchanged pools with `plan`, and others with `previous`, which was made
    /// from the same config.
    pub(super) fn apply(&self, plan: Plan, previous: Option<&Plan>) -> Plan {
        if self.0.is_empty() {
            return plan;
        }
        let pools = plan.pools.enumerate().map(|(id, pool)| {
            let changes = self.0.iter().filter(|changed| changed.pool == pool.name);
            let changes: Vec<_> = changes.collect();
            if changes.is_empty() {
                return Arc::clone(pool);
            }
            let is_kept = |server: &&ServerPlan| changes.iter().all(|changed| changed.name != server.name);
            let kept = pool.servers.iter().filter(is_kept);
            let added = changes.iter().filter_map(|changed| changed.added.as_ref());
            let servers = kept.chain(added).cloned().collect();
            match previous.and_then(|previous| previous.pools.get(id)) {
                Some(before) if before.servers == servers => Arc::clone(before),
                _ => Arc::new(PoolPlan { servers, ..PoolPlan::clone(pool) }),
            }
        });
        Plan { pools: pools.collect(), ..plan.clone() }
    }
}

impl NewServer {
    fn into_plan(self, name: Box<str>) -> ServerPlan {
        let Self { address, weight, maxconn, is_backup } = self;
        ServerPlan { name, address, host: None, weight, maxconn, backup: is_backup }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(servers: &str) -> Plan {
        let text = format!(
            "[listener.l]\nbind = '127.0.0.1:0'\npool = 'p'\n[pool.p]\nservers = {servers}\n\
             [pool.q]\nservers = ['127.0.0.1:1']\n[[route]]\npath = '/q'\npool = 'q'\n"
        );
        crate::config::parse("t", &text).unwrap().plan
    }

    fn change(server: &str, kind: ServerSetChangeKind) -> ServerSetChange {
        ServerSetChange { pool: "p".into(), server: server.into(), kind }
    }

    fn new_server(port: u16) -> ServerSetChangeKind {
        let address = Address::Tcp(([127, 0, 0, 1], port).into());
        ServerSetChangeKind::Add(NewServer { address, weight: 3, maxconn: Some(2), is_backup: false })
    }

    fn names(plan: &Plan) -> Vec<&str> {
        let pool = plan.pools.iter().find(|pool| &*pool.name == "p").unwrap();
        pool.servers.iter().map(|server| &*server.name).collect()
    }

    #[test]
    fn changes_lie_over_the_config_and_follow_it() {
        let config =
            plan("[{ address = '127.0.0.1:9001', name = 'a' }, { address = '127.0.0.1:9002', name = 'b' }]");
        let mut changes = RuntimeServers::default();
        let mut current = changes.apply(config.clone(), None);
        let mut apply = |changes: &mut RuntimeServers, server, kind| {
            changes.change(change(server, kind), &current)?;
            current = changes.apply(config.clone(), Some(&current));
            Ok::<_, ServerSetError>(names(&current).join(","))
        };
        let mut run = |server, kind| apply(&mut changes, server, kind).map_err(|error| error.to_string());
        assert_eq!(run("c", new_server(9003)).unwrap(), "a,b,c");
        assert!(run("c", new_server(9003)).unwrap_err().contains("already"));
        assert!(run("a", ServerSetChangeKind::Restore).unwrap_err().contains("not removed"));
        assert_eq!(run("a", ServerSetChangeKind::Remove).unwrap(), "b,c");
        assert!(run("a", ServerSetChangeKind::Remove).unwrap_err().contains("unknown server"));
        assert_eq!(run("c", ServerSetChangeKind::Remove).unwrap(), "b");
        assert!(run("b", ServerSetChangeKind::Remove).unwrap_err().contains("only server"));
        assert_eq!(run("a", ServerSetChangeKind::Restore).unwrap(), "a,b");
        assert_eq!(run("a", ServerSetChangeKind::Remove).unwrap(), "b");
        // The place of a server of the config is free for another address.
        assert_eq!(run("a", new_server(9009)).unwrap(), "b,a");
        assert_eq!(run("d", new_server(9004)).unwrap(), "b,a,d");
        let next =
            plan("[{ address = '127.0.0.1:9005', name = 'd' }, { address = '127.0.0.1:9001', name = 'b' }]");
        changes.follow(&next);
        assert_eq!(names(&changes.apply(next, None)), ["d", "b", "a"]);
        let unknown = ServerSetChange { pool: "r".into(), ..change("x", new_server(1)) };
        assert!(matches!(changes.change(unknown, &config), Err(ServerSetError::UnknownPool { .. })));
    }

    #[test]
    fn unchanged_pools_are_shared_and_the_number_of_changes_is_bounded() {
        let config = plan("['127.0.0.1:9001']");
        let mut changes = RuntimeServers::default();
        changes.change(change("c", new_server(9003)), &config).unwrap();
        let first = changes.apply(config.clone(), None);
        let again = changes.apply(config.clone(), Some(&first));
        assert!(first.pools.iter().zip(&again.pools).all(|(a, b)| Arc::ptr_eq(a, b)));
        let shared = first.pools.iter().zip(&config.pools).filter(|(a, b)| Arc::ptr_eq(a, b));
        assert_eq!(shared.count(), 1);
        for index in 1..CHANGES_MAX {
            changes.change(change(&format!("s{index}"), new_server(9004)), &config).unwrap();
        }
        assert_eq!(changes.change(change("more", new_server(1)), &config), Err(ServerSetError::TooMany));
    }
}
