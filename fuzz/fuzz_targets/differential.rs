//! Our server against hyper's: see the file that is included.
#![no_main]

#[path = "../../crates/wire/tests/it/hyper_peer.rs"]
mod hyper_peer;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| hyper_peer::check(bytes));
