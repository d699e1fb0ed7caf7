//! One stream of a client's HTTP/2 connection, which is served like a connection of HTTP/1.1, and
//! the properties of the connection that its streams share.
//!
//! ```text
//! Conn (client, HTTP/2) -- client_http2 -- byte channel -- Conn (stream) -- exchange
//! ```
//! Limits and metrics count only the connection of the client.

use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;

use rt::byte_channel::{ChannelAddresses, ChannelEnd};
use rt::stream::Stream;

use super::{ClientStream, Peer, RareState, RejectedRequest, RequestRejection};
use crate::admission::SourceSlot;
use crate::core::{ListenerGeneration, ListenerSettings};
use crate::metrics::H2Counters;
use crate::outcome::{EndReason, Protocol};

/// Code of a stream's channel that ends because its client does not take the response.
pub(crate) const STALLED_CODE: u32 = 1;

/// Properties of a client's HTTP/2 connection that its streams share.
#[derive(Debug)]
pub(crate) struct H2Client {
    pub(crate) settings: Rc<ListenerSettings>,
    /// Addresses of the connection's socket.
    pub(crate) addresses: ChannelAddresses,
    pub(crate) request_count: Cell<u32>,
    /// True if an operator closes the connection.
    is_killed: Cell<bool>,
    pub(super) certificate_subject: Option<Rc<str>>,
    /// The client's certificate in DER.
    pub(super) certificate: Option<Box<[u8]>>,
    pub(super) server_name: Option<Box<str>>,
    peer: Peer,
    destination: Option<SocketAddr>,
    /// Names of the TLS version and the cipher suite; `None`: the connection is plain.
    tls_names: Option<(&'static str, &'static str)>,
    source_slot: SourceSlot,
    rejection: Option<RequestRejection>,
}

impl H2Client {
    /// Notes that an operator closes the connection.
    pub(crate) fn note_killed(&self) {
        self.is_killed.set(true);
    }

    /// Counts something in the metrics of the listener.
    pub(crate) fn count(&self, count: impl FnOnce(&H2Counters)) {
        if let Some(ListenerGeneration { generation, listener }) = self.settings.active_generation()
            && let Some(counters) = generation.metrics.h2(listener)
        {
            count(counters);
        }
    }
}

impl ClientStream {
    /// Creates the client of the stream at the other end of a channel. A `rejected` request is its
    /// only one.
    pub(crate) fn from_h2_stream(
        end: ChannelEnd,
        client: &Rc<H2Client>,
        rejected: Option<RejectedRequest>,
    ) -> Self {
        let mut stream = Self::new(Stream::Channel(end), Rc::clone(&client.settings), client.peer);
        stream.source_slot = client.source_slot;
        stream.rejection = client.rejection;
        stream.rare_state = Some(Box::new(RareState {
            destination: client.destination,
            h2_client: Some(Rc::clone(client)),
            rejected,
            ..RareState::default()
        }));
        stream
    }

    /// Returns the properties that the streams of this connection share.
    pub(crate) fn begin_h2(&mut self) -> H2Client {
        let server_name = self.server_name().map(Into::into);
        let rare = self.rare_state.as_deref_mut();
        let (subject, destination) =
            rare.map(|rare| (rare.certificate_subject.take(), rare.destination)).unwrap_or_default();
        H2Client {
            settings: Rc::clone(&self.settings),
            addresses: ChannelAddresses {
                local: self.stream.local_address(),
                peer: self.stream.peer_address(),
            },
            request_count: Cell::new(0),
            is_killed: Cell::new(false),
            certificate_subject: subject,
            certificate: self.stream.peer_certificate().map(Into::into),
            server_name,
            peer: self.peer,
            destination,
            tls_names: self.stream.tls_names(),
            source_slot: self.source_slot,
            rejection: self.rejection,
        }
    }

    pub(crate) fn requests_max(&self) -> Option<u32> {
        self.settings.plan.requests_max
    }

    pub(crate) fn is_listener_removed(&self) -> bool {
        self.settings.index.get().is_none()
    }

    /// Returns whether this is one stream of an HTTP/2 connection.
    #[inline]
    pub(crate) fn is_h2_stream(&self) -> bool {
        self.stream.is_channel()
    }

    #[inline]
    pub(super) fn h2_client(&self) -> Option<&H2Client> {
        match self.is_h2_stream() {
            true => self.rare_state.as_ref()?.h2_client.as_deref(),
            false => None,
        }
    }

    pub(crate) fn gone_reason(&self) -> EndReason {
        match self.h2_client() {
            Some(client) if client.is_killed.get() => EndReason::Killed,
            _ if self.is_stalled_h2_stream() => EndReason::WriteTimeout,
            _ => EndReason::ClientGone,
        }
    }

    fn is_stalled_h2_stream(&self) -> bool {
        matches!(&self.stream, Stream::Channel(end) if end.reset_code() == Some(STALLED_CODE))
    }

    #[inline]
    pub(crate) fn is_tls(&self) -> bool {
        match self.h2_client() {
            None => self.stream.is_tls(),
            Some(client) => client.tls_names.is_some(),
        }
    }

    /// Returns the names of the TLS version and the cipher suite of the client's connection.
    #[inline]
    pub(crate) fn tls_names(&self) -> Option<(&'static str, &'static str)> {
        match self.h2_client() {
            None => self.stream.tls_names(),
            Some(client) => client.tls_names,
        }
    }

    /// Returns the protocol of a request whose head has `version`: that of a stream is only its
    /// representation inside the proxy.
    #[inline]
    pub(crate) fn protocol(&self, version: wire::Version) -> Protocol {
        match version {
            _ if self.is_h2_stream() => Protocol::Http2,
            wire::Version::Http10 => Protocol::Http10,
            wire::Version::Http11 => Protocol::Http11,
        }
    }
}
