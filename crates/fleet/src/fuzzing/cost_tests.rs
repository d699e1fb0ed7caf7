//! Cost of the decoders of this crate, and the corpora of their fuzz targets.

use decode_cost::{CountingAllocator, check_seeds, check_valid_seeds, corpus};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

#[test]
fn messages() {
    check_seeds("fleet_message", &corpus("fleet_message"), |bytes| {
        super::message(bytes);
    });
    check_seeds("nats_server", &corpus("nats_server"), |bytes| {
        super::nats_server(bytes);
    });
    check_valid_seeds("fleet_message", super::message);
    check_valid_seeds("nats_server", super::nats_server);
}
