//! See `wire::fuzzing::request_head`.
#![no_main]

weir_fuzz::target!("request_head", wire::fuzzing::request_head, wire::fuzzing::decode::request_head);
