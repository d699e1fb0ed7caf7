//! Metrics of one core: plain cells, read only on request. Recording takes additions and no lookup
//! by name; `Snapshot` adds the names.
//!
//! Metrics belong to one plan. When a reload brings a new plan, a core creates new metrics, and
//! requests under the old plan are still recorded in the old ones. The control thread keeps the old
//! values with `Snapshot::carry_over`.
//!
//! The plan bounds the number of series: a route has one histogram for each of 6 classes, a pool
//! one for each of 7, a server 1 + 2 × 7. Data from clients is never used as a label. A histogram
//! takes 3.1 KiB and is allocated when its first time is recorded.

mod auth;
mod caching;
mod codes;
mod compression;
mod exemplars;
mod exposition;
mod h2;
mod h2_servers;
mod health;
mod histogram;
mod maps;
mod pool;
mod process;
mod reload_results;
pub(crate) mod server_http2_counters;
mod snapshot;
mod subrequests;
mod table;
#[cfg(test)]
mod tests;
mod tls;
mod traffic;
mod view;

use std::cell::{Cell, OnceCell};
use std::num::NonZero;
use std::rc::Rc;

pub(crate) use caching::CacheRefresh;
pub use exposition::{MetricsFormat, render};
pub(crate) use h2::{H2Count, H2Counters};
pub(crate) use h2_servers::Http2Load;
pub use histogram::{FINE_BOUNDS_NS, HistogramSnapshot};
pub use reload_results::ReloadResults;
pub use snapshot::{SeriesValueRef, Snapshot};
pub use table::reference;
pub(crate) use tls::{HandshakeResult, HelloResult};
pub(crate) use traffic::{MirrorDrop, MirrorSide};
pub use view::{MetricTotals, MetricsSummary};

use crate::log::Timers;
use crate::outcome::{EndReason, Outcome, RejectReason};
use crate::plan::{IdVec, Mode, Plan, PoolId, RoutePlan, ServerId};
use auth::AuthCounters;
use codes::{StatusCounters, status_class};
use compression::CompressionCounters;
use exemplars::{ClassExemplars, Exemplar, Exemplars};
use histogram::Histogram;
use pool::PoolMetrics;
use table::Metric;
use tls::{HandshakeCounters, HelloCounters};
use traffic::TrafficMetrics;

/// Label values of the status classes. The index is the first digit of the status, 0 without a
/// response, or [`CLASS_TCP`].
const CLASSES: [&str; 7] = ["none", "1xx", "2xx", "3xx", "4xx", "5xx", "tcp"];
const CLASS_TCP: usize = 6;

/// A histogram for each class, allocated when its first time is recorded.
#[derive(Debug, Default)]
struct ClassHistograms([OnceCell<Box<Histogram>>; CLASSES.len()]);

impl ClassHistograms {
    #[inline]
    fn record(&self, class: usize, time_ns: u64) {
        self.0[class].get_or_init(Box::default).record(time_ns);
    }

    fn add_to(&self, snapshot: &mut Snapshot, metric: Metric, labels: &[&str]) {
        self.add_to_with(snapshot, metric, labels, |_| None);
    }

    fn add_to_with(
        &self,
        snapshot: &mut Snapshot,
        metric: Metric,
        labels: &[&str],
        exemplars: impl Fn(usize) -> Option<Box<Exemplars>>,
    ) {
        for (index, (class, histogram)) in CLASSES.iter().zip(&self.0).enumerate() {
            if let Some(histogram) = histogram.get() {
                let labels: Vec<&str> = labels.iter().chain([class]).copied().collect();
                let times = HistogramSnapshot { exemplars: exemplars(index), ..histogram.snapshot() };
                snapshot.add_times(metric, &labels, times);
            }
        }
    }
}

#[derive(Debug, Default)]
struct CounterCell(Cell<u64>);

impl CounterCell {
    #[inline]
    fn add(&self, number: u64) {
        self.0.set(self.0.get().wrapping_add(number));
    }
}

/// Metrics of one core under one plan. Plans that share parts share the metrics of these parts too.
#[derive(Debug)]
pub(crate) struct Metrics {
    common: Rc<CommonMetrics>,
    pools: IdVec<PoolId, Rc<PoolMetrics>>,
}

