//! Cost of the decoders of this crate, and the corpora of their fuzz targets.

use decode_cost::{CountingAllocator, check_seeds, check_valid_seeds, corpus};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

#[test]
fn logs() {
    check_seeds("replay_log", &corpus("replay_log"), |bytes| {
        super::replay_log(bytes);
    });
    check_valid_seeds("replay_log", super::replay_log);
}
