//! Tests of hostile HTTP/2 peers whose few bytes mean much: HPACK references to large entries, Huffman code,
//! trailers, interim responses. They cost `serve`, `proxy` (both sides) and `load` little memory, which is
//! returned; honest peers with large heads are served as before. `fuzz/hostile_h2.py` has more scenes, and
//! nginx and HAProxy beside weir.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;

use crate::support::hostile_client::connect;
use crate::support::peers::ScriptedServer;
use crate::support::proxy_under_test::ProxyUnderTest;
use crate::support::{
    EVENT_TIMEOUT, OriginProcess, RunOutput, anonymous_bytes, shared_machine, start_load, within,
};

const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const PROTOCOL_ERROR: u32 = 1;
const ENHANCE_YOUR_CALM: u32 = 11;
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// GET, http, / and the authority "a".
const GET: &[u8] = b"\x82\x86\x84\x01\x01a";
const POST: &[u8] = b"\x83\x86\x84\x01\x01a";
/// Status 200.
const OK: &[u8] = b"\x88";

/// Hostile connections of a scene, which send about 1 MB together.
const CONNECTIONS: usize = 20;
/// Maximum growth of a process.
const GROWTH_MAX: u64 = 30 << 20;
/// Memory of a load without anything hostile, which depends on the number of its responses.
const LOAD_BYTES: u64 = 64 << 20;
/// Memory that a process may keep in addition to a tenth of what it had: allocators round up.
const KEPT_MAX: u64 = 2 << 20;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// A head in one HEADERS frame and the CONTINUATION frames that it needs.
fn head(stream: u32, flags: u8, block: &[u8]) -> Vec<u8> {
    let count = block.len().div_ceil(16_384);
    let frames = block.chunks(16_384).enumerate().map(|(at, part)| {
        let end = if at + 1 == count { END_HEADERS } else { 0 };
        match at {
            0 => frame(HEADERS, flags | end, stream, part),
            _ => frame(CONTINUATION, end, stream, part),
        }
    });
    frames.flatten().collect()
}

fn text(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = bytes.len();
    if rest < 127 {
        out.push(rest as u8);
    } else {
        out.push(127);
        rest -= 127;
        while rest >= 128 {
            out.push(rest as u8 | 128);
            rest >>= 7;
        }
        out.push(rest as u8);
    }
    out.extend_from_slice(bytes);
    out
}

/// Literal that is inserted into the table.
fn inserted(name: &[u8], value: &[u8]) -> Vec<u8> {
    [vec![0x40], text(name), text(value)].concat()
}

/// Hostile blocks: fields of a first head, and fields that fill the second one.
fn blocks() -> Vec<(&'static str, Vec<u8>, Vec<u8>)> {
    vec![
        ("name of the table", inserted(&[b'a'; 4_062], b""), b"\x7e\x00".to_vec()),
        ("value of the table", inserted(b"a", &[b'v'; 4_061]), b"\xbe".to_vec()),
        ("Huffman code", Vec::new(), [b"\x40\x01c", &huffman_zeros()[..]].concat()),
    ]
}

/// String of 4,000 times `0` in Huffman code, which is five zero bits for each.
fn huffman_zeros() -> Vec<u8> {
    // 2,500 bytes: 127 and 2,373 in two groups of seven bits.
    [vec![0xff, 0x80 | (2_373 & 0x7f) as u8, (2_373 >> 7) as u8], vec![0; 2_500]].concat()
}

fn second_block(start: &[u8], repeated: &[u8]) -> Vec<u8> {
    [start, &repeated.repeat(48_000 / repeated.len())].concat()
}

/// Bytes of hostile clients by scene.
fn hostile_clients() -> Vec<(&'static str, Vec<u8>)> {
    let start = [PREFACE, &frame(SETTINGS, 0, 0, &[])].concat();
    let mut clients: Vec<(&str, Vec<u8>)> = Vec::new();
    for (name, first, repeated) in blocks() {
        let heads = [
            head(1, END_STREAM, &[GET, &first].concat()),
            head(3, END_STREAM, &second_block(GET, &repeated)),
        ];
        clients.push((name, [start.clone(), heads.concat()].concat()));
    }
    let (_, first, repeated) = blocks().swap_remove(0);
    let heads = [head(1, 0, &[POST, &first].concat()), head(1, END_STREAM, &second_block(&[], &repeated))];
    clients.push(("trailers", [start, heads.concat()].concat()));
    clients
}

