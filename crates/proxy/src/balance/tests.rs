//! Simulations of the choice, with seeds: how even it is, whether weights and bounds hold, whom it
//! avoids and when it comes back.

use super::*;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;
/// Those that go by load or by chance alone; `first` and a key mean something else.
const SPREADING: [Balance; 4] =
    [Balance::RandomOfTwo, Balance::Latency, Balance::RoundRobin, Balance::LeastConnections];

/// A pool with requests that take a time each server.
struct Sim {
    balance: Balance,
    servers: Vec<Candidate>,
    took_ns: Vec<u64>,
    names: Vec<u64>,
    turns: Turns,
    rng: fastrand::Rng,
    now_ns: u64,
    load_factor: f64,
    /// When each request in flight ends, and where it is.
    ends: Vec<(u64, usize, u64)>,
    got: Vec<usize>,
}

impl Sim {
    fn new(balance: Balance, weights: &[u32], seed: u64) -> Self {
        let server = |&weight: &u32| Candidate {
            weight,
            in_flight: 0,
            open: true,
            eased: true,
            latency: Latency::default(),
        };
        let name = |index: usize| digest(format!("server {index}").as_bytes());
        Self {
            balance,
            servers: weights.iter().map(server).collect(),
            took_ns: vec![10 * MS; weights.len()],
            names: (0..weights.len()).map(name).collect(),
            turns: Turns::new(weights.len()),
            rng: fastrand::Rng::with_seed(seed),
            now_ns: SECOND,
            load_factor: 1.25,
            ends: Vec::new(),
            got: vec![0; weights.len()],
        }
    }

    fn choose(&mut self, key: Option<u64>) -> Option<Chosen> {
        let how = How {
            balance: self.balance,
            key,
            names: &self.names,
            load_factor: self.load_factor,
            now_ns: self.now_ns,
        };
        let candidate = |index: usize| self.servers[index];
        choose(how, self.servers.len(), candidate, &mut self.turns, &mut self.rng)
    }

    fn start(&mut self, key: Option<u64>) -> Option<Chosen> {
        let chosen = self.choose(key)?;
        let server = chosen.server;
        self.servers[server].in_flight += 1;
        self.got[server] += 1;
        // A tenth more or less, by chance.
        let took = self.took_ns[server] * self.rng.u64(90..=110) / 100;
        self.ends.push((self.now_ns + took, server, took));
        Some(chosen)
    }

    /// Ends the request that ends next.
    fn end_one(&mut self) {
        let next = self.ends.iter().enumerate().min_by_key(|(_, end)| end.0).unwrap().0;
        let (end_ns, server, took_ns) = self.ends.swap_remove(next);
        self.now_ns = self.now_ns.max(end_ns);
        self.servers[server].in_flight -= 1;
        let latency = &mut self.servers[server].latency;
        *latency = latency.with(took_ns, end_ns);
    }

    /// So many requests, always so many at a time.
    fn run(&mut self, requests: usize, at_a_time: usize) -> Vec<usize> {
        self.got.fill(0);
        for _ in 0..requests {
            while self.ends.len() >= at_a_time {
                self.end_one();
            }
            self.start(None).expect("somebody has room");
        }
        self.got.clone()
    }
}

/// Whether each share is as wanted, give or take so much of all.
fn assert_shares(got: &[usize], wanted: &[f64], give: f64, what: &str) {
    let (all, whole) = (got.iter().sum::<usize>() as f64, wanted.iter().sum::<f64>());
    for (got, wanted) in got.iter().zip(wanted) {
        let (got, wanted) = (*got as f64 / all, wanted / whole);
        assert!((got - wanted).abs() <= give, "{what}: {got:.3} is not {wanted:.3}");
    }
}

#[test]
fn equal_servers_get_equal_shares() {
    for balance in SPREADING {
        for seed in 0..16 {
            for at_a_time in [1, 7, 64] {
                let got = Sim::new(balance, &[100; 5], seed).run(5_000, at_a_time);
                // By latency alone the best of those that answer alike gets more for a while.
                let give = if balance == Balance::Latency { 0.12 } else { 0.03 };
                let what = format!("{balance:?} {seed} {at_a_time} {got:?}");
                assert_shares(&got, &[1.0; 5], give, &what);
            }
        }
    }
}

#[test]
fn weights_are_shares_under_load() {
    for balance in SPREADING {
        for seed in 0..16 {
            let got = Sim::new(balance, &[300, 100, 0, 200], seed).run(12_000, 60);
            let what = format!("{balance:?} {seed} {got:?}");
            assert_eq!(got[2], 0, "{what}");
            assert_shares(&got, &[3.0, 1.0, 0.0, 2.0], 0.04, &what);
        }
    }
}

