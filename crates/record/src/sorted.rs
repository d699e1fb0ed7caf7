//! Sorts, maps and sets that add little code for each type. The stable sort of the standard library is compiled for
//! each type and comparison, to 5 kB, and so is a `collect` into a map or a set, because it sorts first. Here one sort
//! of positions serves all types: for lists off the path of requests.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

/// Sorts as [`slice::sort_by`] does: equal items keep their order.
pub fn sort_by<T>(items: &mut [T], mut compare: impl FnMut(&T, &T) -> Ordering) {
    let sources = sorted_positions(items.len(), &mut |left, right| compare(&items[left], &items[right]));
    rearrange(sources, &mut |position, source| items.swap(position, source));
}

/// Sorts as [`slice::sort_by_key`] does: equal items keep their order.
pub fn sort_by_key<T, K: Ord>(items: &mut [T], mut key: impl FnMut(&T) -> K) {
    sort_by(items, |left, right| key(left).cmp(&key(right)));
}

/// Collects as [`Iterator::collect`] does, by insertions.
pub trait CollectSorted: Iterator + Sized {
    /// Collects pairs; of those with equal keys the last one stays.
    fn collect_map<K: Ord, V>(self) -> BTreeMap<K, V>
    where
        Self: Iterator<Item = (K, V)>,
    {
        let mut map = BTreeMap::new();
        map.extend(self);
        map
    }

    /// Collects distinct items.
    fn collect_set(self) -> BTreeSet<Self::Item>
    where
        Self::Item: Ord,
    {
        let mut set = BTreeSet::new();
        set.extend(self);
        set
    }
}

impl<I: Iterator> CollectSorted for I {}

/// Returns the positions of items in their sorted order.
#[inline(never)]
fn sorted_positions(count: usize, compare: &mut dyn FnMut(usize, usize) -> Ordering) -> Vec<usize> {
    let mut positions: Vec<usize> = (0..count).collect();
    positions.sort_by(|&left, &right| compare(left, right));
    positions
}

/// Moves the item of each position's source to it, by swaps along the cycles.
#[inline(never)]
fn rearrange(mut sources: Vec<usize>, swap: &mut dyn FnMut(usize, usize)) {
    for start in 0..sources.len() {
        let mut position = start;
        while sources[position] != start {
            let source = sources[position];
            swap(position, source);
            sources[position] = position;
            position = source;
        }
        sources[position] = position;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_sorts_as_the_standard_library() {
        let mut state = 1_u32;
        for count in (0..40).chain([500, 5000]) {
            for distinct in [1, 2, 7, 1000] {
                let item = |position| {
                    state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    ((state >> 8) % distinct, position)
                };
                let original: Vec<(u32, usize)> = (0..count).map(item).collect();
                let (mut actual, mut expected) = (original.clone(), original.clone());
                sort_by_key(&mut actual, |item| item.0);
                expected.sort_by_key(|item| item.0);
                assert_eq!(actual, expected);
                sort_by(&mut actual, |left, right| right.cmp(left));
                expected.sort_by(|left, right| right.cmp(left));
                assert_eq!(actual, expected);
            }
        }
    }

    #[test]
    fn it_collects_as_the_standard_library() {
        let pairs = [("b", 1), ("a", 2), ("b", 3)];
        assert_eq!(pairs.into_iter().collect_map(), pairs.into_iter().collect());
        assert_eq!([3, 1, 3].into_iter().collect_set(), [1, 3].into_iter().collect());
    }
}
