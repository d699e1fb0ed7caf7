//! Connects to a server: the socket, the PROXY header before a TLS session, and its handshake.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use rt::address::Address;
use rt::clock::now_ns;
use rt::namespace::Namespace;
use rt::stream::Stream;
use rt::tls::{ClientTls, TlsFault};

use super::{Exchange, ExchangeStage, ServerSlot, StepResult};
use crate::conn::{ClientStream, TimeoutKind};
use crate::core::{Core, ScratchBuffers};
use crate::metrics::HandshakeResult;
use crate::outcome::{EndPhase, EndReason};
use crate::pool::{Pool, ServerConn};
use crate::profile::ProfilePhase;

/// A connection that is being established.
pub(super) type Connecting = Pin<Box<dyn Future<Output = Result<Stream, ConnectError>>>>;

/// Reason that there is no connection.
pub(super) enum ConnectError {
    /// The server could not be reached.
    Socket(io::Error),
    /// The TLS handshake failed.
    Handshake(io::Error),
}

/// TLS session to begin on a new connection.
struct NewSession {
    tls: ClientTls,
    server_name: String,
    /// PROXY header, which precedes the session.
    header: Vec<u8>,
}

impl ConnectError {
    fn end(&self) -> EndReason {
        match self {
            Self::Socket(error) if rt::dial::is_exhausted(error) => EndReason::NoDescriptor,
            Self::Socket(_) => EndReason::ConnectFailed,
            Self::Handshake(_) => EndReason::TlsHandshakeFailed,
        }
    }
}

async fn connect_tls(
    address: Address,
    namespace: Option<Namespace>,
    session: NewSession,
) -> Result<Stream, ConnectError> {
    let connected = rt::dial::connect_in(&address, None, namespace.as_ref()).await;
    let mut stream = connected.map_err(ConnectError::Socket)?;
    stream.send(&session.header).await.map_err(ConnectError::Socket)?;
    let begun = stream.connect_tls(&session.tls, &session.server_name);
    let mut stream = begun.map_err(ConnectError::Handshake)?;
    let handshake = std::future::poll_fn(|cx| stream.poll_handshake(cx)).await;
    handshake.map_err(ConnectError::Handshake)?;
    Ok(stream)
}

impl Exchange {
    /// Opens a new connection to a server.
    pub(super) fn connect(&mut self, client: &ClientStream, pool: &Pool, server: usize) {
        let plan = pool.plan();
        let address: Address = plan.servers[server].address.clone();
        let namespace = pool.namespace();
        let Some(tls) = &plan.tls else {
            if let Some(version) = plan.send_proxy_protocol {
                self.request_relay.insert_prefix(|out| client.write_proxy_header(version, out));
            }
            self.stage = ExchangeStage::Connecting(Box::pin(async move {
                let connected = rt::dial::connect_in(&address, None, namespace.as_ref()).await;
                connected.map_err(ConnectError::Socket)
            }));
            return;
        };
        let mut header = Vec::new();
        if let Some(version) = plan.send_proxy_protocol {
            client.write_proxy_header(version, &mut header);
        }
        let session = NewSession {
            tls: pool.server(server).client_tls(tls),
            server_name: tls.name_of(&plan.servers[server]).into_owned(),
            header,
        };
        self.stage = ExchangeStage::Connecting(Box::pin(connect_tls(address, namespace, session)));
    }

    /// Opens a new connection to the same server.
    pub(super) fn reconnect(&mut self, client: &ClientStream) {
        self.server = None;
        self.needs_new_connection = true;
        if let Some(ServerSlot { pool, server }) = &self.slot {
            let (pool, server) = (Rc::clone(pool), *server);
            self.connect(client, &pool, server);
        }
    }

    pub(super) fn poll_connecting(
        &mut self,
        cx: &mut Context<'_>,
        core: &Rc<Core>,
        client: &mut ClientStream,
        scratch: &mut ScratchBuffers,
    ) -> StepResult {
        let _section = core.profile.enter(ProfilePhase::Connect);
        let ExchangeStage::Connecting(future) = &mut self.stage else {
            return StepResult::Blocked;
        };
        match future.as_mut().poll(cx) {
            Poll::Ready(Ok(stream)) => {
                self.count_handshake(HandshakeResult::of(&stream));
                self.set_connected(ServerConn::new(stream), false, now_ns());
                StepResult::Progressed
            }
            Poll::Ready(Err(error)) => {
                if let ConnectError::Handshake(fault) = &error {
                    self.count_handshake(Some(HandshakeResult::Failed));
                    self.outcome.tls_error = Some(fault.to_string().into());
                }
                let failure = (error.end(), EndPhase::Connect);
                self.retry_connect(core, client, (&mut scratch.rng, cx.waker()), failure)
            }
            Poll::Pending => {
                let timeout_ns = self.slot.as_ref().map_or(0, |slot| slot.pool.plan().timeouts.connect_ns);
                if client.has_timed_out(cx, core, TimeoutKind::Connect, timeout_ns) {
                    let failure = (EndReason::ConnectTimeout, EndPhase::Connect);
                    return self.retry_connect(core, client, (&mut scratch.rng, cx.waker()), failure);
                }
                self.check_waiting_client(cx, core, client, scratch)
            }
        }
    }

    /// Counts the handshake of a TLS session with the request's server.
    fn count_handshake(&self, result: Option<HandshakeResult>) {
        if let (Some(result), Some(generation), Some(slot)) = (result, &self.generation, &self.slot) {
            generation.metrics.server_tls_handshake(slot.pool.index(), slot.server, result);
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
