//! Pool state shared by all cores: the number of requests at each server with a limit, the number
//! of waiting requests, and a wakeup for each core. A request accesses it once at the start and
//! once at the end, and only for servers that have a limit.

use std::io;
use std::os::fd::RawFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};

use rt::clock::MonotonicTime;
use rt::namespace::Namespace;

use super::adaptive::{LatencyWindow, adaptive_plan, initial_limit};
use super::concurrency_limit::{AcquireResult, ConcurrencyLimit, LatencySamples};
use super::cross_core_wakeup::{CoreIndex, CoreWakeups};
use super::eligibility::{AdminState, Eligibility};
use super::outlier_counters::OutlierCounters;
use super::retry_budget::RetryBudget;
use crate::admission::{ListenerLimits, create_listener_limits};
use crate::balance::sticky_table::StickyTable;
use crate::dial::SourceAddresses;
use crate::plan::{IdVec, Plan, PoolId, PoolPlan, RateLimit, RoutePlan, ServerId, ServerPlan, Sticky};
use crate::route::Buckets;

/// State of all pools that all cores share, for one plan.
#[derive(Debug)]
pub struct CrossCoreState {
    pub pools: IdVec<PoolId, Arc<SharedPool>>,
    pub(crate) listener_limits: Vec<Arc<ListenerLimits>>,
    /// Token buckets of the routes that have a rate limit.
    pub(crate) rate_limits: Vec<Vec<Arc<Buckets>>>,
}

#[derive(Debug)]
pub struct SharedPool {
    pool_limit: Arc<ConcurrencyLimit>,
    server_limits: IdVec<ServerId, Arc<ConcurrencyLimit>>,
    retry_budget: Arc<RetryBudget>,
    samples: IdVec<ServerId, Arc<LatencySamples>>,
    eligibilities: IdVec<ServerId, Arc<Eligibility>>,
    outlier_counters: IdVec<ServerId, Arc<OutlierCounters>>,
    queue_counters: Arc<QueueCounters>,
    /// State that the operator gave the pool: that of its servers, also of those to come.
    operator_state: Arc<AtomicU8>,
    wakeups: CoreWakeups,
    /// Opened while that was still permitted.
    namespace: Option<Namespace>,
    sources: Arc<SourceAddresses>,
    /// Servers of sessions; `None`: sessions are not known by a text.
    sticky_table: Option<Arc<StickyTable>>,
}

/// Number of requests of each core that wait for a pool.
#[derive(Debug)]
struct QueueCounters {
    queued: AtomicUsize,
    queued_by_core: Box<[AtomicUsize]>,
    next_core: AtomicUsize,
    /// True while a core decides whether to eject a server.
    is_evaluating: AtomicBool,
}

/// Lock for deciding on ejections; only one core holds it at a time.
pub(super) struct EvaluationGuard<'a>(&'a AtomicBool);

impl Drop for EvaluationGuard<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::SeqCst);
    }
}

impl CrossCoreState {
    /// Creates the state. Takes over the counts of the pools and servers of `previous` that have
    /// the same names.
    ///
    /// # Errors
    /// Fails if a network namespace cannot be opened, or was not open before. Each core has its own
    /// table of descriptors, which only has those that existed when the core started. Then nothing
    /// of `previous` has changed.
    pub fn new(plan: &Plan, wakeups: &CoreWakeups, previous: Option<(&Plan, &Self)>) -> io::Result<Self> {
        let old_pool = |pool: &PoolPlan| {
            previous.and_then(|(plan, shared)| {
                let id = plan.pools.position(|old| old.name == pool.name)?;
                Some((&*plan.pools[id], &shared.pools[id]))
            })
        };
        // First of all, because a namespace that was opened earlier may be inaccessible by now.
        let namespace = |pool: &Arc<PoolPlan>| {
            let Some(name) = &pool.namespace else { return Ok(None) };
            let Some((_, shared)) = previous else { return Namespace::open(name).map(Some) };
            let mut namespaces = shared.pools.iter().filter_map(|pool| pool.namespace.as_ref());
            let existing = namespaces.find(|namespace| namespace.name() == name);
            existing.map(|known| Some(known.clone())).ok_or_else(|| unknown_namespace_error(&pool.name, name))
        };
        let namespaces = plan.pools.iter().map(namespace).collect::<io::Result<Vec<_>>>()?;
        let pool = |(pool, namespace): (&Arc<PoolPlan>, Option<Namespace>)| {
            Arc::new(SharedPool::new(pool, old_pool(pool), wakeups, namespace))
        };
        let pools = plan.pools.iter().zip(namespaces).map(pool).collect();
        let listener_limits = create_listener_limits(
            plan,
            previous.map(|(plan, shared)| (plan, shared.listener_limits.as_slice())),
        );
        Ok(Self {
            pools,
            listener_limits,
            rate_limits: create_rate_limits(plan, wakeups.core_count(), previous),
        })
    }

