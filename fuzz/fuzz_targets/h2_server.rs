//! See `wire::fuzzing::h2_server`.
#![no_main]

weir_fuzz::target!("h2_server", wire::fuzzing::h2_server, wire::fuzzing::decode::h2_server);
