//! Cost of HTTP/2 per message on a connection that is in use: `cargo run --release -p wire --example
//! h2_cost`. Under callgrind, `h2_cost 10000 PART` runs the rows whose name has the part; the
//! difference of two counts is the cost without the start.

use std::hint::black_box;
use std::time::Duration;

use wire::h2::{BlockReader, BlockWriter, Config, Connection, Event, Role, StreamKey};

/// Work of one row, with the number of iterations.
type Work = fn(u32);

type Fields = &'static [(&'static str, &'static str)];

/// Request of a browser: ten fields in addition to the pseudo-header fields.
const REQUEST: Fields = &[
    ("sec-ch-ua-platform", "\"Linux\""),
    (
        "user-agent",
        "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/130.0 Safari/537.36",
    ),
    ("accept", "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8"),
    ("sec-fetch-site", "same-origin"),
    ("sec-fetch-mode", "navigate"),
    ("sec-fetch-dest", "document"),
    ("referer", "https://shop.example/start"),
    ("accept-encoding", "gzip, deflate, br, zstd"),
    ("accept-language", "de-DE,de;q=0.9,en;q=0.8"),
    ("x-session", "6b1f0c8e55a94c8d"),
];

const RESPONSE: Fields = &[
    ("date", "Tue, 15 Nov 1994 08:12:31 GMT"),
    ("content-type", "text/html; charset=utf-8"),
    ("content-length", "100"),
    ("server", "weir"),
    ("cache-control", "no-cache"),
];

const BODY: &[u8] = &[b'x'; 100];

fn main() {
    let mut arguments = std::env::args().skip(1);
    let iterations = arguments.next().and_then(|text| text.parse().ok()).unwrap_or(100_000);
    let filter = arguments.next().unwrap_or_default();
    let rows: [(&str, Work); 7] = [
        ("decode request, 10 fields", decode_request),
        ("decode request, new path", decode_new_path),
        ("decode request, first", decode_first),
        ("encode response, 5 fields", encode_response),
        ("encode request, 10 fields", encode_request),
        ("exchange, both ends", exchange),
        ("exchange, large body", large_body),
    ];
    for (name, work) in rows {
        if name.contains(&filter) {
            let elapsed = measure(|| work(iterations));
            let mean_ns = elapsed.as_nanos() as f64 / f64::from(iterations);
            println!("{name:28} {mean_ns:9.1} ns");
        }
    }
}

fn write_request(writer: &mut BlockWriter, out: &mut Vec<u8>, path: &str) {
    writer.encode_into(out, |head| {
        head.request("GET", Some("https"), Some("shop.example"), Some(path));
        for (name, value) in REQUEST {
            head.field(name, value.as_bytes());
        }
    });
}

/// A reader and a writer whose tables have the fields of the request.
fn warm() -> (BlockReader, BlockWriter) {
    let (mut reader, mut writer) = (BlockReader::new(), BlockWriter::new());
    for _ in 0..3 {
        let mut out = Vec::new();
        write_request(&mut writer, &mut out, "/api/v1/items?page=2");
        reader.read_request(&out).expect("a valid block");
    }
    (reader, writer)
}

fn decode_request(iterations: u32) {
    let (mut reader, mut writer) = warm();
    let mut block = Vec::new();
    write_request(&mut writer, &mut block, "/api/v1/items?page=2");
    decode(&mut reader, &block, iterations);
}

/// The path is a literal: the usual case of a browser.
fn decode_new_path(iterations: u32) {
    let (mut reader, mut writer) = warm();
    let mut block = Vec::new();
    write_request(&mut writer, &mut block, "/api/v1/items?page=3");
    decode(&mut reader, &block, iterations);
}

/// All fields are literals with Huffman code, which are not inserted.
fn decode_first(iterations: u32) {
    let mut block = Vec::new();
    write_request(&mut BlockWriter::new(), &mut block, "/api/v1/items?page=2");
    decode(&mut BlockReader::new(), &block, iterations);
}

fn decode(reader: &mut BlockReader, block: &[u8], iterations: u32) {
    for _ in 0..iterations {
        let head = reader.read_request(black_box(block)).expect("a valid block");
        black_box(head.path);
    }
}

fn write_response(head: &mut wire::h2::FieldEncoder<'_>) {
    head.status(200);
    for (name, value) in black_box(RESPONSE) {
        head.field(name, value.as_bytes());
    }
}

fn encode_response(iterations: u32) {
    let mut writer = BlockWriter::new();
    let mut out = Vec::new();
    for _ in 0..iterations {
        out.clear();
        writer.encode_into(&mut out, write_response);
        black_box(&out);
    }
}

fn encode_request(iterations: u32) {
    let mut writer = BlockWriter::new();
    let mut out = Vec::new();
    for _ in 0..iterations {
        out.clear();
        write_request(&mut writer, &mut out, "/api/v1/items?page=2");
        black_box(&out);
    }
}

/// Handles all events, and returns the last stream of a head or content.
fn receive(connection: &mut Connection, input: &[u8]) -> Option<StreamKey> {
    let (mut used, mut last) = (0, None);
    loop {
        let (bytes, event) = connection.next_event(&input[used..]).expect("no fault");
        used += bytes;
        match event {
            None => return last,
            Some(Event::Data { stream, bytes, .. }) => {
                let len = bytes.len();
                connection.consume(stream, len);
            }
            Some(Event::Request { stream, .. } | Event::Response { stream, .. }) => last = Some(stream),
            Some(_) => {}
        }
    }
}

fn pass(from: &mut Connection, to: &mut Connection) -> Option<StreamKey> {
    let last = receive(to, from.output());
    from.output().clear();
    last
}

/// A request, and a response with a body: frames, streams, windows and HPACK of both ends.
fn exchange(iterations: u32) {
    run_exchanges(iterations, BODY);
}

fn large_body(iterations: u32) {
    run_exchanges(iterations, &[b'x'; 60_000]);
}

fn run_exchanges(iterations: u32, body: &[u8]) {
    let config = Config::default();
    let (mut client, mut server) =
        (Connection::new(Role::Client, &config), Connection::new(Role::Server, &config));
    pass(&mut client, &mut server);
    pass(&mut server, &mut client);
    for _ in 0..iterations {
        let stream = client.open_stream().expect("a free stream");
        client.send_headers(stream, true, |head| {
            head.request("GET", Some("http"), Some("shop.example"), Some("/x"));
            head.field("user-agent", b"weir");
            head.field("accept", b"*/*");
        });
        let stream = pass(&mut client, &mut server).expect("a request");
        server.send_headers(stream, false, |head| {
            head.status(200);
            for (name, value) in RESPONSE.iter().filter(|(name, _)| *name != "content-length") {
                head.field(name, value.as_bytes());
            }
        });
        assert_eq!(server.send_data(stream, body, true), body.len());
        pass(&mut server, &mut client);
    }
    assert_eq!((client.open_streams(), server.open_streams()), (0, 0));
}

// There is no virtual time here: the wall clock is required.
#[expect(clippy::disallowed_methods)]
fn measure(work: impl FnOnce()) -> Duration {
    let start = std::time::Instant::now();
    work();
    start.elapsed()
}
