//! Properties of an established session, for logs and counters.

use rustls::CipherSuite;

use super::session::TlsStream;

/// Bytes of a session that went through its socket, encrypted and with the handshake.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TlsByteCounts {
    pub received: u64,
    pub sent: u64,
}

/// Properties of an established session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsInfo {
    /// `TLSv1.2` or `TLSv1.3`, as OpenSSL writes it.
    pub version: &'static str,
    /// The cipher suite by its IANA name.
    pub cipher_suite: String,
    /// Full or resumed.
    pub handshake: HandshakeKind,
    /// The protocol negotiated by ALPN (RFC 7301).
    pub alpn: Option<Vec<u8>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandshakeKind {
    /// With certificates and signatures.
    Full,
    /// From a ticket or a session id of an earlier connection.
    Resumed,
}

impl TlsStream {
    /// Returns the properties of the session; `None` during the handshake.
    pub(crate) fn info(&self) -> Option<TlsInfo> {
        let common = self.common();
        let handshake = match common.handshake_kind()? {
            rustls::HandshakeKind::Resumed => HandshakeKind::Resumed,
            _ => HandshakeKind::Full,
        };
        let (version, cipher_suite) = self.names()?;
        Some(TlsInfo {
            version,
            cipher_suite: cipher_suite.to_owned(),
            handshake,
            alpn: common.alpn_protocol().map(<[u8]>::to_vec),
        })
    }

    /// Returns the names of the version and the cipher suite, without an allocation.
    pub(crate) fn names(&self) -> Option<(&'static str, &'static str)> {
        let common = self.common();
        let version = match common.protocol_version()? {
            rustls::ProtocolVersion::TLSv1_2 => "TLSv1.2",
            _ => "TLSv1.3",
        };
        Some((version, iana_name(common.negotiated_cipher_suite()?.suite())))
    }

    /// Returns the peer's own certificate in DER, if it has sent and proven one.
    pub(crate) fn peer_certificate(&self) -> Option<&[u8]> {
        self.common().peer_certificates()?.first().map(AsRef::as_ref)
    }
}

/// Returns the IANA name of a suite: rustls prefixes those of TLS 1.3 in another way.
pub(super) fn iana_name(suite: CipherSuite) -> &'static str {
    match suite {
        CipherSuite::TLS13_AES_128_GCM_SHA256 => "TLS_AES_128_GCM_SHA256",
        CipherSuite::TLS13_AES_256_GCM_SHA384 => "TLS_AES_256_GCM_SHA384",
        CipherSuite::TLS13_CHACHA20_POLY1305_SHA256 => "TLS_CHACHA20_POLY1305_SHA256",
        other => other.as_str().unwrap_or("unknown"),
    }
}
