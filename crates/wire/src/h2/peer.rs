//! State of the other end, for callers that report it.

use super::connection::Connection;

impl Connection {
    /// Returns the peer's limit of concurrent streams (`SETTINGS_MAX_CONCURRENT_STREAMS`); `None` if
    /// it has not set one.
    #[must_use]
    pub fn peer_streams_max(&self) -> Option<u32> {
        (self.has_peer_settings && self.peer.streams_max < u32::MAX).then_some(self.peer.streams_max)
    }

    /// Returns whether the peer sent a GOAWAY: it processes no streams beyond those that it named.
    #[must_use]
    pub fn is_peer_going_away(&self) -> bool {
        self.peer_last_accepted.is_some()
    }
}
