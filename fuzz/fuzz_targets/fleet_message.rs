//! See `fleet::fuzzing::message`.
#![no_main]

weir_fuzz::target!("fleet_message", fleet::fuzzing::message);
