//! TLS session of one connected stream: handshake, decryption and encryption between an engine's
//! bytes and the socket.
//!
//! ```text
//! handshake ──► open ──► closed by the peer (close_notify, or the end of the stream)
//!     └───────────┴────► failed: the alert is sent, and every call returns the error
//! ```
//!
//! Records are decrypted in a buffer of the core and encrypted into it, so an idle connection has
//! no buffer of its own. A write is complete once its records are in the kernel.

use std::cell::RefCell;
use std::io::{self, IoSlice};
use std::net::Shutdown;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use rustls::client::UnbufferedClientConnection;
use rustls::pki_types::ServerName;
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{ConnectionState, EncryptError};
use rustls::{ClientConfig, CommonState, ServerConfig};

use super::fault_text::SessionError;
use super::handshake_turn::HandshakeTurn;
use super::info::TlsByteCounts;
use super::records::{Output, RecordWriter, Step, UnfinishedWrite, advance};
use super::staging::Staging;
use super::transport::Transport;
use crate::cores::yield_turn;
use crate::user_tcp::UserStream;

pub(super) const READ_BYTES_MAX: usize = 64 * 1024;
pub(super) const READ_BYTES_MIN: usize = 4 * 1024;
/// Bytes that encryption can add to the content of a write, with room to spare.
pub(super) const RECORD_OVERHEAD: usize = 1_024;
/// Maximum number of bytes of an incomplete record or handshake message (RFC 8446 §5.1 and §4).
pub(super) const INCOMPLETE_BYTES_MAX: usize = 64 * 1024;
/// Maximum number of reads without content (tickets, key updates, empty records) in one poll.
pub(super) const READS_WITHOUT_CONTENT_MAX: usize = 16;

thread_local! {
    pub(super) static SCRATCH: RefCell<Vec<u8>> =
        RefCell::new(vec![0; INCOMPLETE_BYTES_MAX + READ_BYTES_MAX + RECORD_OVERHEAD]);
    static STAGING: RefCell<Staging> = const { RefCell::new(Staging::new()) };
}

/// TLS session and the byte stream below it.
pub struct TlsStream {
    pub(super) transport: Transport,
    pub(super) session: Session,
    /// Start of a record whose rest has not arrived.
    pub(super) incomplete: Vec<u8>,
    /// Decrypted bytes that the engine has not read.
    content: Vec<u8>,
    content_read: usize,
    /// Encrypted bytes that the socket has not accepted.
    pub(super) outgoing: Vec<u8>,
    pub(super) outgoing_sent: usize,
    /// Write whose records are not all in the kernel.
    pub(super) unfinished_write: Option<UnfinishedWrite>,
    pub(super) end: Option<End>,
    pub(super) sends_close_notify: bool,
    /// True while bytes in clear come before the session: see [`TlsStream::begin`].
    is_plain: bool,
    /// True if text instead of a ClientHello is left to the engine: see [`TlsStream::detect_text`].
    pub(super) detects_text: bool,
    /// True if the socket's sending side is to be shut down once `outgoing` is sent.
    pub(super) shuts_down_after_flush: bool,
    /// Encrypted bytes received from the socket, and accepted by it.
    pub(super) byte_counts: TlsByteCounts,
    /// Server name that the client sent (RFC 6066 §3).
    pub(super) server_name: Option<Box<str>>,
    /// Turn of a server's handshake, until its expensive part is computed.
    pub(super) turn: Option<HandshakeTurn>,
    /// True if `incomplete` has bytes that wait for the turn.
    pub(super) has_unprocessed: bool,
}

pub(super) enum Session {
    Server(UnbufferedServerConnection),
    Client(UnbufferedClientConnection),
}

/// Reason that nothing more will be received.
pub(super) enum End {
    CloseNotify,
    /// The stream ended without it: content whose length is not known may be truncated.
    Truncated,
    Failed(rustls::Error),
}

impl TlsStream {
    /// Begins the server's end of a session on `transport`.
    ///
    /// # Errors
    /// The configuration does not suit the protocol.
    pub(crate) fn accept(transport: Transport, config: Arc<ServerConfig>) -> io::Result<Self> {
        let session = UnbufferedServerConnection::new(config).map_err(invalid_data)?;
        let mut stream = Self::new(transport, Session::Server(session));
        stream.turn = Some(HandshakeTurn::default());
        Ok(stream)
    }

