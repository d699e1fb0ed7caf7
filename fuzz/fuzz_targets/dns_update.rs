//! See `proxy::fuzzing::dns_update`.
#![no_main]

weir_fuzz::target!("dns_update", proxy::fuzzing::dns_update);
