//! What one core counts: plain cells, read only when somebody asks. Recording is additions and no
//! look-up by name; `Snapshot` brings the names in.
//!
//! Metrics belong to one plan. When a reload brings another, a core makes new ones, goes on
//! recording what still runs under the old plan in the old ones, and the control thread keeps what
//! they held with `Snapshot::carry_over`.
//!
//! Series stay bounded by the plan: a route has one histogram for each of 6 classes, a pool one for
//! each of 7, a server 1 + 2 × 7; nothing that a client sends is ever a label. A histogram takes
//! 3.1 KiB and is made when its first time comes.

mod codes;
mod health;
mod histogram;
mod process;
mod snapshot;
mod table;
#[cfg(test)]
mod tests;
mod view;

use std::cell::{Cell, OnceCell};

pub(crate) use histogram::FINE_NS;
pub(crate) use snapshot::{Amount, Snapshot, prometheus};
pub use table::reference;
pub(crate) use view::{Counted, View};

use crate::balance::sticky::Found;
use crate::log::Timers;
use crate::outcome::{End, Outcome};
use crate::plan::{Balance, Mode, Plan};
use codes::{Codes, class_of};
use histogram::Histogram;
use table::Metric;

macro_rules! reasons {
    ($($variant:ident, $code:literal, $doc:literal;)*) => {
        /// Why a client's connection was closed before it was served, or had to wait.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Reason {
            $(#[doc = $doc] $variant,)*
        }

        impl Reason {
            pub(crate) const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// In `snake_case`, stable.
            pub(crate) fn code(self) -> &'static str {
                match self { $(Self::$variant => $code,)* }
            }
        }
    };
}

reasons! {
    ProcessFull, "process_full", "`connections-max` of the process was reached";
    ListenerFull, "listener_full", "`connections-max` of the listener was reached";
    ConnectionRate, "connection_rate", "`connections-rate` of the listener was reached";
    SourceConnections, "source_connections", "its source had as many connections as `per-source` allows";
    SourceRate, "source_rate", "its source came faster than `per-source` allows";
    SourceTable, "source_table", "the table of sources had no place for its source; it was served without a bound";
    RejectsFull, "rejects_full", "too many that were to be rejected were still there; it was reset";
    ProxyHeader, "proxy_header", "its PROXY header was missing, malformed or late";
    Untrusted, "untrusted", "it came from outside of `trusted` on a listener with `proxy-protocol`";
    NoDescriptor, "no_descriptor", "no descriptor or memory was left";
    Draining, "draining", "the proxy was being stopped";
}

/// The classes of status, as their label has it; the index is the first digit, or one of these two.
const CLASSES: [&str; 7] = ["none", "1xx", "2xx", "3xx", "4xx", "5xx", "tcp"];
const CLASS_TCP: usize = 6;

/// A histogram for each class, made when its first time comes.
#[derive(Debug, Default)]
struct ByClass([OnceCell<Box<Histogram>>; CLASSES.len()]);

impl ByClass {
    #[inline]
    fn record(&self, class: usize, time_ns: u64) {
        self.0[class].get_or_init(Box::default).record(time_ns);
    }

    fn add_to(&self, snapshot: &mut Snapshot, metric: Metric, labels: &[&str]) {
        for (class, times) in CLASSES.iter().zip(&self.0) {
            if let Some(times) = times.get() {
                let labels: Vec<&str> = labels.iter().chain([class]).copied().collect();
                snapshot.add_times(metric, &labels, times.copy());
            }
        }
    }
}

/// A count.
#[derive(Debug, Default)]
struct Count(Cell<u64>);

impl Count {
    #[inline]
    fn add(&self, number: u64) {
        self.0.set(self.0.get().wrapping_add(number));
    }
}

/// What one core counts under one plan.
#[derive(Debug)]
pub(crate) struct Metrics {
    listeners: Vec<Listener>,
    routes: Vec<Route>,
    /// Of requests without a route.
    no_route: ByClass,
    pools: Vec<Pool>,
    refusals_client: Vec<Count>,
    refusals_server: Vec<Count>,
    refused: Vec<Count>,
    buffers_lent: Count,
    buffers_refused: Count,
    in_flight: Count,
    abandoned_now: Count,
    idle_clients: Count,
    idle_memory: Count,
}

#[derive(Debug)]
struct Listener {
    name: Box<str>,
    is_tcp: bool,
    ends: Vec<Count>,
    codes: Codes,
    bytes_in: Count,
    bytes_out: Count,
    accepted: Count,
    closed: Count,
    open: Cell<u64>,
}

