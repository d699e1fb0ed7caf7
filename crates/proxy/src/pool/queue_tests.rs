//! The queue by rules that hold whatever happens, with seeds; and its decisions one by one.

use std::collections::BTreeSet;

use super::*;

const MS: u64 = 1_000_000;

fn rules(order: QueueOrder) -> Rules {
    Rules { order, timeout_ns: 100 * MS, stands_after_ns: 100 * MS }
}

fn adaptive<T>() -> Queue<T> {
    Queue::new(rules(QueueOrder::Adaptive))
}

/// A queue that has stood: one waits, and no look at it was short for the window.
fn standing() -> Queue<u32> {
    let mut queue = Queue::new(Rules { timeout_ns: 10_000 * MS, ..rules(QueueOrder::Adaptive) });
    for (number, at_ms) in [(0, 1_000), (1, 1_050), (2, 1_150)] {
        queue.push(Priority::Normal, at_ms * MS, NEVER, number);
    }
    queue
}

#[test]
fn the_oldest_is_first_while_it_is_short_and_the_newest_when_it_stands() {
    let mut queue = adaptive();
    for number in 0..3 {
        queue.push(Priority::Normal, 1_000 * MS + number * MS, NEVER, number);
    }
    assert_eq!([(); 3].map(|()| queue.take(1_005 * MS).unwrap()), [0, 1, 2]);
    let mut queue = standing();
    assert_eq!([(); 3].map(|()| queue.take(1_200 * MS).unwrap()), [2, 1, 0]);
    // Empty was short: it begins anew.
    queue.push(Priority::Normal, 1_300 * MS, NEVER, 8);
    queue.push(Priority::Normal, 1_301 * MS, NEVER, 9);
    assert_eq!(queue.take(1_302 * MS), Some(8));
}

#[test]
fn an_order_that_is_set_is_kept() {
    for (order, wanted) in
        [(QueueOrder::OldestFirst, [0, 1, 2]), (QueueOrder::NewestFirst, [2, 1, 0])]
    {
        let mut queue = Queue::new(rules(order));
        for number in 0..3 {
            queue.push(Priority::Normal, number * 90 * MS, NEVER, number);
        }
        assert_eq!([(); 3].map(|()| queue.take(500 * MS).unwrap()), wanted);
    }
}

#[test]
fn the_more_urgent_go_first_and_nobody_starves() {
    let mut queue = adaptive();
    for number in 0..100 {
        queue.push(Priority::Low, 1, NEVER, ("low", number));
        queue.push(Priority::High, 1, NEVER, ("high", number));
    }
    let taken: Vec<_> = (0..64).map(|_| queue.take(2).unwrap()).collect();
    let low: Vec<usize> = (0..64).filter(|&at| taken[at].0 == "low").collect();
    assert_eq!(low, [15, 31, 47, 63]);
    assert_eq!(taken[15], ("low", 0));
}

#[test]
fn for_a_more_urgent_one_the_least_urgent_goes() {
    let mut queue = adaptive();
    for (class, name) in [
        (Priority::Low, "l1"),
        (Priority::Low, "l2"),
        (Priority::Normal, "n"),
        (Priority::High, "h"),
    ] {
        queue.push(class, 1, NEVER, name);
    }
    assert_eq!(queue.evict_for(Priority::Low, 2), None);
    assert_eq!(queue.evict_for(Priority::Normal, 2), Some("l2"));
    assert_eq!(queue.evict_for(Priority::High, 2), Some("l1"));
    assert_eq!(queue.evict_for(Priority::High, 2), Some("n"));
    assert_eq!(queue.evict_for(Priority::High, 2), None);
}

#[test]
fn when_it_stands_a_newcomer_takes_the_place_of_the_oldest() {
    let mut queue = standing();
    assert_eq!(queue.evict_for(Priority::Normal, 1_200 * MS), Some(0));
    assert_eq!(queue.take(1_200 * MS), Some(2));
}

