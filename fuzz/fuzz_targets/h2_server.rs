//! See `wire::fuzzing::h2_server`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| wire::fuzzing::h2_server(bytes));
