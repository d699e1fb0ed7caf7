//! Tests of memory and work: hostile blocks and frames cost no more than their bytes weigh, and honest
//! ones lose nothing by it.

use std::collections::VecDeque;

use super::frame::{flag, frame_type, write_header};
use super::huffman;
use super::{BlockReader, Config, Connection, Event, FaultKind, PREFACE, Role, StreamKey};

const END: u8 = flag::END_STREAM;
const END_HEADERS: u8 = flag::END_HEADERS;

/// Memory that a connection may have in any case.
const MEMORY_BASE: usize = 96 * 1_024;

/// Memory that each byte of the largest block may cost: the block and its literals, in vectors of up to
/// twice the length, with Huffman code of 5 bits.
const MEMORY_PER_BYTE: usize = 6;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    write_header(&mut out, payload.len(), kind, flags, stream);
    out.extend_from_slice(payload);
    out
}

/// Encodes an integer behind the bits of a pattern (RFC 7541 §5.1).
fn integer(pattern: u8, bits: u32, value: usize) -> Vec<u8> {
    let prefix_max = (1 << bits) - 1;
    if value < prefix_max {
        return vec![pattern | value as u8];
    }
    let mut out = vec![pattern | prefix_max as u8];
    let mut rest = value - prefix_max;
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
    out
}

fn text(bytes: &[u8]) -> Vec<u8> {
    [integer(0, 7, bytes.len()), bytes.to_vec()].concat()
}

fn huffman_text(bytes: &[u8]) -> Vec<u8> {
    let mut code = Vec::new();
    huffman::encode(bytes, &mut code);
    [integer(0x80, 7, code.len()), code].concat()
}

/// Literal with incremental indexing and a new name.
fn inserted(name: &[u8], value: &[u8]) -> Vec<u8> {
    [vec![0x40], text(name), text(value)].concat()
}

/// Pseudo-header fields of a request, or the status of a response.
fn pseudo(role: Role) -> Vec<u8> {
    match role {
        // GET, http, /, and the authority "a".
        Role::Server => vec![0x82, 0x86, 0x84, 0x01, 0x01, b'a'],
        Role::Client => vec![0x88],
    }
}

/// A head in one HEADERS frame and as many CONTINUATION frames as it needs.
fn head(stream: u32, flags: u8, block: &[u8]) -> Vec<u8> {
    let parts: Vec<&[u8]> = block.chunks(16_384).collect();
    let last = parts.len() - 1;
    let frames = parts.iter().enumerate().map(|(at, part)| {
        let kind = if at == 0 { frame_type::HEADERS } else { frame_type::CONTINUATION };
        let end = if at == last { END_HEADERS } else { 0 };
        frame(kind, if at == 0 { flags | end } else { end }, stream, part)
    });
    frames.flatten().collect()
}

/// A connection under test: a server, or a client with requests on streams 1, 3, 5 and so on.
struct Peer {
    connection: Connection,
    input_bytes: usize,
}

impl Peer {
    fn new(role: Role, config: &Config) -> Self {
        let mut peer = Self { connection: Connection::new(role, config), input_bytes: 0 };
        let preface: &[u8] = if role == Role::Server { PREFACE } else { &[] };
        peer.receive(&[preface, &frame(frame_type::SETTINGS, 0, 0, &[])].concat()).expect("a valid preface");
        for _ in 0..if role == Role::Client { 100 } else { 0 } {
            let stream = peer.connection.open_stream().expect("a stream");
            peer.connection.send_headers(stream, true, |head| {
                head.request("GET", Some("http"), Some("a"), Some("/"));
            });
        }
        peer.input_bytes = 0;
        peer
    }

