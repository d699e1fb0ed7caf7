//! Token buckets of a route's rate limit, by key. All cores share them, in atomics and without a lock:
//! the cores together admit exactly what the limit says, however requests are spread over them. Pure;
//! the response to a rejected request is the caller's business.
//!
//! One bucket for all requests of a route would be written by every core for every request, so cores
//! take tokens from it in lots ([`lot_max`]); a rejected request only reads. Buckets by client or by
//! field are many, and are written directly.

use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::admission::Bucket;
use crate::plan::{Rate, RateKey, RateLimit};

use super::Asked;

/// In how many nanoseconds a refused request would be admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RetryAfterNs(pub(crate) u64);

/// What a request is counted under.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Key<'a> {
    /// With all others of its route.
    Route,
    /// With those of the same client (IPv6: of the same /64); `None`, a unix socket: one client.
    Source(Option<IpAddr>),
    /// With those of the same value; all without the field are one.
    Field(Option<&'a [u8]>),
}

impl<'a> Key<'a> {
    /// What `asked` is counted under when the limit is by `key`.
    pub(crate) fn of(key: &RateKey, asked: &Asked<'a>) -> Self {
        match key {
            RateKey::Route => Self::Route,
            RateKey::Source => Self::Source(asked.source),
            RateKey::Header(name) => Self::Field(wire::field_value(asked.fields_for(name), name)),
        }
    }
}

/// How long a lot is used by the core that took it.
const LEASE_NS: u64 = 10_000_000;
/// The fraction of the rate that unused tokens of all cores may amount to, as a divisor.
const UNUSED_DIVISOR: f64 = 100.0;
/// Slots that one key can have.
const WAYS: usize = 8;

/// The buckets of one route, shared by all cores.
#[derive(Debug)]
pub(crate) struct Buckets {
    limit: RateLimit,
    cores: usize,
    /// Of all requests that are counted together.
    whole: Bucket,
    /// By key; empty where all requests are counted together.
    slots: Box<[Slot]>,
    hasher: RandomState,
}

/// The bucket of one key. A core that reads a slot while another one gives it to a new key may take a
/// token from the wrong bucket, which is an error of one token.
#[derive(Debug, Default)]
struct Slot {
    /// The keyed hash of the key; 0: free.
    tag: AtomicU64,
    bucket: Bucket,
}

/// The access of one core to the buckets of a route, with the tokens that it has taken and not used.
#[derive(Debug)]
pub(crate) struct Limiter {
    buckets: Arc<Buckets>,
    tokens: u32,
    taken_ns: u64,
    /// When the bucket would have been full again after the last lot: until then, what is given back
    /// is missing in it.
    full_at_ns: u64,
    /// How many tokens the next lot has.
    lot: u32,
}

/// The maximum tokens of a lot. Unused tokens of all cores amount to at most one hundredth of the rate,
/// and a core leaves half of the burst to the others. So the shared bucket is written at most
/// `rate` times a second, and at most 10,000 times for each core.
fn lot_max(rate: &Rate, cores: usize) -> u32 {
    let lease_s = LEASE_NS as f64 / 1e9;
    let by_rate = rate.rate_per_s * lease_s / (UNUSED_DIVISOR * cores as f64);
    let by_burst = f64::from(rate.burst) / (2.0 * cores as f64);
    // Float to integer saturates.
    (by_rate.min(by_burst) as u32).max(1)
}

impl Buckets {
    /// Full. `cores` is how many cores share them.
    pub(crate) fn new(limit: &RateLimit, cores: usize) -> Self {
        // Twice as many slots as keys, so that few keys have no slot while there are free ones.
        let slots = match limit.key {
            RateKey::Route => 0,
            _ => limit.keys_max.saturating_mul(2).next_multiple_of(WAYS).max(WAYS),
        };
        Self {
            limit: limit.clone(),
            cores: cores.max(1),
            whole: Bucket::default(),
            slots: std::iter::repeat_with(Slot::default).take(slots).collect(),
            hasher: RandomState::new(),
        }
    }

