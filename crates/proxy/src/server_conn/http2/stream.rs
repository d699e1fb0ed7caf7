//! One stream connection at its HTTP/2 end: requests of the engine become streams, one after the
//! other, and their responses text of HTTP/1.1.
//!
//! ```text
//! Idle --head of a request--> Open --both directions ended--> Idle
//!                              |  2xx to CONNECT: a tunnel, which ends with its connection
//!                              '--reset, or the engine has gone--> removed
//! ```

use std::cell::Cell;
use std::net::Shutdown;
use std::rc::Rc;

use rt::byte_channel::{ChannelEnd, ReceiveState};
use wire::h2::{Connection, ErrorCode, FaultKind, Fields, OpenError, ResponseHead, StreamKey};
use wire::{BodyDecoder, Framing, Limits, RequestKind};

use super::conn::ServerHttp2Conn;
use super::request::{EngineHead, Purpose, encode_trailers};
use super::response::{
    CHUNK_OVERHEAD, ResponseContext, ResponseFraming, write_content, write_head, write_interim,
    write_trailers,
};

/// Maximum number of unread bytes in each direction of a stream connection: a head must fit, with
/// everything that routes add to it.
pub(super) const CHANNEL_BYTES_MAX: usize = 128 * 1024;
/// Unread content from which the server's window follows the engine exactly. Less is returned with the
/// next event of the stream.
const TRACKED_BYTES_MIN: usize = 16 * 1024;

/// End of a stream connection, as far as the engine has to know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamEnd {
    Reset(ErrorCode),
    /// The server broke the rules of HTTP/2 in the stream, or a limit.
    Invalid(FaultKind),
    ConnectionLost,
}

/// State that both ends of a stream connection share.
#[derive(Debug)]
pub(crate) struct StreamConn {
    pub(super) conn: Rc<ServerHttp2Conn>,
    pub(super) end: Cell<Option<StreamEnd>>,
    /// True while the connection keeps a place for its next request.
    is_reserved: Cell<bool>,
}

/// Need of a stream after it was served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Nothing: an event or the engine brings it forward.
    Wait,
    /// The server accepts no further stream now.
    WaitForStream,
    /// Its request waits until the output is written.
    WaitForOutput,
    /// The connection accepts no further stream at all.
    ConnectionClosed,
    /// The stream connection is over: it is removed.
    Remove,
}

/// One stream connection.
#[derive(Debug)]
pub(super) struct ServerHttp2Stream {
    pub(super) end: ChannelEnd,
    pub(super) shared: Rc<StreamConn>,
    /// The current stream; `None`: idle.
    pub(super) open: Option<OpenStream>,
    /// The last stream whose content is not all returned to the windows.
    last_key: Option<StreamKey>,
    /// Content delivered to the engine and not returned to the windows.
    unreturned: usize,
}

#[derive(Debug)]
pub(super) struct OpenStream {
    pub(super) key: StreamKey,
    kind: RequestKind,
    purpose: Purpose,
    websocket_key: Option<Box<[u8]>>,
    body: RequestBody,
    /// `None`: before the final head.
    framing: Option<ResponseFraming>,
    /// True if a head, also an interim one, was received.
    has_response: bool,
    is_response_done: bool,
}

/// Progress of a request's body.
#[derive(Debug)]
struct RequestBody {
    /// `None`: bytes of a tunnel.
    decoder: Option<BodyDecoder>,
    /// Content at the start of the received bytes.
    content_left: usize,
    /// Framing behind that content.
    framing_left: usize,
    /// True if the message ends behind both.
    is_last: bool,
    is_done: bool,
    /// True if the rest is discarded, because the server does not need it.
    is_discarded: bool,
}

/// Maximum number of bytes of output for which requests' bodies are added to it.
pub(super) const OUTPUT_BYTES_MAX: usize = 128 * 1024;

impl ServerHttp2Stream {
    pub(super) fn new(end: ChannelEnd, shared: Rc<StreamConn>) -> Self {
        Self { end, shared, open: None, last_key: None, unreturned: 0 }
    }

