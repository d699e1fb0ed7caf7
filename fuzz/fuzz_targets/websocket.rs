//! See `wire::fuzzing::websocket`.
#![no_main]

weir_fuzz::target!("websocket", wire::fuzzing::websocket, wire::fuzzing::decode::websocket);
