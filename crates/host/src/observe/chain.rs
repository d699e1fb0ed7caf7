//! Who talks to whom: from the ports of a subject to its processes, and on to the servers behind it
//! on this machine.
//!
//! Not for more than one server behind the other: the chain is generator, subject, origin. A server
//! on another machine is a port that nobody here serves.

use super::{GENERATOR, ORIGIN, SUBJECT, Watched};
use crate::family::with_descendants;
use crate::namespace::{in_network_of, network_id};
use crate::process::tables;
use crate::sock_diag::{Connection, SockDiag};
use crate::sockets::{is_of_this_machine, listeners_at_port, listeners_in, sockets_held};
use crate::source::NotObservable;
use record::observed::PortUse;
use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;

/// Processes whose network namespaces are looked at.
const MAX_PROCESSES: usize = 4096;
/// Network namespaces that are looked at.
const MAX_NETWORKS: usize = 64;
/// Descriptors of the subject that are looked at.
const MAX_LINKS: usize = 50_000;
/// Servers behind the subject, those with the most connections.
const MAX_ORIGINS: usize = 8;

/// The programs on the way of a request, and the ports on which they meet.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Chain {
    /// `generator` (this process), `subject`, and `origin` where one is found.
    pub roles: Vec<Watched>,
    /// The ports.
    pub ports: Vec<PortUse>,
    /// What could not be found out.
    pub not_observable: Vec<NotObservable>,
}

/// Where a server is looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Target {
    Port(u16),
    Address(SocketAddr),
}

/// The chain whose subject listens at `ports`, at any address: in this network namespace, or else in
/// any other that a process of this machine is in.
#[must_use]
pub fn chain(ports: &[u16]) -> Chain {
    chain_of(ports.iter().map(|port| Target::Port(*port)), &[])
}

/// The same for addresses, which tell apart servers with equal ports. Where processes are `named`, they are
/// the subject, whoever listens there: several network namespaces may have one address.
#[must_use]
pub fn chain_at(addresses: &[SocketAddr], named: &[i32]) -> Chain {
    chain_of(addresses.iter().map(|address| Target::Address(*address)), named)
}

fn chain_of(targets: impl Iterator<Item = Target>, named: &[i32]) -> Chain {
    let own = std::process::id().cast_signed();
    let mut chain = Chain::default();
    let mut subject = named.to_vec();
    for target in targets {
        let pids = match named.is_empty() {
            true => find(own, target).unwrap_or_else(|error| {
                chain.not_observable.push(error);
                Vec::new()
            }),
            false => named.to_vec(),
        };
        let port = match target {
            Target::Port(port) => port,
            Target::Address(address) => address.port(),
        };
        chain.ports.push(PortUse {
            port,
            served_by: (!pids.is_empty()).then(|| SUBJECT.to_owned()),
            used_by: Some(GENERATOR.to_owned()),
        });
        subject.extend(pids);
    }
    subject.sort_unstable();
    subject.dedup();
    // A server inside this very process cannot be told from the generator.
    subject.retain(|pid| *pid != own);
    chain.roles.push(Watched { role: GENERATOR.to_owned(), pids: vec![own] });
    if subject.is_empty() {
        return chain;
    }
    let served: Vec<u16> = chain.ports.iter().map(|port| port.port).collect();
    let behind = match named.is_empty() {
        true => origins(&subject, &served),
        // The one that was named may only wait for its workers.
        false => origins(&with_descendants(&subject), &served),
    };
    chain.roles.push(Watched { role: SUBJECT.to_owned(), pids: subject });
    match behind {
        Ok(behind) => {
            chain.roles.extend(behind.role());
            chain.ports.extend(behind.ports);
        }
        Err(error) => chain.not_observable.push(error),
    }
    chain
}

/// The servers behind a subject.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Origins {
    /// Their processes on this machine.
    pub(super) pids: Vec<i32>,
    /// Their ports.
    pub(super) ports: Vec<PortUse>,
}

impl Origins {
    /// Their role, where one is on this machine.
    pub(super) fn role(&self) -> Option<Watched> {
        let some = !self.pids.is_empty();
        some.then(|| Watched { role: ORIGIN.to_owned(), pids: self.pids.clone() })
    }
}

