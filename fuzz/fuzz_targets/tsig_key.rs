//! See `proxy::fuzzing::tsig_key`.
#![no_main]

weir_fuzz::target!("tsig_key", proxy::fuzzing::tsig_key);
