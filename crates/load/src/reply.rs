//! Reads one response out of bytes as they come: interim responses, head, body. Pure: bytes in,
//! progress out. It counts bodies and keeps none.

use wire::{
    BodyDecoder, Framing, Limits, Parsed, Refusal, RequestKind, head_may_be_complete, header_slots,
    parse_response,
};

/// A response that has been read whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) body_bytes: u64,
    /// Whether the connection can carry another request.
    pub(crate) reusable: bool,
    /// Bytes that came behind the response, though nothing was asked.
    pub(crate) excess_bytes: usize,
}

/// Where the response ends, as far as is known.
#[derive(Debug)]
enum State {
    /// In a head; what came of it, when it did not come in one piece.
    Head { carry: Vec<u8> },
    /// In the body.
    Body(BodyDecoder),
}

/// One response being read.
#[derive(Debug)]
pub(crate) struct ReplyReader {
    kind: RequestKind,
    state: State,
    interim: u32,
    status: u16,
    keep_alive: bool,
    body_bytes: u64,
}

impl ReplyReader {
    pub(crate) fn new(kind: RequestKind) -> Self {
        Self {
            kind,
            state: State::Head { carry: Vec::new() },
            interim: 0,
            status: 0,
            keep_alive: false,
            body_bytes: 0,
        }
    }

    /// Whether a byte has come of the response that is being read: of an interim one, until that is
    /// complete, and of the final one from then on.
    pub(crate) fn has_begun(&self) -> bool {
        !matches!(&self.state, State::Head { carry } if carry.is_empty())
    }

    /// Interim responses (1xx) so far.
    pub(crate) fn interim(&self) -> u32 {
        self.interim
    }

    /// Takes the bytes of one read; `Some` when the response is whole.
    pub(crate) fn handle_bytes(
        &mut self,
        input: &[u8],
        limits: &Limits,
    ) -> Result<Option<Reply>, Refusal> {
        if let State::Body(body) = &mut self.state {
            let skipped = body.skip(input)?;
            self.body_bytes += skipped.data_bytes;
            let excess = input.len() - skipped.consumed;
            return Ok(skipped.end.then(|| self.reply(excess)));
        }
        let State::Head { carry } = &mut self.state else {
            return Ok(None);
        };
        if carry.is_empty() {
            return self.handle_head(input, limits);
        }
        carry.extend_from_slice(input);
        // A server that drips its head must not make us parse it again for every byte.
        if !head_may_be_complete(input) && carry.len() < limits.head_bytes_max {
            return Ok(None);
        }
        let carry = std::mem::take(carry);
        self.handle_head(&carry, limits)
    }

    fn handle_head(&mut self, input: &[u8], limits: &Limits) -> Result<Option<Reply>, Refusal> {
        let mut rest = input;
        loop {
            let mut slots = header_slots();
            let (head, bytes) = match parse_response(rest, limits, self.kind, &mut slots)? {
                Parsed::Complete { head, bytes } => (head, bytes),
                Parsed::Incomplete => {
                    self.state = State::Head { carry: rest.to_vec() };
                    return Ok(None);
                }
            };
            rest = &rest[bytes..];
            if head.informational() && !head.switching() {
                self.interim += 1;
                limits.check_interim(self.interim)?;
                continue;
            }
            self.status = head.status;
            // After 101 the bytes are of another protocol, which this client does not speak.
            self.keep_alive = head.keep_alive && !head.switching();
            return match head.framing {
                Framing::None => Ok(Some(self.reply(rest.len()))),
                // The common case, without the decoder's states.
                Framing::Length(length) if rest.len() as u64 == length => {
                    self.body_bytes = length;
                    Ok(Some(self.reply(0)))
                }
                framing => {
                    self.state = State::Body(BodyDecoder::new(framing, limits));
                    // The body decoder is asked even with nothing in hand: a length of 0 ends here.
                    self.handle_bytes(rest, limits)
                }
            };
        }
    }

