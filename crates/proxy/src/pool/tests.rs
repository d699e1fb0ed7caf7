//! The pool's decisions, without a socket: room, order, bounds, reloads.

use std::task::Waker;

use super::*;
use crate::plan::{
    Balance, HashKey, HashPlan, PoolBounds, Priority, QueueOrder, QueuePlan, Reuse, ServerPlan,
    ServerTimeouts,
};

pub(super) fn plan(maxconns: &[Option<usize>], limit: usize) -> Arc<Plan> {
    let server = |(index, maxconn): (usize, &Option<usize>)| ServerPlan {
        name: format!("s{index}").into(),
        address: format!("127.0.0.1:{}", 1000 + index).parse().unwrap(),
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
        reuse: Reuse::Safe,
        idle_max: 8,
        idle_timeout_ns: 1,
        queue: QueuePlan {
            limit,
            timeout_ns: 100,
            order: QueueOrder::Adaptive,
            stands_after_ns: 1_000,
        },
        bounds: PoolBounds::default(),
        timeouts: ServerTimeouts {
            connect_ns: 1,
            first_byte_ns: 1,
            idle_ns: 1,
            tunnel_ns: 1,
            abandoned_ns: 1,
        },
        limits: wire::Limits::default(),
        names: Vec::new(),
        resolve: crate::plan::ResolvePlan::default(),
        check: None,
        outlier: crate::plan::OutlierPlan::off(),
        slow_start_ns: 0,
        retries_max: 1,
        send_proxy_protocol: None,
        namespace: None,
    };
    Arc::new(Plan {
        threads: 1,
        threads_given: true,
        pin: Vec::new(),
        connections_max: None,
        drain_timeout_ns: 1,
        privileges: crate::plan::PrivilegesPlan::default(),
        logs: Vec::new(),
        admin: None,
        admin_access: Default::default(),
        control: None,
        source: Box::default(),
        listeners: Vec::new(),
        routes: Vec::new(),
        pools: vec![pool],
    })
}

pub(super) fn pools(plan: &Arc<Plan>, cores: usize) -> Vec<Pool> {
    let shared = Shared::new(plan, &Bells::new(cores), None).unwrap();
    let pool =
        |core| Pool::new(Arc::clone(plan), 0, (core, cores), Arc::clone(&shared.pools[0]), None);
    (0..cores).map(pool).collect()
}

impl Pool {
    /// Room for a request that nothing else is known of.
    pub(super) fn take(&self, avoid: Option<usize>, rng: &mut fastrand::Rng) -> Option<usize> {
        self.acquire(Want { avoid, ..Want::default() }, 0, rng)
    }
}

pub(super) fn ask(now_ns: u64) -> Ask<'static> {
    Ask {
        want: Want::default(),
        waker: Waker::noop(),
        priority: Priority::Normal,
        now_ns,
        deadline_ns: NEVER,
    }
}

fn rng() -> fastrand::Rng {
    fastrand::Rng::with_seed(3)
}

#[test]
fn a_bound_holds_over_all_cores() {
    let pools = pools(&plan(&[Some(3)], 10), 2);
    let mut rng = rng();
    assert!((0..3).all(|turn| pools[turn % 2].take(None, &mut rng) == Some(0)));
    assert_eq!(pools[0].take(None, &mut rng), None);
    assert_eq!(pools[1].take(None, &mut rng), None);
    pools[0].release(0, &mut rng);
    assert_eq!(pools[1].take(None, &mut rng), Some(0));
}

#[test]
fn who_waits_is_served_in_order_and_nobody_overtakes() {
    let pools = pools(&plan(&[Some(1)], 10), 1);
    let (pool, mut rng) = (&pools[0], rng());
    assert_eq!(pool.take(None, &mut rng), Some(0));
    let first = pool.enqueue(&ask(0), &mut rng).unwrap();
    let second = pool.enqueue(&ask(1), &mut rng).unwrap();
    pool.release(0, &mut rng);
    assert_eq!(first.state(), TicketState::Granted(0));
    assert_eq!(second.state(), TicketState::Waiting);
    // The first leaves without using it: the second is next, and not a newcomer.
    assert_eq!(pool.take(None, &mut rng), None);
    pool.forget(&first, &mut rng);
    assert_eq!(second.state(), TicketState::Granted(0));
}

#[test]
fn the_queue_is_bounded_in_length_and_age() {
    let pools = pools(&plan(&[Some(1)], 2), 1);
    let (pool, mut rng) = (&pools[0], rng());
    assert_eq!(pool.take(None, &mut rng), Some(0));
    let early = pool.enqueue(&ask(0), &mut rng).unwrap();
    let late = pool.enqueue(&ask(50), &mut rng).unwrap();
    assert!(pool.enqueue(&ask(50), &mut rng).is_err());
    assert!(pool.expire_queue(99));
    assert_eq!(early.state(), TicketState::Waiting);
    assert!(pool.expire_queue(100));
    assert_eq!((early.state(), late.state()), (TicketState::Expired, TicketState::Waiting));
    pool.forget(&late, &mut rng);
    assert!(!pool.expire_queue(1000));
    assert!(pool.enqueue(&ask(50), &mut rng).is_ok());
}

#[test]
fn room_on_one_core_reaches_who_waits_on_another() {
    let pools = pools(&plan(&[Some(1)], 10), 2);
    let mut rng = rng();
    assert_eq!(pools[0].take(None, &mut rng), Some(0));
    let ticket = pools[1].enqueue(&ask(0), &mut rng).unwrap();
    pools[0].release(0, &mut rng);
    assert_eq!(ticket.state(), TicketState::Waiting);
    // What its core does when its bell is rung.
    pools[1].serve_queue(&mut rng);
    assert_eq!(ticket.state(), TicketState::Granted(0));
}