    /// Begins the client's end of a session on `transport`: the first flight is sent by the first poll.
    ///
    /// # Errors
    /// The configuration does not suit the protocol.
    pub(crate) fn connect(
        transport: Transport,
        config: Arc<ClientConfig>,
        name: ServerName<'static>,
    ) -> io::Result<Self> {
        let session = UnbufferedClientConnection::new(config, name).map_err(invalid_data)?;
        let mut stream = Self::new(transport, Session::Client(session));
        stream.process(&mut [], &mut []);
        Ok(stream)
    }

    fn new(transport: Transport, session: Session) -> Self {
        Self {
            transport,
            session,
            incomplete: Vec::new(),
            content: Vec::new(),
            content_read: 0,
            outgoing: Vec::new(),
            outgoing_sent: 0,
            unfinished_write: None,
            end: None,
            sends_close_notify: true,
            is_plain: false,
            detects_text: false,
            shuts_down_after_flush: false,
            byte_counts: TlsByteCounts::default(),
            server_name: None,
            turn: None,
            has_unprocessed: false,
        }
    }

    /// Makes the stream a plain one until [`TlsStream::begin`].
    pub(crate) fn start_plain(&mut self) {
        self.is_plain = true;
    }

    /// Begins the session behind bytes in clear. `received` are its first bytes, which were read
    /// together with those.
    pub(crate) fn begin(&mut self, received: &[u8]) {
        self.is_plain = false;
        self.byte_counts.received += received.len() as u64;
        self.note_server_name(received);
        self.keep_incomplete(received);
        self.has_unprocessed = !received.is_empty();
    }

    /// Lets the handshake fail without an alert if the peer sends text, which [`TlsStream::take_text`]
    /// returns.
    pub(crate) fn detect_text(&mut self) {
        self.detects_text = true;
    }

    /// Returns true if the peer has begun with text: no record of TLS begins with a letter (RFC 8446 §5.1).
    pub(crate) fn has_text(&self) -> bool {
        self.detects_text
            && self.byte_counts.sent == 0
            && self.common().handshake_kind().is_none()
            && self.incomplete.first().is_some_and(u8::is_ascii_uppercase)
    }

    /// Returns the text, and gives the session up without a word to the peer.
    pub(crate) fn take_text(&mut self) -> Vec<u8> {
        self.abort();
        std::mem::take(&mut self.incomplete)
    }

    /// Moves a connection in user space out of a session that is given up.
    pub(crate) fn take_user(&mut self) -> Option<UserStream> {
        self.transport.take_user()
    }

    pub(crate) fn byte_counts(&self) -> TlsByteCounts {
        self.byte_counts
    }

    /// Returns true if a write is encrypted and not all in the kernel: part of its bytes may have
    /// been sent.
    pub(crate) fn has_unfinished_write(&self) -> bool {
        self.unfinished_write.is_some()
    }

    pub(super) fn common(&self) -> &CommonState {
        self.session.common()
    }

    pub(crate) fn transport(&self) -> &Transport {
        &self.transport
    }

