//! State of the second attempt of a request whose response is late.

use rt::clock::MonotonicTime;
use rt::timers::Sleep;

use super::{Connecting, ServerSlot};
use crate::server_conn::ServerConn;

/// Second attempt of a request. A request has at most one.
pub(crate) struct Hedge {
    pub(crate) state: HedgeState,
    /// Time when the first attempt began.
    pub(crate) first_dispatched: MonotonicTime,
}

pub(crate) enum HedgeState {
    /// The first attempt is not late yet.
    Waiting(Sleep),
    /// Both attempts are in progress.
    Trying(Box<HedgeAttempt>),
    /// The first attempt has failed, and the second one has taken its place.
    Promoted,
    /// The second attempt has ended, or could not be made.
    Over,
}

/// An attempt at a second server.
pub(crate) struct HedgeAttempt {
    pub(crate) slot: ServerSlot,
    pub(crate) dispatched: MonotonicTime,
    pub(crate) connected: MonotonicTime,
    pub(crate) link: HedgeLink,
    pub(crate) is_reused: bool,
    /// Number of sent bytes of the request.
    pub(crate) sent: usize,
    /// Bytes that the server's TLS session had sent before the request.
    pub(crate) tls_sent_before: u64,
    /// Received bytes that are not parsed: a part of a head, or the final head and what follows.
    pub(crate) received: Vec<u8>,
    pub(crate) interim_count: u32,
    /// True if the final head is received, and it is a good one.
    pub(crate) has_head: bool,
}

pub(crate) enum HedgeLink {
    Connecting(Connecting),
    Open(ServerConn),
}
