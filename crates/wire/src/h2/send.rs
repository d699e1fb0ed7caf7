//! Sent frames: heads, content, resets, windows, GOAWAY, PING.

use super::config::{Role, StreamKey};
use super::connection::{Connection, OpenError, Step};
use super::encoder::{FieldEncoder, WrittenHead};
use super::fault::{ErrorCode, FaultKind};
use super::frame::{self, HEADER_BYTES, STREAM_ID_MAX, flag, frame_type};
use super::streams::Progress;

/// Payload of the PING behind a request that ended later than its response.
pub(super) const END_PAYLOAD: u64 = u64::from_be_bytes(*b"end\0\0\0\0\0");

impl Connection {
    /// Opens a stream (client). Its request must be sent, or it must be reset, before the next one
    /// is opened: the identifiers of requests increase on the wire (RFC 9113 §5.1.1).
    ///
    /// # Errors
    /// There is no room for it.
    pub fn open_stream(&mut self) -> Result<StreamKey, OpenError> {
        if !self.may_open() {
            return Err(OpenError::Closed);
        }
        if self.streams.open() >= self.peer.streams_max as usize {
            return Err(OpenError::Full);
        }
        let id = self.next_stream;
        self.next_stream += 2;
        Ok(self.streams.insert(self.new_stream(id)))
    }