    fn rate(&self) -> Rate {
        Rate { rate_per_s: self.limit.rate_per_s, burst: self.limit.burst }
    }

    /// The bucket of a key. A key that has none gets a free slot, or, where there is none, the one
    /// whose bucket is full first; what is forgotten counts as full.
    fn bucket_of(&self, key: Key<'_>) -> &Bucket {
        let Some(id) = id(key).filter(|_| !self.slots.is_empty()) else { return &self.whole };
        // Keys are hashed under a secret, so that nobody can choose one to share a slot with another.
        let hash = match id {
            Id::Address(bits) => self.hasher.hash_one(bits),
            Id::Value(value) => self.hasher.hash_one(value),
        };
        let tag = hash.max(1);
        let first = (hash as usize % (self.slots.len() / WAYS)) * WAYS;
        let ways = &self.slots[first..][..WAYS];
        loop {
            let own = ways.iter().find(|slot| slot.tag.load(Ordering::Relaxed) == tag);
            if let Some(slot) = own {
                return &slot.bucket;
            }
            let victim = ways.iter().min_by_key(|slot| {
                (slot.tag.load(Ordering::Relaxed) != 0, slot.bucket.full_at_ns())
            });
            // There is at least one way.
            let Some(victim) = victim else { return &self.whole };
            let old = victim.tag.load(Ordering::Relaxed);
            let taken = victim.tag.compare_exchange(old, tag, Ordering::Relaxed, Ordering::Relaxed);
            if taken.is_ok() {
                victim.bucket.fill();
                return &victim.bucket;
            }
        }
    }
}

/// What stands for a key.
enum Id<'a> {
    Address(u64),
    Value(&'a [u8]),
}

fn id(key: Key<'_>) -> Option<Id<'_>> {
    match key {
        Key::Route | Key::Source(None) | Key::Field(None) => None,
        Key::Source(Some(address)) => Some(Id::Address(match address.to_canonical() {
            // No IPv6 address starts so that clients have.
            IpAddr::V4(address) => u64::from(address.to_bits()) | 0xffff << 48,
            IpAddr::V6(address) => (address.to_bits() >> 64) as u64,
        })),
        Key::Field(Some(value)) => Some(Id::Value(value)),
    }
}

impl Limiter {
    /// Without tokens.
    pub(crate) fn new(buckets: Arc<Buckets>) -> Self {
        Self { buckets, tokens: 0, taken_ns: 0, full_at_ns: 0, lot: 1 }
    }

    /// Takes a token for `key` if there is one.
    ///
    /// # Errors
    /// When there is none; nothing is taken then.
    pub(crate) fn admit(&mut self, key: Key<'_>, now_ns: u64) -> Result<(), RetryAfterNs> {
        let rate = self.buckets.rate();
        if self.buckets.limit.key != RateKey::Route {
            let bucket = self.buckets.bucket_of(key);
            return bucket.take(&rate, now_ns).map_err(RetryAfterNs);
        }
        let is_fresh = now_ns.saturating_sub(self.taken_ns) <= LEASE_NS;
        if self.tokens > 0 && is_fresh {
            self.tokens -= 1;
            return Ok(());
        }
        self.give_back(now_ns);
        let max = lot_max(&rate, self.buckets.cores);
        // A core that has used its lot up takes more the next time; one with few requests takes one.
        self.lot = if is_fresh { self.lot.saturating_mul(2).min(max) } else { 1 };
        let (tokens, full_at_ns) =
            self.buckets.whole.take_up_to(&rate, self.lot, now_ns).map_err(RetryAfterNs)?;
        (self.tokens, self.taken_ns, self.full_at_ns) = (tokens - 1, now_ns, full_at_ns);
        Ok(())
    }

    /// Returns unused tokens, unless the bucket may have been full since they were taken: then they
    /// would be more than the burst.
    fn give_back(&mut self, now_ns: u64) {
        let tokens = std::mem::take(&mut self.tokens);
        if tokens > 0 && now_ns < self.full_at_ns {
            self.buckets.whole.give_back(&self.buckets.rate(), tokens);
        }
    }
}

#[cfg(test)]
mod tests;
