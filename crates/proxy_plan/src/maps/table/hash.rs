//! Hash of names, with open addressing: a slot has the number of its entry, and 12 bits of the hash, so that a
//! search rarely reads a key in vain.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};

use super::{Conflict, Records};

pub(super) struct HashIndex {
    /// Number of an entry and a part of its hash, or [`EMPTY`].
    slots: Box<[u32]>,
    offsets: Box<[u32]>,
    ignores_case: bool,
    /// Keyed, so that keys from outside cannot be made to share a slot.
    hasher: RandomState,
}

/// A slot that no entry has: the number is beyond the maximum.
const EMPTY: u32 = u32::MAX;
const NUMBER_BITS: u32 = 20;
const NUMBER_MASK: u32 = (1 << NUMBER_BITS) - 1;
/// Bytes that are hashed at a time.
const CHUNK_BYTES: usize = 32;

impl HashIndex {
    pub(super) fn build(
        records: &Records,
        offsets: &[u32],
        ignores_case: bool,
        conflicts: &mut Vec<Conflict>,
    ) -> Self {
        // A quarter of the slots stays empty.
        let slots = vec![EMPTY; offsets.len() + offsets.len() / 3 + 1].into_boxed_slice();
        let mut index = Self { slots, offsets: Box::default(), ignores_case, hasher: RandomState::new() };
        let (mut kept, mut positions) = (Vec::with_capacity(offsets.len()), Vec::new());
        for (position, &offset) in offsets.iter().enumerate() {
            let (key, value) = records.get(offset);
            let hash = index.hash(key);
            match index.slot_of(key, hash, &kept, records) {
                (_, Some(number)) => {
                    if records.get(kept[number]).1 != value {
                        conflicts.push(Conflict { earlier: positions[number], later: position as u32 });
                    }
                }
                (slot, None) => {
                    index.slots[slot] = tag(hash) | kept.len() as u32;
                    kept.push(offset);
                    positions.push(position as u32);
                }
            }
        }
        index.offsets = kept.into();
        index
    }

    pub(super) fn find(&self, key: &[u8], records: &Records) -> Option<u32> {
        let (_, number) = self.slot_of(key, self.hash(key), &self.offsets, records);
        Some(self.offsets[number?])
    }

    pub(super) fn len(&self) -> usize {
        self.offsets.len()
    }

    pub(super) fn memory_bytes(&self) -> usize {
        4 * (self.slots.len() + self.offsets.len())
    }

    pub(super) fn offsets(&self) -> impl Iterator<Item = u32> {
        self.offsets.iter().copied()
    }

    /// Returns the slot of a key and its entry, or the empty slot where it would be.
    fn slot_of(&self, key: &[u8], hash: u64, offsets: &[u32], records: &Records) -> (usize, Option<usize>) {
        // The upper half of the product is a slot below their number.
        let mut slot = (((hash & 0xffff_ffff) * self.slots.len() as u64) >> 32) as usize;
        loop {
            let entry = self.slots[slot];
            if entry == EMPTY {
                return (slot, None);
            }
            let number = (entry & NUMBER_MASK) as usize;
            if entry & !NUMBER_MASK == tag(hash) && self.is_same(records.key(offsets[number]), key) {
                return (slot, Some(number));
            }
            // An empty slot always remains, so the search ends.
            slot = if slot + 1 == self.slots.len() { 0 } else { slot + 1 };
        }
    }

    fn is_same(&self, own: &[u8], key: &[u8]) -> bool {
        if self.ignores_case { own.eq_ignore_ascii_case(key) } else { own == key }
    }

    fn hash(&self, key: &[u8]) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        if self.ignores_case {
            for chunk in key.chunks(CHUNK_BYTES) {
                let mut lower = [0; CHUNK_BYTES];
                let lower = &mut lower[..chunk.len()];
                lower.copy_from_slice(chunk);
                lower.make_ascii_lowercase();
                hasher.write(lower);
            }
        } else {
            hasher.write(key);
        }
        hasher.finish()
    }
}

/// Returns the part of a hash that a slot has; never that of [`EMPTY`] together with a number.
fn tag(hash: u64) -> u32 {
    (hash >> 32) as u32 & !NUMBER_MASK
}
