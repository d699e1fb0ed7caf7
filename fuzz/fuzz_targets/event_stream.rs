//! See `wire::fuzzing::event_stream`.
#![no_main]

weir_fuzz::target!("event_stream", wire::fuzzing::event_stream, wire::fuzzing::decode::event_stream);
