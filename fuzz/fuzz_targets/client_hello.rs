//! See `proxy::fuzzing::client_hello`.
#![no_main]

weir_fuzz::target!("client_hello", proxy::fuzzing::client_hello, proxy::fuzzing::decode_client_hello);
