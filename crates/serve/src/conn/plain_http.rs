//! A client that speaks plain HTTP on a port for TLS: it gets 400 with the address to use.

use std::task::{Context, Poll};

use server_shell::plain_http::tls_expected_reason;
use wire::{Parsed, head_may_be_complete, parse_request};

use crate::body::RemainingBody;
use crate::core::OriginCore;
use crate::output::Outgoing;
use crate::respond::write_error_response;
use crate::stats::{CloseReason, add};

use super::version::ConnStage;
use super::{Conn, FastPathExit, FollowUp};

const READ_BYTES: usize = 1_024;

impl Conn {
    /// Begins to read the request of a client whose handshake has failed. `None`: the client has sent something
    /// else.
    pub(super) fn begin_plain_http(
        &mut self,
        cx: &mut Context<'_>,
        core: &OriginCore,
    ) -> Option<Poll<FastPathExit>> {
        let text = self.stream.take_text()?;
        add(&core.counters.tls_failed, 1);
        add(&core.counters.bytes_in, text.len() as u64);
        self.stage = ConnStage::PlainHttp;
        if !self.keep_unparsed(&text, false) {
            return Some(Poll::Ready(FastPathExit::Close(CloseReason::NoBuffer)));
        }
        self.recheck_input = true;
        Some(self.poll_plain_http(cx, core))
    }

    /// Reads the head of a request in plain HTTP, and responds to it.
    pub(super) fn poll_plain_http(&mut self, cx: &mut Context<'_>, core: &OriginCore) -> Poll<FastPathExit> {
        let mut may_be_complete = std::mem::take(&mut self.recheck_input);
        loop {
            if (may_be_complete || self.unparsed.len() >= core.limits.head_bytes_max)
                && let Some(reason) = reason_to_reject(&self.unparsed, core)
            {
                let mut out = Vec::new();
                write_error_response(core, 400, &reason, self.peer.as_deref(), &mut out);
                let work = FollowUp::LingeringClose(CloseReason::TlsError);
                return self.flush(cx, core, Outgoing::new(&out, RemainingBody::default()), 1, work);
            }
            let mut bytes = [0; READ_BYTES];
            let read = match self.stream.poll_read(cx, &mut bytes) {
                Poll::Pending => return self.poll_waiting(cx, core, true),
                Poll::Ready(Ok(0)) => {
                    return Poll::Ready(FastPathExit::Close(CloseReason::PeerMidRequest));
                }
                Poll::Ready(Ok(read)) => read,
                Poll::Ready(Err(error)) => {
                    return Poll::Ready(FastPathExit::Close(CloseReason::from_io_error(&error)));
                }
            };
            add(&core.counters.bytes_in, read as u64);
            // The parser rejects a head before it is larger than the limit and one read.
            self.unparsed.extend_from_slice(&bytes[..read]);
            may_be_complete = head_may_be_complete(&bytes[..read]);
        }
    }
}

/// Returns the reason of the response once the head is complete or invalid.
fn reason_to_reject(received: &[u8], core: &OriginCore) -> Option<String> {
    let mut slots = wire::header_slots();
    match parse_request(received, &core.limits, &mut slots) {
        Ok(Parsed::Incomplete) => None,
        Ok(Parsed::Complete { head, .. }) => Some(tls_expected_reason(head.host, head.target)),
        Err(_) => Some(tls_expected_reason(None, "")),
    }
}