/// All metrics but those of the pools.
#[derive(Debug)]
struct CommonMetrics {
    listeners: Vec<ListenerMetrics>,
    routes: Vec<RouteMetrics>,
    /// Times of requests without a route.
    no_route: ClassHistograms,
    no_route_exemplars: ClassExemplars,
    rejected_from_clients: Vec<CounterCell>,
    rejected_from_servers: Vec<CounterCell>,
    refused: Vec<CounterCell>,
    long_texts: CounterCell,
    bandwidth_waits: CounterCell,
    compression: CompressionCounters,
    auth: AuthCounters,
    buffers_in_use: CounterCell,
    buffers_exhausted: CounterCell,
    in_flight: CounterCell,
    subrequests: CounterCell,
    subrequests_refused: CounterCell,
    mirrors_in_flight: CounterCell,
    mirror_bytes: CounterCell,
    abandoned: CounterCell,
    idle_clients: CounterCell,
    idle_memory: CounterCell,
    h2_streams: CounterCell,
}

#[derive(Debug)]
struct ListenerMetrics {
    name: Box<str>,
    is_tcp: bool,
    ends: Vec<CounterCell>,
    codes: StatusCounters,
    bytes_in: CounterCell,
    bytes_out: CounterCell,
    accepted: CounterCell,
    closed: CounterCell,
    open: Cell<u64>,
    /// `None`: its connections are plain.
    tls_handshakes: Option<HandshakeCounters>,
    /// `None`: it does not support HTTP/2.
    h2: Option<H2Counters>,
    /// `None`: it has no `sni`.
    client_hellos: Option<HelloCounters>,
}

#[derive(Debug)]
struct RouteMetrics {
    name: Box<str>,
    total: ClassHistograms,
    exemplars: ClassExemplars,
    /// `None`: its requests are neither copied nor sent twice, and no response is stored.
    traffic: Option<Box<TrafficMetrics>>,
}

fn new_counters(number: usize) -> Vec<CounterCell> {
    std::iter::repeat_with(CounterCell::default).take(number).collect()
}

/// Maximum number of requests that a server may have at a time, and the number that counts toward it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ServerSlots {
    /// 0: unlimited.
    pub max: u64,
    pub(crate) in_use: u64,
}

impl Metrics {
    pub(crate) fn new(plan: &Plan) -> Self {
        let listeners = plan.listeners.iter().map(|listener| ListenerMetrics {
            name: listener.name.clone(),
            is_tcp: matches!(listener.mode, Mode::Tcp(_)),
            ends: new_counters(EndReason::ALL.len()),
            codes: StatusCounters::new(),
            bytes_in: CounterCell::default(),
            bytes_out: CounterCell::default(),
            accepted: CounterCell::default(),
            closed: CounterCell::default(),
            open: Cell::new(0),
            tls_handshakes: listener.tls.as_ref().map(|_| HandshakeCounters::default()),
            h2: listener.http2.as_ref().map(|_| H2Counters::new()),
            client_hellos: listener.sni.as_ref().map(|_| HelloCounters::default()),
        });
        let route = |route: &RoutePlan| RouteMetrics {
            name: route.name.clone(),
            total: ClassHistograms::default(),
            exemplars: ClassExemplars::default(),
            traffic: TrafficMetrics::new(route),
        };
        let common = CommonMetrics {
            listeners: listeners.collect(),
            routes: plan.routes.iter().map(route).collect(),
            no_route: ClassHistograms::default(),
            no_route_exemplars: ClassExemplars::default(),
            rejected_from_clients: new_counters(wire::RefusalKind::ALL.len()),
            rejected_from_servers: new_counters(wire::RefusalKind::ALL.len()),
            refused: new_counters(RejectReason::ALL.len()),
            long_texts: CounterCell::default(),
            bandwidth_waits: CounterCell::default(),
            compression: CompressionCounters::default(),
            auth: AuthCounters::new(plan),
            buffers_in_use: CounterCell::default(),
            buffers_exhausted: CounterCell::default(),
            in_flight: CounterCell::default(),
            subrequests: CounterCell::default(),
            subrequests_refused: CounterCell::default(),
            mirrors_in_flight: CounterCell::default(),
            mirror_bytes: CounterCell::default(),
            abandoned: CounterCell::default(),
            idle_clients: CounterCell::default(),
            idle_memory: CounterCell::default(),
            h2_streams: CounterCell::default(),
        };
        let pools = plan.pools.iter().map(|pool| Rc::new(PoolMetrics::new(pool)));
        Self { common: Rc::new(common), pools: pools.collect() }
    }

