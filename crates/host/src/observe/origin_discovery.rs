//! Repeated discovery of the servers behind a subject while it runs: a proxy connects to a server
//! only on request, and its servers may have servers of their own.
//!
//! The scan also counts the sockets that no watched role holds. It does not measure traffic: the
//! discovered ports are watched with the others.

use record::sorted::sort_by_key;

use super::topology::{ListenTarget, find_server_processes};
use super::{ORIGIN, SUBJECT};
use crate::kernel_file::NotObservable;
use crate::namespace::netns_id;
use crate::process::fd_tables;
use crate::sock_diag::{Connection, OtherSocketKind, SockDiag};
use crate::sockets::collect_socket_inodes;
use record::observed::{OriginAddress, PortRoles, UnwatchedSockets};
use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;

/// Maximum number of descriptors read per scan.
const MAX_DESCRIPTORS: usize = 50_000;
/// Maximum number of followed addresses behind the subject.
pub(super) const MAX_ORIGINS: usize = 64;
/// Maximum depth of followed servers: the third behind the subject is the last.
const MAX_DEPTH: u8 = 3;
/// Maximum number of remembered addresses, including those that are not followed.
const MAX_KNOWN_ADDRESSES: usize = 4_096;
/// Maximum number of sockets with remembered holders; beyond it all are looked up again.
const MAX_CACHED_SOCKETS: usize = 200_000;
/// Maximum number of network namespaces of the subject and its servers.
const MAX_NETWORKS: usize = 8;

/// Processes whose connections are followed, and the ports that are watched already.
#[derive(Debug, Clone, Copy)]
pub(super) struct KnownRoles<'a> {
    pub(super) subject: &'a [i32],
    pub(super) origins: &'a [i32],
    /// Processes of all other roles: their sockets do not count as unwatched.
    pub(super) others: &'a [i32],
    pub(super) ports: &'a [PortRoles],
}

/// Result of one scan.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct DiscoveredServers {
    /// Processes that listen at an address behind the subject, in ascending order.
    pub(super) pids: Vec<i32>,
    /// Ports behind the subject.
    pub(super) ports: Vec<PortRoles>,
    /// Sockets in the subject's namespace that belong to no watched process.
    pub(super) unwatched_sockets: UnwatchedSockets,
}

#[derive(Debug, Default)]
pub(super) struct OriginDiscovery {
    /// Processes that listen at an address, by network namespace and address.
    listeners: HashMap<(u64, SocketAddr), Vec<i32>>,
    origins: Vec<OriginAddress>,
    omitted: u64,
    depths: HashMap<i32, u8>,
    /// Sockets that no role holds.
    unwatched_inodes: HashSet<u32>,
    /// Sockets that a role holds, by its depth; `None` is a role outside the chain.
    watched_inodes: HashMap<u32, Option<u8>>,
    networks: Vec<(u64, SockDiag)>,
}

impl OriginDiscovery {
    pub(super) fn origins(&self) -> &[OriginAddress] {
        &self.origins
    }

    /// Returns the number of addresses that are not followed.
    pub(super) fn omitted(&self) -> u64 {
        self.omitted
    }

    pub(super) fn scan(&mut self, known: &KnownRoles<'_>) -> Result<DiscoveredServers, NotObservable> {
        let mut discovered = DiscoveredServers::default();
        let Some(&first) = known.subject.first() else {
            return Ok(discovered);
        };
        let home = netns_id(first)?;
        self.scan_network(home, first, known, &mut discovered)?;
        let mut networks = vec![home];
        for &pid in known.origins {
            if let Ok(id) = netns_id(pid)
                && !networks.contains(&id)
                && networks.len() < MAX_NETWORKS
            {
                networks.push(id);
                self.scan_network(id, pid, known, &mut discovered)?;
            }
        }
        discovered.pids.sort_unstable();
        discovered.pids.dedup();
        Ok(discovered)
    }

