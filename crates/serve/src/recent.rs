//! A few entries that were used recently, and which of them a new one replaces. Uses no I/O.

/// Entries of a core, at most [`ENTRIES_MAX`].
#[derive(Debug)]
pub(crate) struct RecentEntries<T> {
    entries: Vec<T>,
    /// Index of the last used entry, which is checked first.
    last_used: usize,
    misses: u32,
}

pub(crate) const ENTRIES_MAX: usize = 8;
/// One in so many misses replaces an entry: what never repeats costs little and does not evict what does.
const ADMIT_ONE_IN: u32 = 8;

impl<T> Default for RecentEntries<T> {
    fn default() -> Self {
        Self { entries: Vec::new(), last_used: 0, misses: 0 }
    }
}

impl<T: Default> RecentEntries<T> {
    /// Returns the index of the first entry that matches; the last used one is checked first.
    #[inline]
    pub(crate) fn find(&mut self, matches: impl Fn(&T) -> bool) -> Option<usize> {
        if !self.entries.get(self.last_used).is_some_and(&matches) {
            self.last_used = self.entries.iter().position(matches)?;
        }
        Some(self.last_used)
    }

    #[inline]
    pub(crate) fn get(&self, index: usize) -> Option<&T> {
        self.entries.get(index)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, index: usize) -> Option<&mut T> {
        self.entries.get_mut(index)
    }

    pub(crate) fn remove(&mut self, index: usize) {
        self.entries.swap_remove(index);
        self.last_used = 0;
    }

    /// Counts a miss. Returns the entry to overwrite, a new or a replaced one; `None` if others are more useful,
    /// or if the new one is not `worth_keeping`.
    pub(crate) fn admit(&mut self, worth_keeping: bool) -> Option<&mut T> {
        let misses = self.misses;
        self.misses = misses.wrapping_add(1);
        if !worth_keeping {
            return None;
        }
        if self.entries.len() < ENTRIES_MAX {
            self.entries.push(T::default());
            self.last_used = self.entries.len() - 1;
        } else if misses.is_multiple_of(ADMIT_ONE_IN) {
            self.last_used = (misses / ADMIT_ONE_IN) as usize % ENTRIES_MAX;
        } else {
            return None;
        }
        self.entries.get_mut(self.last_used)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_entries_stay_few_and_one_in_eight_misses_replaces_one() {
        let mut recent = RecentEntries::<u32>::default();
        let mut admitted = 0;
        for number in 0..1_000 {
            if let Some(entry) = recent.admit(number != 3) {
                (*entry, admitted) = (number, admitted + 1);
            }
        }
        assert_eq!((recent.entries.len(), admitted), (ENTRIES_MAX, 8 + 123));
        assert!(recent.find(|entry| *entry == 3).is_none());
        let index = recent.find(|entry| *entry == 992).unwrap();
        assert_eq!(recent.get(index), Some(&992));
        recent.remove(index);
        assert!(recent.find(|entry| *entry == 992).is_none() && recent.entries.len() == ENTRIES_MAX - 1);
    }
}
