//! Loads over WebSocket and of event streams with HTTP/2, against a server with windows of its own. Every count equals
//! the server's.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use load::measurement::RunError;
use load::plan::LoadFlags;
use wire::h2::{Config, Connection, ErrorCode, Event, Role, StreamKey};
use wire::websocket::{MessageReader, Opcode, Received, Role as PeerRole, encode_close, encode_frame};

use crate::http2::{run, try_run};

/// Counts of a server.
#[derive(Default)]
struct Seen {
    connections: AtomicU64,
    messages: AtomicU64,
    closes: AtomicU64,
    events: AtomicU64,
    resumed: AtomicU64,
}

/// Behaviour of a server.
#[derive(Clone, Copy)]
struct Behaviour {
    enables_websocket: bool,
    status: u16,
    /// Receive window of a stream.
    window: u32,
    /// Number of the message at which the stream is reset.
    reset_at: u64,
    /// Events of a subscription, after which it ends.
    events: u64,
}

const DEFAULT: Behaviour =
    Behaviour { enables_websocket: true, status: 200, window: 65_535, reset_at: u64::MAX, events: 20 };

fn start(behaviour: Behaviour) -> (String, Arc<Seen>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let authority = listener.local_addr().unwrap().to_string();
    let seen = Arc::new(Seen::default());
    let counters = Arc::clone(&seen);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let seen = Arc::clone(&counters);
            std::thread::spawn(move || {
                seen.connections.fetch_add(1, Ordering::SeqCst);
                // The client decides when a connection ends.
                let _ = serve(&mut stream.unwrap(), behaviour, &seen);
            });
        }
    });
    (authority, seen)
}

/// Step that an event asks for.
enum Step {
    Accept(StreamKey),
    Refuse(StreamKey),
    /// Events from this number on.
    Subscribe(StreamKey, u64),
    Content(StreamKey, Vec<u8>),
    None,
}

fn serve(socket: &mut TcpStream, behaviour: Behaviour, seen: &Seen) -> io::Result<()> {
    socket.set_nodelay(true)?;
    let config = Config {
        enables_connect_protocol: behaviour.enables_websocket,
        stream_window_bytes: behaviour.window,
        stream_window_bytes_max: behaviour.window,
        ..Config::default()
    };
    let mut h2 = Connection::new(Role::Server, &config);
    let (mut reader, mut out) = (MessageReader::new(PeerRole::Server, 1 << 20), Vec::new());
    let (mut input, mut buffer) = (Vec::new(), vec![0; 1 << 16]);
    let mut tunnel = None;
    loop {
        let mut used = 0;
        loop {
            let (bytes, event) = h2.next_event(&input[used..]).map_err(|_| io::ErrorKind::InvalidData)?;
            used += bytes;
            let Some(event) = event else { break };
            let step = match event {
                Event::Request { stream, head, .. } if head.protocol == Some("websocket") => {
                    assert_eq!((head.method, head.path), ("CONNECT", Some("/chat?x")));
                    assert_eq!(head.fields.get("sec-websocket-version"), Some(&b"13"[..]));
                    assert!(
                        head.fields.get("upgrade").is_none()
                            && head.fields.get("sec-websocket-key").is_none()
                    );
                    if behaviour.status == 200 { Step::Accept(stream) } else { Step::Refuse(stream) }
                }
                Event::Request { stream, head, .. } => {
                    assert_eq!(head.fields.get("accept"), Some(&b"text/event-stream"[..]));
                    let last = head.fields.get("last-event-id");
                    seen.resumed.fetch_add(u64::from(last.is_some()), Ordering::SeqCst);
                    let last = last.and_then(|id| std::str::from_utf8(id).ok()?.parse().ok());
                    if behaviour.status == 200 {
                        Step::Subscribe(stream, last.unwrap_or(0) + 1)
                    } else {
                        Step::Refuse(stream)
                    }
                }
                Event::Data { stream, bytes, .. } => Step::Content(stream, bytes.to_vec()),
                _ => Step::None,
            };
            match step {
                Step::None => {}
                Step::Accept(stream) => {
                    h2.send_headers(stream, false, |head| head.status(200));
                    tunnel = Some(stream);
                }
                Step::Refuse(stream) => h2.send_headers(stream, true, |head| head.status(behaviour.status)),
                Step::Subscribe(stream, first) => {
                    h2.send_headers(stream, false, |head| {
                        head.status(200);
                        head.field("content-type", b"text/event-stream; charset=utf-8");
                    });
                    let events = (first..first + behaviour.events).map(|id| format!("id: {id}\ndata: x\n\n"));
                    let text = format!("retry: 20\n\n{}", events.collect::<String>());
                    assert_eq!(h2.send_data(stream, text.as_bytes(), true), text.len());
                    seen.events.fetch_add(behaviour.events, Ordering::SeqCst);
                }
                Step::Content(stream, bytes) => {
                    h2.consume(stream, bytes.len());
                    let mut bytes = &bytes[..];
                    while let Some(received) = reader.read(&mut bytes).unwrap() {
                        match received {
                            Received::Message { content, .. } => {
                                let number = seen.messages.fetch_add(1, Ordering::SeqCst) + 1;
                                if number == behaviour.reset_at {
                                    h2.reset(stream, ErrorCode(8));
                                }
                                encode_frame(&mut out, Opcode::Text, content, None);
                            }
                            Received::Close(code) => {
                                seen.closes.fetch_add(u64::from(code == Some(1000)), Ordering::SeqCst);
                                encode_close(&mut out, code.unwrap_or(1000), None);
                            }
                            Received::Ping(_) | Received::Pong(_) => {}
                        }
                    }
                }
            }
        }
        input.drain(..used);
        if let Some(stream) = tunnel {
            let sent = h2.send_data(stream, &out, false);
            out.drain(..sent);
        }
        socket.write_all(h2.output())?;
        h2.output().clear();
        let bytes = socket.read(&mut buffer)?;
        if bytes == 0 {
            return Ok(());
        }
        input.extend_from_slice(&buffer[..bytes]);
    }
}

