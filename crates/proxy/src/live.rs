//! A plan in force on one core, with what belongs to it there: routes, pools, limits, counters. Which
//! one new requests follow, and what becomes of those before, is in `core`.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use crate::admission::Gatekeeper;
use crate::log::Names;
use crate::metrics::Metrics;
use crate::plan::Plan;
use crate::pool::{Pool, Shared};
use crate::route::{Buckets, Limiter, Router};

/// A plan in force on one core.
pub(crate) struct Live {
    pub(crate) plan: Arc<Plan>,
    pub(crate) router: Router,
    pub(crate) pools: Vec<Rc<Pool>>,
    /// By route, where it has a rate limit.
    pub(crate) limiters: RefCell<Vec<Option<Limiter>>>,
    pub(crate) metrics: Metrics,
    pub(crate) names: Names,
    /// By listener.
    pub(crate) keepers: Vec<Arc<Gatekeeper>>,
}

impl std::fmt::Debug for Live {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Live").field("pools", &self.pools).finish_non_exhaustive()
    }
}

impl Live {
    /// Puts a plan into force on one core, taking over what stays of the one before.
    pub(crate) fn new(
        plan: Arc<Plan>,
        shared: &Shared,
        seat: (usize, usize),
        before: Option<&Self>,
    ) -> Self {
        let pool = |(index, shared): (usize, &Arc<crate::pool::SharedPool>)| {
            let name = &plan.pools[index].name;
            let old =
                before.and_then(|live| live.pools.iter().find(|pool| pool.plan().name == *name));
            let old = old.map(|pool| &**pool);
            Rc::new(Pool::new(Arc::clone(&plan), index, seat, Arc::clone(shared), old))
        };
        let pools = shared.pools.iter().enumerate().map(pool).collect();
        let limiter = |limit: &Option<Arc<Buckets>>| limit.clone().map(Limiter::new);
        let limiters = shared.limits.iter().map(limiter).collect();
        Self {
            router: Router::new(&plan),
            pools,
            limiters: RefCell::new(limiters),
            metrics: Metrics::new(&plan),
            names: Names::of(&plan),
            keepers: shared.keepers.clone(),
            plan,
        }
    }

    /// Brings what its pools counted into its metrics.
    pub(crate) fn count_elsewhere(&self) {
        for (index, pool) in self.pools.iter().enumerate() {
            self.metrics.went_elsewhere(index, pool.take_elsewhere());
        }
    }
}
