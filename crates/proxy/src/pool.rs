//! A pool as seen by one core: its servers, their idle connections, and the core's requests that
//! wait for a slot. The state that all cores share is in `shared`.
//!
//! ```text
//!              free slot                     connection
//! request -> acquire ----------------> server -> idle or new one -> request in flight -> release
//!              | none                    ^                                                 |
//!              v                         | granted                                         |
//!            queue (bounded in length and age, order: see `queue`) <------------------------'
//! ```

mod adaptive;
mod codel;
mod concurrency_limit;
mod cross_core_wakeup;
mod eligibility;
mod outlier_counters;
mod queue;
mod retry_budget;
mod shared;
mod wait_queue;

use std::cell::{Cell, OnceCell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use rt::clock::MonotonicTime;
use rt::cores::CoreId;
use rt::namespace::Namespace;
use rt::tls::ClientTls;

pub use cross_core_wakeup::{CoreIndex, CoreWakeups};
pub use eligibility::{AdminState, CheckStatus, Eligibility, LastCheck};
pub use outlier_counters::OutlierCounters;
pub(crate) use queue::NO_DEADLINE;
pub use shared::{CrossCoreState, SharedPool};
pub(crate) use wait_queue::{EnqueueError, EnqueueRequest, Ticket, TicketState};

use adaptive::AdaptiveLimit;
use concurrency_limit::AcquireResult;
use queue::{Queue, QueueRules};

use crate::balance::sticky::ServerTokens;
use crate::balance::sticky_table::server_part;
use crate::balance::{BalanceInput, Candidate, PeakEwma, RoundRobinState, choose};
use crate::dial::SourceAddresses;
use crate::key_digest::digest;
use crate::metrics::Http2Load;
use crate::metrics::server_http2_counters::ServerHttp2Counters;
use crate::outcome::Outcome;
use crate::outcome::StickyLookup;
use crate::outlier::{FailureSignal, classify_status};
use crate::plan::{
    Balance, IdVec, Plan, PoolId, PoolPlan, PoolTls, QueuePlan, Reuse, ServerId, ServerPlan, Sticky,
};
use crate::server_conn::ServerConn;
use crate::server_conn::http2::ServerConnections;

/// A pool as seen by one core.
#[derive(Debug)]
pub(crate) struct Pool {
    plan: Arc<PoolPlan>,
    id: PoolId,
    core: CoreIndex,
    shared: Arc<SharedPool>,
    servers: IdVec<ServerId, Rc<CoreServer>>,
    round_robin_state: RefCell<RoundRobinState>,
    /// Digests of the servers' names, for selection by a key.
    name_digests: IdVec<ServerId, u64>,
    /// Tokens of the servers in sticky cookies.
    tokens: Option<ServerTokens>,
    has_backups: bool,
    /// Requests that did not go to the server of their key, since the last call of
    /// `take_hash_overflow`.
    hash_overflow: Cell<u64>,
    /// Requests of splits whose own pool had no usable server, since the last call of `take_fallbacks`.
    fallbacks: Cell<u64>,
    /// Time of the last operation here.
    now: Cell<MonotonicTime>,
    queue: RefCell<Queue<Rc<Ticket>>>,
    /// Recent average time from a request's dispatch to its response's first byte.
    service_ns: Cell<u64>,
    /// Adaptive limits of the servers; only on the first core.
    adaptive_limits: RefCell<IdVec<ServerId, AdaptiveLimit>>,
    /// Maximum number of idle connections that this core may keep to each server.
    idle_max: usize,
    /// True if failures of servers are evaluated.
    detects_outliers: bool,
    /// Time when the windows of error rates end; checked by the first core.
    window_end: Cell<MonotonicTime>,
}

/// A server as seen by one core.
#[derive(Debug, Default)]
pub(crate) struct CoreServer {
    in_flight: Cell<usize>,
    /// Only maintained if the balancing algorithm uses it.
    latency: Cell<PeakEwma>,
    /// Number of those requests that count toward the server's limit. While it has a limit, all new
    /// requests count; while it has none, none do. It makes no difference which request leaves
    /// first.
    counted_in_flight: Cell<usize>,
    /// Idle connections. The most recently used one is at the end, and is used first.
    idle_conns: RefCell<Vec<ServerConn>>,
    outlier_window: outlier_counters::CoreOutlierWindow,
    /// Created for its first TLS connection.
    client_tls: OnceCell<ClientTls>,
    /// Created for its first HTTP/2 connection.
    http2: OnceCell<Rc<ServerConnections>>,
}

/// A request's requirements on the server of a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ServerRequirements {
    /// Digest of the key, if the server is selected by one.
    pub(crate) key: Option<u64>,
    /// Server to which the client sticks. No other one is used while it is up.
    pub(crate) pinned: Option<ServerId>,
    /// Time at which the client's cookie got its server, in seconds since 1970; 0: it has no such time.
    pub(crate) pinned_since_s: u32,
    /// Server that has just failed the request.
    pub(crate) avoid: Option<ServerId>,
}