#[test]
fn a_server_that_is_avoided_is_used_when_it_is_the_only_one() {
    let pools = pools(&plan(&[None, None], 10), 1);
    let mut rng = rng();
    assert!((0..20).all(|_| pools[0].take(Some(0), &mut rng) == Some(1)));
    let pools = self::pools(&plan(&[None, Some(1)], 10), 1);
    assert_eq!(pools[0].take(Some(0), &mut rng), Some(1));
    assert_eq!(pools[0].take(Some(0), &mut rng), Some(0));
}

#[test]
fn a_bound_that_goes_and_comes_back_is_whole() {
    let plans = [plan(&[Some(1)], 10), plan(&[None], 10), plan(&[Some(1)], 10)];
    let (bells, mut rng) = (Bells::new(1), rng());
    let mut shared = Shared::new(&plans[0], &bells, None).unwrap();
    let mut pool = Pool::new(Arc::clone(&plans[0]), 0, (0, 1), Arc::clone(&shared.pools[0]), None);
    for two in plans.windows(2) {
        // In flight when the plan changes, and over when the next one is in force.
        assert_eq!(pool.take(None, &mut rng), Some(0));
        shared = Shared::new(&two[1], &bells, Some((&two[0], &shared))).unwrap();
        let next = Arc::clone(&shared.pools[0]);
        let next = Pool::new(Arc::clone(&two[1]), 0, (0, 1), next, Some(&pool));
        pool.release(0, &mut rng);
        pool = next;
    }
    assert_eq!(pool.take(None, &mut rng), Some(0));
    assert_eq!(pool.take(None, &mut rng), None);
    assert_eq!(pool.load(0), (0, 1, 0));
}

#[test]
fn a_reload_keeps_the_counts() {
    let (old, new) = (plan(&[Some(2)], 10), plan(&[Some(1)], 10));
    let bells = Bells::new(1);
    let shared = Shared::new(&old, &bells, None).unwrap();
    let before = Pool::new(Arc::clone(&old), 0, (0, 1), Arc::clone(&shared.pools[0]), None);
    let mut rng = rng();
    assert!(before.take(None, &mut rng).is_some() && before.take(None, &mut rng).is_some());
    let after = Shared::new(&new, &bells, Some((&old, &shared))).unwrap();
    let after = Pool::new(new, 0, (0, 1), Arc::clone(&after.pools[0]), Some(&before));
    assert_eq!(after.take(None, &mut rng), None);
    before.release(0, &mut rng);
    assert_eq!(after.take(None, &mut rng), None);
    before.release(0, &mut rng);
    assert_eq!(after.take(None, &mut rng), Some(0));
    assert_eq!(after.load(0), (0, 1, 0));
}

#[test]
fn a_bound_set_while_running_holds_for_those_that_were_there_before() {
    let pools = pools(&plan(&[None], 10), 2);
    let (mut rng, shared) = (rng(), Arc::clone(&pools[0].shared));
    assert!((0..3).all(|turn| pools[turn % 2].take(None, &mut rng) == Some(0)));
    shared.set_maxconn(0, Some(2), None);
    pools.iter().for_each(Pool::recount);
    pools.iter().for_each(Pool::recount);
    // Three are there, so two have to go before one may come.
    let mut waits = pools[1].enqueue(&ask(0), &mut rng).unwrap();
    for core in [0, 0] {
        assert_eq!(waits.state(), TicketState::Waiting);
        pools[core].release(0, &mut rng);
        pools[1].serve_queue(&mut rng);
    }
    assert_eq!(waits.state(), TicketState::Granted(0));
    assert_eq!(pools[0].take(None, &mut rng), None);
    // Without it, nobody is counted any more, and those that were still leave once.
    shared.set_maxconn(0, None, None);
    assert_eq!(pools[1].take(None, &mut rng), Some(0));
    (0..3).for_each(|_| pools[1].release(0, &mut rng));
    shared.set_maxconn(0, Some(1), None);
    pools.iter().for_each(Pool::recount);
    assert_eq!(pools[0].take(None, &mut rng), Some(0));
    waits = pools[1].enqueue(&ask(0), &mut rng).unwrap();
    assert_eq!(waits.state(), TicketState::Waiting);
}

#[test]
fn what_was_set_while_running_survives_a_reload() {
    let old = plan(&[Some(3), None], 10);
    let bells = Bells::new(1);
    let before = Shared::new(&old, &bells, None).unwrap();
    before.pools[0].set_maxconn(0, Some(1), Some(3));
    before.pools[0].standing(1).want(Wanted::Drain, 1);
    let new = plan(&[Some(7), Some(5)], 10);
    let after = Shared::new(&new, &bells, Some((&old, &before))).unwrap();
    let pool = Pool::new(Arc::clone(&new), 0, (0, 1), Arc::clone(&after.pools[0]), None);
    after.pools[0].settle(pool.plan(), 1);
    let mut rng = rng();
    assert_eq!(pool.take(None, &mut rng), Some(0));
    assert_eq!(pool.take(None, &mut rng), None);
    assert_eq!((after.pools[0].maxconn_set(0), after.pools[0].maxconn_set(1)), (Some(1), None));
    after.pools[0].set_maxconn(0, None, Some(7));
    assert!((0..6).all(|_| pool.take(None, &mut rng) == Some(0)));
    assert_eq!(pool.take(None, &mut rng), None);
}
