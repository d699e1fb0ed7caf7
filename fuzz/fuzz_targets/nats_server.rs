//! See `fleet::fuzzing::nats_server`.
#![no_main]

weir_fuzz::target!("nats_server", fleet::fuzzing::nats_server);
