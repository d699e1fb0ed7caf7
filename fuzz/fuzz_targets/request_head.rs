//! See `wire::fuzzing::request_head`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| wire::fuzzing::request_head(bytes));
