//! See `proxy::fuzzing::target`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    proxy::fuzzing::target(bytes);
});
