//! A tunnel whose bytes per second are limited. Its bytes are copied: a pipe would move more than is due.

use std::task::{Context, Poll, ready};

use rt::clock::MonotonicTime;
use rt::stream::Stream;

use super::{ROUNDS_MAX, Transfer, TransferPoll, Tunnel, TunnelEnd, TunnelResources};
use crate::bandwidth::BandwidthGate;
use crate::plan::BandwidthPlan;

/// Limits of both directions.
#[derive(Debug)]
pub(crate) struct TunnelLimits {
    up: Option<BandwidthGate>,
    down: Option<BandwidthGate>,
    /// Time at which the next bytes are due that a direction waits for.
    due: Option<MonotonicTime>,
}

impl TunnelLimits {
    pub(crate) fn new(plan: &BandwidthPlan) -> Self {
        Self { up: plan.upload_gate(), down: plan.download_gate(), due: None }
    }

    /// Returns the time at which bytes are due that a direction waits for; `None`: none waits.
    pub(crate) fn due(&self) -> Option<MonotonicTime> {
        self.due
    }
}

impl Tunnel {
    /// Does the same as [`Tunnel::poll`], as far as the limits allow it.
    #[cold]
    pub(crate) fn poll_limited(
        &mut self,
        cx: &mut Context<'_>,
        (client, server): (&mut Stream, &mut Stream),
        resources: &mut TunnelResources<'_>,
        limits: &mut TunnelLimits,
        now: MonotonicTime,
    ) -> Poll<TunnelEnd> {
        let previous = (self.up.byte_counts, self.down.byte_counts);
        let TunnelLimits { up, down, due } = limits;
        *due = None;
        let up = self.up.poll_limited(cx, (client, server), resources, up.as_mut(), (now, due));
        let down = self.down.poll_limited(cx, (server, client), resources, down.as_mut(), (now, due));
        self.has_progress |= previous != (self.up.byte_counts, self.down.byte_counts);
        let end = self.evaluate(up, down);
        if end.is_ready() {
            self.release();
        }
        end
    }
}

impl Transfer {
    fn poll_limited(
        &mut self,
        cx: &mut Context<'_>,
        (from, to): (&mut Stream, &mut Stream),
        resources: &mut TunnelResources<'_>,
        gate: Option<&mut BandwidthGate>,
        (now, due): (MonotonicTime, &mut Option<MonotonicTime>),
    ) -> TransferPoll {
        let Some(gate) = gate else { return self.poll(cx, from, to, resources) };
        if self.eof_forwarded {
            return Self::poll_end(cx, to);
        }
        for round in 0.. {
            ready!(self.poll_pending(cx, to))?;
            if self.eof_received {
                return self.forward_end(cx, from, to);
            }
            if round == ROUNDS_MAX || round > 0 && gate.is_shared() {
                rt::cores::yield_turn(cx);
                break;
            }
            gate.note(self.byte_counts.received);
            let bytes = match gate.open(now) {
                Ok(bytes) => bytes.min(resources.scratch.len()),
                Err(next) => {
                    *due = Some(due.map_or(next, |due| due.min(next)));
                    break;
                }
            };
            let TunnelResources { pipes, buffers, .. } = *resources;
            let scratch = &mut resources.scratch[..bytes];
            ready!(self.poll_copy(cx, from, to, &mut TunnelResources { scratch, pipes, buffers }))?;
        }
        Poll::Pending
    }
}
