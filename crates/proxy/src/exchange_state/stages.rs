//! State of an exchange by its stages: the request, the wait for a slot, the attempts, the progress.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use rt::clock::MonotonicTime;
use rt::stream::Stream;
use server_shell::progress::ProgressTimer;

use crate::accept::AcceptedForms;
use crate::dial::ConnectError;
use crate::plan::Priority;
use crate::pool::{NO_DEADLINE, ServerRequirements};
use crate::recoding::CodingRequest;
use crate::server_conn::ServerConn;
use crate::server_conn::http2::{Granted, WaitForStream};

/// Properties of the request, known from its head.
pub(crate) struct RequestFacts {
    pub(crate) kind: wire::RequestKind,
    pub(crate) version: wire::Version,
    /// True if the client may send another request unless the response forbids it.
    pub(crate) may_pipeline: bool,
    /// True if sending the request twice has the same effect as sending it once.
    pub(crate) is_idempotent: bool,
    /// True if the server was asked to change the protocol.
    pub(crate) requests_upgrade: bool,
    /// True if the request is a WebSocket handshake.
    pub(crate) requests_websocket: bool,
    /// True if the client may be waiting for `100 Continue` before it sends the body.
    pub(crate) expects_continue: bool,
    /// True if the request is a call of gRPC.
    pub(crate) is_grpc: bool,
    /// True if client and server may send at the same time (gRPC), or the server alone (server-sent events),
    /// and pause for long.
    pub(crate) is_streaming: bool,
    /// True if unparsed bytes are forwarded (mode tcp).
    pub(crate) is_tcp: bool,
    /// Forms of an error page that the client accepts.
    pub(crate) accepted_forms: AcceptedForms,
    /// True while its bytes per second are limited; only valid for a route with settings.
    pub(crate) is_limited: bool,
    /// Index of its pool in the split of its route; only valid for such a route.
    pub(crate) split_share: u8,
    /// Statements of the request about the coding of its response, for a route with compression.
    pub(crate) codings: CodingRequest,
}

/// Terms on which the request waits for a slot.
pub(crate) struct SlotTerms {
    pub(crate) requirements: ServerRequirements,
    pub(crate) priority: Priority,
    /// Time until which the client waits; [`NO_DEADLINE`]: not given.
    pub(crate) deadline: MonotonicTime,
}

/// A connection that is being established.
pub(crate) enum Connecting {
    /// For this request only.
    Own(Pin<Box<dyn Future<Output = Result<Stream, ConnectError>>>>),
    /// For all requests that wait for a stream.
    Shared(WaitForStream),
}

/// State of the attempts to send the request to a server.
#[derive(Default)]
pub(crate) struct Attempt {
    /// True if the server's connection can carry another request.
    pub(crate) keeps_server: bool,
    /// True if the connection to the server supports no WebSocket handshake, but the request is one.
    pub(crate) lacks_upgrade: bool,
    /// True if the next connection has to speak HTTP/1.1.
    pub(crate) needs_http11: bool,
    /// True if a new connection is required because an idle one has just failed.
    pub(crate) needs_new_connection: bool,
    /// True if the unprocessed bytes have a complete head, so that nothing is read before it.
    pub(crate) holds_head: bool,
    /// True if the server accepts no more of the request.
    pub(crate) is_request_broken: bool,
    /// Number of retries of requests that the server has not received or not processed.
    pub(crate) unreceived_count: u8,
    /// Time when the wait for the response's head began; 0: not yet.
    pub(crate) first_byte_wait_start: MonotonicTime,
    /// Bytes of the request that the servers' sockets have accepted.
    pub(crate) request_written_bytes: u64,
    /// Bytes that the server's TLS session had sent before the request.
    pub(crate) tls_sent_before: u64,
}

/// Names that a tunnel keeps of its configuration.
#[derive(Debug)]
pub(crate) struct DetachedNames {
    pub(crate) route: Option<Box<str>>,
    pub(crate) pool: Option<Box<str>>,
    pub(crate) server: Option<Box<str>>,
}

/// Progress of both messages: of their senders, and of blocked receivers.
#[derive(Default)]
pub(crate) struct ProgressTimers {
    /// Content of the request: the minimum rate, and the longest pause.
    pub(crate) body: ProgressTimer,
    pub(crate) body_idle: ProgressTimer,
    pub(crate) response: ProgressTimer,
    /// Bytes that the client, and the server, have confirmed.
    pub(crate) client_write: ProgressTimer,
    pub(crate) server_write: ProgressTimer,
}

impl Connecting {
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Granted, ConnectError>> {
        match self {
            Self::Own(future) => future.as_mut().poll(cx).map_ok(|stream| {
                let conn = ServerConn::new(stream);
                Granted { conn, is_reused: false }
            }),
            Self::Shared(wait) => Pin::new(wait).poll(cx),
        }
    }
}

impl Default for RequestFacts {
    fn default() -> Self {
        Self {
            kind: wire::RequestKind::Other,
            version: wire::Version::Http11,
            may_pipeline: false,
            is_idempotent: false,
            requests_upgrade: false,
            requests_websocket: false,
            expects_continue: false,
            is_grpc: false,
            is_streaming: false,
            is_tcp: false,
            accepted_forms: AcceptedForms::default(),
            is_limited: false,
            split_share: 0,
            codings: CodingRequest::default(),
        }
    }
}

impl Default for SlotTerms {
    fn default() -> Self {
        Self {
            requirements: ServerRequirements::default(),
            priority: Priority::Normal,
            deadline: NO_DEADLINE,
        }
    }
}
