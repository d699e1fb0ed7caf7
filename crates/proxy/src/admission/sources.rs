//! Usage counters by client network: a table of a fixed size that all cores share, without a lock.
//!
//! ```text
//! address -> prefix -> keyed hash -> WAYS slots, one after the other
//!                                     each: tag and connections in one word | two buckets
//! ```
//! A slot belongs to a source as long as the source has a connection. The connection stores its
//! slot, so requests need no lookup. A source without connections can be evicted by a new source;
//! the one whose buckets are full first goes first. If all possible slots of a source belong to
//! others with connections, the source is not limited, which is counted.

use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};

use rt::clock::MonotonicTime;

use super::rate::TokenBucket;
use crate::plan::SourcePlan;

/// Number of possible slots of a source.
const WAYS: usize = 8;
/// Maximum number of attempts to find a slot while other cores race for it. After that the source
/// is not limited.
const ATTEMPTS_MAX: usize = 64;
/// Bits of the connection count in a word; the rest is the tag.
const COUNT_BITS: u32 = 24;
const COUNT_MASK: u64 = (1 << COUNT_BITS) - 1;

/// A connection's slot in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SourceSlot(u32);

/// Reason why a connection exceeds a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SourceLimitExceeded {
    Connections,
    Rate {
        /// Time until the next one is allowed.
        wait_ns: u64,
    },
}

#[derive(Debug)]
pub(super) struct SourceTable {
    plan: SourcePlan,
    hasher: RandomState,
    entries: Box<[SourceEntry]>,
}

#[derive(Debug, Default)]
struct SourceEntry {
    /// Tag and number of connections. A tag is never 0; a word of 0 is an unused slot.
    tag_and_count: AtomicU64,
    connections: TokenBucket,
    requests: TokenBucket,
}

impl SourceSlot {
    /// Returns the value for "no slot": nothing is counted.
    pub(crate) const fn untracked() -> Self {
        Self(u32::MAX)
    }

    fn index(self) -> Option<usize> {
        (self != Self::untracked()).then_some(self.0 as usize)
    }
}

impl SourceTable {
    pub(super) fn new(plan: &SourcePlan) -> Self {
        let entries = std::iter::repeat_with(SourceEntry::default).take(plan.entries.max(WAYS)).collect();
        Self { plan: plan.clone(), hasher: RandomState::new(), entries }
    }

    fn network_bits(&self, client: IpAddr) -> u128 {
        match client.to_canonical() {
            IpAddr::V4(address) => {
                let shift = 32 - u32::from(self.plan.prefix4.min(32));
                let masked = u64::from(address.to_bits()) >> shift << shift;
                // Distinct from all IPv6 sources: no IPv6 address starts with these bits.
                u128::from(masked) | 0xffff << 112
            }
            IpAddr::V6(address) => {
                let shift = 128 - u32::from(self.plan.prefix6.min(128));
                let bits = address.to_bits();
                if shift == 128 { 0 } else { bits >> shift << shift }
            }
        }
    }

    /// Counts a connection at the slot of its source, and takes a slot if the source has none.
    pub(super) fn acquire(
        &self,
        client: IpAddr,
        now: MonotonicTime,
    ) -> Result<SourceSlot, SourceLimitExceeded> {
        let hash = self.hasher.hash_one(self.network_bits(client));
        let tag = (hash >> COUNT_BITS).max(1) << COUNT_BITS;
        let first_index = (hash % self.entries.len() as u64) as usize;
        let Some(index) = self.find_or_claim(first_index, tag, now)? else {
            return Ok(SourceSlot::untracked());
        };
        if let Some(rate) = &self.plan.connections_rate
            && let Err(wait_ns) = self.entries[index].connections.try_take(rate, now)
        {
            self.release(SourceSlot(index as u32));
            return Err(SourceLimitExceeded::Rate { wait_ns });
        }
        // There are fewer slots than u32::MAX.
        Ok(SourceSlot(index as u32))
    }

    /// Counts a connection at the slot of this tag; if there is none, at a free one.
    ///
    /// Two cores may claim two slots for one source at the same time. So a core checks after it
    /// has counted: if another slot of the source has connections, the core steps back. If two
    /// claims remained, the later one would have seen the other.
    fn find_or_claim(
        &self,
        first_index: usize,
        tag: u64,
        now: MonotonicTime,
    ) -> Result<Option<usize>, SourceLimitExceeded> {
        let ways = || (0..WAYS).map(|way| (first_index + way) % self.entries.len());
        let word = |index: usize| self.entries[index].tag_and_count.load(Ordering::SeqCst);
        let is_own = |index: &usize| word(*index) & !COUNT_MASK == tag;
        for _ in 0..ATTEMPTS_MAX {
            let own = ways().filter(is_own).max_by_key(|&index| word(index) & COUNT_MASK);
            let index = match own {
                Some(index) if self.try_increment(index, tag)? => index,
                Some(_) => continue,
                None => {
                    let free = ways().filter(|&index| word(index) & COUNT_MASK == 0);
                    let free = free.min_by_key(|&index| self.entries[index].evictable_from(now));
                    let Some(index) = free else { return Ok(None) };
                    if !self.claim(index, tag) {
                        continue;
                    }
                    index
                }
            };
            let is_duplicate = |&other: &usize| other != index && word(other) & COUNT_MASK > 0;
            if !ways().filter(is_own).any(|other| is_duplicate(&other)) {
                return Ok(Some(index));
            }
            self.release(SourceSlot(index as u32));
            std::hint::spin_loop();
        }
        Ok(None)
    }

    /// Takes a slot that has no connections, and counts one there.
    fn claim(&self, index: usize, tag: u64) -> bool {
        let entry = &self.entries[index];
        let claim_if_free = |word: u64| (word & COUNT_MASK == 0).then_some(tag | 1);
        let claimed =
            entry.tag_and_count.fetch_update(Ordering::SeqCst, Ordering::SeqCst, claim_if_free).is_ok();
        if claimed {
            entry.connections.refill();
            entry.requests.refill();
        }
        claimed
    }

    /// Counts one more connection. Returns `false` if the slot belongs to another source now.
    fn try_increment(&self, index: usize, tag: u64) -> Result<bool, SourceLimitExceeded> {
        let max = u64::from(self.plan.connections.unwrap_or(u32::MAX)).min(COUNT_MASK - 1);
        let increment =
            |word: u64| (word & !COUNT_MASK == tag && word & COUNT_MASK < max).then_some(word + 1);
        let word = &self.entries[index].tag_and_count;
        match word.fetch_update(Ordering::SeqCst, Ordering::SeqCst, increment) {
            Ok(_) => Ok(true),
            Err(word) if word & !COUNT_MASK == tag => Err(SourceLimitExceeded::Connections),
            Err(_) => Ok(false),
        }
    }

    pub(super) fn release(&self, slot: SourceSlot) {
        if let Some(index) = slot.index() {
            self.entries[index].tag_and_count.fetch_sub(1, Ordering::SeqCst);
        }
    }

    pub(super) fn admit_request(&self, slot: SourceSlot, now: MonotonicTime) -> Result<(), u64> {
        match (&self.plan.requests_rate, slot.index()) {
            (Some(rate), Some(index)) => self.entries[index].requests.try_take(rate, now),
            _ => Ok(()),
        }
    }
}

impl SourceEntry {
    /// Returns the time from which evicting the source loses no information.
    fn evictable_from(&self, now: MonotonicTime) -> MonotonicTime {
        self.connections.full_at().max(self.requests.full_at()).max(now)
    }
}
