//! Parser of one response from bytes as they arrive: interim responses, head, body. Pure: bytes in,
//! progress out. It counts body bytes and stores none.

use crate::inspection::ResponseSink;
use wire::{
    BodyDecoder, Framing, Limits, Parsed, Refusal, RequestKind, Skipped, head_may_be_complete, header_slots,
    parse_response,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CompleteResponse {
    pub(crate) status: u16,
    pub(crate) body_bytes: u64,
    /// True if the connection can carry another request.
    pub(crate) reusable: bool,
    /// Unsolicited bytes after the response.
    pub(crate) excess_bytes: usize,
}

/// Position in the response.
#[derive(Debug)]
enum ReadState {
    /// In the head, with its bytes so far if it did not arrive in one piece.
    Head {
        partial_head: Vec<u8>,
    },
    Body(BodyDecoder),
}

#[derive(Debug)]
pub(crate) struct ResponseReader {
    kind: RequestKind,
    state: ReadState,
    interim: u32,
    status: u16,
    keep_alive: bool,
    body_bytes: u64,
}

impl ResponseReader {
    pub(crate) fn new(kind: RequestKind) -> Self {
        Self {
            kind,
            state: ReadState::Head { partial_head: Vec::new() },
            interim: 0,
            status: 0,
            keep_alive: false,
            body_bytes: 0,
        }
    }

    /// Returns whether a byte of the current response has arrived: of an interim one until that is
    /// complete, and of the final one from then on.
    pub(crate) fn has_begun(&self) -> bool {
        !matches!(&self.state, ReadState::Head { partial_head } if partial_head.is_empty())
    }

    /// Returns the number of interim responses (1xx) so far.
    pub(crate) fn interim_count(&self) -> u32 {
        self.interim
    }

    /// Returns the status of the final response; 0 until its head is complete.
    pub(crate) fn status(&self) -> u16 {
        self.status
    }

    /// Returns whether the connection can carry further responses after a complete one.
    pub(crate) fn keeps_connection(&self) -> bool {
        self.keep_alive
    }

    /// Handles the bytes of one read. Returns `Some` if the response is complete.
    pub(crate) fn handle_bytes<S: ResponseSink>(
        &mut self,
        input: &[u8],
        limits: &Limits,
        sink: &mut S,
    ) -> Result<Option<CompleteResponse>, Refusal> {
        if let ReadState::Body(body) = &mut self.state {
            let skipped = if S::IS_ACTIVE { pass_on(body, input, sink)? } else { body.skip(input)? };
            self.body_bytes += skipped.data_bytes;
            let excess = input.len() - skipped.consumed;
            return Ok(skipped.end.then(|| self.complete(excess)));
        }
        let ReadState::Head { partial_head: carry } = &mut self.state else {
            return Ok(None);
        };
        if carry.is_empty() {
            return self.handle_head(input, limits, sink);
        }
        carry.extend_from_slice(input);
        // A server that sends its head in drips must not cause a parse for every byte.
        if !head_may_be_complete(input) && carry.len() < limits.head_bytes_max {
            return Ok(None);
        }
        let carry = std::mem::take(carry);
        self.handle_head(&carry, limits, sink)
    }

    fn handle_head<S: ResponseSink>(
        &mut self,
        input: &[u8],
        limits: &Limits,
        sink: &mut S,
    ) -> Result<Option<CompleteResponse>, Refusal> {
        let mut rest = input;
        loop {
            let mut slots = header_slots();
            let (head, bytes) = match parse_response(rest, limits, self.kind, &mut slots)? {
                Parsed::Complete { head, bytes } => (head, bytes),
                Parsed::Incomplete => {
                    self.state = ReadState::Head { partial_head: rest.to_vec() };
                    return Ok(None);
                }
            };
            rest = &rest[bytes..];
            if head.is_informational() && !head.is_switching_protocols() {
                self.interim += 1;
                limits.check_interim(self.interim)?;
                continue;
            }
            self.status = head.status;
            if S::IS_ACTIVE {
                head.headers.iter().for_each(|header| sink.field(header.name, header.value));
            }
            // After 101 the bytes belong to another protocol, which this client does not support.
            self.keep_alive = head.keep_alive && !head.is_switching_protocols();
            return match head.framing {
                Framing::None => Ok(Some(self.complete(rest.len()))),
                // Fast path for the common case, without the decoder's states.
                Framing::Length(length) if rest.len() as u64 == length => {
                    self.body_bytes = length;
                    sink.data(rest);
                    Ok(Some(self.complete(0)))
                }
                framing => {
                    self.state = ReadState::Body(BodyDecoder::new(framing, limits));
                    // The body decoder is called even without bytes: a length of 0 ends here.
                    self.handle_bytes(rest, limits, sink)
                }
            };
        }
    }

    /// Handles the end of the stream. Returns `Some` if it ends the response.
    pub(crate) fn handle_eof(&mut self) -> Option<CompleteResponse> {
        match &mut self.state {
            ReadState::Body(body) => body.handle_eof().is_ok().then(|| {
                self.keep_alive = false;
                self.complete(0)
            }),
            ReadState::Head { .. } => None,
        }
    }

    fn complete(&self, excess_bytes: usize) -> CompleteResponse {
        CompleteResponse {
            status: self.status,
            body_bytes: self.body_bytes,
            reusable: self.keep_alive && excess_bytes == 0,
            excess_bytes,
        }
    }
}

fn pass_on<S: ResponseSink>(body: &mut BodyDecoder, input: &[u8], sink: &mut S) -> Result<Skipped, Refusal> {
    let mut passed = Skipped { consumed: 0, data_bytes: 0, end: false };
    loop {
        let rest = &input[passed.consumed..];
        let step = body.decode(rest)?;
        sink.data(&rest[step.data.clone()]);
        passed.consumed += step.consumed;
        passed.data_bytes += step.data.len() as u64;
        passed.end = step.end;
        if step.end || passed.consumed == input.len() {
            return Ok(passed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inspection::NoSink;

    /// Parses `bytes` in one piece and split at every position; all results must agree.
    fn read(kind: RequestKind, bytes: &[u8]) -> Result<Option<CompleteResponse>, ()> {
        let limits = Limits::default();
        let unsplit = ResponseReader::new(kind).handle_bytes(bytes, &limits, &mut NoSink).map_err(|_| ());
        for split in 1..bytes.len() {
            let mut reader = ResponseReader::new(kind);
            let first = reader.handle_bytes(&bytes[..split], &limits, &mut NoSink).map_err(|_| ());
            let split_result = match first {
                Ok(None) => reader.handle_bytes(&bytes[split..], &limits, &mut NoSink).map_err(|_| ()),
                Ok(Some(response)) => {
                    let excess_bytes = response.excess_bytes + bytes.len() - split;
                    let reusable = response.reusable && excess_bytes == 0;
                    Ok(Some(CompleteResponse { excess_bytes, reusable, ..response }))
                }
                Err(()) => Err(()),
            };
            assert_eq!(split_result, unsplit, "split at {split}");
        }
        unsplit
    }

    fn complete_response(
        status: u16,
        body_bytes: u64,
        reusable: bool,
    ) -> Result<Option<CompleteResponse>, ()> {
        Ok(Some(CompleteResponse { status, body_bytes, reusable, excess_bytes: 0 }))
    }

    #[test]
    fn every_way_to_end_a_response() {
        let get = |text: &str| read(RequestKind::Other, text.as_bytes());
        assert_eq!(get("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"), complete_response(200, 5, true));
        assert_eq!(get("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"), complete_response(200, 0, true));
        assert_eq!(get("HTTP/1.1 204 No Content\r\n\r\n"), complete_response(204, 0, true));
        assert_eq!(
            get("HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n"),
            complete_response(304, 0, true)
        );
        assert_eq!(
            get("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nA: b\r\n\r\n"),
            complete_response(200, 5, true)
        );
        assert_eq!(get("HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\nx"), complete_response(200, 1, false));
        assert_eq!(
            get("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 1\r\n\r\nx"),
            complete_response(200, 1, false)
        );
        assert_eq!(
            read(RequestKind::Head, b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n"),
            complete_response(200, 0, true)
        );
        let interim = "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n";
        assert_eq!(
            get(&format!("{interim}HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")),
            complete_response(200, 2, true)
        );
    }

    #[test]
    fn a_body_until_close_ends_with_the_stream_and_a_short_one_does_not() {
        let limits = Limits::default();
        let mut reader = ResponseReader::new(RequestKind::Other);
        assert_eq!(reader.handle_bytes(b"HTTP/1.1 200 OK\r\n\r\nabc", &limits, &mut NoSink).unwrap(), None);
        assert_eq!(Ok(reader.handle_eof()), complete_response(200, 3, false));
        let mut reader = ResponseReader::new(RequestKind::Other);
        let short = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc";
        assert_eq!(reader.handle_bytes(short, &limits, &mut NoSink).unwrap(), None);
        assert_eq!(reader.handle_eof(), None);
    }

    #[test]
    fn a_response_begins_with_its_first_byte_and_again_behind_an_interim_one() {
        let limits = Limits::default();
        let mut reader = ResponseReader::new(RequestKind::Other);
        let mut steps = Vec::new();
        for bytes in ["HTTP/1.1 103 Early", " Hints\r\n\r\n", "HTTP/1.1 200 OK\r\n", "\r\nabc"] {
            let begun = reader.has_begun();
            assert_eq!(reader.handle_bytes(bytes.as_bytes(), &limits, &mut NoSink).unwrap(), None);
            steps.push((begun, reader.interim_count()));
        }
        assert_eq!(steps, [(false, 0), (true, 1), (false, 1), (true, 1)]);
    }

    #[test]
    fn excess_garbage_and_endless_interim_responses_are_noticed() {
        let get = |text: &str| read(RequestKind::Other, text.as_bytes());
        let excess = get("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nxyz").unwrap().unwrap();
        assert_eq!((excess.excess_bytes, excess.reusable), (2, false));
        assert!(get("SSH-2.0-OpenSSH_9.2\r\n\r\n").is_err());
        assert!(get("HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n").is_err());
        let endless = "HTTP/1.1 100 Continue\r\n\r\n".repeat(50);
        let mut reader = ResponseReader::new(RequestKind::Other);
        assert!(reader.handle_bytes(endless.as_bytes(), &Limits::default(), &mut NoSink).is_err());
    }
}