    /// Moves the engine's bytes to the server.
    pub(super) fn serve(&mut self, wire: &mut Connection, scheme: &str) -> Next {
        self.return_windows(wire);
        loop {
            if self.end.is_refused() || self.end.receive_state() == ReceiveState::Reset {
                return Next::Remove;
            }
            if self.open.as_ref().is_some_and(OpenStream::is_over) && self.close() {
                return Next::Remove;
            }
            let Some(open) = &mut self.open else {
                if self.shared.conn.is_draining() {
                    return Next::Remove;
                }
                match self.begin(wire, scheme) {
                    Some(next) => return next,
                    None => continue,
                }
            };
            if open.body.is_done {
                // Further bytes are the next request, which waits for the end of the response.
                return Next::Wait;
            }
            if wire.output().len() >= OUTPUT_BYTES_MAX {
                return Next::WaitForOutput;
            }
            match open.body.send(&self.end, wire, open.key) {
                Ok(true) => {}
                Ok(false) => return Next::Wait,
                Err(()) => return Next::Remove,
            }
        }
    }

    /// Ends the stream after both directions. Returns whether the stream connection is over, too.
    fn close(&mut self) -> bool {
        let was_tunnel = self.open.take().is_some_and(|open| open.framing == Some(ResponseFraming::Tunnel));
        self.shared.conn.note_ended();
        was_tunnel
    }

    /// Begins the next request, if its head is complete. Returns `None` to go on with it.
    fn begin(&mut self, wire: &mut Connection, scheme: &str) -> Option<Next> {
        let received = self.end.received();
        if received.is_empty() {
            let has_ended = self.end.receive_state() != ReceiveState::Open;
            return Some(if has_ended { Next::Remove } else { Next::Wait });
        }
        let head = match EngineHead::split(&received) {
            Ok(Some(head)) => head,
            Ok(None) if received.len() < CHANNEL_BYTES_MAX => return Some(Next::Wait),
            Ok(None) | Err(()) => {
                self.shared.end.set(Some(StreamEnd::Reset(ErrorCode::INTERNAL_ERROR)));
                self.end.reset_on_close();
                return Some(Next::Remove);
            }
        };
        if !self.shared.reserve() {
            return Some(Next::Remove);
        }
        let key = match wire.open_stream() {
            Ok(key) => key,
            Err(OpenError::Full) => return Some(Next::WaitForStream),
            Err(OpenError::Closed) => return Some(Next::ConnectionClosed),
        };
        let is_end = head.is_end();
        wire.send_headers(key, is_end, |encoder| head.encode(scheme, encoder));
        let open = OpenStream {
            key,
            kind: head.kind(),
            purpose: head.purpose(),
            websocket_key: head.websocket_key().map(Into::into),
            body: RequestBody::new(head.framing, head.purpose(), is_end),
            framing: None,
            has_response: false,
            is_response_done: false,
        };
        let bytes = head.bytes;
        drop(received);
        self.end.consume(bytes);
        self.release_windows(wire);
        self.last_key = Some(key);
        self.shared.is_reserved.set(false);
        self.shared.conn.note_begun();
        self.open = Some(open);
        None
    }

    /// Delivers a head. Returns whether the stream has to be served.
    pub(super) fn receive_head(&mut self, head: &ResponseHead<'_>, is_end: bool) -> bool {
        let Some(open) = &mut self.open else { return false };
        open.has_response = true;
        if head.status < 200 {
            self.end.write_with(HEAD_BYTES, |out| write_interim(head, out));
            return false;
        }
        let context = ResponseContext {
            kind: open.kind,
            purpose: open.purpose,
            websocket_key: open.websocket_key.as_deref(),
        };
        let framing = self.end.write_with(HEAD_BYTES, |out| write_head(head, is_end, &context, out));
        open.framing = Some(framing);
        let is_rejected_tunnel = open.purpose != Purpose::Exchange && framing != ResponseFraming::Tunnel;
        if is_rejected_tunnel {
            open.body.end_now();
        }
        (is_end && self.end_response()) || is_rejected_tunnel
    }

    /// Delivers content. Returns whether the stream has to be served.
    #[inline]
    pub(super) fn receive_content(&mut self, bytes: &[u8], is_end: bool) -> bool {
        self.unreturned += bytes.len();
        self.shared.conn.note_delivered(bytes.len());
        let Some(framing) = self.open.as_ref().and_then(|open| open.framing) else { return false };
        self.end.write_with(bytes.len() + CHUNK_OVERHEAD, |out| write_content(framing, bytes, is_end, out));
        if framing == ResponseFraming::None || self.end.is_refused() {
            // Nobody reads it.
            return is_end && self.end_response() || !bytes.is_empty();
        }
        if self.tracks_exactly(self.end.unread_bytes()) {
            self.end.notify_on_space();
        }
        is_end && self.end_response()
    }

