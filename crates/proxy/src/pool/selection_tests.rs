//! Tests of a pool's selection by eligibility, weights and requirements: backups, slow starts,
//! sticky clients. The algorithm itself is tested in `balance`.

use super::eligibility::{AdminState, CheckStatus};
use super::tests::{POOL, S0, S1, S2, S3, enqueue_request, plan_with_maxconns, pools_on_cores};
use super::*;
use crate::balance::digest_source;
use crate::plan::{Sticky, StickyMode, StickyPlan};
use crate::test_time::at;

const SECOND_NS: u64 = 1_000_000_000;

fn rng() -> fastrand::Rng {
    fastrand::Rng::with_seed(11)
}

/// Returns a pool of servers with these bounds, after `change`.
fn pool(maxconns: &[Option<usize>], change: impl Fn(&mut PoolPlan)) -> Pool {
    let mut plan = plan_with_maxconns(maxconns, 10);
    change(Arc::make_mut(&mut Arc::get_mut(&mut plan).unwrap().pools[POOL]));
    pools_on_cores(&plan, 1).remove(0)
}

fn make_sticky(plan: &mut PoolPlan) {
    plan.sticky = Some(Sticky::Cookie(StickyPlan::for_tests(StickyMode::Insert)));
}

fn pinned_to(server: ServerId) -> ServerRequirements {
    ServerRequirements { pinned: Some(server), ..ServerRequirements::default() }
}

/// Returns the number of requests that each server gets, sent one after the other.
fn request_counts(pool: &Pool, requests: u32) -> IdVec<ServerId, usize> {
    let mut rng = rng();
    let mut counts: IdVec<ServerId, usize> = pool.servers.iter().map(|_| 0).collect();
    for number in 0..requests {
        let key = digest_source(Some(std::net::IpAddr::V4(number.into())));
        let requirements = ServerRequirements { key, ..ServerRequirements::default() };
        let server = pool.acquire(requirements, at(0), &mut rng).expect("a server");
        counts[server] += 1;
        pool.record_latency(server, 5_000_000, at(u64::from(number)));
        pool.release(server, &mut rng);
    }
    counts
}

fn set_operator_state(pool: &Pool, server: ServerId, operator_state: AdminState) {
    pool.shared.eligibility(server).set_operator_state(operator_state, at(1));
    pool.recompute(at(1));
}

#[test]
fn backups_wait_until_no_other_may_be_used() {
    for &balance in Balance::ALL {
        let pool = pool(&[Some(1), Some(1), Some(5), Some(5)], |plan| {
            plan.balance = balance;
            plan.servers[S2].backup = true;
            plan.servers[S3].backup = true;
        });
        let mut rng = rng();
        let first_two = [pool.take(None, &mut rng), pool.take(None, &mut rng)];
        assert!(first_two.contains(&Some(S0)) && first_two.contains(&Some(S1)), "{balance:?} {first_two:?}");
        // A full server is still available.
        assert_eq!(pool.take(None, &mut rng), None, "{balance:?}");
        assert!(pool.has_usable_server(ServerRequirements::default()));
        set_operator_state(&pool, S0, AdminState::Maintenance);
        assert_eq!(pool.take(None, &mut rng), None, "{balance:?}");
        set_operator_state(&pool, S1, AdminState::Drain);
        let backup = pool.take(None, &mut rng);
        assert!(matches!(backup, Some(S2 | S3)), "{balance:?} {backup:?}");
        set_operator_state(&pool, S1, AdminState::Ready);
        pool.release(S1, &mut rng);
        assert_eq!(pool.take(None, &mut rng), Some(S1), "{balance:?}");
        // No server is left.
        pool.servers.ids().for_each(|server| set_operator_state(&pool, server, AdminState::Maintenance));
        assert!(!pool.has_usable_server(ServerRequirements::default()));
    }
}