#[test]
fn weights_are_shares_when_nothing_is_in_flight() {
    for balance in [Balance::RandomOfTwo, Balance::RoundRobin, Balance::LeastConnections] {
        for seed in 0..16 {
            let got = Sim::new(balance, &[300, 100], seed).run(8_000, 1);
            assert_shares(&got, &[3.0, 1.0], 0.02, &format!("{balance:?} {seed} {got:?}"));
        }
    }
}

#[test]
fn a_slow_start_is_a_small_share() {
    for balance in SPREADING {
        for at_a_time in [1, 44] {
            let got = Sim::new(balance, &[100, 100, 10], 5).run(6_000, at_a_time);
            let share = got[2] as f64 / 6_000.0;
            let what = format!("{balance:?} {at_a_time} {got:?}");
            assert!(share < 0.08 && got[2] > 0, "{what}");
            assert!(got[0] > 1_800 && got[1] > 1_800, "{what}");
        }
    }
}

#[test]
fn round_robin_is_exact_and_smooth() {
    let got = Sim::new(Balance::RoundRobin, &[5, 1, 1, 0], 1).run(700, 1);
    assert_eq!(got, [500, 100, 100, 0]);
    assert_eq!(Sim::new(Balance::RoundRobin, &[2, 1], 1).run(3, 1), [2, 1]);
}

#[test]
fn least_connections_is_never_more_than_one_apart() {
    for seed in 0..16 {
        let mut sim = Sim::new(Balance::LeastConnections, &[100; 6], seed);
        for _ in 0..600 {
            sim.start(None);
            let loads = sim.servers.iter().map(|server| server.in_flight);
            let (most, least) = (loads.clone().max().unwrap(), loads.min().unwrap());
            assert!(most - least <= 1, "{most} {least}");
        }
        // One that is busy gets nothing until the others are as busy.
        sim.servers[2].in_flight += 50;
        let before = sim.got[2];
        (0..250).for_each(|_| assert!(sim.start(None).is_some()));
        assert_eq!(sim.got[2], before);
    }
}

