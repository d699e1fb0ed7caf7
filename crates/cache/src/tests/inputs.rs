//! Seeded mutations of the corpora of the fuzz targets.

use std::fs;
use std::path::Path;

use crate::disk::format::{Preamble, encode_head, file_bytes};
use crate::fill::FillOwner as _;
use crate::fuzzing;

use super::*;

fn corpus(name: &str) -> Vec<Vec<u8>> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(name);
    let mut paths: Vec<_> = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.iter().map(|path| fs::read(path).unwrap()).collect()
}

/// Runs a check on seeds and on mutations of them; returns the number of accepted mutations.
fn run(seeds: &[Vec<u8>], check: fn(&[u8]) -> bool) -> usize {
    let mut random = fastrand::Rng::with_seed(1);
    let mut accepted = 0;
    for seed in seeds {
        check(seed);
        for _ in 0..2_000 {
            let mut bytes = seed.clone();
            for _ in 0..random.usize(1..4) {
                let at = random.usize(0..bytes.len());
                match random.u32(0..4) {
                    0 => bytes[at] = random.u8(..),
                    1 => drop(bytes.remove(at)),
                    2 => bytes.insert(at, *random.choice(b" ,;=\"\\0a-".iter()).unwrap()),
                    _ => {
                        let other = random.choice(seeds.iter()).unwrap();
                        let start = random.usize(0..other.len());
                        let end = (start + random.usize(0..40)).min(other.len());
                        bytes.splice(at..at, other[start..end].iter().copied());
                    }
                }
            }
            accepted += usize::from(check(&bytes));
        }
    }
    accepted
}

#[test]
fn the_policy_holds_for_any_fields() {
    let seeds = corpus("cache_policy");
    assert!(seeds.iter().filter(|seed| fuzzing::policy(seed)).count() >= 4, "most seeds are stored");
    assert!(run(&seeds, fuzzing::policy) > 1_000);
}

#[test]
fn heads_of_files_hold_for_any_bytes() {
    let seeds = corpus("cache_file");
    assert!(seeds.iter().all(|seed| fuzzing::file(seed)), "the seeds are files");
    run(&seeds, fuzzing::file);
    // The checksums reject mutations, so some are made with the right ones.
    let storable = decide(&[("Cache-Control", "max-age=60"), ("ETag", "\"a\""), ("Vary", "x-a")]).unwrap();
    let head = StoredHead::new(200, &headers(&[("X-A", "1"), ("X-B", "2")]));
    let encoded = encode_head(b"key", b",1\n", &head, &storable);
    let mut random = fastrand::Rng::with_seed(2);
    let mut accepted = 0;
    for _ in 0..5_000 {
        let mut changed = encoded.clone();
        for _ in 0..random.usize(0..3) {
            let at = random.usize(0..changed.len());
            changed[at] = random.u8(..);
        }
        let preamble = Preamble::new(changed.len(), 7, random.u64(..)).unwrap();
        let slot = preamble.encode_slot(3, &changed).unwrap();
        let mut bytes = preamble.encode().to_vec();
        bytes.extend_from_slice(&slot);
        bytes.resize(preamble.body_offset() as usize, 0);
        accepted += usize::from(fuzzing::file(&bytes));
    }
    assert!(accepted > 1_000);
}

#[test]
fn the_length_of_a_head_is_known_before_it_is_encoded() {
    for fields in
        [&[][..], &[("ETag", "\"a\""), ("Last-Modified", DATE), ("Vary", "a, bc"), ("Cache-Tag", "x,yz")]]
    {
        let mut fields = fields.to_vec();
        fields.push(("Cache-Control", "max-age=60"));
        let storable = decide(&fields).unwrap();
        let head = StoredHead::new(200, &headers(&fields));
        let encoded = encode_head(b"some key", b"variant", &head, &storable);
        let expected = Preamble::new(encoded.len(), 0, 0).unwrap().file_bytes();
        let cache = cache(MIB);
        let object = store(&cache, "some key", &fields, b"");
        let (key, body) = (object.key.clone(), Arc::clone(&object.body));
        let object = Object::new(cache.memory(), key, (*b"variant").into(), head, storable, body);
        assert_eq!(file_bytes(&object), expected);
    }
}
