//! Session dump: a connection describes itself on request, and closes if the command kills it.

use super::{Conn, ConnState};
use crate::client_stream::Registration;
use crate::core::{Core, TICK_NS};
use crate::outcome::EndReason;
use crate::session::{Session, SessionId, SessionState};

impl Conn {
    /// Responds to the current session query, once per query. Returns the new state if the
    /// connection is killed.
    #[cold]
    pub(super) fn report_session(&mut self, core: &Core, rng: &mut fastrand::Rng) -> Option<ConnState> {
        if !self.client.take_notified(core) {
            return None;
        }
        core.session_dump.count_notified();
        let registration = self.client.registration(core);
        let id = SessionId { core: core.id.index, slot_key: registration.slot_key };
        // A connection of HTTP/2 counts once. Its streams are only selected by their server, or id.
        if self.client.is_h2_stream() && core.session_dump.is_for_all() {
            return None;
        }
        if !core.session_dump.needs_description(id) {
            return None;
        }
        let session = self.describe(core, id, registration);
        core.session_dump.add_session(session).then(|| self.kill(core, rng))
    }

    fn describe(&self, core: &Core, id: SessionId, registration: Registration) -> Session {
        let client = &self.client;
        let exchange = match &self.state {
            ConnState::Exchange(exchange) => Some(exchange),
            ConnState::Tunnel(tunnelling) => Some(&tunnelling.exchange),
            _ => None,
        };
        let description = exchange.map(|exchange| exchange.describe()).unwrap_or_default();
        let state = match &self.state {
            ConnState::ProxyPreface => SessionState::ProxyHeader,
            ConnState::ClientHello(_) => SessionState::ClientHello,
            ConnState::TlsHandshake(_) => SessionState::TlsHandshake,
            ConnState::Idle if client.buffered.is_empty() => SessionState::Idle,
            ConnState::Idle => SessionState::RequestHead,
            ConnState::Http2(client_http2) => client_http2.session_state(),
            ConnState::Exchange(_) => description.state,
            ConnState::Tunnel(_) => SessionState::Tunnel,
            ConnState::RejectedStream | ConnState::Lingering(_) | ConnState::Closed => SessionState::Closing,
        };
        let byte_counts =
            if core.session_dump.lists_sessions() { client.stream.tcp_byte_counts() } else { None };
        let (bytes_in, bytes_out) = byte_counts.unwrap_or(description.bytes);
        Session {
            id,
            client: client.peer.address.map(|address| (address, client.peer.port)),
            listener: client.settings.plan.name.clone(),
            pool: description.pool,
            server: description.server,
            state,
            age_ms: u64::from(core.ticks.current().wrapping_sub(registration.since_tick))
                * (TICK_NS / 1_000_000),
            requests: match &self.state {
                ConnState::Http2(client_http2) => client_http2.request_count(),
                _ => client.request_count,
            },
            bytes_in,
            bytes_out,
        }
    }

    /// Closes the connection at once. The response in flight is cut off with a reset, so that the
    /// client cannot take it for complete.
    fn kill(&mut self, core: &Core, rng: &mut fastrand::Rng) -> ConnState {
        match std::mem::replace(&mut self.state, ConnState::Closed) {
            ConnState::Exchange(mut exchange) => {
                exchange.abort(core, &self.client, rng, EndReason::Killed);
                core.recycle_exchange(exchange);
                // The client must notice the truncation. Fails if the socket is gone already.
                let _ = self.client.stream.reset_on_close();
            }
            ConnState::Http2(client_http2) => {
                client_http2.note_killed();
                let _ = self.client.stream.reset_on_close();
            }
            ConnState::Tunnel(mut tunnelling) => {
                let Self { client, .. } = self;
                tunnelling.end(core, client, rng, EndReason::Killed);
            }
            _ => {}
        }
        ConnState::Closed
    }
}
