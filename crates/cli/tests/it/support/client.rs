//! A plain client for the tests, with a timeout on every operation: it shares no code with weir.

use std::io::{Read, Write};
use std::net::TcpStream;

use super::EVENT_TIMEOUT;

/// One response.
#[derive(Clone, Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

/// One connection.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) stream: TcpStream,
    buffered: Vec<u8>,
}

impl Client {
    pub(crate) fn connect(authority: &str) -> Self {
        Self::from_stream(TcpStream::connect(authority).unwrap())
    }

    /// Creates a client over an existing connection.
    pub(crate) fn from_stream(stream: TcpStream) -> Self {
        stream.set_read_timeout(Some(EVENT_TIMEOUT)).unwrap();
        stream.set_write_timeout(Some(EVENT_TIMEOUT)).unwrap();
        stream.set_nodelay(true).unwrap();
        let buffered = Vec::new();
        Self { stream, buffered }
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    /// Sends one GET and reads its response.
    pub(crate) fn get(&mut self, target: &str) -> Response {
        self.get_with_fields(target, "Host: test\r\n")
    }

    /// Does the same as [`Client::ask`] with these fields.
    pub(crate) fn get_with_fields(&mut self, target: &str, fields: &str) -> Response {
        self.send(format!("GET {target} HTTP/1.1\r\n{fields}\r\n").as_bytes());
        self.read_response().expect("a response")
    }

    /// Reads one response with a Content-Length; `None` if the connection ends before its head.
    pub(crate) fn read_response(&mut self) -> Option<Response> {
        let end = loop {
            let head_end = self.buffered.windows(4).position(|four| four == b"\r\n\r\n");
            match head_end {
                Some(at) => break at + 4,
                None if self.fill_buffer() == 0 => return None,
                None => {}
            }
        };
        let head = String::from_utf8(self.buffered.drain(..end).collect()).unwrap();
        let length = head.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            let is_length = name.eq_ignore_ascii_case("content-length");
            is_length.then(|| value.trim().parse::<usize>().unwrap())
        });
        let length = length.unwrap_or(0);
        while self.buffered.len() < length {
            assert!(self.fill_buffer() > 0, "the body ended early: {head}");
        }
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let body = self.buffered.drain(..length).collect();
        Some(Response { status, head, body })
    }

    /// Returns all bytes until the connection ends or is reset.
    pub(crate) fn read_to_end(&mut self) -> Vec<u8> {
        while self.fill_buffer() > 0 {}
        std::mem::take(&mut self.buffered)
    }

    fn fill_buffer(&mut self) -> usize {
        let mut bytes = [0; 16 * 1024];
        match self.stream.read(&mut bytes) {
            Ok(length) => {
                self.buffered.extend_from_slice(&bytes[..length]);
                length
            }
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => 0,
            Err(error) => panic!("cannot read a response: {error}"),
        }
    }
}
