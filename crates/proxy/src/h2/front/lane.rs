//! One stream on its way through the engine: its request as HTTP/1.1 into the channel, and the response
//! of HTTP/1.1 out of it as frames.

use std::net::Shutdown;

use rt::byte_channel::{ChannelEnd, ReceiveState};
use wire::h2::{Connection, ErrorCode, FieldEncoder, Fields, RequestHead, StreamKey};
use wire::{BodyDecoder, Framing, Limits, Parsed, RequestKind, encode};

use super::request_head::write_head;

/// Maximum content that a stream sends before the next one: one frame.
const TURN_BYTES: usize = 16 * 1024;
/// Expected length of a head in HTTP/1.1.
const HEAD_BYTES: usize = 512;

/// A channel to the engine, and the stream that uses it.
#[derive(Debug)]
pub(super) struct Lane {
    end: Option<ChannelEnd>,
    stream: Option<StreamKey>,
    request: RequestProgress,
    response: ResponseProgress,
    kind: RequestKind,
    decoder: BodyDecoder,
    /// True if the engine's connection can carry another request after the response.
    keeps_engine: bool,
    /// True if the request asks for another protocol by extended CONNECT (RFC 8441).
    is_extended_connect: bool,
    /// Content that the engine has not taken, and that was not returned to the client's window.
    unreturned_bytes: usize,
    /// Bytes of the engine that were sent, from any start, and those at the last check.
    sent_bytes: u64,
    checked_bytes: u64,
}

/// Form of the rest of the request in the channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RequestProgress {
    /// As it is: its length is known.
    Length,
    Chunked,
    /// As it is, up to the end of the stream.
    Tunnel,
    Done,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ResponseProgress {
    Head,
    Body,
    /// Bytes of another protocol.
    Tunnel,
    /// `END_STREAM` was sent; the client's side of the tunnel is open.
    Sent,
}

/// Result of one turn of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// It waits for the engine, or for the client's window.
    Waiting,
    /// It has more to send now.
    More,
    /// The stream is over.
    Over {
        /// True if the engine takes another request.
        keeps_engine: bool,
        /// Code that the stream was reset with.
        reset: Option<ErrorCode>,
    },
}

impl Lane {
    pub(super) fn new(end: ChannelEnd) -> Self {
        Self {
            end: Some(end),
            stream: None,
            request: RequestProgress::Done,
            response: ResponseProgress::Head,
            kind: RequestKind::Other,
            decoder: BodyDecoder::new(Framing::None, &Limits::default()),
            keeps_engine: false,
            is_extended_connect: false,
            unreturned_bytes: 0,
            sent_bytes: 0,
            checked_bytes: 0,
        }
    }

    pub(super) fn stream(&self) -> Option<StreamKey> {
        self.stream
    }

    /// Returns whether the engine waits for another request.
    pub(super) fn is_usable(&self) -> bool {
        self.end.as_ref().is_some_and(|end| end.receive_state() == ReceiveState::Open && !end.is_refused())
    }

    pub(super) fn is_closed(&self) -> bool {
        self.end.is_none()
    }

    /// Begins a stream whose request the engine rejects by itself.
    pub(super) fn begin_rejected(&mut self, stream: StreamKey) {
        self.stream = Some(stream);
        self.request = RequestProgress::Done;
        self.response = ResponseProgress::Head;
        self.kind = RequestKind::Other;
        self.is_extended_connect = false;
        self.unreturned_bytes = 0;
    }

    /// Begins a stream: passes on the head of its request.
    pub(super) fn begin(
        &mut self,
        stream: StreamKey,
        head: &RequestHead<'_>,
        is_end: bool,
        rng: &mut fastrand::Rng,
    ) {
        self.begin_rejected(stream);
        self.is_extended_connect = head.protocol.is_some();
        // An extended CONNECT is a GET with an upgrade in HTTP/1.1.
        self.kind = match self.is_extended_connect {
            true => RequestKind::Other,
            false => RequestKind::from_method(head.method),
        };
        self.request = match head.content_length {
            _ if self.is_extended_connect || self.kind == RequestKind::Connect => RequestProgress::Tunnel,
            _ if is_end => RequestProgress::Done,
            Some(_) => RequestProgress::Length,
            None => RequestProgress::Chunked,
        };
        let Some(end) = &self.end else { return };
        end.write_with(HEAD_BYTES, |out| write_head(head, is_end, rng, out));
        if is_end && self.request == RequestProgress::Tunnel {
            self.end_request();
        }
    }

