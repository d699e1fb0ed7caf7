//! Reasons for which connections are not served.

macro_rules! reject_reasons {
    ($($variant:ident, $code:literal, $doc:literal;)*) => {
        /// Reason for which a client's connection was closed before it was served, or had to wait.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum RejectReason {
            $(#[doc = $doc] $variant,)*
        }

        impl RejectReason {
            pub(crate) const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// Returns the stable name in `snake_case`.
            pub(crate) fn code(self) -> &'static str {
                match self { $(Self::$variant => $code,)* }
            }
        }
    };
}

reject_reasons! {
    ProcessFull, "process_full", "`connections-max` of the process was reached";
    ListenerFull, "listener_full", "`connections-max` of the listener was reached";
    ConnectionRate, "connection_rate", "`connections-rate` of the listener was reached";
    SourceConnections, "source_connections", "the source reached its limit of connections (`per-source`)";
    SourceRate, "source_rate", "the source reached its rate limit (`per-source`)";
    SourceTable, "source_table", "the table of sources was full; the connection was served without limits";
    HandshakesFull, "handshakes_full", "`handshakes-max` of the listener was reached; the connection was reset";
    RejectsFull, "rejects_full", "too many rejected connections were still open; this one was reset";
    ProxyHeader, "proxy_header", "the PROXY header was missing, malformed or late";
    Untrusted, "untrusted", "the peer was not in `trusted` on a listener with `proxy-protocol`";
    NoDescriptor, "no_descriptor", "no free descriptor or memory";
    Draining, "draining", "the proxy was draining";
}
