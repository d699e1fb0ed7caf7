//! Cost of the decoders of this crate, and the corpora of their fuzz targets.

use decode_cost::{CountingAllocator, check_seeds, corpus};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

#[test]
fn frames() {
    check_seeds("user_tcp_frames", &corpus("user_tcp_frames"), super::receive_frames);
}
