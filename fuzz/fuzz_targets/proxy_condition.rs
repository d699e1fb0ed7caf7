//! See `proxy::fuzzing::condition`.
#![no_main]

weir_fuzz::target!("proxy_condition", proxy::fuzzing::condition);
