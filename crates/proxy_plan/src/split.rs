//! Weights of splits that have a name, which operators change while the proxy runs (`weir ctl split`).

#![expect(clippy::disallowed_types, reason = "taken when a config is read; requests read an atomic value")]

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Maximum weight of a pool in a split.
pub const SPLIT_WEIGHT_MAX: u32 = 1_000_000;
/// Value of a weight that no operator has set.
const UNCHANGED: u32 = u32::MAX;

/// The weight of a pool in a split with a name. All routes share it, in all plans, so that a change outlives a
/// reload.
#[derive(Debug)]
pub struct NamedWeight {
    split: Box<str>,
    pool: Box<str>,
    changed: AtomicU32,
}

/// Weights of the process. One is dropped with the last plan that has it.
static OPEN: Mutex<Vec<Weak<NamedWeight>>> = Mutex::new(Vec::new());

impl NamedWeight {
    /// Returns the weight of a pool in the split with this name.
    pub fn open(split: &str, pool: &str) -> Arc<Self> {
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|weight| weight.strong_count() > 0);
        let is_this = |weight: &Arc<Self>| &*weight.split == split && &*weight.pool == pool;
        if let Some(weight) = open.iter().filter_map(Weak::upgrade).find(is_this) {
            return weight;
        }
        let weight =
            Arc::new(Self { split: split.into(), pool: pool.into(), changed: AtomicU32::new(UNCHANGED) });
        open.push(Arc::downgrade(&weight));
        weight
    }

    /// Returns the weight that an operator set; `None`: that of the config counts.
    #[must_use]
    pub fn changed(&self) -> Option<u32> {
        let weight = self.changed.load(Ordering::Relaxed);
        (weight != UNCHANGED).then_some(weight)
    }

    /// Sets the weight for all following requests; `None`: that of the config.
    pub fn change(&self, weight: Option<u32>) {
        self.changed.store(weight.unwrap_or(UNCHANGED), Ordering::Relaxed);
    }
}

/// Parses a weight of a pool.
pub fn parse_weight(text: &str) -> Option<u32> {
    text.parse().ok().filter(|weight| *weight <= SPLIT_WEIGHT_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_counts_for_all_splits_with_the_name() {
        let first = NamedWeight::open("shared by tests", "a");
        let second = NamedWeight::open("shared by tests", "a");
        let other = NamedWeight::open("shared by tests", "b");
        second.change(Some(0));
        assert_eq!((first.changed(), other.changed()), (Some(0), None));
        second.change(None);
        assert_eq!(first.changed(), None);
        second.change(Some(7));
        drop((first, second));
        assert_eq!(NamedWeight::open("shared by tests", "a").changed(), None);
    }

    #[test]
    fn a_weight_is_a_whole_number() {
        assert_eq!(["0", "90", "1000000"].map(parse_weight), [Some(0), Some(90), Some(1_000_000)]);
        for wrong in ["", "-1", "1000001", "0.5", "10%"] {
            assert_eq!(parse_weight(wrong), None, "{wrong}");
        }
    }
}
