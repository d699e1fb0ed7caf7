//! A connection whose bytes are forwarded unparsed: a TCP connection, CONNECT, or an upgraded
//! protocol. [`crate::tunnel`] moves the bytes.

use std::rc::Rc;
use std::task::{Context, Poll};

use super::{ClientStream, Conn, ConnState, TimeoutKind};
use crate::core::{Core, ScratchBuffers};
use crate::exchange::{Exchange, TunnelStart};
use crate::outcome::EndReason;
use crate::pool::ServerConn;
use crate::profile::ProfilePhase;
use crate::tunnel::{Side, Tunnel, TunnelResources, TunnelResult};

/// A tunnel and the exchange that it started as.
#[derive(Debug)]
pub(super) struct ActiveTunnel {
    tunnel: Tunnel,
    server: ServerConn,
    pub(super) exchange: Box<Exchange>,
    tunnel_timeout_ns: u64,
}

impl Conn {
    /// Turns an exchange into a tunnel.
    pub(super) fn begin_tunnel(
        &mut self,
        core: &Rc<Core>,
        scratch: &mut ScratchBuffers,
        mut exchange: Box<Exchange>,
        start: TunnelStart,
    ) -> ConnState {
        let TunnelStart { server, to_server, to_client, tunnel_timeout_ns } = start;
        let mut from_client = Some(std::mem::take(&mut self.client.buffered));
        if !to_server.is_empty() {
            let buffered = from_client.take().unwrap_or_default();
            from_client = core.memory.buffers.take_filled(&[&to_server, buffered.bytes()]);
        }
        let from_server = core.memory.buffers.take_filled(&[&to_client]);
        let has_buffers = from_client.is_some() && from_server.is_some();
        let tunnel = Tunnel::new(from_client.unwrap_or_default(), from_server.unwrap_or_default());
        exchange.detach();
        let mut active = Box::new(ActiveTunnel { tunnel, server, exchange, tunnel_timeout_ns });
        if !has_buffers {
            active.end(core, &mut self.client, scratch, EndReason::NoBuffer);
            return ConnState::Closed;
        }
        self.client.timeout_kind = TimeoutKind::None;
        ConnState::Tunnel(active)
    }

    /// Moves available bytes between client and server.
    pub(super) fn poll_tunnel(
        &mut self,
        cx: &mut Context<'_>,
        core: &Rc<Core>,
        scratch: &mut ScratchBuffers,
    ) -> Poll<ConnState> {
        let _section = core.profile.enter(ProfilePhase::Tunnel);
        let ConnState::Tunnel(active) = &mut self.state else {
            return Poll::Ready(ConnState::Closed);
        };
        let ActiveTunnel { tunnel, server, tunnel_timeout_ns, .. } = &mut **active;
        let mut resources = TunnelResources {
            scratch: &mut scratch.input,
            pipes: &core.memory.pipes,
            buffers: &core.memory.buffers,
        };
        let client = &mut self.client;
        let end = match tunnel.poll(cx, &mut client.stream, &mut server.stream, &mut resources) {
            Poll::Ready(end) => match (end.result, end.first_to_end) {
                (TunnelResult::Finished, _) => EndReason::Done,
                (TunnelResult::Failed(Side::Client, _), _) => EndReason::ClientGone,
                (TunnelResult::Failed(Side::Server, _), _) => EndReason::ServerClosed,
                (TunnelResult::NoBuffer, _) => EndReason::NoBuffer,
            },
            Poll::Pending => {
                if tunnel.take_progress() {
                    client.timeout_kind = TimeoutKind::None;
                }
                let is_drained = core.drain.is_draining.get() && core.drain.closes_tunnels.get();
                if !is_drained && !client.has_timed_out(cx, core, TimeoutKind::Tunnel, *tunnel_timeout_ns) {
                    return Poll::Pending;
                }
                if is_drained { EndReason::Drained } else { EndReason::TunnelIdle }
            }
        };
        active.end(core, client, scratch, end);
        Poll::Ready(ConnState::Closed)
    }
}

impl ActiveTunnel {
    /// Ends the tunnel and reports it.
    pub(super) fn end(
        &mut self,
        core: &Rc<Core>,
        client: &mut ClientStream,
        scratch: &mut ScratchBuffers,
        end: EndReason,
    ) {
        let Self { tunnel, server, exchange, .. } = self;
        tunnel.release();
        exchange.add_tunnel_bytes(tunnel.up().received, tunnel.down().sent);
        exchange.end_tunnel(core, client, &mut scratch.rng, end);
        core.load.in_flight.set(core.load.in_flight.get() - 1);
        if end != EndReason::Done {
            // Both sides must notice the abnormal end.
            let _ = client.stream.reset_on_close();
            let _ = server.stream.reset_on_close();
        }
    }
}