fn flags(url: String, change: impl FnOnce(&mut LoadFlags)) -> LoadFlags {
    let text = |value: &str| Some(value.to_owned());
    let mut flags = LoadFlags {
        urls: vec![url],
        connections: text("3"),
        threads: text("1"),
        duration: text("30s"),
        timeout: text("5s"),
        ..LoadFlags::default()
    };
    flags.http.http = text("2");
    change(&mut flags);
    flags
}

fn load(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::SeqCst)
}

#[test]
fn every_echo_over_a_stream_of_http2_is_a_response() {
    for (window, size, depth) in [(65_535, "64", "1"), (1_000, "700", "16"), (65_535, "100k", "2")] {
        let (authority, seen) = start(Behaviour { window, ..DEFAULT });
        let measured = run(&flags(format!("ws://{authority}/chat?x"), |flags| {
            flags.requests = Some("200".to_owned());
            flags.pipeline = Some(depth.to_owned());
            flags.message_size = Some(size.to_owned());
        }));
        let (counters, live) = (&measured.counters, &measured.counters.live);
        assert_eq!((counters.requests, counters.responses, counters.sent), (200, 200, 200), "{size}");
        assert_eq!((load(&seen.messages), live.received), (200, 200));
        assert_eq!((live.clean_closes, load(&seen.closes), counters.opened), (3, 3, 3));
        assert_eq!((live.lost, live.altered, live.unknown), (0, 0, 0));
    }
}

#[test]
fn a_server_without_websocket_over_http2_is_named() {
    let (authority, _) = start(Behaviour { enables_websocket: false, ..DEFAULT });
    let error =
        try_run(&flags(format!("ws://{authority}/chat?x"), |flags| flags.requests = Some("5".to_owned())));
    let RunError::NoConnection { text, .. } = error.unwrap_err() else { panic!() };
    assert!(text.contains("SETTINGS_ENABLE_CONNECT_PROTOCOL") && text.contains("use --http 1.1"), "{text}");
    let (authority, _) = start(Behaviour { status: 403, ..DEFAULT });
    let error =
        try_run(&flags(format!("ws://{authority}/chat?x"), |flags| flags.requests = Some("5".to_owned())));
    let RunError::NoConnection { text, .. } = error.unwrap_err() else { panic!() };
    assert!(text.contains("status_403"), "{text}");
}

#[test]
fn a_reset_stream_ends_a_connection_of_websocket() {
    let (authority, seen) = start(Behaviour { reset_at: 50, ..DEFAULT });
    let measured =
        run(&flags(format!("ws://{authority}/chat?x"), |flags| flags.requests = Some("200".to_owned())));
    let live = &measured.counters.live;
    assert_eq!((live.ended, measured.counters.requests, measured.counters.responses), (1, 200, 199));
    assert_eq!((load(&seen.messages), load(&seen.connections), live.clean_closes), (200, 4, 3));
    assert_eq!(measured.counters.errors[load::failure::FailureKind::StreamReset as usize], 1);
}

#[test]
fn event_streams_over_http2_are_counted_and_resumed() {
    let (authority, seen) = start(DEFAULT);
    let measured = run(&flags(format!("http://{authority}/events"), |flags| {
        (flags.sse, flags.duration) = (true, Some("1500ms".to_owned()));
    }));
    let live = &measured.counters.live;
    assert_eq!((live.received, live.numbered), (load(&seen.events), load(&seen.events)));
    assert!(live.resumed > 3 && live.resumed == load(&seen.resumed), "{live:?}");
    assert_eq!((live.lost, live.duplicated, live.retry_ms), (0, 0, Some(20)));
    assert_eq!(measured.counters.responses, load(&seen.connections));
    // Each event belongs to a second.
    let interval_events: u64 = measured.intervals.iter().filter_map(|interval| interval.events).sum();
    assert_eq!(interval_events, live.received);
    let (authority, seen) = start(Behaviour { status: 503, ..DEFAULT });
    let measured = run(&flags(format!("http://{authority}/events"), |flags| {
        (flags.sse, flags.duration) = (true, Some("500ms".to_owned()));
    }));
    assert_eq!((measured.counters.live.received, measured.counters.bad()), (0, load(&seen.connections)));
    assert_eq!(measured.counters.live.faults["status_503"], load(&seen.connections));
}
