//! Tests of each fault of a peer: frames that end the connection, frames that end a stream, frames
//! that are ignored, and floods.

use super::encoder::{Encoder, FieldEncoder, WrittenHead};
use super::frame::{flag, frame_type, write_header};
use super::{Config, Connection, ErrorCode, Event, FaultKind, PREFACE, Role, StreamKey};
use crate::RefusalKind;

const HEADERS: u8 = frame_type::HEADERS;
const DATA: u8 = frame_type::DATA;
const END: u8 = flag::END_STREAM;
const END_HEADERS: u8 = flag::END_HEADERS;
const PUSH_PROMISE: u8 = 5;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    write_header(&mut out, payload.len(), kind, flags, stream);
    out.extend_from_slice(payload);
    out
}

fn settings(entries: &[(u16, u32)]) -> Vec<u8> {
    let mut payload = Vec::new();
    for (identifier, value) in entries {
        payload.extend_from_slice(&identifier.to_be_bytes());
        payload.extend_from_slice(&value.to_be_bytes());
    }
    frame(frame_type::SETTINGS, 0, 0, &payload)
}

fn window_update(stream: u32, increment: u32) -> Vec<u8> {
    frame(frame_type::WINDOW_UPDATE, 0, stream, &increment.to_be_bytes())
}

fn rst(stream: u32) -> Vec<u8> {
    frame(frame_type::RST_STREAM, 0, stream, &8u32.to_be_bytes())
}

/// Block of literal fields that leaves the table as it is.
fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, value) in fields {
        out.push(0);
        for text in [name, value] {
            assert!(text.len() < 127);
            out.push(text.len() as u8);
            out.extend_from_slice(text.as_bytes());
        }
    }
    out
}

const GET: [(&str, &str); 4] =
    [(":method", "GET"), (":scheme", "http"), (":authority", "a.example"), (":path", "/")];
const POST: [(&str, &str); 4] =
    [(":method", "POST"), (":scheme", "http"), (":authority", "a.example"), (":path", "/")];

fn get(stream: u32) -> Vec<u8> {
    frame(HEADERS, END | END_HEADERS, stream, &block(&GET))
}

fn post(stream: u32) -> Vec<u8> {
    frame(HEADERS, END_HEADERS, stream, &block(&POST))
}

#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    Connection(FaultKind),
    Stream(FaultKind),
    Accepted,
}

/// Passes input in parts, and returns the last outcome. Resets without a fault are accepted.
fn outcome(connection: &mut Connection, input: &[u8], part: usize) -> Outcome {
    let mut outcome = Outcome::Accepted;
    let (mut start, mut end) = (0, 0);
    while end < input.len() {
        end = (end + part).min(input.len());
        loop {
            match connection.next_event(&input[start..end]) {
                Err(fault) => {
                    assert_eq!(connection.next_event(&[]).err(), Some(fault), "a fault stays");
                    return Outcome::Connection(fault);
                }
                Ok((used, event)) => {
                    start += used;
                    match event {
                        None => break,
                        Some(Event::Reset { fault: Some(fault), code, .. }) => {
                            assert_eq!(code, fault.error_code());
                            outcome = Outcome::Stream(fault);
                        }
                        Some(_) => {}
                    }
                }
            }
        }
    }
    outcome
}

fn server() -> Connection {
    let mut server = Connection::new(Role::Server, &Config::default());
    assert_eq!(outcome(&mut server, &[&PREFACE[..], &settings(&[])].concat(), 1_000), Outcome::Accepted);
    server.output().clear();
    server
}

/// A client with a request on stream 1.
fn client(method: &str) -> Connection {
    let mut client = Connection::new(Role::Client, &Config::default());
    assert_eq!(outcome(&mut client, &settings(&[]), 1_000), Outcome::Accepted);
    let stream = client.open_stream().expect("a stream");
    client.send_headers(stream, true, |head| {
        head.request(method, Some("http"), Some("a.example"), Some("/"));
    });
    client.output().clear();
    client
}

