//! Cost of one parse: nanoseconds for a request and a response of four fields, and a small chunked
//! body. Run it with `--release`; under callgrind use a small count, since each parse counts.

use std::hint::black_box;
use std::time::Duration;

use wire::{BodyDecoder, Framing, Limits, Parsed, RequestKind, header_slots, parse_request, parse_response};

const REQUEST: &[u8] = b"GET /api/v1/items?page=2 HTTP/1.1\r\nHost: shop.example:8080\r\n\
    User-Agent: weir/0.1\r\nAccept: */*\r\nConnection: keep-alive\r\n\r\n";
const RESPONSE: &[u8] = b"HTTP/1.1 200 OK\r\nDate: Tue, 15 Nov 1994 08:12:31 GMT\r\n\
    Content-Type: text/plain\r\nContent-Length: 100\r\nServer: weir\r\n\r\n";
const CHUNKS: &[u8] = b"40\r\n0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\r\n\
    10\r\n0123456789abcdef\r\n0\r\n\r\n";

fn main() {
    let mut arguments = std::env::args().skip(1);
    let iterations = arguments.next().and_then(|text| text.parse().ok()).unwrap_or(1_000_000);
    let filter = arguments.next().unwrap_or_default();
    for &(name, work) in BENCHMARKS {
        if name.contains(&filter) {
            report(name, iterations, work);
        }
    }
}

/// One parse; its result keeps the compiler from dropping it.
type ParseFn = fn() -> u64;

/// Rows are selected by a part of their name, so that callgrind can count one alone.
const BENCHMARKS: &[(&str, ParseFn)] = &[
    ("head of a request, 4 fields", request),
    ("response, 4 fields", response),
    ("body, 2 chunks", chunks),
    ("httparse, same", httparse_alone),
];

fn request() -> u64 {
    let mut slots = header_slots();
    match parse_request(black_box(REQUEST), &Limits::default(), &mut slots) {
        Ok(Parsed::Complete { head, .. }) => u64::from(head.keep_alive),
        other => panic!("{other:?}"),
    }
}

fn response() -> u64 {
    let mut slots = header_slots();
    match parse_response(black_box(RESPONSE), &Limits::default(), RequestKind::Other, &mut slots) {
        Ok(Parsed::Complete { head, .. }) => u64::from(head.status),
        other => panic!("{other:?}"),
    }
}

fn chunks() -> u64 {
    let mut body = BodyDecoder::new(Framing::Chunked, &Limits::default());
    match body.skip(black_box(CHUNKS)) {
        Ok(skipped) if skipped.end => skipped.data_bytes,
        other => panic!("{other:?}"),
    }
}

/// The work below all parsers: lines and tokens, without a decision.
fn httparse_alone() -> u64 {
    let mut slots = [const { std::mem::MaybeUninit::uninit() }; 100];
    let mut request = httparse::Request::new(&mut []);
    match request.parse_with_uninit_headers(black_box(REQUEST), &mut slots) {
        Ok(httparse::Status::Complete(bytes)) => bytes as u64,
        other => panic!("{other:?}"),
    }
}

/// Runs the work `iterations` times and prints the mean.
fn report(name: &str, iterations: u32, work: ParseFn) {
    let mut sum = 0;
    let elapsed = measure(|| {
        for _ in 0..iterations {
            sum += work();
        }
    });
    let mean_ns = elapsed.as_nanos() as f64 / f64::from(iterations);
    println!("{name:24} {mean_ns:8.1} ns  ({} each)", black_box(sum) / u64::from(iterations));
}

// There is no virtual time here: the wall clock is required.
#[expect(clippy::disallowed_methods)]
fn measure(work: impl FnOnce()) -> Duration {
    let start = std::time::Instant::now();
    work();
    start.elapsed()
}