    /// Handles input, and checks the memory after each event. Returns the number of heads.
    fn receive(&mut self, input: &[u8]) -> Result<usize, FaultKind> {
        self.input_bytes += input.len();
        let (mut used, mut heads) = (0, 0);
        loop {
            let result = self.connection.next_event(&input[used..]).map(|(bytes, event)| {
                used += bytes;
                heads += usize::from(matches!(event, Some(Event::Request { .. } | Event::Response { .. })));
                let content = match &event {
                    Some(Event::Data { stream, bytes, .. }) => Some((*stream, bytes.len())),
                    _ => None,
                };
                (content, event.is_none())
            });
            self.connection.output().clear();
            self.check();
            match result? {
                (Some((stream, bytes)), _) => self.connection.consume(stream, bytes),
                (None, false) => {}
                (None, true) => return Ok(heads),
            }
        }
    }

    fn check(&mut self) {
        self.connection.check_invariants();
        let memory = self.connection.memory_bytes();
        let bytes = self.input_bytes.min(64 * 1_024);
        assert!(memory <= MEMORY_BASE + MEMORY_PER_BYTE * bytes, "{memory} bytes for {}", self.input_bytes);
    }
}

/// One way to make much of few bytes: the block that prepares the table, and the fields that are
/// repeated.
type Shape = (&'static str, Vec<u8>, Vec<u8>);

fn shapes() -> Vec<Shape> {
    let large = inserted(&[b'a'; 4_062], b"");
    let large_value = inserted(b"a", &[b'v'; 4_061]);
    let none = Vec::new();
    vec![
        ("inserted, name of the table", large.clone(), vec![0x7e, 0]),
        (
            "inserted, a small entry between",
            inserted(&[b'a'; 1_800], b""),
            [inserted(b"b", b"1"), vec![0x7f, 0, 0]].concat(),
        ),
        ("never indexed, name of the table", large.clone(), vec![0x1f, 0x2f, 0]),
        ("not indexed, name of the table", large, vec![0x0f, 0x2f, 0]),
        ("value of the table", large_value.clone(), vec![0xbe]),
        ("value of the table, name inserted", large_value, vec![0xbe, 0x7e, 0]),
        ("inserted, name of the static table", none.clone(), vec![0x7c, 0]),
        ("static fields", none.clone(), vec![0x90]),
        (
            "inserted, Huffman code",
            none.clone(),
            [vec![0x40, 1, b'c'], huffman_text(&[b'0'; 4_000])].concat(),
        ),
        ("inserted, larger than the table", none.clone(), inserted(b"c", &[b'v'; 5_000])),
        ("inserted, larger than a head", none.clone(), inserted(b"c", &[b'v'; 25_000])),
        (
            "inserted, long Huffman codes",
            none.clone(),
            [vec![0x40, 1, b'c'], huffman_text(&[1; 4_000])].concat(),
        ),
        ("not indexed, Huffman code", none, [vec![0x00, 1, b'c'], huffman_text(&[b'0'; 20_000])].concat()),
    ]
}

#[test]
fn a_block_that_decodes_to_much_ends_the_connection() {
    assert_eq!(FaultKind::BlockTooLarge.error_code().name(), "ENHANCE_YOUR_CALM");
    for (name, first, repeated) in shapes() {
        for role in [Role::Server, Role::Client] {
            let mut peer = Peer::new(role, &Config::default());
            if !first.is_empty() {
                let block = [pseudo(role), first.clone()].concat();
                assert_eq!(peer.receive(&head(1, END, &block)), Ok(1), "{name}");
            }
            let count = 40_000_usize.div_ceil(repeated.len());
            let block = [pseudo(role), repeated.repeat(count)].concat();
            let result = peer.receive(&head(3, END, &block));
            // Codes that are longer than what they decode to.
            let expected = if name.contains("long") { Ok(0) } else { Err(FaultKind::BlockTooLarge) };
            assert_eq!(result, expected, "{name}");
        }
    }
}

/// Just below the size that ends the connection, heads are refused one by one, in many blocks, and the
/// tables stay in step.
#[test]
fn many_blocks_below_the_limit_cost_no_memory() {
    for (name, first, repeated) in shapes() {
        let config = Config { abuse_max: u32::MAX, ..Config::default() };
        let mut peer = Peer::new(Role::Server, &config);
        let decoded = if repeated.len() > 100 { 25_100 } else { 4_200 };
        let fields = repeated.repeat((2 * config.head_bytes_max - 5_000) / decoded);
        for stream in (0..500).map(|at| 1 + 2 * at) {
            let start = if stream == 1 { first.clone() } else { Vec::new() };
            let block = [pseudo(Role::Server), start, fields.clone()].concat();
            let result = peer.receive(&head(stream, END, &block));
            assert!(result.is_ok(), "{name}: {result:?}");
            peer.connection.reset(StreamKey { slot: 0, id: stream }, super::ErrorCode::CANCEL);
        }
        let before = peer.connection.memory_bytes();
        peer.connection.release_memory();
        let after = peer.connection.memory_bytes();
        assert!(after <= before && after <= 40 * 1_024, "{name}: {after} of {before} bytes");
    }
}

#[test]
fn trailers_and_ignored_blocks_are_bounded_too() {
    let large = [pseudo(Role::Server), inserted(&[b'a'; 4_062], b"")].concat();
    let flood = [0x7e, 0].repeat(20_000);
    // Trailers of an open stream, of a rejected stream, and of one that this end has reset; and a stream
    // that is refused.
    let mut peer = Peer::new(Role::Server, &Config::default());
    assert_eq!(peer.receive(&head(1, 0, &large)), Ok(1));
    assert_eq!(peer.receive(&head(1, END, &flood)), Err(FaultKind::BlockTooLarge));

    let mut peer = Peer::new(Role::Server, &Config { headers_max: 1, ..Config::default() });
    let two = [pseudo(Role::Server), vec![0x90, 0x90], inserted(&[b'a'; 4_062], b"")].concat();
    assert_eq!(peer.receive(&head(1, 0, &two)), Ok(0));
    assert_eq!(peer.receive(&head(1, END, &flood)), Err(FaultKind::BlockTooLarge));

    let mut peer = Peer::new(Role::Server, &Config::default());
    assert_eq!(peer.receive(&head(1, 0, &large)), Ok(1));
    peer.connection.reset(StreamKey { slot: 0, id: 1 }, super::ErrorCode::CANCEL);
    assert_eq!(peer.receive(&head(1, END, &flood)), Err(FaultKind::BlockTooLarge));

    let mut peer = Peer::new(Role::Server, &Config { concurrent_streams_max: 1, ..Config::default() });
    assert_eq!(peer.receive(&head(1, 0, &large)), Ok(1));
    assert_eq!(peer.receive(&head(3, END, &flood)), Err(FaultKind::BlockTooLarge));
}

#[test]
fn size_updates_between_blocks_keep_the_memory() {
    let mut peer = Peer::new(Role::Server, &Config { abuse_max: u32::MAX, ..Config::default() });
    for at in 0..2_000_u32 {
        let size = [0, 4_096, 33, 1_000, 4_096][at as usize % 5];
        let update = [integer(0x20, 5, 0), integer(0x20, 5, size)].concat();
        let fields = inserted(&vec![b'a'; (at as usize * 37) % 5_000 + 1], b"v").repeat(2);
        let id = 1 + 2 * at;
        let result = peer.receive(&head(id, END, &[update, pseudo(Role::Server), fields].concat()));
        assert!(result.is_ok(), "{at}: {result:?}");
        peer.connection.reset(StreamKey { slot: 0, id }, super::ErrorCode::CANCEL);
    }
}

/// Deterministic random numbers (SplitMix64).
struct Random(u64);

impl Random {
    fn next(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ mixed >> 31) % below as u64) as usize
    }

    /// A length: mostly short, sometimes near the size of the table or far beyond it.
    fn length(&mut self) -> usize {
        let max = [3, 20, 300, 4_100, 4_100, 9_000][self.next(6)];
        1 + self.next(max)
    }
}

