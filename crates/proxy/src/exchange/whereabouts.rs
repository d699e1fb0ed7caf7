//! Where an exchange is, for whoever asks.

use super::{Exchange, Response, Stage};

/// Where an exchange is.
#[derive(Debug, Default)]
pub(crate) struct Whereabouts {
    pub(crate) state: &'static str,
    pub(crate) pool: Option<Box<str>>,
    pub(crate) server: Option<Box<str>>,
    /// Of this request: received from the client, and sent to it.
    pub(crate) bytes: (u64, u64),
}

impl Exchange {
    /// Where it is.
    pub(crate) fn whereabouts(&self) -> Whereabouts {
        let plan = self.live.as_ref().map(|live| &live.plan);
        let pool = plan.zip(self.facts.pool).map(|(plan, pool)| &plan.pools[pool]);
        let server = pool.zip(self.facts.server).map(|(pool, server)| &pool.servers[server]);
        // What was cut off or answered is with no server any more.
        let server = server.filter(|_| self.place.is_some());
        let state = match (&self.stage, self.response) {
            (Stage::Tarpit, _) => "tarpit",
            (Stage::Buffering(_), _) => "request",
            (Stage::Queued(..), _) => "queue",
            (Stage::Connecting(_), _) => "connect",
            (Stage::Open, Response::Head) if !self.up.is_done() => "request",
            (Stage::Open, Response::Head) => "server",
            _ => "response",
        };
        let (mut pool, mut server) =
            (pool.map(|pool| pool.name.clone()), server.map(|server| server.name.clone()));
        if let Some(detached) = &self.detached {
            (pool, server) = (detached.pool.clone(), detached.server.clone());
        }
        Whereabouts { state, pool, server, bytes: (self.facts.bytes_in, self.facts.bytes_out) }
    }
}
