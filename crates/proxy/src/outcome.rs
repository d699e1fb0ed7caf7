//! Outcome of one request: the value that log, metrics and passive health checks read. Contains no
//! decisions.

use std::net::IpAddr;

use rt::clock::MonotonicTime;

use crate::plan::{PoolId, ServerId};
use crate::trace_context::TraceContext;

/// Declares the reasons why a request ends. Each row has the code in metrics and JSON logs, the
/// first letter of HAProxy's termination code (the party that caused the end), the status for the
/// client if it can still be sent (0: none), and the meaning.
macro_rules! end_reasons {
    ($($variant:ident, $code:literal, $letter:literal, $status:literal, $doc:literal;)*) => {
        /// Reason of the end of a request.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum EndReason {
            $(#[doc = $doc] $variant,)*
        }

        impl EndReason {
            /// All reasons, in the order of the table: `end as usize` is the index.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// Returns the code, in `snake_case`, stable, for metrics and JSON logs.
            pub fn code(self) -> &'static str {
                match self { $(Self::$variant => $code,)* }
            }

            /// Returns HAProxy's first letter: the party that ended the request.
            pub fn letter(self) -> u8 {
                match self { $(Self::$variant => $letter,)* }
            }

            /// Returns the status for the client, if it can still be sent; 0: none.
            pub fn status(self) -> u16 {
                match self { $(Self::$variant => $status,)* }
            }

            /// Returns the meaning.
            pub fn doc(self) -> &'static str {
                match self { $(Self::$variant => $doc,)* }
            }
        }
    };
}

end_reasons! {
    Done, "done", b'-', 0, "complete response";
    LocalResponse, "local_response", b'L', 0, "response of the proxy itself, as configured";
    ClientGone, "client_gone", b'C', 0, "the client closed or reset its connection first";
    HeadTimeout, "head_timeout", b'c', 408, "the client did not finish its head in time";
    BodyTimeout, "body_timeout", b'c', 408, "the client did not send its body fast enough";
    WriteTimeout, "write_timeout", b'c', 0, "the client did not read the response in time";
    BadRequest, "bad_request", b'P', 400, "the request was malformed or exceeded a limit";
    BodyTooLarge, "body_too_large", b'P', 413, "the request's body exceeded the maximum size";
    NoRoute, "no_route", b'P', 404, "no route matched";
    ConnectForbidden, "connect_forbidden", b'P', 405, "CONNECT is not allowed";
    Denied, "denied", b'P', 403, "a route denied the request";
    Unauthorized, "unauthorized", b'P', 401, "the request had no valid credentials";
    Forbidden, "forbidden", b'P', 403, "the credentials do not allow this request";
    AuthLimited, "auth_limited", b'P', 429, "too many wrong passwords";
    AuthUnavailable, "auth_unavailable", b'P', 503, "the credentials could not be checked";
    RateLimited, "rate_limited", b'P', 429, "a route's rate limit was reached";
    Tarpitted, "tarpitted", b'P', 403, "a route delayed and rejected the request";
    SilentlyDropped, "silently_dropped", b'P', 0, "a route dropped the connection without a response";
    ClientTlsFailed, "client_tls_failed", b'P', 0, "the client's TLS handshake failed or took too long";
    PlainHttp, "plain_http", b'P', 400, "plain HTTP on a port for TLS";
    BadClientHello, "bad_client_hello", b'P', 0, "the connection did not begin with a valid TLS ClientHello in time (`sni`)";
    UnknownServerName, "unknown_server_name", b'P', 0, "no entry of `sni` matched the ClientHello, and there is no default pool";
    ConnectionLimited, "connection_limited", b'P', 503, "the listener reached its maximum number or rate of connections";
    SourceLimited, "source_limited", b'P', 429, "the client's network reached its connection or request limit";
    NoServer, "no_server", b'S', 503, "the pool has no usable server";
    QueueFull, "queue_full", b'P', 503, "the pool's queue was full";
    QueueTimeout, "queue_timeout", b's', 503, "the queue timeout expired";
    QueueShed, "queue_shed", b'P', 503, "evicted from the pool's queue by a more urgent or newer request";
    DeadlineExceeded, "deadline_exceeded", b's', 504, "the response would miss the deadline of the client or of its route";
    NoBuffer, "no_buffer", b'R', 503, "no free buffer";
    FileFailed, "file_failed", b'R', 0, "a file could not be read to its end (`files`)";
    NoDescriptor, "no_descriptor", b'R', 503, "no free descriptor, port or memory for a server connection";
    NoSourceAddress, "no_source_address", b'R', 503, "this host has no address of the pool's `source`, or none of the server's family";
    ConnectFailed, "connect_failed", b'S', 503, "the server could not be reached";
    ConnectTimeout, "connect_timeout", b's', 503, "the server did not accept in time";
    TlsHandshakeFailed, "tls_handshake_failed", b'S', 503, "the TLS handshake with the server failed, or its certificate is not valid";
    NoHttp2, "no_http2", b'S', 502, "the server did not begin HTTP/2 (`http` of the pool)";
    UpgradeUnsupported, "upgrade_unsupported", b'P', 502, "the HTTP/2 server does not support WebSocket (RFC 8441)";
    ServerClosed, "server_closed", b'S', 502, "the server closed or reset its connection first";
    ServerTimeout, "server_timeout", b's', 504, "the server did not respond, or continue, in time";
    BadResponse, "bad_response", b'P', 502, "the server's response was malformed or exceeded a limit";
    BadProxyHeader, "bad_proxy_header", b'P', 0, "missing, invalid or untrusted PROXY header";
    TunnelIdle, "tunnel_idle", b'c', 0, "neither side of a tunnel sent anything for too long";
    Drained, "drained", b'K', 0, "the proxy stopped before the end of the request";
    Killed, "killed", b'K', 0, "an operator closed the connection";
}

