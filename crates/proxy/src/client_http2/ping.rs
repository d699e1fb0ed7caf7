//! PING frames to a client that has been silent for some time: without a received byte after one the
//! connection is dead (RFC 9113 §6.7). Has no clock and sends nothing.

use rt::clock::MonotonicTime;

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
    last_received: MonotonicTime,
    /// Time of a PING since which nothing was received.
    sent: Option<MonotonicTime>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PingCheck {
    /// The next check is due at this time.
    WaitUntil(MonotonicTime),
    /// A PING is to be sent now; the next check is due at this time.
    Send(MonotonicTime),
    /// The connection is dead.
    Lost,
}

impl PingState {
    pub(super) fn new(now: MonotonicTime) -> Self {
        Self { last_received: now, sent: None }
    }

    /// Notes received bytes: the client lives.
    pub(super) fn note_received(&mut self, now: MonotonicTime) {
        *self = Self::new(now);
    }

    pub(super) fn due(&self, times: PingTimes) -> MonotonicTime {
        match self.sent {
            Some(sent) => sent.saturating_add(times.timeout_ns),
            None => self.last_received.saturating_add(times.interval_ns),
        }
    }

    pub(super) fn check(&mut self, times: PingTimes, now: MonotonicTime) -> PingCheck {
        let due = self.due(times);
        if now < due {
            PingCheck::WaitUntil(due)
        } else if self.sent.is_some() {
            PingCheck::Lost
        } else {
            self.sent = Some(now);
            PingCheck::Send(now.saturating_add(times.timeout_ns))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_time::at;

    const TIMES: PingTimes = PingTimes { interval_ns: 30, timeout_ns: 10 };

    #[test]
    fn a_silent_client_gets_one_ping_and_is_lost_without_a_byte() {
        let mut state = PingState::new(at(100));
        assert_eq!(state.check(TIMES, at(129)), PingCheck::WaitUntil(at(130)));
        assert_eq!(state.check(TIMES, at(131)), PingCheck::Send(at(141)));
        assert_eq!(state.check(TIMES, at(132)), PingCheck::WaitUntil(at(141)));
        assert_eq!(state.check(TIMES, at(141)), PingCheck::Lost);
    }

    #[test]
    fn any_byte_proves_that_the_client_lives() {
        let mut state = PingState::new(at(0));
        assert_eq!(state.check(TIMES, at(30)), PingCheck::Send(at(40)));
        state.note_received(at(39));
        assert_eq!(state.check(TIMES, at(41)), PingCheck::WaitUntil(at(69)));
        assert_eq!(state.check(TIMES, at(69)), PingCheck::Send(at(79)));
    }
}
