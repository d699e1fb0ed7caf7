//! The limits under a virtual clock: on one core, and shared by many cores with all kinds of load.

use rt::clock::MonotonicTime;

use super::*;
use crate::test_time::at;

const SECOND_NS: u64 = 1_000_000_000;

fn limit(key: RateKey, rate_per_s: f64, burst: u32, keys_max: usize) -> RateLimit {
    RateLimit { rate_per_s, burst, key, status: 429, keys_max }
}

fn by_route(rate_per_s: f64, burst: u32) -> RateLimit {
    limit(RateKey::Route, rate_per_s, burst, 1)
}

fn by_source(rate_per_s: f64, burst: u32, keys_max: usize) -> RateLimit {
    limit(RateKey::Source, rate_per_s, burst, keys_max)
}

fn limiters(limit: &RateLimit, cores: usize) -> Vec<Limiter> {
    let buckets = Arc::new(Buckets::new(limit, cores));
    (0..cores).map(|_| Limiter::new(Arc::clone(&buckets))).collect()
}

fn single_limiter(limit: &RateLimit) -> Limiter {
    limiters(limit, 1).remove(0)
}

fn client(number: u32) -> RateLimitKey<'static> {
    RateLimitKey::Source(Some(IpAddr::V4(number.into())))
}

#[test]
fn a_burst_passes_and_then_the_rate() {
    let mut limiter = single_limiter(&by_route(100.0, 20));
    let times = (0..100_000).map(|step| at(1_000 + step * SECOND_NS / 10_000));
    let admitted = times.filter(|&now| limiter.admit(RateLimitKey::Route, now).is_ok()).count();
    assert!((1_019..=1_021).contains(&admitted), "{admitted}");
}

#[test]
fn a_client_that_waits_for_retry_after_is_admitted_and_not_before() {
    for (limit, key) in [(by_route(4.0, 2), RateLimitKey::Route), (by_source(4.0, 2, 10), client(1))] {
        let mut limiter = single_limiter(&limit);
        let now = at(5 * SECOND_NS);
        assert!((0..2).all(|_| limiter.admit(key, now).is_ok()));
        let RetryAfterNs(wait) = limiter.admit(key, now).unwrap_err();
        assert_eq!(wait, SECOND_NS / 4);
        assert_eq!(limiter.admit(key, now + wait - 1), Err(RetryAfterNs(1)));
        assert_eq!(limiter.admit(key, now + wait), Ok(()));
    }
}

#[test]
fn a_rejected_request_takes_nothing() {
    let mut limiter = single_limiter(&by_route(1.0, 1));
    assert!(limiter.admit(RateLimitKey::Route, at(0)).is_ok());
    assert!((1..1_000).all(|ns| limiter.admit(RateLimitKey::Route, at(ns)).is_err()));
    assert!(limiter.admit(RateLimitKey::Route, at(SECOND_NS)).is_ok());
}

/// Distribution of a simulation's requests over the cores.
#[derive(Clone, Copy, Debug)]
enum LoadPattern {
    Even,
    /// Nine of ten on one core.
    Skewed,
    /// All on one core.
    Single,
    /// All on one core for 15 ms, then on the next one.
    Wandering,
}

fn core_of(pattern: LoadPattern, cores: usize, now: MonotonicTime, random: &mut fastrand::Rng) -> usize {
    match pattern {
        LoadPattern::Even => random.usize(..cores),
        LoadPattern::Skewed if random.u32(..10) > 0 => 0,
        LoadPattern::Skewed => random.usize(..cores),
        LoadPattern::Single => cores - 1,
        LoadPattern::Wandering => (now.as_ns() / 15_000_000) as usize % cores,
    }
}

/// Simulates random arrivals. Returns the number admitted by all cores, and the number that one
/// exact bucket admits.
fn simulate(limit: &RateLimit, cores: usize, pattern: LoadPattern, load: f64, seed: u64) -> (u64, u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut limiters = limiters(limit, cores);
    let exact = TokenBucket::default();
    let rate = TokenRate { rate_per_s: limit.rate_per_s, burst: limit.burst };
    let requests = (limit.rate_per_s * load * 4.0).clamp(2_000.0, 200_000.0) as u64;
    let mean_ns = 1e9 / (limit.rate_per_s * load);
    let (mut admitted, mut expected) = (0, 0);
    let mut now_ns = 1e9;
    for _ in 0..requests {
        now_ns += -mean_ns * (1.0 - random.f64()).ln();
        let now = at(now_ns as u64);
        let core = core_of(pattern, cores, now, &mut random);
        admitted += u64::from(limiters[core].admit(RateLimitKey::Route, now).is_ok());
        expected += u64::from(exact.try_take(&rate, now).is_ok());
    }
    (admitted, expected)
}

/// The limit is one limit, whatever the number of cores and the distribution of requests.
#[test]
fn all_cores_together_admit_what_one_exact_bucket_admits() {
    let mut worst: f64 = 0.0;
    for cores in [1, 2, 3, 8, 64] {
        for pattern in [LoadPattern::Even, LoadPattern::Skewed, LoadPattern::Single, LoadPattern::Wandering] {
            for rate_per_s in [10.0, 100.0, 5_000.0, 300_000.0, 10_000_000.0] {
                for load in [0.5, 0.9, 1.1, 3.0] {
                    // The default burst is the requests of one second; smaller ones are harder.
                    for burst in [(rate_per_s / 50.0) as u32 + 1, rate_per_s as u32] {
                        let limit = by_route(rate_per_s, burst);
                        let (admitted, expected) = simulate(&limit, cores, pattern, load, 7);
                        let error = (admitted as f64 / expected as f64 - 1.0).abs();
                        worst = worst.max(error);
                        assert!(
                            error <= 0.02,
                            "{cores} cores, {pattern:?}, {rate_per_s}/s, offered {load}, burst \
                             {burst}: {admitted} instead of {expected}"
                        );
                    }
                }
            }
        }
    }
    eprintln!("worst error: {:.3} %", worst * 100.0);
}

