//! What all cores share of the pools: how many requests each bounded server has, how many wait, and
//! a bell for each core. Touched once at the start and once at the end of a request, and only for
//! servers that have a bound.

use std::io;
use std::os::fd::RawFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rt::namespace::Namespace;
use rt::tokio::sync::Notify;

use super::standing::Standing;
use crate::plan::{Plan, PoolPlan};

/// What all cores share of all pools, for one plan.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) pools: Vec<Arc<SharedPool>>,
}

/// A bell for each core: rung when room came up elsewhere that it may wait for.
#[derive(Clone, Debug)]
pub(crate) struct Bells(Arc<[Notify]>);

/// What all cores share of one pool.
#[derive(Debug)]
pub(crate) struct SharedPool {
    gates: Vec<Arc<Gate>>,
    standings: Vec<Arc<Standing>>,
    line: Arc<Line>,
    bells: Bells,
    /// Opened while that was still allowed.
    namespace: Option<Namespace>,
}

/// How many requests a server has and may have, on all cores.
#[derive(Debug)]
struct Gate {
    max: AtomicUsize,
    in_flight: AtomicUsize,
}

/// How many requests of each core wait for a pool.
#[derive(Debug)]
struct Line {
    waiting: AtomicUsize,
    by_core: Box<[AtomicUsize]>,
    turn: AtomicUsize,
}

/// The bound of a server that has none.
const UNBOUNDED: usize = usize::MAX;

impl Bells {
    pub(crate) fn new(cores: usize) -> Self {
        Self((0..cores).map(|_| Notify::new()).collect())
    }

    /// Waits until somebody rings for `core`.
    pub(crate) async fn rung(&self, core: usize) {
        self.0[core].notified().await;
    }

    fn cores(&self) -> usize {
        self.0.len()
    }
}

impl Shared {
    /// Takes over the counts of the pools and servers of `before` that have the same names.
    ///
    /// # Errors
    /// A network namespace cannot be opened, or was not open before: cores have tables of
    /// descriptors of their own, in which only those are that were there when they started. Nothing
    /// of `before` has changed then.
    pub(crate) fn new(
        plan: &Plan,
        bells: &Bells,
        before: Option<(&Plan, &Self)>,
    ) -> io::Result<Self> {
        let old = |pool: &PoolPlan| {
            before.and_then(|(plan, shared)| {
                let at = plan.pools.iter().position(|old| old.name == pool.name)?;
                Some((&plan.pools[at], &shared.pools[at]))
            })
        };
        // Before anything else: a name may be out of reach by now that was not when it was opened.
        let namespace = |pool: &PoolPlan| {
            let Some(name) = &pool.namespace else { return Ok(None) };
            let Some((_, shared)) = before else { return Namespace::open(name).map(Some) };
            let known = shared.pools.iter().find_map(|pool| {
                pool.namespace.as_ref().filter(|namespace| namespace.name() == name)
            });
            known.map(|known| Some(known.clone())).ok_or_else(|| unknown(&pool.name, name))
        };
        let namespaces = plan.pools.iter().map(namespace).collect::<io::Result<Vec<_>>>()?;
        let pool = |(pool, namespace): (&PoolPlan, Option<Namespace>)| {
            let old = old(pool);
            let gate = |server: &crate::plan::ServerPlan| {
                let max = server.maxconn.unwrap_or(UNBOUNDED);
                let kept = old.and_then(|(plan, shared)| {
                    let at = plan.servers.iter().position(|old| old.name == server.name)?;
                    // Only a bounded server counts, so one that was counted has to leave through a
                    // gate that still does.
                    let counts = plan.servers[at].maxconn.is_some() == server.maxconn.is_some();
                    counts.then(|| Arc::clone(&shared.gates[at]))
                });
                let new = || Arc::new(Gate { max: UNBOUNDED.into(), in_flight: 0.into() });
                let gate = kept.unwrap_or_else(new);
                gate.max.store(max, Ordering::SeqCst);
                gate
            };
            let gates = pool.servers.iter().map(gate).collect();
            let standing = |server: &crate::plan::ServerPlan| {
                let kept = old.and_then(|(plan, shared)| {
                    let same = |old: &crate::plan::ServerPlan| {
                        old.name == server.name && old.address == server.address
                    };
                    Some(Arc::clone(&shared.standings[plan.servers.iter().position(same)?]))
                });
                kept.unwrap_or_else(|| Arc::new(Standing::new(server.weight)))
            };
            let standings = pool.servers.iter().map(standing).collect();
            let line = old.map_or_else(
                || Arc::new(Line::new(bells.cores())),
                |(_, shared)| Arc::clone(&shared.line),
            );
            Arc::new(SharedPool { gates, standings, line, bells: bells.clone(), namespace })
        };
        Ok(Self { pools: plan.pools.iter().zip(namespaces).map(pool).collect() })
    }
}

