//! See `proxy::fuzzing::target`.
#![no_main]

weir_fuzz::target!("proxy_target", proxy::fuzzing::target);
