//! Measures of the way to peers: times and receive windows.

/// Times from a segment to the one that acknowledges it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RoundTrips {
    /// Number of measured segments.
    pub count: u64,
    /// Sum of their times.
    pub sum_ns: u64,
    /// Shortest and longest; 0 without any.
    pub min_ns: u64,
    pub max_ns: u64,
}

impl RoundTrips {
    pub(super) fn record(&mut self, time_ns: u64) {
        self.min_ns = if self.count == 0 { time_ns } else { self.min_ns.min(time_ns) };
        self.max_ns = self.max_ns.max(time_ns);
        self.sum_ns += time_ns;
        self.count += 1;
    }

    /// Returns the mean; 0 without any.
    #[must_use]
    pub fn mean_ns(&self) -> u64 {
        self.sum_ns / self.count.max(1)
    }
}

/// Receive windows of peers other than 0, scaled (RFC 7323 2.3); 0 without any.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeerWindows {
    /// Smallest, in bytes.
    pub min_bytes: u64,
    /// Largest, in bytes.
    pub max_bytes: u64,
}

impl PeerWindows {
    #[inline]
    pub(super) fn record(&mut self, bytes: u64) {
        if bytes > 0 && (bytes < self.min_bytes || self.min_bytes == 0) {
            self.min_bytes = bytes;
        }
        self.max_bytes = self.max_bytes.max(bytes);
    }
}

/// The segment of a connection whose acknowledgement is waited for.
#[derive(Clone, Copy, Debug)]
pub(super) struct TimedSegment {
    /// End of its content, as a sequence number.
    pub(super) end: u32,
    pub(super) sent_ns: u64,
}

impl TimedSegment {
    /// Returns the time to `acknowledgement`, if that covers the segment.
    #[inline]
    pub(super) fn elapsed_ns(self, acknowledgement: u32, now_ns: u64) -> Option<u64> {
        // Sequence numbers wrap: a distance of less than half of them is ahead.
        let is_covered = acknowledgement.wrapping_sub(self.end) as i32 >= 0;
        is_covered.then(|| now_ns.saturating_sub(self.sent_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_of_zero_are_no_minimum() {
        let mut windows = PeerWindows::default();
        for bytes in [0, 5_000, 0, 900, 70_000] {
            windows.record(bytes);
        }
        assert_eq!(windows, PeerWindows { min_bytes: 900, max_bytes: 70_000 });
    }

    #[test]
    fn an_acknowledgement_covers_a_segment_beyond_the_end_of_the_numbers() {
        let segment = TimedSegment { end: 5, sent_ns: 100 };
        assert_eq!(segment.elapsed_ns(u32::MAX, 400), None);
        assert_eq!(segment.elapsed_ns(4, 400), None);
        assert_eq!(segment.elapsed_ns(5, 400), Some(300));
        assert_eq!(segment.elapsed_ns(1_000, 50), Some(0));
    }
}
