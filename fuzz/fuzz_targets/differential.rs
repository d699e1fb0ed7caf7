//! Our server against hyper's: see the file that is included.
#![no_main]

#[path = "../../crates/wire/src/fuzzing/hyper_peer.rs"]
mod hyper_peer;

weir_fuzz::target!("differential", hyper_peer::check, wire::fuzzing::accepted_requests);
