//! Failures of requests, as a table: the name in records, and the meaning.

use std::io;

/// Kinds of failure; each has a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FailureKind {
    /// The request was older than its timeout.
    Timeout,
    /// The request waited so long for a connection that its response would have come after the
    /// timeout.
    TooLate,
    /// Nothing listened at the target.
    Refused,
    Reset,
    /// The connection was closed during the request.
    Closed,
    /// The network or the host cannot be reached.
    Unreachable,
    /// No local port was left for the target (`EADDRNOTAVAIL`).
    NoPort,
    /// No descriptor was left (`EMFILE`, `ENFILE`).
    NoDescriptor,
    /// The certificate is not trusted, or the server violates TLS.
    Tls,
    /// The server does not speak HTTP/2, which was asked for.
    NoHttp2,
    /// The response is not HTTP, or not safe to interpret.
    Parse,
    /// The response to plain HTTP is an alert of TLS: the port speaks TLS.
    TlsPort,
    /// The server reset the stream of the request (RST_STREAM), but not with REFUSED_STREAM.
    StreamReset,
    /// The server refused the stream of the request without processing it: REFUSED_STREAM, or a
    /// second GOAWAY.
    RefusedStream,
    /// The response is not the expected one (`--expect-status`, `--expect-body` and others).
    Check,
    /// The status of a gRPC call is not 0.
    GrpcStatus,
    /// The server did not accept the handshake of WebSocket, or its response is no event stream.
    Upgrade,
    /// The echo of a message has other content.
    Altered,
    /// The request was in flight when the drain ended.
    Unfinished,
    /// Any other error of the operating system.
    Other,
}

/// Every kind with its name and its meaning; in the order of the enum.
pub const FAILURE_KINDS: [(FailureKind, &str, &str); 20] = [
    (FailureKind::Timeout, "timeout", "older than the timeout (-w)"),
    (FailureKind::TooLate, "too_late", "not sent: the remaining time was shorter than a usual response"),
    (FailureKind::Refused, "refused", "connection refused: nothing listens at the target"),
    (FailureKind::Reset, "reset", "the connection was reset"),
    (FailureKind::Closed, "closed", "the connection closed before the end of the response"),
    (FailureKind::Unreachable, "unreachable", "no route to the target"),
    (FailureKind::NoPort, "no_port", "no local port left for the target"),
    (FailureKind::NoDescriptor, "no_descriptor", "no file descriptor left"),
    (FailureKind::Tls, "tls", "the certificate is not trusted, or the server violates TLS"),
    (FailureKind::NoHttp2, "no_http2", "the server does not speak HTTP/2"),
    (FailureKind::Parse, "parse", "the response is not well-formed HTTP"),
    (FailureKind::TlsPort, "tls_port", "the port speaks TLS: write https:// in the URL"),
    (FailureKind::StreamReset, "stream_reset", "the server reset the stream (RST_STREAM)"),
    (FailureKind::RefusedStream, "refused_stream", "the server refused the stream without processing it"),
    (
        FailureKind::Check,
        "check",
        "the response failed a check (--expect-...): `failed_checks` has each check",
    ),
    (FailureKind::GrpcStatus, "grpc_status", "the status of the gRPC call is not 0"),
    (FailureKind::Upgrade, "upgrade", "the server refused the WebSocket handshake, or sent no event stream"),
    (FailureKind::Altered, "altered", "the echo of the message has other content"),
    (FailureKind::Unfinished, "unfinished", "still in flight when the drain ended"),
    (FailureKind::Other, "other", "another error of the operating system"),
];

/// Phase of a request when it failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestPhase {
    /// Waiting for a free connection.
    Queue,
    /// Waiting for a new connection.
    Connect,
    /// Waiting for the TLS handshake of a new connection.
    TlsHandshake,
    /// Waiting for the first byte of the response.
    FirstByte,
    /// Waiting for the rest of the response.
    Body,
}

/// Names of the phases, in the order of the enum.
pub const REQUEST_PHASES: [(RequestPhase, &str); 5] = [
    (RequestPhase::Queue, "queue"),
    (RequestPhase::Connect, "connect"),
    (RequestPhase::TlsHandshake, "tls_handshake"),
    (RequestPhase::FirstByte, "first_byte"),
    (RequestPhase::Body, "body"),
];

impl FailureKind {
    pub fn name(self) -> &'static str {
        FAILURE_KINDS[self as usize].1
    }

    /// Returns the kind of a response over HTTP/1.1 that is not well-formed, by its last bytes.
    #[must_use]
    pub fn from_malformed(bytes: &[u8]) -> Self {
        if bytes.starts_with(TLS_ALERT) { Self::TlsPort } else { Self::Parse }
    }

    /// Returns the kind of an error of the operating system, or of a TLS session.
    #[must_use]
    pub fn from_io_error(error: &io::Error) -> Self {
        use io::ErrorKind as E;
        match error.kind() {
            E::ConnectionRefused | E::NotFound => Self::Refused,
            E::ConnectionReset | E::BrokenPipe | E::ConnectionAborted => Self::Reset,
            E::UnexpectedEof => Self::Closed,
            E::InvalidData => Self::Tls,
            E::HostUnreachable | E::NetworkUnreachable | E::NetworkDown => Self::Unreachable,
            E::AddrNotAvailable => Self::NoPort,
            E::TimedOut => Self::Timeout,
            // Result of connect(2) to a unix socket with a full backlog.
            E::WouldBlock => Self::Refused,
            _ => match error.raw_os_error() {
                Some(EMFILE | ENFILE) => Self::NoDescriptor,
                _ => Self::Other,
            },
        }
    }
}

/// Start of a record of TLS with an alert, of any version (RFC 8446, 5.1): the response to bytes that are no TLS.
const TLS_ALERT: &[u8] = &[0x15, 0x03];

/// errno(3) on Linux.
const ENFILE: i32 = 23;
/// errno(3) on Linux.
const EMFILE: i32 = 24;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alert_of_tls_is_told_from_other_bytes() {
        let alert = [0x15, 0x03, 0x03, 0x00, 0x02, 0x02, 0x46];
        assert_eq!(FailureKind::from_malformed(&alert).name(), "tls_port");
        assert_eq!(FailureKind::from_malformed(b"SSH-2.0-x\r\n").name(), "parse");
    }

    #[test]
    fn the_tables_are_in_the_order_of_their_enums() {
        assert!(FAILURE_KINDS.iter().enumerate().all(|(index, row)| row.0 as usize == index));
        assert!(REQUEST_PHASES.iter().enumerate().all(|(index, row)| row.0 as usize == index));
    }

    #[test]
    fn errors_of_the_system_have_their_kind() {
        for (errno, kind) in [
            (111, FailureKind::Refused),
            (104, FailureKind::Reset),
            (32, FailureKind::Reset),
            (99, FailureKind::NoPort),
            (24, FailureKind::NoDescriptor),
            (113, FailureKind::Unreachable),
            (110, FailureKind::Timeout),
            (5, FailureKind::Other),
        ] {
            assert_eq!(FailureKind::from_io_error(&io::Error::from_raw_os_error(errno)), kind, "{errno}");
        }
    }
}
