//! The TLS session of a client: its begin, behind the PROXY header if the listener expects one, and
//! its handshake before the first request.

use std::cell::Cell;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::task::Poll;

use rt::clock::MonotonicTime;
use rt::socket::SocketFamily;
use rt::stream::Stream;
use rt::tls::certificate_subject;

use super::{Conn, ConnState, REJECTED_MAX};
use crate::client_stream::{RequestRejection, TimeoutKind};
use crate::core::{ListenerGeneration, ListenerSettings, PollContext};
use crate::metrics::HandshakeResult;
use crate::outcome::{EndReason, RejectReason};
use crate::plan::Mode;

/// Registers an accepted connection with the core, and prepares its TLS session if its listener has
/// TLS.
///
/// # Errors
/// No memory, or too many watches.
pub(crate) fn open_stream(
    fd: OwnedFd,
    family: SocketFamily,
    settings: &ListenerSettings,
) -> io::Result<Stream> {
    let stream = Stream::from_fd(fd, family)?;
    let Some(tls) = &settings.plan.tls else { return Ok(stream) };
    let mut stream = match settings.plan.proxy_protocol {
        true => stream.accept_tls_behind_header(&tls.server)?,
        false => stream.accept_tls(&tls.server)?,
    };
    if settings.plan.mode == Mode::Http {
        stream.detect_text();
    }
    Ok(stream)
}

/// Slot of a connection in its handshake among those of its listener and core.
#[derive(Debug)]
pub(super) struct HandshakeSlot(Rc<Cell<usize>>);

impl Drop for HandshakeSlot {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

/// Returns the state of a connection whose handshake begins: `Closed`, counted, beyond
/// `handshakes-max`.
pub(super) fn first_state(settings: &ListenerSettings) -> ConnState {
    let (core, handshakes) = (&settings.core, &settings.handshakes);
    if handshakes.get() >= core.own_limit(settings.plan.handshakes_max) {
        core.count_rejection(RejectReason::HandshakesFull);
        return ConnState::Closed;
    }
    handshakes.set(handshakes.get() + 1);
    ConnState::TlsHandshake(HandshakeSlot(Rc::clone(handshakes)))
}

impl Conn {
    /// Begins the session behind a PROXY header.
    pub(super) fn begin_tls(&mut self) -> ConnState {
        let client = &mut self.client;
        client.stream.begin_tls(client.buffered.bytes());
        client.buffered.release();
        client.parses_buffered_first = false;
        let state = first_state(&client.settings);
        if matches!(state, ConnState::Closed) {
            let _ = client.stream.reset_on_close();
        }
        state
    }

    /// Completes the handshake, and then begins the listener's protocol.
    pub(super) fn poll_tls_handshake(&mut self, ctx: &mut PollContext<'_, '_>) -> Poll<ConnState> {
        self.client.note_head_start(MonotonicTime::now());
        let error = match self.client.stream.poll_handshake(ctx.cx) {
            Poll::Ready(Ok(())) => {
                self.complete_handshake();
                return Poll::Ready(self.begin_protocol(ctx));
            }
            Poll::Ready(Err(error)) => error,
            Poll::Pending => {
                if ctx.core.drain.closes_idle.get() && !self.client.stream.has_unread() {
                    return Poll::Ready(ConnState::Closed);
                }
                let timeout_ns = self.client.effective_timeout_ns(self.client.settings.plan.timeouts.head_ns);
                if !self.client.has_timed_out(ctx, TimeoutKind::TlsHandshake, timeout_ns) {
                    return Poll::Pending;
                }
                io::Error::new(io::ErrorKind::TimedOut, "the TLS handshake took too long")
            }
        };
        if let Some(state) = self.begin_plain_http(ctx) {
            return Poll::Ready(state);
        }
        let received = self.client.stream.tls_byte_counts().map_or(0, |counts| counts.received);
        if received == 0 {
            // Nothing was asked: a check of the port, or a connection that is not used.
            return Poll::Ready(ConnState::Closed);
        }
        self.count_handshake(HandshakeResult::Failed);
        self.client.note_tls_error(&error.to_string());
        let bytes = usize::try_from(received).unwrap_or(usize::MAX);
        Poll::Ready(self.reject(ctx, Err(EndReason::ClientTlsFailed), bytes))
    }

    /// Begins to read a request in plain HTTP, which gets a response with the address to use. `None`: the client has
    /// sent something else.
    fn begin_plain_http(&mut self, ctx: &mut PollContext<'_, '_>) -> Option<ConnState> {
        let text = self.client.stream.take_text()?;
        self.count_handshake(HandshakeResult::Failed);
        if !self.client.is_rejected() {
            if ctx.core.load.rejected.get() >= REJECTED_MAX {
                let _ = self.client.stream.reset_on_close();
                return Some(ConnState::Closed);
            }
            self.client.count_as_rejected();
            self.client.rejection = Some(RequestRejection { end: EndReason::PlainHttp, retry_after_s: 0 });
        }
        self.client.timeout_kind = TimeoutKind::None;
        if !self.client.buffer_bytes(ctx.core, &text) {
            return Some(ConnState::Closed);
        }
        self.client.end_request();
        Some(ConnState::Idle)
    }

    fn complete_handshake(&mut self) {
        if let Some(result) = HandshakeResult::of(&self.client.stream) {
            self.count_handshake(result);
        }
        let client = &mut self.client;
        if client.settings.plan.tls.as_ref().is_some_and(|tls| tls.client_header.is_some()) {
            let subject = client.stream.peer_certificate().and_then(certificate_subject);
            client.note_certificate_subject(subject);
        }
        client.timeout_kind = TimeoutKind::None;
        client.end_request();
    }

    fn count_handshake(&self, result: HandshakeResult) {
        if let Some(ListenerGeneration { generation, listener }) = self.client.settings.active_generation() {
            generation.metrics.tls_handshake(listener, result);
        }
    }
}
