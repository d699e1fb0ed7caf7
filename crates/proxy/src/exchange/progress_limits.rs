//! Limits for slow peers: the total time until a response's head, and the minimum progress of
//! bodies. Each limit has a timer of its own, which only the progress of its message prolongs: that of the
//! other direction, and framing without content, do not.
//!
//! A blocked socket becomes writable only when a third of its send buffer is free, for which a slow
//! peer may need minutes. So the progress of a blocked receiver is what it has confirmed
//! (`SIOCOUTQ`).

use rt::clock::MonotonicTime;
use server_shell::progress::{ProgressRule, ProgressTimer};

use super::Wait;
use crate::client_stream::{ClientStream, TimeoutKind};
use crate::core::{Core, PollContext, TICK_NS};
use crate::exchange_state::{Exchange, ResponseProgress};

/// Bytes that a server must confirm in each `idle` of its pool while it blocks the proxy.
const SERVER_PROGRESS_BYTES: u64 = 4096;

impl Exchange {
    /// Returns the timeout that has passed during a wait. Called while nothing can move.
    #[inline]
    pub(super) fn expired_timeout(
        &mut self,
        ctx: &PollContext<'_, '_>,
        client: &mut ClientStream,
        wait: Wait,
    ) -> Option<TimeoutKind> {
        if client.timeout_kind() == wait.kind && !client.is_deadline_expired() {
            return None;
        }
        self.check_wait(ctx, client, wait).err()
    }

    /// Checks the timers of a wait, and sets the deadline for the next check.
    ///
    /// # Errors
    /// The timeout that has passed.
    fn check_wait(
        &mut self,
        ctx: &PollContext<'_, '_>,
        client: &mut ClientStream,
        Wait { kind, timeout_ns }: Wait,
    ) -> Result<(), TimeoutKind> {
        let now = ctx.core.ticks.now.get();
        let mut due = match kind {
            TimeoutKind::RequestBody => self.body_due(client, now),
            TimeoutKind::ClientWrite | TimeoutKind::ServerWrite => {
                self.write_due(client, kind, timeout_ns, now)
            }
            TimeoutKind::FirstByte => self.first_byte_due(timeout_ns, now),
            _ => {
                let (due, body) = (self.response_due(timeout_ns, now), self.early_response_due(client, now));
                if body <= now {
                    return Err(TimeoutKind::RequestBody);
                }
                due.min(body)
            }
        };
        if self.own_settings.is_some() {
            self.begin_limits();
            due = due.min(self.own_due(kind));
        }
        if due <= now {
            return Err(kind);
        }
        client.arm(ctx, kind, due.since(now));
        Ok(())
    }

    /// Notes that something has moved.
    pub(super) fn note_progress(&mut self, core: &Core, client: &ClientStream) {
        let now = core.ticks.now.get();
        // Who waited for another peer gets a new interval.
        if self.progress.server_write.is_running() && self.request_relay.is_flushed() {
            self.progress.server_write.stop();
            self.progress.body.stop();
            self.progress.body_idle.stop();
        }
        if self.progress.client_write.is_running() && self.is_response_flushed() {
            self.progress.client_write.stop();
            self.progress.response.stop();
        }
        if !self.request_relay.is_received() {
            self.note_body(client, now);
        }
        if self.response == ResponseProgress::Body {
            self.note_response(now);
        }
    }

    fn note_body(&mut self, client: &ClientStream, now: MonotonicTime) {
        let bytes = self.request_relay.content_bytes;
        self.progress.body_idle.note(any_byte(self.client_timeouts(client).body_idle_ns), bytes, now);
        // A response that flows is progress of the exchange: its client may wait for it.
        let both_bytes = bytes + self.response_relay.content_bytes;
        self.progress.body.note(body_rule(client), both_bytes, now);
    }

    fn note_response(&mut self, now: MonotonicTime) {
        // A server that responds meanwhile may wait for the request.
        let bytes = self.response_relay.content_bytes + self.request_relay.content_bytes;
        self.progress.response.note(any_byte(0), bytes, now);
    }

