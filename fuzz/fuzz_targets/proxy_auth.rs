//! See `proxy::fuzzing::auth`.
#![no_main]

weir_fuzz::target!("proxy_auth", proxy::fuzzing::auth);