/// Checks an outcome for all splits, and the last frame that was sent.
fn check(make: impl Fn() -> Connection, input: &[u8], expected: &Outcome, name: &str) {
    for part in [1, 2, 7, 10, 100, usize::MAX / 2] {
        let mut connection = make();
        assert_eq!(&outcome(&mut connection, input, part), expected, "{name}, in parts of {part}");
        let output = connection.output();
        match expected {
            Outcome::Connection(fault) => {
                let code = fault.error_code().0.to_be_bytes();
                assert_eq!(output[output.len() - 14], frame_type::GOAWAY, "{name}");
                assert_eq!(output[output.len() - 4..], code, "{name}");
            }
            Outcome::Stream(fault) => {
                let code = fault.error_code().0.to_be_bytes();
                let is_reset = |frame: &[u8]| frame[3] == frame_type::RST_STREAM && frame[9..] == code;
                assert!(output.windows(13).any(is_reset), "{name}");
            }
            Outcome::Accepted => {}
        }
    }
}

#[test]
fn the_first_line_of_the_preface_decides_on_the_protocol() {
    use crate::h2::{PREFACE, PrefaceMatch, preface_match};
    for length in 0..16 {
        assert_eq!(preface_match(&PREFACE[..length]), PrefaceMatch::Partial, "{length}");
    }
    assert_eq!(preface_match(PREFACE), PrefaceMatch::Full);
    assert_eq!(preface_match(b"PRI * HTTP/2.0\r\nHost: x"), PrefaceMatch::Full);
    for foreign in ["INVALID CONNECTION PREFACE\r\n\r\n", "EHLO a b\n"] {
        assert_eq!(preface_match(foreign.as_bytes()), PrefaceMatch::Full, "{foreign}");
    }
    let requests = ["PRI * HTTP/1.1\r\n", "GET / HTTP/1.1\r\n", "LOCK / HTTP/1.1\r\n", "GET / HTPP/1.1\r\n"];
    let others = ["PRI /", "P0", "get / http/1.1\r\n", "EHLO a\r\n", "a b c d\r\n", "EHLO a b", "\r\n\r\n"];
    for other in requests.iter().chain(&others) {
        assert_eq!(preface_match(other.as_bytes()), PrefaceMatch::No, "{other}");
    }
}

#[test]
fn faults_of_the_preface() {
    let new = || Connection::new(Role::Server, &Config::default());
    let cases: &[(&[u8], FaultKind)] = &[
        (b"GET / HTTP/1.1\r\n", FaultKind::PrefaceInvalid),
        (b"PRI * HTTP/2.0\r\n\r\nSN", FaultKind::PrefaceInvalid),
    ];
    for (input, fault) in cases {
        check(new, input, &Outcome::Connection(*fault), "preface");
    }
    let ack = frame(frame_type::SETTINGS, flag::ACK, 0, &[]);
    for first in [ack, frame(frame_type::PING, 0, 0, &[0; 8]), get(1)] {
        let input = [&PREFACE[..], &first].concat();
        check(new, &input, &Outcome::Connection(FaultKind::SettingsMissing), "first frame");
    }
}

