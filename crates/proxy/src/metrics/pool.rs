//! Metrics of one core about one pool and its servers.

use std::cell::OnceCell;

use super::h2_servers::ServerH2Counters;
use super::histogram::Histogram;
use super::table::Metric;
use super::tls::HandshakeCounters;
use super::{ClassHistograms, CounterCell, Snapshot, new_counters};
use crate::log::Timers;
use crate::outcome::{EndReason, Outcome, StickyLookup};
use crate::plan::{Balance, IdVec, PoolPlan, ServerHttp, ServerId};

#[derive(Debug)]
pub(super) struct PoolMetrics {
    pub(super) name: Box<str>,
    pub(super) queue: ClassHistograms,
    /// Ended subrequests by [`EndReason`], once there is one.
    pub(super) subrequests: OnceCell<Vec<CounterCell>>,
    pub retries: CounterCell,
    pub(super) retries_denied: CounterCell,
    pub(super) wasted: CounterCell,
    pub(super) abandoned: CounterCell,
    pub queued: CounterCell,
    /// Requests by [`StickyLookup`], if the pool has a sticky cookie.
    pub(super) sticky: Option<Vec<CounterCell>>,
    /// Requests that did not go to the server of their key, if the pool hashes by a key.
    pub(super) hash_overflow: Option<CounterCell>,
    /// Requests of splits that another pool was chosen for, which had no usable server.
    pub(super) fallbacks: CounterCell,
    pub servers: IdVec<ServerId, ServerMetrics>,
}

#[derive(Debug)]
pub(super) struct ServerMetrics {
    pub(super) name: Box<str>,
    pub(super) connect: OnceCell<Box<Histogram>>,
    pub(super) first_byte: ClassHistograms,
    pub total: ClassHistograms,
    pub(super) on_new: CounterCell,
    pub(super) on_reused: CounterCell,
    pub idle: CounterCell,
    pub(super) requests_max: CounterCell,
    pub(super) slots: CounterCell,
    pub in_flight: CounterCell,
    /// `None`: connections to it are plain.
    pub(super) tls_handshakes: Option<HandshakeCounters>,
    /// `None`: connections to it never have HTTP/2.
    pub(super) h2: Option<ServerH2Counters>,
}

impl ServerMetrics {
    /// Creates a server's metrics, all at 0.
    fn new(name: &str, pool: &PoolPlan) -> Self {
        Self {
            name: name.into(),
            connect: OnceCell::new(),
            first_byte: ClassHistograms::default(),
            total: ClassHistograms::default(),
            on_new: CounterCell::default(),
            on_reused: CounterCell::default(),
            idle: CounterCell::default(),
            requests_max: CounterCell::default(),
            slots: CounterCell::default(),
            in_flight: CounterCell::default(),
            tls_handshakes: pool.tls.as_ref().map(|_| HandshakeCounters::default()),
            h2: (pool.http != ServerHttp::Http11).then(ServerH2Counters::new),
        }
    }
}

impl PoolMetrics {
    /// Creates a pool's metrics, all at 0.
    pub(super) fn new(pool: &PoolPlan) -> Self {
        Self {
            name: pool.name.clone(),
            queue: ClassHistograms::default(),
            subrequests: OnceCell::new(),
            retries: CounterCell::default(),
            retries_denied: CounterCell::default(),
            wasted: CounterCell::default(),
            abandoned: CounterCell::default(),
            queued: CounterCell::default(),
            sticky: pool.sticky.as_ref().map(|_| new_counters(StickyLookup::ALL.len())),
            hash_overflow: (pool.balance == Balance::ConsistentHash).then(CounterCell::default),
            fallbacks: CounterCell::default(),
            servers: pool.servers.iter().map(|server| ServerMetrics::new(&server.name, pool)).collect(),
        }
    }

    // Other callers are rare, and must not keep the path of each request from being one function.
    #[inline(always)]
    pub(super) fn record(&self, outcome: &Outcome<'_>, timers: &Timers, class: usize) {
        if let Some(tw_ns) = timers.tw_ns {
            self.queue.record(class, tw_ns);
        }
        self.retries.add(u64::from(outcome.retries));
        self.wasted.add(u64::from(outcome.wasted));
        if let (Some(cookie_result), Some(sticky)) = (outcome.sticky, &self.sticky) {
            sticky[cookie_result as usize].add(1);
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

    pub(super) fn add_to(&self, snapshot: &mut Snapshot) {
        let name = &*self.name;
        self.queue.add_to(snapshot, Metric::QueueSeconds, &[name]);
        for (end, count) in EndReason::ALL.iter().zip(self.subrequests.get().into_iter().flatten()) {
            snapshot.add(Metric::Subrequests, &[name, end.code()], count.0.get());
        }
        snapshot.add(Metric::Retries, &[name], self.retries.0.get());
        snapshot.add(Metric::RetriesDenied, &[name], self.retries_denied.0.get());
        snapshot.add(Metric::Wasted, &[name], self.wasted.0.get());
        snapshot.add(Metric::Abandoned, &[name], self.abandoned.0.get());
        snapshot.add(Metric::Queued, &[name], self.queued.0.get());
        for (cookie_result, count) in StickyLookup::ALL.iter().zip(self.sticky.iter().flatten()) {
            snapshot.add(Metric::Sticky, &[name, cookie_result.code()], count.0.get());
        }
        if let Some(hash_overflow) = &self.hash_overflow {
            snapshot.add(Metric::HashOverflow, &[name], hash_overflow.0.get());
        }
        if self.fallbacks.0.get() > 0 {
            snapshot.add(Metric::SplitFallbacks, &[name], self.fallbacks.0.get());
        }
        for server in &self.servers {
            let labels = [name, &*server.name];
            if let Some(connect) = server.connect.get() {
                snapshot.add_times(Metric::ConnectSeconds, &labels, connect.snapshot());
            }
            server.first_byte.add_to(snapshot, Metric::FirstByteSeconds, &labels);
            server.total.add_to(snapshot, Metric::ServerSeconds, &labels);
            let connections = Metric::ServerConnections;
            snapshot.add(connections, &[name, &server.name, "new"], server.on_new.0.get());
            snapshot.add(connections, &[name, &server.name, "reused"], server.on_reused.0.get());
            snapshot.add(Metric::Idle, &labels, server.idle.0.get());
            snapshot.add(Metric::RequestsMax, &labels, server.requests_max.0.get());
            snapshot.add(Metric::Slots, &labels, server.slots.0.get());
            snapshot.add(Metric::InFlight, &labels, server.in_flight.0.get());
            if let Some(handshakes) = &server.tls_handshakes {
                handshakes.add_to(snapshot, Metric::ServerTlsHandshakes, &labels);
            }
            if let Some(h2) = &server.h2 {
                h2.add_to(snapshot, labels);
            }
        }
    }
}
