//! What one request did: the one value that log, metrics and (later) passive health read. Nothing
//! here decides anything.

use std::net::IpAddr;

use crate::balance::sticky::Found;

/// How a request ended, and who is to blame. One row each: the code in metrics and JSON logs, the
/// first letter of HAProxy's termination code, the status that the client is told when there is
/// still a way to tell it (0: none), and what it means.
macro_rules! ends {
    ($($variant:ident, $code:literal, $letter:literal, $status:literal, $doc:literal;)*) => {
        /// How a request ended.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub(crate) enum End {
            $(#[doc = $doc] $variant,)*
        }

        impl End {
            /// Every end, in the order of the table: `end as usize` is its index.
            pub(crate) const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// In `snake_case`, stable, for metrics and JSON logs.
            pub(crate) fn code(self) -> &'static str {
                match self { $(Self::$variant => $code,)* }
            }

            /// HAProxy's first letter: who ended it.
            pub(crate) fn letter(self) -> u8 {
                match self { $(Self::$variant => $letter,)* }
            }

            /// What the client is told, if it can be; 0: nothing.
            pub(crate) fn status(self) -> u16 {
                match self { $(Self::$variant => $status,)* }
            }

            /// What it means.
            pub(crate) fn doc(self) -> &'static str {
                match self { $(Self::$variant => $doc,)* }
            }
        }
    };
}

ends! {
    Done, "done", b'-', 0, "answered in full";
    Answered, "answered", b'L', 0, "answered by the proxy itself, as planned";
    ClientGone, "client_gone", b'C', 0, "the client closed or reset its connection first";
    HeadTimeout, "head_timeout", b'c', 408, "the client did not finish its head in time";
    BodyTimeout, "body_timeout", b'c', 408, "the client did not send its body fast enough";
    WriteTimeout, "write_timeout", b'c', 0, "the client did not take its answer in time";
    BadRequest, "bad_request", b'P', 400, "the request was malformed or over a limit";
    BodyTooLarge, "body_too_large", b'P', 413, "the request's body was longer than allowed";
    NoRoute, "no_route", b'P', 404, "no route matched";
    ConnectForbidden, "connect_forbidden", b'P', 405, "CONNECT is not allowed here";
    Denied, "denied", b'P', 403, "a route denied it";
    RateLimited, "rate_limited", b'P', 429, "a route's rate limit was reached";
    Tarpitted, "tarpitted", b'P', 403, "a route kept it waiting and refused it";
    SilentlyDropped, "silently_dropped", b'P', 0, "a route dropped it without a word";
    ConnectionLimited, "connection_limited", b'P', 503, "the listener had as many connections, or as many a second, as it may";
    SourceLimited, "source_limited", b'P', 429, "the client's network had as many connections, or as many a second, or as many requests, as it may";
    NoServer, "no_server", b'S', 503, "the pool has no server that may be used";
    QueueFull, "queue_full", b'P', 503, "the pool's queue was full";
    QueueTimeout, "queue_timeout", b's', 503, "it waited too long in the pool's queue";
    QueueShed, "queue_shed", b'P', 503, "it was put out of the pool's queue for a more urgent or a newer one";
    DeadlineMissed, "deadline_missed", b's', 504, "its client would have left before the answer";
    NoBuffer, "no_buffer", b'R', 503, "no buffer was left";
    NoDescriptor, "no_descriptor", b'R', 503, "no descriptor, port or memory was left for a connection to a server";
    ConnectFailed, "connect_failed", b'S', 503, "the server could not be reached";
    ConnectTimeout, "connect_timeout", b's', 503, "the server did not accept in time";
    ServerClosed, "server_closed", b'S', 502, "the server closed or reset its connection first";
    ServerTimeout, "server_timeout", b's', 504, "the server did not answer, or go on, in time";
    BadResponse, "bad_response", b'P', 502, "the server's response was malformed or over a limit";
    BadProxyHeader, "bad_proxy_header", b'P', 0, "the connection did not start with a PROXY header that may be believed";
    TunnelIdle, "tunnel_idle", b'c', 0, "neither side of a tunnel sent anything for too long";
    Drained, "drained", b'K', 0, "the proxy was stopped before it was over";
    Killed, "killed", b'K', 0, "an operator ended its connection";
}

