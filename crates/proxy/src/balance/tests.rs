//! Simulations of the choice, with fixed seeds: evenness, weights and bounds, avoidance of slow
//! servers, and recovery.

use rt::clock::MonotonicTime;

use super::*;
use crate::key_digest::digest;
use crate::plan::Id;
use crate::test_time::at;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;
/// Algorithms that choose by load or by chance alone. `first` and the choice by key have other
/// goals.
const SPREADING_BALANCES: [Balance; 4] =
    [Balance::RandomOfTwo, Balance::Latency, Balance::RoundRobin, Balance::LeastConnections];

/// A simulated pool, in which each server has its own response time.
struct Sim {
    balance: Balance,
    servers: IdVec<ServerId, Candidate>,
    service_ns: IdVec<ServerId, u64>,
    name_digests: IdVec<ServerId, u64>,
    round_robin_state: RoundRobinState,
    rng: fastrand::Rng,
    now: MonotonicTime,
    load_factor: f64,
    /// End time, server and duration of each request in flight.
    in_flight: Vec<(MonotonicTime, ServerId, u64)>,
    request_counts: Vec<usize>,
}

impl Sim {
    fn new(balance: Balance, weights: &[u32], seed: u64) -> Self {
        let server = |&weight: &u32| Candidate {
            weight,
            in_flight: 0,
            is_available: true,
            is_below_slow_start_limit: true,
            latency: PeakEwma::default(),
        };
        let name = |index: usize| digest(format!("server {index}").as_bytes());
        Self {
            balance,
            servers: weights.iter().map(server).collect(),
            service_ns: vec![10 * MS; weights.len()].into(),
            name_digests: (0..weights.len()).map(name).collect(),
            round_robin_state: RoundRobinState::new(weights.len()),
            rng: fastrand::Rng::with_seed(seed),
            now: at(SECOND),
            load_factor: 1.25,
            in_flight: Vec::new(),
            request_counts: vec![0; weights.len()],
        }
    }

    fn choose(&mut self, key: Option<u64>) -> Option<Selection> {
        let input = BalanceInput {
            balance: self.balance,
            key,
            name_digests: &self.name_digests,
            load_factor: self.load_factor,
            now: self.now,
        };
        let candidate = |id: ServerId| self.servers[id];
        choose(input, self.servers.len(), candidate, &mut self.round_robin_state, &mut self.rng)
    }

    fn start(&mut self, key: Option<u64>) -> Option<Selection> {
        let chosen = self.choose(key)?;
        let server = chosen.server;
        self.servers[server].in_flight += 1;
        self.request_counts[server.index()] += 1;
        // Random variation of up to 10 %.
        let duration_ns = self.service_ns[server] * self.rng.u64(90..=110) / 100;
        self.in_flight.push((self.now + duration_ns, server, duration_ns));
        Some(chosen)
    }

    /// Ends the request with the earliest end time.
    fn complete_next(&mut self) {
        let next = self.in_flight.iter().enumerate().min_by_key(|(_, end)| end.0).unwrap().0;
        let (end, server, took_ns) = self.in_flight.swap_remove(next);
        self.now = self.now.max(end);
        self.servers[server].in_flight -= 1;
        let latency = &mut self.servers[server].latency;
        *latency = latency.with_sample(took_ns, end);
    }

    /// Runs `requests` requests, always `concurrency` in flight.
    fn run(&mut self, requests: usize, concurrency: usize) -> Vec<usize> {
        self.request_counts.fill(0);
        for _ in 0..requests {
            while self.in_flight.len() >= concurrency {
                self.complete_next();
            }
            self.start(None).expect("a server has a free slot");
        }
        self.request_counts.clone()
    }
}

