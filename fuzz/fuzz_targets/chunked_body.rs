//! See `wire::fuzzing::chunked_body`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| wire::fuzzing::chunked_body(bytes));