/// What a request was in when it ended. One row each: the second letter of HAProxy's termination
/// code, and what it means.
macro_rules! phases {
    ($($variant:ident, $letter:literal, $doc:literal;)*) => {
        /// What a request was in when it ended: the second letter of HAProxy's termination code.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Phase {
            $(#[doc = $doc] $variant,)*
        }

        impl Phase {
            /// Every phase, in the order of the table.
            pub(crate) const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// HAProxy's second letter.
            pub(crate) fn letter(self) -> u8 {
                match self { $(Self::$variant => $letter,)* }
            }

            /// What it means.
            pub(crate) fn doc(self) -> &'static str {
                match self { $(Self::$variant => $doc,)* }
            }
        }
    };
}

phases! {
    Request, b'R', "the request's head or body was being received";
    Queue, b'Q', "waiting for a server to have room";
    Connect, b'C', "connecting to the server";
    Head, b'H', "waiting for the response's head";
    Data, b'D', "passing on the response's body, or in a tunnel";
    Last, b'L', "the last of the response was still to be sent to the client";
    Tarpit, b'T', "in a tarpit";
    Over, b'-', "over";
}

/// One request, or one TCP connection, that has ended. Borrowed from the connection: readers copy
/// what they keep.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outcome<'a> {
    /// The client's address, as a PROXY header has it where that is believed; `None`: unix.
    pub(crate) client: Option<IpAddr>,
    /// Its port; 0 on a unix socket.
    pub(crate) client_port: u16,
    /// Index in [`crate::plan::Plan::listeners`].
    pub(crate) listener: usize,
    /// Index in [`crate::plan::Plan::routes`]; `None`: it was refused before, or is TCP.
    pub(crate) route: Option<usize>,
    /// Index in [`crate::plan::Plan::pools`].
    pub(crate) pool: Option<usize>,
    /// Index in the pool's servers.
    pub(crate) server: Option<usize>,
    /// `None`: a TCP connection, or no head could be read.
    pub(crate) request: Option<Asked<'a>>,
    /// The status that the client was sent; 0: none.
    pub(crate) status: u16,
    /// How it ended.
    pub(crate) end: End,
    /// In what it ended.
    pub(crate) phase: Phase,
    /// What was wrong with the bytes, for `BadRequest` and `BadResponse`.
    pub(crate) refusal: Option<wire::RefusalKind>,
    /// Its times.
    pub(crate) times: Times,
    /// Bytes received from the client for it, head included.
    pub(crate) bytes_in: u64,
    /// Bytes sent to the client for it, head included.
    pub(crate) bytes_out: u64,
    /// Of those, content.
    pub(crate) content_bytes_out: u64,
    /// How often it was sent again.
    pub(crate) retries: u8,
    /// Whether the connection to the server had carried a request before.
    pub(crate) reused: bool,
    /// Whether the server finished an answer that nobody was there to take any more.
    pub(crate) wasted: bool,
    /// What its sticky cookie said; `None`: its pool has none.
    pub(crate) sticky: Option<Found>,
}

/// What was asked, as far as a log needs it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked<'a> {
    pub(crate) method: &'a [u8],
    /// As it was sent, query included.
    pub(crate) target: &'a [u8],
    pub(crate) version: wire::Version,
    /// Empty: none was given; these three are empty as well when no log asks for them.
    pub(crate) host: &'a [u8],
    pub(crate) referer: &'a [u8],
    pub(crate) user_agent: &'a [u8],
    /// Empty: none.
    pub(crate) request_id: &'a [u8],
}

/// When a request did what, in nanoseconds of `CLOCK_MONOTONIC`; 0: it never came to it.
///
/// ```text
/// start_ns --Tq--> head_ns --Tw--> dispatched_ns --Tc--> connected_ns --Tr--> first_byte_ns --Td--> end_ns
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Times {
    /// The first byte of the head was there.
    pub(crate) start_ns: u64,
    /// The whole head was there.
    pub(crate) head_ns: u64,
    /// A server had room for it.
    pub(crate) dispatched_ns: u64,
    /// A connection to the server stood.
    pub(crate) connected_ns: u64,
    /// The head of the response was there.
    pub(crate) first_byte_ns: u64,
    /// It ended.
    pub(crate) end_ns: u64,
}
