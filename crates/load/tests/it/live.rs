//! Loads over WebSocket and of event streams, against servers that lose, repeat and alter what they send. Every count
//! equals the server's.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use load::failure::FailureKind;
use load::measurement::{RunError, RunMeasurement};
use load::plan::LoadFlags;
use wire::websocket::{MessageReader, Opcode, Received, Role, accept_value, encode_close, encode_frame};

use crate::http2::{run, try_run};

/// Number of messages and of connections that a server has seen.
#[derive(Default)]
struct Seen {
    connections: AtomicU64,
    messages: AtomicU64,
    closes: AtomicU64,
}

/// Starts a server that calls `serve` for each connection, with the head of its request.
fn start(
    serve: impl Fn(&mut TcpStream, &str, &Seen) -> io::Result<()> + Send + Sync + 'static,
) -> (String, Arc<Seen>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let authority = listener.local_addr().unwrap().to_string();
    let (seen, serve) = (Arc::new(Seen::default()), Arc::new(serve));
    let counters = Arc::clone(&seen);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (serve, seen) = (Arc::clone(&serve), Arc::clone(&counters));
            std::thread::spawn(move || {
                let mut stream = stream.unwrap();
                stream.set_nodelay(true).unwrap();
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    let mut byte = [0];
                    if stream.read(&mut byte).unwrap_or(0) == 0 {
                        return;
                    }
                    head.push(byte[0]);
                }
                seen.connections.fetch_add(1, Ordering::SeqCst);
                // The client decides when a connection ends.
                let _ = serve(&mut stream, &String::from_utf8_lossy(&head), &seen);
            });
        }
    });
    (authority, seen)
}

fn field<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = head.lines().filter_map(|line| line.split_once(": "));
    lines.find(|(own, _)| own.eq_ignore_ascii_case(name)).map(|(_, value)| value)
}

/// Returns the response that accepts a handshake.
fn handshake(head: &str) -> String {
    let accept = accept_value(field(head, "sec-websocket-key").unwrap().as_bytes());
    let response = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n";
    format!("{response}Sec-WebSocket-Accept: {accept}\r\n\r\n")
}

/// Accepts a handshake and answers each message with the bytes that `answer` adds; it gets the message's number.
fn echo_server(
    answer: impl Fn(u64, Opcode, &[u8], &mut Vec<u8>) + Send + Sync + 'static,
) -> (String, Arc<Seen>) {
    start(move |stream, head, seen| {
        assert_eq!(field(head, "sec-websocket-version"), Some("13"));
        stream.write_all(handshake(head).as_bytes())?;
        let (mut reader, mut buffer) = (MessageReader::new(Role::Server, 1 << 20), vec![0; 4096]);
        loop {
            let bytes = stream.read(&mut buffer)?;
            if bytes == 0 {
                return Ok(());
            }
            let (mut input, mut out) = (&buffer[..bytes], Vec::new());
            while let Some(received) = reader.read(&mut input).unwrap() {
                match received {
                    Received::Message { is_binary, content } => {
                        let number = seen.messages.fetch_add(1, Ordering::SeqCst) + 1;
                        let opcode = if is_binary { Opcode::Binary } else { Opcode::Text };
                        answer(number, opcode, content, &mut out);
                    }
                    Received::Close(code) => {
                        seen.closes.fetch_add(u64::from(code == Some(1000)), Ordering::SeqCst);
                        encode_close(&mut out, code.unwrap_or(1000), None);
                    }
                    Received::Ping(_) | Received::Pong(_) => {}
                }
            }
            stream.write_all(&out)?;
        }
    })
}

fn flags(url: String, change: impl FnOnce(&mut LoadFlags)) -> LoadFlags {
    let text = |value: &str| Some(value.to_owned());
    let mut flags = LoadFlags {
        urls: vec![url],
        connections: text("1"),
        threads: text("1"),
        requests: text("200"),
        duration: text("30s"),
        timeout: text("1s"),
        ..LoadFlags::default()
    };
    change(&mut flags);
    flags
}

