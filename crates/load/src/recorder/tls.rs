//! Counters of TLS handshakes, and the properties that were negotiated.

use rt::tls::{HandshakeKind, TlsInfo};

/// Handshakes since the start of the run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsCounters {
    pub full: u64,
    /// Handshakes that resumed an earlier session.
    pub resumed: u64,
    pub failed: u64,
    /// Properties of the first session.
    pub negotiated: Option<NegotiatedTls>,
}

/// Properties of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NegotiatedTls {
    /// Protocol version: `TLSv1.2` or `TLSv1.3`.
    pub version: &'static str,
    /// Cipher suite by its IANA name.
    pub cipher_suite: String,
    /// True if a later session had other properties.
    pub mixed: bool,
}

impl NegotiatedTls {
    fn differs(&self, version: &str, cipher_suite: &str) -> bool {
        self.version != version || self.cipher_suite != cipher_suite
    }
}

impl TlsCounters {
    pub(crate) fn count_handshake(&mut self, info: TlsInfo) {
        match info.handshake {
            HandshakeKind::Full => self.full += 1,
            HandshakeKind::Resumed => self.resumed += 1,
        }
        let TlsInfo { version, cipher_suite, .. } = info;
        match &mut self.negotiated {
            Some(first) => first.mixed |= first.differs(version, &cipher_suite),
            None => self.negotiated = Some(NegotiatedTls { version, cipher_suite, mixed: false }),
        }
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.full += other.full;
        self.resumed += other.resumed;
        self.failed += other.failed;
        match (&mut self.negotiated, &other.negotiated) {
            (Some(first), Some(more)) => {
                first.mixed |= more.mixed || first.differs(more.version, &more.cipher_suite);
            }
            (first @ None, Some(more)) => *first = Some(more.clone()),
            (_, None) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(version: &'static str, handshake: HandshakeKind) -> TlsInfo {
        TlsInfo { version, cipher_suite: "TLS_AES_128_GCM_SHA256".to_owned(), handshake, alpn: None }
    }

    #[test]
    fn the_first_session_is_described_and_others_are_noted() {
        let mut core = TlsCounters::default();
        core.count_handshake(info("TLSv1.3", HandshakeKind::Full));
        core.count_handshake(info("TLSv1.3", HandshakeKind::Resumed));
        assert_eq!((core.full, core.resumed), (1, 1));
        assert!(!core.negotiated.as_ref().unwrap().mixed);
        let mut sum = TlsCounters::default();
        sum.add(&core);
        sum.add(&core);
        assert_eq!((sum.full, sum.negotiated.clone()), (2, core.negotiated.clone()));
        core.count_handshake(info("TLSv1.2", HandshakeKind::Full));
        sum.add(&core);
        let first = sum.negotiated.unwrap();
        assert_eq!((first.version, first.mixed), ("TLSv1.3", true));
    }
}
