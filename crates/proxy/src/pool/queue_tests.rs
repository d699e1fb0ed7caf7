//! Tests of the queue: invariants under random operations with seeds, and single decisions.

use std::collections::BTreeSet;

use super::*;
use crate::test_time::at;

const MS: u64 = 1_000_000;

fn rules(order: QueueOrder) -> QueueRules {
    QueueRules { order, timeout_ns: 100 * MS, standing_after_ns: 100 * MS }
}

fn adaptive<T>() -> Queue<T> {
    Queue::new(rules(QueueOrder::Adaptive))
}

/// Returns a queue that stands: one entry waits, and the queue was not short at any check of the
/// window.
fn standing_queue() -> Queue<u32> {
    let mut queue = Queue::new(QueueRules { timeout_ns: 10_000 * MS, ..rules(QueueOrder::Adaptive) });
    for (number, at_ms) in [(0, 1_000), (1, 1_050), (2, 1_150)] {
        queue.push(Priority::Normal, at(at_ms * MS), NO_DEADLINE, number);
    }
    queue
}

#[test]
fn the_oldest_is_first_while_it_is_short_and_the_newest_when_it_stands() {
    let mut queue = adaptive();
    for number in 0..3 {
        queue.push(Priority::Normal, at(1_000 * MS + number * MS), NO_DEADLINE, number);
    }
    assert_eq!([(); 3].map(|()| queue.take(at(1_005 * MS)).unwrap()), [0, 1, 2]);
    let mut queue = standing_queue();
    assert_eq!([(); 3].map(|()| queue.take(at(1_200 * MS)).unwrap()), [2, 1, 0]);
    // An empty queue counts as short, so the window starts again.
    queue.push(Priority::Normal, at(1_300 * MS), NO_DEADLINE, 8);
    queue.push(Priority::Normal, at(1_301 * MS), NO_DEADLINE, 9);
    assert_eq!(queue.take(at(1_302 * MS)), Some(8));
}

#[test]
fn an_order_that_is_set_is_kept() {
    for (order, expected) in [(QueueOrder::OldestFirst, [0, 1, 2]), (QueueOrder::NewestFirst, [2, 1, 0])] {
        let mut queue = Queue::new(rules(order));
        for number in 0..3 {
            queue.push(Priority::Normal, at(number * 90 * MS), NO_DEADLINE, number);
        }
        assert_eq!([(); 3].map(|()| queue.take(at(500 * MS)).unwrap()), expected);
    }
}

#[test]
fn the_more_urgent_go_first_and_nobody_starves() {
    let mut queue = adaptive();
    for number in 0..100 {
        queue.push(Priority::Low, at(1), NO_DEADLINE, ("low", number));
        queue.push(Priority::High, at(1), NO_DEADLINE, ("high", number));
    }
    let taken: Vec<_> = (0..64).map(|_| queue.take(at(2)).unwrap()).collect();
    let low: Vec<usize> = (0..64).filter(|&at| taken[at].0 == "low").collect();
    assert_eq!(low, [15, 31, 47, 63]);
    assert_eq!(taken[15], ("low", 0));
}

#[test]
fn for_a_more_urgent_one_the_least_urgent_goes() {
    let mut queue = adaptive();
    for (class, name) in
        [(Priority::Low, "l1"), (Priority::Low, "l2"), (Priority::Normal, "n"), (Priority::High, "h")]
    {
        queue.push(class, at(1), NO_DEADLINE, name);
    }
    assert_eq!(queue.evict_for(Priority::Low, at(2)), None);
    assert_eq!(queue.evict_for(Priority::Normal, at(2)), Some("l2"));
    assert_eq!(queue.evict_for(Priority::High, at(2)), Some("l1"));
    assert_eq!(queue.evict_for(Priority::High, at(2)), Some("n"));
    assert_eq!(queue.evict_for(Priority::High, at(2)), None);
}

#[test]
fn when_it_stands_a_newcomer_takes_the_position_of_the_oldest() {
    let mut queue = standing_queue();
    assert_eq!(queue.evict_for(Priority::Normal, at(1_200 * MS)), Some(0));
    assert_eq!(queue.take(at(1_200 * MS)), Some(2));
}

#[test]
fn age_and_deadlines_expire_entries() {
    let mut queue = adaptive();
    let mut expired = Vec::new();
    queue.push(Priority::Normal, at(1_000 * MS), NO_DEADLINE, "old");
    queue.push(Priority::Normal, at(1_010 * MS), at(1_080 * MS), "deadline");
    queue.push(Priority::Low, at(1_050 * MS), at(1_200 * MS), "later");
    queue.expire(at(1_040 * MS), 20 * MS, |name, reason| expired.push((name, reason)));
    assert_eq!(expired, []);
    queue.expire(at(1_070 * MS), 20 * MS, |name, reason| expired.push((name, reason)));
    assert_eq!(expired, [("deadline", ExpiryReason::Deadline)]);
    queue.expire(at(1_100 * MS), 20 * MS, |name, reason| expired.push((name, reason)));
    assert_eq!(expired[1..], [("old", ExpiryReason::Timeout)]);
    assert_eq!((queue.take(at(1_100 * MS)), queue.take(at(1_100 * MS))), (Some("later"), None));
}

