//! What a pool makes of standings, weights and wants when it chooses: backups, slow starts, clients
//! that stick. The choice itself is tested in `balance`.

use super::standing::{Checked, Wanted};
use super::tests::{ask, plan, pools};
use super::*;
use crate::balance::source_key;
use crate::plan::{SameSite, Secret, StickyMode, StickyPlan};

const SECOND_NS: u64 = 1_000_000_000;

fn rng() -> fastrand::Rng {
    fastrand::Rng::with_seed(11)
}

/// A pool of servers with these bounds, changed.
fn pool(maxconns: &[Option<usize>], change: impl Fn(&mut PoolPlan)) -> Pool {
    let mut plan = plan(maxconns, 10);
    change(&mut Arc::get_mut(&mut plan).unwrap().pools[0]);
    pools(&plan, 1).remove(0)
}

fn sticky(plan: &mut PoolPlan) {
    plan.sticky = Some(StickyPlan {
        cookie: "SRV".into(),
        mode: StickyMode::Insert,
        key: Secret::new(b"a key of the tests"),
        key_file: None,
        max_age_s: None,
        secure: false,
        http_only: true,
        same_site: SameSite::Lax,
    });
}

fn pinned(server: usize) -> Want {
    Want { pinned: Some(server), ..Want::default() }
}

/// How many of so many requests, one after the other, each server gets.
fn spread(pool: &Pool, requests: u32) -> Vec<usize> {
    let mut rng = rng();
    let mut got = vec![0; pool.servers.len()];
    for number in 0..requests {
        let key = source_key(Some(std::net::IpAddr::V4(number.into())));
        let want = Want { key, ..Want::default() };
        let server = pool.acquire(want, 0, &mut rng).expect("a server");
        got[server] += 1;
        pool.learn(server, 5_000_000, u64::from(number));
        pool.release(server, &mut rng);
    }
    got
}

fn set(pool: &Pool, server: usize, wanted: Wanted) {
    pool.shared.standing(server).want(wanted, 1);
    pool.settle(1);
}

#[test]
fn backups_wait_until_no_other_may_be_used() {
    for &balance in Balance::ALL {
        let pool = pool(&[Some(1), Some(1), Some(5), Some(5)], |plan| {
            plan.balance = balance;
            plan.servers[2].backup = true;
            plan.servers[3].backup = true;
        });
        let mut rng = rng();
        let first = [pool.take(None, &mut rng), pool.take(None, &mut rng)];
        assert!(first.contains(&Some(0)) && first.contains(&Some(1)), "{balance:?} {first:?}");
        // Full is not away.
        assert_eq!(pool.take(None, &mut rng), None, "{balance:?}");
        assert!(pool.has_server(Want::default()));
        set(&pool, 0, Wanted::Maintenance);
        assert_eq!(pool.take(None, &mut rng), None, "{balance:?}");
        set(&pool, 1, Wanted::Drain);
        let backup = pool.take(None, &mut rng);
        assert!(matches!(backup, Some(2 | 3)), "{balance:?} {backup:?}");
        set(&pool, 1, Wanted::Ready);
        pool.release(1, &mut rng);
        assert_eq!(pool.take(None, &mut rng), Some(1), "{balance:?}");
        // Nobody is left.
        (0..4).for_each(|server| set(&pool, server, Wanted::Maintenance));
        assert!(!pool.has_server(Want::default()));
    }
}

#[test]
fn a_slow_start_holds_with_every_balance() {
    for &balance in Balance::ALL {
        let pool = pool(&[None, None, None], |plan| {
            plan.balance = balance;
            plan.slow_start_ns = 10 * SECOND_NS;
        });
        let standing = pool.shared.standing(2);
        standing.found(Checked::Down, SECOND_NS);
        standing.found(Checked::Up, 10 * SECOND_NS);
        // It knows nothing of slow starts but through the share: a tenth of one is 1 in 21.
        pool.settle(10 * SECOND_NS);
        assert_eq!(standing.share(), 10);
        let early = spread(&pool, 2_100);
        pool.settle(20 * SECOND_NS);
        let late = spread(&pool, 2_100);
        let what = format!("{balance:?} {early:?} {late:?}");
        if balance == Balance::First {
            assert_eq!((early[0], late[0]), (2_100, 2_100), "{what}");
        } else {
            assert!(early[2] <= 170 && early[2] > 0, "{what}");
            let wanted = if balance == Balance::Latency { 300..2_100 } else { 600..800 };
            assert!(wanted.contains(&late[2]), "{what}");
        }
    }
}

#[test]
fn first_fills_a_server_that_starts_slowly_by_and_by() {
    let pool = pool(&[Some(10), Some(10)], |plan| {
        plan.balance = Balance::First;
        plan.slow_start_ns = 10 * SECOND_NS;
    });
    let standing = pool.shared.standing(0);
    standing.found(Checked::Down, SECOND_NS);
    standing.found(Checked::Up, 10 * SECOND_NS);
    let mut rng = rng();
    let mut take = |now_ns| {
        pool.settle(now_ns);
        pool.take(None, &mut rng)
    };
    assert_eq!([(); 3].map(|()| take(10 * SECOND_NS)), [Some(0), Some(1), Some(1)]);
    assert_eq!([(); 3].map(|()| take(13 * SECOND_NS)), [Some(0), Some(0), Some(1)]);
    // And at once when there is no other room.
    (0..7).for_each(|_| assert_eq!(take(13 * SECOND_NS), Some(1)));
    assert_eq!(take(13 * SECOND_NS), Some(0));
}

