//! The start of a connection in mode tcp whose pool depends on the client's TLS ClientHello. The
//! bytes are kept, and forwarded unchanged.

use std::task::Poll;

use rt::clock::MonotonicTime;
use rt::tls::client_hello::{
    CLIENT_HELLO_BYTES_MAX, ClientHelloNames, ParsedClientHello, UNRECOGNIZED_NAME_ALERT,
};

use super::{Conn, ConnState, READS_MAX};
use crate::client_stream::TimeoutKind;
use crate::core::{ListenerGeneration, PollContext};
use crate::metrics::HelloResult;
use crate::outcome::EndReason;
use crate::plan::SniMatch;

impl Conn {
    /// Waits for a complete ClientHello, and then begins the exchange with its pool.
    pub(super) fn poll_client_hello(
        &mut self,
        ctx: &mut PollContext<'_, '_>,
        input: &mut [u8],
    ) -> Poll<ConnState> {
        for _ in 0..READS_MAX {
            // Bytes behind a PROXY header come first.
            if !std::mem::take(&mut self.client.parses_buffered_first) {
                let capacity = (CLIENT_HELLO_BYTES_MAX - self.client.buffered.len()).min(input.len());
                let read = match self.client.stream.poll_read(ctx.cx, &mut input[..capacity]) {
                    Poll::Ready(Ok(read)) if read > 0 => read,
                    Poll::Ready(_) => return Poll::Ready(self.end_without_hello(ctx)),
                    Poll::Pending => return self.wait_for_hello(ctx),
                };
                if !self.client.buffer_bytes(ctx.core, &input[..read]) {
                    let bytes = self.client.buffered.len();
                    return Poll::Ready(self.reject(ctx, Err(EndReason::NoBuffer), bytes));
                }
            }
            self.client.note_head_start(MonotonicTime::now());
            let ConnState::ClientHello(reader) = &mut self.state else {
                return Poll::Ready(ConnState::Closed);
            };
            match reader.read(self.client.buffered.bytes()) {
                Ok(ParsedClientHello::Complete(names)) => {
                    return Poll::Ready(self.forward_by_hello(ctx, names));
                }
                Ok(ParsedClientHello::Incomplete) => {}
                Err(fault) => {
                    self.client.note_tls_error(&fault.to_string());
                    return Poll::Ready(self.reject_hello(ctx, EndReason::BadClientHello));
                }
            }
        }
        rt::cores::yield_turn(ctx.cx);
        Poll::Pending
    }

    fn wait_for_hello(&mut self, ctx: &mut PollContext<'_, '_>) -> Poll<ConnState> {
        if ctx.core.drain.closes_idle.get() && !self.client.stream.has_unread() {
            return Poll::Ready(ConnState::Closed);
        }
        let timeout_ns = self.client.effective_timeout_ns(self.client.settings.plan.timeouts.head_ns);
        match self.client.has_timed_out(ctx, TimeoutKind::TlsHandshake, timeout_ns) {
            true => Poll::Ready(self.end_without_hello(ctx)),
            false => Poll::Pending,
        }
    }

    /// Ends a connection that stopped before its ClientHello was complete. One without a byte was a
    /// check of the port, or is not used.
    fn end_without_hello(&mut self, ctx: &mut PollContext<'_, '_>) -> ConnState {
        if self.client.buffered.is_empty() {
            return ConnState::Closed;
        }
        self.client.note_tls_error("no complete ClientHello");
        self.reject_hello(ctx, EndReason::BadClientHello)
    }

    fn reject_hello(&mut self, ctx: &mut PollContext<'_, '_>, end: EndReason) -> ConnState {
        let result =
            if end == EndReason::UnknownServerName { HelloResult::Unknown } else { HelloResult::Invalid };
        self.count_hello(result);
        let bytes = self.client.buffered.len();
        self.reject(ctx, Err(end), bytes)
    }

    /// Begins the exchange with the pool of a client, or rejects it.
    fn forward_by_hello(&mut self, ctx: &mut PollContext<'_, '_>, names: ClientHelloNames) -> ConnState {
        let Some(active) = self.client.settings.active_generation() else {
            return ConnState::Closed;
        };
        // A reload may have removed the routes meanwhile.
        let sni = active.generation.plan.listeners[active.listener].sni.as_ref();
        let (pool, result) = match sni.map(|sni| sni.pick(&names)) {
            Some(SniMatch::Route(pool)) => (Some(pool), HelloResult::Matched),
            Some(SniMatch::Default(pool)) => (Some(pool), HelloResult::Default),
            None => (None, HelloResult::Default),
            Some(SniMatch::None) => {
                self.client.note_server_name(names.server_name);
                // Best effort: the socket of a new connection is not full.
                let _ = self.client.stream.poll_write(ctx.cx, &UNRECOGNIZED_NAME_ALERT);
                return self.reject_hello(ctx, EndReason::UnknownServerName);
            }
        };
        self.client.note_server_name(names.server_name);
        self.count_hello(result);
        self.client.timeout_kind = TimeoutKind::None;
        self.client.end_request();
        self.begin_tcp(ctx, pool)
    }

    fn count_hello(&self, result: HelloResult) {
        if let Some(ListenerGeneration { generation, listener }) = self.client.settings.active_generation() {
            generation.metrics.client_hello(listener, result);
        }
    }
}
