//! How slow peers may be: the total time until a response's head, and the least progress of bodies.
//!
//! A socket that is blocked becomes writable only when a third of its send buffer is free, which a slow
//! peer may need minutes for. So the progress of a blocked receiver is what it confirms (`SIOCOUTQ`).

use std::task::Context;

use super::Exchange;
use crate::conn::{Armed, Link};
use crate::core::{Core, TICK_NS};

/// How often progress is checked in the time that a stall may last.
const CHECKS: u64 = 8;
/// Bytes that a server has to confirm in each `idle` of its pool while it blocks us.
const SERVER_PROGRESS_BYTES: u64 = 4096;

impl Exchange {
    /// Whether the request's body comes fast enough. Looked at when bytes have come, so that a
    /// client that drips is found out; one that sends nothing at all meets its other deadline.
    pub(super) fn makes_progress(&mut self, core: &Core, link: &Link) -> bool {
        let (bytes, since_ns) = self.progress;
        let now_ns = core.now_ns.get();
        if now_ns.saturating_sub(self.facts.times.start_ns) >= link.timeouts().body_ns {
            return false;
        }
        if since_ns == 0 {
            self.progress = (self.up.content_bytes, now_ns);
        } else if now_ns.saturating_sub(since_ns) >= link.timeouts().body_progress_ns {
            self.progress = (self.up.content_bytes, now_ns);
            return self.up.content_bytes - bytes >= link.timeouts().body_progress_bytes;
        }
        true
    }

    /// What is left of the time until the response's head, which no byte of it starts again.
    pub(super) fn first_byte_left_ns(&mut self, core: &Core, timeout_ns: u64) -> u64 {
        let now_ns = core.now_ns.get();
        if self.first_byte_from_ns == 0 {
            self.first_byte_from_ns = now_ns;
        }
        timeout_ns.saturating_sub(now_ns - self.first_byte_from_ns)
    }

    /// Whether the peer that blocks us has confirmed too little for `timeout_ns`. Called while nothing
    /// can be written to it; the first check comes soon, so that a wait of a moment costs no system
    /// call.
    pub(super) fn is_stalled(
        &mut self,
        cx: &Context<'_>,
        core: &Core,
        link: &mut Link,
        armed: Armed,
        timeout_ns: u64,
    ) -> bool {
        let now_ns = core.now_ns.get();
        if link.armed() != armed {
            self.stalled = None;
            link.arm(core, cx.waker(), armed, TICK_NS.min(timeout_ns));
            return false;
        }
        if !link.passed() {
            return false;
        }
        // The time that the request's body may take does not run while its server is what is slow.
        self.progress = (self.up.content_bytes, now_ns);
        let (stream, least) = match (armed, &self.server) {
            (Armed::ServerWrite, Some(server)) => (&server.stream, SERVER_PROGRESS_BYTES),
            _ => (&link.stream, link.timeouts().write_progress_bytes.max(1)),
        };
        let left = stream.unacknowledged();
        let waited_ns = match (self.stalled, left) {
            (Some((before, since_ns)), Some(left)) if before.saturating_sub(left) < least => {
                now_ns.saturating_sub(since_ns)
            }
            (Some((_, since_ns)), None) => now_ns.saturating_sub(since_ns),
            _ => {
                self.stalled = Some((left.unwrap_or(0), now_ns));
                0
            }
        };
        if waited_ns >= timeout_ns {
            return true;
        }
        let next_ns = (timeout_ns / CHECKS).max(TICK_NS);
        link.arm(core, cx.waker(), armed, next_ns.min(timeout_ns - waited_ns));
        false
    }
}