#[test]
fn what_is_closed_gets_nothing() {
    for &balance in Balance::ALL {
        for open in 0..3 {
            for key in [None, Some(7)] {
                let mut sim = Sim::new(balance, &[1, 1, 1], 1);
                for (index, server) in sim.servers.iter_mut().enumerate() {
                    server.open = index == open;
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
            server.open = server.in_flight < bound;
        }
        let Some(chosen) = sim.start(None) else { break };
        order.push(chosen.server);
    }
    assert_eq!(order, [0, 0, 0, 2, 2, 3, 3, 3, 3]);
    // Room in front is used before that behind.
    sim.servers[2].in_flight -= 1;
    sim.servers[2].open = true;
    sim.servers[3].open = true;
    assert_eq!(sim.choose(None).unwrap().server, 2);
}

#[test]
fn first_fills_one_that_starts_slowly_only_when_no_other_has_room() {
    let mut sim = Sim::new(Balance::First, &[10, 100], 1);
    sim.servers[0].eased = false;
    assert_eq!(sim.choose(None).unwrap().server, 1);
    sim.servers[1].open = false;
    assert_eq!(sim.choose(None).unwrap().server, 0);
}

#[test]
fn a_slow_server_is_avoided_and_tried_again() {
    for seed in 0..16 {
        let mut sim = Sim::new(Balance::Latency, &[100; 4], seed);
        sim.took_ns[1] = 500 * MS;
        // A few find out; then it is tried once in a while.
        let slow = sim.run(20_000, 8)[1];
        assert!(slow < 200 && slow > 0, "{seed}: {slow}");
        // It recovers, and gets its share again once that is known.
        sim.took_ns[1] = 10 * MS;
        while sim.servers[1].latency.at(sim.now_ns) > 15 * MS {
            sim.run(1_000, 8);
            assert!(sim.now_ns < 600 * SECOND, "it is never tried again");
        }
        let got = sim.run(8_000, 8);
        assert_shares(&got, &[1.0; 4], 0.1, &format!("{seed} {got:?}"));
    }
}

#[test]
fn a_server_that_nothing_is_known_of_is_tried_by_one_at_a_time() {
    for seed in 0..16 {
        let mut sim = Sim::new(Balance::Latency, &[100; 3], seed);
        sim.servers
            .iter_mut()
            .for_each(|one| one.latency = Latency::default().with(5 * MS, SECOND));
        sim.servers[2].latency = Latency::default();
        for _ in 0..90 {
            sim.start(None);
        }
        // It does not answer: one request was enough to ask it.
        assert_eq!(sim.servers[2].in_flight, 1, "{seed}");
        // When nothing is known of anyone, loads are what is known.
        let mut sim = Sim::new(Balance::Latency, &[100; 3], seed);
        (0..90).for_each(|_| assert!(sim.start(None).is_some()));
        assert!(sim.servers.iter().all(|one| (25..=35).contains(&one.in_flight)), "{seed}");
    }
}

#[test]
fn a_server_that_fails_quickly_is_not_quick() {
    let mut sim = Sim::new(Balance::Latency, &[100; 2], 3);
    sim.servers[0].latency = Latency::default().with(MS.max(FAILED_NS), SECOND);
    sim.servers[1].latency = Latency::default().with(50 * MS, SECOND);
    assert!((0..100).all(|_| sim.choose(None).unwrap().server == 1));
}

/// The bound of a server: its share of what is in flight, this one included, times the factor.
fn bound(sim: &Sim, server: usize) -> usize {
    let open = || sim.servers.iter().filter(|one| one.open && one.weight > 0);
    let in_flight = 1 + open().map(|one| one.in_flight).sum::<usize>();
    let weights: usize = open().map(|one| one.weight as usize).sum();
    let share = in_flight * sim.servers[server].weight as usize;
    (share * (sim.load_factor * 100.0).round() as usize).div_ceil(weights.max(1) * 100)
}

#[test]
fn the_bound_of_a_hash_is_never_exceeded() {
    for seed in 0..64 {
        let mut chance = fastrand::Rng::with_seed(seed);
        let weights: Vec<u32> = (0..chance.usize(2..9)).map(|_| chance.u32(1..5) * 100).collect();
        let mut sim = Sim::new(Balance::ConsistentHash, &weights, seed);
        sim.load_factor = [1.0, 1.1, 1.25, 2.0][chance.usize(..4)];
        for _ in 0..2_000 {
            if chance.bool() && sim.ends.len() > chance.usize(1..80) {
                sim.end_one();
            }
            let at = chance.usize(..weights.len());
            sim.servers[at].open = chance.u8(..) > 60;
            // A few keys have most of the requests.
            let keys = 1 << chance.u32(1..12);
            let key = digest(&chance.u64(..keys).to_le_bytes());
            let bounds: Vec<usize> = (0..weights.len()).map(|at| bound(&sim, at)).collect();
            match sim.start(Some(key)) {
                Some(Chosen { server, .. }) => {
                    let (load, most) = (sim.servers[server].in_flight, bounds[server]);
                    assert!(load <= most, "seed {seed}: {load} of {most}");
                }
                None => assert!(sim.servers.iter().all(|one| !one.open)),
            }
        }
    }
}

#[test]
fn a_key_stays_where_it_belongs_and_goes_on_in_one_order() {
    let mut sim = Sim::new(Balance::ConsistentHash, &[100; 5], 1);
    let key = digest(b"a key");
    let own = owner(key, &sim.names, |_| 100).unwrap();
    for _ in 0..20 {
        let chosen = sim.choose(Some(key));
        assert_eq!(chosen, Some(Chosen { server: own, is_elsewhere: false }));
    }
    // All requests have one key: each server is filled up to its bound, and no other.
    let mut others = Vec::new();
    for _ in 0..100 {
        let Chosen { server, is_elsewhere } = sim.start(Some(key)).unwrap();
        assert_eq!(is_elsewhere, server != own);
        if !others.contains(&server) {
            others.push(server);
        }
    }
    let order = |without: &[usize]| {
        owner(key, &sim.names, |at| if without.contains(&at) { 0 } else { 100 }).unwrap()
    };
    for at in 0..others.len() {
        assert_eq!(others[at], order(&others[..at]), "{others:?}");
    }
    // 1.25 times a fifth of 100 is 25, which four of them have.
    assert_eq!(others.len(), 4);
    assert_eq!(sim.servers[own].in_flight, 25);
}

#[test]
fn without_a_key_it_is_the_better_of_two() {
    let mut sim = Sim::new(Balance::ConsistentHash, &[100; 4], 1);
    let got = sim.run(4_000, 16);
    assert_shares(&got, &[1.0; 4], 0.03, &format!("{got:?}"));
}

/// What a choice costs: `cargo test -p proxy --release -- --ignored --nocapture cost`.
#[test]
#[ignore = "a measurement"]
fn cost_of_a_choice() {
    const CHOICES: u64 = 10_000;
    for &balance in Balance::ALL {
        for servers in [2, 10] {
            let mut sim = Sim::new(balance, &vec![100; servers], 1);
            let mut best_ns = u64::MAX;
            for _ in 0..100 {
                let start_ns = rt::clock::now_ns();
                for key in 0..CHOICES {
                    std::hint::black_box(sim.choose(Some(std::hint::black_box(key))));
                }
                best_ns = best_ns.min(rt::clock::now_ns() - start_ns);
            }
            println!("{}, {servers} servers: {} ns", balance.name(), best_ns / CHOICES);
        }
    }
}