    /// Creates metrics for a plan that differs only in the pools for which `is_changed` returns
    /// true. These pools start at 0; all other metrics are shared.
    pub(crate) fn with_pools_changed(&self, plan: &Plan, is_changed: impl Fn(PoolId) -> bool) -> Self {
        let pools = plan.pools.enumerate().zip(&self.pools);
        let pools = pools.map(|((id, pool), old_pool)| match is_changed(id) {
            true => Rc::new(PoolMetrics::new(pool)),
            false => Rc::clone(old_pool),
        });
        Self { common: Rc::clone(&self.common), pools: pools.collect() }
    }

    /// Returns whether the plan of `other` differs only in its servers.
    pub(crate) fn has_same_listeners(&self, other: &Self) -> bool {
        Rc::ptr_eq(&self.common, &other.common)
    }

    /// Counts one completed request or TCP connection. Ignores indices that the plan does not have.
    #[inline]
    pub(crate) fn record(&self, outcome: &Outcome<'_>) {
        let timers = Timers::from_outcome(outcome);
        let Some(listener) = self.common.listeners.get(outcome.listener) else {
            return;
        };
        listener.ends[outcome.end as usize].add(1);
        if !listener.is_tcp {
            listener.codes.record(outcome.status);
        }
        listener.bytes_in.add(outcome.bytes_in);
        listener.bytes_out.add(outcome.bytes_out);
        let class = if listener.is_tcp { CLASS_TCP } else { status_class(outcome.status) };
        if !listener.is_tcp {
            let route = outcome.route.and_then(|route| self.common.routes.get(route));
            let total = route.map_or(&self.common.no_route, |route| &route.total);
            total.record(class, timers.total_ns);
        }
        if let Some(kind) = outcome.refusal {
            match outcome.end {
                EndReason::BadResponse => self.common.rejected_from_servers[kind as usize].add(1),
                _ => self.common.rejected_from_clients[kind as usize].add(1),
            }
        }
        if let Some(pool) = outcome.pool.and_then(|pool| self.pools.get(pool)) {
            pool.record(outcome, &timers, class);
        }
    }

    /// Records the trace of a request that [`Self::record`] has counted and whose spans are exported. `end_unix_ns` is
    /// its end.
    #[cold]
    pub(crate) fn record_exemplar(&self, outcome: &Outcome<'_>, end_unix_ns: u64) {
        // A clock before 1970 has no exemplars.
        let (Some(trace), Some(unix_ns)) = (outcome.trace, NonZero::new(end_unix_ns)) else { return };
        let route = outcome.route.and_then(|route| self.common.routes.get(route));
        let exemplars = route.map_or(&self.common.no_route_exemplars, |route| &route.exemplars);
        let time_ns = Timers::from_outcome(outcome).total_ns;
        let exemplar = Exemplar { trace_id: trace.context.trace_id, time_ns, unix_ns };
        exemplars.record(status_class(outcome.status), exemplar);
    }

    #[inline]
    pub(crate) fn accepted(&self, listener: usize) {
        if let Some(listener_metrics) = self.common.listeners.get(listener) {
            listener_metrics.accepted.add(1);
        }
        self.connection_adopted(listener);
    }

    #[inline]
    pub(crate) fn closed(&self, listener: usize) {
        if let Some(listener_metrics) = self.common.listeners.get(listener) {
            listener_metrics.closed.add(1);
        }
        self.connection_released(listener);
    }

    /// Counts an open client connection that moves to this plan from another one.
    pub(crate) fn connection_adopted(&self, listener: usize) {
        if let Some(listener) = self.common.listeners.get(listener) {
            listener.open.set(listener.open.get() + 1);
        }
    }

