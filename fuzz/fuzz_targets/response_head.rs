//! See `wire::fuzzing::response_head`.
#![no_main]

weir_fuzz::target!("response_head", wire::fuzzing::response_head, wire::fuzzing::decode::response_head);