    /// Delivers the end of the content with a trailer section. Returns whether the stream has to be served.
    pub(super) fn receive_trailers(&mut self, fields: Fields<'_>) -> bool {
        let Some(framing) = self.open.as_ref().and_then(|open| open.framing) else { return false };
        self.end.write_with(HEAD_BYTES, |out| write_trailers(framing, fields, out));
        self.end_response()
    }

    /// Handles a stream that is over before its end. Returns whether the stream connection is over,
    /// too.
    pub(super) fn receive_reset(&mut self, end: StreamEnd, is_unprocessed: bool) -> bool {
        let Some(open) = &mut self.open else { return false };
        if open.is_response_done {
            // The server does not need the rest of the request (RFC 9113 §8.1).
            open.body.is_discarded = true;
            return false;
        }
        if !is_unprocessed || open.has_response {
            self.shared.end.set(Some(end));
            self.end.reset_on_close();
        }
        self.close();
        true
    }

    /// Ends the stream connection together with its connection.
    pub(super) fn lose(&mut self) {
        if self.open.as_ref().is_some_and(|open| !open.is_response_done) {
            self.shared.end.set(Some(StreamEnd::ConnectionLost));
            self.end.reset_on_close();
        }
    }

    /// Returns the place that the connection keeps for a request, if none came.
    pub(super) fn cancel_reservation(&self) {
        if self.shared.is_reserved.take() {
            self.shared.conn.requests.cancel_reservation();
        }
    }

    /// Cancels the current stream, because the engine has gone. Returns whether there was one.
    pub(super) fn cancel(&mut self, wire: &mut Connection) -> bool {
        self.release_windows(wire);
        let Some(mut open) = self.open.take() else { return false };
        self.shared.conn.note_ended();
        if open.is_response_done {
            open.body.finish_tunnel(&self.end, wire, open.key);
        }
        let is_over = open.body.is_discarded || open.is_over();
        if !is_over {
            wire.reset(open.key, ErrorCode::CANCEL);
        }
        !is_over
    }

    /// Returns content that the engine has taken to the windows.
    pub(super) fn return_windows(&mut self, wire: &mut Connection) {
        if self.unreturned == 0 {
            return;
        }
        let is_discarded = self.end.is_refused()
            || self.open.as_ref().is_some_and(|open| open.framing == Some(ResponseFraming::None));
        let unread = if is_discarded { 0 } else { self.end.unread_bytes() };
        let returned = self.unreturned.saturating_sub(unread);
        if let (Some(key), true) = (self.last_key, returned > 0) {
            wire.consume(key, returned);
            self.unreturned -= returned;
            self.shared.conn.note_returned(returned);
        }
        if self.unreturned > 0 && self.tracks_exactly(unread) {
            self.end.notify_on_space();
        }
    }

    fn release_windows(&mut self, wire: &mut Connection) {
        if let (Some(key), true) = (self.last_key, self.unreturned > 0) {
            wire.consume(key, self.unreturned);
            self.shared.conn.note_returned(self.unreturned);
        }
        self.unreturned = 0;
    }

    /// Returns whether each read of the engine is returned to the windows at once.
    fn tracks_exactly(&self, unread: usize) -> bool {
        unread >= TRACKED_BYTES_MIN || unread > 0 && self.shared.conn.is_window_scarce()
    }

    /// Notes the end of the response. Returns whether the stream has to be served.
    fn end_response(&mut self) -> bool {
        let Some(open) = &mut self.open else { return false };
        open.is_response_done = true;
        if open.framing == Some(ResponseFraming::Tunnel) {
            self.end.shutdown(Shutdown::Write);
        }
        if !open.body.is_done {
            return false;
        }
        // Mostly nothing is left to do until the next request.
        let needs_service = open.framing == Some(ResponseFraming::Tunnel)
            || self.shared.conn.is_draining()
            || !self.end.received().is_empty();
        if !needs_service {
            self.close();
        }
        needs_service
    }
}

impl OpenStream {
    fn is_over(&self) -> bool {
        self.is_response_done && self.body.is_done
    }
}

impl StreamConn {
    pub(super) fn new(conn: Rc<ServerHttp2Conn>) -> Self {
        Self { conn, end: Cell::new(None), is_reserved: Cell::new(false) }
    }

