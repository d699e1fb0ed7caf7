//! Tests of two connections that talk to each other.

use super::{Config, Connection, ErrorCode, Event, FaultKind, OpenError, Role, StreamKey};

/// Event without borrowed data, as text.
fn describe(event: &Event<'_>) -> String {
    let fields = |fields: &super::Fields<'_>| {
        let lines = fields.iter().map(|(name, value)| format!("{name}={}", value.escape_ascii()));
        lines.collect::<Vec<_>>().join(" ")
    };
    match event {
        Event::Request { stream, head, is_end } => format!(
            "{} request {} {:?} {:?} {:?} {:?} {:?} [{}] {is_end}",
            stream.id,
            head.method,
            head.scheme,
            head.authority,
            head.path,
            head.protocol,
            head.content_length,
            fields(&head.fields)
        ),
        Event::Response { stream, head, is_end } => format!(
            "{} response {} {:?} [{}] {is_end}",
            stream.id,
            head.status,
            head.content_length,
            fields(&head.fields)
        ),
        Event::Data { stream, bytes, is_end } => format!("{} data {} {is_end}", stream.id, bytes.len()),
        Event::Trailers { stream, fields: trailers } => {
            format!("{} trailers [{}]", stream.id, fields(trailers))
        }
        other => format!("{other:?}"),
    }
}

/// Passes all output of one connection to another, and returns the events.
fn pass(from: &mut Connection, to: &mut Connection) -> Vec<String> {
    let bytes = std::mem::take(from.output());
    receive(to, &bytes).expect("no fault")
}

fn receive(to: &mut Connection, mut bytes: &[u8]) -> Result<Vec<String>, FaultKind> {
    let mut events = Vec::new();
    loop {
        let (used, event) = to.next_event(bytes)?;
        bytes = &bytes[used..];
        match event {
            Some(event) => events.push(describe(&event)),
            None => {
                assert!(bytes.is_empty(), "{} bytes are left", bytes.len());
                return Ok(events);
            }
        }
    }
}

fn pair() -> (Connection, Connection) {
    let mut client = Connection::new(Role::Client, &Config::default());
    let mut server = Connection::new(Role::Server, &Config::default());
    assert_eq!(pass(&mut client, &mut server), ["SettingsChanged"]);
    assert_eq!(pass(&mut server, &mut client), ["SettingsChanged"]);
    assert_eq!(pass(&mut client, &mut server), [""; 0]);
    (client, server)
}

fn get(client: &mut Connection) -> StreamKey {
    let stream = client.open_stream().expect("a stream");
    client.send_headers(stream, true, |head| {
        head.request("GET", Some("http"), Some("a.example"), Some("/x?y=1"));
        head.field("User-Agent", b"weir");
        head.field("Connection", b"close");
    });
    stream
}

#[test]
fn a_request_and_its_response() {
    let (mut client, mut server) = pair();
    for round in 0..5u32 {
        let stream = get(&mut client);
        let id = 1 + 2 * round;
        assert_eq!(stream, StreamKey { slot: 0, id });
        let request = format!(
            "{id} request GET Some(\"http\") Some(\"a.example\") Some(\"/x?y=1\") None None [user-agent=weir] true"
        );
        assert_eq!(pass(&mut client, &mut server), [request]);
        server.send_headers(stream, false, |head| {
            head.status(200);
            head.field("content-length", b"5");
            head.field("server", b"weir");
        });
        assert_eq!(server.send_data(stream, b"hello", true), 5);
        let events = pass(&mut server, &mut client);
        let response = format!("{id} response 200 Some(5) [server=weir] false");
        assert_eq!(events, [response, format!("{id} data 5 true")]);
        assert_eq!((client.open_streams(), server.open_streams()), (0, 0));
        client.consume(stream, 5);
    }
}

#[test]
fn a_large_body_in_both_directions() {
    let (mut client, mut server) = pair();
    let stream = client.open_stream().expect("a stream");
    client.send_headers(stream, false, |head| {
        head.request("POST", Some("https"), Some("a.example"), Some("/"));
    });
    assert!(pass(&mut client, &mut server)[0].ends_with("false"));
    server.send_headers(stream, false, |head| head.status(200));
    let body = vec![7; 1_000_000];
    let (mut up, mut down, mut up_received, mut down_received) = (0, 0, 0, 0);
    let mut rounds = 0;
    while up_received < body.len() || down_received < body.len() {
        rounds += 1;
        assert!(rounds < 1_000, "{up_received} {down_received}");
        up += client.send_data(stream, &body[up..], true);
        down += server.send_data(stream, &body[down..], true);
        up_received += transfer(&mut client, &mut server);
        down_received += transfer(&mut server, &mut client);
    }
    assert_eq!((client.open_streams(), server.open_streams()), (0, 0));
    assert_eq!((client.receive.held, server.receive.held), (0, 0));
}

