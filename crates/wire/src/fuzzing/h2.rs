//! Properties of HTTP/2 that hold for any bytes of a peer.

use crate::h2::translate;
use crate::h2::{Config, Connection, ErrorCode, Event, FaultKind, PREFACE, Role, StreamKey};
use crate::{Framing, Header, Parsed, Version, header_slots, parse_request};

/// Checks a server against any bytes of a client.
///
/// - Nothing panics, and memory and output stay within their limits.
/// - Events do not depend on how the bytes arrive.
/// - Each request that is reported becomes HTTP/1.1 with the same meaning for our own parser.
///
/// The first byte selects limits, splits and responses; the preface and settings are added.
///
/// # Panics
/// If one of them does not hold.
pub fn h2_server(bytes: &[u8]) {
    check_connection(Role::Server, bytes);
}

/// Checks a client with some requests against any bytes of a server, as [`h2_server`] does.
///
/// # Panics
/// If one of the properties does not hold.
pub fn h2_client(bytes: &[u8]) {
    check_connection(Role::Client, bytes);
}

/// Checks HPACK: blocks of any bytes are decoded, and the fields of valid ones are the same after
/// being encoded and decoded again. The first byte of each block is its length.
///
/// # Panics
/// If one of the properties does not hold.
pub fn hpack(bytes: &[u8]) {
    let mut decoder = crate::h2::BlockReader::new();
    let mut second = crate::h2::BlockReader::new();
    let mut writer = crate::h2::BlockWriter::new();
    let mut rest = bytes;
    while let [len, after @ ..] = rest {
        let (block, after) = after.split_at(after.len().min(usize::from(*len)));
        rest = after;
        // A block with an error ends the connection.
        let Ok(fields) = decoder.read(block) else { return };
        decoder.check();
        let written = writer.write(&fields, usize::from(*len) * 40);
        assert_eq!(second.read(&written).as_ref(), Ok(&fields), "encoded and decoded again");
    }
}

fn check_connection(role: Role, bytes: &[u8]) {
    let Some((&seed, bytes)) = bytes.split_first() else { return };
    // Floods are measured in frames per read: they depend on the splits.
    let config = Config { abuse_max: u32::MAX, ..config(seed) };
    let at_once = run(role, &config, seed, bytes, |_| usize::MAX);
    let by_byte = run(role, &config, seed, bytes, |_| 1);
    assert_eq!(at_once, by_byte, "one byte at a time");
    let in_parts = run(role, &config, seed, bytes, |at| 1 + (at * 31 + usize::from(seed)) % 29);
    assert_eq!(at_once, in_parts, "in small parts");
    run(role, &self::config(seed), seed, bytes, |_| usize::MAX);
}

fn config(seed: u8) -> Config {
    if seed & 1 == 0 {
        return Config { enables_connect_protocol: seed & 2 != 0, ..Config::default() };
    }
    Config {
        concurrent_streams_max: 3,
        stream_window_bytes: 100,
        header_table_bytes: if seed & 2 == 0 { 0 } else { 100 },
        head_bytes_max: 500,
        headers_max: 5,
        target_bytes_max: 20,
        abuse_max: 10,
        ..Config::default()
    }
}

/// Runs a connection and returns its events as text, with the content of each stream joined.
fn run(
    role: Role,
    config: &Config,
    seed: u8,
    bytes: &[u8],
    part_len: impl Fn(usize) -> usize,
) -> Vec<String> {
    let mut connection = Connection::new(role, config);
    let mut application = Application { role, seed, events: Vec::new(), unconsumed: Vec::new() };
    application.begin(&mut connection);
    let settings = [0, 0, 0, 4, 0, 0, 0, 0, 0];
    let preface: &[u8] = if role == Role::Server { PREFACE } else { &[] };
    let input = [preface, &settings, bytes].concat();
    let (mut start, mut end) = (0, 0);
    let mut output_bytes = 0;
    while end < input.len() {
        end = end.saturating_add(part_len(end)).min(input.len());
        let fault = application.receive(&mut connection, &input[..end], &mut start);
        connection.check_invariants();
        output_bytes += check_output(&mut connection);
        if let Some(fault) = fault {
            application.events.push(fault.code().to_owned());
            break;
        }
    }
    // Responses are small: the rest of the output is proportional to the input.
    assert!(output_bytes < 20_000 + 200 * input.len(), "{output_bytes} bytes of output");
    application.events
}

