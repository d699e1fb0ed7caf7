//! A connection to a server: of HTTP/1.1, or one stream of an HTTP/2 connection, whose task is in
//! [`http2`]. Below pools and cores: a core lends it only [`CoreServices`].

mod core_services;
pub(crate) mod http2;

use std::rc::Rc;

use rt::clock::MonotonicTime;
use rt::stream::Stream;

pub(crate) use core_services::CoreServices;
use http2::StreamConn;

/// A connection to a server, or one stream after the other of an HTTP/2 connection.
#[derive(Debug)]
pub(crate) struct ServerConn {
    pub(crate) stream: Stream,
    /// `None`: the connection has HTTP/1.1.
    pub(crate) http2: Option<Rc<StreamConn>>,
    pub(crate) served_requests: u32,
    /// True if the server authenticated the connection, so that only one client may use it.
    pub(crate) is_private: bool,
    pub(crate) idle_since: MonotonicTime,
}

impl ServerConn {
    pub(crate) fn new(stream: Stream) -> Self {
        Self { stream, http2: None, served_requests: 0, is_private: false, idle_since: MonotonicTime::ZERO }
    }

    /// Creates a connection whose requests become streams of an HTTP/2 connection.
    pub(crate) fn new_virtual(stream: Stream, http2: Rc<StreamConn>) -> Self {
        Self { http2: Some(http2), ..Self::new(stream) }
    }

    /// Returns whether an idle connection can be used for another request, which has a place then.
    pub(crate) fn accepts_request(&mut self) -> bool {
        self.is_alive() && self.http2.as_ref().is_none_or(|stream| stream.reserve())
    }

    /// Returns whether an idle connection can still be used. A readable one has ended, or has
    /// unrequested data. Mostly the runtime knows this from its last poll, without a system call.
    /// If the last response ended exactly with a read, the kernel is polled once.
    pub(crate) fn is_alive(&mut self) -> bool {
        self.stream.is_idle()
    }
}
