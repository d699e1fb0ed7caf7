//! Work of a core before a response, on request of a target: a substitute for an application.

use std::hint::black_box;

use rt::clock::now_ns;

/// Keeps the CPU busy for `ns`. Nothing else runs on this core meanwhile, as with an application
/// that computes in its event loop.
pub(crate) fn burn(ns: u64) {
    if ns == 0 {
        return;
    }
    let deadline_ns = now_ns() + ns;
    while now_ns() < deadline_ns {
        for _ in 0..16 {
            std::hint::spin_loop();
        }
    }
}

/// Number of pieces that are allocated before they are freed.
const LIVE_BLOCKS_MAX: u64 = 64;

/// Allocates and frees `count` pieces of 64 to 1024 bytes, some of them at the same time.
pub(crate) fn allocate(count: u64) {
    let mut remaining = count;
    while remaining > 0 {
        let batch = remaining.min(LIVE_BLOCKS_MAX);
        let blocks: Vec<Vec<u8>> =
            (0..batch).map(|index| black_box(Vec::with_capacity(block_bytes(index)))).collect();
        drop(black_box(blocks));
        remaining -= batch;
    }
}

/// Returns 64, 128 and so on to 1024 bytes, in turn.
fn block_bytes(index: u64) -> usize {
    64 * (1 + index as usize % 16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn burning_takes_the_requested_time() {
        let start_ns = now_ns();
        burn(2_000_000);
        assert!(now_ns() - start_ns >= 2_000_000);
    }

    #[test]
    fn blocks_have_the_documented_sizes() {
        let sizes: Vec<_> = (0..LIVE_BLOCKS_MAX).map(block_bytes).collect();
        assert_eq!((sizes.iter().min(), sizes.iter().max()), (Some(&64), Some(&1024)));
        allocate(1000);
    }
}
