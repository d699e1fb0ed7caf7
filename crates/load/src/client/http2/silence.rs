//! Search for dead connections: after the timeout of a request a connection that has been silent is
//! checked with a PING frame (RFC 9113 §6.7). Without any received byte after it the connection is lost,
//! instead of every further request on it. Has no clock.

/// Time without a received byte from which the timeout of a request causes a PING.
const SUSPECT_AFTER_NS: u64 = 1_000_000_000;
/// Maximum time from a PING to the next received byte.
const PING_TIMEOUT_NS: u64 = 5_000_000_000;

/// Silence of one connection, in nanoseconds of the core's clock.
#[derive(Debug)]
pub(super) struct Silence {
    last_received_ns: u64,
    /// Time of a PING since which nothing was received.
    ping_sent_ns: Option<u64>,
}

impl Silence {
    pub(super) fn new(now_ns: u64) -> Self {
        Self { last_received_ns: now_ns, ping_sent_ns: None }
    }

    /// Notes received bytes: the connection lives.
    pub(super) fn note_received(&mut self, now_ns: u64) {
        *self = Self::new(now_ns);
    }

    /// Notes the timeout of a request. Returns whether a PING is to be sent now.
    pub(super) fn suspect(&mut self, now_ns: u64) -> bool {
        let is_silent = now_ns.saturating_sub(self.last_received_ns) >= SUSPECT_AFTER_NS;
        let is_due = is_silent && self.ping_sent_ns.is_none();
        if is_due {
            self.ping_sent_ns = Some(now_ns);
        }
        is_due
    }

    /// Returns the time at which the connection is lost; `u64::MAX`: no PING is on its way.
    pub(super) fn lost_at_ns(&self) -> u64 {
        self.ping_sent_ns.map_or(u64::MAX, |sent_ns| sent_ns.saturating_add(PING_TIMEOUT_NS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;

    #[test]
    fn a_ping_follows_a_timeout_after_silence() {
        let mut silence = Silence::new(SECOND_NS);
        assert!(!silence.suspect(2 * SECOND_NS - 1));
        assert_eq!(silence.lost_at_ns(), u64::MAX);
        assert!(silence.suspect(2 * SECOND_NS));
        // One at a time.
        assert!(!silence.suspect(3 * SECOND_NS));
        assert_eq!(silence.lost_at_ns(), 7 * SECOND_NS);
    }

    #[test]
    fn any_byte_proves_that_the_connection_lives() {
        let mut silence = Silence::new(0);
        assert!(silence.suspect(SECOND_NS));
        silence.note_received(2 * SECOND_NS);
        assert_eq!(silence.lost_at_ns(), u64::MAX);
        assert!(!silence.suspect(2 * SECOND_NS));
        assert!(silence.suspect(3 * SECOND_NS));
    }
}
