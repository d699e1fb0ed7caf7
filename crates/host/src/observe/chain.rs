//! Who talks to whom: from the ports of a subject to its processes, and on to the servers behind it
//! on this machine, as far as it is connected to them at this moment.
//!
//! Not for servers that it connects to later: [`super::follow`] looks again. A server on another
//! machine is a port that nobody here serves.

use super::follow::{Follower, Known};
use super::{GENERATOR, ORIGIN, SUBJECT, Watched};
use crate::family::with_descendants;
use crate::namespace::{in_network_of, network_id};
use crate::sockets::{is_of_this_machine, listeners_at_port, listeners_in};
use crate::source::NotObservable;
use record::observed::PortUse;
use std::collections::HashSet;
use std::net::SocketAddr;

/// Processes whose network namespaces are looked at.
const MAX_PROCESSES: usize = 4096;
/// Network namespaces that are looked at.
const MAX_NETWORKS: usize = 64;

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
pub(super) enum Target {
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
    // The one that was named may only wait for its workers.
    let all = if named.is_empty() { subject.clone() } else { with_descendants(&subject) };
    let known = Known { subject: &all, origins: &[], others: &[], ports: &chain.ports };
    let behind = Follower::default().look(&known);
    chain.roles.push(Watched { role: SUBJECT.to_owned(), pids: subject });
    match behind {
        Ok(behind) => {
            if !behind.pids.is_empty() {
                chain.roles.push(Watched { role: ORIGIN.to_owned(), pids: behind.pids });
            }
            let known = |port: u16| chain.ports.iter().any(|one| one.port == port);
            let new: Vec<_> = behind.ports.into_iter().filter(|one| !known(one.port)).collect();
            chain.ports.extend(new);
        }
        Err(error) => chain.not_observable.push(error),
    }
    chain
}

/// The processes that listen at `target`, as seen from the network namespace of process `home`: there
/// first, and then in the others. A loopback address is only there.
pub(super) fn find(home: i32, target: Target) -> Result<Vec<i32>, NotObservable> {
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