    fn scan_network(
        &mut self,
        network: u64,
        pid: i32,
        known: &KnownRoles<'_>,
        discovered: &mut DiscoveredServers,
    ) -> Result<(), NotObservable> {
        let is_served = |port: &&PortRoles| port.served_by.is_some();
        let served_ports: Vec<u16> = known.ports.iter().filter(is_served).map(|port| port.port).collect();
        let mut sockets = Vec::new();
        let at = match self.networks.iter().position(|(id, _)| *id == network) {
            Some(at) => at,
            None => {
                self.networks.push((network, SockDiag::open(Some(pid))?));
                self.networks.len() - 1
            }
        };
        self.networks[at].1.other_sockets(&served_ports, &mut sockets)?;
        // Most sockets belong to the subject's clients on this machine. Without them there is often
        // nothing left, and no descriptor needs to be read.
        let is_served_by_subject = |port: &&PortRoles| port.served_by.as_deref() == Some(SUBJECT);
        let subject_ports: Vec<u16> =
            known.ports.iter().filter(is_served_by_subject).map(|port| port.port).collect();
        sockets.retain(|(_, connection)| !is_client_of(&subject_ports, connection));
        let has_live_listener = |pids: &Vec<i32>| pids.is_empty() || pids.iter().any(|pid| is_alive(*pid));
        let known_here: HashSet<SocketAddr> = self
            .listeners
            .iter()
            .filter_map(|((id, address), pids)| {
                (*id == network && has_live_listener(pids)).then_some(*address)
            })
            .collect();
        sockets.retain(|(_, connection)| !known_here.contains(&connection.remote));
        self.find_holders(&sockets, known);
        if netns_id(known.subject[0]).is_ok_and(|home| home == network) {
            let ports: HashSet<u16> = known.ports.iter().map(|port| port.port).collect();
            discovered.unwatched_sockets = self.count_unwatched_sockets(&sockets, &ports);
        }
        for (remote, depth) in self.remote_addresses(&sockets) {
            self.add(network, pid, remote, depth, known, discovered);
        }
        Ok(())
    }

    /// Looks up the holders of the sockets if one of the sockets is new.
    fn find_holders(&mut self, sockets: &[(OtherSocketKind, Connection)], known: &KnownRoles<'_>) {
        let is_unknown = |inode: u32| {
            inode != 0 && !self.unwatched_inodes.contains(&inode) && !self.watched_inodes.contains_key(&inode)
        };
        if !sockets.iter().any(|(_, connection)| is_unknown(connection.inode)) {
            return;
        }
        let mut descriptors_left = MAX_DESCRIPTORS;
        let mut holders: HashMap<u32, Option<u8>> = HashMap::new();
        let roles = [known.subject, known.origins, known.others];
        for (role, pids) in roles.into_iter().enumerate() {
            for &pid in pids {
                let mut inodes = HashSet::new();
                for tid in fd_tables(pid) {
                    collect_socket_inodes(pid, tid, &mut inodes, &mut descriptors_left);
                }
                let depth = match role {
                    0 => Some(0),
                    1 => Some(self.depths.get(&pid).copied().unwrap_or(1)),
                    _ => None,
                };
                for inode in inodes.into_iter().filter_map(|inode| u32::try_from(inode).ok()) {
                    holders.entry(inode).or_insert(depth);
                }
            }
        }
        if self.watched_inodes.len() + self.unwatched_inodes.len() > MAX_CACHED_SOCKETS {
            self.watched_inodes.clear();
            self.unwatched_inodes.clear();
        }
        for (_, connection) in sockets {
            match holders.get(&connection.inode) {
                Some(depth) => _ = self.watched_inodes.insert(connection.inode, *depth),
                // With unread descriptors left, any process may hold it.
                None if descriptors_left > 0 => _ = self.unwatched_inodes.insert(connection.inode),
                None => {}
            }
        }
    }