#[derive(Debug)]
struct Route {
    name: Box<str>,
    total: ByClass,
}

#[derive(Debug)]
struct Pool {
    name: Box<str>,
    queue: ByClass,
    retries: Count,
    retries_denied: Count,
    wasted: Count,
    abandoned: Count,
    queued: Count,
    /// Of pools that have a sticky cookie, by [`Found`].
    sticky: Option<Vec<Count>>,
    /// Of pools that go by a key.
    elsewhere: Option<Count>,
    servers: Vec<Server>,
}

#[derive(Debug)]
struct Server {
    name: Box<str>,
    connect: OnceCell<Box<Histogram>>,
    first_byte: ByClass,
    total: ByClass,
    on_new: Count,
    on_reused: Count,
    idle: Count,
    bound: Count,
    slots: Count,
    in_flight: Count,
}

fn counts(number: usize) -> Vec<Count> {
    std::iter::repeat_with(Count::default).take(number).collect()
}

impl Metrics {
    /// All at 0.
    pub(crate) fn new(plan: &Plan) -> Self {
        let listeners = plan.listeners.iter().map(|listener| Listener {
            name: listener.name.clone(),
            is_tcp: matches!(listener.mode, Mode::Tcp(_)),
            ends: counts(End::ALL.len()),
            codes: Codes::new(),
            bytes_in: Count::default(),
            bytes_out: Count::default(),
            accepted: Count::default(),
            closed: Count::default(),
            open: Cell::new(0),
        });
        let route = |name: &str| Route { name: name.into(), total: ByClass::default() };
        let server = |name: &str| Server {
            name: name.into(),
            connect: OnceCell::new(),
            first_byte: ByClass::default(),
            total: ByClass::default(),
            on_new: Count::default(),
            on_reused: Count::default(),
            idle: Count::default(),
            bound: Count::default(),
            slots: Count::default(),
            in_flight: Count::default(),
        };
        let pools = plan.pools.iter().map(|pool| Pool {
            name: pool.name.clone(),
            queue: ByClass::default(),
            retries: Count::default(),
            retries_denied: Count::default(),
            wasted: Count::default(),
            abandoned: Count::default(),
            queued: Count::default(),
            sticky: pool.sticky.as_ref().map(|_| counts(Found::ALL.len())),
            elsewhere: (pool.balance == Balance::ConsistentHash).then(Count::default),
            servers: pool.servers.iter().map(|planned| server(&planned.name)).collect(),
        });
        Self {
            listeners: listeners.collect(),
            routes: plan.routes.iter().map(|planned| route(&planned.name)).collect(),
            no_route: ByClass::default(),
            pools: pools.collect(),
            refusals_client: counts(wire::RefusalKind::ALL.len()),
            refusals_server: counts(wire::RefusalKind::ALL.len()),
            refused: counts(Reason::ALL.len()),
            buffers_lent: Count::default(),
            buffers_refused: Count::default(),
            in_flight: Count::default(),
            abandoned_now: Count::default(),
            idle_clients: Count::default(),
            idle_memory: Count::default(),
        }
    }

    /// Counts one request, or one TCP connection, that has ended. An index that the plan does not
    /// have counts nowhere.
    #[inline]
    pub(crate) fn record(&self, outcome: &Outcome<'_>) {
        let timers = Timers::of(outcome);
        let Some(listener) = self.listeners.get(outcome.listener) else {
            return;
        };
        listener.ends[outcome.end as usize].add(1);
        if !listener.is_tcp {
            listener.codes.record(outcome.status);
        }
        listener.bytes_in.add(outcome.bytes_in);
        listener.bytes_out.add(outcome.bytes_out);
        let class = if listener.is_tcp { CLASS_TCP } else { class_of(outcome.status) };
        if !listener.is_tcp {
            let route = outcome.route.and_then(|route| self.routes.get(route));
            let total = route.map_or(&self.no_route, |route| &route.total);
            total.record(class, timers.total_ns);
        }
        if let Some(kind) = outcome.refusal {
            match outcome.end {
                End::BadResponse => self.refusals_server[kind as usize].add(1),
                _ => self.refusals_client[kind as usize].add(1),
            }
        }
        if let Some(pool) = outcome.pool.and_then(|pool| self.pools.get(pool)) {
            pool.record(outcome, &timers, class);
        }
    }