/// Reads frames until the end of a connection; returns the code of GOAWAY.
fn goaway_code(stream: &mut TcpStream) -> Option<u32> {
    let mut received = Vec::new();
    // The end may be a reset, because not everything was read.
    let _ = stream.read_to_end(&mut received);
    let mut rest = &received[..];
    let mut code = None;
    while let Some(header) = rest.first_chunk::<9>() {
        let length = usize::from(header[1]) << 8 | usize::from(header[2]);
        let payload = rest.get(9..9 + length)?;
        if header[3] == GOAWAY {
            code = payload.get(4..8).and_then(|code| Some(u32::from_be_bytes(code.try_into().ok()?)));
        }
        rest = &rest[9 + length..];
    }
    code
}

/// Returns the peak of the resident memory of a process.
fn peak_bytes(process: i32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").trim().parse::<u64>().unwrap() * 1_024
}

/// Memory of a process before something hostile.
struct MemoryBefore {
    process: i32,
    anonymous: u64,
    peak: u64,
}

impl MemoryBefore {
    fn of(process: i32) -> Self {
        Self { process, anonymous: anonymous_bytes(process), peak: peak_bytes(process) }
    }

    fn assert_small_growth(&self, scene: &str) {
        let growth = peak_bytes(self.process).saturating_sub(self.peak);
        assert!(growth <= GROWTH_MAX, "{scene}: {} MiB", growth >> 20);
    }

    fn assert_returned(&self, scene: &str) {
        let max = self.anonymous + self.anonymous / 10 + KEPT_MAX;
        let is_returned = within(EVENT_TIMEOUT, || anonymous_bytes(self.process) <= max);
        assert!(is_returned, "{scene}: {} of {max} bytes", anonymous_bytes(self.process));
    }
}

/// Sends the bytes on many connections at the same time, and returns the codes of their GOAWAYs.
fn attack(authority: &str, bytes: &[u8]) -> Vec<Option<u32>> {
    let mut streams: Vec<TcpStream> = (0..CONNECTIONS).map(|_| connect(authority)).collect();
    std::thread::scope(|scope| {
        let clients = streams.iter_mut().map(|stream| {
            scope.spawn(|| {
                // The connection may end before everything is sent.
                let _ = stream.write_all(bytes);
                goaway_code(stream)
            })
        });
        let clients: Vec<_> = clients.collect();
        clients.into_iter().map(|client| client.join().unwrap()).collect()
    })
}

/// Checks all scenes against a server whose process and address are given.
fn assert_hostile_clients_are_cheap(process: i32, authority: &str) {
    // Memory of the first connections stays.
    let end = frame(WINDOW_UPDATE, 0, 0, &[0; 4]);
    let first = [PREFACE, &frame(SETTINGS, 0, 0, &[]), &head(1, END_STREAM, GET), &end].concat();
    assert_eq!(attack(authority, &first), [Some(PROTOCOL_ERROR); CONNECTIONS]);
    let before = MemoryBefore::of(process);
    for (scene, bytes) in hostile_clients() {
        let codes = attack(authority, &bytes);
        assert!(codes.iter().all(|code| *code == Some(ENHANCE_YOUR_CALM)), "{scene}: {codes:?}");
        before.assert_small_growth(scene);
    }
    before.assert_returned("clients");
}

#[test]
fn hostile_clients_cost_a_server_what_their_bytes_weigh() {
    let _shared = shared_machine();
    let origin = OriginProcess::start(&["-t", "1"]);
    assert_hostile_clients_are_cheap(origin.process.id(), &origin.authority);
    let proxy = ProxyUnderTest::weir_with_flags(&["--listen", "127.0.0.1:0", "--to", &origin.authority]);
    assert_hostile_clients_are_cheap(proxy.process.id(), proxy.authority());
}

/// Reads the frame headers of a client, and calls `respond` with the stream of each request.
fn serve_requests(stream: &mut TcpStream, mut respond: impl FnMut(u32) -> Vec<u8>) -> std::io::Result<()> {
    stream.write_all(&frame(SETTINGS, 0, 0, &[]))?;
    stream.read_exact(&mut [0; PREFACE.len()])?;
    loop {
        let mut header = [0; 9];
        stream.read_exact(&mut header)?;
        let length = usize::from(header[1]) << 8 | usize::from(header[2]);
        stream.read_exact(&mut vec![0; length])?;
        if header[3] == HEADERS {
            let id = u32::from_be_bytes([header[5], header[6], header[7], header[8]]);
            stream.write_all(&respond(id))?;
        }
    }
}

