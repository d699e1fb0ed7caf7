//! HTTP/2 of the connections to servers.

/// HTTP version of the connections to a pool's servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerHttp {
    /// HTTP/1.1. The default.
    Http11,
    /// HTTP/2: with TLS negotiated (ALPN), else with prior knowledge (RFC 9113 §3.3).
    Http2,
    /// The version that a server chooses in the TLS handshake.
    Auto,
}

impl ServerHttp {
    /// Returns the protocols that the proxy offers to servers (RFC 7301).
    #[must_use]
    pub fn alpn(self) -> Vec<Vec<u8>> {
        match self {
            Self::Http11 => Vec::new(),
            Self::Http2 => vec![ALPN_HTTP2.to_vec()],
            Self::Auto => vec![ALPN_HTTP2.to_vec(), ALPN_HTTP11.to_vec()],
        }
    }
}

/// Name of HTTP/2 over TLS (RFC 9113 §3.1).
pub const ALPN_HTTP2: &[u8] = b"h2";
/// Name of HTTP/1.1 over TLS (RFC 7301 §6).
pub const ALPN_HTTP11: &[u8] = b"http/1.1";

/// `[listener.NAME.http2]`: settings and limits of HTTP/2 connections of clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientHttp2Plan {
    pub config: wire::h2::Config,
    /// Time without a received byte after which a connection is checked with a PING frame: 30 s.
    pub ping_interval_ns: u64,
    /// Maximum time from a PING frame to the next received byte: 10 s.
    pub ping_timeout_ns: u64,
}

/// `[pool.NAME.http2]`: limits of HTTP/2 connections to servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerHttp2Plan {
    /// Maximum number of concurrent requests on a connection, if the server allows as many: 100.
    pub streams_max: u32,
    /// Maximum number of connections of a core to a server: 128.
    pub connections_max: usize,
    /// Maximum receive window of a stream in bytes: 1 MiB.
    pub stream_window_max: u32,
    /// Maximum receive window of a connection in bytes: 16 MiB.
    pub connection_window_max: u32,
    /// Time without a received byte after which a connection is checked with a PING frame; `None`: only
    /// after a timeout of a request.
    pub ping_interval_ns: Option<u64>,
    /// Maximum time until the response to a PING frame: 5 s.
    pub ping_timeout_ns: u64,
}

#[cfg(any(test, feature = "fixtures"))]
impl Default for ServerHttp2Plan {
    fn default() -> Self {
        Self {
            streams_max: 100,
            connections_max: 128,
            stream_window_max: 1 << 20,
            connection_window_max: 1 << 24,
            ping_interval_ns: None,
            ping_timeout_ns: 5_000_000_000,
        }
    }
}
