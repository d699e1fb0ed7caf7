//! The servers behind a subject, found again and again while it runs: a proxy connects to a server
//! only when it is asked to, and its servers may have servers of their own.
//!
//! The sockets that no watched role holds are counted on the way. Not for what flows: the ports that
//! are found here are watched with the others.

use super::chain::{Target, find};
use super::{ORIGIN, SUBJECT};
use crate::namespace::network_id;
use crate::process::tables;
use crate::sock_diag::{Connection, Kind, SockDiag};
use crate::sockets::sockets_held;
use crate::source::NotObservable;
use record::observed::{Origin, PortUse, Strangers};
use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;

/// Descriptors that one look reads.
const MAX_LINKS: usize = 50_000;
/// Addresses behind the subject that are followed.
pub(super) const MAX_ORIGINS: usize = 64;
/// Servers of servers that are followed: the third behind the subject is the last.
const MAX_DEPTH: u8 = 3;
/// Addresses that are remembered, with those that are not followed.
const MAX_KNOWN: usize = 4_096;
/// Sockets whose holders are remembered, before all of them are looked up again.
const MAX_REMEMBERED: usize = 200_000;
/// Network namespaces that the subject and its servers are in.
const MAX_NETWORKS: usize = 8;

/// The processes whose connections are followed, and the ports that are watched already.
#[derive(Debug, Clone, Copy)]
pub(super) struct Known<'a> {
    pub(super) subject: &'a [i32],
    pub(super) origins: &'a [i32],
    /// Processes of all other roles: their sockets are no strangers'.
    pub(super) others: &'a [i32],
    pub(super) ports: &'a [PortUse],
}

/// What one look found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Found {
    /// Processes that listen at an address behind the subject, in ascending order.
    pub(super) pids: Vec<i32>,
    /// Ports behind the subject.
    pub(super) ports: Vec<PortUse>,
    /// Sockets of nobody that is watched, in the subject's namespace.
    pub(super) strangers: Strangers,
}

/// What was found so far.
#[derive(Debug, Default)]
pub(super) struct Follower {
    /// By network namespace and address: the processes that listen there.
    known: HashMap<(u64, SocketAddr), Vec<i32>>,
    origins: Vec<Origin>,
    left_out: u64,
    depths: HashMap<i32, u8>,
    /// Sockets of which it is known that no role holds them.
    strangers: HashSet<u32>,
    /// Sockets that a role holds, by its depth; `None` is a role outside of the chain.
    held: HashMap<u32, Option<u8>>,
    networks: Vec<(u64, SockDiag)>,
}

impl Follower {
    /// Every address that was found.
    pub(super) fn origins(&self) -> &[Origin] {
        &self.origins
    }

    /// Addresses that are not followed.
    pub(super) fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Looks for addresses that were not found yet.
    pub(super) fn look(&mut self, known: &Known<'_>) -> Result<Found, NotObservable> {
        let mut found = Found::default();
        let Some(&first) = known.subject.first() else {
            return Ok(found);
        };
        let home = network_id(first)?;
        self.look_in(home, first, known, &mut found)?;
        let mut networks = vec![home];
        for &pid in known.origins {
            if let Ok(id) = network_id(pid)
                && !networks.contains(&id)
                && networks.len() < MAX_NETWORKS
            {
                networks.push(id);
                self.look_in(id, pid, known, &mut found)?;
            }
        }
        found.pids.sort_unstable();
        found.pids.dedup();
        Ok(found)
    }

    fn look_in(
        &mut self,
        network: u64,
        pid: i32,
        known: &Known<'_>,
        found: &mut Found,
    ) -> Result<(), NotObservable> {
        let served = |port: &&PortUse| port.served_by.is_some();
        let served: Vec<u16> = known.ports.iter().filter(served).map(|port| port.port).collect();
        let mut sockets = Vec::new();
        let at = match self.networks.iter().position(|(id, _)| *id == network) {
            Some(at) => at,
            None => {
                self.networks.push((network, SockDiag::open(Some(pid))?));
                self.networks.len() - 1
            }
        };
        self.networks[at].1.others(&served, &mut sockets)?;
        // The subject's clients on this machine are most of them; without them there is often nothing
        // left, and no descriptor has to be looked at.
        let of_subject = |port: &&PortUse| port.served_by.as_deref() == Some(SUBJECT);
        let of_subject: Vec<u16> =
            known.ports.iter().filter(of_subject).map(|port| port.port).collect();
        sockets.retain(|(_, connection)| !is_to(&of_subject, connection));
        let live = |pids: &Vec<i32>| pids.is_empty() || pids.iter().any(|pid| is_there(*pid));
        let known_here: HashSet<SocketAddr> = self
            .known
            .iter()
            .filter_map(|((id, address), pids)| (*id == network && live(pids)).then_some(*address))
            .collect();
        sockets.retain(|(_, connection)| !known_here.contains(&connection.remote));
        self.find_holders(&sockets, known);
        if network_id(known.subject[0]).is_ok_and(|home| home == network) {
            let ports: HashSet<u16> = known.ports.iter().map(|port| port.port).collect();
            found.strangers = self.count_strangers(&sockets, &ports);
        }
        for (remote, depth) in self.remotes(&sockets) {
            self.add(network, pid, remote, depth, known, found);
        }
        Ok(())
    }

