//! Comparison with another implementation of HTTP/2: our server against the client of the crate
//! `h2`, and our client against its server, over a pipe in memory, with random sizes and windows.

use std::collections::BTreeMap;
use std::rc::Rc;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::task::LocalSet;
use wire::h2::{Config, Connection, ErrorCode, Event, FaultKind, Role, StreamKey};

/// Deterministic random numbers (SplitMix64).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ mixed >> 31) % limit as u64) as usize
    }

    /// Sizes of bodies: often none, often small, sometimes many windows.
    fn size(&mut self) -> usize {
        match self.below(4) {
            0 => 0,
            1 | 2 => self.below(300),
            _ => self.below(200_000),
        }
    }

    /// Windows, none so small that its updates are a flood.
    fn window(&mut self) -> u32 {
        [1_000, 65_535, 300_000][self.below(3)]
    }
}

/// Body of a message, by the number of its request.
fn body(number: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 31 + number * 7) as u8).collect()
}

/// Number of the request and length of its body, from `/number/length/fate`.
fn plan(path: &str) -> (usize, usize, String) {
    let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
    (parts[0].parse().expect("a number"), parts[1].parse().expect("a length"), parts[2].to_owned())
}

/// One message that our end receives and sends.
#[derive(Default)]
struct Exchange {
    path: String,
    received: Vec<u8>,
    to_send: Vec<u8>,
    sent: usize,
    is_received: bool,
    is_sent: bool,
    unconsumed: usize,
    trailer: Option<String>,
    status: u16,
}

/// Our end of a connection: echoes requests (server), or sends them and checks echoes (client).
struct OurEnd {
    connection: Connection,
    role: Role,
    random: Random,
    exchanges: BTreeMap<u32, (StreamKey, Exchange)>,
    /// Requests that a client still has to send.
    requests_left: usize,
    next_request: usize,
    finished: usize,
    is_going_away: bool,
    go_away_received: bool,
    /// The peer refuses streams beyond its limit, and then takes their trailers for a fault.
    has_settings: bool,
}

/// Event without borrowed data.
enum OwnedEvent {
    Head { stream: StreamKey, path: String, status: u16, is_end: bool },
    Data { stream: StreamKey, bytes: Vec<u8>, is_end: bool },
    Trailers { stream: StreamKey, value: String },
    Reset { stream: StreamKey, fault: Option<FaultKind> },
    GoAway,
    Pong,
    Settings,
    Other,
}

fn to_owned(event: Event<'_>) -> OwnedEvent {
    match event {
        Event::Request { stream, head, is_end } => {
            assert_eq!(head.fields.get("x-repeated"), Some(&b"yes"[..]));
            OwnedEvent::Head { stream, path: head.path.expect("a path").to_owned(), status: 0, is_end }
        }
        Event::Response { stream, head, is_end } => {
            let path = head.fields.get("x-path").unwrap_or_default();
            let path = String::from_utf8(path.to_vec()).expect("UTF-8");
            OwnedEvent::Head { stream, path, status: head.status, is_end }
        }
        Event::Data { stream, bytes, is_end } => OwnedEvent::Data { stream, bytes: bytes.to_vec(), is_end },
        Event::Trailers { stream, fields } => {
            let value = fields.get("x-sum").expect("the trailer");
            OwnedEvent::Trailers { stream, value: String::from_utf8(value.to_vec()).expect("UTF-8") }
        }
        Event::Reset { stream, fault, .. } => OwnedEvent::Reset { stream, fault },
        Event::GoAway { .. } => OwnedEvent::GoAway,
        Event::Pong(_) => OwnedEvent::Pong,
        Event::SettingsChanged => OwnedEvent::Settings,
        Event::RejectedRequest { refusal, .. } => panic!("{refusal}"),
        _ => OwnedEvent::Other,
    }
}

impl OurEnd {
    fn new(role: Role, seed: u64, requests: usize) -> Self {
        let mut random = Random(seed);
        let config = Config {
            stream_window_bytes: [100, random.window()][random.below(2)],
            stream_window_bytes_max: 500_000,
            connection_window_bytes: 65_535,
            concurrent_streams_max: 1 + random.below(100) as u32,
            header_table_bytes: [0, 100, 4_096, 10_000][random.below(4)],
            ..Config::default()
        };
        Self {
            connection: Connection::new(role, &config),
            role,
            random,
            exchanges: BTreeMap::new(),
            requests_left: requests,
            next_request: 0,
            finished: 0,
            is_going_away: false,
            go_away_received: false,
            has_settings: false,
        }
    }

