//! Tests of the pool's decisions, without a socket: slots, order, bounds, reloads.

use std::task::Waker;

use rt::clock::MonotonicTime;

use super::*;
use crate::plan::{
    Balance, HashKey, HashPlan, PoolLimits, Priority, QueueOrder, QueuePlan, Reuse, ServerHttp,
    ServerHttp2Plan, ServerPlan, ServerTimeouts,
};
use crate::test_time::at;

/// The pool of a plan.
pub(super) const POOL: PoolId = PoolId(0);
pub(super) const S0: ServerId = ServerId(0);
pub(super) const S1: ServerId = ServerId(1);
pub(super) const S2: ServerId = ServerId(2);
pub(super) const S3: ServerId = ServerId(3);

pub(super) fn plan_with_maxconns(maxconns: &[Option<usize>], limit: usize) -> Arc<Plan> {
    let server = |(index, maxconn): (usize, &Option<usize>)| ServerPlan {
        name: format!("s{index}").into(),
        address: format!("127.0.0.1:{}", 1000 + index).parse().unwrap(),
        host: None,
        weight: 1,
        maxconn: *maxconn,
        backup: false,
    };
    let pool = PoolPlan {
        name: "p".into(),
        servers: maxconns.iter().enumerate().map(server).collect(),
        balance: Balance::RandomOfTwo,
        hash: HashPlan { key: HashKey::Source, load_factor: 1.25 },
        sticky: None,
        http: ServerHttp::Http11,
        http2: ServerHttp2Plan::default(),
        reuse: Reuse::Safe,
        idle_max: 8,
        idle_timeout_ns: 1,
        queue: QueuePlan { limit, timeout_ns: 100, order: QueueOrder::Adaptive, standing_after_ns: 1_000 },
        overload_limits: PoolLimits::default(),
        timeouts: ServerTimeouts {
            connect_ns: 1,
            first_byte_ns: 1,
            idle_ns: 1,
            tunnel_ns: 1,
            abandoned_ns: 1,
        },
        limits: wire::Limits::default(),
        named_servers: Vec::new(),
        servers_file: None,
        resolve: crate::plan::ResolvePlan::default(),
        check: None,
        outlier: crate::plan::OutlierPlan::off(),
        slow_start_ns: 0,
        retries_max: 1,
        send_proxy_protocol: None,
        tls: None,
        namespace: None,
        sources: Vec::new(),
    };
    Arc::new(Plan {
        password_threads: crate::plan::PasswordThreads { threads: 1, queue_max: 1 },
        threads: 1,
        is_threads_set: true,
        pin: Vec::new(),
        connections_max: None,
        drain_timeout_ns: 1,
        privileges: crate::plan::PrivilegesPlan::default(),
        logs: Vec::new(),
        tracing: None,
        admin: None,
        admin_access: Default::default(),
        control: None,
        state_file: None,
        source: "".into(),
        listeners: Arc::new([]),
        routes: Arc::new([]),
        pools: vec![Arc::new(pool)].into(),
        given: Default::default(),
        included: Vec::new(),
        error_pages: Default::default(),
        maps: Arc::default(),
        caches: Arc::default(),
    })
}

pub(super) fn pools_on_cores(plan: &Arc<Plan>, cores: usize) -> Vec<Pool> {
    let shared = CrossCoreState::new(plan, &CoreWakeups::new(cores), None).unwrap();
    let pool = |core| {
        Pool::new(plan, POOL, CoreId { index: core, count: cores }, Arc::clone(&shared.pools[POOL]), None)
    };
    (0..cores).map(pool).collect()
}

impl Pool {
    /// Takes a slot for a request without further requirements.
    pub(super) fn take(&self, avoid: Option<ServerId>, rng: &mut fastrand::Rng) -> Option<ServerId> {
        self.acquire(ServerRequirements { avoid, ..ServerRequirements::default() }, at(0), rng)
    }
}

pub(super) fn enqueue_request(now: MonotonicTime) -> EnqueueRequest<'static> {
    EnqueueRequest {
        requirements: ServerRequirements::default(),
        waker: Waker::noop(),
        priority: Priority::Normal,
        now,
        deadline: NO_DEADLINE,
    }
}

fn rng() -> fastrand::Rng {
    fastrand::Rng::with_seed(3)
}

#[test]
fn a_bound_holds_over_all_cores() {
    let pools = pools_on_cores(&plan_with_maxconns(&[Some(3)], 10), 2);
    let mut rng = rng();
    assert!((0..3).all(|turn| pools[turn % 2].take(None, &mut rng) == Some(S0)));
    assert_eq!(pools[0].take(None, &mut rng), None);
    assert_eq!(pools[1].take(None, &mut rng), None);
    pools[0].release(S0, &mut rng);
    assert_eq!(pools[1].take(None, &mut rng), Some(S0));
}

