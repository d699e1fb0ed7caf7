//! Property tests of the admission limits, with fixed seeds.

use std::collections::HashMap;

use super::sources::SourceTable;
use super::*;
use crate::plan::{SourcePlan, TokenRate};
use crate::test_time::at;

const SECOND_NS: u64 = 1_000_000_000;

fn plan() -> SourcePlan {
    SourcePlan {
        connections: Some(2),
        connections_rate: None,
        requests_rate: None,
        prefix4: 32,
        prefix6: 64,
        entries: 64,
    }
}

fn v4(number: u32) -> IpAddr {
    IpAddr::V4(number.into())
}

#[test]
fn a_rate_holds_and_a_client_that_waits_for_the_returned_time_is_admitted() {
    let bucket = TokenBucket::default();
    let rate = TokenRate { rate_per_s: 4.0, burst: 2 };
    let now = at(5 * SECOND_NS);
    assert!((0..2).all(|_| bucket.try_take(&rate, now).is_ok()));
    let wait_ns = bucket.try_take(&rate, now).unwrap_err();
    assert_eq!(wait_ns, SECOND_NS / 4);
    assert_eq!(bucket.try_take(&rate, now + (wait_ns - 1)), Err(1));
    assert_eq!(bucket.try_take(&rate, now + wait_ns), Ok(()));
    let taken =
        (0..100_000).filter(|step| bucket.try_take(&rate, at(100 * SECOND_NS + step * 100_000)).is_ok());
    assert_eq!(taken.count(), 41);
}

#[test]
fn a_source_has_a_maximum_of_connections_and_released_ones_are_free_again() {
    let sources = SourceTable::new(&plan());
    let slots: Vec<SourceSlot> = (0..2).map(|_| sources.acquire(v4(1), at(0)).unwrap()).collect();
    assert_eq!(sources.acquire(v4(1), at(0)), Err(SourceLimitExceeded::Connections));
    assert!(sources.acquire(v4(2), at(0)).is_ok());
    sources.release(slots[0]);
    assert!(sources.acquire(v4(1), at(0)).is_ok());
}

#[test]
fn a_prefix_is_one_source() {
    let sources = SourceTable::new(&SourcePlan { connections: Some(1), prefix4: 24, ..plan() });
    let acquire = |text: &str| sources.acquire(text.parse().unwrap(), at(0));
    assert!(acquire("10.0.0.1").is_ok() && acquire("10.0.0.255").is_err() && acquire("10.0.1.0").is_ok());
    assert!(acquire("::ffff:10.0.0.9").is_err());
    assert!(acquire("2001:db8::1").is_ok() && acquire("2001:db8::ffff:1").is_err());
    assert!(acquire("2001:db8:0:1::1").is_ok());
    let all = SourceTable::new(&SourcePlan { connections: Some(1), prefix4: 0, prefix6: 0, ..plan() });
    assert!(all.acquire(v4(1), at(0)).is_ok() && all.acquire(v4(u32::MAX), at(0)).is_err());
    assert!(all.acquire("::1".parse().unwrap(), at(0)).is_ok());
    assert!(all.acquire("ff::1".parse().unwrap(), at(0)).is_err());
}

#[test]
fn rates_of_a_source_outlive_its_connections() {
    let rate = Some(TokenRate { rate_per_s: 1.0, burst: 2 });
    let sources = SourceTable::new(&SourcePlan { connections: None, connections_rate: rate, ..plan() });
    for _ in 0..2 {
        sources.release(sources.acquire(v4(1), at(0)).unwrap());
    }
    assert_eq!(sources.acquire(v4(1), at(0)), Err(SourceLimitExceeded::Rate { wait_ns: SECOND_NS }));
    assert!(sources.acquire(v4(2), at(0)).is_ok() && sources.acquire(v4(1), at(SECOND_NS)).is_ok());
    let sources = SourceTable::new(&SourcePlan { requests_rate: rate, ..plan() });
    let slot = sources.acquire(v4(1), at(0)).unwrap();
    assert!((0..2).all(|_| sources.admit_request(slot, at(0)).is_ok()));
    assert_eq!(sources.admit_request(slot, at(0)), Err(SECOND_NS));
    assert_eq!(sources.admit_request(SourceSlot::untracked(), at(0)), Ok(()));
}

/// For any order of arrivals and departures: no source exceeds its limit, no count is lost, and a
/// connection without a slot is not limited.
#[test]
fn no_source_exceeds_its_limit_for_any_order_of_events() {
    for seed in 0..256 {
        let mut random = fastrand::Rng::with_seed(seed);
        let entries = random.usize(8..80);
        let sources = SourceTable::new(&SourcePlan { connections: Some(3), entries, ..plan() });
        let mut open: Vec<(u32, SourceSlot)> = Vec::new();
        let mut tracked: HashMap<u32, u32> = HashMap::new();
        for now in 0..800 {
            if random.u32(..5) < 3 || open.is_empty() {
                let client = random.u32(..40);
                let count = tracked.get(&client).copied().unwrap_or_default();
                match sources.acquire(v4(client), at(now)) {
                    Ok(slot) if slot == SourceSlot::untracked() => open.push((client, slot)),
                    Ok(slot) => {
                        assert!(count < 3, "seed {seed}");
                        *tracked.entry(client).or_default() += 1;
                        open.push((client, slot));
                    }
                    Err(exceeded) => {
                        assert_eq!((exceeded, count), (SourceLimitExceeded::Connections, 3), "seed {seed}");
                    }
                }
            } else {
                let (client, slot) = open.swap_remove(random.usize(..open.len()));
                sources.release(slot);
                if slot != SourceSlot::untracked() {
                    *tracked.entry(client).or_default() -= 1;
                }
            }
        }
        // All leave; afterwards each source may have its full number again.
        for (_, slot) in open {
            sources.release(slot);
        }
        for _ in 0..3 {
            assert!(sources.acquire(v4(7), at(900)).is_ok(), "seed {seed}");
        }
        assert_eq!(sources.acquire(v4(7), at(900)), Err(SourceLimitExceeded::Connections), "seed {seed}");
    }
}

#[test]
fn the_count_holds_when_cores_race_for_it() {
    let sources = SourceTable::new(&SourcePlan { connections: Some(5), entries: 8, ..plan() });
    let in_use = std::sync::atomic::AtomicU32::new(0);
    std::thread::scope(|scope| {
        for core in 0..4 {
            let (sources, in_use) = (&sources, &in_use);
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(core);
                for turn in 0..20_000 {
                    // Others come and go, so that slots change owners.
                    let client = if random.bool() { 1 } else { 2 + random.u32(..3) };
                    let Ok(slot) = sources.acquire(v4(client), at(turn)) else { continue };
                    if client == 1 && slot != SourceSlot::untracked() {
                        let now = in_use.fetch_add(1, std::sync::atomic::Ordering::SeqCst) + 1;
                        assert!(now <= 5, "{now}");
                        in_use.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
                    }
                    sources.release(slot);
                }
            });
        }
    });
    assert_eq!(in_use.into_inner(), 0);
    let acquired = (0..5).filter(|_| sources.acquire(v4(1), at(u64::MAX)).is_ok());
    assert_eq!(acquired.count(), 5);
}
