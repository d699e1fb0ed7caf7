//! Clients of a proxy that record everything: the bytes until the end, and whether a response was
//! complete; and a crowd in the background that must not notice any disturbance. `faulty_origins`
//! has the origins.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use super::faulty_origins::{field, send_ignoring_errors};
use super::{EVENT_TIMEOUT, within};

/// Bytes that a client received until its connection ended.
#[derive(Clone, Debug)]
pub(crate) struct ReceivedResponse {
    /// Status of the final response; `None`: there was none.
    pub(crate) status: Option<u16>,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
    /// True if the response was complete by its own framing.
    pub(crate) is_complete: bool,
}

/// Connects to a proxy, with timeouts.
pub(crate) fn connect(authority: &str) -> TcpStream {
    let stream = TcpStream::connect(authority).unwrap();
    stream.set_read_timeout(Some(EVENT_TIMEOUT)).unwrap();
    stream.set_write_timeout(Some(EVENT_TIMEOUT)).unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

/// Sends these bytes and reads until the end of the connection.
pub(crate) fn exchange_raw(authority: &str, request: &[u8]) -> ReceivedResponse {
    let mut stream = connect(authority);
    // The response may arrive, and the connection end, before all bytes are sent.
    send_ignoring_errors(&mut stream, request);
    read_response(&mut stream)
}

/// Does the same as [`exchange_raw`], and calls `meanwhile` once the response contains `marker`.
pub(crate) fn exchange_and_call(
    authority: &str,
    request: &[u8],
    marker: &[u8],
    meanwhile: impl FnOnce(),
) -> ReceivedResponse {
    let mut stream = connect(authority);
    send_ignoring_errors(&mut stream, request);
    let mut reader = super::faulty_origins::LaxReader::new(stream);
    let start = reader.read_until(marker).unwrap().expect("the start of a response");
    meanwhile();
    let mut bytes = start;
    bytes.append(&mut reader.buffered);
    read_rest_of_response(&mut reader.stream, bytes)
}

/// Reads until the end of the connection, however it ends.
pub(crate) fn read_response(stream: &mut impl Read) -> ReceivedResponse {
    read_rest_of_response(stream, Vec::new())
}

fn read_rest_of_response(stream: &mut impl Read, mut bytes: Vec<u8>) -> ReceivedResponse {
    let mut part = [0; 64 * 1024];
    loop {
        match stream.read(&mut part) {
            Ok(0) => return ReceivedResponse::parse(&bytes),
            Ok(length) => bytes.extend_from_slice(&part[..length]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                panic!("the connection goes on: {}", String::from_utf8_lossy(&bytes))
            }
            Err(_) => return ReceivedResponse::parse(&bytes),
        }
    }
}

impl ReceivedResponse {
    /// Parses bytes: interim responses, then a final one.
    fn parse(mut bytes: &[u8]) -> Self {
        loop {
            let end = bytes.windows(4).position(|four| four == b"\r\n\r\n");
            let head = String::from_utf8_lossy(&bytes[..end.map_or(0, |at| at + 4)]).into_owned();
            let status = head.split(' ').nth(1).and_then(|text| text.parse::<u16>().ok());
            match (end, status) {
                (Some(at), Some(100..=199)) => bytes = &bytes[at + 4..],
                (Some(at), status) => {
                    let body = bytes[at + 4..].to_vec();
                    let is_complete = is_complete_response(&head, status, &body);
                    return Self { status, head, body, is_complete };
                }
                (None, _) => {
                    return Self { status: None, head, body: bytes.to_vec(), is_complete: false };
                }
            }
        }
    }

    pub(crate) fn field(&self, name: &str) -> Option<String> {
        field(&self.head, name)
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

fn is_complete_response(head: &str, status: Option<u16>, body: &[u8]) -> bool {
    if matches!(status, Some(204 | 304)) {
        return true;
    }
    if field(head, "transfer-encoding").is_some() {
        return body.ends_with(b"0\r\n\r\n");
    }
    field(head, "content-length").is_none_or(|length| length.parse() == Ok(body.len()))
}

/// Clients on their own connections that repeat the same request until they are stopped. None of
/// them may get an error, whatever a test does meanwhile.
#[derive(Debug)]
pub(crate) struct BackgroundClients {
    stopping: Arc<AtomicBool>,
    responses: Arc<AtomicU64>,
    clients: Vec<JoinHandle<Result<(), String>>>,
}

impl BackgroundClients {
    /// Starts the clients, and waits for the first response of each.
    pub(crate) fn start(authority: &str, target: &str, size: u64) -> Self {
        Self::spawn_clients(authority, format!("GET {target} HTTP/1.1\r\nHost: crowd\r\n\r\n"), size)
    }

    /// Does the same as [`BackgroundClients::start`], with a connection for each request.
    pub(crate) fn start_with_new_connections(authority: &str, target: &str, size: u64) -> Self {
        let fields = "Host: crowd\r\nConnection: close";
        Self::spawn_clients(authority, format!("GET {target} HTTP/1.1\r\n{fields}\r\n\r\n"), size)
    }

    fn spawn_clients(authority: &str, request: String, size: u64) -> Self {
        let stopping = Arc::new(AtomicBool::new(false));
        let responses = Arc::new(AtomicU64::new(0));
        let served_clients = Arc::new(AtomicU64::new(0));
        let clients = (0..size).map(|_| {
            let (stopping, responses) = (Arc::clone(&stopping), Arc::clone(&responses));
            let served_clients = Arc::clone(&served_clients);
            let request = request.clone();
            let authority = authority.to_owned();
            std::thread::spawn(move || {
                run_client(&authority, &request, &stopping, &responses, &served_clients)
            })
        });
        let clients = clients.collect();
        let background = Self { stopping, responses, clients };
        let is_ready = || served_clients.load(Ordering::Relaxed) == size || background.has_lost_a_client();
        assert!(within(EVENT_TIMEOUT, is_ready), "{} responses", background.response_count());
        background
    }

    /// Returns the number of responses so far.
    pub(crate) fn response_count(&self) -> u64 {
        self.responses.load(Ordering::Relaxed)
    }

    fn has_lost_a_client(&self) -> bool {
        self.clients.iter().any(JoinHandle::is_finished)
    }

    /// Waits for so many more responses, for any time as long as some arrive.
    pub(crate) fn wait_for(&self, more: u64) {
        let target_count = self.response_count() + more;
        while self.response_count() < target_count && !self.has_lost_a_client() {
            let count_before = self.response_count();
            let has_progress = || self.response_count() > count_before || self.has_lost_a_client();
            assert!(
                within(EVENT_TIMEOUT, has_progress),
                "no answer after {count_before}, {target_count} wanted"
            );
        }
    }

    /// Stops the clients; fails if one got an error. Returns the number of responses.
    pub(crate) fn finish(mut self) -> u64 {
        self.stopping.store(true, Ordering::Relaxed);
        let ends = self.clients.drain(..).map(|client| client.join().unwrap());
        let errors: Vec<String> = ends.filter_map(Result::err).collect();
        assert!(errors.is_empty(), "after {} answers: {errors:#?}", self.response_count());
        self.response_count()
    }
}

impl Drop for BackgroundClients {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::Relaxed);
    }
}

/// One client of a crowd: it uses a connection until a response closes it, and counts itself at its
/// first response.
fn run_client(
    authority: &str,
    request: &str,
    stopping: &AtomicBool,
    responses: &AtomicU64,
    served_clients: &AtomicU64,
) -> Result<(), String> {
    let fail = |what: &str, error: io::Error| format!("{what}: {error}");
    let mut is_first = true;
    while !stopping.load(Ordering::Relaxed) {
        let stream = TcpStream::connect(authority).map_err(|error| fail("connect", error))?;
        stream.set_read_timeout(Some(EVENT_TIMEOUT)).map_err(|error| fail("set", error))?;
        stream.set_nodelay(true).map_err(|error| fail("set", error))?;
        let mut writer = stream.try_clone().map_err(|error| fail("clone", error))?;
        let mut reader = super::faulty_origins::LaxReader::new(stream);
        while !stopping.load(Ordering::Relaxed) {
            writer.write_all(request.as_bytes()).map_err(|error| fail("send", error))?;
            let message = reader.read_message().map_err(|error| fail("receive", error))?;
            let response = message.ok_or_else(|| "closed without a response".to_owned())?;
            if !response.head.starts_with("HTTP/1.1 200 ") {
                return Err(response.head);
            }
            responses.fetch_add(1, Ordering::Relaxed);
            served_clients.fetch_add(u64::from(std::mem::take(&mut is_first)), Ordering::Relaxed);
            let close = response.field("connection").is_some_and(|value| value.contains("close"));
            if close {
                break;
            }
        }
    }
    Ok(())
}
