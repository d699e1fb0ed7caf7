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
    /// Plain HTTP instead of TLS.
    PlainHttp,
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
    /// Returns the exit of a poll before the version is known, or with HTTP/2; `None`: go on.
    #[inline]
    pub(super) fn poll_start(
        &mut self,
        cx: &mut Context<'_>,
        core: &OriginCore,
    ) -> Option<Poll<FastPathExit>> {
        match self.stage {
            ConnStage::Http1 | ConnStage::Undecided => None,
            ConnStage::Handshake => self.poll_handshake(cx, core),
            ConnStage::Http2 => Some(Poll::Ready(FastPathExit::Http2)),
            ConnStage::PlainHttp => Some(self.poll_plain_http(cx, core)),
        }
    }

    /// Completes the handshake of TLS and counts it. It has the time of an idle connection. Returns the
    /// exit of the poll; `None`: the version is HTTP/1.1.
    #[cold]
    fn poll_handshake(&mut self, cx: &mut Context<'_>, core: &OriginCore) -> Option<Poll<FastPathExit>> {
        match self.stream.poll_handshake(cx) {
            Poll::Pending => return Some(self.poll_waiting(cx, core, false)),
            Poll::Ready(Err(error)) => {
                if let Some(exit) = self.begin_plain_http(cx, core) {
                    return Some(exit);
                }
                let reason = CloseReason::from_io_error(&error);
                return Some(Poll::Ready(FastPathExit::Close(reason)));
            }
            Poll::Ready(Ok(())) => {}
        }
        add(&core.counters.tls_handshakes, 1);
        let info = self.stream.tls_info();
        let is_resumed = info.as_ref().is_some_and(|info| info.handshake == HandshakeKind::Resumed);
        add(&core.counters.tls_resumed, u64::from(is_resumed));
        let is_http2 = core.plan.http == HttpVersions::Http2
            || info.and_then(|info| info.alpn).as_deref() == Some(b"h2");
        self.stage = if is_http2 { ConnStage::Http2 } else { ConnStage::Http1 };
        is_http2.then_some(Poll::Ready(FastPathExit::Http2))
    }

    /// Compares the first bytes with the preface of HTTP/2, if they were not compared yet. Returns the
    /// exit for HTTP/2; pending: more bytes decide; `None`: the version is HTTP/1.1. `is_prefix` means
    /// that the kept bytes are their start.
    #[inline]
    pub(super) fn check_version(&mut self, input: &[u8], is_prefix: bool) -> Option<Poll<FastPathExit>> {
        if self.stage == ConnStage::Undecided { self.detect_version(input, is_prefix) } else { None }
    }

    #[cold]
    fn detect_version(&mut self, input: &[u8], is_prefix: bool) -> Option<Poll<FastPathExit>> {
        let matched = preface_match(input);
        if matched == PrefaceMatch::No {
            self.stage = ConnStage::Http1;
            return None;
        }
        if !self.keep_unparsed(input, is_prefix) {
            return Some(Poll::Ready(FastPathExit::Close(CloseReason::NoBuffer)));
        }
        if matched == PrefaceMatch::Partial {
            return Some(Poll::Pending);
        }
        self.stage = ConnStage::Http2;
        Some(Poll::Ready(FastPathExit::Http2))
    }
}