/// Starts a server whose first response on each connection fills the table, and whose second one is
/// hostile.
fn hostile_server(first: Vec<u8>, repeated: Vec<u8>) -> ScriptedServer {
    ScriptedServer::start(move |peer| {
        let mut count = 0;
        serve_requests(&mut peer.stream, |id| {
            count += 1;
            match count {
                1 => head(id, END_STREAM, &[OK, &first].concat()),
                _ => head(id, END_STREAM, &second_block(OK, &repeated)),
            }
        })
    })
}

#[test]
fn hostile_servers_cost_a_client_what_their_bytes_weigh() {
    let _shared = shared_machine();
    // The record of a load is most of its memory.
    let origin = OriginProcess::start(&["-t", "1"]);
    let (load_bytes, _) = load_with_peak(&origin.authority);
    let load_bytes = load_bytes.max(LOAD_BYTES);
    for (scene, first, repeated) in blocks() {
        let server = hostile_server(first, repeated);
        let proxy = ProxyUnderTest::weir(&format!(
            "threads = 1\n[listener.web]\nbind = \"127.0.0.1:0\"\npool = \"app\"\n\
             [pool.app]\nservers = [\"{}\"]\nhttp = \"2\"\n",
            server.authority
        ));
        let before = MemoryBefore::of(proxy.process.id());
        std::thread::scope(|scope| {
            for _ in 0..CONNECTIONS {
                scope.spawn(|| (0..5).for_each(|_| drop(proxy.get("/"))));
            }
        });
        before.assert_small_growth(scene);
        before.assert_returned(scene);
        let (peak, output) = load_with_peak(&server.authority);
        assert!(output.errors() > 0, "{scene}: {:#}", output.record["totals"]["errors"]);
        assert!(peak <= load_bytes + GROWTH_MAX, "{scene}: {} of {} MiB", peak >> 20, load_bytes >> 20);
    }
}

/// Runs a load. Returns its peak of anonymous memory, and its output.
fn load_with_peak(authority: &str) -> (u64, RunOutput) {
    // Without observation: it reads the symbols of whatever runs beside the test.
    let flags = ["--http", "2", "-c", "20", "-m", "10", "-t", "1", "-d", "2s", "-w", "10s", "--no-watch"];
    let load = start_load(&[&flags[..], &[&format!("http://{authority}/")]].concat());
    let (id, mut peak) = (load.process.id(), 0);
    let path = format!("/proc/{id}/status");
    let is_over = within(EVENT_TIMEOUT, || {
        let status = fs::read_to_string(&path).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
        let bytes = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
        peak = peak.max(bytes.unwrap_or(0) * 1_024);
        bytes.is_none()
    });
    let output = load.finish();
    assert!(is_over && output.code != 101, "{output:?}");
    (peak, output)
}

/// A client with 16 kB of cookies in each head, and one whose large field is one byte after the first
/// request.
#[test]
fn clients_with_large_heads_are_served() {
    let _shared = shared_machine();
    let origin = OriginProcess::start(&["-t", "1"]);
    let proxy = ProxyUnderTest::weir_with_flags(&["--listen", "127.0.0.1:0", "--to", &origin.authority]);
    let cookies: Vec<u8> =
        (0..4_u8).flat_map(|at| [vec![0x1f, 0x11], text(&[b'a' + at; 3_900])].concat()).collect();
    let indexed = [vec![0x60], text(&[b'c'; 3_900])].concat();
    let literal = |_: u32| [GET, &cookies].concat();
    let repeated = |at: u32| match at {
        0 => [GET, &indexed].concat(),
        _ => [GET, &[0xbe; 3]].concat(),
    };
    let authorities = [origin.authority.as_str(), proxy.authority()];
    for block in [&literal as &dyn Fn(u32) -> Vec<u8>, &repeated] {
        for authority in authorities {
            let mut stream = connect(authority);
            let settings = frame(SETTINGS, 0, 0, &[]);
            stream.write_all(&[PREFACE, &settings].concat()).unwrap();
            for at in 0..50 {
                stream.write_all(&head(2 * at + 1, END_STREAM, &block(at))).unwrap();
                let status = read_head(&mut stream);
                assert_eq!(status, OK[0], "{authority}, request {at}");
            }
        }
    }
}

/// Reads frames up to a head; returns the first byte of its block.
fn read_head(stream: &mut TcpStream) -> u8 {
    loop {
        let mut header = [0; 9];
        stream.read_exact(&mut header).unwrap();
        let length = usize::from(header[1]) << 8 | usize::from(header[2]);
        let mut payload = vec![0; length];
        stream.read_exact(&mut payload).unwrap();
        match header[3] {
            HEADERS => return payload[0],
            GOAWAY => panic!("GOAWAY {payload:?}"),
            _ => {}
        }
    }
}