    /// Returns the state for `plan`, which differs from `previous_plan` only in the servers of some
    /// pools.
    pub fn with_servers_of(&self, plan: &Plan, previous_plan: &Plan) -> Self {
        let plans = plan.pools.iter().zip(&previous_plan.pools);
        let pools = plans.zip(&self.pools).map(|((plan, previous_plan), shared)| {
            if Arc::ptr_eq(plan, previous_plan) {
                return Arc::clone(shared);
            }
            let old = Some((&**previous_plan, shared));
            Arc::new(SharedPool::new(plan, old, &shared.wakeups, shared.namespace.clone()))
        });
        Self {
            pools: pools.collect(),
            listener_limits: self.listener_limits.clone(),
            rate_limits: self.rate_limits.clone(),
        }
    }
}

/// Returns the token buckets of a plan's routes. An unchanged limit keeps its buckets, so that a
/// reload does not reset it.
fn create_rate_limits(
    plan: &Plan,
    cores: usize,
    previous: Option<(&Plan, &CrossCoreState)>,
) -> Vec<Vec<Arc<Buckets>>> {
    let buckets = |route: &RoutePlan, (index, limit): (usize, &RateLimit)| {
        let unchanged = previous.and_then(|(plan, shared)| {
            let old_index = plan.routes.iter().position(|old| old.name == route.name)?;
            let is_same = plan.routes[old_index].rate_limits.get(index) == Some(limit);
            shared.rate_limits.get(old_index).filter(|_| is_same)?.get(index).cloned()
        });
        unchanged.unwrap_or_else(|| Arc::new(Buckets::new(limit, cores)))
    };
    let route_buckets =
        |route: &RoutePlan| route.rate_limits.iter().enumerate().map(|limit| buckets(route, limit)).collect();
    plan.routes.iter().map(route_buckets).collect()
}

/// Returns the concurrency limit of a server. It is kept across reloads, because it counts the
/// server's requests.
fn reuse_or_create_server_limit(
    pool: &PoolPlan,
    server: &ServerPlan,
    old: Option<(&PoolPlan, &Arc<SharedPool>)>,
) -> Arc<ConcurrencyLimit> {
    let max = initial_limit(pool, server);
    let reused = old.and_then(|(plan, shared)| {
        let id = plan.servers.position(|old| old.name == server.name)?;
        let adaptive = adaptive_plan(pool, server);
        let keeps_adaptive = adaptive.is_some() && adaptive_plan(plan, &plan.servers[id]) == adaptive;
        Some((Arc::clone(&shared.server_limits[id]), keeps_adaptive))
    });
    let (limit, keeps_adaptive) = reused.unwrap_or_else(|| (Arc::new(ConcurrencyLimit::new()), false));
    if !keeps_adaptive {
        limit.set_configured(max);
    }
    limit
}

fn reuse_or_create_pool_limit(
    pool: &PoolPlan,
    old: Option<(&PoolPlan, &Arc<SharedPool>)>,
) -> Arc<ConcurrencyLimit> {
    let max = pool.overload_limits.maxconn;
    let reused = old.filter(|(plan, _)| plan.overload_limits.maxconn.is_some() == max.is_some());
    let limit =
        reused.map_or_else(|| Arc::new(ConcurrencyLimit::new()), |(_, old)| Arc::clone(&old.pool_limit));
    limit.set_configured(max);
    limit
}

/// Returns the eligibility and the outlier counters of a server, which an unchanged server keeps.
fn reuse_or_create_server_state(
    server: &ServerPlan,
    old: Option<(&PoolPlan, &Arc<SharedPool>)>,
) -> (Arc<Eligibility>, Arc<OutlierCounters>) {
    let reused = old.and_then(|(plan, shared)| {
        let is_same = |old: &ServerPlan| old.name == server.name && old.address == server.address;
        let id = plan.servers.position(is_same)?;
        Some((Arc::clone(&shared.eligibilities[id]), Arc::clone(&shared.outlier_counters[id])))
    });
    reused.unwrap_or_else(|| (Arc::new(Eligibility::new(server.weight)), Arc::default()))
}

