//! What all cores share of the pools: how many requests each bounded server has, how many wait, and
//! a bell for each core. Touched once at the start and once at the end of a request, and only for
//! servers that have a bound.

use std::io;
use std::os::fd::RawFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use rt::namespace::Namespace;
use rt::tokio::sync::Notify;

use super::adaptive::{Limit, Window};
use super::gate::{Entry, Gate, Samples};
use super::observed::Observed;
use super::retry_budget::RetryBudget;
use super::standing::Standing;
use crate::admission::{Gatekeeper, gatekeepers};
use crate::plan::{AdaptivePlan, Plan, PoolPlan, RoutePlan, ServerPlan};
use crate::route::Buckets;

/// What all cores share of all pools, for one plan.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) pools: Vec<Arc<SharedPool>>,
    /// By listener.
    pub(crate) keepers: Vec<Arc<Gatekeeper>>,
    /// The token buckets of routes, where a route has a rate limit.
    pub(crate) limits: Vec<Option<Arc<Buckets>>>,
}

/// A bell for each core: rung when room came up elsewhere that it may wait for.
#[derive(Clone, Debug)]
pub(crate) struct Bells(Arc<[Notify]>);

/// What all cores share of one pool.
#[derive(Debug)]
pub(crate) struct SharedPool {
    /// Of all its servers together.
    whole: Arc<Gate>,
    gates: Vec<Arc<Gate>>,
    retries: Arc<RetryBudget>,
    /// What is seen of servers whose bounds follow it.
    samples: Vec<Arc<Samples>>,
    standings: Vec<Arc<Standing>>,
    observed: Vec<Arc<Observed>>,
    line: Arc<Line>,
    bells: Bells,
    /// Opened while that was still allowed.
    namespace: Option<Namespace>,
}

/// How many requests of each core wait for a pool.
#[derive(Debug)]
struct Line {
    waiting: AtomicUsize,
    by_core: Box<[AtomicUsize]>,
    turn: AtomicUsize,
    /// Whether some core decides just now whether to eject a server.
    judging: AtomicBool,
}

/// The right to decide whether to eject a server, of one core at a time.
pub(super) struct Judging<'a>(&'a AtomicBool);

impl Drop for Judging<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::SeqCst);
    }
}

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
            let gates = pool.servers.iter().map(|server| server_gate(pool, server, old)).collect();
            let (standings, observed) =
                pool.servers.iter().map(|server| known(server, old)).unzip();
            let line = old.map_or_else(
                || Arc::new(Line::new(bells.cores())),
                |(_, shared)| Arc::clone(&shared.line),
            );
            let kept = old.map(|(_, shared)| &shared.retries);
            let kept = kept.filter(|kept| kept.plan() == pool.bounds.retry_budget).cloned();
            let retries = kept.unwrap_or_else(|| {
                Arc::new(RetryBudget::new(pool.bounds.retry_budget, bells.cores()))
            });
            Arc::new(SharedPool {
                whole: whole_gate(pool, old),
                gates,
                retries,
                samples: pool.servers.iter().map(|_| Arc::default()).collect(),
                standings,
                observed,
                line,
                bells: bells.clone(),
                namespace,
            })
        };
        let pools = plan.pools.iter().zip(namespaces).map(pool).collect();
        let keepers =
            gatekeepers(plan, before.map(|(plan, shared)| (plan, shared.keepers.as_slice())));
        Ok(Self { pools, keepers, limits: limits(plan, bells.cores(), before) })
    }
}

/// The token buckets of a plan's routes. A limit that stays the same keeps its buckets, so that a
/// reload does not lift it.
fn limits(
    plan: &Plan,
    cores: usize,
    before: Option<(&Plan, &Shared)>,
) -> Vec<Option<Arc<Buckets>>> {
    let limit = |route: &RoutePlan| {
        let limit = route.rate_limit.as_ref()?;
        let kept = before.and_then(|(plan, shared)| {
            let at = plan.routes.iter().position(|old| old.name == route.name)?;
            let same = plan.routes[at].rate_limit.as_ref() == Some(limit);
            shared.limits.get(at).filter(|_| same)?.clone()
        });
        Some(kept.unwrap_or_else(|| Arc::new(Buckets::new(limit, cores))))
    };
    plan.routes.iter().map(limit).collect()
}

/// The adaptive bound of a server, its own `maxconn` considered.
pub(super) fn adaptive_of(pool: &PoolPlan, server: &ServerPlan) -> Option<AdaptivePlan> {
    let AdaptivePlan { min, max } = pool.bounds.adaptive?;
    let most = server.maxconn.unwrap_or(usize::MAX);
    Some(AdaptivePlan { min: min.min(most), max: max.min(most) })
}

