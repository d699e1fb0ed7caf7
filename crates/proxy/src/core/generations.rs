//! The configurations that requests of a core follow: the one in force, earlier ones with requests in
//! flight, and the counters of those that are over.

use std::cell::{Ref, RefCell};
use std::rc::Rc;

use crate::config_generation::ConfigGeneration;
use crate::metrics::Snapshot;
use crate::pool::Pool;

/// The configurations of one core.
#[derive(Debug)]
pub(super) struct Generations {
    current: RefCell<Rc<ConfigGeneration>>,
    /// Earlier plans under which requests may still be in flight.
    retired: RefCell<Vec<Rc<ConfigGeneration>>>,
    past_counters: RefCell<Snapshot>,
}

impl Generations {
    pub(super) fn new(generation: ConfigGeneration) -> Self {
        let current = RefCell::new(Rc::new(generation));
        Self { current, retired: RefCell::default(), past_counters: RefCell::default() }
    }

    /// Returns the one that new requests follow.
    #[inline]
    pub(super) fn current(&self) -> Ref<'_, Rc<ConfigGeneration>> {
        self.current.borrow()
    }

    /// Puts `generation` into force for new requests.
    pub(super) fn replace(&self, generation: ConfigGeneration) {
        let previous = self.current.replace(Rc::new(generation));
        self.retired.borrow_mut().push(previous);
    }

    /// Visits all pools. Those of earlier plans come first, because requests may still wait in
    /// their queues.
    pub(super) fn for_each_pool(&self, mut visit: impl FnMut(&Pool)) {
        let generation = Rc::clone(&self.current());
        for retired in &*self.retired.borrow() {
            let is_current = |id, pool| generation.pools.get(id).is_some_and(|now| Rc::ptr_eq(now, pool));
            let retired_only = retired.pools.enumerate().filter(|&(id, pool)| !is_current(id, pool));
            retired_only.for_each(|(_, pool)| visit(pool));
        }
        generation.pools.iter().for_each(|pool| visit(pool));
    }

    /// Returns the counters under the plan in force and earlier ones.
    pub(super) fn snapshot(&self) -> Snapshot {
        self.absorb_retired();
        let mut counted = Vec::new();
        let mut is_first_use = |counter| {
            let is_new = !counted.contains(&counter);
            counted.extend(is_new.then_some(counter));
            is_new
        };
        let mut snapshot = self.current().metrics.snapshot_of(&mut is_first_use);
        for generation in self.retired.borrow().iter() {
            snapshot.carry_over(&generation.metrics.snapshot_of(&mut is_first_use));
        }
        snapshot.carry_over(&self.past_counters.borrow());
        snapshot.add_generations(self.count());
        snapshot
    }

    /// Returns the number of configurations that requests follow: the one in force, and earlier
    /// ones with requests in flight.
    fn count(&self) -> u64 {
        let (generation, retired) = (self.current(), self.retired.borrow());
        let all: Vec<&Rc<ConfigGeneration>> = retired.iter().chain([&*generation]).collect();
        let is_first =
            |at: usize| !all[..at].iter().any(|other| other.metrics.has_same_listeners(&all[at].metrics));
        (0..all.len()).filter(|at| is_first(*at)).count() as u64
    }

    /// Keeps the counters of earlier plans that have no requests in flight any more.
    pub(super) fn absorb_retired(&self) {
        let current = Rc::clone(&self.current());
        let mut retired = self.retired.borrow_mut();
        retired.retain(|generation| {
            generation.collect_counters();
            let done = Rc::strong_count(generation) == 1;
            if done {
                // Connections to removed servers are closed, as nothing else checks them any more.
                let unused_pools = generation
                    .pools
                    .iter()
                    .filter(|pool| !current.pools.iter().any(|now| Rc::ptr_eq(now, pool)));
                unused_pools.for_each(|pool| pool.close_idle_of_removed());
                let mut counters = generation.metrics.snapshot_of_unshared();
                counters.carry_over(&self.past_counters.borrow());
                *self.past_counters.borrow_mut() = counters;
            }
            !done
        });
    }
}