fn unknown_namespace_error(pool: &str, namespace: &Path) -> io::Error {
    let namespace = namespace.display();
    io::Error::other(format!(
        "pool {pool}: the network namespace {namespace} was not in the config when the proxy \
         started; restart the proxy to use it"
    ))
}

impl QueueCounters {
    fn new(cores: usize) -> Self {
        let by_core = (0..cores).map(|_| AtomicUsize::new(0)).collect();
        Self { queued: 0.into(), queued_by_core: by_core, next_core: 0.into(), is_evaluating: false.into() }
    }
}

impl SharedPool {
    /// Creates the state. Takes over the counts of the servers of `old` that have the same names.
    fn new(
        pool: &PoolPlan,
        old: Option<(&PoolPlan, &Arc<Self>)>,
        wakeups: &CoreWakeups,
        namespace: Option<Namespace>,
    ) -> Self {
        let server_limits =
            pool.servers.iter().map(|server| reuse_or_create_server_limit(pool, server, old)).collect();
        let (eligibilities, outlier_counters) =
            pool.servers.iter().map(|server| reuse_or_create_server_state(server, old)).unzip();
        let queue_counters = old.map_or_else(
            || Arc::new(QueueCounters::new(wakeups.core_count())),
            |(_, shared)| Arc::clone(&shared.queue_counters),
        );
        let reused = old.map(|(_, shared)| &shared.retry_budget);
        let reused = reused.filter(|kept| kept.plan() == pool.overload_limits.retry_budget).cloned();
        let retry_budget = reused.unwrap_or_else(|| {
            Arc::new(RetryBudget::new(pool.overload_limits.retry_budget, wakeups.core_count()))
        });
        let sticky_table = pool.sticky.as_ref().and_then(Sticky::text).map(|plan| {
            let kept = old.and_then(|(_, shared)| shared.sticky_table.clone());
            kept.filter(|table| table.is_for(plan)).unwrap_or_else(|| Arc::new(StickyTable::new(plan)))
        });
        let unchanged_sources = old.filter(|(plan, _)| plan.sources == pool.sources);
        let unchanged_sources = unchanged_sources.map(|(_, shared)| shared.sources());
        let operator_state = old.map_or_else(Arc::default, |(_, shared)| Arc::clone(&shared.operator_state));
        let pool = Self {
            pool_limit: reuse_or_create_pool_limit(pool, old),
            server_limits,
            retry_budget,
            samples: pool.servers.iter().map(|_| Arc::default()).collect(),
            eligibilities,
            outlier_counters,
            queue_counters,
            wakeups: wakeups.clone(),
            namespace,
            operator_state,
            sticky_table,
            sources: unchanged_sources.unwrap_or_else(|| Arc::new(SourceAddresses::new(&pool.sources))),
        };
        pool.set_operator_state(pool.operator_state());
        pool
    }

    pub fn operator_state(&self) -> AdminState {
        AdminState::from_index(self.operator_state.load(Ordering::Relaxed))
    }

    /// Sets the state of all of its servers, beside their own. Takes effect with the next
    /// [`SharedPool::recompute`].
    pub fn set_operator_state(&self, state: AdminState) {
        self.operator_state.store(state as u8, Ordering::Relaxed);
        self.eligibilities.iter().for_each(|eligibility| eligibility.set_pool_state(state));
    }

    /// Returns the numbers of its descriptors, which cores with their own descriptor table must
    /// keep.
    pub fn raw_fds(&self) -> Vec<RawFd> {
        self.namespace.iter().flat_map(Namespace::raw_fds).collect()
    }

    /// Returns the network namespace of its servers, if it is not the proxy's own.
    pub fn namespace(&self) -> Option<Namespace> {
        self.namespace.clone()
    }

    pub(crate) fn sticky_table(&self) -> Option<&StickyTable> {
        self.sticky_table.as_deref()
    }

    pub fn sources(&self) -> Arc<SourceAddresses> {
        Arc::clone(&self.sources)
    }

    #[inline]
    pub fn eligibility(&self, server: ServerId) -> &Eligibility {
        &self.eligibilities[server]
    }

    pub fn eligibility_handle(&self, server: ServerId) -> Arc<Eligibility> {
        Arc::clone(&self.eligibilities[server])
    }

    #[inline]
    pub fn outlier_counters(&self, server: ServerId) -> &Arc<OutlierCounters> {
        &self.outlier_counters[server]
    }