impl Pool {
    /// Creates the pool. Takes over idle connections and counts of the servers that `before`, the
    /// previous state of the same pool, has in common with it.
    pub(crate) fn new(
        plan: &Plan,
        id: PoolId,
        core_id: CoreId,
        shared: Arc<SharedPool>,
        previous: Option<&Self>,
    ) -> Self {
        let pool_plan = &plan.pools[id];
        let plan = Arc::clone(pool_plan);
        let server = |server: &ServerPlan| {
            let reused = previous.and_then(|before| {
                let is_same = |old: &ServerPlan| old.name == server.name && old.address == server.address;
                let old_id = before.plan().servers.position(is_same)?;
                let is_usable = pool_plan.shares_connections_with(before.plan());
                is_usable.then(|| Rc::clone(&before.servers[old_id]))
            });
            reused.unwrap_or_default()
        };
        let servers: IdVec<_, _> = pool_plan.servers.iter().map(server).collect();
        let round_robin_state = RefCell::new(RoundRobinState::new(servers.len()));
        let idle_max = pool_plan.idle_max.div_ceil(core_id.count);
        let name_digests = pool_plan.servers.iter().map(|server| digest(server.name.as_bytes())).collect();
        let server_names = pool_plan.servers.iter().map(|server| &*server.name);
        let tokens = pool_plan
            .sticky
            .as_ref()
            .and_then(Sticky::cookie)
            .map(|sticky| ServerTokens::new(&sticky.key, &pool_plan.name, server_names));
        let has_backups = pool_plan.servers.iter().any(|server| server.backup);
        let QueuePlan { timeout_ns, order, standing_after_ns: stands_after_ns, .. } = pool_plan.queue;
        let queue =
            RefCell::new(Queue::new(QueueRules { order, timeout_ns, standing_after_ns: stands_after_ns }));
        let service_ns = previous.map_or(0, |before| before.service_ns.get());
        let adaptive_limits = RefCell::new(wait_queue::adaptive_limits(pool_plan, previous));
        let detects_outliers = pool_plan.outlier.is_on();
        Self {
            plan,
            id,
            core: CoreIndex(core_id.index),
            shared,
            servers,
            round_robin_state,
            name_digests,
            tokens,
            has_backups,
            hash_overflow: Cell::new(0),
            fallbacks: Cell::new(0),
            now: Cell::new(MonotonicTime::ZERO),
            queue,
            service_ns: Cell::new(service_ns),
            adaptive_limits,
            idle_max,
            detects_outliers,
            window_end: Cell::new(MonotonicTime::ZERO),
        }
    }

    pub(crate) fn plan(&self) -> &PoolPlan {
        &self.plan
    }

    /// Returns the state that an operator gave to the pool.
    pub(crate) fn operator_state(&self) -> AdminState {
        self.shared.operator_state()
    }

    /// Returns the network namespace of its servers, if it is not the proxy's own.
    pub(crate) fn namespace(&self) -> Option<Namespace> {
        self.shared.namespace()
    }

    pub(crate) fn sources(&self) -> Arc<SourceAddresses> {
        self.shared.sources()
    }

