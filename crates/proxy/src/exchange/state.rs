//! State of an exchange by its stages: the request, the wait for a slot, the attempts, the progress.

use crate::plan::Priority;
use crate::pool::{NO_DEADLINE, ServerRequirements};

/// Properties of the request, known from its head.
pub(super) struct RequestFacts {
    pub(super) kind: wire::RequestKind,
    pub(super) version: wire::Version,
    /// True if the client may send another request unless the response forbids it.
    pub(super) may_pipeline: bool,
    /// True if sending the request twice has the same effect as sending it once.
    pub(super) is_idempotent: bool,
    /// True if the server was asked to change the protocol.
    pub(super) requests_upgrade: bool,
    /// True if the request is a WebSocket handshake.
    pub(super) requests_websocket: bool,
    /// True if the client may be waiting for `100 Continue` before it sends the body.
    pub(super) expects_continue: bool,
    /// True if the request is a call of gRPC.
    pub(super) is_grpc: bool,
    /// True if client and server may send at the same time, and pause for long (gRPC).
    pub(super) is_streaming: bool,
    /// True if unparsed bytes are forwarded (mode tcp).
    pub(super) is_tcp: bool,
}

/// Terms on which the request waits for a slot.
pub(super) struct SlotTerms {
    /// Requirements on a server of the pool.
    pub(super) requirements: ServerRequirements,
    pub(super) priority: Priority,
    /// Time until which the client waits; [`NO_DEADLINE`]: not given.
    pub(super) deadline_ns: u64,
}

/// State of the attempts to send the request to a server.
#[derive(Default)]
pub(super) struct Attempt {
    /// True if the server's connection can carry another request.
    pub(super) keeps_server: bool,
    /// True if the connection to the server supports no WebSocket handshake, but the request is one.
    pub(super) lacks_upgrade: bool,
    /// True if a new connection is required because an idle one has just failed.
    pub(super) needs_new_connection: bool,
    /// True if the server accepts no more of the request.
    pub(super) is_request_broken: bool,
    /// Number of retries for which an idle connection had ended before it carried anything.
    pub(super) unreceived_count: u8,
    /// Time when the wait for the response's head began; 0: not yet.
    pub(super) first_byte_wait_start_ns: u64,
    /// Bytes that the server's TLS session had sent before the request.
    pub(super) tls_sent_before: u64,
}

/// The last checks of the peers' progress.
#[derive(Default)]
pub(super) struct ProgressMarks {
    /// Bytes of the request's body; time 0: not checked yet.
    pub(super) body: ByteMark,
    /// Bytes that the blocked receiver had confirmed, from any start.
    pub(super) stalled: Option<ByteMark>,
}

/// A number of bytes, and the time when it was read.
#[derive(Clone, Copy, Default)]
pub(super) struct ByteMark {
    pub(super) bytes: u64,
    pub(super) at_ns: u64,
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
        }
    }
}

impl Default for SlotTerms {
    fn default() -> Self {
        Self {
            requirements: ServerRequirements::default(),
            priority: Priority::Normal,
            deadline_ns: NO_DEADLINE,
        }
    }
}