    /// Keeps a place for the next request on the connection. Returns false if it accepts no further one: the
    /// request must not be written, because its content may be too long to be sent again.
    #[inline]
    pub(crate) fn reserve(&self) -> bool {
        self.is_reserved.get() || {
            let has_room = self.conn.requests.has_room();
            if has_room {
                self.conn.requests.reserve();
                self.is_reserved.set(true);
            }
            has_room
        }
    }

    /// Returns the reason of its end, if the engine got an error or the end of the stream.
    pub(crate) fn end(&self) -> Option<StreamEnd> {
        self.end.get()
    }

    /// Returns whether its server accepts WebSocket handshakes (RFC 8441).
    pub(crate) fn supports_upgrade(&self) -> bool {
        self.conn.supports_connect()
    }
}

impl RequestBody {
    fn new(framing: Framing, purpose: Purpose, is_done: bool) -> Self {
        let decoder = (purpose == Purpose::Exchange).then(|| BodyDecoder::new(framing, &trusted_limits()));
        Self { decoder, content_left: 0, framing_left: 0, is_last: false, is_done, is_discarded: false }
    }

    fn end_now(&mut self) {
        self.is_last = !self.is_done;
    }

    /// Sends the rest of a tunnel whose server has ended its side, and the end, as far as the windows allow: the
    /// engine may leave as soon as it has the end of the client.
    fn finish_tunnel(&mut self, end: &ChannelEnd, wire: &mut Connection, key: StreamKey) {
        let is_tunnel = self.decoder.is_none();
        while is_tunnel && !self.is_done && self.send(end, wire, key) == Ok(true) {}
    }

    /// Sends a piece of the body. Returns whether to go on: false if the engine or the server has to
    /// do something first.
    ///
    /// # Errors
    /// The engine ended its direction in the middle of the body.
    fn send(&mut self, end: &ChannelEnd, wire: &mut Connection, key: StreamKey) -> Result<bool, ()> {
        if self.content_left == 0 && !self.is_last && !self.decode(end)? {
            return Ok(false);
        }
        if self.is_discarded {
            end.consume(self.content_left + self.framing_left);
            (self.content_left, self.framing_left) = (0, 0);
            self.is_done = self.is_last;
            return Ok(true);
        }
        let trailers = self.decoder.as_ref().map_or(&[][..], BodyDecoder::trailers);
        if self.content_left > 0 {
            let offered = wire.sendable_bytes(key).min(self.content_left);
            if offered == 0 {
                return Ok(false);
            }
            let is_end = self.is_last && offered == self.content_left && trailers.is_empty();
            let sent = wire.send_data(key, &end.received()[..offered], is_end);
            end.consume(sent);
            self.content_left -= sent;
            if self.content_left > 0 {
                return Ok(sent > 0);
            }
            self.is_done = is_end;
        }
        end.consume(self.framing_left);
        self.framing_left = 0;
        if self.is_last && !self.is_done {
            self.is_done = true;
            match trailers.is_empty() {
                true => drop(wire.send_data(key, &[], true)),
                false => wire.send_headers(key, true, |encoder| encode_trailers(trailers, encoder)),
            }
        }
        Ok(true)
    }

    /// Finds the next content in the received bytes. Returns whether there is something to send, or to
    /// remove.
    fn decode(&mut self, end: &ChannelEnd) -> Result<bool, ()> {
        let received = end.received();
        let Some(decoder) = &mut self.decoder else {
            self.content_left = received.len();
            self.is_last = received.is_empty() && end.receive_state() != ReceiveState::Open;
            return Ok(self.content_left > 0 || self.is_last);
        };
        if received.is_empty() {
            return if end.receive_state() == ReceiveState::Open { Ok(false) } else { Err(()) };
        }
        let step = decoder.decode(&received).map_err(|_| ())?;
        drop(received);
        end.consume(step.data.start);
        self.content_left = step.data.len();
        self.framing_left = step.consumed - step.data.end;
        self.is_last = step.end;
        Ok(step.consumed > 0)
    }
}

/// Returns the limits of bodies whose framing the engine has written.
fn trusted_limits() -> Limits {
    Limits { trailer_bytes_max: CHANNEL_BYTES_MAX, ..Limits::default() }
}

/// Expected size of a head.
const HEAD_BYTES: usize = 512;
