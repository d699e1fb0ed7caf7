//! See `proxy::fuzzing::config`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    proxy::fuzzing::config(bytes);
});
