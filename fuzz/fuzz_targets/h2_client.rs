//! See `wire::fuzzing::h2_client`.
#![no_main]

weir_fuzz::target!("h2_client", wire::fuzzing::h2_client, wire::fuzzing::decode::h2_client);
