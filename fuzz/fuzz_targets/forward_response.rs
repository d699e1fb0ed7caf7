//! See `proxy::fuzzing::forward_response`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    proxy::fuzzing::forward_response(bytes);
});