    /// Returns the kind of connections that a request may use. A connection with a PROXY header can
    /// only carry requests of the client in that header.
    pub(crate) fn reuse(&self) -> Reuse {
        match self.plan().send_proxy_protocol {
            Some(_) => Reuse::Never,
            None => self.plan().reuse,
        }
    }

    pub(crate) fn id(&self) -> PoolId {
        self.id
    }

    /// Returns the state of a server. It stays the same object across reloads as long as
    /// connections to the server may be kept.
    pub(crate) fn server(&self, id: ServerId) -> &Rc<CoreServer> {
        &self.servers[id]
    }

    /// Returns the servers' tokens for sticky cookies.
    pub(crate) fn tokens(&self) -> Option<&ServerTokens> {
        self.tokens.as_ref()
    }

    /// Returns the server to which a session sticks, or the reason why there is none.
    pub(crate) fn find_session(&self, key: u64, now: MonotonicTime) -> Result<ServerId, StickyLookup> {
        let table = self.shared.sticky_table().ok_or(StickyLookup::Missing)?;
        let server = table.find(key, now).ok_or(StickyLookup::Missing)?;
        self.name_digests.position(|digest| server_part(*digest) == server).ok_or(StickyLookup::Unknown)
    }

    /// Remembers the server of a session. `lookup` is the result for the request.
    pub(crate) fn remember_session(&self, key: u64, server: ServerId, lookup: Option<StickyLookup>) {
        if let Some(table) = self.shared.sticky_table() {
            // The first of several requests at a time decides, unless the server is gone.
            let replaces = lookup != Some(StickyLookup::Missing);
            table.remember(key, self.name_digests[server], replaces, self.now.get());
        }
    }

    /// Returns whether a server still gets requests of clients that stick to it.
    pub(crate) fn accepts_sticky(&self, server: ServerId, now: MonotonicTime) -> bool {
        self.shared.eligibility(server).accepts_request(now)
    }

    /// Returns whether the balancing algorithm uses response times.
    pub(crate) fn uses_latency(&self) -> bool {
        self.plan().balance == Balance::Latency
    }

    pub(crate) fn record_latency(&self, server: ServerId, sample_ns: u64, now: MonotonicTime) {
        let latency = &self.servers[server].latency;
        latency.set(latency.get().with_sample(sample_ns, now));
    }

    /// Returns the number of requests that did not go to the server of their key, since the last
    /// call.
    pub(crate) fn take_hash_overflow(&self) -> u64 {
        self.hash_overflow.take()
    }

    /// Counts a request of a split whose own pool had no usable server.
    pub(crate) fn count_fallback(&self) {
        self.fallbacks.set(self.fallbacks.get() + 1);
    }

    pub(crate) fn take_fallbacks(&self) -> u64 {
        self.fallbacks.take()
    }

    /// Takes a slot at a server. Returns `None` if there is none, or if other requests already wait
    /// for the same.
    pub(crate) fn acquire(
        &self,
        requirements: ServerRequirements,
        now: MonotonicTime,
        rng: &mut fastrand::Rng,
    ) -> Option<ServerId> {
        self.now.set(now);
        let effective_pin = self.effective_pin(requirements);
        let waits_for_same = {
            let queue = self.queue.borrow();
            // Requests pinned to a full server do not block requests for the others.
            let waits_for_same_pin =
                |other: &Rc<Ticket>| self.effective_pin(other.requirements()) == effective_pin;
            !queue.is_empty() && (self.plan().sticky.is_none() || queue.any(waits_for_same_pin))
        };
        if waits_for_same {
            return None;
        }
        self.try_acquire(requirements, rng)
    }

    /// Takes a slot at another server than `first`, for a second attempt. Returns `None` if there is none now, if other
    /// requests wait for a slot, or if the client sticks to its server.
    pub(crate) fn acquire_other(
        &self,
        first: ServerId,
        requirements: ServerRequirements,
        now: MonotonicTime,
        rng: &mut fastrand::Rng,
    ) -> Option<ServerId> {
        if self.servers.len() == 1 || requirements.pinned.is_some() {
            return None;
        }
        let requirements = ServerRequirements { avoid: Some(first), ..requirements };
        let server = self.acquire(requirements, now, rng)?;
        if server == first {
            self.release(server, rng);
            return None;
        }
        Some(server)
    }