#[test]
fn queued_requests_are_served_in_order_and_none_overtakes() {
    let pools = pools_on_cores(&plan_with_maxconns(&[Some(1)], 10), 1);
    let (pool, mut rng) = (&pools[0], rng());
    assert_eq!(pool.take(None, &mut rng), Some(S0));
    let first = pool.enqueue(&enqueue_request(at(0)), &mut rng).unwrap();
    let second = pool.enqueue(&enqueue_request(at(1)), &mut rng).unwrap();
    pool.release(S0, &mut rng);
    assert_eq!(first.state(), TicketState::Granted(S0));
    assert_eq!(second.state(), TicketState::Waiting);
    // The first leaves without using its slot: the second is next, and not a newcomer.
    assert_eq!(pool.take(None, &mut rng), None);
    pool.cancel(&first, &mut rng);
    assert_eq!(second.state(), TicketState::Granted(S0));
}

#[test]
fn the_queue_is_bounded_in_length_and_age() {
    let pools = pools_on_cores(&plan_with_maxconns(&[Some(1)], 2), 1);
    let (pool, mut rng) = (&pools[0], rng());
    assert_eq!(pool.take(None, &mut rng), Some(S0));
    let early = pool.enqueue(&enqueue_request(at(0)), &mut rng).unwrap();
    let late = pool.enqueue(&enqueue_request(at(50)), &mut rng).unwrap();
    assert!(pool.enqueue(&enqueue_request(at(50)), &mut rng).is_err());
    assert!(pool.expire_queue(at(99)));
    assert_eq!(early.state(), TicketState::Waiting);
    assert!(pool.expire_queue(at(100)));
    assert_eq!((early.state(), late.state()), (TicketState::Expired, TicketState::Waiting));
    pool.cancel(&late, &mut rng);
    assert!(!pool.expire_queue(at(1000)));
    assert!(pool.enqueue(&enqueue_request(at(50)), &mut rng).is_ok());
}

#[test]
fn a_slot_released_on_one_core_reaches_a_request_queued_on_another() {
    let pools = pools_on_cores(&plan_with_maxconns(&[Some(1)], 10), 2);
    let mut rng = rng();
    assert_eq!(pools[0].take(None, &mut rng), Some(S0));
    let ticket = pools[1].enqueue(&enqueue_request(at(0)), &mut rng).unwrap();
    pools[0].release(S0, &mut rng);
    assert_eq!(ticket.state(), TicketState::Waiting);
    // A woken core does this.
    pools[1].serve_queue(&mut rng);
    assert_eq!(ticket.state(), TicketState::Granted(S0));
}

#[test]
fn an_avoided_server_is_used_when_it_is_the_only_one() {
    let pools = pools_on_cores(&plan_with_maxconns(&[None, None], 10), 1);
    let mut rng = rng();
    assert!((0..20).all(|_| pools[0].take(Some(S0), &mut rng) == Some(S1)));
    let pools = pools_on_cores(&plan_with_maxconns(&[None, Some(1)], 10), 1);
    assert_eq!(pools[0].take(Some(S0), &mut rng), Some(S1));
    assert_eq!(pools[0].take(Some(S0), &mut rng), Some(S0));
}

#[test]
fn a_limit_that_is_removed_and_set_again_is_complete() {
    let plans = [
        plan_with_maxconns(&[Some(1)], 10),
        plan_with_maxconns(&[None], 10),
        plan_with_maxconns(&[Some(1)], 10),
    ];
    let (wakeups, mut rng) = (CoreWakeups::new(1), rng());
    let mut shared = CrossCoreState::new(&plans[0], &wakeups, None).unwrap();
    let mut pool =
        Pool::new(&plans[0], POOL, CoreId { index: 0, count: 1 }, Arc::clone(&shared.pools[POOL]), None);
    for pair in plans.windows(2) {
        // In flight when the plan changes, and over when the next plan is in force.
        assert_eq!(pool.take(None, &mut rng), Some(S0));
        shared = CrossCoreState::new(&pair[1], &wakeups, Some((&pair[0], &shared))).unwrap();
        let next = Arc::clone(&shared.pools[POOL]);
        let next = Pool::new(&pair[1], POOL, CoreId { index: 0, count: 1 }, next, Some(&pool));
        pool.release(S0, &mut rng);
        pool = next;
    }
    assert_eq!(pool.take(None, &mut rng), Some(S0));
    assert_eq!(pool.take(None, &mut rng), None);
    assert_eq!((pool.idle_connections(S0), pool.in_flight_at(S0), pool.queued()), (0, 1, 0));
}

