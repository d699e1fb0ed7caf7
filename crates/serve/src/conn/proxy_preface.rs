//! The start of a connection from a proxy: the header of the PROXY protocol.

use std::task::{Context, Poll};

use wire::proxy_protocol::{HEADER_BYTES_MAX, Header, ParsedHeader, parse};

use crate::stats::{CloseReason, add};

use super::Conn;

/// Maximum size of the first read: a header, and the start of what follows.
const READ_BYTES: usize = 4 * 1024;

impl Conn {
    /// Reads the header, which has the time of a request's head. The rest of the bytes is kept.
    pub(crate) fn poll_proxy_header(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), CloseReason>> {
        let mut input = [0; READ_BYTES];
        loop {
            let read = match self.stream.poll_read(cx, &mut input) {
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(CloseReason::Peer)),
                Poll::Ready(Ok(read)) => read,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(CloseReason::from_io_error(&error))),
                Poll::Pending if self.has_waited(cx, self.core.plan.head_timeout_ns) => {
                    return Poll::Ready(Err(CloseReason::HeadTimeout));
                }
                Poll::Pending => return Poll::Pending,
            };
            add(&self.core.counters.bytes_in, read as u64);
            let received = [&self.unparsed, &input[..read]].concat();
            match parse(&received) {
                ParsedHeader::Complete { header, bytes } => {
                    return Poll::Ready(self.begin_behind_header(header, &received[bytes..]));
                }
                ParsedHeader::Incomplete if received.len() < HEADER_BYTES_MAX => {
                    if !self.keep_unparsed(&received, false) {
                        return Poll::Ready(Err(CloseReason::NoBuffer));
                    }
                }
                ParsedHeader::Incomplete | ParsedHeader::Invalid(_) => {
                    return Poll::Ready(Err(CloseReason::Rejected));
                }
            }
        }
    }

    fn begin_behind_header(&mut self, header: Header, rest: &[u8]) -> Result<(), CloseReason> {
        if let (Header::Proxied { source, .. }, Some(peer)) = (header, &mut self.peer) {
            *peer = source.ip().to_string().into();
        }
        if self.stream.is_tls() {
            self.stream.begin_tls(rest);
            self.release_buffer();
            return Ok(());
        }
        self.recheck_input = !rest.is_empty();
        if self.keep_unparsed(rest, false) { Ok(()) } else { Err(CloseReason::NoBuffer) }
    }
}