    /// A client's connection was taken on.
    #[inline]
    pub(crate) fn accepted(&self, listener: usize) {
        if let Some(known) = self.listeners.get(listener) {
            known.accepted.add(1);
        }
        self.adopted(listener);
    }

    /// A client's connection has ended.
    #[inline]
    pub(crate) fn closed(&self, listener: usize) {
        if let Some(known) = self.listeners.get(listener) {
            known.closed.add(1);
        }
        self.released(listener);
    }

    /// A client's connection that was taken on under another plan goes on under this one.
    pub(crate) fn adopted(&self, listener: usize) {
        if let Some(listener) = self.listeners.get(listener) {
            listener.open.set(listener.open.get() + 1);
        }
    }

    /// A client's connection goes on under another plan.
    pub(crate) fn released(&self, listener: usize) {
        if let Some(listener) = self.listeners.get(listener) {
            listener.open.set(listener.open.get().saturating_sub(1));
        }
    }

    /// A client's connection was closed before it was served.
    pub(crate) fn refused(&self, reason: Reason) {
        self.refused[reason as usize].add(1);
    }

    /// How many idle connections this core keeps to a server.
    pub(crate) fn set_idle(&self, pool: usize, server: usize, connections: u64) {
        let server = self.pools.get(pool).and_then(|pool| pool.servers.get(server));
        if let Some(server) = server {
            server.idle.0.set(connections);
        }
    }

    /// How many requests a server may have at a time, as it is told by one core (0: any number), and
    /// how many count toward that.
    pub(crate) fn set_bound(&self, pool: usize, server: usize, (bound, slots): (u64, u64)) {
        let server = self.pools.get(pool).and_then(|pool| pool.servers.get(server));
        if let Some(server) = server {
            server.bound.0.set(bound);
            server.slots.0.set(slots);
        }
    }

    /// A request was not sent again, because the budget was used up.
    pub(crate) fn retry_denied(&self, pool: usize) {
        if let Some(pool) = self.pools.get(pool) {
            pool.retries_denied.add(1);
        }
    }

    /// A server keeps the place of a request whose client has gone.
    pub(crate) fn abandoned(&self, pool: usize) {
        if let Some(pool) = self.pools.get(pool) {
            pool.abandoned.add(1);
        }
    }

    /// A server finished an answer for a client that had gone before.
    pub(crate) fn wasted(&self, pool: usize) {
        if let Some(pool) = self.pools.get(pool) {
            pool.wasted.add(1);
        }
    }

    /// How many requests of this core a server has.
    pub(crate) fn set_in_flight(&self, pool: usize, server: usize, requests: u64) {
        let server = self.pools.get(pool).and_then(|pool| pool.servers.get(server));
        if let Some(server) = server {
            server.in_flight.0.set(requests);
        }
    }

    /// How many requests of this core wait in a pool's queue.
    pub(crate) fn set_queued(&self, pool: usize, requests: u64) {
        if let Some(pool) = self.pools.get(pool) {
            pool.queued.0.set(requests);
        }
    }

    /// So many more requests of a pool did not go where their key belongs.
    pub(crate) fn went_elsewhere(&self, pool: usize, requests: u64) {
        let pool = self.pools.get(pool);
        if let Some(elsewhere) = pool.and_then(|pool| pool.elsewhere.as_ref()) {
            elsewhere.add(requests);
        }
    }

    /// How many buffers of this core are out, and how often there was none.
    pub(crate) fn set_buffers(&self, lent: u64, refused: u64) {
        self.buffers_lent.0.set(lent);
        self.buffers_refused.0.set(refused);
    }

    /// How many connections of clients are between two requests, and their memory in user space.
    pub(crate) fn set_idle_clients(&self, connections: u64, bytes: u64) {
        self.idle_clients.0.set(connections);
        self.idle_memory.0.set(bytes);
    }