code_table! {
    /// Reason for which a client's connection was closed before it was served, or had to wait.
    pub(crate) enum RejectReason:
    ProcessFull, "process_full", "`connections-max` of the process was reached";
    ListenerFull, "listener_full", "`connections-max` of the listener was reached";
    ConnectionRate, "connection_rate", "`connections-rate` of the listener was reached";
    SourceConnections, "source_connections", "the source reached its limit of connections (`per-source`)";
    SourceRate, "source_rate", "the source reached its rate limit (`per-source`)";
    SourceTable, "source_table", "the table of sources was full; the connection was served without limits";
    HandshakesFull, "handshakes_full", "`handshakes-max` of the listener was reached; the connection was reset";
    RejectsFull, "rejects_full", "too many rejected connections were still open; this one was reset";
    ProxyHeader, "proxy_header", "the PROXY header was missing, malformed or late";
    Untrusted, "untrusted", "the peer was not in `trusted` on a listener with `proxy-protocol`";
    NoDescriptor, "no_descriptor", "no free descriptor or memory";
    Draining, "draining", "the proxy was draining";
}

code_table! {
    /// Event of a second attempt (hedge). Each one that was sent is later won, lost or failed.
    pub(crate) enum HedgeEvent:
    Sent, "sent";
    Won, "won";
    Lost, "lost";
    Failed, "failed";
    NoBudget, "no_budget";
    NoServer, "no_server";
}

code_table! {
    /// Use of a cache by a request.
    pub enum CacheResult:
    Hit, "hit", "a stored response that was fresh";
    Stale, "stale", "a stored response that was stale, which the request or `stale-while-revalidate` allows";
    StaleIfError, "stale_if_error", "a stored response that was stale, because no server responded";
    Revalidated, "revalidated", "a stored response that its server has validated (304)";
    Coalesced, "coalesced", "the response to an equal request that was in flight";
    Miss, "miss", "forwarded, because no usable response was stored";
    Bypass, "bypass", "forwarded without a look into the cache: by `bypass`, its method or its fields";
    Unsatisfied, "unsatisfied", "504, because the request allows only a stored response, and none is usable";
}

code_table! {
    /// Result of the lookup of a request's sticky cookie.
    pub(crate) enum StickyLookup:
    Hit, "hit", "Names a server that is up; the request goes there.";
    Missing, "missing", "No cookie.";
    Unknown, "unknown", "Valid, but its server is no longer in the pool.";
    Invalid, "invalid", "Forged, corrupt, or signed with another key.";
    Down, "down", "Names a server that is not up.";
    Expired, "expired", "Its server was chosen, or had its last request, too long ago.";
}

/// Declares the phases in which a request can end. Each row has the second letter of HAProxy's
/// termination code and the meaning.
macro_rules! end_phases {
    ($($variant:ident, $letter:literal, $doc:literal;)*) => {
        /// Phase in which a request ended: the second letter of HAProxy's termination code.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum EndPhase {
            $(#[doc = $doc] $variant,)*
        }

        impl EndPhase {
            /// All phases, in the order of the table.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// Returns HAProxy's second letter.
            pub fn letter(self) -> u8 {
                match self { $(Self::$variant => $letter,)* }
            }

            /// Returns the meaning.
            pub fn doc(self) -> &'static str {
                match self { $(Self::$variant => $doc,)* }
            }
        }
    };
}

end_phases! {
    Request, b'R', "receiving the request's head or body";
    Queue, b'Q', "waiting for a free slot at a server";
    Connect, b'C', "connecting to the server";
    Head, b'H', "waiting for the response's head";
    Data, b'D', "forwarding the response's body, or in a tunnel";
    Last, b'L', "sending the end of the response to the client";
    Tarpit, b'T', "in a tarpit";
    Over, b'-', "complete";
}

