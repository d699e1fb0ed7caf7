//! Times of one HTTP/2 connection: the idle timeout, and PING frames that find dead connections. They
//! have the resolution of the core's ticks.

use rt::clock::MonotonicTime;
use wire::h2::Connection;

use super::ServerHttp2Settings;

/// Time without a received byte from which the timeout of a request causes a PING.
const SUSPECT_AFTER_NS: u64 = 1_000_000_000;
const PING_PAYLOAD: u64 = u64::from_be_bytes(*b"weirping");

/// Payload of the PING frame at the limit of the requests of a connection.
const LIMIT_PING_PAYLOAD: u64 = u64::from_be_bytes(*b"weirmore");

/// Times of one connection, in nanoseconds of the core's clock.
#[derive(Debug)]
pub(super) struct ServerHttp2Timers {
    ping_interval_ns: Option<u64>,
    ping_timeout_ns: u64,
    idle_timeout_ns: u64,
    /// Maximum time until the answer to a PING at the limit of the requests. Requests wait for it as for a new
    /// connection.
    answer_timeout_ns: u64,
    last_received: MonotonicTime,
    /// Time of a PING without a response.
    ping_sent: Option<MonotonicTime>,
    /// Time at which the PING at the limit of the requests has waited too long for its answer.
    answer_due: Option<MonotonicTime>,
    /// Begin of the time without a stream; `None`: there are streams.
    idle_since: Option<MonotonicTime>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TimerResult {
    /// The connection goes on; the next check is due at this time.
    CheckAt(MonotonicTime),
    /// The connection was idle for too long.
    Idle,
    /// A PING got no response.
    PingLost,
}

impl ServerHttp2Timers {
    pub(super) fn new(settings: &ServerHttp2Settings, now: MonotonicTime) -> Self {
        Self {
            ping_interval_ns: settings.limits.ping_interval_ns,
            ping_timeout_ns: settings.limits.ping_timeout_ns,
            idle_timeout_ns: settings.idle_timeout_ns,
            answer_timeout_ns: settings.limits.ping_timeout_ns.min(settings.connect_ns / 2),
            last_received: now,
            ping_sent: None,
            answer_due: None,
            idle_since: Some(now),
        }
    }

    pub(super) fn note_received(&mut self, now: MonotonicTime) {
        self.last_received = now;
    }

    /// Notes the response to a PING. Returns whether it is the one at the limit of the requests.
    pub(super) fn note_pong(&mut self, payload: u64) -> bool {
        match payload {
            PING_PAYLOAD => self.ping_sent = None,
            LIMIT_PING_PAYLOAD => self.answer_due = None,
            _ => {}
        }
        payload == LIMIT_PING_PAYLOAD
    }

    /// Asks a server with PING whether it ends the connection at the limit of its requests. Returns the time at
    /// which the answer is due.
    pub(super) fn ask(&mut self, wire: &mut Connection, now: MonotonicTime) -> MonotonicTime {
        wire.ping(LIMIT_PING_PAYLOAD);
        *self.answer_due.insert(now.saturating_add(self.answer_timeout_ns))
    }

    /// Returns whether the server did not answer in time. Ends the wait.
    pub(super) fn takes_too_long(&mut self, now: MonotonicTime) -> bool {
        self.answer_due.take_if(|due| *due <= now).is_some()
    }

    /// Sends a PING if the server has been silent: a request that was given up may be the first sign of
    /// a dead connection.
    pub(super) fn suspect(&mut self, wire: &mut Connection, now: MonotonicTime) {
        if now.since(self.last_received) >= SUSPECT_AFTER_NS {
            self.ping(wire, now);
        }
    }

    fn ping(&mut self, wire: &mut Connection, now: MonotonicTime) {
        if self.ping_sent.is_none() {
            self.ping_sent = Some(now);
            wire.ping(PING_PAYLOAD);
        }
    }

    /// Checks all times. A PING that is due is added to the output.
    pub(super) fn check(&mut self, wire: &mut Connection, active: usize, now: MonotonicTime) -> TimerResult {
        if active > 0 {
            self.idle_since = None;
        }
        let idle_since = match active {
            0 => *self.idle_since.get_or_insert(now),
            _ => MonotonicTime::MAX,
        };
        let idle_end = idle_since.saturating_add(self.idle_timeout_ns);
        if idle_end <= now {
            return TimerResult::Idle;
        }
        if self.ping_interval_ns.is_some_and(|interval_ns| self.last_received + interval_ns <= now) {
            self.ping(wire, now);
        }
        let ping_due = match (self.ping_sent, self.ping_interval_ns) {
            (Some(sent), _) if sent + self.ping_timeout_ns <= now => return TimerResult::PingLost,
            (Some(sent), _) => sent + self.ping_timeout_ns,
            (None, Some(interval_ns)) => self.last_received + interval_ns,
            (None, None) => MonotonicTime::MAX,
        };
        let answer_due = self.answer_due.unwrap_or(MonotonicTime::MAX);
        TimerResult::CheckAt(idle_end.min(ping_due).min(answer_due))
    }
}
