//! Cost of the decoders of this crate, and the corpora of their fuzz targets.

use decode_cost::{CountingAllocator, check_seeds, check_valid_seeds, corpus};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

#[test]
fn certificates_and_ocsp_responses() {
    check_seeds("certificate", &corpus("certificate"), |bytes| {
        super::certificate(bytes);
    });
    check_seeds("ocsp_response", &corpus("ocsp_response"), |bytes| {
        super::ocsp_response(bytes);
    });
    check_valid_seeds("certificate", super::certificate);
    check_valid_seeds("ocsp_response", super::ocsp_response);
}
