//! PING frames to a client that has been silent for some time: without a received byte after one the
//! connection is dead (RFC 9113 §6.7). Has no clock and sends nothing.

/// Times of the PING frames of a connection, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PingTimes {
    /// Time without a received byte after which a PING is sent.
    pub(crate) interval_ns: u64,
    /// Maximum time from a PING to the next received byte.
    pub(crate) timeout_ns: u64,
}

/// Silence of a client, in nanoseconds of the core's clock.
#[derive(Debug)]
pub(super) struct PingState {
    last_received_ns: u64,
    /// Time of a PING since which nothing was received.
    sent_ns: Option<u64>,
}

/// Result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PingCheck {
    /// The next check is due at this time.
    WaitUntil(u64),
    /// A PING is to be sent now; the next check is due at this time.
    Send(u64),
    /// The connection is dead.
    Lost,
}

impl PingState {
    pub(super) fn new(now_ns: u64) -> Self {
        Self { last_received_ns: now_ns, sent_ns: None }
    }

    /// Notes received bytes: the client lives.
    pub(super) fn note_received(&mut self, now_ns: u64) {
        *self = Self::new(now_ns);
    }

    /// Checks the silence.
    pub(super) fn check(&mut self, times: PingTimes, now_ns: u64) -> PingCheck {
        let due_ns = match self.sent_ns {
            Some(sent_ns) => sent_ns.saturating_add(times.timeout_ns),
            None => self.last_received_ns.saturating_add(times.interval_ns),
        };
        if now_ns < due_ns {
            PingCheck::WaitUntil(due_ns)
        } else if self.sent_ns.is_some() {
            PingCheck::Lost
        } else {
            self.sent_ns = Some(now_ns);
            PingCheck::Send(now_ns.saturating_add(times.timeout_ns))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMES: PingTimes = PingTimes { interval_ns: 30, timeout_ns: 10 };

    #[test]
    fn a_silent_client_gets_one_ping_and_is_lost_without_a_byte() {
        let mut state = PingState::new(100);
        assert_eq!(state.check(TIMES, 129), PingCheck::WaitUntil(130));
        assert_eq!(state.check(TIMES, 131), PingCheck::Send(141));
        assert_eq!(state.check(TIMES, 132), PingCheck::WaitUntil(141));
        assert_eq!(state.check(TIMES, 141), PingCheck::Lost);
    }

    #[test]
    fn any_byte_proves_that_the_client_lives() {
        let mut state = PingState::new(0);
        assert_eq!(state.check(TIMES, 30), PingCheck::Send(40));
        state.note_received(39);
        assert_eq!(state.check(TIMES, 41), PingCheck::WaitUntil(69));
        assert_eq!(state.check(TIMES, 69), PingCheck::Send(79));
    }
}
