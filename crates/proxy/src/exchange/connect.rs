//! Connects to a server: a new connection of HTTP/1.1, or a stream of an HTTP/2 connection.

use std::io;
use std::rc::Rc;
use std::task::Poll;

use rt::clock::MonotonicTime;
use rt::tls::TlsFault;

use super::{Failure, StepResult};
use crate::client_stream::{ClientStream, TimeoutKind};
use crate::core::PollContext;
use crate::dial::{ConnectError, DialTarget, NewSession};
use crate::exchange_state::{Connecting, Exchange, ExchangeStage, ServerSlot};
use crate::metrics::HandshakeResult;
use crate::outcome::{EndPhase, EndReason};
use crate::plan::{ALPN_HTTP11, Reuse, ServerHttp, ServerId};
use crate::pool::Pool;
use crate::profile::ProfilePhase;
use crate::server_conn::http2::{Granted, ServerHttp2Settings};

impl Exchange {
    pub(super) fn connect(&mut self, client: &ClientStream, pool: &Pool, server: ServerId) {
        match self.open_connection(client, pool, server) {
            Ok(Granted { conn, is_reused }) => self.set_connected(conn, is_reused, MonotonicTime::now()),
            Err(connecting) => self.stage = ExchangeStage::Connecting(connecting),
        }
    }

    /// Returns a stream of an HTTP/2 connection to a server.
    ///
    /// # Errors
    /// There is none yet: the value is a connection that is being established.
    pub(super) fn open_connection(
        &mut self,
        client: &ClientStream,
        pool: &Pool,
        server: ServerId,
    ) -> Result<Granted, Connecting> {
        let plan = pool.plan();
        let may_use_http2 = match plan.http {
            ServerHttp::Http11 => false,
            ServerHttp::Http2 => true,
            ServerHttp::Auto => plan.tls.is_some() && !self.attempt.needs_http11,
        };
        if may_use_http2 && !self.facts.is_tcp {
            return Self::connect_http2(client, pool, server);
        }
        let mut header = Vec::new();
        if let Some(version) = plan.send_proxy_protocol {
            if plan.tls.is_some() {
                client.write_proxy_header(version, &mut header);
            } else {
                // Sent together with the request.
                self.request_relay.insert_prefix(|out| client.write_proxy_header(version, out));
            }
        }
        let mut dial = dial_target(pool, server, header);
        if self.attempt.needs_http11
            && let Some(session) = &mut dial.session
        {
            session.tls = session.tls.with_alpn(&[ALPN_HTTP11]);
        }
        Err(Connecting::Own(Box::pin(dial.open())))
    }

    /// Takes a stream of an HTTP/2 connection, or waits for one.
    fn connect_http2(client: &ClientStream, pool: &Pool, server: ServerId) -> Result<Granted, Connecting> {
        let core = client.core();
        let connections = pool.server(server).http2();
        let wait = match pool.reuse() {
            Reuse::Never => {
                let mut header = Vec::new();
                if let Some(version) = pool.plan().send_proxy_protocol {
                    client.write_proxy_header(version, &mut header);
                }
                let settings = ServerHttp2Settings::new(pool.plan(), dial_target(pool, server, header));
                connections.connect_exclusively(&core, settings)
            }
            Reuse::Safe | Reuse::Always => {
                if let Some(granted) = connections.attach(&*core) {
                    return Ok(granted);
                }
                let settings = ServerHttp2Settings::new(pool.plan(), dial_target(pool, server, Vec::new()));
                connections.wait(&core, settings)
            }
        };
        Err(Connecting::Shared(wait))
    }

    /// Returns whether a WebSocket handshake that the HTTP/2 connection does not support (RFC 8441) may take
    /// a connection of HTTP/1.1 to the same server.
    pub(super) fn may_upgrade_on_http11(&self) -> bool {
        let http = self.slot.as_ref().map(|slot| slot.pool.plan().http);
        http == Some(ServerHttp::Auto) && !self.attempt.needs_http11
    }

    /// Opens a new connection to the same server.
    pub(super) fn reconnect(&mut self, client: &ClientStream) {
        self.server = None;
        self.attempt.needs_new_connection = true;
        if let Some(ServerSlot { pool, server }) = &self.slot {
            let (pool, server) = (Rc::clone(pool), *server);
            self.connect(client, &pool, server);
        }
    }

    pub(super) fn poll_connecting(
        &mut self,
        ctx: &mut PollContext<'_, '_>,
        client: &mut ClientStream,
        input: &mut [u8],
    ) -> StepResult {
        let _section = ctx.core.profile.enter(ProfilePhase::Connect);
        let ExchangeStage::Connecting(connecting) = &mut self.stage else {
            return StepResult::Blocked;
        };
        // Shared connections count their handshakes themselves.
        let is_own = matches!(connecting, Connecting::Own(_));
        match connecting.poll(ctx.cx) {
            Poll::Ready(Ok(Granted { conn, is_reused })) => {
                if is_own {
                    self.count_handshake(HandshakeResult::of(&conn.stream));
                }
                self.set_connected(conn, is_reused, MonotonicTime::now());
                StepResult::Progressed
            }
            Poll::Ready(Err(error)) => {
                if let ConnectError::Handshake(fault) = &error {
                    self.count_handshake(Some(HandshakeResult::Failed).filter(|_| is_own));
                    self.outcome.tls_error = Some(fault.to_string().into());
                }
                let failure = Failure { end: error.end(), phase: EndPhase::Connect };
                self.retry_connect(ctx, client, failure)
            }
            Poll::Pending => {
                if self.own_settings.is_some()
                    && let Some(result) = self.poll_hedge(ctx, client, input)
                {
                    return result;
                }
                let timeout_ns = self.connect_timeout_ns(ctx.core);
                if client.has_timed_out(ctx, TimeoutKind::Connect, timeout_ns) {
                    let failure = Failure { end: EndReason::ConnectTimeout, phase: EndPhase::Connect };
                    return self.retry_connect(ctx, client, failure);
                }
                self.check_waiting_client(ctx, client, input)
            }
        }
    }

    /// Counts the handshake of a TLS session with the request's server.
    fn count_handshake(&self, result: Option<HandshakeResult>) {
        if let (Some(result), Some(generation), Some(slot)) = (result, &self.generation, &self.slot) {
            generation.metrics.server_tls_handshake(slot.pool.id(), slot.server, result);
        }
    }

    /// Stores the fault of a TLS session, if `error` is one: a server may reject the proxy's
    /// certificate only after the handshake (RFC 8446 §4.4.2.4).
    pub(super) fn note_session_fault(&mut self, error: &io::Error) {
        if TlsFault::from_error(error).is_some() {
            self.outcome.tls_error = Some(error.to_string().into());
        }
    }
}

/// Returns the destination of new connections to a server, with a PROXY header.
fn dial_target(pool: &Pool, server: ServerId, header: Vec<u8>) -> DialTarget {
    let plan = pool.plan();
    let session = plan.tls.as_ref().map(|tls| NewSession {
        tls: pool.server(server).client_tls(tls),
        server_name: tls.name_of(&plan.servers[server]).into_owned(),
    });
    DialTarget {
        address: plan.servers[server].address.clone(),
        namespace: pool.namespace(),
        sources: pool.sources(),
        header,
        session,
    }
}
