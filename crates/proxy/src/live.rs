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
use crate::route::{Buckets, Router};

/// A plan in force on one core.
pub(crate) struct Live {
    pub(crate) plan: Arc<Plan>,
    pub(crate) router: Router,
    pub(crate) pools: Vec<Rc<Pool>>,
    pub(crate) buckets: RefCell<Vec<Buckets>>,
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
        // A limit that stays is not lifted by a reload.
        let kept = |route: &crate::plan::RoutePlan| {
            let before = before?;
            let at = before.plan.routes.iter().position(|old| old.name == route.name)?;
            (before.plan.routes[at].rate_limit == route.rate_limit).then(|| {
                std::mem::replace(&mut before.buckets.borrow_mut()[at], Buckets::new(seat.1))
            })
        };
        let fresh = || Buckets::new(seat.1);
        let buckets = plan.routes.iter().map(|route| kept(route).unwrap_or_else(fresh)).collect();
        Self {
            router: Router::new(&plan),
            pools,
            buckets: RefCell::new(buckets),
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
