//! See `proxy::fuzzing::template`.
#![no_main]

weir_fuzz::target!("proxy_template", proxy::fuzzing::template);
