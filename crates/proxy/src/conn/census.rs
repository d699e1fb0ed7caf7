//! A connection describes itself to whoever asks, and ends if it is told to.

use std::rc::Rc;

use super::{Conn, State};
use crate::core::{Bench, Core, TICK_NS};
use crate::outcome::End;
use crate::session::{Session, SessionId};

impl Conn {
    /// Answers what all connections are asked just now, if it has not yet; the state that it is in
    /// then, if it is told to end.
    #[cold]
    pub(super) fn answer_census(&mut self, core: &Rc<Core>, bench: &mut Bench) -> Option<State> {
        if !self.link.take_asked(core) {
            return None;
        }
        core.census.note_asked();
        let (number, since) = self.link.registered(core);
        let id = SessionId { core: core.index, number };
        if !core.census.cares(id) {
            return None;
        }
        let session = self.describe(core, id, since);
        core.census.answer(session).then(|| self.kill(core, bench))
    }

    fn describe(&self, core: &Core, id: SessionId, since: u32) -> Session {
        let link = &self.link;
        let exchange = match &self.state {
            State::Exchange(exchange) => Some(exchange),
            State::Tunnel(tunnelling) => Some(&tunnelling.exchange),
            _ => None,
        };
        let whereabouts = exchange.map(|exchange| exchange.whereabouts()).unwrap_or_default();
        let state = match &self.state {
            State::Greeting => "greeting",
            State::Idle if link.held.is_empty() => "idle",
            State::Idle => "head",
            State::Exchange(_) => whereabouts.state,
            State::Tunnel(_) => "tunnel",
            State::Lingering(_) | State::Closed => "closing",
        };
        let carried = if core.census.lists() { link.stream.carried() } else { None };
        let (bytes_in, bytes_out) = carried.unwrap_or(whereabouts.bytes);
        Session {
            id,
            client: link.peer.address.map(|address| (address, link.peer.port)),
            listener: link.settings.plan.name.clone(),
            pool: whereabouts.pool,
            server: whereabouts.server,
            state,
            age_ms: u64::from(ticks(core).wrapping_sub(since)) * (TICK_NS / 1_000_000),
            requests: link.requests,
            bytes_in,
            bytes_out,
        }
    }

    /// Ends it at once: what it has in flight is cut off, so that nobody takes it for whole.
    fn kill(&mut self, core: &Rc<Core>, bench: &mut Bench) -> State {
        match std::mem::replace(&mut self.state, State::Closed) {
            State::Exchange(mut exchange) => {
                exchange.cut(core, &self.link, &mut bench.rng, End::Killed);
                core.give_exchange(exchange);
                // It is to be seen that something is missing; refused when it is gone already.
                let _ = self.link.stream.reset_on_close();
            }
            State::Tunnel(mut tunnelling) => {
                let Self { link, .. } = self;
                tunnelling.end(core, link, bench, End::Killed);
            }
            _ => {}
        }
        State::Closed
    }
}

/// The core's time as places among deadlines keep it.
pub(super) fn ticks(core: &Core) -> u32 {
    (core.now_ns.get() / TICK_NS) as u32
}
