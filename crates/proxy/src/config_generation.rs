//! A plan in force on one core, with its state there: routes, pools, limits, counters. `core`
//! decides which plan new requests follow, and keeps earlier ones.

use std::cell::{OnceCell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use content::site::FileSite;
use rt::cores::CoreId;

use crate::admission::ListenerLimits;
use crate::latency_window::LatencyWindow;
use crate::log::LogNames;
use crate::metrics::Metrics;
use crate::plan::{Action, HedgeDelay, IdVec, ListenerIndex, Plan, PoolId, RoutePlan, RouteSettings};
use crate::pool::{CrossCoreState, Pool, SharedPool};
use crate::route::{Buckets, Limiter, Router};

/// A plan in force on one core.
pub(crate) struct ConfigGeneration {
    pub(crate) plan: Arc<Plan>,
    pub(crate) router: Rc<Router>,
    pub(crate) pools: IdVec<PoolId, Rc<Pool>>,
    /// By route, one for each of its rate limits.
    pub(crate) limiters: Rc<RefCell<Vec<Vec<Limiter>>>>,
    /// True if any route has settings of its own.
    pub(crate) has_route_settings: bool,
    /// By route and listener; empty for a route without settings of its own.
    route_settings: RouteSettingsTable,
    /// By route; opened by its first request. `None` inside: its root could not be opened.
    file_sites: Rc<[OnceCell<Option<FileSite>>]>,
    /// By route; recent response times, if its second attempts depend on them.
    latency_windows: Rc<[Option<RefCell<LatencyWindow>>]>,
    pub(crate) metrics: Metrics,
    pub(crate) log_names: LogNames,
    pub(crate) listener_limits: Vec<Arc<ListenerLimits>>,
}

type RouteSettingsTable = Rc<[Box<[Rc<RouteSettings>]>]>;

impl std::fmt::Debug for ConfigGeneration {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ConfigGeneration").field("pools", &self.pools).finish_non_exhaustive()
    }
}

impl ConfigGeneration {
    /// Puts a plan into force on one core, and takes over unchanged state of the previous one.
    pub(crate) fn new(
        plan: Arc<Plan>,
        shared: &CrossCoreState,
        core_id: CoreId,
        previous: Option<&Self>,
    ) -> Self {
        let pool = |(id, shared): (PoolId, &Arc<SharedPool>)| {
            let name = &plan.pools[id].name;
            let old = previous
                .and_then(|generation| generation.pools.iter().find(|pool| pool.plan().name == *name));
            let old = old.map(|pool| &**pool);
            Rc::new(Pool::new(&plan, id, core_id, Arc::clone(shared), old))
        };
        let pools = shared.pools.enumerate().map(pool).collect();
        let route_limiters = |limits: &Vec<Arc<Buckets>>| limits.iter().cloned().map(Limiter::new).collect();
        let limiters = shared.rate_limits.iter().map(route_limiters).collect();
        let settings_of =
            |route: &RoutePlan| route.settings.by_listener.iter().cloned().map(Rc::new).collect();
        Self {
            router: Rc::new(Router::new(&plan)),
            pools,
            limiters: Rc::new(RefCell::new(limiters)),
            has_route_settings: plan.routes.iter().any(|route| !route.settings.by_listener.is_empty()),
            route_settings: plan.routes.iter().map(settings_of).collect(),
            file_sites: plan.routes.iter().map(|_| OnceCell::new()).collect(),
            latency_windows: plan.routes.iter().map(new_latency_window).collect(),
            metrics: Metrics::new(&plan),
            log_names: LogNames::new(&plan),
            listener_limits: shared.listener_limits.clone(),
            plan,
        }
    }

    /// Returns the same state with `plan`, which differs in the servers of some pools. Shares
    /// everything but those pools.
    pub(crate) fn with_servers_of(&self, plan: Arc<Plan>, shared: &CrossCoreState, core_id: CoreId) -> Self {
        let is_changed = |id: PoolId| !Arc::ptr_eq(&plan.pools[id], &self.plan.pools[id]);
        let pool = |(id, old): (PoolId, &Rc<Pool>)| match is_changed(id) {
            true => {
                let shared = Arc::clone(&shared.pools[id]);
                Rc::new(Pool::new(&plan, id, core_id, shared, Some(old)))
            }
            false => Rc::clone(old),
        };
        Self {
            router: Rc::clone(&self.router),
            pools: self.pools.enumerate().map(pool).collect(),
            limiters: Rc::clone(&self.limiters),
            has_route_settings: self.has_route_settings,
            route_settings: Rc::clone(&self.route_settings),
            file_sites: Rc::clone(&self.file_sites),
            latency_windows: Rc::clone(&self.latency_windows),
            metrics: self.metrics.with_pools_changed(&plan, is_changed),
            log_names: self.log_names.with_pools_of(&plan, is_changed),
            listener_limits: self.listener_limits.clone(),
            plan,
        }
    }

    /// Returns the settings of a route with settings of its own.
    pub(crate) fn route_settings(&self, route: usize, listener: ListenerIndex) -> Option<&Rc<RouteSettings>> {
        self.route_settings.get(route)?.get(listener)
    }

    /// Returns the files of a route; `None`: it has none, or they cannot be opened.
    pub(crate) fn file_site(&self, route: usize) -> Option<&FileSite> {
        let Action::Files(plan) = &self.plan.routes.get(route)?.action else { return None };
        self.file_sites.get(route)?.get_or_init(|| FileSite::open(plan).ok()).as_ref()
    }

    /// Returns the recent response times of a route; `None`: they are not needed.
    pub(crate) fn latency_window(&self, route: usize) -> Option<&RefCell<LatencyWindow>> {
        self.latency_windows.get(route)?.as_ref()
    }

    /// Moves counters of the pools into the metrics: of requests away from their key's server, and of
    /// HTTP/2 connections.
    pub(crate) fn collect_counters(&self) {
        for (id, pool) in self.pools.enumerate() {
            self.metrics.add_hash_overflow(id, pool.take_hash_overflow());
            self.metrics.add_fallbacks(id, pool.take_fallbacks());
            for server in pool.plan().servers.ids() {
                if let Some(counters) = pool.take_http2_counters(server) {
                    self.metrics.add_http2(id, server, &counters);
                }
            }
        }
    }
}

fn new_latency_window(route: &RoutePlan) -> Option<RefCell<LatencyWindow>> {
    let settings = route.settings.by_listener.first()?;
    matches!(settings.hedge, Some(HedgeDelay::Percentile { .. })).then(RefCell::default)
}