    /// What this core has counted, by names.
    pub(crate) fn snapshot(&self) -> Snapshot {
        let mut all = Snapshot::default();
        for listener in &self.listeners {
            listener.add_to(&mut all);
        }
        for route in &self.routes {
            route.total.add_to(&mut all, Metric::RequestSeconds, &[&route.name]);
        }
        self.no_route.add_to(&mut all, Metric::RequestSeconds, &["-"]);
        for pool in &self.pools {
            pool.add_to(&mut all);
        }
        for (from, refusals) in
            [("client", &self.refusals_client), ("server", &self.refusals_server)]
        {
            for (kind, count) in wire::RefusalKind::ALL.iter().zip(refusals) {
                all.add(Metric::Refusals, &[from, kind.code()], count.0.get());
            }
        }
        for (reason, count) in Reason::ALL.iter().zip(&self.refused) {
            all.add(Metric::Refused, &[reason.code()], count.0.get());
        }
        for (metric, count) in [
            (Metric::BuffersLent, &self.buffers_lent),
            (Metric::BuffersRefused, &self.buffers_refused),
            (Metric::RequestsInFlight, &self.in_flight),
            (Metric::AbandonedNow, &self.abandoned_now),
            (Metric::IdleClients, &self.idle_clients),
            (Metric::IdleMemory, &self.idle_memory),
            (Metric::SeriesDropped, &Count::default()),
        ] {
            all.add(metric, &[], count.0.get());
        }
        all
    }
}

impl Listener {
    fn add_to(&self, all: &mut Snapshot) {
        let name = &*self.name;
        for (end, count) in End::ALL.iter().zip(&self.ends) {
            // From the start, so that the first of its kind is an increase.
            all.add(Metric::Requests, &[name, end.code()], count.0.get());
        }
        if !self.is_tcp {
            self.codes.add_to(all, name);
        }
        for (metric, number) in [
            (Metric::BytesIn, self.bytes_in.0.get()),
            (Metric::BytesOut, self.bytes_out.0.get()),
            (Metric::Accepted, self.accepted.0.get()),
            (Metric::Closed, self.closed.0.get()),
            (Metric::Open, self.open.get()),
        ] {
            all.add(metric, &[name], number);
        }
    }
}

impl Pool {
    #[inline]
    fn record(&self, outcome: &Outcome<'_>, timers: &Timers, class: usize) {
        if let Some(tw_ns) = timers.tw_ns {
            self.queue.record(class, tw_ns);
        }
        self.retries.add(u64::from(outcome.retries));
        self.wasted.add(u64::from(outcome.wasted));
        if let (Some(found), Some(sticky)) = (outcome.sticky, &self.sticky) {
            sticky[found as usize].add(1);
        }
        let Some(server) = outcome.server.and_then(|server| self.servers.get(server)) else {
            return;
        };
        match (timers.tc_ns, outcome.reused) {
            (Some(_), true) => server.on_reused.add(1),
            (Some(tc_ns), false) => {
                server.on_new.add(1);
                server.connect.get_or_init(Box::default).record(tc_ns);
            }
            (None, _) => {}
        }
        if let Some(tr_ns) = timers.tr_ns {
            server.first_byte.record(class, tr_ns);
        }
        server.total.record(class, timers.total_ns);
    }

    fn add_to(&self, all: &mut Snapshot) {
        let name = &*self.name;
        self.queue.add_to(all, Metric::QueueSeconds, &[name]);
        all.add(Metric::Retries, &[name], self.retries.0.get());
        all.add(Metric::RetriesDenied, &[name], self.retries_denied.0.get());
        all.add(Metric::Wasted, &[name], self.wasted.0.get());
        all.add(Metric::Abandoned, &[name], self.abandoned.0.get());
        all.add(Metric::Queued, &[name], self.queued.0.get());
        for (found, count) in Found::ALL.iter().zip(self.sticky.iter().flatten()) {
            all.add(Metric::Sticky, &[name, found.code()], count.0.get());
        }
        if let Some(elsewhere) = &self.elsewhere {
            all.add(Metric::Elsewhere, &[name], elsewhere.0.get());
        }
        for server in &self.servers {
            let labels = [name, &*server.name];
            if let Some(connect) = server.connect.get() {
                all.add_times(Metric::ConnectSeconds, &labels, connect.copy());
            }
            server.first_byte.add_to(all, Metric::FirstByteSeconds, &labels);
            server.total.add_to(all, Metric::ServerSeconds, &labels);
            let connections = Metric::ServerConnections;
            all.add(connections, &[name, &server.name, "new"], server.on_new.0.get());
            all.add(connections, &[name, &server.name, "reused"], server.on_reused.0.get());
            all.add(Metric::Idle, &labels, server.idle.0.get());
            all.add(Metric::Bound, &labels, server.bound.0.get());
            all.add(Metric::Slots, &labels, server.slots.0.get());
            all.add(Metric::InFlight, &labels, server.in_flight.0.get());
        }
    }
}
