//! Token buckets of a route's rate limit, by key. All cores share them, in atomics and without a
//! lock: the cores together admit exactly the limit, whatever the spread of requests over them.
//! No I/O; the caller responds to a rejected request.
//!
//! All cores would write a single bucket for every request of a route. So cores take tokens from it
//! in lots ([`batch_tokens_max`]), and a rejected request only reads. Buckets by client or by field
//! are many, and are written directly.

use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rt::clock::MonotonicTime;

use crate::admission::TokenBucket;
use crate::plan::{RateKey, RateLimit, Template, TokenRate};

use super::RouteRequest;

/// Nanoseconds until a rejected request would be admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RetryAfterNs(pub(crate) u64);

/// Key that a request is counted under.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RateLimitKey<'a> {
    Route,
    /// The client's address (IPv6: its /64); `None`: all clients of unix sockets.
    Source(Option<IpAddr>),
    /// The value of a field; all requests without the field share a key.
    Field(Option<&'a [u8]>),
}

impl<'a> RateLimitKey<'a> {
    /// Returns the key of a request for a limit by `key`.
    /// `render` returns a text with its values.
    pub(crate) fn from_request(
        key: &RateKey,
        request: &RouteRequest<'a>,
        render: impl FnOnce(&Template) -> &'a mut Vec<u8>,
    ) -> Self {
        match key {
            RateKey::Route => Self::Route,
            RateKey::Source => Self::Source(request.source),
            RateKey::Header(name) => Self::Field(request.view.value(name)),
            RateKey::Template(template) => {
                Self::Field(Some(&**render(template)).filter(|key| !key.is_empty()))
            }
        }
    }
}

/// Maximum time for which a core uses a lot.
const LEASE_NS: u64 = 10_000_000;
/// Divisor of the rate that bounds the unused tokens of all cores.
const UNUSED_DIVISOR: f64 = 100.0;
/// Number of possible slots of a key.
const WAYS: usize = 8;

/// The buckets of one route, shared by all cores.
#[derive(Debug)]
pub(crate) struct Buckets {
    limit: RateLimit,
    cores: usize,
    /// The bucket of all requests that are counted together.
    shared_bucket: TokenBucket,
    /// Buckets by key; empty if all requests are counted together.
    slots: Box<[BucketSlot]>,
    hasher: RandomState,
}

/// The bucket of one key. If another core assigns the slot to a new key at the same time, a token
/// may come from the wrong bucket: an error of one token.
#[derive(Debug, Default)]
struct BucketSlot {
    /// The keyed hash of the key; 0: free.
    tag: AtomicU64,
    bucket: TokenBucket,
}

/// The access of one core to the buckets of a route, with its taken but unused tokens.
#[derive(Debug)]
pub(crate) struct Limiter {
    buckets: Arc<Buckets>,
    tokens: u32,
    taken_at: MonotonicTime,
    /// Time at which the bucket would be full again after the last lot. Returned tokens fit into
    /// the bucket until then.
    full_at: MonotonicTime,
    /// Number of tokens in the next lot.
    batch_tokens: u32,
}

/// Returns the maximum size of a lot. Unused tokens of all cores amount to at most one hundredth of
/// the rate, and a core leaves half of the burst to the others. So the shared bucket is written at
/// most `rate` times a second, and at most 10,000 times for each core.
fn batch_tokens_max(rate: &TokenRate, cores: usize) -> u32 {
    let lease_s = LEASE_NS as f64 / 1e9;
    let by_rate = rate.rate_per_s * lease_s / (UNUSED_DIVISOR * cores as f64);
    let by_burst = f64::from(rate.burst) / (2.0 * cores as f64);
    // Float to integer saturates.
    (by_rate.min(by_burst) as u32).max(1)
}

impl Buckets {
    /// Creates full buckets, shared by `cores` cores.
    pub(crate) fn new(limit: &RateLimit, cores: usize) -> Self {
        // Twice as many slots as keys, so that few keys lack a slot while others are free.
        let slots = match limit.key {
            RateKey::Route => 0,
            _ => limit.keys_max.saturating_mul(2).next_multiple_of(WAYS).max(WAYS),
        };
        Self {
            limit: limit.clone(),
            cores: cores.max(1),
            shared_bucket: TokenBucket::default(),
            slots: std::iter::repeat_with(BucketSlot::default).take(slots).collect(),
            hasher: RandomState::new(),
        }
    }