    /// Passes on content of the request. Returns false if nobody reads it.
    pub(super) fn write_body(&mut self, bytes: &[u8], is_end: bool) -> bool {
        let Some(end) = self.end.as_ref().filter(|end| !end.is_refused()) else { return false };
        match self.request {
            RequestProgress::Length | RequestProgress::Tunnel => {
                end.write_with(bytes.len(), |out| out.extend_from_slice(bytes));
            }
            RequestProgress::Chunked => {
                end.write_with(bytes.len() + 32, |out| {
                    if !bytes.is_empty() {
                        encode::chunk_head(out, bytes.len() as u64);
                        out.extend_from_slice(bytes);
                        encode::chunk_end(out);
                    }
                    if is_end {
                        out.extend_from_slice(b"0\r\n\r\n");
                    }
                });
            }
            RequestProgress::Done => return false,
        }
        self.unreturned_bytes += bytes.len();
        end.notify_on_space();
        if is_end {
            self.end_request();
        }
        true
    }

    /// Passes on the trailer section of the request. A body of known length cannot have one in
    /// HTTP/1.1.
    pub(super) fn write_trailers(&mut self, fields: &Fields<'_>) {
        if let (Some(end), RequestProgress::Chunked) = (&self.end, self.request) {
            end.write_with(HEAD_BYTES, |out| {
                out.extend_from_slice(b"0\r\n");
                for (name, value) in fields.iter() {
                    encode::field(out, name, value);
                }
                out.extend_from_slice(b"\r\n");
            });
        }
        self.end_request();
    }

    fn end_request(&mut self) {
        if let (Some(end), RequestProgress::Tunnel) = (&self.end, self.request) {
            end.shutdown(Shutdown::Write);
        }
        self.request = RequestProgress::Done;
    }

    /// Returns whether the client's window has blocked the response since the last check, so that less
    /// than `bytes_min` were sent.
    pub(super) fn is_stalled(&mut self, bytes_min: u64) -> bool {
        let progress =
            self.sent_bytes.wrapping_sub(std::mem::replace(&mut self.checked_bytes, self.sent_bytes));
        let has_unsent = self.end.as_ref().is_some_and(|end| !end.received().is_empty());
        self.stream.is_some() && has_unsent && progress < bytes_min.max(1)
    }

    /// Aborts the request: the engine notices that its client has gone.
    pub(super) fn reset(&mut self) {
        if let Some(end) = self.end.take() {
            end.reset();
        }
        self.stream = None;
    }

    /// Ends the stream. The channel stays if the engine `is_kept`.
    pub(super) fn finish(&mut self, is_kept: bool) {
        self.stream = None;
        if !is_kept {
            self.end = None;
        }
    }

    /// Passes on the response, at most one frame of content.
    pub(super) fn serve(&mut self, connection: &mut Connection, limits: &Limits) -> Turn {
        let (Some(stream), Some(end)) = (self.stream, self.end.take()) else { return Turn::Waiting };
        self.return_window(connection, stream, &end);
        let turn = match self.response {
            ResponseProgress::Head => match self.serve_head(connection, stream, &end, limits) {
                Some(turn) => turn,
                None => self.serve_body(connection, stream, &end),
            },
            ResponseProgress::Body => self.serve_body(connection, stream, &end),
            ResponseProgress::Tunnel => self.serve_tunnel(connection, stream, &end),
            ResponseProgress::Sent => self.serve_upload(connection, stream, &end),
        };
        if let Turn::Over { .. } = turn {
            connection.consume(stream, std::mem::take(&mut self.unreturned_bytes));
        }
        self.end = Some(end);
        turn
    }

    /// Returns content that the engine has taken to the client's window.
    fn return_window(&mut self, connection: &mut Connection, stream: StreamKey, end: &ChannelEnd) {
        if self.unreturned_bytes == 0 {
            return;
        }
        let returned = self.unreturned_bytes.saturating_sub(end.unread_bytes());
        if returned > 0 {
            self.unreturned_bytes -= returned;
            connection.consume(stream, returned);
        }
        if self.unreturned_bytes > 0 {
            end.notify_on_space();
        }
    }

