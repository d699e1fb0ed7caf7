//! Cost of the decoders of this crate, and the corpora of their fuzz targets.

use decode_cost::{CountingAllocator, check_seeds, check_valid_seeds, corpus};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

#[test]
fn histograms_and_records() {
    check_seeds("histogram", &corpus("histogram"), super::decode_histogram);
    check_seeds("run_record", &corpus("run_record"), |bytes| {
        super::run_record(bytes);
    });
    check_valid_seeds("histogram", super::histogram);
    check_valid_seeds("run_record", super::run_record);
}

#[test]
fn formatted_files() {
    check_seeds("toml_format", &corpus("toml_format"), super::only_format_toml);
    check_valid_seeds("toml_format", super::toml_format);
}