#[test]
fn faults_of_frames_end_the_connection() {
    use FaultKind as Fault;
    let padded = |kind, payload: &[u8]| frame(kind, flag::PADDED | END_HEADERS | END, 1, payload);
    let open = frame(HEADERS, END, 1, &block(&GET));
    let cases: &[(&str, Vec<u8>, Fault)] = &[
        ("large frame", frame(DATA, 0, 1, &[0; 16_385]), Fault::FrameTooLarge),
        ("large unknown frame", frame(77, 0, 1, &[0; 16_385]), Fault::FrameTooLarge),
        ("data on 0", frame(DATA, 0, 0, b"x"), Fault::StreamIdInvalid),
        ("data on idle", frame(DATA, 0, 1, b"x"), Fault::StreamIdle),
        ("data on even", frame(DATA, 0, 2, b"x"), Fault::StreamIdle),
        ("data padding", [post(1), padded(DATA, &[2, 0])].concat(), Fault::PaddingInvalid),
        ("data without padding", [post(1), padded(DATA, &[])].concat(), Fault::FrameSizeInvalid),
        ("data on closed", [get(1), rst(1), frame(DATA, 0, 1, b"x")].concat(), Fault::StreamClosed),
        ("headers on 0", frame(HEADERS, END_HEADERS, 0, &block(&GET)), Fault::StreamIdInvalid),
        ("headers on even", frame(HEADERS, END_HEADERS, 2, &block(&GET)), Fault::StreamIdInvalid),
        ("headers on closed", [get(1), rst(1), get(1)].concat(), Fault::StreamClosed),
        ("headers on skipped", [get(5), get(3)].concat(), Fault::StreamIdInvalid),
        ("headers padding", padded(HEADERS, &[9, 0x82]), Fault::PaddingInvalid),
        ("headers without padding", padded(HEADERS, &[]), Fault::FrameSizeInvalid),
        ("headers priority", frame(HEADERS, flag::PRIORITY | 5, 1, &[0; 4]), Fault::FrameSizeInvalid),
        ("interrupted block", [open.clone(), get(3)].concat(), Fault::ContinuationMissing),
        ("interrupted by data", [open.clone(), frame(DATA, 0, 1, b"")].concat(), Fault::ContinuationMissing),
        ("interrupted by unknown", [open.clone(), frame(99, 0, 0, b"")].concat(), Fault::ContinuationMissing),
        ("other stream", [open.clone(), frame(9, 4, 3, b"")].concat(), Fault::ContinuationMissing),
        ("continuation alone", frame(9, END_HEADERS, 1, b""), Fault::ContinuationUnexpected),
        ("push", frame(PUSH_PROMISE, END_HEADERS, 1, &[0; 8]), Fault::PushPromise),
        ("priority on 0", frame(frame_type::PRIORITY, 0, 0, &[0; 5]), Fault::StreamIdInvalid),
        ("priority size", frame(frame_type::PRIORITY, 0, 1, &[0; 4]), Fault::FrameSizeInvalid),
        ("rst on 0", rst(0), Fault::StreamIdInvalid),
        ("rst on idle", rst(1), Fault::StreamIdle),
        (
            "rst size",
            [get(1), frame(frame_type::RST_STREAM, 0, 1, &[0; 3])].concat(),
            Fault::FrameSizeInvalid,
        ),
        ("settings on 1", frame(frame_type::SETTINGS, 0, 1, &[]), Fault::StreamIdInvalid),
        ("settings size", frame(frame_type::SETTINGS, 0, 0, &[0; 5]), Fault::FrameSizeInvalid),
        ("settings ack size", frame(frame_type::SETTINGS, flag::ACK, 0, &[0; 6]), Fault::FrameSizeInvalid),
        ("enable push", settings(&[(2, 2)]), Fault::SettingInvalid),
        ("initial window", settings(&[(4, 1 << 31)]), Fault::InitialWindowInvalid),
        ("small frames", settings(&[(5, 16_383)]), Fault::SettingInvalid),
        ("large frames", settings(&[(5, 1 << 24)]), Fault::SettingInvalid),
        ("connect protocol", settings(&[(8, 2)]), Fault::SettingInvalid),
        ("connect protocol off", settings(&[(8, 1), (8, 0)]), Fault::SettingInvalid),
        (
            "window of all streams",
            [get(1), window_update(1, 1 << 30), settings(&[(4, 0x7fff_ffff)])].concat(),
            Fault::WindowOverflow,
        ),
        ("ping on 1", frame(frame_type::PING, 0, 1, &[0; 8]), Fault::StreamIdInvalid),
        ("ping size", frame(frame_type::PING, 0, 0, &[0; 7]), Fault::FrameSizeInvalid),
        ("goaway on 1", frame(frame_type::GOAWAY, 0, 1, &[0; 8]), Fault::StreamIdInvalid),
        ("goaway size", frame(frame_type::GOAWAY, 0, 0, &[0; 7]), Fault::FrameSizeInvalid),
        (
            "goaway up",
            [frame(7, 0, 0, &[0; 8]), frame(7, 0, 0, &[0, 0, 0, 1, 0, 0, 0, 0])].concat(),
            Fault::GoAwayInvalid,
        ),
        ("window size", frame(frame_type::WINDOW_UPDATE, 0, 0, &[0; 3]), Fault::FrameSizeInvalid),
        ("window of idle", window_update(1, 1), Fault::StreamIdle),
        ("zero increment", window_update(0, 0), Fault::WindowIncrementZero),
        ("window overflow", window_update(0, 0x7fff_ffff), Fault::WindowOverflow),
        ("index", frame(HEADERS, END | END_HEADERS, 1, &[0x80]), Fault::TableIndexInvalid),
    ];
    for (name, input, fault) in cases {
        check(server, input, &Outcome::Connection(*fault), name);
    }
}