    fn count_unwatched_sockets(
        &self,
        sockets: &[(OtherSocketKind, Connection)],
        ports: &HashSet<u16>,
    ) -> UnwatchedSockets {
        let mut unwatched_sockets = UnwatchedSockets::default();
        for (kind, connection) in sockets {
            // The remote port of a listening socket is 0.
            let socket_ports = [connection.local.port(), connection.remote.port()];
            let is_watched = socket_ports.iter().any(|port| ports.contains(port));
            if is_watched || self.watched_inodes.contains_key(&connection.inode) {
                continue;
            }
            match kind {
                OtherSocketKind::Established => unwatched_sockets.established += 1,
                OtherSocketKind::HalfOpen => unwatched_sockets.half_open += 1,
                OtherSocketKind::Listening { drops } => {
                    unwatched_sockets.listening += 1;
                    unwatched_sockets.listen_drops += u64::from(*drops);
                }
            }
        }
        unwatched_sockets
    }

    /// Returns the addresses that the subject and its servers are connected to, sorted by the
    /// number of connections, each with the depth of its client.
    fn remote_addresses(&self, sockets: &[(OtherSocketKind, Connection)]) -> Vec<(SocketAddr, u8)> {
        let mut counts: HashMap<(SocketAddr, u8), usize> = HashMap::new();
        let listening_port = |(kind, connection): &(OtherSocketKind, Connection)| {
            matches!(kind, OtherSocketKind::Listening { .. }).then_some(connection.local.port())
        };
        let listening_ports: HashSet<u16> = sockets.iter().filter_map(listening_port).collect();
        for (kind, connection) in sockets {
            // A connection at a listening port was accepted, not made.
            if *kind == OtherSocketKind::Established
                && !listening_ports.contains(&connection.local.port())
                && let Some(Some(depth)) = self.watched_inodes.get(&connection.inode)
                && *depth < MAX_DEPTH
            {
                *counts.entry((connection.remote, *depth)).or_default() += 1;
            }
        }
        let mut remotes: Vec<_> = counts.into_iter().collect();
        sort_by_key(&mut remotes, |&((remote, depth), count)| (depth, std::cmp::Reverse(count), remote));
        remotes.into_iter().map(|(of, _)| of).collect()
    }

    fn add(
        &mut self,
        network: u64,
        pid: i32,
        remote: SocketAddr,
        depth: u8,
        known: &KnownRoles<'_>,
        discovered: &mut DiscoveredServers,
    ) {
        let key = (network, remote);
        if self.listeners.len() >= MAX_KNOWN_ADDRESSES && !self.listeners.contains_key(&key) {
            return;
        }
        let address = remote.to_string();
        let existing = self.origins.iter().position(|origin| origin.address == address);
        if existing.is_none() && self.origins.len() >= MAX_ORIGINS {
            self.omitted += u64::from(self.listeners.insert(key, Vec::new()).is_none());
            return;
        }
        let mut pids = find_server_processes(pid, ListenTarget::Address(remote)).unwrap_or_default();
        self.listeners.insert(key, pids.clone());
        let owners = if depth == 0 { known.subject } else { known.origins };
        // A process that connects to itself is not behind itself. A process that connects back to
        // the subject is its client.
        let is_own = |pid: &i32| known.subject.contains(pid) || depth == 0 && owners.contains(pid);
        let all_are_own = !pids.is_empty() && pids.iter().all(is_own);
        if all_are_own {
            return;
        }
        pids.retain(|pid| !is_own(pid));
        for &pid in &pids {
            self.depths.entry(pid).or_insert(depth + 1);
        }
        let used_by = if depth == 0 { SUBJECT } else { ORIGIN };
        let port = remote.port();
        if !discovered.ports.iter().any(|known| known.port == port) {
            discovered.ports.push(PortRoles {
                port,
                served_by: (!pids.is_empty()).then(|| ORIGIN.to_owned()),
                used_by: Some(used_by.to_owned()),
            });
        }
        discovered.pids.extend(&pids);
        match existing {
            Some(at) => self.origins[at].pids = pids,
            None => {
                let (used_by, depth) = (used_by.to_owned(), depth + 1);
                self.origins.push(OriginAddress { address, port, used_by, pids, depth });
            }
        }
    }
}