    fn rate(&self) -> TokenRate {
        TokenRate { rate_per_s: self.limit.rate_per_s, burst: self.limit.burst }
    }

    /// Returns the bucket of a key. A new key gets a free slot. If there is none, it replaces the
    /// slot whose bucket is full first; an evicted key counts as full.
    fn bucket_of(&self, key: RateLimitKey<'_>) -> &TokenBucket {
        let Some(hashable) = hashable_key(key).filter(|_| !self.slots.is_empty()) else {
            return &self.shared_bucket;
        };
        // Keys are hashed under a secret, so that nobody can choose one that shares a slot with
        // another.
        let hash = match hashable {
            HashableKey::Address(bits) => self.hasher.hash_one(bits),
            HashableKey::Value(value) => self.hasher.hash_one(value),
        };
        let tag = hash.max(1);
        let first_way = (hash as usize % (self.slots.len() / WAYS)) * WAYS;
        let ways = &self.slots[first_way..][..WAYS];
        loop {
            let own_slot = ways.iter().find(|slot| slot.tag.load(Ordering::Relaxed) == tag);
            if let Some(slot) = own_slot {
                return &slot.bucket;
            }
            let victim =
                ways.iter().min_by_key(|slot| (slot.tag.load(Ordering::Relaxed) != 0, slot.bucket.full_at()));
            // There is at least one way.
            let Some(victim) = victim else { return &self.shared_bucket };
            let old_tag = victim.tag.load(Ordering::Relaxed);
            let exchanged = victim.tag.compare_exchange(old_tag, tag, Ordering::Relaxed, Ordering::Relaxed);
            if exchanged.is_ok() {
                victim.bucket.refill();
                return &victim.bucket;
            }
        }
    }
}

/// Compact form of a key for hashing.
enum HashableKey<'a> {
    Address(u64),
    Value(&'a [u8]),
}

fn hashable_key(key: RateLimitKey<'_>) -> Option<HashableKey<'_>> {
    match key {
        RateLimitKey::Route | RateLimitKey::Source(None) | RateLimitKey::Field(None) => None,
        RateLimitKey::Source(Some(address)) => {
            Some(HashableKey::Address(match address.to_canonical() {
                // No IPv6 address of a client starts with these bits.
                IpAddr::V4(address) => u64::from(address.to_bits()) | 0xffff << 48,
                IpAddr::V6(address) => (address.to_bits() >> 64) as u64,
            }))
        }
        RateLimitKey::Field(Some(value)) => Some(HashableKey::Value(value)),
    }
}

impl Limiter {
    /// Creates a limiter without tokens.
    pub(crate) fn new(buckets: Arc<Buckets>) -> Self {
        Self {
            buckets,
            tokens: 0,
            taken_at: MonotonicTime::ZERO,
            full_at: MonotonicTime::ZERO,
            batch_tokens: 1,
        }
    }

    /// Takes a token for `key` if there is one.
    ///
    /// # Errors
    /// There is none; nothing is taken then.
    pub(crate) fn admit(&mut self, key: RateLimitKey<'_>, now: MonotonicTime) -> Result<(), RetryAfterNs> {
        let rate = self.buckets.rate();
        if self.buckets.limit.key != RateKey::Route {
            let bucket = self.buckets.bucket_of(key);
            return bucket.try_take(&rate, now).map_err(RetryAfterNs);
        }
        let is_fresh = now.since(self.taken_at) <= LEASE_NS;
        if self.tokens > 0 && is_fresh {
            self.tokens -= 1;
            return Ok(());
        }
        self.return_unused(now);
        let max = batch_tokens_max(&rate, self.buckets.cores);
        // A core that has used up its lot takes more the next time; one with few requests takes
        // one.
        self.batch_tokens = if is_fresh { self.batch_tokens.saturating_mul(2).min(max) } else { 1 };
        let (tokens, full_at) =
            self.buckets.shared_bucket.try_take_up_to(&rate, self.batch_tokens, now).map_err(RetryAfterNs)?;
        (self.tokens, self.taken_at, self.full_at) = (tokens - 1, now, full_at);
        Ok(())
    }

    /// Returns unused tokens, unless the bucket may have been full since they were taken: then they
    /// would exceed the burst.
    fn return_unused(&mut self, now: MonotonicTime) {
        let tokens = std::mem::take(&mut self.tokens);
        if tokens > 0 && now < self.full_at {
            self.buckets.shared_bucket.return_unused(&self.buckets.rate(), tokens);
        }
    }
}

#[cfg(test)]
mod tests;