    /// Counts an open client connection that moves to another plan.
    pub(crate) fn connection_released(&self, listener: usize) {
        if let Some(listener) = self.common.listeners.get(listener) {
            listener.open.set(listener.open.get().saturating_sub(1));
        }
    }

    /// Counts a client connection that was closed before it was served.
    pub(crate) fn refused(&self, reason: RejectReason) {
        self.common.refused[reason as usize].add(1);
    }

    pub(crate) fn count_bandwidth_wait(&self) {
        self.common.bandwidth_waits.add(1);
    }

    pub(crate) fn count_long_text(&self) {
        self.common.long_texts.add(1);
    }

    /// Sets the number of idle connections that this core keeps to a server.
    pub(crate) fn set_idle(&self, pool: PoolId, server: ServerId, connections: u64) {
        let server = self.pools.get(pool).and_then(|pool| pool.servers.get(server));
        if let Some(server) = server {
            server.idle.0.set(connections);
        }
    }

    /// Sets the slots of a server, which only one core reports.
    pub(crate) fn set_slots(&self, pool: PoolId, server: ServerId, slots: ServerSlots) {
        let server = self.pools.get(pool).and_then(|pool| pool.servers.get(server));
        if let Some(server) = server {
            server.requests_max.0.set(slots.max);
            server.slots.0.set(slots.in_use);
        }
    }

    /// Counts a request that was not retried, because the budget was used up.
    pub(crate) fn retry_denied(&self, pool: PoolId) {
        if let Some(pool) = self.pools.get(pool) {
            pool.retries_denied.add(1);
        }
    }

    /// Counts a request whose client has gone and whose slot its server keeps.
    pub(crate) fn abandoned(&self, pool: PoolId) {
        if let Some(pool) = self.pools.get(pool) {
            pool.abandoned.add(1);
        }
    }

    /// Counts a response that a server completed for a client that had gone before.
    pub(crate) fn wasted(&self, pool: PoolId) {
        if let Some(pool) = self.pools.get(pool) {
            pool.wasted.add(1);
        }
    }

    pub(crate) fn set_in_flight(&self, pool: PoolId, server: ServerId, requests: u64) {
        let server = self.pools.get(pool).and_then(|pool| pool.servers.get(server));
        if let Some(server) = server {
            server.in_flight.0.set(requests);
        }
    }

    /// Sets the number of requests of this core in a pool's queue.
    pub(crate) fn set_queued(&self, pool: PoolId, requests: u64) {
        if let Some(pool) = self.pools.get(pool) {
            pool.queued.0.set(requests);
        }
    }

    /// Counts requests of a pool that did not go to the server of their key.
    pub(crate) fn add_hash_overflow(&self, pool: PoolId, requests: u64) {
        let pool = self.pools.get(pool);
        if let Some(hash_overflow) = pool.and_then(|pool| pool.hash_overflow.as_ref()) {
            hash_overflow.add(requests);
        }
    }

    /// Counts requests of splits that another pool was chosen for.
    pub(crate) fn add_fallbacks(&self, pool: PoolId, requests: u64) {
        if let Some(pool) = self.pools.get(pool) {
            pool.fallbacks.add(requests);
        }
    }

    /// Sets the number of buffers of this core in use, and the number of times that none was left.
    pub(crate) fn set_buffers(&self, in_use: u64, exhausted: u64) {
        self.common.buffers_in_use.0.set(in_use);
        self.common.buffers_exhausted.0.set(exhausted);
    }

    /// Sets the number of client connections between two requests, and their memory in user space.
    pub(crate) fn set_idle_clients(&self, connections: u64, bytes: u64) {
        self.common.idle_clients.0.set(connections);
        self.common.idle_memory.0.set(bytes);
    }

    /// Returns the metrics of this core, by name.
    #[cfg(test)]
    pub(crate) fn snapshot(&self) -> Snapshot {
        self.snapshot_of(&mut |_| true)
    }

    /// Returns the metrics of this core, by name, for the parts that no other plan shares.
    pub(crate) fn snapshot_of_unshared(&self) -> Snapshot {
        let mut snapshot = Snapshot::default();
        if Rc::strong_count(&self.common) == 1 {
            self.common.add_to(&mut snapshot);
        }
        let unshared = self.pools.iter().filter(|pool| Rc::strong_count(pool) == 1);
        unshared.for_each(|pool| pool.add_to(&mut snapshot));
        snapshot
    }