    /// Returns the time at which the request's body is too slow.
    pub(super) fn body_due(&mut self, client: &ClientStream, now: MonotonicTime) -> MonotonicTime {
        self.note_body(client, now);
        let idle_due = self.progress.body_idle.due(any_byte(self.client_timeouts(client).body_idle_ns));
        self.body_rate_due(client).min(idle_due).min(self.body_total_due(client))
    }

    fn body_rate_due(&self, client: &ClientStream) -> MonotonicTime {
        match client.timeouts().body_progress_bytes {
            0 => MonotonicTime::MAX,
            _ => self.progress.body.due(body_rule(client)),
        }
    }

    /// Returns the time at which the body of a request is too slow whose response has begun. The client may
    /// pause for longer than `body-idle`, but its bytes must not prolong the response for ever.
    fn early_response_due(&mut self, client: &ClientStream, now: MonotonicTime) -> MonotonicTime {
        if self.facts.is_streaming || self.request_relay.is_received() || self.attempt.is_request_broken {
            return MonotonicTime::MAX;
        }
        self.note_body(client, now);
        self.body_rate_due(client).min(self.body_total_due(client))
    }

    /// Returns the time at which the request's body must be complete.
    fn body_total_due(&self, client: &ClientStream) -> MonotonicTime {
        let is_limited = !self.facts.is_streaming && !self.request_relay.is_received();
        match is_limited && !self.attempt.is_request_broken {
            true => self.outcome.times.start.saturating_add(self.client_timeouts(client).body_ns),
            false => MonotonicTime::MAX,
        }
    }

    /// Returns the time at which the response's head is due. Bytes of the head, and interim responses, do
    /// not prolong it.
    fn first_byte_due(&mut self, timeout_ns: u64, now: MonotonicTime) -> MonotonicTime {
        if self.attempt.first_byte_wait_start == MonotonicTime::ZERO {
            self.attempt.first_byte_wait_start = now;
        }
        self.attempt.first_byte_wait_start.saturating_add(timeout_ns)
    }

    fn response_due(&mut self, timeout_ns: u64, now: MonotonicTime) -> MonotonicTime {
        self.note_response(now);
        self.progress.response.due(any_byte(timeout_ns))
    }

    /// Returns the time of the next check of a blocked receiver; `now`: it has confirmed too little. The
    /// first check comes soon, so that a short wait costs no system call.
    fn write_due(
        &mut self,
        client: &ClientStream,
        kind: TimeoutKind,
        timeout_ns: u64,
        now: MonotonicTime,
    ) -> MonotonicTime {
        let (stream, written_bytes, bytes_min, timer) = match (kind, &self.server) {
            (TimeoutKind::ServerWrite, Some(server)) => {
                let written_bytes = self.attempt.request_written_bytes;
                (&server.stream, written_bytes, SERVER_PROGRESS_BYTES, &mut self.progress.server_write)
            }
            // The client's connection limits the times of its streams.
            _ if client.is_h2_stream() => {
                self.progress.client_write.begin(now);
                return MonotonicTime::MAX;
            }
            _ => {
                let bytes_min = client.timeouts().write_progress_bytes;
                (&client.stream, self.outcome.bytes_out, bytes_min, &mut self.progress.client_write)
            }
        };
        let rule = ProgressRule::new(timeout_ns, bytes_min);
        check_receiver(timer, rule, || stream.confirmed_bytes(written_bytes), now)
    }
}

fn check_receiver(
    timer: &mut ProgressTimer,
    rule: ProgressRule,
    confirmed_bytes: impl FnOnce() -> u64,
    now: MonotonicTime,
) -> MonotonicTime {
    if !timer.is_running() {
        timer.begin(now);
        return now.saturating_add(TICK_NS.min(rule.interval_ns));
    }
    if timer.is_stalled(rule, confirmed_bytes(), now) {
        return now;
    }
    let next_ns = rule.check_interval_ns().max(TICK_NS);
    timer.due(rule).min(now.saturating_add(next_ns))
}

/// Returns the rule of a message that may be arbitrarily slow, but must not pause for longer.
fn any_byte(interval_ns: u64) -> ProgressRule {
    ProgressRule { interval_ns, bytes_min: 1 }
}

fn body_rule(client: &ClientStream) -> ProgressRule {
    let timeouts = client.timeouts();
    ProgressRule::new(timeouts.body_progress_ns, timeouts.body_progress_bytes)
}