    /// Handles input and returns the number of bytes used.
    fn receive(&mut self, input: &[u8]) -> usize {
        let mut used = 0;
        loop {
            let (bytes, event) = self.connection.next_event(&input[used..]).expect("no fault");
            used += bytes;
            match event.map(to_owned) {
                None => return used,
                Some(event) => self.handle(event),
            }
        }
    }

    fn handle(&mut self, event: OwnedEvent) {
        match event {
            OwnedEvent::Head { stream, path, is_end, .. } if self.role == Role::Server => {
                let exchange = Exchange { path: path.clone(), is_received: is_end, ..Exchange::default() };
                self.exchanges.insert(stream.id, (stream, exchange));
                self.connection.send_headers(stream, false, |head| {
                    head.status(200);
                    head.field("X-Path", path.as_bytes());
                    head.field("x-repeated", b"yes");
                });
            }
            OwnedEvent::Head { stream, path, status, is_end } => {
                let exchange = self.exchange(stream);
                assert_eq!(exchange.path, path);
                exchange.status = status;
                exchange.is_received = is_end;
            }
            OwnedEvent::Data { stream, bytes, is_end } => {
                let is_server = self.role == Role::Server;
                let exchange = self.exchange(stream);
                exchange.received.extend_from_slice(&bytes);
                exchange.unconsumed += bytes.len();
                exchange.is_received = is_end;
                if is_server {
                    exchange.to_send.extend_from_slice(&bytes);
                }
            }
            OwnedEvent::Trailers { stream, value } => {
                let exchange = self.exchange(stream);
                exchange.trailer = Some(value);
                exchange.is_received = true;
            }
            OwnedEvent::Reset { stream, fault } => {
                assert_eq!(fault, None);
                self.exchanges.remove(&stream.id);
                self.finished += 1;
            }
            OwnedEvent::GoAway => self.go_away_received = true,
            OwnedEvent::Pong => self.connection.go_away(ErrorCode::NO_ERROR, true),
            OwnedEvent::Settings => self.has_settings = true,
            OwnedEvent::Other => {}
        }
    }

    fn exchange(&mut self, stream: StreamKey) -> &mut Exchange {
        &mut self.exchanges.get_mut(&stream.id).expect("a known stream").1
    }

    /// Consumes and sends random parts. Returns whether there is more to do without input.
    fn progress(&mut self) -> bool {
        while self.has_settings && self.requests_left > 0 && self.connection.free_streams() > 0 {
            self.send_request();
        }
        let mut has_more = false;
        let mut done = Vec::new();
        for (stream, exchange) in self.exchanges.values_mut() {
            let part =
                if self.random.below(4) == 0 { exchange.unconsumed } else { 1 + self.random.below(9_000) };
            let part = part.min(exchange.unconsumed);
            self.connection.consume(*stream, part);
            exchange.unconsumed -= part;
            has_more |= exchange.unconsumed > 0;
            send_part(&mut self.connection, *stream, exchange, self.role);
            if exchange.is_sent && exchange.is_received && exchange.unconsumed == 0 {
                done.push(stream.id);
            }
        }
        for id in done {
            let (_, exchange) = self.exchanges.remove(&id).expect("it is there");
            let (number, len, _) = plan(&exchange.path);
            assert_eq!(exchange.received.len(), len, "{}", exchange.path);
            assert!(exchange.received == body(number, len));
            assert_eq!(exchange.trailer.as_deref(), Some(&*len.to_string()));
            assert!(self.role == Role::Server || exchange.status == 200);
            self.finished += 1;
        }
        has_more
    }

    fn send_request(&mut self) {
        self.requests_left -= 1;
        let number = self.next_request;
        self.next_request += 1;
        let len = self.random.size();
        let fate = if self.random.below(10) == 0 { "reset" } else { "echo" };
        let path = format!("/{number}/{len}/{fate}");
        let stream = self.connection.open_stream().expect("a free stream");
        self.connection.send_headers(stream, false, |head| {
            head.request("POST", Some("http"), Some("a.example"), Some(&path));
            head.field("x-repeated", b"yes");
            head.field("content-type", b"application/octet-stream");
        });
        let exchange = Exchange { path, to_send: body(number, len), ..Exchange::default() };
        self.exchanges.insert(stream.id, (stream, exchange));
    }
}