#[test]
fn a_slow_start_holds_with_every_balance() {
    for &balance in Balance::ALL {
        let pool = pool(&[None, None, None], |plan| {
            plan.balance = balance;
            plan.slow_start_ns = 10 * SECOND_NS;
        });
        let eligibility = pool.shared.eligibility(S2);
        eligibility.set_check_status(CheckStatus::Down, at(SECOND_NS));
        eligibility.set_check_status(CheckStatus::Up, at(10 * SECOND_NS));
        // The algorithm sees a slow start only as a weight: a tenth of one is 1 in 21.
        pool.recompute(at(10 * SECOND_NS));
        assert_eq!(eligibility.effective_weight(), 10);
        let early = request_counts(&pool, 2_100);
        pool.recompute(at(20 * SECOND_NS));
        let late = request_counts(&pool, 2_100);
        let label = format!("{balance:?} {early:?} {late:?}");
        if balance == Balance::First {
            assert_eq!((early[S0], late[S0]), (2_100, 2_100), "{label}");
        } else {
            assert!(early[S2] <= 170 && early[S2] > 0, "{label}");
            let expected = if balance == Balance::Latency { 300..2_100 } else { 600..800 };
            assert!(expected.contains(&late[S2]), "{label}");
        }
    }
}

#[test]
fn first_fills_a_server_that_starts_slowly_by_and_by() {
    let pool = pool(&[Some(10), Some(10)], |plan| {
        plan.balance = Balance::First;
        plan.slow_start_ns = 10 * SECOND_NS;
    });
    let eligibility = pool.shared.eligibility(S0);
    eligibility.set_check_status(CheckStatus::Down, at(SECOND_NS));
    eligibility.set_check_status(CheckStatus::Up, at(10 * SECOND_NS));
    let mut rng = rng();
    let mut take = |now| {
        pool.recompute(now);
        pool.take(None, &mut rng)
    };
    assert_eq!([(); 3].map(|()| take(at(10 * SECOND_NS))), [Some(S0), Some(S1), Some(S1)]);
    assert_eq!([(); 3].map(|()| take(at(13 * SECOND_NS))), [Some(S0), Some(S0), Some(S1)]);
    // And at once if no other server has a free slot.
    (0..7).for_each(|_| assert_eq!(take(at(13 * SECOND_NS)), Some(S1)));
    assert_eq!(take(at(13 * SECOND_NS)), Some(S0));
}

#[test]
fn sticky_requests_go_to_a_server_in_drain_and_not_to_an_unavailable_one() {
    let pool = pool(&[None, None], make_sticky);
    let mut rng = rng();
    let mut acquire_pinned = |pool: &Pool| pool.acquire(pinned_to(S1), at(5), &mut rng);
    assert!((0..20).all(|_| acquire_pinned(&pool) == Some(S1)));
    set_operator_state(&pool, S1, AdminState::Drain);
    assert!((0..20).all(|_| acquire_pinned(&pool) == Some(S1)));
    set_operator_state(&pool, S0, AdminState::Maintenance);
    assert!(pool.has_usable_server(pinned_to(S1)) && !pool.has_usable_server(ServerRequirements::default()));
    set_operator_state(&pool, S0, AdminState::Ready);
    set_operator_state(&pool, S1, AdminState::Maintenance);
    assert_eq!(acquire_pinned(&pool), Some(S0));
    set_operator_state(&pool, S1, AdminState::Ready);
    pool.shared.eligibility(S1).set_check_status(CheckStatus::Down, at(1));
    assert_eq!(acquire_pinned(&pool), Some(S0));
    pool.shared.eligibility(S1).set_check_status(CheckStatus::Up, at(1));
    pool.shared.eligibility(S1).eject_until(at(6));
    assert_eq!(acquire_pinned(&pool), Some(S0));
    pool.recompute(at(6));
    assert_eq!(pool.acquire(pinned_to(S1), at(6), &mut fastrand::Rng::with_seed(1)), Some(S1));
}

#[test]
fn a_server_that_has_just_failed_is_avoided_even_by_sticky_requests() {
    let pool = pool(&[None, None], make_sticky);
    let requirements = ServerRequirements { avoid: Some(S1), ..pinned_to(S1) };
    assert!((0..20).all(|_| pool.acquire(requirements, at(0), &mut rng()) == Some(S0)));
}

