//! Bytes of an exchange that lasts: those of a connection with HTTP/1.1, or of one stream of HTTP/2.

use std::task::{Context, Poll};

use rt::stream::Stream;

use super::http2::Http2Tunnel;
use crate::core_state::CoreState;
use crate::failure::FailureKind;

/// Stream of bytes in both directions.
pub(super) enum Transport {
    Http1(Stream),
    Http2(Box<Http2Tunnel>),
}

impl Transport {
    /// Reads into `buffer`. Returns 0 at the end.
    pub(super) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        core: &CoreState,
        buffer: &mut [u8],
    ) -> Poll<Result<usize, FailureKind>> {
        let stream = match self {
            Self::Http1(stream) => stream,
            Self::Http2(tunnel) => return tunnel.poll_read(cx, core, buffer),
        };
        let read = stream.poll_read(cx, buffer).map_err(|error| FailureKind::from_io_error(&error));
        if let Poll::Ready(Ok(bytes)) = read {
            core.recorder.borrow_mut().counters.bytes_in += bytes as u64;
        }
        read
    }

    /// Writes as much as is accepted now.
    pub(super) fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        core: &CoreState,
        bytes: &[u8],
    ) -> Poll<Result<usize, FailureKind>> {
        let stream = match self {
            Self::Http1(stream) => stream,
            Self::Http2(tunnel) => return tunnel.poll_write(cx, core, bytes),
        };
        let written = stream.poll_write(cx, bytes).map_err(|error| FailureKind::from_io_error(&error));
        if let Poll::Ready(Ok(bytes)) = written {
            core.recorder.borrow_mut().counters.bytes_out += bytes as u64;
        }
        written
    }

    /// Ends the exchange, before the connection is closed.
    pub(super) fn close(&mut self, core: &CoreState, is_clean: bool) {
        if let Self::Http2(tunnel) = self {
            tunnel.close(core, is_clean);
        }
    }
}