#[test]
fn faults_of_a_stream_reset_it() {
    use FaultKind as Fault;
    let trailers = |flags, fields: &[(&str, &str)]| frame(HEADERS, flags | END_HEADERS, 1, &block(fields));
    let post_of = |length: &str| {
        let fields = [&POST[..], &[("content-length", length)]].concat();
        frame(HEADERS, END_HEADERS, 1, &block(&fields))
    };
    let own =
        frame(HEADERS, flag::PRIORITY | END | END_HEADERS, 1, &[&[0, 0, 0, 1, 0][..], &block(&GET)].concat());
    let cases: &[(&str, Vec<u8>, Fault)] = &[
        ("data after end", [get(1), frame(DATA, 0, 1, b"x")].concat(), Fault::StreamClosed),
        ("headers after end", [get(1), get(1)].concat(), Fault::StreamClosed),
        ("self-dependency", own, Fault::SelfDependency),
        ("priority of itself", [post(1), frame(2, 0, 1, &[0, 0, 0, 1, 0])].concat(), Fault::SelfDependency),
        ("priority size", [post(1), frame(2, 0, 1, &[0; 6])].concat(), Fault::FrameSizeInvalid),
        ("zero increment", [get(1), window_update(1, 0)].concat(), Fault::WindowIncrementZero),
        ("window overflow", [get(1), window_update(1, 0x7fff_ffff)].concat(), Fault::WindowOverflow),
        ("second head", [post(1), trailers(0, &[("a", "b")])].concat(), Fault::TrailersUnfinished),
        ("pseudo in trailers", [post(1), trailers(END, &[(":path", "/")])].concat(), Fault::PseudoMisplaced),
        (
            "invalid length in trailers",
            [post(1), trailers(END, &[("content-length", "0\n")])].concat(),
            Fault::FieldValueInvalid,
        ),
        (
            "pseudo behind a length in trailers",
            [post(1), trailers(END, &[("content-length", "0"), (":path", "/")])].concat(),
            Fault::PseudoMisplaced,
        ),
        ("host in trailers", [post(1), trailers(END, &[("host", "a")])].concat(), Fault::TrailerForbidden),
        (
            "coding in trailers",
            [post(1), trailers(END, &[("transfer-encoding", "chunked")])].concat(),
            Fault::ConnectionField,
        ),
        ("long body", [post_of("1"), frame(DATA, 0, 1, b"xx")].concat(), Fault::ContentLengthMismatch),
        ("short body", [post_of("3"), frame(DATA, END, 1, b"xx")].concat(), Fault::ContentLengthMismatch),
        ("short before trailers", [post_of("3"), trailers(END, &[])].concat(), Fault::ContentLengthMismatch),
        (
            "window exceeded",
            [post(1), frame(DATA, 0, 1, &[0; 16_384]).repeat(4)].concat(),
            Fault::WindowExceeded,
        ),
    ];
    for (name, input, fault) in cases {
        check(server, input, &Outcome::Stream(*fault), name);
        // Other streams go on.
        let mut connection = server();
        outcome(&mut connection, input, usize::MAX / 2);
        assert_eq!(outcome(&mut connection, &get(3), usize::MAX / 2), Outcome::Accepted, "{name}");
        assert_eq!(connection.open_streams(), 1, "{name}");
        assert_eq!(connection.receive.held, 0, "{name}");
    }
}

