//! Times of one HTTP/2 connection: the idle timeout, and PING frames that find dead connections. They
//! have the resolution of the core's ticks.

use wire::h2::Connection;

use super::BackSettings;

/// Time without a received byte from which the timeout of a request causes a PING.
const SUSPECT_AFTER_NS: u64 = 1_000_000_000;
/// Payload of PING frames.
const PING_PAYLOAD: u64 = u64::from_be_bytes(*b"weirping");

/// Times of one connection, in nanoseconds of the core's clock.
#[derive(Debug)]
pub(super) struct BackTimers {
    ping_interval_ns: Option<u64>,
    ping_timeout_ns: u64,
    idle_timeout_ns: u64,
    last_received_ns: u64,
    /// Time of a PING without a response.
    ping_sent_ns: Option<u64>,
    /// Begin of the time without a stream; `None`: there are streams.
    idle_since_ns: Option<u64>,
}

/// Result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TimerResult {
    /// The connection goes on; the next check is due at this time.
    CheckAt(u64),
    /// The connection was idle for too long.
    Idle,
    /// A PING got no response.
    PingLost,
}

impl BackTimers {
    pub(super) fn new(settings: &BackSettings, now_ns: u64) -> Self {
        Self {
            ping_interval_ns: settings.limits.ping_interval_ns,
            ping_timeout_ns: settings.limits.ping_timeout_ns,
            idle_timeout_ns: settings.idle_timeout_ns,
            last_received_ns: now_ns,
            ping_sent_ns: None,
            idle_since_ns: Some(now_ns),
        }
    }

    pub(super) fn note_received(&mut self, now_ns: u64) {
        self.last_received_ns = now_ns;
    }

    /// Notes the response to a PING.
    pub(super) fn note_pong(&mut self, payload: u64) {
        if payload == PING_PAYLOAD {
            self.ping_sent_ns = None;
        }
    }

    /// Sends a PING if the server has been silent: a request that was given up may be the first sign of
    /// a dead connection.
    pub(super) fn suspect(&mut self, wire: &mut Connection, now_ns: u64) {
        if now_ns.saturating_sub(self.last_received_ns) >= SUSPECT_AFTER_NS {
            self.ping(wire, now_ns);
        }
    }

    fn ping(&mut self, wire: &mut Connection, now_ns: u64) {
        if self.ping_sent_ns.is_none() {
            self.ping_sent_ns = Some(now_ns);
            wire.ping(PING_PAYLOAD);
        }
    }

    /// Checks all times. A PING that is due is added to the output.
    pub(super) fn check(&mut self, wire: &mut Connection, active: usize, now_ns: u64) -> TimerResult {
        if active > 0 {
            self.idle_since_ns = None;
        }
        let idle_since_ns = match active {
            0 => *self.idle_since_ns.get_or_insert(now_ns),
            _ => u64::MAX,
        };
        let idle_end_ns = idle_since_ns.saturating_add(self.idle_timeout_ns);
        if idle_end_ns <= now_ns {
            return TimerResult::Idle;
        }
        if self.ping_interval_ns.is_some_and(|interval_ns| self.last_received_ns + interval_ns <= now_ns) {
            self.ping(wire, now_ns);
        }
        let ping_ns = match (self.ping_sent_ns, self.ping_interval_ns) {
            (Some(sent_ns), _) if sent_ns + self.ping_timeout_ns <= now_ns => return TimerResult::PingLost,
            (Some(sent_ns), _) => sent_ns + self.ping_timeout_ns,
            (None, Some(interval_ns)) => self.last_received_ns + interval_ns,
            (None, None) => u64::MAX,
        };
        TimerResult::CheckAt(idle_end_ns.min(ping_ns))
    }
}