    /// Takes the end of the stream: `Some` when that is how the response ends.
    pub(crate) fn handle_end(&mut self) -> Option<Reply> {
        match &mut self.state {
            State::Body(body) => body.handle_eof().is_ok().then(|| {
                self.keep_alive = false;
                self.reply(0)
            }),
            State::Head { .. } => None,
        }
    }

    fn reply(&self, excess_bytes: usize) -> Reply {
        Reply {
            status: self.status,
            body_bytes: self.body_bytes,
            reusable: self.keep_alive && excess_bytes == 0,
            excess_bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds `bytes` whole and split at every place; all must agree.
    fn read(kind: RequestKind, bytes: &[u8]) -> Result<Option<Reply>, ()> {
        let limits = Limits::default();
        let whole = ReplyReader::new(kind).handle_bytes(bytes, &limits).map_err(|_| ());
        for split in 1..bytes.len() {
            let mut reader = ReplyReader::new(kind);
            let first = reader.handle_bytes(&bytes[..split], &limits).map_err(|_| ());
            let both = match first {
                Ok(None) => reader.handle_bytes(&bytes[split..], &limits).map_err(|_| ()),
                Ok(Some(reply)) => {
                    let excess_bytes = reply.excess_bytes + bytes.len() - split;
                    let reusable = reply.reusable && excess_bytes == 0;
                    Ok(Some(Reply { excess_bytes, reusable, ..reply }))
                }
                Err(()) => Err(()),
            };
            assert_eq!(both, whole, "split at {split}");
        }
        whole
    }

    fn reply(status: u16, body_bytes: u64, reusable: bool) -> Result<Option<Reply>, ()> {
        Ok(Some(Reply { status, body_bytes, reusable, excess_bytes: 0 }))
    }

    #[test]
    fn every_way_to_end_a_response() {
        let get = |text: &str| read(RequestKind::Other, text.as_bytes());
        assert_eq!(get("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"), reply(200, 5, true));
        assert_eq!(get("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"), reply(200, 0, true));
        assert_eq!(get("HTTP/1.1 204 No Content\r\n\r\n"), reply(204, 0, true));
        assert_eq!(
            get("HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n"),
            reply(304, 0, true)
        );
        assert_eq!(
            get(
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nA: b\r\n\r\n"
            ),
            reply(200, 5, true)
        );
        assert_eq!(get("HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\nx"), reply(200, 1, false));
        assert_eq!(
            get("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 1\r\n\r\nx"),
            reply(200, 1, false)
        );
        assert_eq!(
            read(RequestKind::Head, b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n"),
            reply(200, 0, true)
        );
        let interim = "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n";
        assert_eq!(
            get(&format!("{interim}HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")),
            reply(200, 2, true)
        );
    }

    #[test]
    fn a_body_until_close_ends_with_the_stream_and_a_short_one_does_not() {
        let limits = Limits::default();
        let mut reader = ReplyReader::new(RequestKind::Other);
        assert_eq!(reader.handle_bytes(b"HTTP/1.1 200 OK\r\n\r\nabc", &limits).unwrap(), None);
        assert_eq!(Ok(reader.handle_end()), reply(200, 3, false));
        let mut reader = ReplyReader::new(RequestKind::Other);
        let short = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc";
        assert_eq!(reader.handle_bytes(short, &limits).unwrap(), None);
        assert_eq!(reader.handle_end(), None);
    }

    #[test]
    fn a_response_begins_with_its_first_byte_and_again_behind_an_interim_one() {
        let limits = Limits::default();
        let mut reader = ReplyReader::new(RequestKind::Other);
        let mut steps = Vec::new();
        for bytes in ["HTTP/1.1 103 Early", " Hints\r\n\r\n", "HTTP/1.1 200 OK\r\n", "\r\nabc"] {
            let begun = reader.has_begun();
            assert_eq!(reader.handle_bytes(bytes.as_bytes(), &limits).unwrap(), None);
            steps.push((begun, reader.interim()));
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
        let mut reader = ReplyReader::new(RequestKind::Other);
        assert!(reader.handle_bytes(endless.as_bytes(), &Limits::default()).is_err());
    }
}