#[test]
fn a_request_queued_for_one_server_blocks_no_request_for_the_others() {
    let pool = pool(&[Some(1), Some(2)], make_sticky);
    let mut rng = rng();
    let enqueue = |requirements, rng: &mut fastrand::Rng| {
        pool.enqueue(&EnqueueRequest { requirements, ..enqueue_request(at(0)) }, rng).unwrap()
    };
    assert_eq!(pool.acquire(pinned_to(S0), at(0), &mut rng), Some(S0));
    assert_eq!(pool.acquire(pinned_to(S0), at(0), &mut rng), None);
    let pinned_ticket = enqueue(pinned_to(S0), &mut rng);
    assert_eq!(pool.acquire(ServerRequirements::default(), at(0), &mut rng), Some(S1));
    assert_eq!(pool.acquire(pinned_to(S1), at(0), &mut rng), Some(S1));
    // Now all servers are full. Both kinds of requests wait, and each is served when it has a slot.
    assert_eq!(pool.acquire(ServerRequirements::default(), at(0), &mut rng), None);
    let any_ticket = enqueue(ServerRequirements::default(), &mut rng);
    let other_pinned_ticket = enqueue(pinned_to(S1), &mut rng);
    pool.release(S1, &mut rng);
    assert_eq!(pinned_ticket.state(), TicketState::Waiting);
    assert_eq!(any_ticket.state(), TicketState::Granted(S1));
    pool.release(S1, &mut rng);
    assert_eq!(other_pinned_ticket.state(), TicketState::Granted(S1));
    // A newcomer that accepts any server does not wait behind one that does not.
    pool.release(S0, &mut rng);
    assert_eq!(pinned_ticket.state(), TicketState::Granted(S0));
    assert!(!pool.expire_queue(at(1)));
}

#[test]
fn a_request_queued_for_a_server_that_becomes_unavailable_goes_to_another() {
    let pool = pool(&[Some(1), Some(1)], make_sticky);
    let mut rng = rng();
    assert_eq!(pool.acquire(pinned_to(S0), at(0), &mut rng), Some(S0));
    let pinned_ticket = pool
        .enqueue(&EnqueueRequest { requirements: pinned_to(S0), ..enqueue_request(at(0)) }, &mut rng)
        .unwrap();
    assert_eq!(pinned_ticket.state(), TicketState::Waiting);
    set_operator_state(&pool, S0, AdminState::Maintenance);
    pool.serve_queue(&mut rng);
    assert_eq!(pinned_ticket.state(), TicketState::Granted(S1));
}

#[test]
fn a_retry_goes_to_no_server_that_gets_nothing() {
    let pool = pool(&[None, None], |_| {});
    set_operator_state(&pool, S0, AdminState::Maintenance);
    set_operator_state(&pool, S1, AdminState::Drain);
    assert_eq!(pool.take(Some(S1), &mut rng()), None);
}

#[test]
fn requests_by_a_key_are_counted_when_they_overflow() {
    let pool = pool(&[Some(1), Some(1), Some(1)], |plan| plan.balance = Balance::ConsistentHash);
    let (mut rng, requirements) =
        (rng(), ServerRequirements { key: Some(digest(b"k")), ..ServerRequirements::default() });
    let own = pool.acquire(requirements, at(0), &mut rng);
    assert!(own.is_some());
    assert_eq!(pool.take_hash_overflow(), 0);
    let other = pool.acquire(requirements, at(0), &mut rng);
    assert!(other.is_some() && other != own);
    assert_eq!((pool.take_hash_overflow(), pool.take_hash_overflow()), (1, 0));
}

#[test]
fn latencies_survive_a_reload() {
    let mut old = plan_with_maxconns(&[None, None], 10);
    Arc::make_mut(&mut Arc::get_mut(&mut old).unwrap().pools[POOL]).balance = Balance::Latency;
    let wakeups = CoreWakeups::new(1);
    let shared = CrossCoreState::new(&old, &wakeups, None).unwrap();
    let new = |plan: &Arc<Plan>, previous: Option<&Pool>| {
        Pool::new(plan, POOL, CoreId { index: 0, count: 1 }, Arc::clone(&shared.pools[POOL]), previous)
    };
    let old_pool = new(&old, None);
    old_pool.record_latency(S0, SECOND_NS, at(1));
    old_pool.record_latency(S1, 1_000, at(1));
    let new_pool = new(&old, Some(&old_pool));
    assert!((0..20).all(|_| new_pool.take(None, &mut rng()) == Some(S1)));
}