#[test]
fn who_sticks_goes_to_a_server_in_drain_and_not_to_one_that_is_away() {
    let pool = pool(&[None, None], sticky);
    let mut rng = rng();
    let mut goes = |pool: &Pool| pool.acquire(pinned(1), 5, &mut rng);
    assert!((0..20).all(|_| goes(&pool) == Some(1)));
    set(&pool, 1, Wanted::Drain);
    assert!((0..20).all(|_| goes(&pool) == Some(1)));
    set(&pool, 0, Wanted::Maintenance);
    assert!(pool.has_server(pinned(1)) && !pool.has_server(Want::default()));
    set(&pool, 0, Wanted::Ready);
    set(&pool, 1, Wanted::Maintenance);
    assert_eq!(goes(&pool), Some(0));
    set(&pool, 1, Wanted::Ready);
    pool.shared.standing(1).found(Checked::Down, 1);
    assert_eq!(goes(&pool), Some(0));
    pool.shared.standing(1).found(Checked::Up, 1);
    pool.shared.standing(1).eject_until(6);
    assert_eq!(goes(&pool), Some(0));
    pool.settle(6);
    assert_eq!(pool.acquire(pinned(1), 6, &mut fastrand::Rng::with_seed(1)), Some(1));
}

#[test]
fn one_that_has_just_failed_is_left_even_by_who_sticks_to_it() {
    let pool = pool(&[None, None], sticky);
    let want = Want { avoid: Some(1), ..pinned(1) };
    assert!((0..20).all(|_| pool.acquire(want, 0, &mut rng()) == Some(0)));
}

#[test]
fn who_waits_for_one_server_keeps_nobody_from_the_others() {
    let pool = pool(&[Some(1), Some(2)], sticky);
    let mut rng = rng();
    let enqueue =
        |want, rng: &mut fastrand::Rng| pool.enqueue(&Ask { want, ..ask(0) }, rng).unwrap();
    assert_eq!(pool.acquire(pinned(0), 0, &mut rng), Some(0));
    assert_eq!(pool.acquire(pinned(0), 0, &mut rng), None);
    let sticking = enqueue(pinned(0), &mut rng);
    assert_eq!(pool.acquire(Want::default(), 0, &mut rng), Some(1));
    assert_eq!(pool.acquire(pinned(1), 0, &mut rng), Some(1));
    // Now all is full: both kinds wait, each is served when there is room for it.
    assert_eq!(pool.acquire(Want::default(), 0, &mut rng), None);
    let any = enqueue(Want::default(), &mut rng);
    let to_one = enqueue(pinned(1), &mut rng);
    pool.release(1, &mut rng);
    assert_eq!(sticking.state(), TicketState::Waiting);
    assert_eq!(any.state(), TicketState::Granted(1));
    pool.release(1, &mut rng);
    assert_eq!(to_one.state(), TicketState::Granted(1));
    // A newcomer that would do with any server waits behind none that does not.
    pool.release(0, &mut rng);
    assert_eq!(sticking.state(), TicketState::Granted(0));
    assert!(!pool.expire_queue(1));
}

#[test]
fn who_waits_for_a_server_that_goes_away_goes_elsewhere() {
    let pool = pool(&[Some(1), Some(1)], sticky);
    let mut rng = rng();
    assert_eq!(pool.acquire(pinned(0), 0, &mut rng), Some(0));
    let sticking = pool.enqueue(&Ask { want: pinned(0), ..ask(0) }, &mut rng).unwrap();
    assert_eq!(sticking.state(), TicketState::Waiting);
    set(&pool, 0, Wanted::Maintenance);
    pool.serve_queue(&mut rng);
    assert_eq!(sticking.state(), TicketState::Granted(1));
}

#[test]
fn a_retry_goes_to_no_server_that_gets_nothing() {
    let pool = pool(&[None, None], |_| {});
    set(&pool, 0, Wanted::Maintenance);
    set(&pool, 1, Wanted::Drain);
    assert_eq!(pool.take(Some(1), &mut rng()), None);
}

#[test]
fn requests_by_a_key_are_counted_when_they_go_elsewhere() {
    let pool = pool(&[Some(1), Some(1), Some(1)], |plan| plan.balance = Balance::ConsistentHash);
    let (mut rng, want) = (rng(), Want { key: Some(digest(b"k")), ..Want::default() });
    let own = pool.acquire(want, 0, &mut rng);
    assert!(own.is_some());
    assert_eq!(pool.take_elsewhere(), 0);
    let other = pool.acquire(want, 0, &mut rng);
    assert!(other.is_some() && other != own);
    assert_eq!((pool.take_elsewhere(), pool.take_elsewhere()), (1, 0));
}

#[test]
fn what_was_learnt_stays_over_a_reload() {
    let mut old = plan(&[None, None], 10);
    Arc::get_mut(&mut old).unwrap().pools[0].balance = Balance::Latency;
    let bells = Bells::new(1);
    let shared = Shared::new(&old, &bells, None).unwrap();
    let new = |plan: &Arc<Plan>, before: Option<&Pool>| {
        Pool::new(Arc::clone(plan), 0, (0, 1), Arc::clone(&shared.pools[0]), before)
    };
    let before = new(&old, None);
    before.learn(0, SECOND_NS, 1);
    before.learn(1, 1_000, 1);
    let after = new(&old, Some(&before));
    assert!((0..20).all(|_| after.take(None, &mut rng()) == Some(1)));
}