/// Passes output and consumes the content; returns its length.
fn transfer(from: &mut Connection, to: &mut Connection) -> usize {
    let bytes = std::mem::take(from.output());
    let (mut used, mut received) = (0, 0);
    loop {
        let (step, event) = to.next_event(&bytes[used..]).expect("no fault");
        used += step;
        let (stream, len) = match event {
            None => return received,
            Some(Event::Data { stream, bytes, .. }) => (stream, bytes.len()),
            Some(_) => continue,
        };
        to.consume(stream, len);
        received += len;
    }
}

#[test]
fn trailers_resets_and_limits() {
    let (mut client, mut server) = pair();
    let stream = get(&mut client);
    pass(&mut client, &mut server);
    server.send_headers(stream, false, |head| head.status(200));
    server.send_headers(stream, true, |head| head.field("x-sum", b"1"));
    assert_eq!(pass(&mut server, &mut client), ["1 response 200 None [] false", "1 trailers [x-sum=1]"]);
    let stream = get(&mut client);
    client.reset(stream, ErrorCode::CANCEL);
    let events = pass(&mut client, &mut server);
    assert!(events[1].starts_with("Reset"), "{events:?}");
    for _ in 0..100 {
        get(&mut client);
    }
    assert_eq!(client.open_stream(), Err(OpenError::Full));
    assert_eq!(client.free_streams(), 0);
    assert_eq!(pass(&mut client, &mut server).len(), 100);
    assert_eq!(server.open_streams(), 100);
}

#[test]
fn go_away_ends_what_is_not_processed() {
    let (mut client, mut server) = pair();
    let first = get(&mut client);
    pass(&mut client, &mut server);
    server.go_away(ErrorCode::NO_ERROR, true);
    let second = get(&mut client);
    let events = pass(&mut server, &mut client);
    assert!(events[0].starts_with("Reset") && events[0].contains("is_unprocessed: true"), "{events:?}");
    assert!(events[0].contains(&format!("{second:?}")), "{events:?}");
    assert_eq!(events[1], "GoAway { last_stream: 1, code: ErrorCode(0) }");
    assert_eq!(client.open_stream(), Err(OpenError::Closed));
    assert_eq!(pass(&mut client, &mut server), [""; 0]);
    server.send_headers(first, true, |head| head.status(204));
    assert_eq!(pass(&mut server, &mut client), ["1 response 204 None [] true"]);
}

#[test]
fn an_idle_connection_is_small() {
    for role in [Role::Client, Role::Server] {
        let connection = Connection::new(role, &Config::default());
        let bytes = size_of::<Connection>() + connection.output.capacity();
        assert!(bytes < 1_500, "{bytes} bytes");
    }
}

#[test]
fn receive_windows_grow_while_they_are_filled() {
    let (mut client, mut server) = pair();
    let stream = client.open_stream().expect("a stream");
    client.send_headers(stream, false, |head| {
        head.request("POST", Some("http"), Some("a.example"), Some("/"));
    });
    for _ in 0..200 {
        let len = client.sendable_bytes(stream);
        client.send_data(stream, &vec![0; len], false);
        transfer(&mut client, &mut server);
        transfer(&mut server, &mut client);
    }
    let config = Config::default();
    assert!(server.receive.stream.bytes <= config.stream_window_bytes_max);
    assert!(server.receive.stream.bytes > config.stream_window_bytes_max / 2);
    assert!(server.receive.connection.bytes <= config.connection_window_bytes_max);
    assert!(server.receive.connection.bytes >= server.receive.stream.bytes);
    assert!(client.sendable_bytes(stream) > config.stream_window_bytes_max as usize / 2);
}

