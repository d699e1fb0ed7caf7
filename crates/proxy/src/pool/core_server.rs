//! The connections of one core to one server, and the TLS sessions that further ones resume.

use std::rc::Rc;

use rt::tls::ClientTls;

use super::CoreServer;
use crate::plan::PoolTls;
use crate::server_conn::http2::ServerConnections;

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