    /// Passes on heads. `None`: the final head was sent, and a body follows.
    fn serve_head(
        &mut self,
        connection: &mut Connection,
        stream: StreamKey,
        end: &ChannelEnd,
        limits: &Limits,
    ) -> Option<Turn> {
        loop {
            let received = end.received();
            let mut slots = wire::header_slots();
            let (head, used) = match wire::parse_response(&received, limits, self.kind, &mut slots) {
                Ok(Parsed::Complete { head, bytes }) => (head, bytes),
                Ok(Parsed::Incomplete) if end.receive_state() == ReceiveState::Open => {
                    return Some(Turn::Waiting);
                }
                Ok(Parsed::Incomplete) | Err(_) => {
                    return Some(reset(connection, stream, ErrorCode::INTERNAL_ERROR));
                }
            };
            let is_success = (200..300).contains(&head.status);
            let is_accepted =
                head.is_switching_protocols() || self.kind == RequestKind::Connect && is_success;
            if self.is_extended_connect && is_success {
                // The server did not change the protocol; the client would take this for a success.
                connection.send_headers(stream, true, |fields| fields.status(502));
                return Some(self.end_response(connection, stream, end, false));
            }
            let is_interim = head.is_informational() && !is_accepted;
            let mut is_end = false;
            if is_accepted {
                self.response = ResponseProgress::Tunnel;
            } else if !is_interim {
                self.response = ResponseProgress::Body;
                self.keeps_engine = head.keep_alive;
                self.decoder = BodyDecoder::new(head.framing, limits);
                is_end = self.decoder.is_done();
            }
            send_head(connection, stream, &head, is_end);
            drop(received);
            end.consume(used);
            match self.response {
                ResponseProgress::Tunnel => return Some(self.serve_tunnel(connection, stream, end)),
                _ if is_end => return Some(self.end_response(connection, stream, end, self.keeps_engine)),
                ResponseProgress::Body => return None,
                _ => {}
            }
        }
    }

    /// Passes on content.
    fn serve_body(&mut self, connection: &mut Connection, stream: StreamKey, end: &ChannelEnd) -> Turn {
        let received = end.received();
        let state = end.receive_state();
        let sendable = connection.sendable_bytes(stream);
        if received.is_empty() {
            return match state {
                ReceiveState::Open => Turn::Waiting,
                ReceiveState::Ended if self.decoder.handle_eof().is_ok() => {
                    connection.send_data(stream, &[], true);
                    self.end_response(connection, stream, end, false)
                }
                _ => reset(connection, stream, ErrorCode::INTERNAL_ERROR),
            };
        }
        if sendable == 0 && state == ReceiveState::Reset {
            return reset(connection, stream, ErrorCode::INTERNAL_ERROR);
        }
        let Ok((used, is_end)) = self.send_content(connection, stream, &received, sendable) else {
            return reset(connection, stream, ErrorCode::INTERNAL_ERROR);
        };
        let has_more = used < received.len() || state != ReceiveState::Open;
        drop(received);
        end.consume(used);
        self.sent_bytes = self.sent_bytes.wrapping_add(used as u64);
        match is_end {
            true => self.end_response(connection, stream, end, self.keeps_engine),
            false if used > 0 && has_more => Turn::More,
            false => Turn::Waiting,
        }
    }

    /// Sends one turn's content, without its framing in HTTP/1.1. Returns the number of bytes used, and
    /// whether the response is complete.
    fn send_content(
        &mut self,
        connection: &mut Connection,
        stream: StreamKey,
        received: &[u8],
        sendable: usize,
    ) -> Result<(usize, bool), wire::Refusal> {
        let mut left = sendable.min(TURN_BYTES);
        let mut used = 0;
        // The last piece waits for what follows it: the end belongs into its frame.
        let mut held = 0..0;
        let mut is_end = false;
        while !is_end && used < received.len() {
            // Framing needs no window, so it is decoded up to the next content.
            if left == 0 && self.decoder.expects_content() {
                break;
            }
            let limit = received.len().min(used + left.max(1));
            let step = self.decoder.decode(&received[used..limit])?;
            if !step.data.is_empty() {
                send_piece(connection, stream, &received[held.clone()], false);
                held = used + step.data.start..used + step.data.end;
                left -= step.data.len();
            }
            used += step.consumed;
            is_end = step.end;
            if step.consumed == 0 {
                break;
            }
        }
        if !is_end {
            send_piece(connection, stream, &received[held], false);
        } else if self.decoder.trailers().is_empty() {
            connection.send_data(stream, &received[held], true);
        } else {
            send_piece(connection, stream, &received[held], false);
            let trailers = self.decoder.trailers();
            connection.send_headers(stream, true, |fields| write_trailers(fields, trailers));
        }
        Ok((used, is_end))
    }

