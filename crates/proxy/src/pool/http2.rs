//! HTTP/2 connections to the servers of a pool: their idle streams, and their counters.

use super::Pool;
use crate::metrics::Http2Load;
use crate::metrics::h2_back_counters::BackCounters;
use crate::plan::ServerId;
use crate::server_conn::ServerConn;

impl Pool {
    /// Does the same as [`Pool::take_idle`] if the idle connections are streams of HTTP/2 connections. A
    /// server reports which of those it has not processed.
    pub(crate) fn take_idle_stream(&self, server: ServerId) -> Option<ServerConn> {
        let is_stream = |conn: &ServerConn| conn.http2.is_some();
        let has_streams = self.servers[server].idle_conns.borrow().last().is_some_and(is_stream);
        if has_streams { self.take_idle(server) } else { None }
    }

    /// Returns the number of idle connections to a server: of HTTP/2 those without a stream.
    pub(crate) fn idle_connections(&self, server: ServerId) -> usize {
        let server = &self.servers[server];
        let idle_conns = server.idle_conns.borrow();
        let of_http11 = idle_conns.iter().filter(|conn| conn.http2.is_none()).count();
        of_http11 + server.http2.get().map_or(0, |http2| http2.idle())
    }

    /// Returns the HTTP/2 connections to a server that are in use.
    pub(crate) fn http2_load(&self, server: ServerId) -> Http2Load {
        self.servers[server].http2.get().map_or_else(Http2Load::default, |http2| http2.load())
    }

    /// Returns the counters of HTTP/2 connections to a server, since the last call.
    pub(crate) fn take_http2_counters(&self, server: ServerId) -> Option<BackCounters> {
        self.servers[server].http2.get().map(|http2| http2.take_counters())
    }
}
