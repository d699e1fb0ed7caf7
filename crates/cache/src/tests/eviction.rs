//! Bounds of the memory, and the quality of what is kept.

use std::collections::HashMap;

use super::*;

const FRESH: (&str, &str) = ("Cache-Control", "max-age=60");

#[test]
fn the_memory_is_bounded_whatever_happens() {
    for seed in 0..20 {
        let mut random = fastrand::Rng::with_seed(seed);
        let memory_bytes_max = random.u64(10_000..3 * MIB);
        let cache = cache(memory_bytes_max);
        for _ in 0..2_000 {
            let key = random.u32(0..200).to_string();
            match random.u32(0..10) {
                0 => _ = cache.purge(&cache.key(key.as_bytes())),
                1 => _ = cache.purge_tag(random.u32(0..20).to_string().as_bytes()),
                2 if random.u32(0..50) == 0 => _ = cache.purge_all(),
                2..5 => drop(hit(&cache, &key, &[("X-A", &random.u32(0..3).to_string())])),
                _ => {
                    let tag = random.u32(0..20).to_string();
                    let fields = [FRESH, ("Vary", "X-A"), ("Cache-Tag", &tag)];
                    let variant = random.u32(0..3).to_string();
                    let body = vec![0; random.usize(0..20_000)];
                    let mut fill = lead(&cache, &cache.key(key.as_bytes()), &[]);
                    let head = StoredHead::new(200, &headers(&fields));
                    let variant = headers(&[("X-A", &variant)]);
                    fill.store_head(head, decide(&fields).unwrap(), &variant, None).unwrap();
                    if fill.push(&body).is_ok() && random.u32(0..10) > 0 {
                        let _ = fill.finish();
                    }
                }
            }
            let stats = cache.stats();
            assert!(stats.memory_bytes <= memory_bytes_max, "seed {seed}: {stats:?}");
        }
        let listed: u64 = cache.largest(usize::MAX, NOW).iter().map(|object| object.bytes).sum();
        assert_eq!(listed, cache.stats().memory_bytes, "seed {seed}");
        cache.purge_all();
        assert_eq!((cache.stats().memory_bytes, cache.stats().objects), (0, 0), "seed {seed}");
    }
}

#[test]
fn what_clients_still_read_counts() {
    let cache = cache(4 * MIB);
    let mut held = Vec::new();
    let mut number = 0;
    // Slow clients hold the first pieces of their bodies.
    while cache.stats().memory_bytes < 3 * MIB {
        number += 1;
        let object = store(&cache, &number.to_string(), &[FRESH], &[0; 200_000]);
        held.push(object.body().chunks().unwrap()[0].clone());
    }
    cache.purge_all();
    assert_eq!(cache.stats().objects, 0);
    assert!(cache.stats().memory_bytes > 3 * MIB);
    // The rest of the memory is used, and no more.
    for number in 0..100 {
        store(&cache, &number.to_string(), &[FRESH], &[0; 200_000]);
        assert!(cache.stats().memory_bytes <= 4 * MIB);
    }
    assert!((1..6).contains(&cache.stats().objects));
    drop(held);
    let listed: u64 = cache.largest(usize::MAX, NOW).iter().map(|object| object.bytes).sum();
    assert_eq!(cache.stats().memory_bytes, listed);
}

#[test]
fn one_object_evicts_some_others_at_most_whatever_was_used() {
    let probe = cache(MIB);
    let object_bytes = store(&probe, "0000", &[FRESH], &[0; 100]).memory_bytes();
    let cache = cache(2_000 * object_bytes);
    for number in 0..2_000 {
        store(&cache, &format!("{number:04}"), &[FRESH], &[0; 100]);
    }
    // All of them are popular.
    for number in (0..2_000).chain(0..2_000).chain(0..2_000) {
        hit(&cache, &format!("{number:04}"), &[]);
    }
    store(&cache, "new1", &[FRESH], &[0; 100]);
    let shard_objects: u64 = cache.largest(usize::MAX, NOW).len() as u64;
    assert_eq!((cache.stats().evicted, shard_objects), (1, 2_000));
}

/// Returns the fraction of hits of a cache of `capacity` objects.
fn hits(keys: &[u32], capacity: u64) -> f64 {
    let probe = cache(MIB);
    let object_bytes = store(&probe, "00000", &[FRESH], &[0; 100]).memory_bytes();
    let cache = cache(capacity * object_bytes);
    let mut hits = 0;
    for key in keys {
        let key = format!("{key:05}");
        match hit(&cache, &key, &[]) {
            Some(_) => hits += 1,
            None => drop(store(&cache, &key, &[FRESH], &[0; 100])),
        }
    }
    f64::from(hits) / keys.len() as f64
}

/// Returns that of the least recently used objects.
fn lru_hits(keys: &[u32], capacity: usize) -> f64 {
    let mut last_used: HashMap<u32, usize> = HashMap::new();
    let mut hits = 0;
    for (time, key) in keys.iter().enumerate() {
        if last_used.insert(*key, time).is_some() {
            hits += 1;
        } else if last_used.len() > capacity {
            let oldest = *last_used.iter().min_by_key(|(_, time)| **time).unwrap().0;
            last_used.remove(&oldest);
        }
    }
    f64::from(hits) / keys.len() as f64
}

#[test]
fn popular_objects_stay_while_others_are_read_once() {
    let mut random = fastrand::Rng::with_seed(1);
    // Popularity falls with the rank, as on the web; every third request is one of a scan.
    let mut scan = 50_000;
    let keys: Vec<u32> = (0..30_000)
        .map(|number| {
            scan += u32::from(number % 3 == 0);
            let popular = (5_000.0_f64.powf(random.f64()) - 1.0) as u32;
            if number % 3 == 0 { scan } else { popular }
        })
        .collect();
    for capacity in [50, 200, 1000] {
        let (own, lru) = (hits(&keys, capacity), lru_hits(&keys, capacity as usize));
        assert!(own > lru * 1.05, "{capacity} objects: {own:.3} of the requests are hits, {lru:.3} with LRU");
    }
    // Without a scan it is not worse.
    let keys: Vec<u32> = (0..30_000).map(|_| (5_000.0_f64.powf(random.f64()) - 1.0) as u32).collect();
    for capacity in [50, 200, 1000] {
        let (own, lru) = (hits(&keys, capacity), lru_hits(&keys, capacity as usize));
        assert!(own > lru, "{capacity} objects: {own:.3} of the requests are hits, {lru:.3} with LRU");
    }
}
