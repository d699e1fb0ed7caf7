//! Topology discovery: from the ports of a subject to its processes, and on to the servers behind
//! it on this machine, as far as it is connected to them at this moment.
//!
//! [`super::origin_discovery`] finds servers that it connects to later. A server on another machine is a port
//! without a local process.

use super::origin_discovery::{KnownRoles, OriginDiscovery};
use super::{GENERATOR, ORIGIN, RoleSpec, SUBJECT};
use crate::kernel_file::NotObservable;
use crate::namespace::{netns_id, run_in_netns_of};
use crate::process_tree::with_descendants;
use crate::sockets::{find_listeners_at_port, find_listeners_in, is_local_address};
use record::observed::PortRoles;
use std::collections::HashSet;
use std::net::SocketAddr;

/// Maximum number of processes whose network namespaces are read.
const MAX_PROCESSES: usize = 4096;
/// Maximum number of network namespaces that are searched.
const MAX_NETWORKS: usize = 64;

/// Roles on the path of a request, and the ports between them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Topology {
    /// `generator` (this process), `subject`, and `origin` where one is found.
    pub roles: Vec<RoleSpec>,
    pub ports: Vec<PortRoles>,
    /// Facts that could not be determined.
    pub not_observable: Vec<NotObservable>,
}

/// Address or port at which to find a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ListenTarget {
    Port(u16),
    Address(SocketAddr),
}

/// Returns the chain whose subject listens at `ports`, at any address: in this network namespace,
/// or else in that of any other process of this machine.
pub fn discover_topology(ports: &[u16]) -> Topology {
    discover_targets(ports.iter().map(|port| ListenTarget::Port(*port)), &[])
}

/// Returns the same for addresses, which distinguish servers with equal ports. The `named`
/// processes, if any, are the subject, whoever listens there: several network namespaces may have
/// one address.
pub fn discover_topology_at(addresses: &[SocketAddr], named: &[i32]) -> Topology {
    discover_targets(addresses.iter().map(|address| ListenTarget::Address(*address)), named)
}

fn discover_targets(targets: impl Iterator<Item = ListenTarget>, named: &[i32]) -> Topology {
    let own = std::process::id().cast_signed();
    let mut topology = Topology::default();
    let mut subject = named.to_vec();
    for target in targets {
        let pids = match named.is_empty() {
            true => find_server_processes(own, target).unwrap_or_else(|error| {
                topology.not_observable.push(error);
                Vec::new()
            }),
            false => named.to_vec(),
        };
        let port = match target {
            ListenTarget::Port(port) => port,
            ListenTarget::Address(address) => address.port(),
        };
        topology.ports.push(PortRoles {
            port,
            served_by: (!pids.is_empty()).then(|| SUBJECT.to_owned()),
            used_by: Some(GENERATOR.to_owned()),
        });
        subject.extend(pids);
    }
    subject.sort_unstable();
    subject.dedup();
    // A server inside the own process cannot be distinguished from the generator.
    subject.retain(|pid| *pid != own);
    topology.roles.push(RoleSpec { role: GENERATOR.to_owned(), pids: vec![own] });
    if subject.is_empty() {
        return topology;
    }
    // The named process may only wait for its workers.
    let all = if named.is_empty() { subject.clone() } else { with_descendants(&subject) };
    let known_roles = KnownRoles { subject: &all, origins: &[], others: &[], ports: &topology.ports };
    let discovered = OriginDiscovery::default().scan(&known_roles);
    topology.roles.push(RoleSpec { role: SUBJECT.to_owned(), pids: subject });
    match discovered {
        Ok(discovered) => {
            if !discovered.pids.is_empty() {
                topology.roles.push(RoleSpec { role: ORIGIN.to_owned(), pids: discovered.pids });
            }
            let known = |port: u16| topology.ports.iter().any(|port_roles| port_roles.port == port);
            let new_ports: Vec<_> =
                discovered.ports.into_iter().filter(|port_roles| !known(port_roles.port)).collect();
            topology.ports.extend(new_ports);
        }
        Err(error) => topology.not_observable.push(error),
    }
    topology
}

/// Returns the processes that listen at `target`, as seen from the network namespace of process
/// `home`: first in that namespace, then in the others. A loopback address is searched only there.
pub(super) fn find_server_processes(home: i32, target: ListenTarget) -> Result<Vec<i32>, NotObservable> {
    const FIGURE: &str = "processes that listen at the target";
    let find_in = |pid: i32| match target {
        ListenTarget::Port(port) => find_listeners_at_port(pid, port),
        ListenTarget::Address(address) => {
            let ip = address.ip().to_canonical();
            match run_in_netns_of(pid, FIGURE, || is_local_address(ip))? {
                true => find_listeners_in(pid, address),
                false => Ok(Vec::new()),
            }
        }
    };
    let in_home = find_in(home);
    let loopback = matches!(target, ListenTarget::Address(address) if address.ip().is_loopback());
    if loopback || in_home.as_ref().map_or(true, |pids| !pids.is_empty()) {
        return in_home;
    }
    let in_others = other_network_namespaces(home)
        .into_iter()
        .find_map(|pid| find_in(pid).ok().filter(|pids| !pids.is_empty()));
    Ok(in_others.unwrap_or_default())
}

/// Returns one process in each network namespace of this machine except that of process `home`.
fn other_network_namespaces(home: i32) -> Vec<i32> {
    let mut known: HashSet<u64> = netns_id(home).into_iter().collect();
    let entries = std::fs::read_dir("/proc").into_iter().flatten();
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let mut namespace_pids = Vec::new();
    for pid in pids.take(MAX_PROCESSES) {
        if netns_id(pid).is_ok_and(|id| known.insert(id)) {
            namespace_pids.push(pid);
            if namespace_pids.len() == MAX_NETWORKS {
                break;
            }
        }
    }
    namespace_pids
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketType, bind, getsockname, socket};

    #[test]
    fn a_port_without_a_server_is_reported() {
        // The socket is kept open so that no other process gets the port; nothing listens there.
        let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        bind(&socket, &SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let free = SocketAddr::try_from(getsockname(&socket).unwrap()).unwrap().port();
        let topology = discover_topology(&[free]);
        assert_eq!(topology.roles.len(), 1);
        assert_eq!(
            (topology.roles[0].role.as_str(), topology.ports[0].served_by.as_ref()),
            (GENERATOR, None)
        );
    }
}