    /// Passes on bytes of another protocol.
    fn serve_tunnel(&mut self, connection: &mut Connection, stream: StreamKey, end: &ChannelEnd) -> Turn {
        let received = end.received();
        if received.is_empty() {
            return match end.receive_state() {
                ReceiveState::Open => Turn::Waiting,
                ReceiveState::Ended => {
                    connection.send_data(stream, &[], true);
                    self.response = ResponseProgress::Sent;
                    drop(received);
                    self.serve_upload(connection, stream, end)
                }
                ReceiveState::Reset => reset(connection, stream, ErrorCode::CONNECT_ERROR),
            };
        }
        let bytes = received.len().min(TURN_BYTES).min(connection.sendable_bytes(stream));
        send_piece(connection, stream, &received[..bytes], false);
        let has_more = bytes < received.len() || end.receive_state() != ReceiveState::Open;
        drop(received);
        end.consume(bytes);
        self.sent_bytes = self.sent_bytes.wrapping_add(bytes as u64);
        if bytes > 0 && has_more { Turn::More } else { Turn::Waiting }
    }

    /// Ends a tunnel whose server has ended its side, once the client has, too.
    fn serve_upload(&mut self, connection: &mut Connection, stream: StreamKey, end: &ChannelEnd) -> Turn {
        match self.request {
            RequestProgress::Done => Turn::Over { keeps_engine: false, reset: None },
            _ if end.is_refused() => reset(connection, stream, ErrorCode::NO_ERROR),
            _ => Turn::Waiting,
        }
    }

    /// Ends a stream after its response. The rest of a request that is not complete is not wanted (RFC
    /// 9113 §8.1).
    fn end_response(
        &mut self,
        connection: &mut Connection,
        stream: StreamKey,
        end: &ChannelEnd,
        keeps_engine: bool,
    ) -> Turn {
        if self.request != RequestProgress::Done {
            return reset(connection, stream, ErrorCode::NO_ERROR);
        }
        let is_open = end.receive_state() == ReceiveState::Open && !end.is_refused();
        Turn::Over { keeps_engine: keeps_engine && is_open, reset: None }
    }
}

/// Resets a stream, for example because its response is missing or incomplete.
fn reset(connection: &mut Connection, stream: StreamKey, code: ErrorCode) -> Turn {
    connection.reset(stream, code);
    Turn::Over { keeps_engine: false, reset: Some(code) }
}

fn send_piece(connection: &mut Connection, stream: StreamKey, bytes: &[u8], is_end: bool) {
    if !bytes.is_empty() {
        connection.send_data(stream, bytes, is_end);
    }
}

/// Sends the head of a response. Fields of a connection are left out. A changed protocol is 200, and
/// has no key to confirm (RFC 8441 §5).
fn send_head(
    connection: &mut Connection,
    stream: StreamKey,
    head: &wire::ResponseHead<'_, '_>,
    is_end: bool,
) {
    let is_switching = head.is_switching_protocols();
    connection.send_headers(stream, is_end, |fields| {
        fields.status(if is_switching { 200 } else { head.status });
        for header in head.headers {
            if !(is_switching && header.name.eq_ignore_ascii_case("sec-websocket-accept")) {
                fields.field(header.name, header.value);
            }
        }
    });
}

/// Writes field lines of HTTP/1.1, which were checked.
fn write_trailers(fields: &mut FieldEncoder<'_>, lines: &[u8]) {
    for line in lines.split(|&byte| byte == b'\n') {
        let mut parts = line.splitn(2, |&byte| byte == b':');
        if let (Some(Ok(name)), Some(value)) = (parts.next().map(std::str::from_utf8), parts.next()) {
            fields.field(name, value.trim_ascii());
        }
    }
}
