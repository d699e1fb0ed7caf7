//! Bounded sample history: all samples for hours, then every second one, then every fourth; and the
//! last few in full for live views.
//!
//! Pure: it takes no samples.

use std::collections::VecDeque;

/// Maximum number of kept samples: four hours at one per second.
pub(super) const MAX_RETAINED: usize = 4 * 3600;

#[derive(Debug)]
pub(super) struct SampleHistory<T> {
    retained: Vec<T>,
    /// Decimation factor: one sample in this many is kept.
    decimation: u64,
    pushed: u64,
    recent: VecDeque<T>,
    recent_max: usize,
}

impl<T: Clone> SampleHistory<T> {
    /// Creates a history that keeps the last `recent_max` samples in full.
    pub(super) fn new(recent_max: usize) -> Self {
        Self { retained: Vec::new(), decimation: 1, pushed: 0, recent: VecDeque::new(), recent_max }
    }

    pub(super) fn push(&mut self, item: T) {
        if self.recent.len() == self.recent_max {
            self.recent.pop_front();
        }
        self.recent.push_back(item.clone());
        if self.pushed.is_multiple_of(self.decimation) {
            self.retained.push(item);
        }
        self.pushed += 1;
        if self.retained.len() > MAX_RETAINED {
            let mut at = 0_u64;
            self.retained.retain(|_| {
                at += 1;
                at % 2 == 1
            });
            self.decimation *= 2;
        }
    }

    pub(super) fn retained(&self) -> &[T] {
        &self.retained
    }

    /// Returns the decimation factor: one sample in this many is kept.
    pub(super) fn decimation(&self) -> u64 {
        self.decimation
    }

    /// Changes each kept and each recent sample.
    pub(super) fn for_each_mut(&mut self, change: impl Fn(&mut T)) {
        self.retained.iter_mut().for_each(&change);
        self.recent.iter_mut().for_each(&change);
    }

    /// Returns the last few samples, the oldest first.
    pub(super) fn recent(&self) -> Vec<T> {
        self.recent.iter().cloned().collect()
    }

    /// Returns all kept samples, and the decimation factor.
    pub(super) fn into_retained(self) -> (Vec<T>, u64) {
        (self.retained, self.decimation)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_history_is_decimated_evenly() {
        let mut history = SampleHistory::new(3);
        for item in 0..=(2 * MAX_RETAINED as u64 + 1) {
            history.push(item);
        }
        let last = 2 * MAX_RETAINED as u64 + 1;
        assert_eq!(history.recent(), [last - 2, last - 1, last]);
        let (retained, decimation) = history.into_retained();
        assert!(retained.len() <= MAX_RETAINED && decimation == 4, "{} {decimation}", retained.len());
        assert!(retained.windows(2).all(|pair| pair[1] - pair[0] == decimation));
    }

    #[test]
    fn a_short_history_is_complete() {
        let mut history = SampleHistory::new(2);
        (0..5).for_each(|item| history.push(item));
        assert_eq!(history.recent(), [3, 4]);
        assert_eq!(history.into_retained(), (vec![0, 1, 2, 3, 4], 1));
    }
}