    /// Returns the only acceptable server, if the request is pinned to one.
    fn effective_pin(&self, requirements: ServerRequirements) -> Option<ServerId> {
        let now = self.now.get();
        requirements
            .pinned
            .filter(|server| requirements.avoid != Some(*server) && self.accepts_sticky(*server, now))
    }

    fn try_acquire(&self, requirements: ServerRequirements, rng: &mut fastrand::Rng) -> Option<ServerId> {
        if !self.shared.has_free_pool_slot() {
            return None;
        }
        if let Some(server) = self.effective_pin(requirements) {
            return self.take_slot(server).then_some(server);
        }
        if self.servers.len() == 1 {
            let only = ServerId(0);
            let usable = self.shared.eligibility(only).effective_weight() > 0 && self.take_slot(only);
            return usable.then_some(only);
        }
        let plan = self.plan();
        let input = BalanceInput {
            balance: plan.balance,
            key: requirements.key,
            name_digests: &self.name_digests,
            load_factor: plan.hash.load_factor,
            now: self.now.get(),
        };
        let round_robin_state = &mut *self.round_robin_state.borrow_mut();
        let use_backups = self.has_backups && !self.has_usable(false);
        // Another core may take the last slot between the check and the attempt, so this retries.
        for _ in 0..=self.servers.len() {
            let choose = |avoid: Option<ServerId>,
                          round_robin_state: &mut RoundRobinState,
                          rng: &mut fastrand::Rng| {
                let candidate = |id: ServerId| self.candidate(id, avoid, use_backups);
                choose(input, self.servers.len(), candidate, round_robin_state, rng)
            };
            let chosen = match choose(requirements.avoid, round_robin_state, rng) {
                // The server that has failed is better than none.
                None if requirements.avoid.is_some() => choose(None, round_robin_state, rng)?,
                chosen => chosen?,
            };
            if self.take_slot(chosen.server) {
                let hash_overflow = u64::from(chosen.is_hash_overflow);
                self.hash_overflow.set(self.hash_overflow.get() + hash_overflow);
                return Some(chosen.server);
            }
        }
        None
    }

    fn candidate(&self, id: ServerId, avoid: Option<ServerId>, use_backups: bool) -> Candidate {
        let server = &self.plan().servers[id];
        let weight = self.shared.eligibility(id).effective_weight();
        let fills_in_order = self.plan().balance == Balance::First;
        Candidate {
            weight: if server.backup == use_backups { weight } else { 0 },
            in_flight: self.servers[id].in_flight.get(),
            is_available: avoid != Some(id) && self.shared.has_free_slot(id),
            is_below_slow_start_limit: !fills_in_order
                || self.shared.is_below_slow_start_limit(id, server.weight),
            latency: self.servers[id].latency.get(),
        }
    }

    /// Returns whether any of the backups, or of the other servers, may get requests.
    fn has_usable(&self, use_backups: bool) -> bool {
        let servers = self.plan().servers.enumerate();
        let mut candidates = servers.filter(|(_, server)| server.backup == use_backups);
        candidates.any(|(id, _)| self.shared.eligibility(id).effective_weight() > 0)
    }

    fn take_slot(&self, id: ServerId) -> bool {
        let server = &self.servers[id];
        match self.shared.try_acquire(self.core, id) {
            AcquireResult::Full => return false,
            AcquireResult::Uncounted => {}
            AcquireResult::Counted => server.counted_in_flight.set(server.counted_in_flight.get() + 1),
        }
        server.in_flight.set(server.in_flight.get() + 1);
        true
    }