    /// Completes the handshake; does nothing afterwards.
    ///
    /// # Errors
    /// Those of the socket; the peer left; `InvalidData`: the handshake failed, with the reason.
    pub(crate) fn poll_handshake(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            // After the handshake the rest of a write may wait while responses are read.
            let flushed = self.poll_flush(cx);
            if let Some(End::Failed(error)) = &self.end {
                return Poll::Ready(Err(invalid_data(error.clone())));
            }
            if !self.session.common().is_handshaking() {
                return Poll::Ready(Ok(()));
            }
            ready!(flushed)?;
            if self.end.is_some() {
                let reason = "the peer closed the connection during the TLS handshake";
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::UnexpectedEof, reason)));
            }
            ready!(self.poll_receive(cx, &mut []))?;
        }
    }

    /// Reads content as [`Transport::poll_read`] does: 0 bytes are the end.
    pub(crate) fn poll_read(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        if self.is_plain {
            return self.transport.poll_read(cx, buffer);
        }
        ready!(self.poll_handshake(cx))?;
        for _ in 0..READS_WITHOUT_CONTENT_MAX {
            if let Some(bytes) = self.take_content(buffer) {
                return Poll::Ready(Ok(bytes));
            }
            match &self.end {
                Some(End::Failed(error)) => return Poll::Ready(Err(invalid_data(error.clone()))),
                Some(_) => return Poll::Ready(Ok(0)),
                None => {}
            }
            let bytes = ready!(self.poll_receive(cx, buffer))?;
            // A reply to a key update, or an alert. The next write sends what is left of it.
            let _ = self.poll_flush(cx);
            if bytes > 0 {
                return Poll::Ready(Ok(bytes));
            }
        }
        yield_turn(cx);
        Poll::Pending
    }

    /// Checks for content without taking it: 0 is the end of the stream, 1 any number of bytes.
    pub(crate) fn poll_peek(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        ready!(self.poll_handshake(cx))?;
        for _ in 0..READS_WITHOUT_CONTENT_MAX {
            match (self.has_content(), &self.end) {
                (true, _) => return Poll::Ready(Ok(1)),
                (_, Some(End::Failed(error))) => return Poll::Ready(Err(invalid_data(error.clone()))),
                (_, Some(_)) => return Poll::Ready(Ok(0)),
                _ => {}
            }
            ready!(self.poll_receive(cx, &mut []))?;
        }
        yield_turn(cx);
        Poll::Pending
    }

    /// Returns true if decrypted bytes wait for the engine.
    pub(crate) fn has_content(&self) -> bool {
        self.content_read < self.content.len()
    }

    /// Returns true if the stream ended without close_notify, so that content whose length was not
    /// given may be truncated (RFC 8446 §6.1).
    pub(crate) fn is_truncated(&self) -> bool {
        matches!(self.end, Some(End::Truncated))
    }

    /// Encrypts and sends the first bytes of `slices`: returns their number once the kernel has all
    /// of them. Until then the caller repeats the same bytes, at least these.
    ///
    /// # Errors
    /// Those of the socket and the session; `InvalidInput`: other bytes than those of the write in
    /// progress.
    pub(crate) fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_handshake(cx))?;
        STAGING.with_borrow_mut(|staging| self.poll_write_bytes(cx, staging.content(slices)))
    }

    fn poll_write_bytes(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if let Some(write) = self.unfinished_write {
            if !write.is_start_of(bytes) {
                let reason = "other bytes than those of the TLS record in progress";
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidInput, reason)));
            }
            ready!(self.poll_flush(cx))?;
            self.unfinished_write = None;
            return Poll::Ready(Ok(write.bytes));
        }
        if bytes.is_empty() {
            return Poll::Ready(Ok(0));
        }
        ready!(self.poll_flush(cx))?;
        if let Err(error) = self.encrypt(cx, bytes) {
            return Poll::Ready(Err(error));
        }
        if self.is_flushed() {
            return Poll::Ready(Ok(bytes.len()));
        }
        self.unfinished_write = Some(UnfinishedWrite::new(bytes));
        Poll::Pending
    }

    /// Encrypts `bytes` and sends what the socket accepts; the rest waits in `outgoing`.
    fn encrypt(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> io::Result<()> {
        SCRATCH.with_borrow_mut(|scratch| {
            let encrypted = self.write_records(scratch, |traffic, output| traffic.encrypt(bytes, output))?;
            self.send(cx, &scratch[..encrypted])
        })
    }

    /// Sends what the socket accepts of `records`, in their order behind `outgoing`.
    fn send(&mut self, cx: &mut Context<'_>, mut records: &[u8]) -> io::Result<()> {
        let is_next = self.is_flushed();
        while is_next && !records.is_empty() {
            match self.transport.poll_write(cx, records) {
                Poll::Ready(sent) => {
                    let sent = sent?;
                    self.byte_counts.sent += sent as u64;
                    records = &records[sent..];
                }
                Poll::Pending => break,
            }
        }
        self.outgoing.extend_from_slice(records);
        Ok(())
    }

    /// Lets `write` produce records into `output` and returns their length.
    pub(super) fn write_records(
        &mut self,
        output: &mut [u8],
        mut write: impl FnMut(&mut dyn RecordWriter, &mut [u8]) -> Result<usize, EncryptError>,
    ) -> io::Result<usize> {
        // Handshake messages, such as a key update, come before the content. The session keeps
        // positions in the incomplete record, so it gets the same bytes again.
        let mut incomplete = std::mem::take(&mut self.incomplete);
        let (used, _) = self.process(&mut incomplete, &mut []);
        incomplete.drain(..used);
        let result = match &mut self.session {
            Session::Server(session) => match session.process_tls_records(&mut incomplete).state {
                Ok(ConnectionState::WriteTraffic(mut traffic)) => Some(write(&mut traffic, output)),
                _ => None,
            },
            Session::Client(session) => match session.process_tls_records(&mut incomplete).state {
                Ok(ConnectionState::WriteTraffic(mut traffic)) => Some(write(&mut traffic, output)),
                _ => None,
            },
        };
        self.incomplete = incomplete;
        match result {
            Some(Ok(bytes)) => Ok(bytes),
            Some(Err(error)) => Err(io::Error::other(error)),
            None => Err(io::Error::new(io::ErrorKind::BrokenPipe, "the TLS session is closed")),
        }
    }

    pub(super) fn is_flushed(&self) -> bool {
        self.outgoing_sent == self.outgoing.len()
    }

    /// Sends encrypted bytes that wait, and then ends the direction if that was asked for.
    ///
    /// # Errors
    /// Those of the socket.
    pub(crate) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.is_flushed() {
            let sent = ready!(self.transport.poll_write(cx, &self.outgoing[self.outgoing_sent..]))?;
            self.byte_counts.sent += sent as u64;
            self.outgoing_sent += sent;
        }
        if !self.outgoing.is_empty() {
            self.outgoing = Vec::new();
            self.outgoing_sent = 0;
        }
        if std::mem::take(&mut self.shuts_down_after_flush) {
            self.transport.shutdown(Shutdown::Write)?;
        }
        Poll::Ready(Ok(()))
    }

    /// Copies decrypted bytes to `buffer`; `None` if there are none.
    fn take_content(&mut self, buffer: &mut [u8]) -> Option<usize> {
        if !self.has_content() {
            return None;
        }
        let unread = &self.content[self.content_read..];
        let bytes = unread.len().min(buffer.len());
        buffer[..bytes].copy_from_slice(&unread[..bytes]);
        self.content_read += bytes;
        if !self.has_content() {
            self.content = Vec::new();
            self.content_read = 0;
        }
        Some(bytes)
    }

    /// Processes `records` until more input is needed: returns the number of used bytes, and of
    /// content bytes in `buffer`. Handshake messages and alerts go to `outgoing`.
    pub(super) fn process(&mut self, records: &mut [u8], buffer: &mut [u8]) -> (usize, usize) {
        let Self { session, content, outgoing, end, .. } = self;
        let mut output = Output { content, outgoing, buffer, filled: 0 };
        let mut used = 0;
        // After a failure only the alert is encoded: more input would fail once more.
        while !matches!(end, Some(End::Failed(_))) || session.common().wants_write() {
            let input = &mut records[used..];
            let (discard, step) = match session {
                Session::Server(session) => advance(session.process_tls_records(input), &mut output),
                Session::Client(session) => advance(session.process_tls_records(input), &mut output),
            };
            used += discard;
            match step {
                Step::Again => {}
                Step::PeerClosed => *end = Some(End::CloseNotify),
                Step::NeedsInput | Step::Open | Step::Closed => break,
                Step::Failed(error) => *end = Some(End::Failed(error)),
            }
        }
        (used, output.filled)
    }
}

impl std::fmt::Debug for TlsStream {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("TlsStream").field("transport", &self.transport).finish_non_exhaustive()
    }
}

impl Session {
    pub(super) fn common(&self) -> &CommonState {
        match self {
            Self::Server(session) => session,
            Self::Client(session) => session,
        }
    }
}

fn invalid_data(error: rustls::Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, SessionError::from(error))
}