/// A table as RFC 7541 §4 describes it, without any sharing.
struct TableModel {
    entries: VecDeque<(Vec<u8>, Vec<u8>)>,
    size_max: usize,
}

impl TableModel {
    fn size(&self) -> usize {
        self.entries.iter().map(|(name, value)| name.len() + value.len() + 32).sum()
    }

    fn insert(&mut self, name: &[u8], value: &[u8]) {
        let size = name.len() + value.len() + 32;
        self.resize(self.size_max, size);
        if size <= self.size_max {
            self.entries.push_front((name.to_vec(), value.to_vec()));
        }
    }

    fn resize(&mut self, size_max: usize, reserved: usize) {
        self.size_max = size_max;
        while !self.entries.is_empty() && self.size() + reserved > size_max {
            self.entries.pop_back();
        }
    }

    /// Adds a random field to a block. Returns its name and value.
    fn write(&mut self, random: &mut Random, block: &mut Vec<u8>) -> (Vec<u8>, Vec<u8>) {
        let known = (!self.entries.is_empty()).then(|| random.next(self.entries.len()));
        if let (Some(at), 0) = (known, random.next(3)) {
            block.extend(integer(0x80, 7, 62 + at));
            return self.entries[at].clone();
        }
        let (pattern, bits) = [(0x40, 6), (0x40, 6), (0, 4), (0x10, 4)][random.next(4)];
        let name = match known.filter(|_| random.next(2) == 0) {
            Some(at) => {
                block.extend(integer(pattern, bits, 62 + at));
                self.entries[at].0.clone()
            }
            None => {
                let name = vec![b'a' + random.next(26) as u8; random.length()];
                block.push(pattern);
                block.extend(if random.next(2) == 0 { text(&name) } else { huffman_text(&name) });
                name
            }
        };
        let value = vec![b"0~v{"[random.next(4)]; random.length() - 1];
        block.extend(if random.next(2) == 0 { text(&value) } else { huffman_text(&value) });
        if pattern == 0x40 {
            self.insert(&name, &value);
        }
        (name, value)
    }
}

