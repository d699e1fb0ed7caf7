//! Cost of the decoders of this crate, and the corpora of their fuzz targets.

use decode_cost::{CountingAllocator, check_seeds, corpus};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

#[test]
fn responses_and_files() {
    check_seeds("cache_policy", &corpus("cache_policy"), super::only_policy);
    check_seeds("cache_file", &corpus("cache_file"), super::only_file);
}
