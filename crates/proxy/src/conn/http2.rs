//! The begin of HTTP/2 on a client's connection: negotiated in the TLS handshake (ALPN), or with prior
//! knowledge on a plain connection (RFC 9113 §3). [`crate::client_http2`] serves it.

use std::rc::Rc;
use std::task::Poll;

use rt::byte_channel::ChannelEnd;
use wire::h2::{PrefaceMatch, preface_match};

use super::{Conn, ConnState, HeadSource};
use crate::client_http2::{ClientHttp2, ClientHttp2Outcome};
use crate::client_stream::{ClientStream, H2Client, RejectedRequest};
use crate::core::{Core, PollContext};
use crate::outcome::EndReason;

/// Name of HTTP/2 over TLS (RFC 9113 §3.2).
const ALPN_HTTP2: &[u8] = b"h2";

impl Conn {
    /// Returns whether the client has negotiated HTTP/2 in its handshake.
    pub(super) fn has_negotiated_http2(&self) -> bool {
        let info = self.client.stream.tls_info();
        info.and_then(|info| info.alpn).is_some_and(|protocol| protocol == ALPN_HTTP2)
    }

    /// Compares the first bytes of a plain connection with the preface of HTTP/2.
    #[inline]
    pub(super) fn detect_http2(&self, input: &[u8], from: HeadSource) -> PrefaceMatch {
        if self.client.request_count > 0 || self.client.settings.plan.http2.is_none() || self.client.is_tls()
        {
            return PrefaceMatch::No;
        }
        match from {
            HeadSource::Input(end) => preface_match(&input[..end]),
            HeadSource::Buffered => preface_match(self.client.buffered.bytes()),
        }
    }

    /// Begins HTTP/2 with received bytes.
    pub(super) fn begin_http2_with(&mut self, core: &Core, input: &[u8], from: HeadSource) -> ConnState {
        if let HeadSource::Input(end) = from
            && !self.client.buffer_bytes(core, &input[..end])
        {
            return ConnState::Closed;
        }
        self.begin_http2()
    }

    /// Begins HTTP/2.
    pub(super) fn begin_http2(&mut self) -> ConnState {
        self.client.disarm();
        self.client.end_request();
        let client_http2 = ClientHttp2::new(&mut self.client, spawn_stream);
        client_http2.map_or(ConnState::Closed, |client_http2| ConnState::Http2(Box::new(client_http2)))
    }

    pub(super) fn poll_http2(&mut self, ctx: &mut PollContext<'_, '_>, input: &mut [u8]) -> Poll<ConnState> {
        let ConnState::Http2(client_http2) = &mut self.state else {
            return Poll::Ready(ConnState::Closed);
        };
        match client_http2.poll(ctx, &mut self.client, input) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(ClientHttp2Outcome::Linger) => Poll::Ready(self.client.linger()),
            Poll::Ready(ClientHttp2Outcome::Close) => Poll::Ready(ConnState::Closed),
            Poll::Ready(ClientHttp2Outcome::Reset) => {
                // Fails if the socket is gone already, which has the same effect.
                let _ = self.client.stream.reset_on_close();
                Poll::Ready(ConnState::Closed)
            }
        }
    }

    pub(super) fn reject_stream(&mut self, ctx: &mut PollContext<'_, '_>) -> ConnState {
        match self.client.rare_state.as_mut().and_then(|rare| rare.rejected.take()) {
            Some(rejected) => self.begin_rejected(ctx, Ok(rejected.refusal), &rejected.request_line, 0),
            None => self.reject(ctx, Err(EndReason::BadRequest), 0),
        }
    }
}

/// Starts to serve the streams of one client, one after the other, until `end` is closed by its other end.
/// Limits and metrics count only the connection of the client.
fn spawn_stream(end: ChannelEnd, client: &Rc<H2Client>, rejected: Option<RejectedRequest>) {
    let state = if rejected.is_some() { ConnState::RejectedStream } else { ConnState::Idle };
    let mut conn = Conn { client: ClientStream::from_h2_stream(end, client, rejected), state };
    rt::tokio::task::spawn_local(std::future::poll_fn(move |cx| conn.poll(cx)));
}
