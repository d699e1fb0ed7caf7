//! See `proxy::fuzzing::config`.
#![no_main]

weir_fuzz::target!("proxy_config", proxy::fuzzing::config);