/// One ended request or TCP connection. Borrowed from the connection: readers copy the values that
/// they keep.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outcome<'a> {
    /// The client's address, from a trusted PROXY header if there is one; `None`: unix socket.
    pub client: Option<IpAddr>,
    /// The client's port; 0 on a unix socket.
    pub(crate) client_port: u16,
    /// Index in [`crate::plan::Plan::listeners`].
    pub listener: usize,
    /// Index in [`crate::plan::Plan::routes`]; `None`: rejected before routing, or TCP.
    pub(crate) route: Option<usize>,
    /// Index in [`crate::plan::Plan::pools`].
    pub pool: Option<PoolId>,
    /// Index in the pool's servers.
    pub server: Option<ServerId>,
    /// `None`: a TCP connection, or no head could be read.
    pub(crate) request: Option<LoggedRequest<'a>>,
    /// Status that was sent to the client; 0: none.
    pub(crate) status: u16,
    pub(crate) end: EndReason,
    pub(crate) phase: EndPhase,
    /// Error in the bytes, for `BadRequest` and `BadResponse`.
    pub(crate) refusal: Option<wire::RefusalKind>,
    pub times: Times,
    /// Bytes received from the client for it, head included.
    pub bytes_in: u64,
    /// Bytes sent to the client for it, head included.
    pub bytes_out: u64,
    /// Content bytes among the bytes sent.
    pub(crate) content_bytes_out: u64,
    pub retries: u8,
    /// True if the server connection had carried a request before.
    pub(crate) reused: bool,
    /// True if the server completed a response after its client had left.
    pub(crate) wasted: bool,
    /// Result of the sticky cookie lookup; `None`: the pool has no sticky cookie.
    pub(crate) sticky: Option<StickyLookup>,
    /// End of the second attempt; `None`: there was none.
    pub(crate) hedge: Option<HedgeEvent>,
    /// Use of a cache; `None`: its route has none.
    pub(crate) cache: Option<CacheResult>,
    /// Version and cipher suite of the client's TLS session; `None`: a plain connection, or its
    /// handshake is not complete.
    pub(crate) tls_names: Option<(&'static str, &'static str)>,
    /// Server name that the client asked for (SNI).
    pub(crate) server_name: Option<&'a str>,
    /// User that authentication found or refused; empty: none.
    pub(crate) user: &'a str,
    /// Fault of the TLS handshake that ended the request.
    pub(crate) tls_error: Option<&'a str>,
    /// Trace of the request; `None`: traces are off, or there was no head.
    pub(crate) trace: Option<&'a RequestTrace>,
}

impl Outcome<'_> {
    /// Returns whether the request failed: such requests are logged and recorded whatever the sample.
    pub(crate) fn is_failed(&self) -> bool {
        self.status >= 500 || !matches!(self.end, EndReason::Done | EndReason::LocalResponse)
    }
}

/// Protocol of a client's request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// HTTP/1.0.
    Http10,
    /// HTTP/1.1.
    Http11,
    /// HTTP/2.
    Http2,
}

impl Protocol {
    pub(crate) fn name(self) -> &'static [u8; 8] {
        match self {
            Self::Http10 => b"HTTP/1.0",
            Self::Http11 => b"HTTP/1.1",
            Self::Http2 => b"HTTP/2.0",
        }
    }
}

/// The request, as far as logs need it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LoggedRequest<'a> {
    pub(crate) method: &'a [u8],
    /// The target as received, query included.
    pub(crate) target: &'a [u8],
    pub(crate) protocol: Protocol,
    /// Empty: not present. This and the next two fields are also empty if no log uses them.
    pub(crate) host: &'a [u8],
    pub(crate) referer: &'a [u8],
    pub(crate) user_agent: &'a [u8],
    /// Request id; empty: none.
    pub(crate) request_id: &'a [u8],
    /// Values that a log has captured from the head, see [`crate::log`].
    pub(crate) captured: &'a [u8],
}

/// Timestamps of a request; [`MonotonicTime::ZERO`]: not reached.
///
/// ```text
/// start --Tq--> head --Tw--> dispatched --Tc--> connected --Tr--> first_byte --Td--> end
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Times {
    /// The first byte of the head arrived.
    pub(crate) start: MonotonicTime,
    pub(crate) head: MonotonicTime,
    /// The request got a slot at a server.
    pub(crate) dispatched: MonotonicTime,
    pub(crate) connected: MonotonicTime,
    pub(crate) first_byte: MonotonicTime,
    pub(crate) end: MonotonicTime,
}

/// Maximum number of attempts that are kept.
pub(crate) const ATTEMPTS_MAX: usize = 16;

/// Parts of a request that logs and traces need of its head, beside the request line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NeededFields {
    None,
    /// The host and `User-Agent`.
    ForTraces,
    All,
}

impl NeededFields {
    pub(crate) fn new(logs_need: bool, has_traces: bool) -> Self {
        match (logs_need, has_traces) {
            (true, _) => Self::All,
            (false, true) => Self::ForTraces,
            (false, false) => Self::None,
        }
    }
}

/// Trace of a request, and the attempts before its last one.
#[derive(Clone, Debug)]
pub(crate) struct RequestTrace {
    pub(crate) context: TraceContext,
    pub(crate) attempts: Vec<EarlierAttempt>,
}

/// An attempt at a server that was followed by another.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EarlierAttempt {
    pub server: Option<ServerId>,
    pub(crate) start: MonotonicTime,
    pub(crate) end: MonotonicTime,
    pub reason: EndReason,
}

impl RequestTrace {
    pub(crate) fn note_attempt(&mut self, attempt: EarlierAttempt) {
        if self.attempts.len() < ATTEMPTS_MAX {
            self.attempts.push(attempt);
        }
    }
}
