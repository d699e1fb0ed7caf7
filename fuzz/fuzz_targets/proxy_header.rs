//! See `proxy::fuzzing::proxy_header`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    proxy::fuzzing::proxy_header(bytes);
});
