//! See `proxy::fuzzing::sources`.
#![no_main]

weir_fuzz::target!("proxy_sources", proxy::fuzzing::sources);
