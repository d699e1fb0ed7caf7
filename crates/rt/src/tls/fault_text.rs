//! Sentences for the faults of TLS that rustls reports: the cause, and what to do. The texts of rustls and
//! webpki are the names of their variants, which mean nothing to a user.

use std::error::Error as StdError;

use rustls::{EncryptedClientHelloError, Error, InconsistentKeys, InvalidMessage, PeerIncompatible};

use super::alerts::describe_alert;
use super::certificate_faults::{describe_certificate_fault, describe_revocation_list_fault};

/// Fault of a session as the content of an [`io::Error`](std::io::Error): its text is a sentence.
#[derive(Clone, Debug)]
pub(super) struct SessionError {
    pub(super) fault: Error,
}

impl std::fmt::Display for SessionError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(&describe(&self.fault))
    }
}

impl StdError for SessionError {}

impl From<Error> for SessionError {
    fn from(fault: Error) -> Self {
        Self { fault }
    }
}

/// Returns the sentence for a fault.
pub(super) fn describe(error: &Error) -> String {
    let text = match error {
        Error::InvalidCertificate(fault) => {
            return format!("certificate not trusted: {}", describe_certificate_fault(fault));
        }
        Error::InvalidCertRevocationList(fault) => return describe_revocation_list_fault(fault).to_owned(),
        Error::AlertReceived(alert) => return describe_alert(*alert),
        Error::PeerIncompatible(fault) => return describe_incompatible(fault),
        Error::InvalidMessage(fault) => return describe_message(fault),
        Error::InappropriateMessage { .. } | Error::InappropriateHandshakeMessage { .. } => {
            "the peer sent a TLS message at the wrong time: a fault of its TLS library"
        }
        Error::PeerMisbehaved(fault) => {
            return format!("the peer violates TLS: {}", words_of(&format!("{fault:?}")));
        }
        Error::InvalidEncryptedClientHello(fault) => match fault {
            EncryptedClientHelloError::InvalidConfigList => {
                "the keys for an encrypted ClientHello are invalid"
            }
            EncryptedClientHelloError::NoCompatibleConfig => {
                "no key for an encrypted ClientHello has a known algorithm"
            }
            EncryptedClientHelloError::SniRequired => "an encrypted ClientHello needs a server name",
            _ => "the encrypted ClientHello failed",
        },
        Error::InconsistentKeys(fault) => match fault {
            InconsistentKeys::KeyMismatch => "the key does not belong to the certificate",
            _ => "the key cannot be compared with the certificate",
        },
        Error::NoCertificatesPresented => "certificate not trusted: the peer sent none",
        Error::UnsupportedNameType => "the server's name is neither a DNS name nor an IP address",
        Error::DecryptError => {
            "a TLS record cannot be decrypted: the bytes changed on their way, or the peer uses other keys"
        }
        Error::EncryptError => "a TLS record is too large to be encrypted",
        Error::FailedToGetCurrentTime => "the clock of this machine is set before 1970: set it",
        Error::FailedToGetRandomBytes => "the kernel gave no random bytes",
        Error::HandshakeNotComplete => "the TLS handshake is not complete",
        Error::PeerSentOversizedRecord => "the peer sent a TLS record longer than TLS allows",
        Error::NoApplicationProtocol => {
            "client and server have no protocol in common (ALPN): allow HTTP/1.1 or HTTP/2 at both ends"
        }
        Error::BadMaxFragmentSize => "the maximum size of a TLS record is out of range",
        Error::General(text) => return text.clone(),
        Error::Other(fault) => return describe_source(fault).unwrap_or_else(|| fault.to_string()),
        _ => "TLS failed for a reason without a name",
    };
    text.to_owned()
}

