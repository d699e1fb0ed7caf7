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
    pair_with(&Config::default())
}

/// Connects a client with the default configuration and a server with `config`.
fn pair_with(config: &Config) -> (Connection, Connection) {
    let mut client = Connection::new(Role::Client, &Config::default());
    let mut server = Connection::new(Role::Server, config);
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

/// Returns the content that a second stream carries while `held` bytes of a first one stay with the
/// caller, in at most 1,000 round trips.
fn content_beside(held: usize, window: u32, window_max: u32) -> usize {
    let config = Config {
        stream_window_bytes: 1 << 20,
        connection_window_bytes: window,
        connection_window_bytes_max: window_max,
        ..Config::default()
    };
    let (mut client, mut server) = pair_with(&config);
    let post = |client: &mut Connection| {
        let stream = client.open_stream().expect("a stream");
        client.send_headers(stream, false, |head| {
            head.request("POST", Some("http"), Some("a.example"), Some("/"));
        });
        stream
    };
    let (stalled, other) = (post(&mut client), post(&mut client));
    let mut left = held;
    for _ in 0..110 {
        left -= client.send_data(stalled, &vec![0; left.min(10_000)], false);
        pass(&mut client, &mut server);
        pass(&mut server, &mut client);
    }
    assert_eq!(server.receive.held as usize, held - left);
    let mut received = 0;
    for _ in 0..1_000 {
        client.send_data(other, &[0; 10_000], false);
        received += transfer(&mut client, &mut server);
        transfer(&mut server, &mut client);
    }
    received
}

#[test]
fn held_content_of_one_stream_never_stops_another() {
    for window in [200_000, 1 << 20] {
        for percent in [0, 10, 30, 49, 51, 75, 90, 97] {
            let held = (window as usize * percent / 100).min(1_000_000);
            let received = content_beside(held, window, window);
            assert!(received > 2_500_000, "{percent} % of {window}: {received}");
        }
        // Flow control holds: a window that is used up stays closed.
        assert!(content_beside(window as usize, window, window) < 4096, "{window}");
        // It grows for the other streams if it may.
        assert_eq!(content_beside(window.min(1_000_000) as usize, window, 16 << 20), 10_000_000, "{window}");
    }
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

/// The windows for the rest of a request stay within the maximum of the connection, with the content that is
/// held of other streams.
#[test]
fn windows_open_for_the_rest_of_a_request() {
    const MAX: u64 = 4 << 20;
    let config = Config { connection_window_bytes_max: MAX as u32, ..Config::default() };
    for (length, held, expected) in [
        (Some(70_000), 0, Some(70_000)),
        (Some(3_000_000), 60_000, Some(3_000_000)),
        (Some(MAX), 0, Some(MAX)),
        (Some(MAX + 1), 0, None),
        (Some(MAX - 59_999), 60_000, None),
        (None, 60_000, Some(MAX - 60_000)),
    ] {
        let (mut client, mut server) = pair_with(&config);
        let open = |client: &mut Connection, length: Option<u64>| {
            let stream = client.open_stream().expect("a stream");
            client.send_headers(stream, false, |head| {
                head.request("POST", Some("http"), Some("a.example"), Some("/"));
                if let Some(length) = length {
                    head.field("content-length", length.to_string().as_bytes());
                }
            });
            stream
        };
        let other = open(&mut client, None);
        client.send_data(other, &vec![0; held], false);
        let stream = open(&mut client, length);
        pass(&mut client, &mut server);
        let rest = expected.map(|bytes| if length.is_some() { u64::MAX } else { bytes });
        assert_eq!(server.open_windows_for_rest(stream), rest, "{length:?} {held}");
        pass(&mut server, &mut client);
        if let Some(expected) = expected {
            assert_eq!(client.sendable_bytes(stream) as u64, expected, "{length:?} {held}");
        }
        assert!(u64::from(server.receive.held) + server.receive.window as u64 <= MAX);
        // Nothing more to open.
        let output = server.output().len();
        server.open_windows_for_rest(stream);
        assert_eq!(server.output().len(), output);
        server.check_invariants();
        // A complete request needs nothing.
        server.reset(stream, ErrorCode::NO_ERROR);
        assert_eq!(server.open_windows_for_rest(stream), Some(u64::MAX));
    }
}

/// A client that reads nothing between the end of its response and that of its request waits for something to
/// read (curl 7.88).
#[test]
fn a_request_that_ends_behind_its_response_is_confirmed() {
    let ping = |output: &[u8]| output.windows(8).any(|bytes| bytes == super::send::END_PAYLOAD.to_be_bytes());
    for (is_late, has_trailers) in [(true, false), (true, true), (false, false), (false, true)] {
        let (mut client, mut server) = pair();
        let stream = client.open_stream().expect("a stream");
        client.send_headers(stream, false, |head| head.request("POST", Some("http"), Some("a"), Some("/")));
        client.send_data(stream, b"some", false);
        pass(&mut client, &mut server);
        let respond = |server: &mut Connection| server.send_headers(stream, true, |head| head.status(204));
        if is_late {
            respond(&mut server);
            assert!(!ping(server.output()));
            assert_eq!(pass(&mut server, &mut client), ["1 response 204 None [] true"]);
        }
        match has_trailers {
            true => client.send_headers(stream, true, |fields| fields.field("x-sum", b"4")),
            false => drop(client.send_data(stream, b"", true)),
        }
        pass(&mut client, &mut server);
        assert_eq!(ping(server.output()), is_late, "{has_trailers}");
        if is_late {
            // Neither end has an event of it.
            assert_eq!(pass(&mut server, &mut client), [""; 0]);
            assert_eq!(pass(&mut client, &mut server), [""; 0]);
        } else {
            respond(&mut server);
            pass(&mut server, &mut client);
        }
        assert_eq!((client.open_streams(), server.open_streams()), (0, 0));
        server.check_invariants();
    }
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

#[test]
fn a_repeated_block_is_the_same_request_until_the_table_changes() {
    let (mut client, mut server) = pair();
    let send = |client: &mut Connection, agent: &[u8]| {
        let stream = client.open_stream().expect("a stream");
        client.send_headers(stream, true, |head| {
            head.request("GET", Some("http"), Some("a.example"), Some("/x"));
            head.field("user-agent", agent);
        });
        stream
    };
    // The agents enter the table at their second use, so that indices move.
    for (round, agent) in [b"a", b"a", b"a", b"a", b"b", b"b", b"a", b"a", b"b", b"b"].into_iter().enumerate()
    {
        let stream = send(&mut client, agent);
        let text = agent.escape_ascii();
        let expected = format!("[user-agent={text}] true");
        let events = pass(&mut client, &mut server);
        assert!(events.len() == 1 && events[0].ends_with(&expected), "{round}: {events:?}");
        server.reset(stream, ErrorCode::CANCEL);
        pass(&mut server, &mut client);
    }
}

#[test]
fn an_encoded_head_is_sent_again_until_the_table_changes() {
    let (mut client, mut server) = pair();
    let mut repeatable = None;
    let mut respond = |server: &mut Connection, stream, date: &[u8]| {
        if let Some(head) = &repeatable
            && server.repeat_headers(stream, true, head)
        {
            return true;
        }
        repeatable = server.send_repeatable_headers(stream, true, |head| {
            head.status(200);
            head.field("date", date);
        });
        false
    };
    let mut repeated = 0;
    for _ in 0..10 {
        let stream = get(&mut client);
        pass(&mut client, &mut server);
        repeated += usize::from(respond(&mut server, stream, b"today"));
        let events = pass(&mut server, &mut client);
        assert_eq!(events, [format!("{} response 200 None [date=today] true", stream.id)]);
    }
    assert_eq!(repeated, 7);
    // Other fields change the table, so that the indices of the encoded head are no longer valid.
    for _ in 0..3 {
        let stream = get(&mut client);
        pass(&mut client, &mut server);
        server.send_headers(stream, true, |head| {
            head.status(404);
            head.field("x-other", b"value");
        });
        pass(&mut server, &mut client);
    }
    let stream = get(&mut client);
    pass(&mut client, &mut server);
    assert!(!respond(&mut server, stream, b"today"));
    let events = pass(&mut server, &mut client);
    assert_eq!(events, [format!("{} response 200 None [date=today] true", stream.id)]);
}

#[test]
fn the_caller_writes_the_content_of_a_frame() {
    let (mut client, mut server) = pair();
    let stream = get(&mut client);
    pass(&mut client, &mut server);
    server.send_headers(stream, false, |head| head.status(200));
    let mut left = 100_000;
    let mut received = 0;
    while left > 0 {
        let taken = server.begin_data_frame(stream, left, true);
        server.output().extend(std::iter::repeat_n(b'x', taken));
        left -= taken;
        for event in pass(&mut server, &mut client) {
            let bytes = event.split(' ').nth(2).filter(|_| event.contains(" data "));
            received += bytes.map_or(0, |bytes| bytes.parse::<usize>().expect("a number"));
        }
        assert_eq!(received, 100_000 - left);
        if taken == 0 {
            // The window of the stream is used up; its content is returned.
            assert_eq!(received, 65_535);
            client.consume(stream, received);
            let events = pass(&mut client, &mut server);
            assert!(events.iter().any(|event| event.contains("StreamWritable")), "{events:?}");
        }
    }
    assert_eq!((client.open_streams(), server.open_streams()), (0, 0));
}
