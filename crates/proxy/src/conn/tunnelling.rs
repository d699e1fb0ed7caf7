//! A connection whose bytes are passed on unparsed: a TCP connection, CONNECT, an upgraded protocol.
//! What moves the bytes is [`crate::tunnel`].

use std::rc::Rc;
use std::task::{Context, Poll};

use super::{Armed, Conn, Link, State};
use crate::core::{Bench, Core};
use crate::exchange::{Exchange, Tunnelled};
use crate::outcome::End;
use crate::pool::ServerConn;
use crate::profile::Phase;
use crate::tunnel::{How, Side, Tools, Tunnel};

/// A tunnel and the exchange that it began as.
#[derive(Debug)]
pub(super) struct Tunnelling {
    tunnel: Tunnel,
    server: ServerConn,
    pub(super) exchange: Box<Exchange>,
    tunnel_ns: u64,
}

impl Conn {
    /// Turns an exchange into a tunnel.
    pub(super) fn begin_tunnel(
        &mut self,
        core: &Rc<Core>,
        bench: &mut Bench,
        mut exchange: Box<Exchange>,
        tunnelled: Tunnelled,
    ) -> State {
        let Tunnelled { server, to_server, to_client, tunnel_ns } = tunnelled;
        let mut from_client = Some(std::mem::take(&mut self.link.held));
        if !to_server.is_empty() {
            let held = from_client.take().unwrap_or_default();
            from_client = core.buffers.lend(&[&to_server, held.bytes()]);
        }
        let from_server = core.buffers.lend(&[&to_client]);
        let is_lent = from_client.is_some() && from_server.is_some();
        let tunnel = Tunnel::new(from_client.unwrap_or_default(), from_server.unwrap_or_default());
        exchange.detach();
        let mut tunnelling = Box::new(Tunnelling { tunnel, server, exchange, tunnel_ns });
        if !is_lent {
            tunnelling.end(core, &mut self.link, bench, End::NoBuffer);
            return State::Closed;
        }
        self.link.armed = Armed::Nothing;
        State::Tunnel(tunnelling)
    }

    /// Moves what can be moved between client and server.
    pub(super) fn poll_tunnel(
        &mut self,
        cx: &mut Context<'_>,
        core: &Rc<Core>,
        bench: &mut Bench,
    ) -> Poll<State> {
        let _section = core.profile.enter(Phase::Tunnel);
        let State::Tunnel(tunnelling) = &mut self.state else {
            return Poll::Ready(State::Closed);
        };
        let Tunnelling { tunnel, server, tunnel_ns, .. } = &mut **tunnelling;
        let mut tools =
            Tools { bench: &mut bench.input, pipes: &core.pipes, buffers: &core.buffers };
        let link = &mut self.link;
        let end = match tunnel.poll(cx, &mut link.stream, &mut server.stream, &mut tools) {
            Poll::Ready(end) => match (end.how, end.first) {
                (How::Finished, _) => End::Done,
                (How::Failed(Side::Client, _), _) => End::ClientGone,
                (How::Failed(Side::Server, _), _) => End::ServerClosed,
                (How::NoBuffer, _) => End::NoBuffer,
            },
            Poll::Pending => {
                if tunnel.take_progress() {
                    link.armed = Armed::Nothing;
                }
                let drained = core.draining.get() && core.tunnels_end.get();
                if !drained && !link.is_late(cx, core, Armed::Tunnel, *tunnel_ns) {
                    return Poll::Pending;
                }
                if drained { End::Drained } else { End::TunnelIdle }
            }
        };
        tunnelling.end(core, link, bench, end);
        Poll::Ready(State::Closed)
    }
}

impl Tunnelling {
    /// Ends it and reports it.
    pub(super) fn end(&mut self, core: &Rc<Core>, link: &mut Link, bench: &mut Bench, end: End) {
        let Self { tunnel, server, exchange, .. } = self;
        tunnel.release();
        exchange.note_tunnel(tunnel.up().received, tunnel.down().sent);
        exchange.end_tunnel(core, link, &mut bench.rng, end);
        core.in_flight.set(core.in_flight.get() - 1);
        if end != End::Done {
            // Both sides are to see that it did not end well.
            let _ = link.stream.reset_on_close();
            let _ = server.stream.reset_on_close();
        }
    }
}
