//! A connection whose bytes are forwarded unparsed: a TCP connection, CONNECT, or an upgraded
//! protocol. [`crate::tunnel`] moves the bytes.

use std::task::Poll;

use super::{Conn, ConnState};
use crate::client_stream::{ClientStream, TimeoutKind};
use crate::core::{Core, PollContext};
use crate::exchange::TunnelStart;
use crate::exchange_state::Exchange;
use crate::metrics::Metrics;
use crate::outcome::EndReason;
use crate::profile::ProfilePhase;
use crate::server_conn::ServerConn;
use crate::tunnel::{Side, Tunnel, TunnelLimits, TunnelResources, TunnelResult};

/// A tunnel and the exchange that it started as.
#[derive(Debug)]
pub(super) struct ActiveTunnel {
    tunnel: Tunnel,
    server: ServerConn,
    pub(super) exchange: Box<Exchange>,
    tunnel_timeout_ns: u64,
    /// Limits of its bytes per second; `None`: none.
    limits: Option<Box<TunnelLimits>>,
}

impl Conn {
    /// Turns an exchange into a tunnel.
    pub(super) fn begin_tunnel(
        &mut self,
        ctx: &mut PollContext<'_, '_>,
        mut exchange: Box<Exchange>,
        start: TunnelStart,
    ) -> ConnState {
        let core = ctx.core;
        let TunnelStart { server, to_server, to_client, tunnel_timeout_ns } = start;
        let mut from_client = Some(std::mem::take(&mut self.client.buffered));
        if !to_server.is_empty() {
            let buffered = from_client.take().unwrap_or_default();
            from_client = core.memory.buffers.take_filled(&[&to_server, buffered.bytes()]);
        }
        let from_server = core.memory.buffers.take_filled(&[&to_client]);
        let has_buffers = from_client.is_some() && from_server.is_some();
        let tunnel = Tunnel::new(from_client.unwrap_or_default(), from_server.unwrap_or_default());
        let bandwidth = match exchange.facts.is_tcp {
            true => self.client.settings.plan.bandwidth.as_ref(),
            false => exchange.own_settings.as_ref().and_then(|own| own.bandwidth.as_ref()),
        };
        let limits = bandwidth.map(|plan| Box::new(TunnelLimits::new(plan)));
        exchange.detach();
        let mut active = Box::new(ActiveTunnel { tunnel, server, exchange, tunnel_timeout_ns, limits });
        if !has_buffers {
            active.end(core, &mut self.client, &mut ctx.work.rng, EndReason::NoBuffer);
            return ConnState::Closed;
        }
        self.client.timeout_kind = TimeoutKind::None;
        ConnState::Tunnel(active)
    }

    /// Moves available bytes between client and server.
    pub(super) fn poll_tunnel(&mut self, ctx: &mut PollContext<'_, '_>, input: &mut [u8]) -> Poll<ConnState> {
        let _section = ctx.core.profile.enter(ProfilePhase::Tunnel);
        let ConnState::Tunnel(active) = &mut self.state else {
            return Poll::Ready(ConnState::Closed);
        };
        let ActiveTunnel { tunnel, server, tunnel_timeout_ns, limits, .. } = &mut **active;
        let mut resources = TunnelResources {
            scratch: input,
            pipes: &ctx.core.memory.pipes,
            buffers: &ctx.core.memory.buffers,
        };
        let client = &mut self.client;
        let now = ctx.core.ticks.now.get();
        let polled = match limits {
            None => tunnel.poll(ctx.cx, &mut client.stream, &mut server.stream, &mut resources),
            Some(limits) => {
                let streams = (&mut client.stream, &mut server.stream);
                tunnel.poll_limited(ctx.cx, streams, &mut resources, limits, now)
            }
        };
        let due = limits.as_ref().and_then(|limits| limits.due());
        let end = match polled {
            Poll::Ready(end) => match (end.result, end.first_to_end) {
                (TunnelResult::Finished, _) => EndReason::Done,
                (TunnelResult::Failed(Side::Client, _), _) => EndReason::ClientGone,
                (TunnelResult::Failed(Side::Server, _), _) => EndReason::ServerClosed,
                (TunnelResult::NoBuffer, _) => EndReason::NoBuffer,
            },
            Poll::Pending => {
                tunnel.note_progress(*tunnel_timeout_ns, now);
                let is_drained = ctx.core.drain.is_draining.get() && ctx.core.drain.closes_tunnels.get();
                if !is_drained && let Some(due) = due {
                    wait_until_due(ctx, client, due.since(now));
                    return Poll::Pending;
                }
                if !is_drained && !has_timed_out(ctx, client, tunnel, *tunnel_timeout_ns) {
                    return Poll::Pending;
                }
                if is_drained { EndReason::Drained } else { EndReason::TunnelIdle }
            }
        };
        active.end(ctx.core, client, &mut ctx.work.rng, end);
        Poll::Ready(ConnState::Closed)
    }
}

/// Waits until bytes of a limited direction are due, which is no idle time.
#[cold]
fn wait_until_due(ctx: &PollContext<'_, '_>, client: &mut ClientStream, wait_ns: u64) {
    if client.timeout_kind() != TimeoutKind::Bandwidth || client.is_deadline_expired() {
        ctx.core.update_metrics(Metrics::count_bandwidth_wait);
        client.arm_early(ctx, TimeoutKind::Bandwidth, wait_ns);
    }
}

/// Returns whether a tunnel has been idle for too long.
fn has_timed_out(
    ctx: &PollContext<'_, '_>,
    client: &mut ClientStream,
    tunnel: &mut Tunnel,
    timeout_ns: u64,
) -> bool {
    if client.timeout_kind() == TimeoutKind::Tunnel && !client.is_deadline_expired() {
        return false;
    }
    let now = ctx.core.ticks.now.get();
    let due = tunnel.due(timeout_ns, now);
    client.arm(ctx, TimeoutKind::Tunnel, due.since(now));
    due <= now
}

impl ActiveTunnel {
    pub(super) fn end(
        &mut self,
        core: &Core,
        client: &mut ClientStream,
        rng: &mut fastrand::Rng,
        end: EndReason,
    ) {
        let Self { tunnel, server, exchange, .. } = self;
        tunnel.release();
        exchange.add_tunnel_bytes(tunnel.up().received, tunnel.down().sent);
        exchange.end_tunnel(core, client, rng, end);
        core.load.in_flight.set(core.load.in_flight.get() - 1);
        if end != EndReason::Done {
            // Both sides must notice the abnormal end.
            let _ = client.stream.reset_on_close();
            let _ = server.stream.reset_on_close();
        }
    }
}