#[test]
fn unconsumed_content_stops_the_peer() {
    let (mut client, mut server) = pair();
    let stream = client.open_stream().expect("a stream");
    client.send_headers(stream, false, |head| {
        head.request("POST", Some("http"), Some("a.example"), Some("/"));
    });
    assert_eq!(client.send_data(stream, &[0; 100_000], true), 65_535);
    pass(&mut client, &mut server);
    pass(&mut server, &mut client);
    assert_eq!(client.sendable_bytes(stream), 0);
    server.consume(stream, 65_535);
    assert_eq!(pass(&mut server, &mut client), [format!("StreamWritable({stream:?})")]);
    assert_eq!(client.send_data(stream, &[0; 34_465], true), 34_465);
    pass(&mut client, &mut server);
    server.send_headers(stream, true, |head| head.status(200));
    assert_eq!((server.open_streams(), server.receive.held), (0, 34_465));
    // The slot stays with its content.
    let other = get(&mut client);
    pass(&mut client, &mut server);
    assert_eq!(server.streams.find(other.id).map(|key| key.slot), Some(1));
    server.consume(stream, 34_465);
    assert_eq!(server.receive.held, 0);
    let third = get(&mut client);
    pass(&mut client, &mut server);
    assert_eq!(server.streams.find(third.id).map(|key| key.slot), Some(0));
}

#[test]
fn windows_may_become_negative() {
    let (mut client, mut server) = pair();
    let stream = get(&mut client);
    pass(&mut client, &mut server);
    server.send_headers(stream, false, |head| head.status(200));
    assert_eq!(server.send_data(stream, &[0; 65_000], false), 65_000);
    let settings = |window: u32| {
        let [a, b, c, d] = window.to_be_bytes();
        [0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 4, a, b, c, d]
    };
    assert_eq!(receive(&mut server, &settings(10)).as_deref(), Ok(&["SettingsChanged".to_owned()][..]));
    assert_eq!(server.sendable_bytes(stream), 0);
    let events = receive(&mut server, &settings(65_100)).expect("no fault");
    assert_eq!(events, ["SettingsChanged".to_owned(), format!("StreamWritable({stream:?})")]);
    assert_eq!(server.send_data(stream, &[0; 200], true), 100);
}

#[test]
fn a_graceful_end_accepts_streams_on_their_way() {
    let (mut client, mut server) = pair();
    let first = get(&mut client);
    server.go_away(ErrorCode::NO_ERROR, false);
    server.ping(1);
    assert_eq!(pass(&mut client, &mut server).len(), 1);
    assert_eq!(pass(&mut server, &mut client), ["GoAway { last_stream: 2147483647, code: ErrorCode(0) }"]);
    assert_eq!(client.open_stream(), Err(OpenError::Closed));
    assert_eq!(pass(&mut client, &mut server), ["Pong(1)"]);
    server.go_away(ErrorCode::NO_ERROR, true);
    server.send_headers(first, true, |head| head.status(204));
    let events = pass(&mut server, &mut client);
    assert_eq!(events, ["GoAway { last_stream: 1, code: ErrorCode(0) }", "1 response 204 None [] true"]);
}

#[test]
fn large_heads_are_split() {
    let (mut client, mut server) = pair();
    let value = vec![0xff; 10_000];
    let stream = client.open_stream().expect("a stream");
    client.send_headers(stream, true, |head| {
        head.request("GET", Some("http"), Some("a.example"), Some("/"));
        head.field("x-a", &value);
        head.field("x-b", &value);
    });
    assert_eq!(client.output[9 + 16_384 + 3], super::frame::frame_type::CONTINUATION);
    let events = pass(&mut client, &mut server);
    assert!(events[0].starts_with("RejectedRequest"), "{}", &events[0][..100]);
    assert!(server.block.capacity() <= 4_096);
}

#[test]
fn extended_connect_needs_the_setting() {
    let config = Config { enables_connect_protocol: true, ..Config::default() };
    let mut client = Connection::new(Role::Client, &Config::default());
    let mut server = Connection::new(Role::Server, &config);
    pass(&mut client, &mut server);
    assert!(!client.peer_enables_connect_protocol());
    pass(&mut server, &mut client);
    assert!(client.peer_enables_connect_protocol());
    let stream = client.open_stream().expect("a stream");
    client.send_headers(stream, false, |head| {
        head.request("CONNECT", Some("https"), Some("a.example"), Some("/chat"));
        head.protocol("websocket");
    });
    let events = pass(&mut client, &mut server);
    assert!(events[0].contains("Some(\"/chat\") Some(\"websocket\")"), "{events:?}");
}
