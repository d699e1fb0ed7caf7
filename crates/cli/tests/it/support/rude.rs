//! Clients of a proxy that see everything: the bytes until the end, whether an answer was whole, and
//! a crowd in the background that must not notice anything. Not for origins (`faulty`).

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use super::faulty::{field, send_what_goes};
use super::{PATIENCE, within};

/// What a client saw until its connection ended.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    /// Of the final answer; `None`: there was none.
    pub(crate) status: Option<u16>,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
    /// Whether the answer was all there, by its own framing.
    pub(crate) whole: bool,
}

/// A connection to a proxy, with time-outs.
pub(crate) fn connect(authority: &str) -> TcpStream {
    let stream = TcpStream::connect(authority).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

/// Sends these bytes and reads until the end of the connection.
pub(crate) fn ask_raw(authority: &str, request: &[u8]) -> Seen {
    let mut stream = connect(authority);
    // The answer may come, and the connection end, before all of it is sent.
    send_what_goes(&mut stream, request);
    see(&mut stream)
}

/// As [`ask_raw`]; when these bytes of the answer have come, something is done meanwhile.
pub(crate) fn ask_and_do(
    authority: &str,
    request: &[u8],
    marker: &[u8],
    meanwhile: impl FnOnce(),
) -> Seen {
    let mut stream = connect(authority);
    send_what_goes(&mut stream, request);
    let mut reader = super::faulty::Reader::new(stream);
    let start = reader.until(marker).unwrap().expect("the start of an answer");
    meanwhile();
    let mut bytes = start;
    bytes.append(&mut reader.buffered);
    see_more(&mut reader.stream, bytes)
}

/// Reads until the end of the connection, however it ends.
pub(crate) fn see(stream: &mut impl Read) -> Seen {
    see_more(stream, Vec::new())
}

fn see_more(stream: &mut impl Read, mut bytes: Vec<u8>) -> Seen {
    let mut part = [0; 64 * 1024];
    loop {
        match stream.read(&mut part) {
            Ok(0) => return Seen::of(&bytes),
            Ok(length) => bytes.extend_from_slice(&part[..length]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                panic!("the connection goes on: {}", String::from_utf8_lossy(&bytes))
            }
            Err(_) => return Seen::of(&bytes),
        }
    }
}

impl Seen {
    /// What these bytes are: interim answers, then a final one.
    fn of(mut bytes: &[u8]) -> Self {
        loop {
            let end = bytes.windows(4).position(|four| four == b"\r\n\r\n");
            let head = String::from_utf8_lossy(&bytes[..end.map_or(0, |at| at + 4)]).into_owned();
            let status = head.split(' ').nth(1).and_then(|text| text.parse::<u16>().ok());
            match (end, status) {
                (Some(at), Some(100..=199)) => bytes = &bytes[at + 4..],
                (Some(at), status) => {
                    let body = bytes[at + 4..].to_vec();
                    let whole = is_whole(&head, status, &body);
                    return Self { status, head, body, whole };
                }
                (None, _) => {
                    return Self { status: None, head, body: bytes.to_vec(), whole: false };
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

fn is_whole(head: &str, status: Option<u16>, body: &[u8]) -> bool {
    if matches!(status, Some(204 | 304)) {
        return true;
    }
    if field(head, "transfer-encoding").is_some() {
        return body.ends_with(b"0\r\n\r\n");
    }
    field(head, "content-length").is_none_or(|length| length.parse() == Ok(body.len()))
}

/// Clients on connections of their own that ask for the same again and again until they are told to
/// stop: whatever a test does meanwhile, none of them may see an error.
#[derive(Debug)]
pub(crate) struct Crowd {
    stopping: Arc<AtomicBool>,
    answered: Arc<AtomicU64>,
    members: Vec<JoinHandle<Result<(), String>>>,
}

impl Crowd {
    /// Starts one, and waits until each has had an answer.
    pub(crate) fn start(authority: &str, target: &str, size: u64) -> Self {
        Self::ask(authority, format!("GET {target} HTTP/1.1\r\nHost: crowd\r\n\r\n"), size)
    }

    /// As [`Crowd::start`], with a connection for each request.
    pub(crate) fn start_anew(authority: &str, target: &str, size: u64) -> Self {
        let fields = "Host: crowd\r\nConnection: close";
        Self::ask(authority, format!("GET {target} HTTP/1.1\r\n{fields}\r\n\r\n"), size)
    }

    fn ask(authority: &str, request: String, size: u64) -> Self {
        let stopping = Arc::new(AtomicBool::new(false));
        let answered = Arc::new(AtomicU64::new(0));
        let members = (0..size).map(|_| {
            let (stopping, answered) = (Arc::clone(&stopping), Arc::clone(&answered));
            let request = request.clone();
            let authority = authority.to_owned();
            std::thread::spawn(move || ask_on(&authority, &request, &stopping, &answered))
        });
        let members = members.collect();
        let crowd = Self { stopping, answered, members };
        assert!(within(PATIENCE, || crowd.answered() >= size || crowd.has_lost_one()));
        crowd
    }

    /// Answers so far.
    pub(crate) fn answered(&self) -> u64 {
        self.answered.load(Ordering::Relaxed)
    }

    fn has_lost_one(&self) -> bool {
        self.members.iter().any(JoinHandle::is_finished)
    }

    /// Waits until so many more answers have come, however long that takes while some do.
    pub(crate) fn wait_for(&self, more: u64) {
        let wanted = self.answered() + more;
        while self.answered() < wanted && !self.has_lost_one() {
            let so_far = self.answered();
            let goes_on = || self.answered() > so_far || self.has_lost_one();
            assert!(within(PATIENCE, goes_on), "no answer after {so_far}, {wanted} wanted");
        }
    }

    /// Ends it; fails when one of them saw an error. The number of answers.
    pub(crate) fn finish(mut self) -> u64 {
        self.stopping.store(true, Ordering::Relaxed);
        let ends = self.members.drain(..).map(|member| member.join().unwrap());
        let errors: Vec<String> = ends.filter_map(Result::err).collect();
        assert!(errors.is_empty(), "after {} answers: {errors:#?}", self.answered());
        self.answered()
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::Relaxed);
    }
}

/// One of a crowd: a connection is used until an answer says that it ends.
fn ask_on(
    authority: &str,
    request: &str,
    stopping: &AtomicBool,
    answered: &AtomicU64,
) -> Result<(), String> {
    let fail = |what: &str, error: io::Error| format!("{what}: {error}");
    while !stopping.load(Ordering::Relaxed) {
        let stream = TcpStream::connect(authority).map_err(|error| fail("connect", error))?;
        stream.set_read_timeout(Some(PATIENCE)).map_err(|error| fail("set", error))?;
        stream.set_nodelay(true).map_err(|error| fail("set", error))?;
        let mut writer = stream.try_clone().map_err(|error| fail("clone", error))?;
        let mut reader = super::faulty::Reader::new(stream);
        while !stopping.load(Ordering::Relaxed) {
            writer.write_all(request.as_bytes()).map_err(|error| fail("send", error))?;
            let answer = reader.message().map_err(|error| fail("receive", error))?;
            let answer = answer.ok_or_else(|| "closed without an answer".to_owned())?;
            if !answer.head.starts_with("HTTP/1.1 200 ") {
                return Err(answer.head);
            }
            answered.fetch_add(1, Ordering::Relaxed);
            let close = answer.field("connection").is_some_and(|value| value.contains("close"));
            if close {
                break;
            }
        }
    }
    Ok(())
}
