//! See `proxy::fuzzing::forward_request`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    proxy::fuzzing::forward_request(bytes);
});