/// Asserts that each server's fraction is as wanted, within a tolerance relative to the total.
fn assert_fractions(counts: &[usize], weights: &[f64], tolerance: f64, label: &str) {
    let (total, weight_sum) = (counts.iter().sum::<usize>() as f64, weights.iter().sum::<f64>());
    for (count, weight) in counts.iter().zip(weights) {
        let (actual, expected) = (*count as f64 / total, weight / weight_sum);
        assert!((actual - expected).abs() <= tolerance, "{label}: {actual:.3} is not {expected:.3}");
    }
}

#[test]
fn equal_servers_get_equal_fractions() {
    for balance in SPREADING_BALANCES {
        for seed in 0..16 {
            for concurrency in [1, 7, 64] {
                let counts = Sim::new(balance, &[100; 5], seed).run(5_000, concurrency);
                // By latency alone, the best of similarly fast servers gets more for a while.
                let tolerance = if balance == Balance::Latency { 0.12 } else { 0.03 };
                let label = format!("{balance:?} {seed} {concurrency} {counts:?}");
                assert_fractions(&counts, &[1.0; 5], tolerance, &label);
            }
        }
    }
}

#[test]
fn weights_are_fractions_under_load() {
    for balance in SPREADING_BALANCES {
        for seed in 0..16 {
            let counts = Sim::new(balance, &[300, 100, 0, 200], seed).run(12_000, 60);
            let label = format!("{balance:?} {seed} {counts:?}");
            assert_eq!(counts[2], 0, "{label}");
            assert_fractions(&counts, &[3.0, 1.0, 0.0, 2.0], 0.04, &label);
        }
    }
}

#[test]
fn weights_are_fractions_when_nothing_is_in_flight() {
    for balance in [Balance::RandomOfTwo, Balance::RoundRobin, Balance::LeastConnections] {
        for seed in 0..16 {
            let counts = Sim::new(balance, &[300, 100], seed).run(8_000, 1);
            assert_fractions(&counts, &[3.0, 1.0], 0.02, &format!("{balance:?} {seed} {counts:?}"));
        }
    }
}

#[test]
fn a_slow_start_is_a_small_fraction() {
    for balance in SPREADING_BALANCES {
        for concurrency in [1, 44] {
            let counts = Sim::new(balance, &[100, 100, 10], 5).run(6_000, concurrency);
            let fraction = counts[2] as f64 / 6_000.0;
            let label = format!("{balance:?} {concurrency} {counts:?}");
            assert!(fraction < 0.08 && counts[2] > 0, "{label}");
            assert!(counts[0] > 1_800 && counts[1] > 1_800, "{label}");
        }
    }
}

#[test]
fn round_robin_is_exact_and_smooth() {
    let counts = Sim::new(Balance::RoundRobin, &[5, 1, 1, 0], 1).run(700, 1);
    assert_eq!(counts, [500, 100, 100, 0]);
    assert_eq!(Sim::new(Balance::RoundRobin, &[2, 1], 1).run(3, 1), [2, 1]);
}

#[test]
fn least_connections_is_never_more_than_one_apart() {
    for seed in 0..16 {
        let mut sim = Sim::new(Balance::LeastConnections, &[100; 6], seed);
        for _ in 0..600 {
            sim.start(None);
            let loads = sim.servers.iter().map(|server| server.in_flight);
            let (max, min) = (loads.clone().max().unwrap(), loads.min().unwrap());
            assert!(max - min <= 1, "{max} {min}");
        }
        // A busy server gets nothing until the others are as busy.
        sim.servers[ServerId(2)].in_flight += 50;
        let previous = sim.request_counts[2];
        (0..250).for_each(|_| assert!(sim.start(None).is_some()));
        assert_eq!(sim.request_counts[2], previous);
    }
}