#[test]
fn malformed_requests() {
    use FaultKind as Fault;
    let replaced = |name: &str, value: Option<&'static str>| -> Vec<(&str, &str)> {
        let fields = GET.iter().map(|&(other, old)| (other, if other == name { value } else { Some(old) }));
        fields.filter_map(|(name, value)| value.map(|value| (name, value))).collect()
    };
    let with = |name: &'static str, value: &'static str| [&GET[..], &[(name, value)]].concat();
    let cases: Vec<(Vec<(&str, &str)>, Fault)> = vec![
        (with("Upper", "1"), Fault::FieldNameInvalid),
        (with("", "1"), Fault::FieldNameInvalid),
        (with("a b", "1"), Fault::FieldNameInvalid),
        (with("a:b", "1"), Fault::FieldNameInvalid),
        (with("a\r\nb", "1"), Fault::FieldNameInvalid),
        (with("a", "1\r\nb: 2"), Fault::FieldValueInvalid),
        (with("a", "1\n"), Fault::FieldValueInvalid),
        (with("a", "\0"), Fault::FieldValueInvalid),
        (with("a", "\x7f"), Fault::FieldValueInvalid),
        (with("a", " 1"), Fault::FieldValueInvalid),
        (with("a", "1\t"), Fault::FieldValueInvalid),
        (with("connection", "close"), Fault::ConnectionField),
        (with("keep-alive", "1"), Fault::ConnectionField),
        (with("proxy-connection", "1"), Fault::ConnectionField),
        (with("transfer-encoding", "chunked"), Fault::ConnectionField),
        (with("upgrade", "h2c"), Fault::ConnectionField),
        (with("te", "gzip"), Fault::ConnectionField),
        (with(":unknown", "1"), Fault::PseudoUnknown),
        (with(":status", "200"), Fault::PseudoUnknown),
        (with(":protocol", "websocket"), Fault::PseudoUnknown),
        (with(":path", "/"), Fault::PseudoRepeated),
        (with(":method", "GET"), Fault::PseudoRepeated),
        (with("host", "b.example"), Fault::HostInvalid),
        (with("host", "user@a.example"), Fault::HostInvalid),
        (with("content-length", "1"), Fault::ContentLengthMismatch),
        (with("content-length", "-1"), Fault::ContentLengthInvalid),
        (with("content-length", "00"), Fault::ContentLengthInvalid),
        (with("content-length", ""), Fault::ContentLengthInvalid),
        (
            [&GET[..], &[("content-length", "0"), ("content-length", "0")]].concat(),
            Fault::ContentLengthInvalid,
        ),
        ([&[("a", "1")], &GET[..]].concat(), Fault::PseudoMisplaced),
        (replaced(":method", None), Fault::PseudoMissing),
        (replaced(":scheme", None), Fault::PseudoMissing),
        (replaced(":path", None), Fault::PseudoMissing),
        (replaced(":path", Some("")), Fault::PseudoInvalid),
        (replaced(":path", Some("x")), Fault::PseudoInvalid),
        (replaced(":path", Some("*")), Fault::PseudoInvalid),
        (replaced(":path", Some("/ x")), Fault::PseudoInvalid),
        (replaced(":path", Some("/#x")), Fault::PseudoInvalid),
        (replaced(":path", Some("/\u{e4}")), Fault::PseudoInvalid),
        (replaced(":path", Some("/\r\n")), Fault::PseudoInvalid),
        (replaced(":method", Some("")), Fault::PseudoInvalid),
        (replaced(":method", Some("GET /")), Fault::PseudoInvalid),
        (replaced(":method", Some("CONNECT")), Fault::PseudoUnknown),
        (replaced(":scheme", Some("")), Fault::PseudoInvalid),
        (replaced(":scheme", Some("ht tp")), Fault::PseudoInvalid),
        (replaced(":authority", Some("")), Fault::PseudoInvalid),
        (replaced(":authority", Some("a b")), Fault::PseudoInvalid),
        (replaced(":authority", Some("user@a.example")), Fault::PseudoInvalid),
        (replaced(":authority", Some("a:99999")), Fault::PseudoInvalid),
        (vec![(":method", "CONNECT")], Fault::PseudoMissing),
        (vec![(":method", "CONNECT"), (":authority", "a.example")], Fault::PseudoInvalid),
    ];
    for (fields, fault) in cases {
        let input = frame(HEADERS, END | END_HEADERS, 1, &block(&fields));
        check(server, &input, &Outcome::Stream(fault), &format!("{fields:?}"));
    }
    let ok = vec![
        with("te", "trailers"),
        with("host", "A.example"),
        with("a", ""),
        with("a", "b \t\u{e4}"),
        replaced(":authority", Some("[::1]:80")),
        vec![(":method", "CONNECT"), (":authority", "a.example:443")],
        vec![(":method", "OPTIONS"), (":scheme", "http"), (":path", "*"), ("host", "a.example")],
    ];
    for fields in ok {
        let input = frame(HEADERS, END | END_HEADERS, 1, &block(&fields));
        check(server, &input, &Outcome::Accepted, &format!("{fields:?}"));
    }
}

