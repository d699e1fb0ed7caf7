//! Conditions for sending a request again after its connection ended: everything that was sent is still
//! held, and the server has not received it, or may receive it twice (RFC 9110 §9.2.2).

use rt::stream::Stream;

use super::Exchange;
use crate::h2::back::StreamEnd;
use crate::outcome::EndReason;

impl Exchange {
    /// Prepares the request for a retry on a new connection.
    pub(super) fn rewind_request(&mut self) {
        self.server = None;
        self.attempt.needs_new_connection = true;
        self.request_relay.rewind();
        self.attempt.is_request_broken = false;
    }

    /// Returns whether the request may be sent again to its server. It must have been sent on a
    /// connection that had been idle. It must also be idempotent (RFC 9110 §9.2.2), or the server
    /// must have received none of it.
    pub(super) fn may_resend(&self, is_orderly: bool) -> bool {
        let Some(slot) = &self.slot else { return false };
        let retries_max = slot.pool.plan().retries_max;
        let is_unreceived = self.is_unreceived(is_orderly);
        self.outcome.reused
            && (is_unreceived || self.facts.is_idempotent && !self.is_stream_reset())
            && self.is_replayable()
            && self.outcome.retries < retries_max
            // A request that a server has not received causes no extra work for it.
            && (is_unreceived || self.take_retry(&slot.pool))
    }

    /// Returns whether all sent bytes of the request are still held, and no byte came back.
    pub(super) fn is_replayable(&self) -> bool {
        self.unprocessed.is_empty() && self.interim_count == 0 && self.request_relay.can_rewind()
    }

    /// Returns whether the server ended its stream before it received any byte of the request. Its
    /// FIN confirms what it had received until then: later bytes met a closed socket, or one that
    /// can send no response. A reset is no proof, because it also ends a connection whose server
    /// has read the request.
    pub(super) fn is_unreceived(&self, is_orderly: bool) -> bool {
        let stream = self.server.as_ref().map(|server| &server.stream);
        if stream.is_some_and(Stream::is_channel) {
            // Of a stream that was not processed, the engine sees only the end (RFC 9113 §8.7).
            return !self.has_sent_request() || is_orderly;
        }
        let unacked_bytes = stream.filter(|stream| stream.is_tcp()).and_then(Stream::unacked_bytes);
        !self.has_sent_request() || is_orderly && unacked_bytes == Some(self.sent_request_bytes())
    }

    /// Returns whether the server has reset the request's stream, and so has processed the request.
    fn is_stream_reset(&self) -> bool {
        let stream = self.server.as_ref().and_then(|server| server.http2.as_ref());
        stream.is_some_and(|stream| matches!(stream.end(), Some(StreamEnd::Reset(_) | StreamEnd::Invalid(_))))
    }

    /// Returns the end code for a server whose connection or stream ended too early.
    pub(super) fn early_end(&self) -> EndReason {
        let stream = self.server.as_ref().and_then(|server| server.http2.as_ref());
        match stream.and_then(|stream| stream.end()) {
            Some(StreamEnd::Invalid(_)) => EndReason::BadResponse,
            _ => EndReason::ServerClosed,
        }
    }

    /// Returns whether any byte of the request was sent, or may have been.
    pub(super) fn has_sent_request(&self) -> bool {
        self.request_relay.has_sent() || self.sent_request_bytes() > 0
    }

    /// Returns the number of bytes that went to the server's socket since the request began: with
    /// TLS, those of its records, of which a part may be sent.
    fn sent_request_bytes(&self) -> u64 {
        let counts = self.server.as_ref().and_then(|server| server.stream.tls_byte_counts());
        counts.map_or_else(
            || self.request_relay.sent_bytes(),
            |counts| counts.sent - self.attempt.tls_sent_before,
        )
    }
}
