//! See `wire::fuzzing::response_head`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| wire::fuzzing::response_head(bytes));
