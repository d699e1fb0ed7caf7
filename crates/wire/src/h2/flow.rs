//! Receive windows (RFC 9113 §5.2), which grow while the peer fills them within one round trip.
//!
//! The round trip is that of a PING: no clock is needed.

/// Payload of the PING that measures a round trip; see [`super::Connection::ping`].
pub(super) const PROBE_PAYLOAD: u64 = u64::from_be_bytes(*b"window\0\0");

/// Smallest increment of the window of a connection that is worth a frame, in bytes.
const SHARED_INCREMENT_MIN: i64 = 4096;

/// Rest of a request of unknown length that a peer may send behind the response.
const UNKNOWN_REST_BYTES: u64 = 4 << 20;

#[derive(Clone, Copy, Debug)]
pub(super) struct WindowSize {
    pub(super) bytes: u32,
    bytes_max: u32,
}

impl WindowSize {
    pub(super) fn new(bytes: u32, bytes_max: u32) -> Self {
        let bytes = bytes.min(i32::MAX as u32);
        Self { bytes, bytes_max: bytes_max.min(i32::MAX as u32).max(bytes) }
    }

    /// Returns the increment that is worth a frame: at least half of the window.
    #[inline]
    pub(super) fn increment(&self, window: i32, held: u32) -> Option<u32> {
        let used = i64::from(window) + i64::from(held);
        let free = i64::from(self.bytes) - used;
        // At most the size of the window, which is less than 2^31.
        (free > 0 && free >= i64::from(self.bytes / 2)).then_some(free as u32)
    }

    /// Returns the increment of a window that streams share: at least half of what the held content leaves.
    /// So content that nobody takes from one stream never stops the others while the window has room.
    #[inline]
    pub(super) fn shared_increment(&self, window: i32, held: u32) -> Option<u32> {
        let left = i64::from(self.bytes) - i64::from(held);
        let free = left - i64::from(window);
        // A few bytes are not worth a frame; a full window stays closed.
        let worth = (left / 2).max(SHARED_INCREMENT_MIN.min(i64::from(self.bytes / 2)));
        (free > 0 && free >= worth).then_some(free as u32)
    }

    /// Doubles a shared window of which much is held, because the rest has to serve the other streams.
    #[inline]
    pub(super) fn grow_if_held(&mut self, held: u32) {
        while self.can_grow() && held > self.bytes / 4 {
            self.double();
        }
    }

    fn can_grow(&self) -> bool {
        self.bytes < self.bytes_max
    }

    /// Doubles the window if two thirds of it arrived within one round trip.
    fn grow_if_filled(&mut self, arrived: u64) {
        if arrived * 3 >= u64::from(self.bytes) * 2 {
            self.double();
        }
    }

    fn double(&mut self) {
        self.bytes = self.bytes.saturating_mul(2).min(self.bytes_max);
    }
}

/// Receive side of a connection.
#[derive(Debug)]
pub(super) struct ReceiveFlow {
    /// Bytes that the peer may still send on the connection.
    pub(super) window: i32,
    /// Content that the caller has and did not return, of all streams.
    pub(super) held: u32,
    pub(super) connection: WindowSize,
    pub(super) stream: WindowSize,
    /// Window of a new stream, as announced in the settings.
    stream_initial: i32,
    /// A window update was sent since the last measurement began.
    pub(super) is_probe_due: bool,
    probe: Option<Probe>,
}

/// Measurement of the bytes that arrive within one round trip.
#[derive(Clone, Copy, Debug)]
struct Probe {
    stream: u32,
    stream_bytes: u64,
    connection_bytes: u64,
}

impl ReceiveFlow {
    pub(super) fn new(connection: WindowSize, stream: WindowSize) -> Self {
        // Windows are less than 2^31.
        let stream_initial = stream.bytes as i32;
        Self { window: 65_535, held: 0, connection, stream, stream_initial, is_probe_due: false, probe: None }
    }

    #[inline]
    pub(super) fn stream_initial(&self) -> i32 {
        self.stream_initial
    }

    /// Opens the windows for `rest` bytes more of a stream with this window. Returns the increments of the
    /// connection and of the stream; `None` if the connection may not hold so much.
    pub(super) fn open_for_rest(&mut self, stream_window: i32, rest: Option<u64>) -> Option<(u32, u32)> {
        let window_max = i64::from(self.connection.bytes_max) - i64::from(self.held);
        let rest = match rest {
            Some(rest) => i64::try_from(rest).ok().filter(|&rest| rest <= window_max)?,
            None => window_max.min(UNKNOWN_REST_BYTES as i64),
        };
        let stream_increment = (rest - i64::from(stream_window)).max(0);
        let window = i64::from(self.window);
        // The other streams keep what they have.
        let wanted = (window + stream_increment).max(rest).min(window_max).max(window);
        self.window = wanted as i32;
        self.connection.bytes = self.connection.bytes.max((wanted + i64::from(self.held)) as u32);
        // All are at most the maximum of the window, which is less than 2^31.
        Some(((wanted - window) as u32, stream_increment as u32))
    }

    /// Counts content of a DATA frame. Returns whether a PING with [`PROBE_PAYLOAD`] must be sent: the
    /// measurement begins with the first content after a window update, so that a peer that waits
    /// for windows fills one within the round trip.
    #[inline]
    pub(super) fn record(&mut self, stream: u32, bytes: usize) -> bool {
        let begins = self.is_probe_due && self.probe.is_none();
        if begins {
            self.is_probe_due = false;
            if self.stream.can_grow() || self.connection.can_grow() {
                self.probe = Some(Probe { stream, stream_bytes: 0, connection_bytes: 0 });
            }
        }
        let Some(probe) = &mut self.probe else { return false };
        probe.connection_bytes += bytes as u64;
        if probe.stream == stream {
            probe.stream_bytes += bytes as u64;
        }
        begins
    }

    /// Ends the measurement. Returns false if there was none.
    pub(super) fn end_probe(&mut self) -> bool {
        let Some(probe) = self.probe.take() else { return false };
        self.stream.grow_if_filled(probe.stream_bytes);
        self.connection.grow_if_filled(probe.connection_bytes);
        true
    }
}