/// What a server may have when it starts.
fn first_bound(pool: &PoolPlan, server: &ServerPlan) -> Option<usize> {
    adaptive_of(pool, server).map(|plan| Limit::new(plan).get()).or(server.maxconn)
}

/// A gate stays with its server, whose requests it counts.
fn server_gate(
    pool: &PoolPlan,
    server: &ServerPlan,
    old: Option<(&PoolPlan, &Arc<SharedPool>)>,
) -> Arc<Gate> {
    let bound = first_bound(pool, server);
    let kept = old.and_then(|(plan, shared)| {
        let at = plan.servers.iter().position(|old| old.name == server.name)?;
        let adaptive = adaptive_of(pool, server);
        let follows_on = adaptive.is_some() && adaptive_of(plan, &plan.servers[at]) == adaptive;
        Some((Arc::clone(&shared.gates[at]), follows_on))
    });
    let (gate, follows_on) = kept.unwrap_or_else(|| (Arc::new(Gate::new()), false));
    if !follows_on {
        gate.follow(bound);
    }
    gate
}

fn whole_gate(pool: &PoolPlan, old: Option<(&PoolPlan, &Arc<SharedPool>)>) -> Arc<Gate> {
    let bound = pool.bounds.maxconn;
    let kept = old.filter(|(plan, _)| plan.bounds.maxconn.is_some() == bound.is_some());
    let gate = kept.map_or_else(|| Arc::new(Gate::new()), |(_, old)| Arc::clone(&old.whole));
    gate.follow(bound);
    gate
}