/// A block may replace the complete table many times while its head refers to evicted entries.
#[test]
fn fields_survive_the_eviction_of_their_entries() {
    for seed in 0..15 {
        let mut random = Random(seed);
        let mut model = TableModel { entries: VecDeque::new(), size_max: 4_096 };
        let mut reader = BlockReader::new();
        for _ in 0..40 {
            let mut block = Vec::new();
            if random.next(8) == 0 {
                let size = [0, 40, 500, 4_096][random.next(4)];
                block.extend(integer(0x20, 5, size));
                model.resize(size, 0);
            }
            let expected: Vec<_> =
                (0..random.next(40)).map(|_| model.write(&mut random, &mut block)).collect();
            let fields = reader.read(&block).expect("a valid block");
            assert_eq!(fields.len(), expected.len());
            for ((name, value), (expected_name, expected_value)) in fields.iter().zip(&expected) {
                assert!(name.as_bytes() == expected_name && value == expected_value, "seed {seed}");
            }
            reader.check();
        }
    }
}

/// Random hostile sequences of frames: the capacity of everything that a connection keeps is checked after
/// each event.
#[test]
fn random_peers_cost_what_their_bytes_weigh() {
    for seed in 0..30 {
        let mut random = Random(1_000 + seed);
        let role = if seed % 2 == 0 { Role::Server } else { Role::Client };
        let config = match seed % 3 {
            0 => Config::default(),
            1 => Config { abuse_max: u32::MAX, ..Config::default() },
            _ => Config { abuse_max: u32::MAX, header_table_bytes: 0, headers_max: 5, ..Config::default() },
        };
        let mut peer = Peer::new(role, &config);
        let mut id = 1;
        for _ in 0..200 {
            if peer.receive(&random_frames(&mut random, role, &mut id)).is_err() {
                break;
            }
        }
    }
}