fn errors(measured: &RunMeasurement, kind: FailureKind) -> u64 {
    measured.counters.errors[kind as usize]
}

#[test]
fn every_echo_is_a_response() {
    for (binary, depth) in [(false, "1"), (true, "16")] {
        let (authority, seen) =
            echo_server(|_, opcode, content, out| encode_frame(out, opcode, content, None));
        let measured = run(&flags(format!("ws://{authority}/x"), |flags| {
            flags.connections = Some("3".to_owned());
            (flags.binary, flags.pipeline) = (binary, Some(depth.to_owned()));
            flags.message_size = Some("300".to_owned());
        }));
        let (counters, live) = (&measured.counters, &measured.counters.live);
        assert_eq!((counters.requests, counters.responses, counters.sent), (200, 200, 200));
        assert_eq!((seen.messages.load(Ordering::SeqCst), live.received), (200, 200));
        assert_eq!((live.clean_closes, seen.closes.load(Ordering::SeqCst), counters.opened), (3, 3, 3));
        assert_eq!((live.lost, live.duplicated, live.reordered, live.altered, live.unknown), (0, 0, 0, 0, 0));
        assert_eq!(measured.live.handshake.count(), 3);
    }
}

#[test]
fn lost_duplicated_and_altered_echoes_are_counted_by_kind() {
    let (authority, _) = echo_server(|number, opcode, content, out| match number % 100 {
        20 => {}
        40 => (0..2).for_each(|_| encode_frame(out, opcode, content, None)),
        60 => {
            let tail = content[16..].to_ascii_uppercase();
            encode_frame(out, opcode, &[&content[..16], &tail].concat(), None);
        }
        80 => encode_frame(out, opcode, b"hello", None),
        _ => encode_frame(out, opcode, content, None),
    });
    let measured = run(&flags(format!("ws://{authority}/"), |flags| flags.rate = Some("400".to_owned())));
    let live = &measured.counters.live;
    assert_eq!((live.duplicated, live.altered, live.unknown), (2, 2, 2), "{live:?}");
    // Two have no echo, and the echoes of two are another message.
    assert_eq!((live.lost, errors(&measured, FailureKind::Altered)), (4, 2));
    let unanswered = errors(&measured, FailureKind::Timeout) + errors(&measured, FailureKind::Unfinished);
    assert_eq!((unanswered, measured.counters.responses), (4, 194));
}

#[test]
fn faults_and_close_codes_have_their_names() {
    for (bytes, fault, code) in [
        (&b"\x81\x80\0\0\0\0"[..], Some("masked"), None),
        (b"\xc1\x01x", Some("reserved_bits"), None),
        (b"\x82\x7f\0\0\x01\0\0\0\0\0xxxx", Some("too_large"), None),
        (b"\x88\x02\x0f\xa0", None, Some(4000)),
        (b"\x88\x00", None, Some(1005)),
    ] {
        let (authority, _) = echo_server(move |number, opcode, content, out| match number {
            50 => out.extend_from_slice(bytes),
            _ => encode_frame(out, opcode, content, None),
        });
        let measured = run(&flags(format!("ws://{authority}/"), |_| ()));
        let live = &measured.counters.live;
        assert_eq!(live.faults.keys().map(String::as_str).collect::<Vec<_>>(), Vec::from_iter(fault));
        assert_eq!(live.close_codes.keys().copied().collect::<Vec<_>>(), Vec::from_iter(code));
        let kind = if fault.is_some() { FailureKind::Parse } else { FailureKind::Closed };
        assert_eq!((errors(&measured, kind), measured.counters.responses), (1, 199));
        assert_eq!((measured.counters.opened, measured.counters.lost, live.clean_closes), (2, 1, 1));
        let reasons: Vec<String> =
            measured.counters.parse_errors.iter().map(|(reason, _)| reason.code()).collect();
        assert_eq!(reasons, Vec::from_iter(fault.map(|fault| format!("websocket_{fault}"))));
    }
}