    /// Counts requests at servers that have got a limit since the requests started.
    pub(crate) fn count_unlimited_requests(&self) {
        for (id, server) in self.servers.enumerate() {
            let uncounted = server.in_flight.get().saturating_sub(server.counted_in_flight.get());
            if uncounted > 0 && self.shared.has_server_limit(id) {
                self.shared.add_in_flight(id, uncounted);
                server.counted_in_flight.set(server.in_flight.get());
            }
        }
    }

    /// Returns whether any server may get this request, now or once it has a free slot.
    pub(crate) fn has_usable_server(&self, requirements: ServerRequirements) -> bool {
        self.effective_pin(requirements).is_some() || self.has_usable(false) || self.has_usable(true)
    }

    /// Records the result of a completed request for its server's outlier detection.
    // Other callers are rare, and must not keep the path of each request from being one function.
    #[inline(always)]
    pub(crate) fn record_outcome(&self, outcome: &Outcome<'_>) {
        if let Some(server) = outcome.server.filter(|_| self.detects_outliers) {
            let window = &self.servers[server].outlier_window;
            self.shared.record_outcome(&self.plan().outlier, server, window, outcome);
        }
    }

    /// Records that a request could not connect to a server and goes to another one.
    pub(crate) fn note_unreachable(&self, server: ServerId, now: MonotonicTime) {
        if self.detects_outliers {
            self.shared.record_signal(&self.plan().outlier, server, FailureSignal::Failure, now);
        }
    }

    /// Counts a response that is replaced by that of another server.
    pub(crate) fn note_retried_status(&self, server: ServerId, status: u16, now: MonotonicTime) {
        if self.detects_outliers {
            let signal = classify_status(status, &self.plan().outlier);
            self.shared.record_signal(&self.plan().outlier, server, signal, now);
        }
    }

    /// Completes the probe if the server's response is successful. `status` is 0 if there is none.
    #[inline]
    pub(crate) fn note_response(&self, server: ServerId, status: u16, now: MonotonicTime) {
        let eligibility = self.shared.eligibility(server);
        let errors_max = self.plan().outlier.errors;
        if eligibility.is_recovering()
            && (errors_max.is_none()
                || classify_status(status, &self.plan().outlier) == FailureSignal::Success)
        {
            eligibility.complete_probe(now);
        }
    }

    /// Publishes this core's observations of its servers. The first core also evaluates them.
    pub(crate) fn evaluate_outliers(&self, now: MonotonicTime) {
        if !self.detects_outliers {
            return;
        }
        for (id, server) in self.servers.enumerate() {
            server.outlier_window.publish(self.shared.outlier_counters(id));
        }
        let window_end = self.window_end.get();
        if self.core == CoreIndex(0) && now >= window_end {
            let plan = &self.plan().outlier;
            self.window_end.set(now + plan.window_ns);
            // The counts before the first window cover an unknown time.
            if window_end > MonotonicTime::ZERO {
                self.shared.evaluate_windows(plan, now);
            }
        }
    }

    /// Recomputes each server's effective weight.
    pub(crate) fn recompute(&self, now: MonotonicTime) {
        self.update_adaptive_limits();
        self.shared.recompute(self.plan(), now);
    }

    /// Releases a slot, and wakes a core whose requests wait for one.
    pub(crate) fn release(&self, server: ServerId, rng: &mut fastrand::Rng) {
        let CoreServer { in_flight, counted_in_flight, .. } = &*self.servers[server];
        in_flight.set(in_flight.get().saturating_sub(1));
        let was_counted = counted_in_flight.get() > in_flight.get();
        if was_counted {
            counted_in_flight.set(counted_in_flight.get() - 1);
        }
        if self.shared.release(server, was_counted) && self.shared.has_queued() {
            let has_own_queued = !self.queue.borrow().is_empty();
            if !self.shared.wake_other(self.core, has_own_queued) {
                self.serve_queue(rng);
            }
        }
    }

    /// Returns the most recently used idle connection that accepts a request. Closes others.
    pub(crate) fn take_idle(&self, server: ServerId) -> Option<ServerConn> {
        let idle_conns = &self.servers[server].idle_conns;
        loop {
            let mut conn = idle_conns.borrow_mut().pop()?;
            if conn.accepts_request() {
                return Some(conn);
            }
        }
    }

