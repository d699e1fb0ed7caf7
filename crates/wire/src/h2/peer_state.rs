//! State of the other end, for callers that report it.

use super::config::StreamKey;
use super::connection::Connection;

impl Connection {
    /// Returns the peer's limit of concurrent streams (`SETTINGS_MAX_CONCURRENT_STREAMS`); `None` if
    /// it has not set one.
    pub fn peer_streams_max(&self) -> Option<u32> {
        (self.has_peer_settings && self.peer.streams_max < u32::MAX).then_some(self.peer.streams_max)
    }

    /// Returns the window that the peer gives a new stream (`SETTINGS_INITIAL_WINDOW_SIZE`), in bytes.
    pub fn initial_send_window(&self) -> u64 {
        u64::try_from(self.peer.initial_window).unwrap_or(0)
    }

    /// Returns the open part of the window that the peer gives the connection, in bytes.
    pub fn send_window(&self) -> u64 {
        u64::try_from(self.send_window).unwrap_or(0)
    }

    /// Returns the size of the head or trailer section that was reported last (RFC 9113 §6.5.2), in bytes.
    /// It may be far larger than what was received for it.
    #[inline]
    pub fn last_head_bytes(&self) -> usize {
        self.head.size()
    }

    /// Returns the open part of the window that the peer gives a stream, in bytes; 0 if the stream is over.
    #[must_use]
    pub fn stream_send_window(&mut self, stream: StreamKey) -> u64 {
        self.streams.get_open(stream).map_or(0, |open| u64::try_from(open.send_window).unwrap_or(0))
    }

    /// Returns the stream of a head of which only a part was received: the rest is in CONTINUATION frames
    /// to come.
    pub fn incomplete_head(&self) -> Option<u32> {
        self.open_block.map(|block| block.stream)
    }

    /// Returns whether the peer sent a GOAWAY: it processes no streams beyond those that it named.
    pub fn is_peer_going_away(&self) -> bool {
        self.peer_last_accepted.is_some()
    }
}
