//! A plain client for the tests, with a time-out on everything: it shares no code with weir.

use std::io::{Read, Write};
use std::net::TcpStream;

use super::PATIENCE;

/// One answer.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
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
        Self::over(TcpStream::connect(authority).unwrap())
    }

    /// Over a connection that is there already.
    pub(crate) fn over(stream: TcpStream) -> Self {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        let buffered = Vec::new();
        Self { stream, buffered }
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    /// Sends one GET and reads its answer.
    pub(crate) fn ask(&mut self, target: &str) -> Answer {
        self.ask_as(target, "Host: test\r\n")
    }

    /// As [`Client::ask`], with these fields.
    pub(crate) fn ask_as(&mut self, target: &str, fields: &str) -> Answer {
        self.send(format!("GET {target} HTTP/1.1\r\n{fields}\r\n").as_bytes());
        self.answer().expect("an answer")
    }

    /// Reads one answer with a Content-Length; `None` when the connection ends before its head.
    pub(crate) fn answer(&mut self) -> Option<Answer> {
        let end = loop {
            let found = self.buffered.windows(4).position(|four| four == b"\r\n\r\n");
            match found {
                Some(at) => break at + 4,
                None if self.read_more() == 0 => return None,
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
            assert!(self.read_more() > 0, "the body ended early: {head}");
        }
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let body = self.buffered.drain(..length).collect();
        Some(Answer { status, head, body })
    }

    /// Everything until the connection ends or is reset.
    pub(crate) fn rest(&mut self) -> Vec<u8> {
        while self.read_more() > 0 {}
        std::mem::take(&mut self.buffered)
    }

    fn read_more(&mut self) -> usize {
        let mut bytes = [0; 16 * 1024];
        match self.stream.read(&mut bytes) {
            Ok(length) => {
                self.buffered.extend_from_slice(&bytes[..length]);
                length
            }
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => 0,
            Err(error) => panic!("reading an answer: {error}"),
        }
    }
}
