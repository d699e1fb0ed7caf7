//! Work that a target may ask a core to do before it answers: it stands in for an application.

use std::hint::black_box;

use rt::clock::now_ns;

/// Keeps the processor busy for `ns`. Nothing else runs on this core meanwhile, as with an
/// application that computes in its event loop.
pub(crate) fn burn(ns: u64) {
    if ns == 0 {
        return;
    }
    let until_ns = now_ns() + ns;
    while now_ns() < until_ns {
        for _ in 0..16 {
            std::hint::spin_loop();
        }
    }
}

/// How many pieces are allocated before they are freed.
const BATCH: u64 = 64;

/// Allocates and frees `count` pieces of 64 to 1024 bytes, some of them at the same time.
pub(crate) fn allocate(count: u64) {
    let mut left = count;
    while left > 0 {
        let batch = left.min(BATCH);
        let pieces: Vec<Vec<u8>> =
            (0..batch).map(|index| black_box(Vec::with_capacity(piece_bytes(index)))).collect();
        drop(black_box(pieces));
        left -= batch;
    }
}

/// 64, 128 and so on to 1024 bytes, in turn.
fn piece_bytes(index: u64) -> usize {
    64 * (1 + index as usize % 16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn burning_takes_as_long_as_asked() {
        let start_ns = now_ns();
        burn(2_000_000);
        assert!(now_ns() - start_ns >= 2_000_000);
    }

    #[test]
    fn pieces_have_the_sizes_that_are_told() {
        let sizes: Vec<_> = (0..BATCH).map(piece_bytes).collect();
        assert_eq!((sizes.iter().min(), sizes.iter().max()), (Some(&64), Some(&1024)));
        allocate(1000);
    }
}
