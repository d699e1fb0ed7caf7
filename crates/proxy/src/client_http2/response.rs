//! The response of a stream: HTTP/1.1 out of its channel, frames into the output.

use std::cell::Ref;
use std::ops::Range;

use rt::byte_channel::{ChannelEnd, ReceiveState};
use wire::h2::{Connection, ErrorCode, StreamKey};
use wire::{BodyDecoder, Framing, Limits, RequestKind};

use super::output::Output;
use super::response_head::{EngineHead, LastHead, is_empty, write_lines};
use super::stream_channel::{RequestProgress, ResponseProgress, StreamChannel, Turn};

/// Maximum content that a stream sends before the next one: one frame.
const TURN_BYTES: usize = 16 * 1024;

struct SentContent {
    /// Number of received bytes used, with their framing.
    used: usize,
    /// True if the response is complete.
    is_end: bool,
    /// True if some of the bytes are still to be written from the channel.
    is_deferred: bool,
}

impl StreamChannel {
    /// Passes on the response, at most one frame of content.
    pub(super) fn serve(
        &mut self,
        connection: &mut Connection,
        output: &mut Output,
        heads: (&Limits, &mut LastHead),
    ) -> Turn {
        let (Some(stream), Some(end)) = (self.stream, self.end.take()) else { return Turn::Waiting };
        self.return_window(connection, stream, &end);
        let turn = match self.response {
            ResponseProgress::Head => match self.serve_head(connection, stream, &end, heads) {
                Some(turn) => turn,
                None => self.serve_body(connection, output, stream, &end),
            },
            ResponseProgress::Body => self.serve_body(connection, output, stream, &end),
            ResponseProgress::Tunnel => self.serve_tunnel(connection, stream, &end),
            ResponseProgress::Held => self.serve_held(connection, stream, &end),
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
        (limits, last_head): (&Limits, &mut LastHead),
    ) -> Option<Turn> {
        loop {
            let received = end.received();
            let text = (&*received, self.kind);
            let is_received = self.request == RequestProgress::Done;
            if is_received
                && !self.is_extended_connect
                && let Some(head) = last_head.send_again(connection, stream, text)
            {
                drop(received);
                end.consume(head.bytes);
                return self.begin_body(connection, stream, end, (head.framing, head.keeps_engine, limits));
            }
            let head = match EngineHead::split(&received, self.kind) {
                Ok(Some(head)) => head,
                Ok(None) if end.receive_state() == ReceiveState::Open => return Some(Turn::Waiting),
                Ok(None) | Err(()) => return Some(reset_early(connection, stream, end)),
            };
            let (bytes, framing, keeps_engine) = (head.bytes, head.framing, head.keeps_engine);
            let is_success = (200..300).contains(&head.status);
            let is_accepted = head.status == 101 || self.kind == RequestKind::Connect && is_success;
            let is_interim = head.is_informational();
            // A client stops to send at another final status.
            self.ends_with_response = is_success && self.request != RequestProgress::Tunnel;
            let ends_here = !is_received && !is_interim && is_empty(framing);
            if ends_here && self.open_windows(connection, stream) {
                // The end is sent later.
                head.send(connection, stream, false);
                drop(received);
                end.consume(bytes);
                self.decoder = BodyDecoder::new(framing, limits);
                self.response = ResponseProgress::Held;
                return Some(self.serve_held(connection, stream, end));
            }
            if self.is_extended_connect && is_success {
                // The server did not change the protocol; the client would take this for a success.
                connection.send_headers(stream, true, |fields| fields.status(502));
                return Some(self.end_response(connection, stream, end, false));
            } else if is_accepted || is_interim {
                head.send(connection, stream, false);
            } else {
                last_head.send_and_keep(connection, stream, &head, text);
            }
            drop(received);
            end.consume(bytes);
            if is_accepted {
                self.response = ResponseProgress::Tunnel;
                return Some(self.serve_tunnel(connection, stream, end));
            } else if !is_interim {
                return self.begin_body(connection, stream, end, (framing, keeps_engine, limits));
            }
        }
    }

    /// Begins the body after the final head. `None`: it has content.
    fn begin_body(
        &mut self,
        connection: &mut Connection,
        stream: StreamKey,
        end: &ChannelEnd,
        (framing, keeps_engine, limits): (Framing, bool, &Limits),
    ) -> Option<Turn> {
        self.response = ResponseProgress::Body;
        self.keeps_engine = keeps_engine;
        self.decoder = BodyDecoder::new(framing, limits);
        is_empty(framing).then(|| self.end_response(connection, stream, end, keeps_engine))
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
                    if self.open_windows(connection, stream) {
                        self.response = ResponseProgress::Held;
                        drop(received);
                        return self.serve_held(connection, stream, end);
                    }
                    connection.send_data(stream, &[], true);
                    self.end_response(connection, stream, end, false)
                }
                _ => reset_early(connection, stream, end),
            };
        }
        if sendable == 0 && state == ReceiveState::Reset {
            return reset_early(connection, stream, end);
        }
        let Ok(sent) = self.send_content(connection, output, stream, &received, sendable) else {
            return reset(connection, stream, ErrorCode::INTERNAL_ERROR);
        };
        let has_more = sent.used < received.len() || state != ReceiveState::Open;
        drop(received);
        self.consume(end, sent.used, sent.is_deferred);
        match sent.is_end {
            true if self.response == ResponseProgress::Held => self.serve_held(connection, stream, end),
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
        let has_length = self.decoder.remaining_length().is_some();
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
        if is_end && self.open_windows(connection, stream) && !has_length {
            send(connection, held);
            self.response = ResponseProgress::Held;
            return Ok(SentContent { used, is_end, is_deferred });
        }
        if is_end && self.decoder.trailers().is_empty() {
            connection.send_data(stream, &received[held], true);
        } else {
            send(connection, held);
        }
        let trailers = self.decoder.trailers();
        if !trailers.is_empty() {
            connection.send_headers(stream, true, |fields| write_lines(fields, trailers, |_| false));
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

    /// Ends a stream whose response, or whose server's side of a tunnel, has ended, once the client has ended its
    /// side, too, or the engine accepts no more of it.
    fn serve_upload(&mut self, connection: &mut Connection, stream: StreamKey, end: &ChannelEnd) -> Turn {
        match self.request {
            RequestProgress::Done => Turn::Over { keeps_engine: false, reset: None },
            _ if end.is_refused() || self.ends_with_response => {
                reset(connection, stream, ErrorCode::NO_ERROR)
            }
            _ => Turn::Waiting,
        }
    }

    /// Lets a client send the rest of its request behind the end of the response.
    /// Returns true if the end of a response without length has to wait for that rest: read together with
    /// the windows, it would keep curl 7.88 from using them, and without them it loses the response. It does
    /// not wait for a rest of unknown length, which a client may end only behind the response.
    fn open_windows(&mut self, connection: &mut Connection, stream: StreamKey) -> bool {
        let is_success = self.ends_with_response;
        if !matches!(self.request, RequestProgress::Length | RequestProgress::Chunked) {
            return false;
        }
        let fits = connection.open_windows_for_rest(stream).is_some();
        self.ends_with_response = is_success && !fits;
        is_success && self.request == RequestProgress::Length
    }

    /// Ends a response once the client has sent the rest of its request, or the engine accepts no more.
    fn serve_held(&mut self, connection: &mut Connection, stream: StreamKey, end: &ChannelEnd) -> Turn {
        if self.request != RequestProgress::Done && !end.is_refused() {
            return Turn::Waiting;
        }
        match self.decoder.trailers() {
            [] => _ = connection.send_data(stream, &[], true),
            trailers => {
                connection.send_headers(stream, true, |fields| write_lines(fields, trailers, |_| false))
            }
        }
        self.response = ResponseProgress::Sent;
        self.serve_upload(connection, stream, end)
    }

    /// Ends a stream after its response. The rest of a request that is not complete is not wanted (RFC
    /// 9113 §8.1), but a client that gets RST_STREAM while it sends may drop the response, as curl 7.88 does:
    /// so the engine discards a bounded rest first, as on a connection of HTTP/1.1 (`conn/lingering`).
    fn end_response(
        &mut self,
        connection: &mut Connection,
        stream: StreamKey,
        end: &ChannelEnd,
        keeps_engine: bool,
    ) -> Turn {
        if self.request != RequestProgress::Done {
            self.response = ResponseProgress::Sent;
            return self.serve_upload(connection, stream, end);
        }
        let is_open = end.receive_state() == ReceiveState::Open && !end.is_refused();
        Turn::Over { keeps_engine: keeps_engine && is_open, reset: None }
    }
}

/// Resets a stream whose response is missing or incomplete, with the code of its server if there is one.
fn reset_early(connection: &mut Connection, stream: StreamKey, end: &ChannelEnd) -> Turn {
    reset(connection, stream, end.reset_code().map_or(ErrorCode::INTERNAL_ERROR, ErrorCode))
}

fn reset(connection: &mut Connection, stream: StreamKey, code: ErrorCode) -> Turn {
    connection.reset(stream, code);
    Turn::Over { keeps_engine: false, reset: Some(code) }
}