/// Sends what the windows allow, and trailers at the end.
fn send_part(connection: &mut Connection, stream: StreamKey, exchange: &mut Exchange, role: Role) {
    if exchange.is_sent {
        return;
    }
    exchange.sent += connection.send_data(stream, &exchange.to_send[exchange.sent..], false);
    let is_complete = role == Role::Client || exchange.is_received;
    if is_complete && exchange.sent == exchange.to_send.len() {
        let sum = exchange.sent.to_string();
        connection.send_headers(stream, true, |head| head.field("x-sum", sum.as_bytes()));
        exchange.is_sent = true;
    }
}

/// Runs our end until all requests are finished and the peer closes, or all output is written.
async fn drive(mut end: OurEnd, io: DuplexStream, requests: usize) -> OurEnd {
    let (mut reader, mut writer) = tokio::io::split(io);
    let mut input: Vec<u8> = Vec::new();
    let mut buffer = vec![0; 32_768];
    loop {
        let has_more = end.progress();
        if end.finished >= requests && !std::mem::replace(&mut end.is_going_away, true) {
            // A server waits for streams that are on their way.
            end.connection.go_away(ErrorCode::NO_ERROR, end.role == Role::Client);
            end.connection.ping(7);
        }
        let mut output = std::mem::take(end.connection.output());
        if end.role == Role::Client && end.finished >= requests && output.is_empty() {
            return end;
        }
        let part = 1 + end.random.below(20_000);
        tokio::select! {
            biased;
            written = writer.write(&output[..part.min(output.len())]), if !output.is_empty() => {
                // The pipe breaks when the peer has got all that it wanted.
                let Ok(written) = written else { return end };
                output.drain(..written);
            }
            read = reader.read(&mut buffer) => {
                let read = read.expect("a pipe can be read");
                if read == 0 {
                    return end;
                }
                input.extend_from_slice(&buffer[..read]);
                let used = end.receive(&input);
                input.drain(..used);
            }
            () = tokio::task::yield_now(), if has_more => {}
        }
        output.append(end.connection.output());
        *end.connection.output() = output;
    }
}

/// Sends a body in random parts as the peer's window allows, then trailers.
async fn send_all(stream: &mut h2::SendStream<Bytes>, body: Vec<u8>) -> Result<(), h2::Error> {
    let mut rest = Bytes::from(body);
    let len = rest.len();
    while !rest.is_empty() {
        stream.reserve_capacity(rest.len());
        let Some(capacity) = std::future::poll_fn(|context| stream.poll_capacity(context)).await else {
            return Ok(());
        };
        let part = rest.split_to(capacity?.min(rest.len()));
        stream.send_data(part, false)?;
    }
    let mut trailers = HeaderMap::new();
    trailers.insert("x-sum", HeaderValue::from(len));
    stream.send_trailers(trailers)
}

/// Receives a body and its trailer.
async fn receive_all(stream: &mut h2::RecvStream) -> Result<(Vec<u8>, usize), h2::Error> {
    let mut content = Vec::new();
    while let Some(part) = stream.data().await {
        let part = part?;
        stream.flow_control().release_capacity(part.len())?;
        content.extend_from_slice(&part);
    }
    let trailers = stream.trailers().await?.expect("trailers");
    let sum = trailers["x-sum"].to_str().expect("ASCII").parse().expect("a number");
    Ok((content, sum))
}

fn run(test: impl AsyncFnOnce()) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    LocalSet::new().block_on(&runtime, test());
}

const REQUESTS: usize = 120;

async fn one_request(mut sender: h2::client::SendRequest<Bytes>, number: usize, len: usize, is_reset: bool) {
    let uri = format!("http://a.example/{number}/{len}/x");
    let request = Request::builder().method("POST").uri(uri).header("x-repeated", "yes");
    std::future::poll_fn(|context| sender.poll_ready(context)).await.expect("the connection is open");
    let (response, mut stream) =
        sender.send_request(request.body(()).expect("a request"), false).expect("a free stream");
    if is_reset {
        stream.send_reset(h2::Reason::CANCEL);
        return;
    }
    let upload = tokio::task::spawn_local(async move {
        send_all(&mut stream, body(number, len)).await.expect("the body is sent");
    });
    let response = response.await.expect("a response");
    assert_eq!(response.headers()["x-path"], format!("/{number}/{len}/x"));
    let (content, sum) = receive_all(&mut response.into_body()).await.expect("the body is received");
    assert!(content == body(number, len) && sum == len, "{number}");
    upload.await.expect("no panic");
}

