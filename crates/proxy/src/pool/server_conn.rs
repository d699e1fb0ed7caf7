//! A connection to a server, and the TLS sessions that further ones resume.

use std::rc::Rc;

use rt::stream::Stream;
use rt::tls::ClientTls;

use super::CoreServer;
use crate::h2::back::{ServerConnections, VirtualConn};
use crate::plan::PoolTls;

/// A connection to a server, or one stream after the other of an HTTP/2 connection.
#[derive(Debug)]
pub(crate) struct ServerConn {
    pub(crate) stream: Stream,
    /// `None`: the connection has HTTP/1.1.
    pub(crate) http2: Option<Rc<VirtualConn>>,
    /// Number of completed requests on it.
    pub(crate) served_requests: u32,
    /// True if the server authenticated the connection, so that only one client may use it.
    pub(crate) is_private: bool,
    pub(super) idle_since_ns: u64,
}

impl ServerConn {
    pub(crate) fn new(stream: Stream) -> Self {
        Self { stream, http2: None, served_requests: 0, is_private: false, idle_since_ns: 0 }
    }

    /// Creates a connection whose requests become streams of an HTTP/2 connection.
    pub(crate) fn new_virtual(stream: Stream, http2: Rc<VirtualConn>) -> Self {
        Self { http2: Some(http2), ..Self::new(stream) }
    }

    /// Returns whether an idle connection can still be used. A readable one has ended, or has
    /// unrequested data. Mostly the runtime knows this from its last poll, without a system call.
    /// If the last response ended exactly with a read, the kernel is polled once.
    pub(crate) fn is_alive(&mut self) -> bool {
        self.stream.is_idle()
    }
}

impl CoreServer {
    /// Returns the TLS settings for new connections of this core. They keep the sessions of this
    /// server: another one with the same name would not resume them.
    pub(crate) fn client_tls(&self, plan: &PoolTls) -> ClientTls {
        self.client_tls.get_or_init(|| plan.client.for_one_server()).clone()
    }

    /// Returns the HTTP/2 connections of this core to the server.
    pub(crate) fn http2(&self) -> &Rc<ServerConnections> {
        self.http2.get_or_init(Rc::default)
    }
}
