//! Response of a server, while it arrives. Each byte is read once, whatever pieces it comes in, and
//! the response has a maximum size. No I/O.

use std::io;

use http::HeaderValue;
use http::response::Parts;
use wire::{BodyDecoder, Framing, Limits, Parsed, Refusal, RequestKind, ResponseHead, head_may_be_complete};

/// Maximum length of a response, with its head: a chain has a few kB.
const RESPONSE_BYTES_MAX: usize = 1 << 20;

#[derive(Debug)]
pub struct HttpResponse {
    pub parts: Parts,
    pub content: Vec<u8>,
}

pub struct ResponseReader {
    kind: RequestKind,
    received_bytes: usize,
    interim_count: u32,
    state: ReadState,
}

enum ReadState {
    Head(Vec<u8>),
    Body { parts: Box<Parts>, decoder: BodyDecoder, content: Vec<u8> },
}

impl ResponseReader {
    pub fn new(kind: RequestKind) -> Self {
        Self { kind, received_bytes: 0, interim_count: 0, state: ReadState::Head(Vec::new()) }
    }

    /// Reads more bytes. Returns the response once it is complete.
    ///
    /// # Errors
    /// The response is malformed or too long.
    pub fn receive(&mut self, bytes: &[u8]) -> io::Result<Option<HttpResponse>> {
        self.received_bytes += bytes.len();
        if self.received_bytes > RESPONSE_BYTES_MAX {
            return Err(io::Error::other("the response is too long"));
        }
        match &mut self.state {
            ReadState::Body { .. } => self.receive_body(bytes),
            ReadState::Head(head) => {
                let is_first = head.is_empty();
                head.extend_from_slice(bytes);
                // A server that sends single bytes causes a parse for each line, and not for each byte.
                if is_first || head_may_be_complete(bytes) || head.len() >= Limits::default().head_bytes_max {
                    return self.receive_head();
                }
                Ok(None)
            }
        }
    }

    /// Handles the end of the stream, which ends a response without a length.
    ///
    /// # Errors
    /// The response is incomplete.
    pub fn handle_eof(mut self) -> io::Result<HttpResponse> {
        let is_complete = match &mut self.state {
            ReadState::Body { decoder, .. } => decoder.handle_eof().is_ok(),
            ReadState::Head(_) => false,
        };
        if is_complete { self.finish() } else { Err(incomplete()) }
    }

    fn receive_head(&mut self) -> io::Result<Option<HttpResponse>> {
        let ReadState::Head(received) = &mut self.state else { return Ok(None) };
        let mut received = std::mem::take(received);
        let limits = Limits::default();
        let mut rest = &received[..];
        loop {
            let mut slots = wire::header_slots();
            let parsed = wire::parse_response(rest, &limits, self.kind, &mut slots).map_err(malformed)?;
            let Parsed::Complete { head, bytes } = parsed else {
                let read_bytes = received.len() - rest.len();
                drop(slots);
                received.drain(..read_bytes);
                self.state = ReadState::Head(received);
                return Ok(None);
            };
            rest = &rest[bytes..];
            if head.is_informational() {
                self.interim_count += 1;
                limits.check_interim(self.interim_count).map_err(malformed)?;
                continue;
            }
            let decoder = match head.framing {
                // The client does not support another protocol, and does not ask for it.
                _ if head.is_switching_protocols() => return Err(incomplete()),
                framing => BodyDecoder::new(framing, &limits),
            };
            let parts = Box::new(response_parts(&head)?);
            let is_empty = matches!(head.framing, Framing::None | Framing::Length(0));
            self.state = ReadState::Body { parts, decoder, content: Vec::new() };
            return if is_empty { self.finish().map(Some) } else { self.receive_body(rest) };
        }
    }

    fn receive_body(&mut self, mut bytes: &[u8]) -> io::Result<Option<HttpResponse>> {
        let ReadState::Body { decoder, content, .. } = &mut self.state else { return Ok(None) };
        while !bytes.is_empty() {
            let step = decoder.decode(bytes).map_err(malformed)?;
            content.extend_from_slice(&bytes[step.data.clone()]);
            if step.end {
                return self.finish().map(Some);
            }
            bytes = &bytes[step.consumed..];
        }
        Ok(None)
    }

    fn finish(&mut self) -> io::Result<HttpResponse> {
        match std::mem::replace(&mut self.state, ReadState::Head(Vec::new())) {
            ReadState::Body { parts, content, .. } => Ok(HttpResponse { parts: *parts, content }),
            ReadState::Head(_) => Err(incomplete()),
        }
    }
}

fn response_parts(head: &ResponseHead<'_, '_>) -> io::Result<Parts> {
    let mut builder = http::Response::builder().status(head.status);
    for header in head.headers {
        if let Ok(value) = HeaderValue::from_bytes(header.value) {
            builder = builder.header(header.name, value);
        }
    }
    Ok(builder.body(()).map_err(io::Error::other)?.into_parts().0)
}

fn malformed(refusal: Refusal) -> io::Error {
    io::Error::other(format!("malformed response: {refusal}"))
}

fn incomplete() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "the response is not complete")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns status and content of a response that arrives in pieces of so many bytes.
    fn read(bytes: &[u8], piece_bytes: usize, ends: bool) -> io::Result<Option<(u16, Vec<u8>)>> {
        let mut reader = ResponseReader::new(RequestKind::Other);
        let mut response = None;
        for piece in bytes.chunks(piece_bytes) {
            response = reader.receive(piece)?;
            if response.is_some() {
                break;
            }
        }
        if response.is_none() && ends {
            response = Some(reader.handle_eof()?);
        }
        Ok(response.map(|response| (response.parts.status.as_u16(), response.content)))
    }

    #[test]
    fn a_response_is_the_same_in_any_pieces() {
        for (text, content) in [
            ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", "hi"),
            ("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", "hi"),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nh\r\n1\r\ni\r\n0\r\n\r\n", "hi"),
            ("HTTP/1.1 200 OK\r\nReplay-Nonce: a\r\nContent-Length: 0\r\n\r\n", ""),
            ("HTTP/1.1 204 No Content\r\n\r\n", ""),
        ] {
            for piece_bytes in 1..=text.len() {
                let response = read(text.as_bytes(), piece_bytes, false).unwrap().unwrap();
                let status = if text.contains("204") { 204 } else { 200 };
                assert_eq!(response, (status, content.as_bytes().to_vec()), "{text}");
            }
            assert!(read(&text.as_bytes()[..text.len() - 1], 7, true).is_err(), "{text}");
        }
        let until_close = b"HTTP/1.1 200 OK\r\n\r\nhi";
        assert_eq!(read(until_close, 3, false).unwrap(), None);
        assert_eq!(read(until_close, 3, true).unwrap(), Some((200, b"hi".to_vec())));
    }

    #[test]
    fn an_endless_response_is_rejected() {
        let head = b"HTTP/1.1 200 OK\r\n\r\n";
        let endless = [&head[..], &vec![b'x'; RESPONSE_BYTES_MAX]].concat();
        assert!(read(&endless, 16_384, true).unwrap_err().to_string().contains("too long"));
        let interim = b"HTTP/1.1 103 Early Hints\r\n\r\n".repeat(100);
        assert!(read(&interim, 16_384, true).unwrap_err().to_string().contains("malformed"));
        let line = [&b"HTTP/1.1 200 OK\r\na: "[..], &vec![b'x'; 20_000]].concat();
        assert!(read(&line, 1, true).unwrap_err().to_string().contains("malformed"));
    }
}
