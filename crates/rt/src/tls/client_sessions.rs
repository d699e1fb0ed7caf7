//! Sessions of a client for resumption, bounded. rustls' own store keeps eight tickets per server
//! (`MAX_TLS13_TICKETS_PER_SERVER`): fewer than a load has connections, which then make full
//! handshakes.

#![expect(
    clippy::disallowed_types,
    reason = "the trait of rustls needs a store that threads can share; each core has its own"
)]

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustls::NamedGroup;
use rustls::client::{
    ClientSessionMemoryCache, ClientSessionStore, Tls12ClientSessionValue, Tls13ClientSessionValue,
};
use rustls::pki_types::ServerName;

/// Size of rustls' store, which has an eighth as many servers.
const OTHERS_MAX: usize = 1_024;

/// Sessions by server name. A ticket of TLS 1.3 is used once (RFC 8446, appendix C.4); the newest is
/// used first.
#[derive(Debug)]
pub(super) struct ClientSessions {
    /// Sessions of TLS 1.2, and the group that each server chose.
    others: ClientSessionMemoryCache,
    tickets: Mutex<Tickets>,
    tickets_max: usize,
}

#[derive(Debug, Default)]
struct Tickets {
    by_server: HashMap<ServerName<'static>, VecDeque<Tls13ClientSessionValue>>,
    count: usize,
}

impl ClientSessions {
    /// Creates a store of at most `tickets_max` tickets of all servers.
    pub(super) fn new(tickets_max: usize) -> Self {
        Self { others: ClientSessionMemoryCache::new(OTHERS_MAX), tickets: Mutex::default(), tickets_max }
    }

    fn tickets(&self) -> MutexGuard<'_, Tickets> {
        // No operation below leaves the tickets inconsistent if it panics.
        self.tickets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Tickets {
    fn take_oldest(&mut self, server: &ServerName<'static>) -> bool {
        let taken = self.by_server.get_mut(server).and_then(VecDeque::pop_front);
        self.count -= usize::from(taken.is_some());
        taken.is_some()
    }
}

impl ClientSessionStore for ClientSessions {
    fn set_kx_hint(&self, server_name: ServerName<'static>, group: NamedGroup) {
        self.others.set_kx_hint(server_name, group);
    }

    fn kx_hint(&self, server_name: &ServerName<'_>) -> Option<NamedGroup> {
        self.others.kx_hint(server_name)
    }

    fn set_tls12_session(&self, server_name: ServerName<'static>, value: Tls12ClientSessionValue) {
        self.others.set_tls12_session(server_name, value);
    }

    fn tls12_session(&self, server_name: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        self.others.tls12_session(server_name)
    }

    fn remove_tls12_session(&self, server_name: &ServerName<'static>) {
        self.others.remove_tls12_session(server_name);
    }

    fn insert_tls13_ticket(&self, server_name: ServerName<'static>, value: Tls13ClientSessionValue) {
        let mut tickets = self.tickets();
        // A full store replaces the oldest ticket of the same server, and has no room for others.
        if tickets.count >= self.tickets_max && !tickets.take_oldest(&server_name) {
            return;
        }
        tickets.by_server.entry(server_name).or_default().push_back(value);
        tickets.count += 1;
    }

    fn take_tls13_ticket(&self, server_name: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        let mut tickets = self.tickets();
        let queue = tickets.by_server.get_mut(server_name)?;
        let taken = queue.pop_back();
        if queue.is_empty() {
            tickets.by_server.remove(server_name);
        }
        tickets.count -= usize::from(taken.is_some());
        taken
    }
}
