//! What was seen, kept within bounds: everything for hours, then every second look, then every
//! fourth, and the last few in full for live views.
//!
//! Pure: not for taking samples.

use std::collections::VecDeque;

/// Looks that are kept, at most: four hours at one a second.
pub(super) const MAX_KEPT: usize = 4 * 3600;

/// Looks of one kind.
#[derive(Debug)]
pub(super) struct History<T> {
    kept: Vec<T>,
    /// One in so many is kept.
    every: u64,
    offered: u64,
    recent: VecDeque<T>,
    recent_max: usize,
}

impl<T: Clone> History<T> {
    /// Keeps the last `recent_max` in full.
    pub(super) fn new(recent_max: usize) -> Self {
        Self { kept: Vec::new(), every: 1, offered: 0, recent: VecDeque::new(), recent_max }
    }

    pub(super) fn offer(&mut self, item: T) {
        if self.recent.len() == self.recent_max {
            self.recent.pop_front();
        }
        self.recent.push_back(item.clone());
        if self.offered.is_multiple_of(self.every) {
            self.kept.push(item);
        }
        self.offered += 1;
        if self.kept.len() > MAX_KEPT {
            let mut at = 0_u64;
            self.kept.retain(|_| {
                at += 1;
                at % 2 == 1
            });
            self.every *= 2;
        }
    }

    /// Those that are kept.
    pub(super) fn kept(&self) -> &[T] {
        &self.kept
    }

    /// One in so many is kept.
    pub(super) fn every(&self) -> u64 {
        self.every
    }

    /// Changes each of them, and each of the last few.
    pub(super) fn each(&mut self, change: impl Fn(&mut T)) {
        self.kept.iter_mut().for_each(&change);
        self.recent.iter_mut().for_each(&change);
    }

    /// The last few, the oldest first.
    pub(super) fn recent(&self) -> Vec<T> {
        self.recent.iter().cloned().collect()
    }

    /// All that were kept, and how many were offered for each of them.
    pub(super) fn into_kept(self) -> (Vec<T>, u64) {
        (self.kept, self.every)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_watch_is_thinned_evenly() {
        let mut history = History::new(3);
        for item in 0..=(2 * MAX_KEPT as u64 + 1) {
            history.offer(item);
        }
        let last = 2 * MAX_KEPT as u64 + 1;
        assert_eq!(history.recent(), [last - 2, last - 1, last]);
        let (kept, every) = history.into_kept();
        assert!(kept.len() <= MAX_KEPT && every == 4, "{} {every}", kept.len());
        assert!(kept.windows(2).all(|pair| pair[1] - pair[0] == every));
    }

    #[test]
    fn a_short_watch_is_kept_whole() {
        let mut history = History::new(2);
        (0..5).for_each(|item| history.offer(item));
        assert_eq!(history.recent(), [3, 4]);
        assert_eq!(history.into_kept(), (vec![0, 1, 2, 3, 4], 1));
    }
}