    /// Learns who holds the sockets, where one of them was not seen before.
    fn find_holders(&mut self, sockets: &[(Kind, Connection)], known: &Known<'_>) {
        let unknown = |inode: u32| {
            inode != 0 && !self.strangers.contains(&inode) && !self.held.contains_key(&inode)
        };
        if !sockets.iter().any(|(_, connection)| unknown(connection.inode)) {
            return;
        }
        let mut links_left = MAX_LINKS;
        let mut all: HashMap<u32, Option<u8>> = HashMap::new();
        let roles = [known.subject, known.origins, known.others];
        for (role, pids) in roles.into_iter().enumerate() {
            for &pid in pids {
                let mut held = HashSet::new();
                for tid in tables(pid) {
                    sockets_held(pid, tid, &mut held, &mut links_left);
                }
                let depth = match role {
                    0 => Some(0),
                    1 => Some(self.depths.get(&pid).copied().unwrap_or(1)),
                    _ => None,
                };
                for inode in held.into_iter().filter_map(|inode| u32::try_from(inode).ok()) {
                    all.entry(inode).or_insert(depth);
                }
            }
        }
        if self.held.len() + self.strangers.len() > MAX_REMEMBERED {
            self.held.clear();
            self.strangers.clear();
        }
        for (_, connection) in sockets {
            match all.get(&connection.inode) {
                Some(depth) => _ = self.held.insert(connection.inode, *depth),
                // With descriptors left unread it may be anybody's.
                None if links_left > 0 => _ = self.strangers.insert(connection.inode),
                None => {}
            }
        }
    }

    fn count_strangers(&self, sockets: &[(Kind, Connection)], ports: &HashSet<u16>) -> Strangers {
        let mut strangers = Strangers::default();
        for (kind, connection) in sockets {
            // The remote port of a listening socket is 0.
            let of = [connection.local.port(), connection.remote.port()];
            let watched = of.iter().any(|port| ports.contains(port));
            if watched || self.held.contains_key(&connection.inode) {
                continue;
            }
            match kind {
                Kind::Established => strangers.established += 1,
                Kind::HalfOpen => strangers.half_open += 1,
                Kind::Listening { drops } => {
                    strangers.listening += 1;
                    strangers.listen_drops += u64::from(*drops);
                }
            }
        }
        strangers
    }

    /// The addresses that the subject and its servers are connected to, those with the most connections
    /// first, each with the depth of who connects.
    fn remotes(&self, sockets: &[(Kind, Connection)]) -> Vec<(SocketAddr, u8)> {
        let mut counts: HashMap<(SocketAddr, u8), usize> = HashMap::new();
        let listening = |(kind, connection): &(Kind, Connection)| {
            matches!(kind, Kind::Listening { .. }).then_some(connection.local.port())
        };
        let accepting: HashSet<u16> = sockets.iter().filter_map(listening).collect();
        for (kind, connection) in sockets {
            // At a port that is listened on the connection was accepted, not made.
            if *kind == Kind::Established
                && !accepting.contains(&connection.local.port())
                && let Some(Some(depth)) = self.held.get(&connection.inode)
                && *depth < MAX_DEPTH
            {
                *counts.entry((connection.remote, *depth)).or_default() += 1;
            }
        }
        let mut remotes: Vec<_> = counts.into_iter().collect();
        remotes.sort_by_key(|&((remote, depth), count)| (depth, std::cmp::Reverse(count), remote));
        remotes.into_iter().map(|(of, _)| of).collect()
    }