/// Returns the sentence for a fault of TLS in a chain of errors, as libraries wrap it; `None`: there is none.
pub fn describe_tls_error(error: &(dyn StdError + 'static)) -> Option<String> {
    let mut next = Some(error);
    // A chain of wrapped errors is short; one that refers to itself must end as well.
    for _ in 0..16 {
        let current = next?;
        if let Some(text) = describe_one(current) {
            return Some(text);
        }
        // The source of an io::Error is that of its content, so the content itself comes first.
        let inner = current.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        next = match inner {
            Some(inner) => Some(inner as &(dyn StdError + 'static)),
            None => current.source(),
        };
    }
    None
}

fn describe_one(error: &(dyn StdError + 'static)) -> Option<String> {
    if let Some(error) = error.downcast_ref::<SessionError>() {
        return Some(error.to_string());
    }
    error.downcast_ref::<Error>().map(describe)
}

fn describe_source(error: &(dyn StdError + 'static)) -> Option<String> {
    error.source().and_then(describe_tls_error)
}

/// Causes that both ends can remove, with their remedies.
fn describe_incompatible(fault: &PeerIncompatible) -> String {
    let text = match fault {
        PeerIncompatible::NoCipherSuitesInCommon => {
            "no cipher suite in common: enable an ECDHE suite with AES-GCM or ChaCha20 at the peer"
        }
        PeerIncompatible::NoKxGroupsInCommon | PeerIncompatible::NamedGroupsExtensionRequired => {
            "no key exchange group in common: enable X25519, P-256 or P-384 at the peer"
        }
        PeerIncompatible::KeyShareExtensionRequired => "the peer sent no key for the key exchange of TLS 1.3",
        PeerIncompatible::NoSignatureSchemesInCommon
        | PeerIncompatible::NoCertificateRequestSignatureSchemesInCommon
        | PeerIncompatible::SignatureAlgorithmsExtensionRequired => {
            "no signature algorithm in common: use a certificate with an ECDSA key, or RSA of 2,048 bits or more"
        }
        PeerIncompatible::EcPointsExtensionRequired
        | PeerIncompatible::NoEcPointFormatsInCommon
        | PeerIncompatible::UncompressedEcPointsRequired => {
            "the peer does not support uncompressed points of elliptic curves (RFC 8422)"
        }
        PeerIncompatible::ExtendedMasterSecretExtensionRequired => {
            "the peer does not support the extended master secret (RFC 7627): update its TLS library"
        }
        PeerIncompatible::NullCompressionRequired => "the peer insists on compression, which TLS 1.3 forbids",
        PeerIncompatible::ServerDoesNotSupportTls12Or13
        | PeerIncompatible::Tls12NotOffered
        | PeerIncompatible::Tls12NotOfferedOrEnabled
        | PeerIncompatible::SupportedVersionsExtensionRequired => {
            "no TLS version in common: enable TLS 1.2 or 1.3 at both ends"
        }
        PeerIncompatible::ServerTlsVersionIsDisabledByOurConfig => {
            "the server chose a TLS version that is disabled here: enable it, or a newer one at the server"
        }
        PeerIncompatible::Tls13RequiredForQuic => "QUIC needs TLS 1.3",
        PeerIncompatible::ServerSentHelloRetryRequestWithUnknownExtension => {
            "the server asks for an unknown extension: update its TLS library"
        }
        PeerIncompatible::ServerRejectedEncryptedClientHello(_) => {
            "the server rejected the encrypted ClientHello"
        }
        PeerIncompatible::IncorrectCertificateTypeExtension
        | PeerIncompatible::UnsolicitedCertificateTypeExtension => {
            "the peer wants another type of certificate than X.509"
        }
        _ => "client and server have no TLS parameters in common",
    };
    text.to_owned()
}

fn describe_message(fault: &InvalidMessage) -> String {
    match fault {
        InvalidMessage::InvalidContentType | InvalidMessage::UnknownProtocolVersion => {
            "the peer does not speak TLS".to_owned()
        }
        InvalidMessage::CertificatePayloadTooLarge => {
            "the peer's certificates have more than 64 KiB: shorten its chain".to_owned()
        }
        other => format!("the peer sent an invalid TLS message: {}", words_of(&format!("{other:?}"))),
    }
}

/// Writes the name of a variant as words: `TooManyKeyUpdates(3)` is `too many key updates`.
fn words_of(debug: &str) -> String {
    let name = debug.split(['(', ' ', '{']).next().unwrap_or_default();
    let mut words = String::new();
    let mut characters = name.chars().peekable();
    let mut was_lower = false;
    while let Some(character) = characters.next() {
        let next_is_lower = characters.peek().is_some_and(char::is_ascii_lowercase);
        let starts_word = character.is_ascii_uppercase() && (was_lower || next_is_lower);
        if starts_word && !words.is_empty() {
            words.push(' ');
        }
        words.push(character.to_ascii_lowercase());
        was_lower = !character.is_ascii_uppercase();
    }
    words
}

#[cfg(test)]
pub(super) mod tests {
    use rustls::PeerMisbehaved;

    use super::*;

    /// Standard terms with capitals inside.
    const TERMS: [&str; 7] =
        ["subjectAltName", "serverAuth", "clientAuth", "ClientHello", "ChaCha20", "OpenSSL", "KiB"];

    /// Asserts that a text is for people: no variant, no structure, no name of a type.
    pub(in crate::tls) fn assert_sentence(fault: &dyn std::fmt::Debug, text: &str) {
        let plain = TERMS.iter().fold(text.to_owned(), |text, term| text.replace(term, "term"));
        let is_camel = |pair: &[u8]| pair[0].is_ascii_lowercase() && pair[1].is_ascii_uppercase();
        assert!(!plain.as_bytes().windows(2).any(is_camel), "{fault:?}: {text}");
        assert!(!plain.contains("::") && !plain.contains(['{', '}', '[', '"']), "{fault:?}: {text}");
        assert!(!text.contains(&format!("{fault:?}")) && text.len() >= 15, "{fault:?}: {text}");
        assert!(!text.contains("  ") && !text.ends_with(['.', ' ']), "{fault:?}: {text}");
    }

    #[test]
    fn every_fault_is_a_sentence() {
        use rustls::{ContentType, HandshakeType};
        for fault in [
            Error::InappropriateMessage { expect_types: Vec::new(), got_type: ContentType::Alert },
            Error::InappropriateHandshakeMessage {
                expect_types: Vec::new(),
                got_type: HandshakeType::Finished,
            },
            Error::InvalidEncryptedClientHello(EncryptedClientHelloError::InvalidConfigList),
            Error::InvalidEncryptedClientHello(EncryptedClientHelloError::NoCompatibleConfig),
            Error::InvalidEncryptedClientHello(EncryptedClientHelloError::SniRequired),
            Error::NoCertificatesPresented,
            Error::UnsupportedNameType,
            Error::DecryptError,
            Error::EncryptError,
            Error::FailedToGetCurrentTime,
            Error::FailedToGetRandomBytes,
            Error::HandshakeNotComplete,
            Error::PeerSentOversizedRecord,
            Error::NoApplicationProtocol,
            Error::BadMaxFragmentSize,
            Error::InconsistentKeys(InconsistentKeys::KeyMismatch),
            Error::InconsistentKeys(InconsistentKeys::Unknown),
            Error::InvalidCertificate(rustls::CertificateError::UnknownIssuer),
            Error::InvalidCertRevocationList(rustls::CertRevocationListError::ParseError),
            Error::AlertReceived(rustls::AlertDescription::HandshakeFailure),
            Error::AlertReceived(rustls::AlertDescription::from(200)),
            Error::Other(rustls::OtherError(std::sync::Arc::new(std::io::Error::other("the disk is full")))),
            Error::General("the key provider failed".to_owned()),
        ] {
            assert_sentence(&fault, &describe(&fault));
        }
    }

    #[test]
    fn every_incompatibility_is_a_sentence() {
        use PeerIncompatible as Fault;
        for fault in [
            Fault::EcPointsExtensionRequired,
            Fault::ExtendedMasterSecretExtensionRequired,
            Fault::IncorrectCertificateTypeExtension,
            Fault::KeyShareExtensionRequired,
            Fault::NamedGroupsExtensionRequired,
            Fault::NoCertificateRequestSignatureSchemesInCommon,
            Fault::NoCipherSuitesInCommon,
            Fault::NoEcPointFormatsInCommon,
            Fault::NoKxGroupsInCommon,
            Fault::NoSignatureSchemesInCommon,
            Fault::NullCompressionRequired,
            Fault::ServerDoesNotSupportTls12Or13,
            Fault::ServerSentHelloRetryRequestWithUnknownExtension,
            Fault::ServerTlsVersionIsDisabledByOurConfig,
            Fault::SignatureAlgorithmsExtensionRequired,
            Fault::SupportedVersionsExtensionRequired,
            Fault::Tls12NotOffered,
            Fault::Tls12NotOfferedOrEnabled,
            Fault::Tls13RequiredForQuic,
            Fault::UncompressedEcPointsRequired,
            Fault::UnsolicitedCertificateTypeExtension,
            Fault::ServerRejectedEncryptedClientHello(None),
        ] {
            assert_sentence(&fault, &describe(&Error::PeerIncompatible(fault.clone())));
        }
    }

    #[test]
    fn every_invalid_message_is_a_sentence() {
        use InvalidMessage as Fault;
        for fault in [
            Fault::CertificatePayloadTooLarge,
            Fault::HandshakePayloadTooLarge,
            Fault::InvalidCcs,
            Fault::InvalidContentType,
            Fault::InvalidCertificateStatusType,
            Fault::InvalidCertRequest,
            Fault::InvalidDhParams,
            Fault::InvalidEmptyPayload,
            Fault::InvalidKeyUpdate,
            Fault::InvalidServerName,
            Fault::MessageTooLarge,
            Fault::MessageTooShort,
            Fault::MissingData("x"),
            Fault::MissingKeyExchange,
            Fault::NoSignatureSchemes,
            Fault::TrailingData("x"),
            Fault::UnexpectedMessage("x"),
            Fault::UnknownProtocolVersion,
            Fault::UnsupportedCompression,
            Fault::UnsupportedCurveType,
            Fault::EmptyTicketValue,
            Fault::IllegalEmptyList("x"),
            Fault::IllegalEmptyValue,
            Fault::DuplicateExtension(5),
            Fault::PreSharedKeyIsNotFinalExtension,
            Fault::UnknownHelloRetryRequestExtension,
            Fault::UnknownCertificateExtension,
        ] {
            assert_sentence(&fault, &describe(&Error::InvalidMessage(fault)));
        }
    }

    #[test]
    fn a_violation_is_named_in_words() {
        for (fault, words) in [
            (PeerMisbehaved::SelectedUnofferedCipherSuite, "selected unoffered cipher suite"),
            (PeerMisbehaved::SelectedUnofferedPsk, "selected unoffered psk"),
            (
                PeerMisbehaved::AttemptedDowngradeToTls12WhenTls13IsSupported,
                "attempted downgrade to tls12 when tls13 is supported",
            ),
            (PeerMisbehaved::KeyUpdateReceivedInQuicConnection, "key update received in quic connection"),
        ] {
            let text = describe(&Error::PeerMisbehaved(fault.clone()));
            assert_eq!(text, format!("the peer violates TLS: {words}"));
            assert_sentence(&fault, &text);
        }
        assert_eq!(words_of("PSKExtensionMustBeLast(3)"), "psk extension must be last");
    }

    #[test]
    fn faults_are_found_in_chains_of_errors() {
        let fault = || Error::InvalidCertificate(rustls::CertificateError::UnknownIssuer);
        let wrapped = std::io::Error::other(std::io::Error::new(std::io::ErrorKind::InvalidData, fault()));
        assert_eq!(describe_tls_error(&wrapped), Some(describe(&fault())));
        let session = std::io::Error::other(SessionError::from(fault()));
        assert_eq!(describe_tls_error(&session), Some(describe(&fault())));
        assert_eq!(describe_tls_error(&std::io::Error::other("refused")), None);
    }
}