/// Checks that the output is frames, and removes it. Returns its length.
fn check_output(connection: &mut Connection) -> usize {
    let output = std::mem::take(connection.output());
    let mut rest = output.strip_prefix(PREFACE).unwrap_or(&output);
    while !rest.is_empty() {
        let header = rest.first_chunk::<9>().expect("a frame header");
        let len = usize::from(header[0]) << 16 | usize::from(header[1]) << 8 | usize::from(header[2]);
        rest = rest.get(9 + len..).expect("a complete frame");
    }
    output.len()
}

/// Reactions to events that depend only on the seed and the stream.
struct Application {
    role: Role,
    seed: u8,
    events: Vec<String>,
    /// Content that is consumed at the next event of another kind: so windows do not depend on the
    /// pieces of a frame.
    unconsumed: Vec<(StreamKey, usize)>,
}

impl Application {
    fn begin(&mut self, connection: &mut Connection) {
        for method in ["GET", "HEAD", "POST", "CONNECT"] {
            if self.role == Role::Server {
                return;
            }
            let stream = connection.open_stream().expect("a free stream");
            let (scheme, path) = if method == "CONNECT" { (None, None) } else { (Some("http"), Some("/")) };
            connection.send_headers(stream, method != "POST", |head| {
                head.request(method, scheme, Some("a.example:80"), path);
            });
            connection.send_data(stream, b"content", false);
        }
    }

    fn receive(&mut self, connection: &mut Connection, input: &[u8], start: &mut usize) -> Option<FaultKind> {
        loop {
            let (used, event) = match connection.next_event(&input[*start..]) {
                Ok(step) => step,
                Err(fault) => return Some(fault),
            };
            *start += used;
            let event = event?;
            self.record(&event);
            let reaction = Reaction::of(self.role, &event);
            self.react(connection, reaction);
        }
    }

    fn record(&mut self, event: &Event<'_>) {
        match event {
            Event::Data { stream, bytes, is_end } => {
                let text = format!("{} {is_end} {}", stream.id, bytes.escape_ascii());
                let start = format!("{} false ", stream.id);
                match self.events.last_mut() {
                    // Pieces of one frame depend on the splits.
                    Some(last) if last.starts_with(&start) => {
                        last.push_str(&bytes.escape_ascii().to_string());
                        *last = last.replacen("false", &is_end.to_string(), 1);
                    }
                    _ => self.events.push(text),
                }
            }
            Event::Request { head, is_end, .. } => {
                check_translated_request(head, *is_end);
                self.events.push(format!("{event:?}"));
            }
            // The number of these depends on when windows are full.
            Event::StreamWritable(_) | Event::ConnectionWritable => {}
            _ => self.events.push(format!("{event:?}")),
        }
    }

    fn react(&mut self, connection: &mut Connection, reaction: Reaction) {
        if !matches!(reaction, Reaction::Consume(..)) {
            for (stream, bytes) in self.unconsumed.drain(..) {
                connection.consume(stream, bytes);
            }
        }
        match reaction {
            Reaction::Respond(stream) if self.seed & 4 != 0 && stream.id % 8 == 5 => {
                connection.reset(stream, ErrorCode::CANCEL);
            }
            Reaction::Respond(stream) if self.seed & 8 == 0 || stream.id % 8 == 3 => {
                connection.send_headers(stream, false, |head| {
                    head.status(200);
                    head.field("server", b"weir");
                });
                connection.send_data(stream, b"content", self.seed & 16 != 0);
            }
            Reaction::Consume(stream, bytes) if self.seed & 32 == 0 || stream.id % 8 == 1 => {
                self.unconsumed.push((stream, bytes));
            }
            Reaction::Respond(_) | Reaction::Consume(..) | Reaction::None => {}
        }
    }
}