/// The report of the issue: 90 requests a second under a limit of 100, all on one of two cores.
#[test]
fn load_below_the_limit_is_admitted_on_any_core() {
    for cores in [2, 64] {
        for key in [RateLimitKey::Route, client(1), RateLimitKey::Field(Some(b"a"))] {
            let rate_key = match key {
                RateLimitKey::Route => RateKey::Route,
                RateLimitKey::Source(_) => RateKey::Source,
                RateLimitKey::Field(_) => RateKey::Header("x".into()),
            };
            let mut limiters = limiters(&limit(rate_key, 100.0, 10, 10), cores);
            let times = (0..900).map(|step| at(SECOND_NS + step * SECOND_NS / 90));
            let refused = times.filter(|&now| limiters[1].admit(key, now).is_err()).count();
            assert_eq!(refused, 0, "{cores} cores, {key:?}");
        }
    }
}

#[test]
fn the_shared_bucket_is_written_rarely_under_a_high_rate() {
    for cores in [1, 2, 8, 64] {
        let rate = TokenRate { rate_per_s: 1e9, burst: 1_000_000_000 };
        let writes_per_s = rate.rate_per_s / f64::from(batch_tokens_max(&rate, cores));
        assert!(writes_per_s <= 10_500.0 * cores as f64, "{writes_per_s}");
        let small = TokenRate { rate_per_s: 100.0, burst: 100 };
        assert_eq!(batch_tokens_max(&small, cores), 1);
    }
}

/// Unused tokens never add to the burst, whenever they are returned.
#[test]
fn never_more_than_burst_and_rate_are_admitted() {
    for seed in 0..200 {
        let mut random = fastrand::Rng::with_seed(seed);
        let rate_per_s = 10f64.powf(random.f64() * 5.0 + 2.0);
        let burst = 1 + random.u32(..(rate_per_s as u32));
        let cores = 1 + random.usize(..8);
        let mut limiters = limiters(&by_route(rate_per_s, burst), cores);
        let (start, mut now, mut admitted) = (at(SECOND_NS), at(SECOND_NS), 0);
        for _ in 0..5_000 {
            // Long pauses between bursts on one core.
            let pause = random.u32(..50) == 0;
            now += if pause { random.u64(..SECOND_NS) } else { random.u64(..2_000) };
            let core = random.usize(..cores);
            admitted += u64::from(limiters[core].admit(RateLimitKey::Route, now).is_ok());
            let token_ns = (1e9 / rate_per_s) as u64;
            let max = u64::from(burst) + (now - start) / token_ns + 1;
            assert!(admitted <= max, "seed {seed}: {admitted} of {max}");
        }
    }
}

#[test]
fn keys_are_apart_and_a_network_is_one() {
    let mut limiter = single_limiter(&by_source(1.0, 1, 100));
    let v6 = |text: &str| RateLimitKey::Source(Some(text.parse().unwrap()));
    let clients =
        [client(1), client(2), v6("2001:db8::1"), v6("2001:db8:0:1::1"), RateLimitKey::Source(None)];
    for key in clients {
        assert!(limiter.admit(key, at(0)).is_ok(), "{key:?}");
    }
    assert!(limiter.admit(v6("2001:db8::ffff"), at(0)).is_err());
    assert!(limiter.admit(v6("::ffff:0.0.0.1"), at(0)).is_err());
    let mut limiter = single_limiter(&limit(RateKey::Header("x".into()), 1.0, 1, 100));
    for value in [None, Some(&b"a"[..]), Some(b"b")] {
        assert!(limiter.admit(RateLimitKey::Field(value), at(0)).is_ok());
        assert!(limiter.admit(RateLimitKey::Field(value), at(0)).is_err());
    }
}

#[test]
fn the_bucket_that_is_full_first_is_forgotten_first() {
    // One set of slots.
    let mut limiter = single_limiter(&by_source(1.0, 2, 1));
    // Client 0 is empty, the others have one token left: they are full first.
    assert!(limiter.admit(client(0), at(0)).is_ok());
    for number in 0..WAYS as u32 {
        assert!(limiter.admit(client(number), at(0)).is_ok());
    }
    assert!(limiter.admit(client(99), at(0)).is_ok());
    assert!(limiter.admit(client(0), at(0)).is_err(), "0 was forgotten");
}

#[test]
fn few_keys_within_the_bound_are_forgotten() {
    let mut limiter = single_limiter(&by_source(0.001, 1, 1_000));
    assert!((0..1_000).all(|number| limiter.admit(client(number), at(0)).is_ok()));
    let forgotten = (0..1_000).filter(|&number| limiter.admit(client(number), at(0)).is_ok()).count();
    assert!(forgotten <= 50, "{forgotten}");
}

#[test]
fn cores_that_race_for_a_key_share_its_bucket() {
    let mut limiters = limiters(&by_source(0.001, 100, 100), 4);
    let admitted: usize = std::thread::scope(|scope| {
        let admit =
            |limiter: &mut Limiter| (0..10_000).filter(|_| limiter.admit(client(1), at(5)).is_ok()).count();
        let threads: Vec<_> =
            limiters.iter_mut().map(|limiter| scope.spawn(move || admit(limiter))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    // Before the slot belongs to the key, some may take from the evicted bucket.
    assert!((100..=104).contains(&admitted), "{admitted}");
}
