//! See `proxy::fuzzing::proxy_header`.
#![no_main]

weir_fuzz::target!("proxy_header", proxy::fuzzing::proxy_header, wire::fuzzing::decode::proxy_header);
