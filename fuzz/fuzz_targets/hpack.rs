//! See `wire::fuzzing::hpack`.
#![no_main]

weir_fuzz::target!("hpack", wire::fuzzing::hpack, wire::fuzzing::decode::hpack);
