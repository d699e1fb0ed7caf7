//! Cost of the decoders of this crate, and the corpora of their fuzz targets.

use decode_cost::{CountingAllocator, check_seeds, corpus};

use super::decode;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

#[test]
fn heads_of_http1() {
    check_seeds("request_head", &corpus("request_head"), decode::request_head);
    check_seeds("response_head", &corpus("response_head"), decode::response_head);
}

#[test]
fn chunks_extensions_and_trailers() {
    check_seeds("chunked_body", &corpus("chunked_body"), decode::chunked_body);
}

#[test]
fn frames_of_a_websocket() {
    check_seeds("websocket", &corpus("websocket"), decode::websocket);
}

#[test]
fn events_of_a_stream() {
    check_seeds("event_stream", &corpus("event_stream"), decode::event_stream);
}

#[test]
fn http2_of_a_client() {
    check_seeds("h2_server", &corpus("h2_server"), decode::h2_server);
}

#[test]
fn http2_of_a_server() {
    check_seeds("h2_client", &corpus("h2_client"), decode::h2_client);
}

#[test]
fn field_blocks() {
    check_seeds("hpack", &corpus("hpack"), decode::hpack);
}

#[test]
fn proxy_headers() {
    check_seeds("proxy_header", &corpus("proxy_header"), decode::proxy_header);
}

#[test]
fn requests_of_a_connection() {
    check_seeds("differential", &corpus("differential"), |bytes| drop(super::accepted_requests(bytes)));
}