#[test]
fn malformed_responses() {
    use FaultKind as Fault;
    let head = |flags, fields: &[(&str, &str)]| frame(HEADERS, flags | END_HEADERS, 1, &block(fields));
    let ok = [(":status", "200")];
    let with = |name: &'static str, value: &'static str| [ok[0], (name, value)];
    let interim = head(0, &[(":status", "103")]);
    let cases: &[(&str, Vec<u8>, Fault)] = &[
        ("no status", head(END, &[("a", "b")]), Fault::PseudoMissing),
        ("status 20", head(END, &[(":status", "20")]), Fault::PseudoInvalid),
        ("status 099", head(END, &[(":status", "099")]), Fault::PseudoInvalid),
        ("status 101", head(0, &[(":status", "101")]), Fault::PseudoInvalid),
        ("two", head(END, &[ok[0], ok[0]]), Fault::PseudoRepeated),
        ("path", head(END, &[ok[0], (":path", "/")]), Fault::PseudoUnknown),
        ("connection", head(END, &with("connection", "close")), Fault::ConnectionField),
        ("length without body", head(END, &with("content-length", "1")), Fault::ContentLengthMismatch),
        ("data first", frame(DATA, 0, 1, b"x"), Fault::HeadMissing),
        ("end of interim", head(END, &[(":status", "103")]), Fault::InterimFinished),
        ("many interim", interim.repeat(17), Fault::TooManyInterim),
        ("trailers", [head(0, &ok), head(0, &[("a", "b")])].concat(), Fault::TrailersUnfinished),
        (
            "body of 204",
            [head(0, &[(":status", "204")]), frame(DATA, END, 1, b"x")].concat(),
            Fault::ContentLengthMismatch,
        ),
    ];
    for (name, input, fault) in cases {
        check(|| client("GET"), input, &Outcome::Stream(*fault), name);
    }
    let length = head(END, &with("content-length", "9"));
    check(|| client("HEAD"), &length, &Outcome::Accepted, "HEAD with a length");
    let input = [head(0, &ok), frame(DATA, END, 1, b"x")].concat();
    check(|| client("HEAD"), &input, &Outcome::Stream(Fault::ContentLengthMismatch), "HEAD with a body");
    let push = frame(PUSH_PROMISE, END_HEADERS, 1, &[0; 8]);
    check(|| client("GET"), &push, &Outcome::Connection(Fault::PushPromise), "push");
    let enable = settings(&[(2, 1)]);
    check(|| client("GET"), &enable, &Outcome::Connection(Fault::SettingInvalid), "enable push");
    let even = frame(HEADERS, END_HEADERS, 2, &block(&ok));
    check(|| client("GET"), &even, &Outcome::Connection(Fault::StreamIdle), "response on 2");
    let idle = frame(HEADERS, END_HEADERS, 3, &block(&ok));
    check(|| client("GET"), &idle, &Outcome::Connection(Fault::StreamIdle), "response on 3");
}

#[test]
fn heads_over_a_limit_can_be_answered() {
    let rejected = |config: &Config, fields: &[(&str, &str)]| {
        let mut server = Connection::new(Role::Server, config);
        let input = [&PREFACE[..], &settings(&[]), &frame(HEADERS, END_HEADERS, 1, &block(fields))].concat();
        let mut used = 0;
        loop {
            let (bytes, event) = server.next_event(&input[used..]).expect("no fault");
            used += bytes;
            match event {
                None => return None,
                Some(Event::RejectedRequest { stream, refusal, .. }) => {
                    server.output().clear();
                    server.send_headers(stream, true, |head| head.status(refusal.status()));
                    // The rest of the request is not awaited.
                    assert_eq!(server.open_streams(), 0);
                    assert_eq!(server.output[server.output.len() - 10], frame_type::RST_STREAM);
                    let late = [frame(DATA, 0, 1, &[0; 1_000]), frame(HEADERS, 5, 1, &block(&[("a", "b")]))];
                    assert_eq!(outcome(&mut server, &late.concat(), 50), Outcome::Accepted);
                    assert_eq!(server.receive.held, 0);
                    return Some((refusal.kind(), refusal.status()));
                }
                Some(_) => {}
            }
        }
    };
    let small = Config { head_bytes_max: 300, headers_max: 2, target_bytes_max: 10, ..Config::default() };
    let long = ["x"; 100].concat();
    assert_eq!(rejected(&small, &GET), None);
    let fields = [&GET[..], &[("a", &long)]].concat();
    assert_eq!(rejected(&small, &fields), Some((RefusalKind::HeadTooLarge, 431)));
    let fields = [&GET[..3], &[(":path", "/0123456789")]].concat();
    assert_eq!(rejected(&small, &fields), Some((RefusalKind::TargetTooLong, 414)));
    let small = Config { headers_max: 2, ..Config::default() };
    let fields = [&GET[..], &[("a", "1"), ("a", "2"), ("a", "3")]].concat();
    assert_eq!(rejected(&small, &fields), Some((RefusalKind::TooManyFields, 431)));
    let fields = [GET[0], GET[1], GET[3]];
    assert_eq!(rejected(&small, &fields), Some((RefusalKind::HostMissing, 400)));
    let fields = [&GET[..], &[("expect", "wonder")]].concat();
    assert_eq!(rejected(&small, &fields), Some((RefusalKind::ExpectationFailed, 417)));
}