    fn add(
        &mut self,
        network: u64,
        pid: i32,
        remote: SocketAddr,
        depth: u8,
        known: &Known<'_>,
        found: &mut Found,
    ) {
        let key = (network, remote);
        if self.known.len() >= MAX_KNOWN && !self.known.contains_key(&key) {
            return;
        }
        let address = remote.to_string();
        let before = self.origins.iter().position(|origin| origin.address == address);
        if before.is_none() && self.origins.len() >= MAX_ORIGINS {
            self.left_out += u64::from(self.known.insert(key, Vec::new()).is_none());
            return;
        }
        let mut pids = find(pid, Target::Address(remote)).unwrap_or_default();
        self.known.insert(key, pids.clone());
        let owners = if depth == 0 { known.subject } else { known.origins };
        // A program that connects to itself is not behind itself. Whoever connects to the subject again
        // is its client.
        let is_own = |pid: &i32| known.subject.contains(pid) || depth == 0 && owners.contains(pid);
        let all_own = !pids.is_empty() && pids.iter().all(is_own);
        if all_own {
            return;
        }
        pids.retain(|pid| !is_own(pid));
        for &pid in &pids {
            self.depths.entry(pid).or_insert(depth + 1);
        }
        let used_by = if depth == 0 { SUBJECT } else { ORIGIN };
        let port = remote.port();
        if !found.ports.iter().any(|known| known.port == port) {
            found.ports.push(PortUse {
                port,
                served_by: (!pids.is_empty()).then(|| ORIGIN.to_owned()),
                used_by: Some(used_by.to_owned()),
            });
        }
        found.pids.extend(&pids);
        match before {
            Some(at) => self.origins[at].pids = pids,
            None => {
                let (used_by, depth) = (used_by.to_owned(), depth + 1);
                self.origins.push(Origin { address, port, used_by, pids, depth });
            }
        }
    }
}

fn is_there(pid: i32) -> bool {
    rustix::process::Pid::from_raw(pid).is_some_and(|pid| {
        // A process of somebody else's may not be signalled, and is there.
        rustix::process::test_kill_process(pid) != Err(rustix::io::Errno::SRCH)
    })
}

/// Whether a connection goes to one of the ports `served` at the address that it comes from. A server
/// behind the subject may have the same port, but then not the same address.
fn is_to(served: &[u16], connection: &Connection) -> bool {
    let ip = |address: SocketAddr| address.ip().to_canonical();
    served.contains(&connection.remote.port()) && ip(connection.remote) == ip(connection.local)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connection(local: &str, remote: &str, inode: u32) -> Connection {
        Connection { local: local.parse().unwrap(), remote: remote.parse().unwrap(), inode }
    }

    #[test]
    fn the_most_used_come_first_and_those_of_the_subject_before_the_others() {
        let held = [(1, Some(0)), (2, Some(1)), (3, None), (4, Some(MAX_DEPTH))].into();
        let follower = Follower { held, ..Follower::default() };
        let to = |port: u16, inode| {
            let remote = format!("127.0.0.1:{port}");
            (Kind::Established, connection("127.0.0.1:5000", &remote, inode))
        };
        let half_open = (Kind::HalfOpen, to(6, 1).1);
        let sockets = [
            to(9, 1),
            to(8, 1),
            to(9, 1),
            to(7, 2),
            to(7, 2),
            to(7, 2),
            to(5, 3),
            to(4, 4),
            half_open,
        ];
        let remotes: Vec<_> = follower
            .remotes(&sockets)
            .into_iter()
            .map(|(remote, depth)| (remote.port(), depth))
            .collect();
        assert_eq!(remotes, [(9, 0), (8, 0), (7, 1)]);
    }

    #[test]
    fn a_client_of_the_subject_is_told_from_a_server_behind_it() {
        let client = connection("127.0.0.1:40000", "127.0.0.1:80", 5);
        assert!(is_to(&[443, 80], &client) && !is_to(&[443], &client));
        assert!(is_to(&[80], &connection("[::ffff:10.0.0.1]:40000", "10.0.0.1:80", 5)));
        assert!(!is_to(&[80], &connection("10.0.0.1:40000", "10.0.0.2:80", 5)));
    }

    #[test]
    fn strangers_are_of_no_role_and_no_watched_port() {
        let follower = Follower { held: [(1, None)].into(), ..Follower::default() };
        let any = "0.0.0.0:0";
        let listening = |local: &str, drops| (Kind::Listening { drops }, connection(local, any, 9));
        let established = |local: &str, remote: &str, inode| {
            (Kind::Established, connection(local, remote, inode))
        };
        let sockets = [
            listening("0.0.0.0:22", 3),
            listening("0.0.0.0:25", 4),
            listening("0.0.0.0:80", 5),
            established("127.0.0.1:22", "127.0.0.1:6000", 9),
            established("127.0.0.1:7000", "127.0.0.1:80", 9),
            established("127.0.0.1:7000", "127.0.0.1:443", 1),
            (Kind::HalfOpen, connection("127.0.0.1:22", "127.0.0.1:7001", 0)),
        ];
        let expected = Strangers { established: 1, half_open: 1, listening: 2, listen_drops: 7 };
        assert_eq!(follower.count_strangers(&sockets, &[80].into()), expected);
    }
}
