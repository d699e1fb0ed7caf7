//! Inputs from seeds: the seeds, their mutations, and long inputs that repeat a part of one.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use crate::check;

/// Mutations, and repetitions, of each seed in a normal run.
const ROUNDS: usize = 8;
/// Length of an input that repeats a part: enough that work per byte that grows with the input is far
/// above each factor.
const REPEATED_BYTES: usize = 16 * 1024;
/// Maximum length of a repeated part.
const PART_BYTES_MAX: usize = 96;

/// Checks the cost of a decoder for each seed, for mutations of it, and for inputs in which a part of it
/// repeats. The random numbers are the same each time. `WEIR_FUZZ_ROUNDS` sets the number of rounds for
/// each seed.
///
/// # Panics
/// The cost is above the budget of `target`; the input is printed.
pub fn check_seeds(target: &str, seeds: &[Vec<u8>], decode: impl Fn(&[u8])) {
    assert!(!seeds.is_empty(), "{target} has no seed");
    let rounds = std::env::var("WEIR_FUZZ_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(ROUNDS);
    let mut random = Random(rounds as u64 + 1);
    let checked = |input: &[u8]| {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| check(target, input, &decode))) {
            let shown = &input[..input.len().min(2_000)];
            eprintln!("{target}, {} bytes: {}", input.len(), shown.escape_ascii());
            resume_unwind(panic);
        }
    };
    for seed in seeds {
        checked(seed);
        for _ in 0..rounds {
            let mutated = mutate(seed, seeds, &mut random);
            checked(&mutated);
            let base = if random.below(2) == 0 { seed } else { &mutated };
            checked(&repeat_part(base, &mut random));
        }
    }
}

/// Returns an input of [`REPEATED_BYTES`]: the start of `seed`, one part of it again and again, and the
/// rest of it.
fn repeat_part(seed: &[u8], random: &mut Random) -> Vec<u8> {
    if seed.is_empty() {
        return vec![random.next() as u8; REPEATED_BYTES];
    }
    let start = random.below(seed.len());
    let length = 1 + random.below(PART_BYTES_MAX.min(seed.len() - start));
    let part = &seed[start..start + length];
    let mut bytes = seed[..start].to_vec();
    while bytes.len() < REPEATED_BYTES {
        bytes.extend_from_slice(part);
    }
    bytes.extend_from_slice(&seed[start + length..]);
    bytes
}

fn mutate(seed: &[u8], seeds: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    let mut bytes = seed.to_vec();
    for _ in 0..=random.below(4) {
        let at = random.below(bytes.len() + 1);
        match random.below(6) {
            0 => bytes.insert(at, random.next() as u8),
            1 => bytes.truncate(at),
            2 => {
                let other = &seeds[random.below(seeds.len())];
                bytes.extend_from_slice(&other[random.below(other.len() + 1)..]);
            }
            3 if at < bytes.len() => bytes[at] ^= 1 << random.below(8),
            4 => drop(bytes.splice(at..at, seed[random.below(seed.len() + 1)..].to_vec())),
            _ if at < bytes.len() => bytes[at] = random.next() as u8,
            _ => {}
        }
    }
    bytes.truncate(REPEATED_BYTES);
    bytes
}

/// Random numbers by a linear congruential generator.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }
}