    /// Keeps a connection for the next request, unless there are enough.
    pub(crate) fn keep_idle(&self, server: ServerId, conn: ServerConn, now: MonotonicTime) {
        let offered = match conn.http2 {
            Some(_) => self.servers[server].http2().offer(conn),
            None => Some(conn),
        };
        let Some(mut conn) = offered else { return };
        let mut idle_conns = self.servers[server].idle_conns.borrow_mut();
        conn.idle_since = now;
        if idle_conns.len() < self.idle_max {
            idle_conns.push(conn);
        }
    }

    /// Closes idle connections that are dead or too old.
    pub(crate) fn sweep_idle(&self, now: MonotonicTime) {
        let timeout_ns = self.plan().idle_timeout_ns;
        for (id, server) in self.servers.enumerate() {
            let mut idle_conns = server.idle_conns.borrow_mut();
            // A server in maintenance must not keep connections of the proxy.
            let is_in_maintenance = self.shared.eligibility(id).admin_state() == AdminState::Maintenance;
            idle_conns.retain_mut(|conn| {
                let is_young = now.since(conn.idle_since) < timeout_ns;
                is_young && !is_in_maintenance && conn.is_alive()
            });
            if is_in_maintenance {
                server.http2.get().inspect(|http2| http2.drain());
            }
        }
    }

    /// Closes the idle connections of servers that no other pool has.
    pub(crate) fn close_idle_of_removed(&self) {
        for server in self.servers.iter().filter(|server| Rc::strong_count(server) == 1) {
            server.idle_conns.borrow_mut().clear();
            server.http2.get().inspect(|http2| http2.drain());
        }
    }

    /// Returns the number of this core's requests at all servers.
    pub(crate) fn in_flight(&self) -> usize {
        self.servers.iter().map(|server| server.in_flight.get()).sum()
    }

    pub(crate) fn in_flight_at(&self, server: ServerId) -> usize {
        self.servers[server].in_flight.get()
    }
}

#[cfg(test)]
mod selection_tests;
impl CoreServer {
    /// Returns the TLS settings for new connections of this core. They keep the sessions of this
    /// server: another one with the same name would not resume them.
    pub(crate) fn client_tls(&self, plan: &PoolTls) -> ClientTls {
        self.client_tls.get_or_init(|| plan.client.for_one_server()).clone()
    }

    /// Returns the HTTP/2 connections of this core to the server.
    pub(crate) fn http2(&self) -> &Rc<ServerConnections> {
        self.http2.get_or_init(Rc::default)
    }
}

impl Pool {
    /// Does the same as [`Pool::take_idle`] if the idle connections are streams of HTTP/2 connections. A
    /// server reports which of those it has not processed.
    pub(crate) fn take_idle_stream(&self, server: ServerId) -> Option<ServerConn> {
        let is_stream = |conn: &ServerConn| conn.http2.is_some();
        let has_streams = self.servers[server].idle_conns.borrow().last().is_some_and(is_stream);
        if has_streams { self.take_idle(server) } else { None }
    }

    /// Returns the number of idle connections to a server: of HTTP/2 those without a stream.
    pub(crate) fn idle_connections(&self, server: ServerId) -> usize {
        let server = &self.servers[server];
        let idle_conns = server.idle_conns.borrow();
        let idle_http11 = idle_conns.iter().filter(|conn| conn.http2.is_none()).count();
        idle_http11 + server.http2.get().map_or(0, |http2| http2.idle())
    }

    /// Returns the HTTP/2 connections to a server that are in use.
    pub(crate) fn http2_load(&self, server: ServerId) -> Http2Load {
        self.servers[server].http2.get().map_or_else(Http2Load::default, |http2| http2.load())
    }

    /// Returns the counters of HTTP/2 connections to a server, since the last call.
    pub(crate) fn take_http2_counters(&self, server: ServerId) -> Option<ServerHttp2Counters> {
        self.servers[server].http2.get().map(|http2| http2.take_counters())
    }
}

#[cfg(test)]
mod tests;