    /// Sends a head or a trailer section: a request, an interim or final response, trailers.
    /// Does nothing if the stream is over, or this end has ended it. Trailers always end it.
    pub fn send_headers(
        &mut self,
        stream: StreamKey,
        is_end: bool,
        write: impl FnOnce(&mut FieldEncoder<'_>),
    ) {
        let Some(open) = self.streams.get_open(stream) else { return };
        if open.send == Progress::Done {
            return;
        }
        let is_end = is_end || open.send == Progress::Body;
        let start = self.output.len();
        self.output.extend_from_slice(&[0; HEADER_BYTES]);
        self.encoder.begin(&mut self.output);
        let mut encoder =
            FieldEncoder { encoder: &mut self.encoder, out: &mut self.output, head: WrittenHead::default() };
        write(&mut encoder);
        let head = encoder.head;
        self.finish_block(start, stream.id, is_end);
        self.apply_sent_head(stream, head, is_end);
    }

    /// Writes the frame header in front of a block, and splits a large block (RFC 9113 §6.10).
    fn finish_block(&mut self, start: usize, stream: u32, is_end: bool) {
        let len = self.output.len() - start - HEADER_BYTES;
        let end_flag = if is_end { flag::END_STREAM } else { 0 };
        let frame_max = self.peer.frame_bytes_max;
        if len <= frame_max {
            let [_, a, b, c] = (len as u32).to_be_bytes();
            let [s0, s1, s2, s3] = stream.to_be_bytes();
            let header = [a, b, c, frame_type::HEADERS, flag::END_HEADERS | end_flag, s0, s1, s2, s3];
            self.output[start..start + HEADER_BYTES].copy_from_slice(&header);
            return;
        }
        let block = self.output.split_off(start + HEADER_BYTES);
        self.output.truncate(start);
        let count = len.div_ceil(frame_max);
        for (at, part) in block.chunks(frame_max).enumerate() {
            let kind = if at == 0 { frame_type::HEADERS } else { frame_type::CONTINUATION };
            let end_headers = if at + 1 == count { flag::END_HEADERS } else { 0 };
            let flags = end_headers | if at == 0 { end_flag } else { 0 };
            frame::write_header(&mut self.output, part.len(), kind, flags, stream);
            self.output.extend_from_slice(part);
        }
    }

    pub(super) fn apply_sent_head(&mut self, key: StreamKey, head: WrittenHead, is_end: bool) {
        let is_interim = self.role == Role::Server && (100..200).contains(&head.status);
        let Some(stream) = self.streams.get_open(key) else { return };
        if stream.send == Progress::Head {
            if self.role == Role::Client {
                stream.is_head = head.is_head;
                stream.is_connect = head.is_connect;
            } else if !is_interim {
                self.abuse.credit_stream();
            }
            if !is_interim {
                stream.send = Progress::Body;
            }
        }
        if is_end {
            stream.send = Progress::Done;
            self.finish_if_done(key);
        }
    }

    /// Returns the number of bytes that [`Connection::send_data`] would take now. If it is 0, an
    /// event reports when the stream may send again; before the head and after the end of the
    /// message it is 0 without an event.
    pub fn sendable_bytes(&mut self, stream: StreamKey) -> usize {
        let connection_window = self.send_window;
        let Some(open) = self.streams.get_open(stream).filter(|open| open.send == Progress::Body) else {
            return 0;
        };
        open.is_blocked |= open.send_window <= 0;
        self.is_send_blocked |= open.send_window > 0 && connection_window <= 0;
        // Not negative.
        open.send_window.min(connection_window).max(0) as usize
    }

    /// Sends a part of a body, in frames of the peer's size, as far as the windows allow. Returns the
    /// number of bytes taken. `is_end` counts only if all bytes are taken. If not all are taken, an
    /// event reports when the stream may send again.
    pub fn send_data(&mut self, stream: StreamKey, bytes: &[u8], is_end: bool) -> usize {
        let sendable = if bytes.is_empty() { 0 } else { self.sendable_bytes(stream) };
        let taken = sendable.min(bytes.len());
        let is_end = is_end && taken == bytes.len();
        if self.take_window(stream, taken, bytes.len(), is_end).is_none() {
            return 0;
        }
        self.write_data(stream.id, &bytes[..taken], is_end);
        if is_end {
            self.finish_if_done(stream);
        }
        taken
    }

    /// Sends the header of a DATA frame that does not end the message. The caller writes the content
    /// itself, behind the output so far: it need not be copied. Returns its length, at most `len` and one
    /// frame; 0: there is no window, and nothing was written.
    pub fn send_data_header(&mut self, stream: StreamKey, len: usize) -> usize {
        let taken = self.sendable_bytes(stream).min(len).min(self.peer.frame_bytes_max);
        if taken == 0 || self.take_window(stream, taken, len, false).is_none() {
            return 0;
        }
        frame::write_header(&mut self.output, taken, frame_type::DATA, 0, stream.id);
        taken
    }

    /// Takes the window for `taken` of `offered` bytes; `None`: the stream cannot send them.
    fn take_window(&mut self, stream: StreamKey, taken: usize, offered: usize, is_end: bool) -> Option<()> {
        let open = self.streams.get_open(stream).filter(|open| open.send == Progress::Body)?;
        if taken == 0 && !is_end {
            return None;
        }
        // Windows are less than 2^31.
        open.send_window -= taken as i32;
        self.send_window -= taken as i32;
        if taken < offered {
            open.is_blocked |= open.send_window == 0;
            self.is_send_blocked |= open.send_window > 0;
        }
        if is_end {
            open.send = Progress::Done;
        }
        // The peer that opens its windows byte by byte gets no credit for the frames.
        if taken == offered || taken >= 256 {
            self.abuse.credit_frame();
        }
        Some(())
    }

    fn write_data(&mut self, id: u32, bytes: &[u8], is_end: bool) {
        let frame_max = self.peer.frame_bytes_max;
        let count = bytes.len().div_ceil(frame_max).max(1);
        self.output.reserve(bytes.len() + count * HEADER_BYTES);
        let mut rest = bytes;
        for at in 1..=count {
            let (part, after) = rest.split_at(rest.len().min(frame_max));
            let flags = if is_end && at == count { flag::END_STREAM } else { 0 };
            frame::write_header(&mut self.output, part.len(), frame_type::DATA, flags, id);
            self.output.extend_from_slice(part);
            rest = after;
        }
    }

    /// Returns received content to the peer's windows. Updates are sent when they are worth a frame.
    ///
    /// A stream that has ended regularly keeps its slot until its content is consumed, or until
    /// [`Connection::reset`]. After a reset this does nothing: the content was returned then.
    pub fn consume(&mut self, stream: StreamKey, bytes: usize) {
        let Some(open) = self.streams.get_mut(stream) else { return };
        // At most `unconsumed`, which is a u32.
        let bytes = bytes.min(open.unconsumed as usize) as u32;
        open.unconsumed -= bytes;
        self.receive.held -= bytes;
        if open.is_over {
            if open.unconsumed == 0 {
                self.streams.free_slot(stream);
            }
        } else {
            self.update_stream_window(stream);
        }
        self.update_connection_window();
    }

    /// Sends a window update of a stream if it is worth a frame.
    #[inline]
    pub(super) fn update_stream_window(&mut self, key: StreamKey) {
        let Some(stream) = self.streams.get_open(key) else { return };
        if stream.receive != Progress::Body {
            return;
        }
        let increment = self.receive.stream.increment(stream.receive_window, stream.unconsumed);
        if let Some(increment) = increment {
            stream.receive_window += increment as i32;
            frame::write_window_update(&mut self.output, key.id, increment);
            self.receive.is_probe_due = true;
        }
    }

    /// Sends a window update of the connection if it is worth a frame.
    #[inline]
    pub(super) fn update_connection_window(&mut self) {
        let receive = &mut self.receive;
        receive.connection.grow_if_held(receive.held);
        if let Some(increment) = receive.connection.shared_increment(receive.window, receive.held) {
            receive.window += increment as i32;
            // Before the settings of the peer it is the first update, which no content caused.
            receive.is_probe_due |= self.has_peer_settings;
            frame::write_window_update(&mut self.output, 0, increment);
        }
    }

    /// Opens the windows for the rest of a request whose response ends now, before the frame that ends it: a
    /// client may read nothing behind that frame while it sends, as curl 7.88 does, and would wait for a window
    /// for ever. Without a known length it is a rest of 4 MiB. The maximum of the connection's window holds.
    /// Returns the size at which the client may wait: `u64::MAX` if the length is known; `None` if the rest
    /// does not fit.
    pub fn open_windows_for_rest(&mut self, stream: StreamKey) -> Option<u64> {
        let id = stream.id;
        let Some(stream) = self.streams.get_open(stream) else { return Some(u64::MAX) };
        if stream.receive != Progress::Body {
            return Some(u64::MAX);
        }
        let opened = self.receive.open_for_rest(stream.receive_window, stream.content_left);
        let (connection_increment, stream_increment) = opened?;
        stream.receive_window += stream_increment as i32;
        for (id, increment) in [(0, connection_increment), (id, stream_increment)] {
            if increment > 0 {
                frame::write_window_update(&mut self.output, id, increment);
            }
        }
        // The windows are less than 2^31.
        let window = stream.receive_window.min(self.receive.window).max(0) as u64;
        Some(if stream.content_left.is_some() { u64::MAX } else { window })
    }

    /// Resets a stream that is not over. No event follows.
    pub fn reset(&mut self, stream: StreamKey, code: ErrorCode) {
        // The peer may reset or end it at the same time, which is no flood.
        self.abuse.credit_frame();
        self.write_reset(stream, code);
    }

    fn write_reset(&mut self, stream: StreamKey, code: ErrorCode) {
        let Some(open) = self.streams.get_open(stream) else {
            return self.remove_stream(stream);
        };
        // A request that was not sent has an idle stream, which cannot be reset.
        let is_idle = self.role == Role::Client && open.send == Progress::Head;
        if !is_idle {
            frame::write_reset(&mut self.output, stream.id, code);
        }
        self.streams.remember_reset(stream.id);
        self.remove_stream(stream);
    }

    #[cold]
    pub(super) fn reset_for(&mut self, stream: StreamKey, fault: FaultKind) -> Result<Step, FaultKind> {
        self.charge_unanswered(stream)?;
        let code = fault.error_code();
        self.write_reset(stream, code);
        Ok(Step::Reset { stream, code, fault: Some(fault), is_unprocessed: false })
    }

    /// Counts the end of a request before its response, which makes work for nothing.
    pub(super) fn charge_unanswered(&mut self, stream: StreamKey) -> Result<(), FaultKind> {
        let is_unanswered = self.role == Role::Server
            && self.streams.get_open(stream).is_some_and(|stream| stream.send == Progress::Head);
        if is_unanswered { self.abuse.charge_rapid_reset() } else { Ok(()) }
    }

    pub(super) fn remove_stream(&mut self, key: StreamKey) {
        let Some(stream) = self.streams.get_mut(key) else { return };
        self.receive.held -= std::mem::take(&mut stream.unconsumed);
        if stream.is_over {
            self.streams.free_slot(key);
        } else {
            self.streams.finish(key);
        }
        self.update_connection_window();
    }

    /// Ends a stream whose directions have both ended. The rest of a rejected request is not awaited.
    pub(super) fn finish_if_done(&mut self, key: StreamKey) {
        let Some(stream) = self.streams.get_open(key) else { return };
        if stream.send != Progress::Done {
            return;
        }
        if stream.receive == Progress::Done {
            self.abuse.credit_stream();
            self.streams.finish(key);
        } else if stream.is_rejected {
            self.write_reset(key, ErrorCode::NO_ERROR);
        }
    }

    /// Announces that no further streams of the peer are processed; those in progress go on. With
    /// `is_final` false (server) streams that are on their way are still accepted (RFC 9113 §6.8):
    /// call again with true a round trip later, for example after the
    /// [`Event::Pong`](super::Event::Pong) of a ping.
    pub fn go_away(&mut self, code: ErrorCode, is_final: bool) {
        let last_stream = if is_final || self.role == Role::Client {
            let last =
                self.last_accepted.map_or(self.last_peer_stream, |last| last.min(self.last_peer_stream));
            self.last_accepted = Some(last);
            last
        } else {
            STREAM_ID_MAX
        };
        frame::write_go_away(&mut self.output, last_stream, code);
    }

    /// Sends a PING, which the peer acknowledges with [`Event::Pong`](super::Event::Pong). The
    /// payloads `"window\0\0"` and `"end\0\0\0\0\0"` are reserved.
    pub fn ping(&mut self, payload: u64) {
        self.pings_outstanding = self.pings_outstanding.saturating_add(1);
        frame::write_ping(&mut self.output, 0, payload);
    }
}
