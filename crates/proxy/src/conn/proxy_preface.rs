//! The start of a connection: the PROXY header, if the listener expects one. Only trusted peers may
//! send it. Connections from other peers, or without the header, are rejected.

use std::task::Poll;

use super::{Conn, ConnState};
use crate::client_stream::{Peer, TimeoutKind};
use crate::core::PollContext;
use crate::outcome::{EndReason, RejectReason};
use wire::proxy_protocol::{self, HEADER_BYTES_MAX, Header};

/// State of reading the PROXY header.
enum PrefaceStatus {
    Complete,
    Incomplete,
    Rejected,
}

impl Conn {
    /// Waits for a PROXY header, if one is expected, and then begins TLS or the listener's protocol.
    pub(super) fn poll_proxy_preface(
        &mut self,
        ctx: &mut PollContext<'_, '_>,
        input: &mut [u8],
    ) -> Poll<ConnState> {
        while self.client.settings.plan.proxy_protocol {
            match self.read_proxy_preface(ctx, input) {
                Poll::Ready(PrefaceStatus::Complete) => break,
                Poll::Ready(PrefaceStatus::Rejected) => {
                    let trusted = self.client.peer.is_trusted;
                    ctx.core.count_rejection(if trusted {
                        RejectReason::ProxyHeader
                    } else {
                        RejectReason::Untrusted
                    });
                    let bytes = self.client.buffered.len();
                    let end = Err(EndReason::BadProxyHeader);
                    return Poll::Ready(self.reject(ctx, end, bytes));
                }
                Poll::Ready(PrefaceStatus::Incomplete) => {}
                Poll::Pending => return Poll::Pending,
            }
        }
        self.client.timeout_kind = TimeoutKind::None;
        self.client.end_request();
        // The client's address is known only now.
        if self.client.settings.plan.proxy_protocol
            && !self.client.is_rejected()
            && let ConnState::Closed = Self::admit_source(&mut self.client, ConnState::Idle)
        {
            return Poll::Ready(ConnState::Closed);
        }
        if self.client.settings.plan.tls.is_some() {
            return Poll::Ready(self.begin_tls());
        }
        Poll::Ready(self.begin_protocol(ctx))
    }

    fn read_proxy_preface(&mut self, ctx: &mut PollContext<'_, '_>, input: &mut [u8]) -> Poll<PrefaceStatus> {
        if !self.client.peer.is_trusted {
            return Poll::Ready(PrefaceStatus::Rejected);
        }
        let capacity = input.len() - self.client.buffered.len();
        let read = match self.client.stream.poll_read(ctx.cx, &mut input[..capacity]) {
            Poll::Ready(Ok(read)) if read > 0 => read,
            Poll::Ready(_) => return Poll::Ready(PrefaceStatus::Rejected),
            Poll::Pending => {
                let head_timeout_ns =
                    self.client.effective_timeout_ns(self.client.settings.plan.timeouts.head_ns);
                let is_late = self.client.has_timed_out(ctx, TimeoutKind::ProxyPreface, head_timeout_ns);
                return if is_late { Poll::Ready(PrefaceStatus::Rejected) } else { Poll::Pending };
            }
        };
        if !self.client.buffer_bytes(ctx.core, &input[..read]) {
            return Poll::Ready(PrefaceStatus::Rejected);
        }
        let (status, used) = match proxy_protocol::parse(self.client.buffered.bytes()) {
            proxy_protocol::ParsedHeader::Complete { header, bytes } => {
                if let Header::Proxied { source, destination } = header {
                    self.client.peer = Peer::new(&self.client.settings.plan, Some(source));
                    self.client.note_destination(destination);
                }
                (PrefaceStatus::Complete, bytes)
            }
            proxy_protocol::ParsedHeader::Incomplete if self.client.buffered.len() < HEADER_BYTES_MAX => {
                (PrefaceStatus::Incomplete, 0)
            }
            _ => (PrefaceStatus::Rejected, 0),
        };
        self.client.buffered.consume(used);
        Poll::Ready(status)
    }
}