/// What is known of a server: what was, if it is the same one.
fn known(
    server: &ServerPlan,
    old: Option<(&PoolPlan, &Arc<SharedPool>)>,
) -> (Arc<Standing>, Arc<Observed>) {
    let kept = old.and_then(|(plan, shared)| {
        let same = |old: &ServerPlan| old.name == server.name && old.address == server.address;
        let at = plan.servers.iter().position(same)?;
        Some((Arc::clone(&shared.standings[at]), Arc::clone(&shared.observed[at])))
    });
    kept.unwrap_or_else(|| (Arc::new(Standing::new(server.weight)), Arc::default()))
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
        Self { waiting: 0.into(), by_core, turn: 0.into(), judging: false.into() }
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

    /// Where a server stands, to be kept.
    pub(crate) fn standing_of(&self, server: usize) -> Arc<Standing> {
        Arc::clone(&self.standings[server])
    }

    /// What requests showed of a server.
    #[inline]
    pub(crate) fn observed(&self, server: usize) -> &Arc<Observed> {
        &self.observed[server]
    }

    /// How many servers there are.
    pub(super) fn servers(&self) -> usize {
        self.standings.len()
    }

    /// The right to decide about ejections; `None`: another core has it.
    pub(super) fn start_judging(&self) -> Option<Judging<'_>> {
        let flag = &self.line.judging;
        (!flag.swap(true, Ordering::SeqCst)).then_some(Judging(flag))
    }

    /// Works out anew what share of the load each server gets: after a change, and once a tick. When
    /// nobody would get any, ejections are taken back: a server that may fail is better than none.
    pub(crate) fn settle(&self, plan: &PoolPlan, now_ns: u64) {
        let settle = || {
            let servers = plan.servers.iter().zip(&self.standings);
            servers.fold(false, |any, (server, standing)| {
                standing.settle(server.weight, plan.slow_start_ns, now_ns);
                any | (standing.share() > 0)
            })
        };
        if settle() {
            return;
        }
        let ejected = self.standings.iter().filter(|standing| standing.has_trial());
        if ejected.map(|standing| standing.reprieve(now_ns)).count() > 0 {
            settle();
        }
    }

    /// Sets how many requests a server may have that has a bound; whether it has. What an operator
    /// set holds.
    pub(crate) fn limit(&self, server: usize, max: usize) -> bool {
        let gate = &self.gates[server];
        let is_bounded = gate.is_bounded();
        if is_bounded {
            gate.follow(Some(max));
        }
        is_bounded
    }

    /// Sets how many requests a server may have by the word of its agent; `None`: it says nothing.
    /// Requests that it has already are counted by each core with its next tick.
    pub(crate) fn set_maxconn_by_agent(&self, server: usize, max: Option<usize>) {
        self.gates[server].set_by_agent(max);
    }

    /// Whether a server could get one more request just now.
    pub(crate) fn has_room(&self, server: usize) -> bool {
        self.gates[server].has_room()
    }

    /// Whether a server has less than what a slow start leaves of its bound.
    pub(crate) fn has_eased_room(&self, server: usize, planned_weight: u32) -> bool {
        let (gate, standing) = (&self.gates[server], self.standing(server));
        let (share, whole) = (standing.share(), standing.full_share(planned_weight));
        match gate.max() {
            Some(max) if share < whole => {
                let eased = max.saturating_mul(share as usize).div_ceil(whole as usize);
                gate.in_flight() < eased
            }
            _ => true,
        }
    }

    /// Whether all servers together could get one more request just now.
    #[inline]
    pub(crate) fn whole_has_room(&self) -> bool {
        self.whole.has_room()
    }

    /// Takes room at a server, if there is any there and in the whole pool, and its standing lets
    /// anybody in.
    #[inline]
    pub(crate) fn try_enter(&self, core: usize, server: usize) -> Entry {
        let entry = self.gates[server].try_enter();
        if entry == Entry::Full {
            return Entry::Full;
        }
        if self.whole.try_enter() != Entry::Full {
            if self.standings[server].try_pass() {
                return entry;
            }
            self.leave_whole();
        }
        if entry == Entry::Counted {
            self.gates[server].leave();
            // Whoever looked meanwhile saw a server that seemed to be full.
            if self.whole.has_room() && self.is_waited_for() {
                self.ring_other(core, false);
            }
        }
        Entry::Full
    }

    /// Gives it back; whether somebody may wait for it.
    #[inline]
    pub(crate) fn leave(&self, server: usize, was_counted: bool) -> bool {
        let whole = self.leave_whole();
        if was_counted {
            self.gates[server].leave();
        }
        was_counted || whole
    }

    /// A pool's own bound comes and goes with a plan, which has a gate of its own then, so that
    /// whoever came in through one leaves through the same.
    #[inline]
    fn leave_whole(&self) -> bool {
        let is_bounded = self.whole.is_bounded();
        if is_bounded {
            self.whole.leave();
        }
        is_bounded
    }

    /// Whether a request there takes room that others may wait for.
    pub(crate) fn is_bounded(&self, server: usize) -> bool {
        self.whole.is_bounded() || self.gates[server].is_bounded()
    }

    /// How many requests a server may have; `None`: any number.
    pub(crate) fn bound(&self, server: usize) -> Option<usize> {
        self.gates[server].max()
    }

    /// How many requests count toward a server's bound.
    pub(crate) fn slots(&self, server: usize) -> usize {
        self.gates[server].in_flight()
    }

    /// How many requests all servers may have together; `None`: any number.
    pub(crate) fn places(&self) -> Option<usize> {
        let servers = self.gates.iter().map(|gate| gate.max());
        let servers = servers.reduce(|all, one| Some(all?.saturating_add(one?))).flatten();
        match (servers, self.whole.max()) {
            (Some(servers), Some(whole)) => Some(servers.min(whole)),
            (servers, whole) => servers.or(whole),
        }
    }

    /// The budget of requests that are sent again.
    #[inline]
    pub(crate) fn retries(&self) -> &RetryBudget {
        &self.retries
    }

    /// What is seen of a server whose bound follows it.
    #[inline]
    pub(super) fn samples(&self, server: usize) -> &Samples {
        &self.samples[server]
    }

    /// What all cores saw of a server since the last look.
    pub(super) fn take_window(&self, server: usize) -> Window {
        self.samples[server].take(self.gates[server].in_flight())
    }

    /// How many requests wait, on all cores.
    pub(crate) fn waiting(&self) -> usize {
        self.line.waiting.load(Ordering::Relaxed)
    }

    /// Bounds a server for as long as the process runs; `None`: as the plan has it. Requests that it
    /// has are let be: below a lower bound it gets new ones again.
    pub(crate) fn set_maxconn(&self, server: usize, set: Option<usize>, planned: Option<usize>) {
        self.gates[server].set_by_operator(set);
        self.gates[server].follow(planned);
    }

    /// The bound that an operator set while running.
    #[cfg(test)]
    pub(crate) fn maxconn_set(&self, server: usize) -> Option<usize> {
        self.gates[server].set()
    }

    /// Whether a server has a bound of its own.
    pub(crate) fn counts(&self, server: usize) -> bool {
        self.gates[server].is_bounded()
    }

    /// Counts requests that a server had before it had a bound.
    pub(crate) fn count_late(&self, server: usize, requests: usize) {
        self.gates[server].count_late(requests);
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
