//! Cost of the decoders of this crate, and the corpora of their fuzz targets.

use decode_cost::{CountingAllocator, check_seeds, check_valid_seeds, corpus};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

#[test]
fn configs() {
    check_seeds("proxy_import", &corpus("proxy_import"), |bytes| {
        super::import(bytes);
    });
    check_valid_seeds("proxy_import", super::import);
}