enum Reaction {
    None,
    Respond(StreamKey),
    Consume(StreamKey, usize),
}

impl Reaction {
    fn of(role: Role, event: &Event<'_>) -> Self {
        match event {
            Event::Request { stream, .. } | Event::RejectedRequest { stream, .. } if role == Role::Server => {
                Self::Respond(*stream)
            }
            Event::Data { stream, bytes, .. } => Self::Consume(*stream, bytes.len()),
            _ => Self::None,
        }
    }
}

/// Fields of a head without those that a translation replaces, cookies joined.
fn expected_fields<'e>(
    fields: &crate::h2::Fields<'e>,
    is_dropped: impl Fn(&str) -> bool,
) -> Vec<(&'e str, Vec<u8>)> {
    let mut expected: Vec<(&str, Vec<u8>)> = Vec::new();
    for (name, value) in fields.iter().filter(|(name, _)| !is_dropped(name)) {
        let joined = expected.iter_mut().find(|(other, _)| name == "cookie" && *other == "cookie");
        match joined {
            Some((_, joined)) if joined.is_empty() => joined.extend_from_slice(value),
            Some(_) if value.is_empty() => {}
            Some((_, joined)) => joined.extend_from_slice(&[b"; ", value].concat()),
            None => expected.push((name, value.to_vec())),
        }
    }
    expected
}

fn without_framing(headers: &[Header<'_>]) -> Vec<(String, Vec<u8>)> {
    let is_framing = |name: &str| ["host", "content-length", "transfer-encoding"].contains(&name);
    let headers = headers.iter().filter(|header| !is_framing(header.name));
    headers.map(|header| (header.name.to_owned(), header.value.to_vec())).collect()
}

fn check_translated_request(head: &crate::h2::RequestHead<'_>, is_end: bool) {
    let mut text = Vec::new();
    let key = "dGhlIHNhbXBsZSBub25jZQ==";
    translate::write_h1_request(head, is_end, || key, &mut text);
    let is_websocket = head.protocol.is_some_and(|protocol| protocol.eq_ignore_ascii_case("websocket"));
    let mut slots = header_slots();
    let parsed = match parse_request(&text, &super::LOOSE, &mut slots) {
        Ok(Parsed::Complete { head, bytes }) if bytes == text.len() => head,
        // The name of a protocol may be none for HTTP/1.1.
        Err(_) if head.protocol.is_some() && !is_websocket => return,
        other => panic!("{other:?} of {}", text.escape_ascii()),
    };
    let is_connect = head.method == "CONNECT";
    assert_eq!(parsed.method, if head.protocol.is_some() { "GET" } else { head.method });
    let is_tunnel = is_connect && head.protocol.is_none();
    assert_eq!(Some(parsed.target), if is_tunnel { head.authority } else { head.path });
    assert_eq!((parsed.host, parsed.version, parsed.keep_alive), (head.authority, Version::Http11, true));
    let framing = match head.content_length {
        _ if is_connect => Framing::None,
        Some(length) => Framing::Length(length),
        None if is_end => Framing::None,
        None => Framing::Chunked,
    };
    assert_eq!(parsed.framing, framing);
    if is_websocket || head.protocol.is_none() {
        assert_eq!(parsed.upgrade, head.protocol);
    }
    let dropped = |name: &str| is_websocket && name == "sec-websocket-key";
    let mut expected: Vec<(String, Vec<u8>)> = expected_fields(&head.fields, dropped)
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect();
    if let Some(protocol) = head.protocol {
        let added = [("connection", "upgrade"), ("upgrade", protocol), ("sec-websocket-key", key)];
        let added = &added[..if is_websocket { 3 } else { 2 }];
        expected.extend(added.iter().map(|(name, value)| ((*name).to_owned(), value.as_bytes().to_vec())));
    }
    assert_eq!(without_framing(parsed.headers), expected);
}