#[test]
fn connections_that_end_at_once_fail_their_request_and_are_opened_with_a_pause() {
    for (mode, frame) in [(None, &b"\x88\x02\x03\xe9"[..]), (None, b"\xc1\x00"), (Some("push"), b"\x88\x00")]
    {
        let (authority, seen) = start(move |stream, head, _| {
            stream.write_all(&[handshake(head).as_bytes(), frame].concat())?;
            let _ = stream.read(&mut [0; 64]);
            Ok(())
        });
        let measured = run(&flags(format!("ws://{authority}/"), |flags| {
            flags.ws = mode.map(str::to_owned);
            flags.requests = None;
            flags.duration = Some("1s".to_owned());
        }));
        let connections = seen.connections.load(Ordering::SeqCst);
        // 10 ms, doubled each time, up to a second.
        assert!((2..=9).contains(&connections), "{mode:?}: {connections}");
        let counters = &measured.counters;
        assert_eq!((counters.responses, counters.sent), (0, 0), "{mode:?}");
        let kind = if frame[0] == 0xc1 { FailureKind::Parse } else { FailureKind::Closed };
        let failed = errors(&measured, kind);
        assert!(failed >= connections - 1 && counters.requests <= failed + 1, "{mode:?}: {failed}");
    }
}

#[test]
fn a_server_that_floods_keeps_no_load_from_its_end() {
    let (authority, _) = start(|stream, _, _| {
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")?;
        let events = b"id:0\ndata\n\nid:18446744073709551615\ndata\n\n".repeat(1_000);
        loop {
            stream.write_all(&events)?;
        }
    });
    let measured = run(&flags(format!("http://{authority}/"), |flags| {
        flags.sse = true;
        flags.connections = Some("2".to_owned());
        flags.requests = None;
        flags.duration = Some("1s".to_owned());
    }));
    let counters = &measured.counters;
    assert_eq!((counters.responses, counters.live.lost), (2, 0));
    assert!(counters.live.received > 1_000 && counters.live.reordered > 0);
}

#[test]
fn a_wrong_key_is_no_handshake() {
    let (authority, _) = start(|stream, _, _| {
        let response = "HTTP/1.1 101 X\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n";
        stream.write_all(format!("{response}Sec-WebSocket-Accept: {}\r\n\r\n", accept_value(b"x")).as_bytes())
    });
    match try_run(&flags(format!("ws://{authority}/"), |_| ())) {
        Err(RunError::NoConnection { kind: FailureKind::Upgrade, text }) => {
            assert!(text.contains("wrong_accept"), "{text}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn events_are_counted_with_their_gaps_and_reconnects() {
    let (authority, seen) = start(|stream, head, seen| {
        let first: u64 = field(head, "last-event-id").map_or(0, |id| id.parse().unwrap());
        let response = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n";
        stream.write_all(response.as_bytes())?;
        // The fifth number is left out, the seventh is sent twice.
        let numbers = [1, 2, 3, 4, 6, 7, 7].map(|number| first + number);
        let text: String = numbers.iter().map(|number| format!("id: {number}\r\ndata: x\r\n\r\n")).collect();
        for byte in format!("\u{feff}: c\r\nretry: 100\r\n{text}data: cut").as_bytes() {
            stream.write_all(&[*byte])?;
        }
        seen.messages.fetch_add(numbers.len() as u64, Ordering::SeqCst);
        Ok(())
    });
    let measured = run(&flags(format!("http://{authority}/"), |flags| {
        (flags.sse, flags.requests, flags.duration) = (true, None, Some("2s".to_owned()));
    }));
    let (counters, live) = (&measured.counters, &measured.counters.live);
    let (connections, events) =
        (seen.connections.load(Ordering::SeqCst), seen.messages.load(Ordering::SeqCst));
    assert!(connections > 1, "{connections}");
    assert_eq!((counters.responses, live.received, live.numbered), (connections, events, events));
    assert_eq!((live.lost, live.duplicated, live.resumed), (connections, connections, connections - 1));
    assert_eq!((live.ended, live.retry_ms, live.reordered), (connections, Some(100), 0));
    assert_eq!(measured.live.gap.count(), events - connections);
}