#[test]
fn blocks_in_many_or_large_parts_end_the_connection() {
    let first = frame(HEADERS, END, 1, &block(&GET));
    let flood = [first.clone(), frame(9, 0, 1, b"").repeat(17)].concat();
    check(server, &flood, &Outcome::Connection(FaultKind::ContinuationFlood), "empty parts");
    let part = frame(9, 0, 1, &[0; 16_384]);
    let large = [first.clone(), part.repeat(5)].concat();
    check(server, &large, &Outcome::Connection(FaultKind::ContinuationFlood), "large parts");
    let last = frame(9, END_HEADERS, 1, &block(&[("a", "b")]));
    let ok = [first, frame(9, 0, 1, b"").repeat(15), last].concat();
    check(server, &ok, &Outcome::Accepted, "sixteen parts");
}

#[test]
fn unknown_frames_and_settings_are_ignored() {
    let input = [
        frame(99, 0xff, 0, b"abc"),
        frame(99, 0xff, 77, &[0; 16_384]),
        settings(&[(0, 1), (7, 7), (0xffff, 1)]),
        frame(frame_type::PRIORITY, 0, 9, &[0; 5]),
        get(1),
        rst(1),
        window_update(1, 10_000),
        rst(1),
    ];
    check(server, &input.concat(), &Outcome::Accepted, "unknown");
}

/// Frames of one repetition.
type Flood<'f> = &'f dyn Fn(u32) -> Vec<u8>;

/// Number of bytes after which a peer that sends the frames at once is stopped.
fn flood_bytes(prefix: &[u8], flood: impl Fn(u32) -> Vec<u8>) -> Option<usize> {
    let mut server = server();
    let mut input = prefix.to_vec();
    for at in 0..2_000 {
        input.extend_from_slice(&flood(at));
    }
    let mut used = 0;
    let mut events = 0;
    loop {
        match server.next_event(&input[used..]) {
            Err(fault) => {
                assert_eq!(fault, FaultKind::EnhanceYourCalm);
                assert_eq!(fault.error_code(), ErrorCode::ENHANCE_YOUR_CALM);
                return Some(used);
            }
            Ok((_, None)) => return None,
            Ok((bytes, Some(_))) => {
                used += bytes;
                events += 1;
                assert!(events < 10_000);
            }
        }
    }
}

