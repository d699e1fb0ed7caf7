//! Receipt of records from the socket: their processing, and the deferral of a server's handshake to
//! its turn.

use std::io;
use std::task::{Context, Poll, ready};

use rustls::HandshakeKind;

use super::client_hello::{ParsedClientHello, parse_client_hello};
use super::session::{
    End, INCOMPLETE_BYTES_MAX, READ_BYTES_MAX, READ_BYTES_MIN, RECORD_OVERHEAD, SCRATCH, Session, TlsStream,
};
use super::transport::Transport;

impl TlsStream {
    /// Reads from the socket once and processes the records: returns the number of content bytes
    /// in `buffer`. More content than it holds waits in `content`. A server's handshake waits for its
    /// turn before it is computed.
    pub(super) fn poll_receive(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        if self.waits_for_turn() {
            return self.poll_deferred(cx);
        }
        let polled = self.receive(buffer, |transport, bytes| transport.poll_read(cx, bytes));
        if polled.is_ready() && self.waits_for_turn() {
            return self.poll_deferred(cx);
        }
        polled
    }

    /// Computes the handshake's next step from the received bytes once it is this session's turn.
    fn poll_deferred(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if self.has_text() {
            return Poll::Ready(Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "the peer sent text, not TLS",
            )));
        }
        let Some(turn) = &mut self.turn else { return Poll::Ready(Ok(0)) };
        let guard = ready!(turn.poll_acquire(cx));
        let mut records = std::mem::take(&mut self.incomplete);
        let (used, _) = self.process(&mut records, &mut []);
        drop(guard);
        self.keep_incomplete(&records[used..]);
        self.has_unprocessed = false;
        // The rest is cheap, except for the second ClientHello after a HelloRetryRequest.
        let kind = self.session.common().handshake_kind();
        if matches!(kind, Some(HandshakeKind::Full | HandshakeKind::Resumed)) || self.end.is_some() {
            self.turn = None;
        }
        Poll::Ready(Ok(0))
    }

    fn waits_for_turn(&self) -> bool {
        self.turn.is_some() && self.has_unprocessed
    }

    /// Reads without a waker; `None`: nothing is known to be readable.
    pub(super) fn try_receive(&mut self) -> Option<io::Result<usize>> {
        let polled = self.receive(&mut [], |transport, bytes| match transport.try_read(bytes) {
            Some(result) => Poll::Ready(result),
            None => Poll::Pending,
        });
        match polled {
            Poll::Ready(result) => Some(result),
            Poll::Pending => None,
        }
    }

    fn receive(
        &mut self,
        buffer: &mut [u8],
        read: impl FnOnce(&Transport, &mut [u8]) -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        SCRATCH.with_borrow_mut(|scratch| {
            let kept = self.incomplete.len();
            if kept > INCOMPLETE_BYTES_MAX {
                let reason = "a TLS message is too long";
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, reason)));
            }
            scratch[..kept].copy_from_slice(&self.incomplete);
            let read_bytes = (buffer.len() + RECORD_OVERHEAD).clamp(READ_BYTES_MIN, READ_BYTES_MAX);
            let received = ready!(read(&self.transport, &mut scratch[kept..kept + read_bytes]))?;
            self.byte_counts.received += received as u64;
            if received == 0 {
                self.end.get_or_insert(End::Truncated);
                return Poll::Ready(Ok(0));
            }
            let records = &mut scratch[..kept + received];
            self.note_server_name(records);
            if self.turn.is_some() {
                self.keep_incomplete(records);
                self.has_unprocessed = true;
                return Poll::Ready(Ok(0));
            }
            let (used, content_bytes) = self.process(records, buffer);
            self.keep_incomplete(&records[used..]);
            Poll::Ready(Ok(content_bytes))
        })
    }

    /// Stores the server name of a client: the session does not tell it.
    pub(super) fn note_server_name(&mut self, records: &[u8]) {
        let is_start = matches!(self.session, Session::Server(_)) && self.session.common().is_handshaking();
        if is_start
            && self.server_name.is_none()
            && let Ok(ParsedClientHello::Complete(names)) = parse_client_hello(records)
        {
            self.server_name = names.server_name;
        }
    }

    pub(crate) fn server_name(&self) -> Option<&str> {
        self.server_name.as_deref()
    }

    pub(super) fn keep_incomplete(&mut self, rest: &[u8]) {
        if rest.is_empty() {
            self.incomplete = Vec::new();
        } else {
            self.incomplete.clear();
            self.incomplete.extend_from_slice(rest);
        }
    }
}
