//! Vector with stable indices that reuses freed slots. Keys carry a generation, so a stale key
//! finds nothing instead of another value.

use std::num::NonZeroU32;

/// Key of one value of a [`Slab`]; never refers to another value after that one was removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SlabKey {
    index: u32,
    /// Never 0, so that an optional key is no larger than a key.
    generation: NonZeroU32,
}

impl SlabKey {
    pub(crate) fn as_u64(self) -> u64 {
        u64::from(self.generation.get()) << 32 | u64::from(self.index)
    }
}

#[derive(Debug)]
struct SlabEntry<T> {
    generation: NonZeroU32,
    value: Option<T>,
}

#[derive(Debug)]
pub(crate) struct Slab<T> {
    entries: Vec<SlabEntry<T>>,
    free: Vec<u32>,
}

impl<T> Slab<T> {
    pub(crate) fn new() -> Self {
        Self { entries: Vec::new(), free: Vec::new() }
    }

    pub(crate) fn insert(&mut self, value: T) -> SlabKey {
        if let Some(index) = self.free.pop() {
            let entry = &mut self.entries[index as usize];
            entry.value = Some(value);
            return SlabKey { index, generation: entry.generation };
        }
        let index = self.entries.len() as u32;
        self.entries.push(SlabEntry { generation: NonZeroU32::MIN, value: Some(value) });
        SlabKey { index, generation: NonZeroU32::MIN }
    }

    pub(crate) fn get_mut(&mut self, key: SlabKey) -> Option<&mut T> {
        let entry = self.entries.get_mut(key.index as usize)?;
        if entry.generation == key.generation { entry.value.as_mut() } else { None }
    }

    pub(crate) fn get(&self, key: SlabKey) -> Option<&T> {
        let entry = self.entries.get(key.index as usize)?;
        if entry.generation == key.generation { entry.value.as_ref() } else { None }
    }

    pub(crate) fn remove(&mut self, key: SlabKey) -> Option<T> {
        let entry = self.entries.get_mut(key.index as usize)?;
        if entry.generation != key.generation {
            return None;
        }
        let value = entry.value.take()?;
        entry.generation = entry.generation.checked_add(1).unwrap_or(NonZeroU32::MIN);
        self.free.push(key.index);
        Some(value)
    }

    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.entries.iter_mut().filter_map(|entry| entry.value.as_mut())
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_removed_key_never_finds_the_next_value() {
        let mut slab = Slab::new();
        let first = slab.insert('a');
        assert_eq!(slab.remove(first), Some('a'));
        let second = slab.insert('b');
        assert_eq!(slab.get_mut(first), None);
        assert_eq!(slab.remove(first), None);
        assert_eq!(slab.get(second), Some(&'b'));
        assert_eq!(slab.len(), 1);
    }
}
