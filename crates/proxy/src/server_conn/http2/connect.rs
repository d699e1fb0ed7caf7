//! Establishes a connection to a server that may speak HTTP/2: the socket, TLS with the choice of the
//! protocol (ALPN), and the settings of both ends.

use std::future::poll_fn;
use std::rc::{Rc, Weak};

use rt::clock::MonotonicTime;
use rt::stream::Stream;

use super::conn::ServerHttp2Conn;
use super::task::ConnectionTask;
use super::{ServerConnections, ServerHttp2Settings, Ticket};
use crate::dial::ConnectError;
use crate::metrics::HandshakeResult;
use crate::metrics::server_http2_counters::count;
use crate::plan::{ALPN_HTTP2, ServerHttp};
use crate::server_conn::CoreServices;

/// An established connection, by its protocol.
pub(super) enum NewConnection {
    Http2(Rc<ServerHttp2Conn>),
    /// The server chose HTTP/1.1, or nothing.
    Http11(Stream),
}

/// Establishes a connection, and serves it to its end if it has HTTP/2. `owner`: the only request that
/// may use it.
pub(super) async fn establish<C: CoreServices>(
    core: Rc<C>,
    server: Weak<ServerConnections>,
    settings: Rc<ServerHttp2Settings>,
    owner: Option<Rc<Ticket>>,
) {
    let deadline = MonotonicTime::now().saturating_add(settings.connect_ns);
    let begun = rt::tokio::select! {
        biased;
        begun = begin(&core, &server, &settings) => begun,
        () = core.timers().sleep_until(deadline.as_ns()) => Err(ConnectError::Timeout),
    };
    let Some(connections) = server.upgrade() else { return };
    match begun {
        Err(error) => connections.handle_established(&core, Err(error), owner),
        Ok(Begun::Http11(stream)) => {
            connections.handle_established(&core, Ok(NewConnection::Http11(stream)), owner);
        }
        Ok(Begun::Http2(task)) => {
            let conn = Rc::clone(task.shared());
            connections.handle_established(&core, Ok(NewConnection::Http2(conn)), owner);
            // Without another owner the connections are drained.
            drop(connections);
            task.run().await;
        }
    }
}

/// An established connection with its task.
enum Begun<C> {
    Http2(Box<ConnectionTask<C>>),
    Http11(Stream),
}

async fn begin<C: CoreServices>(
    core: &Rc<C>,
    server: &Weak<ServerConnections>,
    settings: &Rc<ServerHttp2Settings>,
) -> Result<Begun<C>, ConnectError> {
    let count_handshake = |result: HandshakeResult| {
        if let Some(connections) = server.upgrade() {
            connections.update_counters(|counters| count(&counters.handshakes[result as usize]));
        }
    };
    let opened = settings.dial.clone().open().await;
    if let Err(ConnectError::Handshake(_)) = &opened {
        count_handshake(HandshakeResult::Failed);
    }
    let stream = opened?;
    if let Some(result) = HandshakeResult::of(&stream) {
        count_handshake(result);
    }
    if let Some(info) = stream.tls_info() {
        let is_http2 = info.alpn.as_deref() == Some(ALPN_HTTP2);
        match settings.http {
            _ if is_http2 => {}
            ServerHttp::Auto => return Ok(Begun::Http11(stream)),
            _ => return Err(ConnectError::NoHttp2),
        }
    }
    let mut task =
        Box::new(ConnectionTask::new(Rc::clone(core), Weak::clone(server), Rc::clone(settings), stream));
    let started = poll_fn(|cx| task.poll_start(cx)).await;
    started.map(|()| Begun::Http2(task))
}