fn unknown(pool: &str, namespace: &Path) -> io::Error {
    let namespace = namespace.display();
    io::Error::other(format!(
        "pool {pool}: the network namespace {namespace} was not in the config when the proxy \
         started; it takes a restart"
    ))
}

impl Line {
    fn new(cores: usize) -> Self {
        let by_core = (0..cores).map(|_| AtomicUsize::new(0)).collect();
        Self { waiting: 0.into(), by_core, turn: 0.into() }
    }
}

impl SharedPool {
    /// The numbers of its descriptors, to be kept by cores with a table of their own.
    pub(crate) fn numbers(&self) -> Vec<RawFd> {
        self.namespace.iter().flat_map(Namespace::numbers).collect()
    }

    /// The network namespace of its servers, if it is not our own.
    pub(crate) fn namespace(&self) -> Option<Namespace> {
        self.namespace.clone()
    }

    /// Where a server stands.
    #[inline]
    pub(crate) fn standing(&self, server: usize) -> &Standing {
        &self.standings[server]
    }

    /// Works out anew what share of the load each server gets: after a change, and once a tick.
    pub(crate) fn settle(&self, plan: &PoolPlan, now_ns: u64) {
        for (server, standing) in plan.servers.iter().zip(&self.standings) {
            standing.settle(server.weight, plan.slow_start_ns, now_ns);
        }
    }

    /// Whether a server could get one more request just now.
    pub(crate) fn has_room(&self, server: usize) -> bool {
        let gate = &self.gates[server];
        let max = gate.max.load(Ordering::Relaxed);
        max == UNBOUNDED || gate.in_flight.load(Ordering::Relaxed) < max
    }

    /// Whether a server has less than what a slow start leaves of its bound.
    pub(crate) fn has_eased_room(&self, server: usize, planned_weight: u32) -> bool {
        let (gate, standing) = (&self.gates[server], self.standing(server));
        let max = gate.max.load(Ordering::Relaxed);
        let (share, whole) = (standing.share(), standing.full_share(planned_weight));
        if max == UNBOUNDED || share >= whole {
            return true;
        }
        let eased = max.saturating_mul(share as usize).div_ceil(whole as usize);
        gate.in_flight.load(Ordering::Relaxed) < eased
    }

    /// Takes room at a server, if there is any.
    pub(crate) fn try_enter(&self, server: usize) -> bool {
        let gate = &self.gates[server];
        let max = gate.max.load(Ordering::Relaxed);
        if max == UNBOUNDED {
            return true;
        }
        gate.in_flight
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |now| (now < max).then_some(now + 1))
            .is_ok()
    }

    /// Gives it back; whether the server is bounded, so that somebody may wait for it.
    pub(crate) fn leave(&self, server: usize) -> bool {
        let gate = &self.gates[server];
        if gate.max.load(Ordering::Relaxed) == UNBOUNDED {
            return false;
        }
        gate.in_flight.fetch_sub(1, Ordering::SeqCst);
        true
    }

    /// Counts one more that waits, unless there are `limit` already.
    pub(crate) fn join_queue(&self, core: usize, limit: usize) -> bool {
        let joined = self
            .line
            .waiting
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |now| {
                (now < limit).then_some(now + 1)
            })
            .is_ok();
        if joined {
            self.line.by_core[core].fetch_add(1, Ordering::SeqCst);
        }
        joined
    }

    /// One fewer waits.
    pub(crate) fn leave_queue(&self, core: usize) {
        self.line.waiting.fetch_sub(1, Ordering::SeqCst);
        self.line.by_core[core].fetch_sub(1, Ordering::SeqCst);
    }

    /// Whether a request of any core waits.
    pub(crate) fn is_waited_for(&self) -> bool {
        self.line.waiting.load(Ordering::SeqCst) > 0
    }

    /// Rings for a core with requests that wait, if it is its turn before `core` serves its own;
    /// `own` says whether it has some. After a reload it rings for itself: they wait in the queue of
    /// another [`super::Pool`].
    pub(crate) fn ring_other(&self, core: usize, own: bool) -> bool {
        let cores = self.line.by_core.len();
        let turn = self.line.turn.fetch_add(1, Ordering::Relaxed);
        for step in 0..cores {
            let other = (turn + step) % cores;
            if other == core && own {
                return false;
            }
            if self.line.by_core[other].load(Ordering::SeqCst) > 0 {
                self.bells.0[other].notify_one();
                return true;
            }
        }
        false
    }
}
