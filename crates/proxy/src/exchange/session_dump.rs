//! State of an exchange, for session dumps.

use crate::exchange_state::{Exchange, ExchangeStage, ResponseProgress};
use crate::session::SessionState;

#[derive(Debug, Default)]
pub(crate) struct ExchangeDescription {
    pub(crate) state: SessionState,
    pub(crate) pool: Option<Box<str>>,
    pub(crate) server: Option<Box<str>>,
    /// Bytes of this request, received from the client and sent to it.
    pub(crate) bytes: (u64, u64),
}

impl Exchange {
    pub(crate) fn describe(&self) -> ExchangeDescription {
        let plan = self.generation.as_ref().map(|generation| &generation.plan);
        let pool = plan.zip(self.outcome.pool).map(|(plan, pool)| &plan.pools[pool]);
        let server = pool.zip(self.outcome.server).map(|(pool, server)| &pool.servers[server]);
        // An aborted or completed exchange is no longer at a server.
        let server = server.filter(|_| self.slot.is_some());
        let state = match (&self.stage, self.response) {
            (ExchangeStage::Tarpit, _) => SessionState::Tarpit,
            (ExchangeStage::Buffering(_), _) => SessionState::Request,
            (ExchangeStage::Queued(..), _) => SessionState::Queue,
            (ExchangeStage::Connecting(_), _) => SessionState::Connect,
            (ExchangeStage::Connected | ExchangeStage::Limited(_), ResponseProgress::Head)
                if !self.request_relay.is_done() =>
            {
                SessionState::Request
            }
            (ExchangeStage::Connected | ExchangeStage::Limited(_), ResponseProgress::Head) => {
                SessionState::Server
            }
            _ => SessionState::Response,
        };
        let (mut pool, mut server) =
            (pool.map(|pool| pool.name.clone()), server.map(|server| server.name.clone()));
        if let Some(detached) = &self.detached {
            (pool, server) = (detached.pool.clone(), detached.server.clone());
        }
        ExchangeDescription { state, pool, server, bytes: (self.outcome.bytes_in, self.outcome.bytes_out) }
    }
}
