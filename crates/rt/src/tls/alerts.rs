//! Sentences for the alerts of TLS (RFC 8446 §6): a peer sends no more than their numbers.

use rustls::AlertDescription;

/// Alerts with their names, and their usual cause with its remedy.
const ALERTS: &[(AlertDescription, &str, &str)] = &[
    (AlertDescription::CloseNotify, "close_notify", "the peer ended the session"),
    (AlertDescription::UnexpectedMessage, "unexpected_message", "a message came at the wrong time"),
    (AlertDescription::BadRecordMac, "bad_record_mac", "a record changed on its way"),
    (AlertDescription::DecryptionFailed, "decryption_failed", "a record changed on its way"),
    (AlertDescription::RecordOverflow, "record_overflow", "a record was too long"),
    (AlertDescription::DecompressionFailure, "decompression_failure", "a record could not be decompressed"),
    (
        AlertDescription::HandshakeFailure,
        "handshake_failure",
        "no cipher suite, group or signature algorithm in common, or a client certificate is missing",
    ),
    (AlertDescription::NoCertificate, "no_certificate", "the peer has no certificate"),
    (
        AlertDescription::BadCertificate,
        "bad_certificate",
        "the certificate sent to it is missing, damaged, or of an authority that it does not trust",
    ),
    (
        AlertDescription::UnsupportedCertificate,
        "unsupported_certificate",
        "the certificate sent to it has a type or purpose that it does not accept",
    ),
    (AlertDescription::CertificateRevoked, "certificate_revoked", "the certificate sent to it was revoked"),
    (AlertDescription::CertificateExpired, "certificate_expired", "renew the certificate sent to it"),
    (
        AlertDescription::CertificateUnknown,
        "certificate_unknown",
        "it does not trust the certificate sent to it",
    ),
    (AlertDescription::IllegalParameter, "illegal_parameter", "a field of the handshake was not valid"),
    (
        AlertDescription::UnknownCA,
        "unknown_ca",
        "it does not trust the authority of the certificate sent to it: add the authority there",
    ),
    (AlertDescription::AccessDenied, "access_denied", "the certificate is valid, and has no access"),
    (AlertDescription::DecodeError, "decode_error", "a message could not be parsed"),
    (AlertDescription::DecryptError, "decrypt_error", "a signature of the handshake is not valid"),
    (AlertDescription::ExportRestriction, "export_restriction", "an old restriction of key lengths"),
    (
        AlertDescription::ProtocolVersion,
        "protocol_version",
        "no TLS version in common: enable TLS 1.2 or 1.3 at both ends",
    ),
    (
        AlertDescription::InsufficientSecurity,
        "insufficient_security",
        "it demands stronger cipher suites than those enabled here",
    ),
    (AlertDescription::InternalError, "internal_error", "a fault of the peer: see its log"),
    (
        AlertDescription::InappropriateFallback,
        "inappropriate_fallback",
        "a retry with an older TLS version than both ends support",
    ),
    (AlertDescription::UserCanceled, "user_canceled", "the peer gave the handshake up"),
    (AlertDescription::NoRenegotiation, "no_renegotiation", "the peer does not renegotiate"),
    (AlertDescription::MissingExtension, "missing_extension", "an extension of TLS 1.3 is missing"),
    (AlertDescription::UnsupportedExtension, "unsupported_extension", "an extension was not asked for"),
    (
        AlertDescription::CertificateUnobtainable,
        "certificate_unobtainable",
        "a certificate could not be fetched by its URL",
    ),
    (
        AlertDescription::UnrecognisedName,
        "unrecognized_name",
        "it has no certificate for this server name: connect by a name that it knows",
    ),
    (
        AlertDescription::BadCertificateStatusResponse,
        "bad_certificate_status_response",
        "the OCSP response is not valid: renew it",
    ),
    (
        AlertDescription::BadCertificateHashValue,
        "bad_certificate_hash_value",
        "a certificate has another hash than announced",
    ),
    (AlertDescription::UnknownPSKIdentity, "unknown_psk_identity", "it does not know the shared key"),
    (
        AlertDescription::CertificateRequired,
        "certificate_required",
        "it accepts only clients with a certificate: give one",
    ),
    (
        AlertDescription::NoApplicationProtocol,
        "no_application_protocol",
        "no protocol in common (ALPN): allow HTTP/1.1 or HTTP/2 at both ends",
    ),
    (
        AlertDescription::EncryptedClientHelloRequired,
        "ech_required",
        "it accepts only an encrypted ClientHello",
    ),
];

pub(super) fn describe_alert(alert: AlertDescription) -> String {
    match ALERTS.iter().find(|(known, ..)| *known == alert) {
        Some((_, name, cause)) => format!("the peer sent the alert {name}: {cause}"),
        None => format!("the peer sent the unknown alert {}", u8::from(alert)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_known_alert_has_a_name_and_a_cause() {
        let mut named = 0;
        for code in 0..=u8::MAX {
            let alert = AlertDescription::from(code);
            let text = describe_alert(alert);
            // The library names the alerts that it knows.
            let is_known = alert.as_str().is_some();
            assert_eq!(!text.contains("unknown alert"), is_known, "{code}: {text}");
            named += usize::from(is_known);
        }
        assert_eq!(named, ALERTS.len());
    }
}
