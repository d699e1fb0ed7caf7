//! See `wire::fuzzing::hpack`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| wire::fuzzing::hpack(bytes));