/// The servers that the processes of a subject have connections to now. `served` are the subject's
/// own ports.
pub(super) fn origins(subject: &[i32], served: &[u16]) -> Result<Origins, NotObservable> {
    let Some(&first) = subject.first() else {
        return Ok(Origins::default());
    };
    let mut connections = Vec::new();
    SockDiag::open(Some(first))?.connections_of(served, &mut connections)?;
    // The subject's clients on this machine are most of them; without them there is often nothing
    // left, and no descriptor has to be looked at.
    connections.retain(|connection| !is_to(served, connection));
    if connections.is_empty() {
        return Ok(Origins::default());
    }
    let mut held = HashSet::new();
    let mut links_left = MAX_LINKS;
    for &pid in subject {
        for tid in tables(pid) {
            sockets_held(pid, tid, &mut held, &mut links_left);
        }
    }
    let remotes = connections.iter().filter(|connection| held.contains(&connection.inode.into()));
    let mut origins = Origins::default();
    for remote in most_used(remotes.map(|connection| connection.remote)) {
        let pids = find(first, Target::Address(remote)).unwrap_or_default();
        let ours = |pid: &i32| subject.contains(pid);
        if !pids.is_empty() && pids.iter().all(ours) {
            continue;
        }
        let known = origins.ports.iter().any(|port| port.port == remote.port());
        if !known {
            origins.ports.push(PortUse {
                port: remote.port(),
                served_by: (!pids.is_empty()).then(|| ORIGIN.to_owned()),
                used_by: Some(SUBJECT.to_owned()),
            });
        }
        origins.pids.extend(pids.into_iter().filter(|pid| !ours(pid)));
    }
    origins.pids.sort_unstable();
    origins.pids.dedup();
    Ok(origins)
}

/// Whether a connection goes to one of the ports `served` at the address that it comes from. A server
/// behind the subject may have the same port, but then not the same address.
fn is_to(served: &[u16], connection: &Connection) -> bool {
    let ip = |address: SocketAddr| address.ip().to_canonical();
    served.contains(&connection.remote.port()) && ip(connection.remote) == ip(connection.local)
}

/// The addresses that stand most often, the most frequent first.
fn most_used(remotes: impl Iterator<Item = SocketAddr>) -> Vec<SocketAddr> {
    let mut counts: HashMap<SocketAddr, usize> = HashMap::new();
    for remote in remotes {
        *counts.entry(remote).or_default() += 1;
    }
    let mut remotes: Vec<_> = counts.into_iter().collect();
    remotes.sort_by_key(|&(remote, count)| (std::cmp::Reverse(count), remote));
    remotes.into_iter().take(MAX_ORIGINS).map(|(remote, _)| remote).collect()
}

/// The processes that listen at `target`, as seen from the network namespace of process `home`: there
/// first, and then in the others. A loopback address is only there.
fn find(home: i32, target: Target) -> Result<Vec<i32>, NotObservable> {
    const WHAT: &str = "processes that listen at the target";
    let in_one = |pid: i32| match target {
        Target::Port(port) => listeners_at_port(pid, port),
        Target::Address(address) => {
            let ip = address.ip().to_canonical();
            match in_network_of(pid, WHAT, || is_of_this_machine(ip))? {
                true => listeners_in(pid, address),
                false => Ok(Vec::new()),
            }
        }
    };
    let here = in_one(home);
    let loopback = matches!(target, Target::Address(address) if address.ip().is_loopback());
    if loopback || here.as_ref().map_or(true, |pids| !pids.is_empty()) {
        return here;
    }
    let elsewhere =
        networks(home).into_iter().find_map(|pid| in_one(pid).ok().filter(|pids| !pids.is_empty()));
    Ok(elsewhere.unwrap_or_default())
}

/// A process in each network namespace of this machine but that of process `home`.
fn networks(home: i32) -> Vec<i32> {
    let mut known: HashSet<u64> = network_id(home).into_iter().collect();
    let entries = std::fs::read_dir("/proc").into_iter().flatten();
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let mut found = Vec::new();
    for pid in pids.take(MAX_PROCESSES) {
        if network_id(pid).is_ok_and(|id| known.insert(id)) {
            found.push(pid);
            if found.len() == MAX_NETWORKS {
                break;
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketType, bind, getsockname, socket};

    #[test]
    fn the_most_used_come_first() {
        let address = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let remotes = [9, 8, 9, 7, 8, 9].map(address);
        assert_eq!(most_used(remotes.into_iter()), [9, 8, 7].map(address));
        assert_eq!(most_used((1..100).map(address)).len(), MAX_ORIGINS);
    }

    #[test]
    fn a_client_of_the_subject_is_told_from_a_server_behind_it() {
        let connection = |local: &str, remote: &str| Connection {
            local: local.parse().unwrap(),
            remote: remote.parse().unwrap(),
            inode: 5,
        };
        let client = connection("127.0.0.1:40000", "127.0.0.1:80");
        assert!(is_to(&[443, 80], &client) && !is_to(&[443], &client));
        assert!(is_to(&[80], &connection("[::ffff:10.0.0.1]:40000", "10.0.0.1:80")));
        assert!(!is_to(&[80], &connection("10.0.0.1:40000", "10.0.0.2:80")));
    }

    #[test]
    fn a_port_that_nobody_serves_is_said() {
        // It is kept, so that nobody else gets it, and nothing listens there.
        let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        bind(&socket, &SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let free = SocketAddr::try_from(getsockname(&socket).unwrap()).unwrap().port();
        let chain = chain(&[free]);
        assert_eq!(chain.roles.len(), 1);
        assert_eq!(
            (chain.roles[0].role.as_str(), chain.ports[0].served_by.as_ref()),
            (GENERATOR, None)
        );
    }
}