async fn against_client(seed: u64) {
    let mut random = Random(seed);
    let (ours, theirs) = tokio::io::duplex(1 + random.below(50_000));
    let (sender, connection) = h2::client::Builder::new()
        .initial_window_size(random.window())
        .initial_connection_window_size(random.window().max(65_535))
        .header_table_size([0, 50, 4_096, 9_000][random.below(4)])
        .max_frame_size(16_384 + random.below(100_000) as u32)
        .handshake::<_, Bytes>(theirs)
        .await
        .expect("a handshake");
    let connection = tokio::task::spawn_local(connection);
    let end = OurEnd::new(Role::Server, seed, 0);
    let ours = tokio::task::spawn_local(drive(end, ours, REQUESTS));
    let requests: Vec<_> = (0..REQUESTS)
        .map(|number| {
            let (len, is_reset) = (random.size(), random.below(10) == 0);
            tokio::task::spawn_local(one_request(sender.clone(), number, len, is_reset))
        })
        .collect();
    for request in requests {
        request.await.expect("no panic");
    }
    drop(sender);
    connection.await.expect("no panic").expect("a graceful end");
    let end = ours.await.expect("no panic");
    assert_eq!((end.finished, end.connection.open_streams()), (REQUESTS, 0), "seed {seed}");
}

async fn respond(request: Request<h2::RecvStream>, mut respond: h2::server::SendResponse<Bytes>) {
    let path = request.uri().path().to_owned();
    let (_, len, fate) = plan(&path);
    if fate == "reset" {
        respond.send_reset(h2::Reason::INTERNAL_ERROR);
        return;
    }
    let interim = Response::builder().status(103).header("x-path", &path).body(()).expect("a head");
    respond.send_informational(interim).expect("an open stream");
    let response = Response::builder().header("x-path", &path).header("x-repeated", "yes");
    let mut stream =
        respond.send_response(response.body(()).expect("a head"), false).expect("an open stream");
    let (content, sum) = receive_all(&mut request.into_body()).await.expect("the body is received");
    assert_eq!((content.len(), sum), (len, len));
    send_all(&mut stream, content).await.expect("the body is sent");
}

async fn against_server(seed: u64) {
    let mut random = Random(seed);
    let (ours, theirs) = tokio::io::duplex(1 + random.below(50_000));
    let mut builder = h2::server::Builder::new();
    builder
        .initial_window_size(random.window())
        .initial_connection_window_size(random.window().max(65_535))
        .max_concurrent_streams(1 + random.below(50) as u32)
        .header_table_size([0, 50, 4_096, 9_000][random.below(4)])
        .max_frame_size(16_384 + random.below(100_000) as u32);
    let end = OurEnd::new(Role::Client, seed, REQUESTS);
    let ours = tokio::task::spawn_local(drive(end, ours, REQUESTS));
    let mut server = builder.handshake::<_, Bytes>(theirs).await.expect("a handshake");
    let responses = Rc::new(std::cell::Cell::new(0));
    while let Some(accepted) = server.accept().await {
        let (request, sender) = match accepted {
            Ok(request) => request,
            // Our client has closed the pipe.
            Err(error) if error.is_io() => break,
            Err(error) => panic!("seed {seed}: {error}"),
        };
        let responses = Rc::clone(&responses);
        tokio::task::spawn_local(async move {
            respond(request, sender).await;
            responses.set(responses.get() + 1);
        });
    }
    let end = ours.await.expect("no panic");
    assert_eq!((end.finished, end.connection.open_streams()), (REQUESTS, 0), "seed {seed}");
    assert_eq!(responses.get(), REQUESTS);
}

#[test]
fn our_server_serves_another_client() {
    for seed in 0..12 {
        run(async || against_client(seed).await);
    }
}

#[test]
fn our_client_uses_another_server() {
    for seed in 0..12 {
        run(async || against_server(seed).await);
    }
}