    /// Returns the metrics of the parts for which `is_included` returns true. It gets the address
    /// of each part, by which it can skip parts seen before.
    pub(crate) fn snapshot_of(&self, is_included: &mut impl FnMut(*const ()) -> bool) -> Snapshot {
        let mut snapshot = Snapshot::default();
        if is_included(Rc::as_ptr(&self.common).cast()) {
            self.common.add_to(&mut snapshot);
        }
        for pool in &self.pools {
            if is_included(Rc::as_ptr(pool).cast()) {
                pool.add_to(&mut snapshot);
            }
        }
        snapshot
    }
}

impl CommonMetrics {
    fn add_to(&self, snapshot: &mut Snapshot) {
        for listener in &self.listeners {
            listener.add_to(snapshot);
        }
        for route in &self.routes {
            let exemplars = |class| route.exemplars.snapshot(class);
            route.total.add_to_with(snapshot, Metric::RequestSeconds, &[&route.name], exemplars);
            route.traffic.iter().for_each(|traffic| traffic.add_to(snapshot, &route.name));
        }
        let exemplars = |class| self.no_route_exemplars.snapshot(class);
        self.no_route.add_to_with(snapshot, Metric::RequestSeconds, &["-"], exemplars);
        let senders = [("client", &self.rejected_from_clients), ("server", &self.rejected_from_servers)];
        for (sender, rejected) in senders {
            for (kind, count) in wire::RefusalKind::ALL.iter().zip(rejected) {
                snapshot.add(Metric::MessagesRejected, &[sender, kind.code()], count.0.get());
            }
        }
        for (reason, count) in RejectReason::ALL.iter().zip(&self.refused) {
            snapshot.add(Metric::Refused, &[reason.code()], count.0.get());
        }
        self.compression.add_to(snapshot);
        self.auth.add_to(snapshot);
        for (metric, count) in [
            (Metric::LongTexts, &self.long_texts),
            (Metric::BandwidthWaits, &self.bandwidth_waits),
            (Metric::BuffersInUse, &self.buffers_in_use),
            (Metric::BuffersExhausted, &self.buffers_exhausted),
            (Metric::RequestsInFlight, &self.in_flight),
            (Metric::SubrequestsInFlight, &self.subrequests),
            (Metric::SubrequestsRefused, &self.subrequests_refused),
            (Metric::MirrorsInFlight, &self.mirrors_in_flight),
            (Metric::MirrorMemory, &self.mirror_bytes),
            (Metric::AbandonedRequests, &self.abandoned),
            (Metric::IdleClients, &self.idle_clients),
            (Metric::IdleMemory, &self.idle_memory),
            (Metric::H2StreamsOpen, &self.h2_streams),
            (Metric::SeriesDropped, &CounterCell::default()),
        ] {
            snapshot.add(metric, &[], count.0.get());
        }
    }
}

impl ListenerMetrics {
    fn add_to(&self, snapshot: &mut Snapshot) {
        let name = &*self.name;
        for (end, count) in EndReason::ALL.iter().zip(&self.ends) {
            // Exported from the start, so that the first such end shows as an increase.
            snapshot.add(Metric::Requests, &[name, end.code()], count.0.get());
        }
        if !self.is_tcp {
            self.codes.add_to(snapshot, name);
        }
        for (metric, number) in [
            (Metric::BytesIn, self.bytes_in.0.get()),
            (Metric::BytesOut, self.bytes_out.0.get()),
            (Metric::Accepted, self.accepted.0.get()),
            (Metric::Closed, self.closed.0.get()),
            (Metric::Open, self.open.get()),
        ] {
            snapshot.add(metric, &[name], number);
        }
        if let Some(handshakes) = &self.tls_handshakes {
            handshakes.add_to(snapshot, Metric::TlsHandshakes, &[name]);
        }
        if let Some(h2) = &self.h2 {
            h2.add_to(snapshot, name);
        }
        if let Some(hellos) = &self.client_hellos {
            hellos.add_to(snapshot, name);
        }
    }
}
