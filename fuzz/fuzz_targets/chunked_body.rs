//! See `wire::fuzzing::chunked_body`.
#![no_main]

weir_fuzz::target!("chunked_body", wire::fuzzing::chunked_body, wire::fuzzing::decode::chunked_body);
