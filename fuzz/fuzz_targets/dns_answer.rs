//! See `proxy::fuzzing::dns_answer`.
#![no_main]

weir_fuzz::target!("dns_answer", proxy::fuzzing::dns_answer);
