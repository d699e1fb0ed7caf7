//! One stream on its way through the engine: its state, and its request as HTTP/1.1 into the channel.
//! `response` has the other direction.

use std::cell::Ref;
use std::net::Shutdown;

use rt::byte_channel::{ChannelEnd, ReceiveState};
use server_shell::h2_timers::{StreamBacklog, StreamWait, WriteCheck};
use server_shell::progress::ProgressTimer;
use wire::h2::translate::write_h1_request;
use wire::h2::{ErrorCode, Fields, RequestHead, StreamKey};
use wire::{BodyDecoder, Framing, Limits, RequestKind, encode};

use super::websocket_key::websocket_key;
use crate::client_stream::STALLED_CODE;

/// Expected length of a head in HTTP/1.1.
const HEAD_BYTES: usize = 512;

/// A channel to the engine, and the stream that uses it.
#[derive(Debug)]
pub(super) struct StreamChannel {
    pub(super) number: u32,
    pub(super) end: Option<ChannelEnd>,
    pub(super) stream: Option<StreamKey>,
    pub(super) request: RequestProgress,
    pub(super) response: ResponseProgress,
    pub(super) kind: RequestKind,
    pub(super) decoder: BodyDecoder,
    /// True if the engine's connection can carry another request after the response.
    pub(super) keeps_engine: bool,
    /// True if the request asks for another protocol by extended CONNECT (RFC 8441).
    pub(super) is_extended_connect: bool,
    /// True if the stream ends with its response: the client would wait for a window that is not opened.
    pub(super) ends_with_response: bool,
    /// Content that the engine has not taken, and that was not returned to the client's window.
    pub(super) unreturned_bytes: usize,
    /// Received bytes that are to be consumed when the output is written.
    pub(super) deferred_bytes: usize,
    closes_after_write: bool,
    /// Bytes of the engine that were sent, from any start.
    pub(super) sent_bytes: u64,
    /// Position in the connection's output behind them.
    pub(super) sent_until: u64,
    write_timer: ProgressTimer,
}

/// Form of the rest of the request in the channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequestProgress {
    /// As it is: its length is known.
    Length,
    Chunked,
    /// As it is, up to the end of the stream.
    Tunnel,
    Done,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ResponseProgress {
    Head,
    Body,
    /// Bytes of another protocol.
    Tunnel,
    /// All was sent but the end, which waits for the end of the request.
    Held,
    /// `END_STREAM` was sent; the client's side is open.
    Sent,
}

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
        reset: Option<ErrorCode>,
    },
}

impl StreamChannel {
    pub(super) fn new(number: u32, end: ChannelEnd) -> Self {
        Self {
            number,
            end: Some(end),
            stream: None,
            request: RequestProgress::Done,
            response: ResponseProgress::Head,
            kind: RequestKind::Other,
            decoder: BodyDecoder::new(Framing::None, &Limits::default()),
            keeps_engine: false,
            is_extended_connect: false,
            ends_with_response: false,
            unreturned_bytes: 0,
            deferred_bytes: 0,
            closes_after_write: false,
            sent_bytes: 0,
            sent_until: 0,
            write_timer: ProgressTimer::default(),
        }
    }

    pub(super) fn stream(&self) -> Option<StreamKey> {
        self.stream
    }

    /// Returns whether the engine waits for another request.
    pub(super) fn is_usable(&self) -> bool {
        self.end.as_ref().is_some_and(|end| end.receive_state() == ReceiveState::Open && !end.is_refused())
    }

    /// Begins a stream whose request the engine rejects by itself.
    pub(super) fn begin_rejected(&mut self, stream: StreamKey) {
        self.stream = Some(stream);
        self.request = RequestProgress::Done;
        self.response = ResponseProgress::Head;
        self.kind = RequestKind::Other;
        self.is_extended_connect = false;
        self.ends_with_response = false;
        self.unreturned_bytes = 0;
        self.write_timer.stop();
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
        end.write_with(HEAD_BYTES, |out| write_h1_request(head, is_end, || websocket_key(rng), out));
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

    pub(super) fn is_over(&self) -> bool {
        let is_answered = matches!(self.response, ResponseProgress::Held | ResponseProgress::Sent);
        is_answered && self.request == RequestProgress::Done
    }

    /// Checks whether the client takes the response.
    pub(super) fn check_progress(&mut self, check: &mut WriteCheck, window_bytes: u64) -> StreamWait {
        let received_bytes = self.end.as_ref().map_or(0, |end| end.received().len());
        let unsent_bytes = received_bytes.saturating_sub(self.deferred_bytes) as u64;
        let is_delivered = check.is_delivered(self.sent_until);
        let backlog = StreamBacklog { sent_bytes: self.sent_bytes, unsent_bytes, window_bytes, is_delivered };
        check.check_stream(&mut self.write_timer, backlog)
    }

    /// Lets the engine report the end of the request as a timeout of the client.
    pub(super) fn note_stalled(&self) {
        if let Some(end) = &self.end {
            end.set_reset_code(STALLED_CODE);
        }
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
        if self.deferred_bytes > 0 {
            self.closes_after_write = !is_kept;
        } else if !is_kept {
            self.end = None;
        }
    }

    pub(super) fn received(&self) -> Option<Ref<'_, [u8]>> {
        self.end.as_ref().map(ChannelEnd::received)
    }

    /// Consumes bytes that were written.
    pub(super) fn consume_deferred(&mut self) {
        let bytes = std::mem::take(&mut self.deferred_bytes);
        if let Some(end) = &self.end {
            end.consume(bytes);
        }
        if std::mem::take(&mut self.closes_after_write) {
            self.end = None;
        }
    }

    /// Consumes bytes: at once, unless earlier ones are still to be written.
    pub(super) fn consume(&mut self, end: &ChannelEnd, bytes: usize, is_deferred: bool) {
        self.sent_bytes = self.sent_bytes.wrapping_add(bytes as u64);
        if is_deferred || self.deferred_bytes > 0 {
            self.deferred_bytes += bytes;
        } else {
            end.consume(bytes);
        }
    }
}
