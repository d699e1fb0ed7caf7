//! Timeouts of a connection that waits: for its next request, for the rest of a head, for the progress of
//! a slow job.

use std::task::{Context, Poll};

use rt::deadlines::Deadline;
use server_shell::progress::{ProgressRule, ProgressTimer};

use crate::core::{OriginCore, TICK_NS};
use crate::stats::{CloseReason, add};

use super::{Conn, FastPathExit};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DeadlineKind {
    Unset,
    /// The next request, with the time of the plan.
    Idle,
    /// The next request, with the time from the last target.
    IdleFromTarget,
    Head,
    /// The progress of a slow job.
    Progress,
}

impl Conn {
    /// Waits for input, unless the connection has waited too long or the origin drains.
    #[inline]
    pub(super) fn poll_waiting(
        &mut self,
        cx: &mut Context<'_>,
        core: &OriginCore,
        did_read: bool,
    ) -> Poll<FastPathExit> {
        if self.deadline_kind == DeadlineKind::Idle
            && self.idle_armed_tick == core.tick.get()
            && self.unparsed.is_empty()
        {
            return Poll::Pending;
        }
        self.poll_deadline(cx, core, did_read)
    }

    fn poll_deadline(
        &mut self,
        cx: &mut Context<'_>,
        core: &OriginCore,
        did_read: bool,
    ) -> Poll<FastPathExit> {
        if !self.unparsed.is_empty() {
            if self.deadline_kind != DeadlineKind::Head {
                self.arm(cx, DeadlineKind::Head, core.plan.head_timeout_ns);
            } else if self.deadline_expired() {
                return Poll::Ready(self.handle_head_timeout(cx));
            }
            return Poll::Pending;
        }
        if core.draining.get() {
            return Poll::Ready(FastPathExit::Close(CloseReason::Drained));
        }
        let needs_rearm = match self.deadline_kind {
            DeadlineKind::Idle => did_read,
            DeadlineKind::IdleFromTarget => false,
            DeadlineKind::Unset | DeadlineKind::Head | DeadlineKind::Progress => true,
        };
        if needs_rearm {
            self.arm(cx, DeadlineKind::Idle, core.plan.idle_timeout_ns);
            self.idle_armed_tick = core.tick.get();
        } else if self.deadline_expired() {
            return Poll::Ready(FastPathExit::Close(CloseReason::IdleTimeout));
        }
        Poll::Pending
    }

    fn handle_head_timeout(&mut self, cx: &mut Context<'_>) -> FastPathExit {
        let mut out = Vec::new();
        let reason = "the head of the request did not arrive in time";
        crate::respond::write_error_response(&self.core, 408, reason, self.peer.as_deref(), &mut out);
        // The peer may not even read it, so it is not worth a wait.
        if let Poll::Ready(Ok(written)) = self.stream.poll_write(cx, &out) {
            add(&self.core.counters.bytes_out, written as u64);
        }
        FastPathExit::Close(CloseReason::HeadTimeout)
    }

    /// Sets the deadline for the next request if the last request's target chose it.
    #[inline]
    pub(crate) fn set_idle_timeout(&mut self, cx: &Context<'_>, idle_timeout_ns: Option<u64>) {
        match idle_timeout_ns {
            Some(idle_timeout_ns) => self.arm(cx, DeadlineKind::IdleFromTarget, idle_timeout_ns),
            // The head that was awaited is complete: the next one has a time of its own.
            None if matches!(self.deadline_kind, DeadlineKind::IdleFromTarget | DeadlineKind::Head) => {
                self.deadline_kind = DeadlineKind::Unset
            }
            None => {}
        }
    }

    /// Returns whether a slow job has waited for `timeout_ns`, whatever arrives meanwhile. The first call
    /// begins the wait.
    pub(crate) fn has_waited(&mut self, cx: &Context<'_>, timeout_ns: u64) -> bool {
        if self.deadline_kind == DeadlineKind::Progress {
            return self.deadline_expired();
        }
        self.arm(cx, DeadlineKind::Progress, timeout_ns);
        false
    }

    /// Returns whether a slow job makes too little progress. `bytes` returns its bytes so far; it is
    /// called when the deadline has passed, which is `check_ns` later at most.
    pub(crate) fn is_stalled(
        &mut self,
        cx: &Context<'_>,
        timer: &mut ProgressTimer,
        (rule, check_ns): (ProgressRule, u64),
        bytes: impl FnOnce(&Self) -> u64,
    ) -> bool {
        let now = self.core.now();
        if !timer.is_running() {
            timer.begin(now);
        } else if self.deadline_kind == DeadlineKind::Progress && !self.deadline_expired() {
            return false;
        } else if timer.is_stalled(rule, bytes(self), now) {
            return true;
        }
        let check_ns = check_ns.max(TICK_NS).min(timer.due(rule).since(now));
        self.arm(cx, DeadlineKind::Progress, check_ns);
        false
    }

    /// Returns whether the client takes too little of a response, of which the socket has accepted
    /// `written_bytes`, from any start.
    pub(crate) fn is_write_stalled(
        &mut self,
        cx: &Context<'_>,
        timer: &mut ProgressTimer,
        written_bytes: u64,
    ) -> bool {
        let rule = self.core.plan.write;
        let confirmed = |conn: &Self| conn.stream.confirmed_bytes(written_bytes);
        self.is_stalled(cx, timer, (rule, rule.check_interval_ns()), confirmed)
    }

    /// Clears the deadline.
    pub(crate) fn disarm(&mut self) {
        self.deadline_kind = DeadlineKind::Unset;
        if let Some(deadline) = &self.deadline {
            deadline.clear();
        }
    }

    fn arm(&mut self, cx: &Context<'_>, kind: DeadlineKind, timeout_ns: u64) {
        // The core's time is up to a tick old, and a deadline must never pass early.
        let deadline_ns = self.core.now_ns.get().saturating_add(timeout_ns).saturating_add(TICK_NS);
        self.deadline_kind = kind;
        self.set_deadline(cx, deadline_ns);
    }

    /// Sets the time at which the task is woken.
    pub(crate) fn set_deadline(&mut self, cx: &Context<'_>, deadline_ns: u64) {
        let deadlines = &self.core.deadlines;
        self.deadline.get_or_insert_with(|| deadlines.register(cx.waker())).set(deadline_ns);
    }

    pub(crate) fn deadline_expired(&self) -> bool {
        self.deadline.as_ref().is_some_and(Deadline::is_expired)
    }
}