/// Fields that are valid HPACK for any table.
fn random_fields(random: &mut Random) -> Vec<u8> {
    let shapes = shapes();
    let (_, first, repeated) = &shapes[random.next(shapes.len())];
    let count = random.next(6);
    let fields = [first.clone(), repeated.repeat(count)].concat();
    if first.is_empty() || random.next(4) > 0 { fields } else { [&fields[..], &[0x20]].concat() }
}

fn random_frames(random: &mut Random, role: Role, next_id: &mut u32) -> Vec<u8> {
    let id = 1 + 2 * random.next(*next_id as usize / 2 + 1) as u32;
    let end = if random.next(2) == 0 { END } else { 0 };
    let settings: Vec<u8> = (0..random.next(4))
        .flat_map(|_| [0, random.next(7) as u8, 0, 0, 64 + random.next(128) as u8, 0])
        .collect();
    match random.next(16) {
        0..6 => {
            *next_id += 2;
            head(*next_id, end, &[pseudo(role), random_fields(random)].concat())
        }
        6 => head(id, END, &[0x90]),
        7 => head(id, end, &[pseudo(role), random_fields(random)].concat()),
        8 => frame(frame_type::DATA, end, id, &vec![b'x'; random.next(200)]),
        9 => frame(frame_type::RST_STREAM, 0, id, &[0, 0, 0, 8]),
        10 => frame(frame_type::WINDOW_UPDATE, 0, id, &[0, 0, 1, 0]),
        11 => frame(frame_type::SETTINGS, 0, 0, &settings),
        12 => frame(frame_type::PRIORITY, 0, id, &[0, 0, 0, 0, 9]),
        13 => frame(frame_type::PING, 0, 0, &[7; 8]),
        14 => frame(99, 0, id, &vec![0; random.next(3_000)]),
        // A response that is informational, or a request without an authority.
        _ => head(id, 0, &[&[0x08, 3][..], b"103", &random_fields(random)].concat()),
    }
}

/// A client with large but legal heads: they are accepted, and repeated fields cost one byte each.
#[test]
fn large_legal_heads_keep_their_table() {
    let mut peer = Peer::new(Role::Server, &Config::default());
    let cookies: Vec<Vec<u8>> = (0..4).map(|at| vec![b'a' + at; 3_900]).collect();
    let literal = |cookie: &[u8]| [vec![0x1f, 0x11], text(cookie)].concat();
    let all = [pseudo(Role::Server), cookies.iter().flat_map(|cookie| literal(cookie)).collect()].concat();
    for id in (0..100).map(|at| 1 + 2 * at) {
        assert_eq!(peer.receive(&head(id, END, &all)), Ok(1), "16 KB of cookies");
    }
    // One cookie that fits the table is inserted by the first request, and is one byte in the others.
    let mut peer = Peer::new(Role::Server, &Config::default());
    let first = [pseudo(Role::Server), vec![0x60], text(&cookies[0])].concat();
    assert_eq!(peer.receive(&head(1, END, &first)), Ok(1));
    let later = [pseudo(Role::Server), vec![0xbe]].concat();
    for id in (1..100).map(|at| 1 + 2 * at) {
        assert_eq!(peer.receive(&head(id, END, &later)), Ok(1));
    }
    // Four of them are a legal head; six are refused, and the connection goes on.
    peer.connection.reset(StreamKey { slot: 0, id: 1 }, super::ErrorCode::CANCEL);
    let four = [pseudo(Role::Server), vec![0xbe; 4]].concat();
    assert_eq!(peer.receive(&head(201, END, &four)), Ok(1));
    let six = [pseudo(Role::Server), vec![0xbe; 6]].concat();
    peer.connection.reset(StreamKey { slot: 0, id: 201 }, super::ErrorCode::CANCEL);
    assert_eq!(peer.receive(&head(203, END, &six)), Ok(0));
    peer.connection.reset(StreamKey { slot: 0, id: 203 }, super::ErrorCode::CANCEL);
    assert_eq!(peer.receive(&head(205, END, &later)), Ok(1));
}