    pub(super) fn server_ids(&self) -> impl Iterator<Item = ServerId> + use<> {
        self.eligibilities.ids()
    }

    /// Takes the lock for deciding on ejections. Returns `None` if another core holds it.
    pub(super) fn try_start_evaluation(&self) -> Option<EvaluationGuard<'_>> {
        let flag = &self.queue_counters.is_evaluating;
        (!flag.swap(true, Ordering::SeqCst)).then_some(EvaluationGuard(flag))
    }

    /// Recomputes each server's effective weight: after a change, and once a tick. If no server
    /// would get requests, cancels the ejections, because a server that may fail is better than
    /// none.
    pub fn recompute(&self, plan: &PoolPlan, now: MonotonicTime) {
        let recompute_all = || {
            let servers = plan.servers.iter().zip(&self.eligibilities);
            servers.fold(false, |any, (server, eligibility)| {
                eligibility.recompute(server.weight, plan.slow_start_ns, now);
                any | (eligibility.effective_weight() > 0)
            })
        };
        if recompute_all() {
            return;
        }
        let ejected = self.eligibilities.iter().filter(|eligibility| eligibility.is_recovering());
        if ejected.map(|standing| standing.cancel_ejection(now)).count() > 0 {
            recompute_all();
        }
    }

    /// Sets the configured request limit of a server, if it has one, and returns whether it has.
    /// An operator's limit has precedence.
    pub(crate) fn set_adaptive_max(&self, server: ServerId, max: usize) -> bool {
        let limit = &self.server_limits[server];
        let is_bounded = limit.is_bounded();
        if is_bounded {
            limit.set_configured(Some(max));
        }
        is_bounded
    }

    /// Sets the request limit that the server's agent requests; `None`: none. Each core counts the
    /// requests in flight at its next tick.
    pub fn set_agent_maxconn(&self, server: ServerId, max: Option<usize>) {
        self.server_limits[server].set_agent_max(max);
    }

    /// Returns whether a server could get one more request now.
    pub(crate) fn has_free_slot(&self, server: ServerId) -> bool {
        self.server_limits[server].has_free_slot()
    }

    /// Returns whether a server has fewer requests than a slow start permits of its limit.
    pub(crate) fn is_below_slow_start_limit(&self, server: ServerId, planned_weight: u32) -> bool {
        let (limit, eligibility) = (&self.server_limits[server], self.eligibility(server));
        let (weight, full_weight) = (eligibility.effective_weight(), eligibility.full_weight(planned_weight));
        match limit.max() {
            Some(max) if weight < full_weight => {
                let slow_start_max = max.saturating_mul(weight as usize).div_ceil(full_weight as usize);
                limit.in_flight() < slow_start_max
            }
            _ => true,
        }
    }

    /// Returns whether all servers together could get one more request now.
    #[inline]
    pub(crate) fn has_free_pool_slot(&self) -> bool {
        self.pool_limit.has_free_slot()
    }

    /// Takes a slot at a server. Succeeds if the server and the whole pool have a free slot, and
    /// the server is eligible.
    #[inline]
    pub(crate) fn try_acquire(&self, core: CoreIndex, server: ServerId) -> AcquireResult {
        let result = self.server_limits[server].try_acquire();
        if result == AcquireResult::Full {
            return AcquireResult::Full;
        }
        if self.pool_limit.try_acquire() != AcquireResult::Full {
            if self.eligibilities[server].try_admit() {
                return result;
            }
            self.release_pool_slot();
        }
        if result == AcquireResult::Counted {
            self.server_limits[server].release();
            // A core that checked in the meantime saw a server that seemed to be full.
            if self.pool_limit.has_free_slot() && self.has_queued() {
                self.wake_other(core, false);
            }
        }
        AcquireResult::Full
    }

    /// Releases the slot. Returns whether a request may wait for it.
    #[inline]
    pub(crate) fn release(&self, server: ServerId, was_counted: bool) -> bool {
        let had_pool_limit = self.release_pool_slot();
        if was_counted {
            self.server_limits[server].release();
        }
        was_counted || had_pool_limit
    }

    /// Releases a slot of the pool's own limit. A reload that adds or removes the limit creates
    /// another one, so a request releases its slot at the limit that granted it.
    #[inline]
    fn release_pool_slot(&self) -> bool {
        let is_bounded = self.pool_limit.is_bounded();
        if is_bounded {
            self.pool_limit.release();
        }
        is_bounded
    }

    /// Returns whether a request to this server takes a slot that others may wait for.
    pub(crate) fn has_limit(&self, server: ServerId) -> bool {
        self.pool_limit.is_bounded() || self.server_limits[server].is_bounded()
    }

    /// Returns the maximum number of requests of a server; `None`: unlimited.
    pub fn requests_max(&self, server: ServerId) -> Option<usize> {
        self.server_limits[server].max()
    }

    /// Returns the number of requests that count toward a server's limit.
    pub(crate) fn slots_in_use(&self, server: ServerId) -> usize {
        self.server_limits[server].in_flight()
    }

    /// Returns the maximum number of requests for all servers together; `None`: unlimited.
    pub(crate) fn slots_max(&self) -> Option<usize> {
        let servers_max = self.server_limits.iter().map(|gate| gate.max());
        let servers_max =
            servers_max.reduce(|all, server_max| Some(all?.saturating_add(server_max?))).flatten();
        match (servers_max, self.pool_limit.max()) {
            (Some(servers), Some(pool_max)) => Some(servers.min(pool_max)),
            (servers, whole) => servers.or(whole),
        }
    }

    #[inline]
    pub(crate) fn retry_budget(&self) -> &RetryBudget {
        &self.retry_budget
    }

    /// Returns the samples for a server's adaptive limit.
    #[inline]
    pub(super) fn samples(&self, server: ServerId) -> &LatencySamples {
        &self.samples[server]
    }

    /// Returns the samples of all cores about a server since the last call.
    pub(super) fn take_window(&self, server: ServerId) -> LatencyWindow {
        self.samples[server].take(self.server_limits[server].in_flight())
    }

    /// Returns the number of waiting requests, on all cores.
    pub(crate) fn queued_count(&self) -> usize {
        self.queue_counters.queued.load(Ordering::Relaxed)
    }

    /// Sets a server's request limit until the process ends; `None`: the configured one. Requests
    /// in flight are not affected; a server above a lowered limit gets new ones once it is below.
    pub fn set_maxconn(&self, server: ServerId, operator_max: Option<usize>, planned: Option<usize>) {
        self.server_limits[server].set_operator_max(operator_max);
        self.server_limits[server].set_configured(planned);
    }

    /// Returns the limit that an operator set at run time.
    pub fn operator_maxconn(&self, server: ServerId) -> Option<usize> {
        self.server_limits[server].operator_max()
    }

    pub(crate) fn has_server_limit(&self, server: ServerId) -> bool {
        self.server_limits[server].is_bounded()
    }

    /// Counts requests that were at a server before it had a limit.
    pub(crate) fn add_in_flight(&self, server: ServerId, requests: usize) {
        self.server_limits[server].add_in_flight(requests);
    }

    /// Counts one more waiting request, unless there are already `limit`.
    pub(crate) fn join_queue(&self, core: CoreIndex, limit: usize) -> bool {
        let has_joined = self
            .queue_counters
            .queued
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |now| (now < limit).then_some(now + 1))
            .is_ok();
        if has_joined {
            self.queue_counters.queued_by_core[core.0].fetch_add(1, Ordering::SeqCst);
        }
        has_joined
    }

    /// Counts one waiting request less.
    pub(crate) fn leave_queue(&self, core: CoreIndex) {
        self.queue_counters.queued.fetch_sub(1, Ordering::SeqCst);
        self.queue_counters.queued_by_core[core.0].fetch_sub(1, Ordering::SeqCst);
    }

    /// Returns whether a request of any core waits.
    pub(crate) fn has_queued(&self) -> bool {
        self.queue_counters.queued.load(Ordering::SeqCst) > 0
    }

    /// Wakes a core with waiting requests, if its turn is before that of `core`. `has_own_queued`:
    /// `core` has waiting requests itself. After a reload a core also wakes itself, because
    /// requests wait in the queue of another [`super::Pool`].
    pub(crate) fn wake_other(&self, core: CoreIndex, has_own_queued: bool) -> bool {
        let cores = self.queue_counters.queued_by_core.len();
        let first = self.queue_counters.next_core.fetch_add(1, Ordering::Relaxed);
        for step in 0..cores {
            let other = CoreIndex((first + step) % cores);
            if other == core && has_own_queued {
                return false;
            }
            if self.queue_counters.queued_by_core[other.0].load(Ordering::SeqCst) > 0 {
                self.wakeups.wake(other);
                return true;
            }
        }
        false
    }
}