#[test]
fn an_unavailable_server_gets_nothing() {
    for &balance in Balance::ALL {
        for open in ServerId::first(3) {
            for key in [None, Some(7)] {
                let mut sim = Sim::new(balance, &[1, 1, 1], 1);
                for (id, server) in sim.servers.enumerate_mut() {
                    server.is_available = id == open;
                }
                let server = sim.choose(key).map(|chosen| chosen.server);
                assert_eq!(server, Some(open), "{balance:?}");
                sim.servers[open].weight = 0;
                assert_eq!(sim.choose(key), None, "{balance:?}");
            }
        }
        assert_eq!(Sim::new(balance, &[], 1).choose(None), None);
    }
}

#[test]
fn first_fills_in_order() {
    let mut sim = Sim::new(Balance::First, &[100, 0, 100, 100], 1);
    let bounds = [3, 9, 2, 4];
    let mut order = Vec::new();
    loop {
        for (server, bound) in sim.servers.iter_mut().zip(bounds) {
            server.is_available = server.in_flight < bound;
        }
        let Some(chosen) = sim.start(None) else { break };
        order.push(chosen.server.index());
    }
    assert_eq!(order, [0, 0, 0, 2, 2, 3, 3, 3, 3]);
    // Earlier servers with a free slot are used before later ones.
    sim.servers[ServerId(2)].in_flight -= 1;
    sim.servers[ServerId(2)].is_available = true;
    sim.servers[ServerId(3)].is_available = true;
    assert_eq!(sim.choose(None).unwrap().server, ServerId(2));
}

#[test]
fn first_fills_one_that_starts_slowly_only_when_no_other_has_room() {
    let mut sim = Sim::new(Balance::First, &[10, 100], 1);
    sim.servers[ServerId(0)].is_below_slow_start_limit = false;
    assert_eq!(sim.choose(None).unwrap().server, ServerId(1));
    sim.servers[ServerId(1)].is_available = false;
    assert_eq!(sim.choose(None).unwrap().server, ServerId(0));
}

#[test]
fn a_slow_server_is_avoided_and_tried_again() {
    for seed in 0..16 {
        let mut sim = Sim::new(Balance::Latency, &[100; 4], seed);
        sim.service_ns[ServerId(1)] = 500 * MS;
        // A few requests measure the slow server; afterwards it is tried occasionally.
        let slow = sim.run(20_000, 8)[1];
        assert!(slow < 200 && slow > 0, "{seed}: {slow}");
        // It recovers, and gets its normal fraction again once that has been measured.
        sim.service_ns[ServerId(1)] = 10 * MS;
        while sim.servers[ServerId(1)].latency.decayed_ns(sim.now) > 15 * MS {
            sim.run(1_000, 8);
            assert!(sim.now < at(600 * SECOND), "it is never tried again");
        }
        let counts = sim.run(8_000, 8);
        assert_fractions(&counts, &[1.0; 4], 0.1, &format!("{seed} {counts:?}"));
    }
}

#[test]
fn a_server_that_nothing_is_known_of_is_tried_by_one_at_a_time() {
    for seed in 0..16 {
        let mut sim = Sim::new(Balance::Latency, &[100; 3], seed);
        sim.servers
            .iter_mut()
            .for_each(|server| server.latency = PeakEwma::default().with_sample(5 * MS, at(SECOND)));
        sim.servers[ServerId(2)].latency = PeakEwma::default();
        for _ in 0..90 {
            sim.start(None);
        }
        // It does not respond: only one request was sent to it.
        assert_eq!(sim.servers[ServerId(2)].in_flight, 1, "{seed}");
        // If no latency is known, the choice uses the loads.
        let mut sim = Sim::new(Balance::Latency, &[100; 3], seed);
        (0..90).for_each(|_| assert!(sim.start(None).is_some()));
        assert!(sim.servers.iter().all(|server| (25..=35).contains(&server.in_flight)), "{seed}");
    }
}