#[test]
fn retry_after_is_bounded_and_grows_with_the_queue_and_with_time() {
    assert_eq!(retry_after_s(0, 0, 0, 0), 1);
    assert_eq!(retry_after_s(1_000, 20 * MS, 10, 0), 2);
    assert_eq!(retry_after_s(10, 20 * MS, 10, 4_500 * MS), 5);
    assert_eq!(retry_after_s(usize::MAX, u64::MAX, 1, u64::MAX), RETRY_AFTER_MAX_S);
}

/// For any operations in any order: each entry leaves exactly once, no later than allowed. Entries
/// of one class keep their order, from either end.
#[test]
fn every_entry_ends_once_for_any_order_of_operations() {
    for seed in 0..256 {
        let mut random = fastrand::Rng::with_seed(seed);
        let orders = [QueueOrder::Adaptive, QueueOrder::OldestFirst, QueueOrder::NewestFirst];
        let rules = rules(orders[random.usize(..3)]);
        let mut queue = Queue::new(rules);
        let mut queued: BTreeSet<u32> = BTreeSet::new();
        let (mut now, mut next) = (at(1_000 * MS), 0);
        let mut positions: Vec<(u32, QueuePosition, MonotonicTime, MonotonicTime)> = Vec::new();
        for _ in 0..600 {
            now += random.u64(..8) * MS;
            match random.u32(..10) {
                0..=4 => {
                    let class = PRIORITIES[random.usize(..3)];
                    let deadline = if random.bool() { NO_DEADLINE } else { now + random.u64(..200) * MS };
                    let position = queue.push(class, now, deadline, next);
                    positions.push((next, position, now, deadline));
                    assert!(queued.insert(next));
                    next += 1;
                }
                5 | 6 => {
                    let taken = queue.take(now);
                    assert_eq!(taken.is_none(), queued.is_empty(), "seed {seed}");
                    assert!(taken.is_none_or(|request| queued.remove(&request)), "seed {seed}");
                }
                7 => {
                    let service_ns = random.u64(..50) * MS;
                    queue.expire(now, service_ns, |request, reason| {
                        assert!(queued.remove(&request), "seed {seed}");
                        let (.., enqueued_at, deadline) = positions[request as usize];
                        match reason {
                            ExpiryReason::Timeout => {
                                assert!(now - enqueued_at >= rules.timeout_ns)
                            }
                            ExpiryReason::Deadline => assert!(deadline < now + service_ns),
                        }
                    });
                    for request in &queued {
                        let (.., enqueued_at, deadline) = positions[*request as usize];
                        assert!(now - enqueued_at < rules.timeout_ns, "seed {seed}");
                        assert!(deadline >= now + service_ns, "seed {seed}");
                    }
                }
                8 if !positions.is_empty() => {
                    let (request, position, ..) = positions[random.usize(..positions.len())];
                    assert_eq!(queue.remove(position, now), queued.take(&request), "seed {seed}");
                }
                _ => {
                    let evicted = queue.evict_for(PRIORITIES[random.usize(..3)], now);
                    assert!(evicted.is_none_or(|request| queued.remove(&request)), "seed {seed}");
                }
            }
            assert_eq!((queue.len(), queue.is_empty()), (queued.len(), queued.is_empty()));
        }
    }
}

/// Under any load, no entry waits for more grants than its position and the rule of turns allow,
/// while the queue is served oldest first.
#[test]
fn a_class_has_its_turn_in_time() {
    for seed in 0..64 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut queue = Queue::new(rules(QueueOrder::OldestFirst));
        queue.push(Priority::Low, at(1), NO_DEADLINE, true);
        let mut grants = 0;
        loop {
            for _ in 0..random.u32(1..4) {
                queue.push(PRIORITIES[random.usize(..2)], at(1), NO_DEADLINE, false);
            }
            grants += 1;
            if queue.take(at(1)) == Some(true) {
                break;
            }
        }
        assert!(grants <= PASSES_MAX + 2, "seed {seed}: {grants}");
    }
}

#[test]
fn an_entry_whose_client_would_leave_before_the_response_gets_no_slot() {
    let service_ns = 16 * MS;
    let next = |queue: &mut Queue<u64>, now_ms: u64| {
        queue.offer_slots(at(now_ms * MS), service_ns, &mut |_| Offer::Slot(())).map(|(number, ())| number)
    };
    let mut queue = adaptive();
    // Three clients leave after 30 ms each; the response takes 16 ms, and 2 ms are the margin.
    for number in 0..3 {
        let arrived = at((1_000 + number) * MS);
        let position = queue.push(Priority::Normal, arrived, NO_DEADLINE, number);
        assert!(queue.remove(position, arrived + 30 * MS).is_some());
    }
    queue.push(Priority::Normal, at(1_020 * MS), NO_DEADLINE, 7);
    queue.push(Priority::Normal, at(1_026 * MS), NO_DEADLINE, 8);
    assert_eq!(next(&mut queue, 1_033), Some(8));
    assert_eq!(next(&mut queue, 1_033), None, "13 ms old");
    // It stays longer than the others did: so do its like.
    assert_eq!(next(&mut queue, 1_051), None);
    queue.push(Priority::Normal, at(1_039 * MS), NO_DEADLINE, 9);
    assert_eq!(next(&mut queue, 1_051), Some(9));
    // Nobody has left for a window.
    assert_eq!(next(&mut queue, 1_135), Some(7));
}