#[test]
fn age_and_deadlines_put_out() {
    let mut queue = adaptive();
    let mut out = Vec::new();
    queue.push(Priority::Normal, 1_000 * MS, NEVER, "old");
    queue.push(Priority::Normal, 1_010 * MS, 1_080 * MS, "deadline");
    queue.push(Priority::Low, 1_050 * MS, 1_200 * MS, "later");
    queue.expire(1_040 * MS, 20 * MS, |one, why| out.push((one, why)));
    assert_eq!(out, []);
    queue.expire(1_070 * MS, 20 * MS, |one, why| out.push((one, why)));
    assert_eq!(out, [("deadline", Late::Deadline)]);
    queue.expire(1_100 * MS, 20 * MS, |one, why| out.push((one, why)));
    assert_eq!(out[1..], [("old", Late::Waited)]);
    assert_eq!((queue.take(1_100 * MS), queue.take(1_100 * MS)), (Some("later"), None));
}

#[test]
fn retry_after_is_bounded_and_grows_with_the_line_and_with_time() {
    assert_eq!(retry_after_s(0, 0, 0, 0), 1);
    assert_eq!(retry_after_s(1_000, 20 * MS, 10, 0), 2);
    assert_eq!(retry_after_s(10, 20 * MS, 10, 4_500 * MS), 5);
    assert_eq!(retry_after_s(usize::MAX, u64::MAX, 1, u64::MAX), RETRY_AFTER_MAX_S);
}

/// Whatever happens in whatever order: each that came in comes out once, by one door, no later than
/// it may, and those of one class keep their order from whichever end.
#[test]
fn every_one_ends_once_whatever_happens() {
    for seed in 0..256 {
        let mut random = fastrand::Rng::with_seed(seed);
        let orders = [QueueOrder::Adaptive, QueueOrder::OldestFirst, QueueOrder::NewestFirst];
        let rules = rules(orders[random.usize(..3)]);
        let mut queue = Queue::new(rules);
        let mut here: BTreeSet<u32> = BTreeSet::new();
        let (mut now_ns, mut next) = (1_000 * MS, 0);
        let mut places: Vec<(u32, Place, u64, u64)> = Vec::new();
        for _ in 0..600 {
            now_ns += random.u64(..8) * MS;
            match random.u32(..10) {
                0..=4 => {
                    let class = CLASSES[random.usize(..3)];
                    let deadline_ns =
                        if random.bool() { NEVER } else { now_ns + random.u64(..200) * MS };
                    let place = queue.push(class, now_ns, deadline_ns, next);
                    places.push((next, place, now_ns, deadline_ns));
                    assert!(here.insert(next));
                    next += 1;
                }
                5 | 6 => {
                    let taken = queue.take(now_ns);
                    assert_eq!(taken.is_none(), here.is_empty(), "seed {seed}");
                    assert!(taken.is_none_or(|one| here.remove(&one)), "seed {seed}");
                }
                7 => {
                    let service_ns = random.u64(..50) * MS;
                    queue.expire(now_ns, service_ns, |one, why| {
                        assert!(here.remove(&one), "seed {seed}");
                        let (.., came_ns, deadline_ns) = places[one as usize];
                        match why {
                            Late::Waited => assert!(now_ns - came_ns >= rules.timeout_ns),
                            Late::Deadline => assert!(deadline_ns < now_ns + service_ns),
                        }
                    });
                    for one in &here {
                        let (.., came_ns, deadline_ns) = places[*one as usize];
                        assert!(now_ns - came_ns < rules.timeout_ns, "seed {seed}");
                        assert!(deadline_ns >= now_ns + service_ns, "seed {seed}");
                    }
                }
                8 if !places.is_empty() => {
                    let (one, place, ..) = places[random.usize(..places.len())];
                    assert_eq!(queue.remove(place), here.take(&one), "seed {seed}");
                }
                _ => {
                    let out = queue.evict_for(CLASSES[random.usize(..3)], now_ns);
                    assert!(out.is_none_or(|one| here.remove(&one)), "seed {seed}");
                }
            }
            assert_eq!((queue.len(), queue.is_empty()), (here.len(), here.is_empty()));
        }
    }
}

/// Under any load, none waits for more grants than its place and the rule of turns allow, while
/// the line is served oldest first.
#[test]
fn a_class_has_its_turn_in_time() {
    for seed in 0..64 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut queue = Queue::new(rules(QueueOrder::OldestFirst));
        queue.push(Priority::Low, 1, NEVER, true);
        let mut grants = 0;
        loop {
            for _ in 0..random.u32(1..4) {
                queue.push(CLASSES[random.usize(..2)], 1, NEVER, false);
            }
            grants += 1;
            if queue.take(1) == Some(true) {
                break;
            }
        }
        assert!(grants <= PASSES_MAX + 2, "seed {seed}: {grants}");
    }
}
