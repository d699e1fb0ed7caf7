//! The response of a stream: HTTP/1.1 out of its channel, frames into the output.

use std::cell::Ref;
use std::ops::Range;

use rt::byte_channel::{ChannelEnd, ReceiveState};
use wire::h2::{Connection, ErrorCode, FieldEncoder, StreamKey};
use wire::{BodyDecoder, Limits, Parsed, RequestKind};

use super::lane::{Lane, RequestProgress, ResponseProgress, Turn};
use super::output::Output;

/// Maximum content that a stream sends before the next one: one frame.
const TURN_BYTES: usize = 16 * 1024;

/// Result of sending content.
struct SentContent {
    /// Number of received bytes used, with their framing.
    used: usize,
    /// True if the response is complete.
    is_end: bool,
    /// True if some of the bytes are still to be written from the channel.
    is_deferred: bool,
}

impl Lane {
    /// Passes on the response, at most one frame of content.
    pub(super) fn serve(
        &mut self,
        connection: &mut Connection,
        output: &mut Output,
        limits: &Limits,
    ) -> Turn {
        let (Some(stream), Some(end)) = (self.stream, self.end.take()) else { return Turn::Waiting };
        self.return_window(connection, stream, &end);
        let turn = match self.response {
            ResponseProgress::Head => match self.serve_head(connection, stream, &end, limits) {
                Some(turn) => turn,
                None => self.serve_body(connection, output, stream, &end),
            },
            ResponseProgress::Body => self.serve_body(connection, output, stream, &end),
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
    fn serve_body(
        &mut self,
        connection: &mut Connection,
        output: &mut Output,
        stream: StreamKey,
        end: &ChannelEnd,
    ) -> Turn {
        let received = Ref::map(end.received(), |bytes| &bytes[self.deferred_bytes..]);
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
        let Ok(sent) = self.send_content(connection, output, stream, &received, sendable) else {
            return reset(connection, stream, ErrorCode::INTERNAL_ERROR);
        };
        let has_more = sent.used < received.len() || state != ReceiveState::Open;
        drop(received);
        self.consume(end, sent.used, sent.is_deferred);
        match sent.is_end {
            true => self.end_response(connection, stream, end, self.keeps_engine),
            false if sent.used > 0 && has_more => Turn::More,
            false => Turn::Waiting,
        }
    }

    /// Sends one turn's content, without its framing in HTTP/1.1.
    fn send_content(
        &mut self,
        connection: &mut Connection,
        output: &mut Output,
        stream: StreamKey,
        received: &[u8],
        sendable: usize,
    ) -> Result<SentContent, wire::Refusal> {
        let (number, offset) = (self.number, self.deferred_bytes);
        let mut is_deferred = false;
        let mut send = |connection: &mut Connection, piece: Range<usize>| {
            let position = (number, offset + piece.start);
            is_deferred |= output.send_data(connection, stream, position, &received[piece]);
        };
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
                send(connection, held);
                held = used + step.data.start..used + step.data.end;
                left -= step.data.len();
            }
            used += step.consumed;
            is_end = step.end;
            if step.consumed == 0 {
                break;
            }
        }
        if is_end && self.decoder.trailers().is_empty() {
            connection.send_data(stream, &received[held], true);
        } else {
            send(connection, held);
        }
        let trailers = self.decoder.trailers();
        if !trailers.is_empty() {
            connection.send_headers(stream, true, |fields| write_trailers(fields, trailers));
        }
        Ok(SentContent { used, is_end, is_deferred })
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
        if bytes > 0 {
            connection.send_data(stream, &received[..bytes], false);
        }
        let has_more = bytes < received.len() || end.receive_state() != ReceiveState::Open;
        drop(received);
        self.consume(end, bytes, false);
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