#[test]
fn a_reload_keeps_the_counts() {
    let (old, new) = (plan_with_maxconns(&[Some(2)], 10), plan_with_maxconns(&[Some(1)], 10));
    let wakeups = CoreWakeups::new(1);
    let shared = CrossCoreState::new(&old, &wakeups, None).unwrap();
    let old_pool =
        Pool::new(&old, POOL, CoreId { index: 0, count: 1 }, Arc::clone(&shared.pools[POOL]), None);
    let mut rng = rng();
    assert!(old_pool.take(None, &mut rng).is_some() && old_pool.take(None, &mut rng).is_some());
    let new_shared = CrossCoreState::new(&new, &wakeups, Some((&old, &shared))).unwrap();
    let new_pool = Pool::new(
        &new,
        POOL,
        CoreId { index: 0, count: 1 },
        Arc::clone(&new_shared.pools[POOL]),
        Some(&old_pool),
    );
    assert_eq!(new_pool.take(None, &mut rng), None);
    old_pool.release(S0, &mut rng);
    assert_eq!(new_pool.take(None, &mut rng), None);
    old_pool.release(S0, &mut rng);
    assert_eq!(new_pool.take(None, &mut rng), Some(S0));
    assert_eq!((new_pool.idle_connections(S0), new_pool.in_flight_at(S0), new_pool.queued()), (0, 1, 0));
}

#[test]
fn a_bound_set_while_running_holds_for_those_that_were_there_before() {
    let pools = pools_on_cores(&plan_with_maxconns(&[None], 10), 2);
    let (mut rng, shared) = (rng(), Arc::clone(&pools[0].shared));
    assert!((0..3).all(|turn| pools[turn % 2].take(None, &mut rng) == Some(S0)));
    shared.set_maxconn(S0, Some(2), None);
    pools.iter().for_each(Pool::count_unlimited_requests);
    pools.iter().for_each(Pool::count_unlimited_requests);
    // Three are in flight, so two must leave before one may enter.
    let mut ticket = pools[1].enqueue(&enqueue_request(at(0)), &mut rng).unwrap();
    for core in [0, 0] {
        assert_eq!(ticket.state(), TicketState::Waiting);
        pools[core].release(S0, &mut rng);
        pools[1].serve_queue(&mut rng);
    }
    assert_eq!(ticket.state(), TicketState::Granted(S0));
    assert_eq!(pools[0].take(None, &mut rng), None);
    // Without a limit, requests are not counted any more; counted ones still leave once.
    shared.set_maxconn(S0, None, None);
    assert_eq!(pools[1].take(None, &mut rng), Some(S0));
    (0..3).for_each(|_| pools[1].release(S0, &mut rng));
    shared.set_maxconn(S0, Some(1), None);
    pools.iter().for_each(Pool::count_unlimited_requests);
    assert_eq!(pools[0].take(None, &mut rng), Some(S0));
    ticket = pools[1].enqueue(&enqueue_request(at(0)), &mut rng).unwrap();
    assert_eq!(ticket.state(), TicketState::Waiting);
}

#[test]
fn runtime_settings_survive_a_reload() {
    let old = plan_with_maxconns(&[Some(3), None], 10);
    let wakeups = CoreWakeups::new(1);
    let old_shared = CrossCoreState::new(&old, &wakeups, None).unwrap();
    old_shared.pools[POOL].set_maxconn(S0, Some(1), Some(3));
    old_shared.pools[POOL].eligibility(S1).set_operator_state(AdminState::Drain, at(1));
    let new = plan_with_maxconns(&[Some(7), Some(5)], 10);
    let new_shared = CrossCoreState::new(&new, &wakeups, Some((&old, &old_shared))).unwrap();
    let pool =
        Pool::new(&new, POOL, CoreId { index: 0, count: 1 }, Arc::clone(&new_shared.pools[POOL]), None);
    new_shared.pools[POOL].recompute(pool.plan(), at(1));
    let mut rng = rng();
    assert_eq!(pool.take(None, &mut rng), Some(S0));
    assert_eq!(pool.take(None, &mut rng), None);
    assert_eq!(
        (new_shared.pools[POOL].operator_maxconn(S0), new_shared.pools[POOL].operator_maxconn(S1)),
        (Some(1), None)
    );
    new_shared.pools[POOL].set_maxconn(S0, None, Some(7));
    assert!((0..6).all(|_| pool.take(None, &mut rng) == Some(S0)));
    assert_eq!(pool.take(None, &mut rng), None);
}
