//! See `proxy::fuzzing::map`.
#![no_main]

weir_fuzz::target!("proxy_map", proxy::fuzzing::map);