fn is_alive(pid: i32) -> bool {
    rustix::process::Pid::from_raw(pid).is_some_and(|pid| {
        // A process of another user exists, although it may not be signalled.
        rustix::process::test_kill_process(pid) != Err(rustix::io::Errno::SRCH)
    })
}

/// Returns whether a connection goes to one of `served_ports` at the address that it comes
/// from. A server behind the subject may have the same port, but then has another address.
fn is_client_of(served_ports: &[u16], connection: &Connection) -> bool {
    let ip = |address: SocketAddr| address.ip().to_canonical();
    served_ports.contains(&connection.remote.port()) && ip(connection.remote) == ip(connection.local)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connection(local: &str, remote: &str, inode: u32) -> Connection {
        Connection { local: local.parse().unwrap(), remote: remote.parse().unwrap(), inode }
    }

    #[test]
    fn the_most_used_come_first_and_the_subjects_before_the_others() {
        let watched_inodes = [(1, Some(0)), (2, Some(1)), (3, None), (4, Some(MAX_DEPTH))].into();
        let discovery = OriginDiscovery { watched_inodes, ..OriginDiscovery::default() };
        let connected_to = |port: u16, inode| {
            let remote = format!("127.0.0.1:{port}");
            (OtherSocketKind::Established, connection("127.0.0.1:5000", &remote, inode))
        };
        let half_open = (OtherSocketKind::HalfOpen, connected_to(6, 1).1);
        let sockets = [
            connected_to(9, 1),
            connected_to(8, 1),
            connected_to(9, 1),
            connected_to(7, 2),
            connected_to(7, 2),
            connected_to(7, 2),
            connected_to(5, 3),
            connected_to(4, 4),
            half_open,
        ];
        let remotes: Vec<_> = discovery
            .remote_addresses(&sockets)
            .into_iter()
            .map(|(remote, depth)| (remote.port(), depth))
            .collect();
        assert_eq!(remotes, [(9, 0), (8, 0), (7, 1)]);
    }

    #[test]
    fn a_client_of_the_subject_is_not_a_server_behind_it() {
        let client = connection("127.0.0.1:40000", "127.0.0.1:80", 5);
        assert!(is_client_of(&[443, 80], &client) && !is_client_of(&[443], &client));
        assert!(is_client_of(&[80], &connection("[::ffff:10.0.0.1]:40000", "10.0.0.1:80", 5)));
        assert!(!is_client_of(&[80], &connection("10.0.0.1:40000", "10.0.0.2:80", 5)));
    }

    #[test]
    fn unwatched_sockets_are_of_no_role_and_no_watched_port() {
        let discovery = OriginDiscovery { watched_inodes: [(1, None)].into(), ..OriginDiscovery::default() };
        let any = "0.0.0.0:0";
        let listening =
            |local: &str, drops| (OtherSocketKind::Listening { drops }, connection(local, any, 9));
        let established = |local: &str, remote: &str, inode| {
            (OtherSocketKind::Established, connection(local, remote, inode))
        };
        let sockets = [
            listening("0.0.0.0:22", 3),
            listening("0.0.0.0:25", 4),
            listening("0.0.0.0:80", 5),
            established("127.0.0.1:22", "127.0.0.1:6000", 9),
            established("127.0.0.1:7000", "127.0.0.1:80", 9),
            established("127.0.0.1:7000", "127.0.0.1:443", 1),
            (OtherSocketKind::HalfOpen, connection("127.0.0.1:22", "127.0.0.1:7001", 0)),
        ];
        let expected = UnwatchedSockets { established: 1, half_open: 1, listening: 2, listen_drops: 7 };
        assert_eq!(discovery.count_unwatched_sockets(&sockets, &[80].into()), expected);
    }
}