#[test]
fn floods_end_the_connection() {
    let floods: &[(&str, Flood<'_>)] = &[
        ("rapid reset", &|at| [get(3 + 2 * at), rst(3 + 2 * at)].concat()),
        ("malformed", &|at| frame(HEADERS, END | END_HEADERS, 3 + 2 * at, &block(&GET[..2]))),
        ("broken windows", &|at| [get(3 + 2 * at), window_update(3 + 2 * at, 0)].concat()),
        ("refused", &|at| get(3 + 2 * at)),
        ("ping", &|_| frame(frame_type::PING, 0, 0, &[0; 8])),
        ("unrequested pong", &|_| frame(frame_type::PING, flag::ACK, 0, &[0; 8])),
        ("settings", &|_| settings(&[(4, 100)])),
        ("settings acknowledgements", &|_| frame(frame_type::SETTINGS, flag::ACK, 0, &[])),
        ("priority", &|_| frame(frame_type::PRIORITY, 0, 9, &[0; 5])),
        ("empty data", &|_| frame(DATA, 0, 1, b"")),
        ("padding alone", &|_| frame(DATA, flag::PADDED, 1, &[3, 0, 0, 0])),
        ("tiny windows", &|_| window_update(1, 1)),
        ("tiny windows of the connection", &|_| window_update(0, 1)),
        ("resets of a closed stream", &|_| rst(1)),
        ("content of a reset stream", &|_| frame(DATA, 0, 3, b"x")),
        ("empty unknown frames", &|_| frame(99, 0, 0, b"")),
        ("goaway", &|_| frame(frame_type::GOAWAY, 0, 0, &[0; 8])),
    ];
    for (name, flood) in floods {
        // Stream 3 is reset by the server: it has no path.
        let malformed = frame(HEADERS, END_HEADERS, 3, &block(&POST[..3]));
        let prefix = if name.contains("reset stream") { [post(1), malformed].concat() } else { post(1) };
        assert!(flood_bytes(&prefix, flood).is_some(), "{name}");
    }
    // Content is no flood.
    assert_eq!(flood_bytes(&post(1), |_| frame(DATA, 0, 1, b"123456789")), None);
}

#[test]
fn settings_of_many_entries_count_as_many() {
    let many = settings(&[(4, 100); 1_000]);
    check(server, &many, &Outcome::Connection(FaultKind::EnhanceYourCalm), "settings");
}

#[test]
fn counters_count() {
    let mut server = server();
    let input = [
        get(1),
        rst(1),
        frame(frame_type::PING, 0, 0, &[0; 8]),
        settings(&[]),
        frame(frame_type::PRIORITY, 0, 9, &[0; 5]),
        post(3),
        frame(DATA, 0, 3, b""),
        window_update(3, 1),
        rst(1),
    ];
    assert_eq!(outcome(&mut server, &input.concat(), 1_000), Outcome::Accepted);
    let counters = server.counters();
    assert_eq!((counters.resets_received, counters.rapid_resets, counters.late_frames), (2, 1, 1));
    assert_eq!((counters.pings, counters.settings, counters.priorities), (1, 2, 1));
    assert_eq!((counters.empty_frames, counters.tiny_window_updates), (1, 1));
}

#[test]
fn single_pings_are_no_flood() {
    let mut server = server();
    let ping = frame(frame_type::PING, 0, 0, &[0; 8]);
    for _ in 0..1_000 {
        assert_eq!(outcome(&mut server, &ping, 17), Outcome::Accepted);
    }
    assert_eq!(server.counters().pings, 1_000);
}

#[test]
fn answered_requests_may_be_cancelled() {
    let mut server = server();
    for at in 0..1_000 {
        let id = 1 + 2 * at;
        assert_eq!(outcome(&mut server, &get(id), 1_000), Outcome::Accepted);
        server.send_headers(StreamKey { slot: 0, id }, false, |head| head.status(200));
        assert_eq!(outcome(&mut server, &rst(id), 1_000), Outcome::Accepted);
    }
    assert_eq!((server.open_streams(), server.counters().rapid_resets), (0, 0));
}

#[test]
fn a_reset_stream_is_ignored_for_a_while() {
    let mut server = server();
    assert_eq!(outcome(&mut server, &post(1), 1_000), Outcome::Accepted);
    server.reset(StreamKey { slot: 0, id: 1 }, ErrorCode::CANCEL);
    let mut encoder = Encoder::new();
    let mut trailers = Vec::new();
    for _ in 0..2 {
        trailers.clear();
        let head = WrittenHead::default();
        FieldEncoder { encoder: &mut encoder, out: &mut trailers, head }.field("x", b"y");
    }
    // The table keeps the field although the stream is ignored.
    let input = [
        frame(DATA, 0, 1, &[0; 10_000]),
        frame(HEADERS, END | END_HEADERS, 1, &trailers),
        frame(HEADERS, END | END_HEADERS, 3, &[&block(&GET)[..], &[0xbe]].concat()),
    ];
    assert_eq!(outcome(&mut server, &input.concat(), 100), Outcome::Accepted);
    assert_eq!(server.open_streams(), 1);
    assert_eq!((server.receive.held, server.abuse.counters.late_frames), (0, 1));
}