#[test]
fn a_server_that_fails_quickly_is_not_quick() {
    let mut sim = Sim::new(Balance::Latency, &[100; 2], 3);
    sim.servers[ServerId(0)].latency =
        PeakEwma::default().with_sample(MS.max(FAILED_LATENCY_MIN_NS), at(SECOND));
    sim.servers[ServerId(1)].latency = PeakEwma::default().with_sample(50 * MS, at(SECOND));
    assert!((0..100).all(|_| sim.choose(None).unwrap().server == ServerId(1)));
}

/// Computes the bound of a server: its fraction of the requests in flight, this one included, times
/// the factor.
fn load_bound(sim: &Sim, server: ServerId) -> usize {
    let open = || sim.servers.iter().filter(|server| server.is_available && server.weight > 0);
    let in_flight = 1 + open().map(|server| server.in_flight).sum::<usize>();
    let weights: usize = open().map(|server| server.weight as usize).sum();
    let weighted_load = in_flight * sim.servers[server].weight as usize;
    (weighted_load * (sim.load_factor * 100.0).round() as usize).div_ceil(weights.max(1) * 100)
}

#[test]
fn the_bound_of_a_hash_is_never_exceeded() {
    for seed in 0..64 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let weights: Vec<u32> = (0..rng.usize(2..9)).map(|_| rng.u32(1..5) * 100).collect();
        let mut sim = Sim::new(Balance::ConsistentHash, &weights, seed);
        sim.load_factor = [1.0, 1.1, 1.25, 2.0][rng.usize(..4)];
        for _ in 0..2_000 {
            if rng.bool() && sim.in_flight.len() > rng.usize(1..80) {
                sim.complete_next();
            }
            let server = ServerId::from_index(rng.usize(..weights.len()));
            sim.servers[server].is_available = rng.u8(..) > 60;
            // A few keys make up most of the requests.
            let keys = 1 << rng.u32(1..12);
            let key = digest(&rng.u64(..keys).to_le_bytes());
            let bounds: IdVec<ServerId, usize> =
                sim.servers.ids().map(|server| load_bound(&sim, server)).collect();
            match sim.start(Some(key)) {
                Some(Selection { server, .. }) => {
                    let (load, bound) = (sim.servers[server].in_flight, bounds[server]);
                    assert!(load <= bound, "seed {seed}: {load} of {bound}");
                }
                None => assert!(sim.servers.iter().all(|server| !server.is_available)),
            }
        }
    }
}

#[test]
fn a_key_stays_where_it_belongs_and_goes_on_in_one_order() {
    let mut sim = Sim::new(Balance::ConsistentHash, &[100; 5], 1);
    let key = digest(b"a key");
    let key_owner = owner(key, &sim.name_digests, |_| 100).unwrap();
    for _ in 0..20 {
        let chosen = sim.choose(Some(key));
        assert_eq!(chosen, Some(Selection { server: key_owner, is_hash_overflow: false }));
    }
    // All requests have one key: each server is filled up to its bound before the next one gets
    // any.
    let mut others = Vec::new();
    for _ in 0..100 {
        let Selection { server, is_hash_overflow: is_elsewhere } = sim.start(Some(key)).unwrap();
        assert_eq!(is_elsewhere, server != key_owner);
        if !others.contains(&server) {
            others.push(server);
        }
    }
    let order = |excluded: &[ServerId]| {
        owner(key, &sim.name_digests, |id| if excluded.contains(&id) { 0 } else { 100 }).unwrap()
    };
    for at in 0..others.len() {
        assert_eq!(others[at], order(&others[..at]), "{others:?}");
    }
    // 1.25 times a fifth of 100 is 25, so four other servers get requests.
    assert_eq!(others.len(), 4);
    assert_eq!(sim.servers[key_owner].in_flight, 25);
}

#[test]
fn without_a_key_it_is_the_better_of_two() {
    let mut sim = Sim::new(Balance::ConsistentHash, &[100; 4], 1);
    let counts = sim.run(4_000, 16);
    assert_fractions(&counts, &[1.0; 4], 0.03, &format!("{counts:?}"));
}
