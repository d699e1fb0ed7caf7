//! See `wire::fuzzing::h2_client`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| wire::fuzzing::h2_client(bytes));
