//! Version of HTTP of a connection: ALPN decides with TLS, the first bytes without it (RFC 9113 §3).

use std::task::{Context, Poll};

use rt::tls::HandshakeKind;
use wire::h2::{PrefaceMatch, preface_match};

use crate::core::OriginCore;
use crate::plan::HttpVersions;
use crate::stats::{CloseReason, add};

use super::{Conn, FastPathExit};

/// Progress of a connection up to its version of HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConnStage {
    /// The handshake of TLS is not complete.
    Handshake,
    /// The first bytes decide between HTTP/1.1 and HTTP/2.
    Undecided,
    Http1,
    Http2,
}

/// Returns the stage after the accept, without TLS.
pub(super) fn first_stage(http: HttpVersions) -> ConnStage {
    match http {
        HttpVersions::Auto => ConnStage::Undecided,
        HttpVersions::Http1 => ConnStage::Http1,
        HttpVersions::Http2 => ConnStage::Http2,
    }
}

impl Conn {
    /// Completes the handshake of TLS, if there is one, and counts it. It has the time of an idle
    /// connection. Returns the exit for HTTP/2, or a failure; `None`: HTTP/1.1.
    #[cold]
    pub(super) fn poll_handshake(
        &mut self,
        cx: &mut Context<'_>,
        core: &OriginCore,
    ) -> Poll<Option<FastPathExit>> {
        if self.stage == ConnStage::Handshake {
            if let Err(error) = std::task::ready!(self.stream.poll_handshake(cx)) {
                return Poll::Ready(Some(FastPathExit::Close(CloseReason::from_io_error(&error))));
            }
            add(&core.counters.tls_handshakes, 1);
            let info = self.stream.tls_info();
            let is_resumed = info.as_ref().is_some_and(|info| info.handshake == HandshakeKind::Resumed);
            add(&core.counters.tls_resumed, u64::from(is_resumed));
            let is_http2 = core.plan.http == HttpVersions::Http2
                || info.and_then(|info| info.alpn).as_deref() == Some(b"h2");
            self.stage = if is_http2 { ConnStage::Http2 } else { ConnStage::Http1 };
        }
        Poll::Ready((self.stage == ConnStage::Http2).then_some(FastPathExit::Http2))
    }

    /// Compares the first bytes with the preface of HTTP/2. Pending: more bytes decide. Returns the
    /// exit for HTTP/2; `None`: HTTP/1.1. `is_prefix` means that the kept bytes are their start.
    #[cold]
    pub(super) fn detect_version(&mut self, input: &[u8], is_prefix: bool) -> Poll<Option<FastPathExit>> {
        let matched = preface_match(input);
        if matched == PrefaceMatch::No {
            self.stage = ConnStage::Http1;
            return Poll::Ready(None);
        }
        if !self.keep_unparsed(input, is_prefix) {
            return Poll::Ready(Some(FastPathExit::Close(CloseReason::NoBuffer)));
        }
        if matched == PrefaceMatch::Partial {
            return Poll::Pending;
        }
        self.stage = ConnStage::Http2;
        Poll::Ready(Some(FastPathExit::Http2))
    }
}
