//! See `proxy::fuzzing::client_hello`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    proxy::fuzzing::client_hello(bytes);
});
