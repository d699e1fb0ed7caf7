//! The bounds by rules that hold whatever happens, with seeds.

use std::collections::HashMap;

use super::sources::Sources;
use super::*;
use crate::plan::{Rate, SourcePlan};

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
fn a_rate_holds_and_who_waits_as_told_is_let_in() {
    let bucket = Bucket::default();
    let rate = Rate { rate_per_s: 4.0, burst: 2 };
    let now_ns = 5 * SECOND_NS;
    assert!((0..2).all(|_| bucket.take(&rate, now_ns).is_ok()));
    let wait_ns = bucket.take(&rate, now_ns).unwrap_err();
    assert_eq!(wait_ns, SECOND_NS / 4);
    assert_eq!(bucket.take(&rate, now_ns + wait_ns - 1), Err(1));
    assert_eq!(bucket.take(&rate, now_ns + wait_ns), Ok(()));
    let taken =
        (0..100_000).filter(|at| bucket.take(&rate, 100 * SECOND_NS + at * 100_000).is_ok());
    assert_eq!(taken.count(), 41);
}

#[test]
fn a_source_has_so_many_connections_and_gets_them_back() {
    let sources = Sources::new(&plan());
    let seats: Vec<Seat> = (0..2).map(|_| sources.enter(v4(1), 0).unwrap()).collect();
    assert_eq!(sources.enter(v4(1), 0), Err(Over::Connections));
    assert!(sources.enter(v4(2), 0).is_ok());
    sources.leave(seats[0]);
    assert!(sources.enter(v4(1), 0).is_ok());
}

#[test]
fn a_prefix_is_one_source() {
    let sources = Sources::new(&SourcePlan { connections: Some(1), prefix4: 24, ..plan() });
    let enter = |text: &str| sources.enter(text.parse().unwrap(), 0);
    assert!(enter("10.0.0.1").is_ok() && enter("10.0.0.255").is_err() && enter("10.0.1.0").is_ok());
    assert!(enter("::ffff:10.0.0.9").is_err());
    assert!(enter("2001:db8::1").is_ok() && enter("2001:db8::ffff:1").is_err());
    assert!(enter("2001:db8:0:1::1").is_ok());
    let all = Sources::new(&SourcePlan { connections: Some(1), prefix4: 0, prefix6: 0, ..plan() });
    assert!(all.enter(v4(1), 0).is_ok() && all.enter(v4(u32::MAX), 0).is_err());
    assert!(all.enter("::1".parse().unwrap(), 0).is_ok());
    assert!(all.enter("ff::1".parse().unwrap(), 0).is_err());
}

#[test]
fn rates_of_a_source_outlive_its_connections() {
    let rate = Some(Rate { rate_per_s: 1.0, burst: 2 });
    let sources = Sources::new(&SourcePlan { connections: None, connections_rate: rate, ..plan() });
    for _ in 0..2 {
        sources.leave(sources.enter(v4(1), 0).unwrap());
    }
    assert_eq!(sources.enter(v4(1), 0), Err(Over::Rate { wait_ns: SECOND_NS }));
    assert!(sources.enter(v4(2), 0).is_ok() && sources.enter(v4(1), SECOND_NS).is_ok());
    let sources = Sources::new(&SourcePlan { requests_rate: rate, ..plan() });
    let seat = sources.enter(v4(1), 0).unwrap();
    assert!((0..2).all(|_| sources.admit_request(seat, 0).is_ok()));
    assert_eq!(sources.admit_request(seat, 0), Err(SECOND_NS));
    assert_eq!(sources.admit_request(Seat::none(), 0), Ok(()));
}

/// Whoever comes and goes in whatever order: no source has more than its bound, no count is lost,
/// and who has no place was let in unbounded.
#[test]
fn no_source_has_more_than_its_bound_whatever_comes() {
    for seed in 0..256 {
        let mut random = fastrand::Rng::with_seed(seed);
        let entries = random.usize(8..80);
        let sources = Sources::new(&SourcePlan { connections: Some(3), entries, ..plan() });
        let mut open: Vec<(u32, Seat)> = Vec::new();
        let mut seated: HashMap<u32, u32> = HashMap::new();
        for now_ns in 0..800 {
            if random.u32(..5) < 3 || open.is_empty() {
                let client = random.u32(..40);
                let has = seated.get(&client).copied().unwrap_or_default();
                match sources.enter(v4(client), now_ns) {
                    Ok(seat) if seat == Seat::none() => open.push((client, seat)),
                    Ok(seat) => {
                        assert!(has < 3, "seed {seed}");
                        *seated.entry(client).or_default() += 1;
                        open.push((client, seat));
                    }
                    Err(over) => {
                        assert_eq!((over, has), (Over::Connections, 3), "seed {seed}");
                    }
                }
            } else {
                let (client, seat) = open.swap_remove(random.usize(..open.len()));
                sources.leave(seat);
                if seat != Seat::none() {
                    *seated.entry(client).or_default() -= 1;
                }
            }
        }
        // All leave: then each may have as many as at the start.
        for (_, seat) in open {
            sources.leave(seat);
        }
        for _ in 0..3 {
            assert!(sources.enter(v4(7), 900).is_ok(), "seed {seed}");
        }
        assert_eq!(sources.enter(v4(7), 900), Err(Over::Connections), "seed {seed}");
    }
}

#[test]
fn the_count_holds_when_cores_race_for_it() {
    let sources = Sources::new(&SourcePlan { connections: Some(5), entries: 8, ..plan() });
    let inside = std::sync::atomic::AtomicU32::new(0);
    std::thread::scope(|scope| {
        for core in 0..4 {
            let (sources, inside) = (&sources, &inside);
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(core);
                for turn in 0..20_000 {
                    // Others come and go, so that places change hands.
                    let client = if random.bool() { 1 } else { 2 + random.u32(..3) };
                    let Ok(seat) = sources.enter(v4(client), turn) else { continue };
                    if client == 1 && seat != Seat::none() {
                        let now = inside.fetch_add(1, std::sync::atomic::Ordering::SeqCst) + 1;
                        assert!(now <= 5, "{now}");
                        inside.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
                    }
                    sources.leave(seat);
                }
            });
        }
    });
    assert_eq!(inside.into_inner(), 0);
    let free = (0..5).filter(|_| sources.enter(v4(1), u64::MAX).is_ok());
    assert_eq!(free.count(), 5);
}
