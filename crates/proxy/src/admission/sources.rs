//! Who has what, by the network of the client: a table of a fixed size that all cores share, without
//! a lock.
//!
//! ```text
//! address -> prefix -> keyed hash -> WAYS places, one after the other
//!                                     each: tag and connections in one word | two buckets
//! ```
//! A place belongs to a source as long as it has a connection, which knows its place: requests need
//! no look-up. A source without connections is forgotten for another one that has no place, that
//! whose buckets are full first. When all places that a source could have are taken by others with
//! connections, it goes unbounded, which is counted.

use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};

use super::rate::Bucket;
use crate::plan::SourcePlan;

/// Places that one source could have.
const WAYS: usize = 8;
/// How often a source that others race for looks for its place; then it goes unbounded.
const TRIES_MAX: usize = 64;
/// The rest of a word is a tag.
const COUNT_BITS: u32 = 24;
const COUNT_MASK: u64 = (1 << COUNT_BITS) - 1;

/// A connection's place in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seat(u32);

/// Why a connection is one too many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Over {
    /// Its source has as many as it may.
    Connections,
    /// They come too fast.
    Rate {
        /// When the next one may come.
        wait_ns: u64,
    },
}

/// What each source has.
#[derive(Debug)]
pub(super) struct Sources {
    plan: SourcePlan,
    hasher: RandomState,
    places: Box<[Place]>,
}

#[derive(Debug, Default)]
struct Place {
    /// Tag and connections; a tag is never 0, and 0 is a place that nobody had.
    word: AtomicU64,
    connections: Bucket,
    requests: Bucket,
}

impl Seat {
    /// No place: nothing is counted.
    pub(crate) const fn none() -> Self {
        Self(u32::MAX)
    }

    fn index(self) -> Option<usize> {
        (self != Self::none()).then_some(self.0 as usize)
    }
}

impl Sources {
    pub(super) fn new(plan: &SourcePlan) -> Self {
        let places = std::iter::repeat_with(Place::default).take(plan.entries.max(WAYS)).collect();
        Self { plan: plan.clone(), hasher: RandomState::new(), places }
    }

    /// The bits of an address that make a source.
    fn source(&self, client: IpAddr) -> u128 {
        match client.to_canonical() {
            IpAddr::V4(address) => {
                let shift = 32 - u32::from(self.plan.prefix4.min(32));
                let kept = u64::from(address.to_bits()) >> shift << shift;
                // Apart from all of IPv6, whose addresses do not start so.
                u128::from(kept) | 0xffff << 112
            }
            IpAddr::V6(address) => {
                let shift = 128 - u32::from(self.plan.prefix6.min(128));
                let bits = address.to_bits();
                if shift == 128 { 0 } else { bits >> shift << shift }
            }
        }
    }

    /// Takes a place for a connection, or another one at the place of its source.
    pub(super) fn enter(&self, client: IpAddr, now_ns: u64) -> Result<Seat, Over> {
        let hash = self.hasher.hash_one(self.source(client));
        let tag = (hash >> COUNT_BITS).max(1) << COUNT_BITS;
        let first = (hash % self.places.len() as u64) as usize;
        let Some(index) = self.hold(first, tag, now_ns)? else {
            return Ok(Seat::none());
        };
        if let Some(rate) = &self.plan.connections_rate
            && let Err(wait_ns) = self.places[index].connections.take(rate, now_ns)
        {
            self.leave(Seat(index as u32));
            return Err(Over::Rate { wait_ns });
        }
        // There are fewer places than u32::MAX.
        Ok(Seat(index as u32))
    }

    /// Counts a connection at the place of this tag; where there is none, at a free one.
    ///
    /// Two cores may claim two places for one source at the same time. So whoever has counted looks
    /// whether there is another place that counts, and steps back if so: of two that stay, the later
    /// one would have seen the other.
    fn hold(&self, first: usize, tag: u64, now_ns: u64) -> Result<Option<usize>, Over> {
        let ways = || (0..WAYS).map(|way| (first + way) % self.places.len());
        let word = |index: usize| self.places[index].word.load(Ordering::SeqCst);
        let is_own = |index: &usize| word(*index) & !COUNT_MASK == tag;
        for _ in 0..TRIES_MAX {
            let own = ways().filter(is_own).max_by_key(|&index| word(index) & COUNT_MASK);
            let index = match own {
                Some(index) if self.count_one(index, tag)? => index,
                Some(_) => continue,
                None => {
                    let free = ways().filter(|&index| word(index) & COUNT_MASK == 0);
                    let free = free.min_by_key(|&index| self.places[index].forgets_at_ns(now_ns));
                    let Some(index) = free else { return Ok(None) };
                    if !self.claim(index, tag) {
                        continue;
                    }
                    index
                }
            };
            let counts = |&other: &usize| other != index && word(other) & COUNT_MASK > 0;
            if !ways().filter(is_own).any(|other| counts(&other)) {
                return Ok(Some(index));
            }
            self.leave(Seat(index as u32));
            std::hint::spin_loop();
        }
        Ok(None)
    }

    /// Takes a place where nobody has a connection, with one.
    fn claim(&self, index: usize, tag: u64) -> bool {
        let place = &self.places[index];
        let free = |word: u64| (word & COUNT_MASK == 0).then_some(tag | 1);
        let claimed = place.word.fetch_update(Ordering::SeqCst, Ordering::SeqCst, free).is_ok();
        if claimed {
            place.connections.fill();
            place.requests.fill();
        }
        claimed
    }

    /// One connection more; `false`: the place has become another's.
    fn count_one(&self, index: usize, tag: u64) -> Result<bool, Over> {
        let max = u64::from(self.plan.connections.unwrap_or(u32::MAX)).min(COUNT_MASK - 1);
        let more =
            |word: u64| (word & !COUNT_MASK == tag && word & COUNT_MASK < max).then_some(word + 1);
        let word = &self.places[index].word;
        match word.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more) {
            Ok(_) => Ok(true),
            Err(word) if word & !COUNT_MASK == tag => Err(Over::Connections),
            Err(_) => Ok(false),
        }
    }

    pub(super) fn leave(&self, seat: Seat) {
        if let Some(index) = seat.index() {
            self.places[index].word.fetch_sub(1, Ordering::SeqCst);
        }
    }

    pub(super) fn admit_request(&self, seat: Seat, now_ns: u64) -> Result<(), u64> {
        match (&self.plan.requests_rate, seat.index()) {
            (Some(rate), Some(index)) => self.places[index].requests.take(rate, now_ns),
            _ => Ok(()),
        }
    }
}

impl Place {
    /// When nothing is lost by forgetting it.
    fn forgets_at_ns(&self, now_ns: u64) -> u64 {
        self.connections.full_at_ns().max(self.requests.full_at_ns()).max(now_ns)
    }
}
