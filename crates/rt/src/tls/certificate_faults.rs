//! Sentences for certificates that are not trusted: the cause, and what to do.

use rustls::pki_types::UnixTime;
use rustls::{CertRevocationListError, CertificateError, ExtendedKeyPurpose};

use super::distinguished_name::dotted_encoded;

const UNKNOWN_ISSUER: &str = "no trusted authority issued it: trust its authority, or let the peer send the \
                              intermediate certificates as well";
const NOT_DER: &str = "it is not encoded as DER (X.690): create it again";
const EXPIRED: &str = "it has expired: renew it";
const NOT_VALID_YET: &str = "it is not valid yet: check the clocks of this machine and of the authority";
const OTHER_ALGORITHM: &str = "its key or its signature has an algorithm that is not supported: issue it again with RSA of 2,048 bits \
     or more, ECDSA or Ed25519, and SHA-256";
const NO_STATUS: &str = "whether it was revoked is not known: renew the revocation list";
const WITHOUT_NAME: &str = "it is for other names: connect by one of its names, or issue it for this one";
const OTHER_PURPOSE: &str = "it is for another purpose: issue it with the extended key usage serverAuth for a \
                             server, clientAuth for a client";

/// Returns the sentence for a certificate that is not trusted.
pub(super) fn describe_certificate_fault(fault: &CertificateError) -> String {
    let text = match fault {
        CertificateError::BadEncoding => NOT_DER,
        CertificateError::Expired => EXPIRED,
        CertificateError::ExpiredContext { time, not_after } => {
            return format!("it expired {} ago: renew it", days_between(*not_after, *time));
        }
        CertificateError::NotValidYet => NOT_VALID_YET,
        CertificateError::NotValidYetContext { time, not_before } => {
            let days = days_between(*time, *not_before);
            return format!(
                "it is valid only in {days}: check the clocks of this machine and of the authority"
            );
        }
        CertificateError::Revoked => "it was revoked: replace it",
        CertificateError::UnhandledCriticalExtension => {
            "it has a critical extension that is not supported: issue it without that extension"
        }
        CertificateError::UnknownIssuer => UNKNOWN_ISSUER,
        CertificateError::UnknownRevocationStatus => NO_STATUS,
        CertificateError::ExpiredRevocationList | CertificateError::ExpiredRevocationListContext { .. } => {
            "the revocation list has expired: renew it"
        }
        CertificateError::BadSignature => {
            "a signature does not match its key: the peer's key belongs to another certificate, or its \
             authority to another key"
        }
        CertificateError::UnsupportedSignatureAlgorithmContext { signature_algorithm_id, .. } => {
            let algorithm = dotted_encoded(signature_algorithm_id);
            return format!(
                "it is signed with an algorithm that is not supported (object identifier \
                            {algorithm}), for example with SHA-1: issue it again with SHA-256"
            );
        }
        CertificateError::UnsupportedSignatureAlgorithmForPublicKeyContext {
            public_key_algorithm_id,
            ..
        } => {
            let algorithm = dotted_encoded(public_key_algorithm_id);
            return format!(
                "its key has an algorithm that is not supported (object identifier {algorithm}): \
                            use RSA of 2,048 bits or more, ECDSA or Ed25519"
            );
        }
        CertificateError::NotValidForName => WITHOUT_NAME,
        CertificateError::NotValidForNameContext { expected, presented } => {
            return describe_other_name(&expected.to_str(), presented);
        }
        CertificateError::InvalidPurpose => OTHER_PURPOSE,
        CertificateError::InvalidPurposeContext { required, .. } => return describe_purpose(required),
        CertificateError::InvalidOcspResponse => "its OCSP response is not valid: renew the response",
        CertificateError::ApplicationVerificationFailure => "it has no access here",
        CertificateError::Other(fault) => return describe_other_fault(fault),
        #[allow(deprecated)]
        CertificateError::UnsupportedSignatureAlgorithm => OTHER_ALGORITHM,
        _ => "it is not valid for a reason without a name: create it again",
    };
    text.to_owned()
}

fn describe_other_fault(fault: &rustls::OtherError) -> String {
    match fault.0.downcast_ref::<webpki::Error>() {
        Some(fault) => describe_path_fault(fault),
        None => fault.to_string(),
    }
}

/// Returns the sentence for a fault of webpki, which parses certificates and builds paths of them.
fn describe_path_fault(fault: &webpki::Error) -> String {
    use webpki::Error as Fault;
    let text = match fault {
        Fault::BadDer | Fault::BadDerTime | Fault::TrailingData(_) => NOT_DER,
        Fault::CaUsedAsEndEntity => {
            "it is one of an authority (CA:TRUE), and is used as one of a server or client: trust this very \
             certificate, or issue one with CA:FALSE"
        }
        Fault::EndEntityUsedAsCa => {
            "its issuer is no authority (CA:FALSE): issue it with a certificate that has CA:TRUE"
        }
        Fault::CertDistrusted => "its key is distrusted, because others know it: make a new key",
        Fault::CertExpired { .. } | Fault::InvalidCertValidity => EXPIRED,
        Fault::CertNotValidYet { .. } => NOT_VALID_YET,
        Fault::CertNotValidForName(names) => {
            return describe_other_name(&names.expected.to_str(), &names.presented);
        }
        Fault::CertRevoked => "it was revoked: replace it",
        Fault::UnsupportedCertVersion => {
            "it has X.509 version 1, which knows no names and no purposes: create it with version 3 (openssl \
             req -x509 -addext subjectAltName=DNS:NAME), or trust this very certificate"
        }
        Fault::EmptyEkuExtension => OTHER_PURPOSE,
        #[allow(deprecated)]
        Fault::RequiredEkuNotFound | Fault::RequiredEkuNotFoundContext(_) => OTHER_PURPOSE,
        Fault::ExtensionValueInvalid | Fault::MalformedExtensions => {
            "an extension of it is not valid: create it again"
        }
        Fault::UnsupportedCriticalExtension => {
            "it has a critical extension that is not supported: issue it without that extension"
        }
        Fault::InvalidSerialNumber => "its serial number is not valid (RFC 5280 §4.1.2.2): create it again",
        Fault::InvalidSignatureForPublicKey => "a signature does not match the key of its issuer",
        Fault::SignatureAlgorithmMismatch => "it names two signature algorithms: create it again",
        Fault::MalformedDnsIdentifier | Fault::UnsupportedNameType => "one of its names is not valid",
        Fault::InvalidNetworkMaskConstraint
        | Fault::MalformedNameConstraint
        | Fault::MaximumNameConstraintComparisonsExceeded
        | Fault::NameConstraintViolation => {
            "the name constraints of its authority exclude its names: issue it with another authority"
        }
        Fault::MaximumPathBuildCallsExceeded
        | Fault::MaximumPathDepthExceeded
        | Fault::MaximumSignatureChecksExceeded
        | Fault::PathLenConstraintViolated => {
            "the path to a trusted authority is too long: let the peer send only the certificates between \
             both"
        }
        Fault::UnknownIssuer => UNKNOWN_ISSUER,
        Fault::UnknownRevocationStatus => NO_STATUS,
        #[allow(deprecated)]
        Fault::UnsupportedSignatureAlgorithm
        | Fault::UnsupportedSignatureAlgorithmContext(_)
        | Fault::UnsupportedSignatureAlgorithmForPublicKey
        | Fault::UnsupportedSignatureAlgorithmForPublicKeyContext(_) => OTHER_ALGORITHM,
        // The rest are those of revocation lists, which are not read.
        _ => "its revocation list cannot be used: renew the list",
    };
    text.to_owned()
}

/// Returns the sentence for a revocation list that cannot be used.
pub(super) fn describe_revocation_list_fault(fault: &CertRevocationListError) -> &'static str {
    match fault {
        CertRevocationListError::BadSignature | CertRevocationListError::IssuerInvalidForCrl => {
            "the revocation list is not signed by its authority: renew the list"
        }
        CertRevocationListError::ParseError => "the revocation list is not encoded as DER: renew the list",
        _ => "the revocation list has a form that is not supported: renew the list",
    }
}

/// Describes a certificate without the expected name. `presented` are its names as webpki writes them:
/// `DnsName("a.test")`, `IpAddress(127.0.0.1)`.
fn describe_other_name(expected: &str, presented: &[String]) -> String {
    let names: Vec<&str> = presented.iter().filter_map(|name| bare_name(name)).collect();
    if names.is_empty() {
        return format!(
            "it has no names (subjectAltName), and a common name does not count (RFC 9525): issue it with \
             subjectAltName for {expected}"
        );
    }
    let shown = names.iter().take(NAMES_SHOWN_MAX).copied().collect::<Vec<_>>().join(", ");
    let rest = match names.len().saturating_sub(NAMES_SHOWN_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!(
        "it is for {shown}{rest}, not for {expected}: connect by one of its names, or issue it for this one"
    )
}

/// Maximum number of names of a certificate in a message.
const NAMES_SHOWN_MAX: usize = 4;

/// Returns a name without the type that webpki writes before it; `None`: of a type that no server has.
fn bare_name(name: &str) -> Option<&str> {
    let dns = name.strip_prefix("DnsName(\"").and_then(|name| name.strip_suffix("\")"));
    let ip = || name.strip_prefix("IpAddress(").and_then(|name| name.strip_suffix(')'));
    dns.or_else(ip)
}

fn describe_purpose(required: &ExtendedKeyPurpose) -> String {
    let usage = match required {
        ExtendedKeyPurpose::ServerAuth => "serverAuth",
        ExtendedKeyPurpose::ClientAuth => "clientAuth",
        ExtendedKeyPurpose::Other(_) => return OTHER_PURPOSE.to_owned(),
    };
    format!("it is for another purpose: issue it with the extended key usage {usage}, or without any")
}

/// Formats the time between two moments for people.
fn days_between(earlier: UnixTime, later: UnixTime) -> String {
    let seconds = later.as_secs().saturating_sub(earlier.as_secs());
    let (number, unit) = match seconds {
        0..120 => (seconds, "second"),
        120..7_200 => (seconds / 60, "minute"),
        7_200..172_800 => (seconds / 3_600, "hour"),
        _ => (seconds / 86_400, "day"),
    };
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {unit}{plural}")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rustls::OtherError;
    use rustls::pki_types::ServerName;

    use super::*;
    use crate::tls::fault_text::tests::assert_sentence;

    fn at(seconds: u64) -> UnixTime {
        UnixTime::since_unix_epoch(std::time::Duration::from_secs(seconds))
    }

    fn name() -> ServerName<'static> {
        ServerName::try_from("a.test").unwrap()
    }

    #[test]
    #[allow(deprecated)]
    fn every_fault_of_a_certificate_is_a_sentence() {
        use CertificateError as Fault;
        let (time, id) = (at(1_000_000), vec![6, 3, 0x55, 4, 3]);
        let faults = [
            Fault::BadEncoding,
            Fault::Expired,
            Fault::ExpiredContext { time, not_after: at(0) },
            Fault::NotValidYet,
            Fault::NotValidYetContext { time, not_before: at(2_000_000) },
            Fault::Revoked,
            Fault::UnhandledCriticalExtension,
            Fault::UnknownIssuer,
            Fault::UnknownRevocationStatus,
            Fault::ExpiredRevocationList,
            Fault::ExpiredRevocationListContext { time, next_update: at(0) },
            Fault::BadSignature,
            Fault::UnsupportedSignatureAlgorithm,
            Fault::UnsupportedSignatureAlgorithmContext {
                signature_algorithm_id: id.clone(),
                supported_algorithms: Vec::new(),
            },
            Fault::UnsupportedSignatureAlgorithmForPublicKeyContext {
                signature_algorithm_id: id.clone(),
                public_key_algorithm_id: id,
            },
            Fault::NotValidForName,
            Fault::NotValidForNameContext { expected: name(), presented: Vec::new() },
            Fault::NotValidForNameContext {
                expected: name(),
                presented: ["DnsName(\"b.test\")", "IpAddress(127.0.0.1)", "DirectoryName"]
                    .map(str::to_owned)
                    .into(),
            },
            Fault::InvalidPurpose,
            Fault::InvalidPurposeContext { required: ExtendedKeyPurpose::ServerAuth, presented: Vec::new() },
            Fault::InvalidPurposeContext { required: ExtendedKeyPurpose::ClientAuth, presented: Vec::new() },
            Fault::InvalidPurposeContext {
                required: ExtendedKeyPurpose::Other(vec![1]),
                presented: Vec::new(),
            },
            Fault::InvalidOcspResponse,
            Fault::ApplicationVerificationFailure,
        ];
        for fault in faults {
            assert_sentence(&fault, &describe_certificate_fault(&fault));
        }
    }

    #[test]
    #[allow(deprecated)]
    fn every_fault_of_webpki_is_a_sentence() {
        use webpki::Error as Fault;
        let names = webpki::InvalidNameContext { expected: name(), presented: Vec::new() };
        let faults = [
            Fault::BadDer,
            Fault::BadDerTime,
            Fault::CaUsedAsEndEntity,
            Fault::CertDistrusted,
            Fault::CertExpired { time: at(1), not_after: at(0) },
            Fault::CertNotValidForName(names),
            Fault::CertNotValidYet { time: at(0), not_before: at(1) },
            Fault::CertRevoked,
            Fault::CrlExpired { time: at(1), next_update: at(0) },
            Fault::EmptyEkuExtension,
            Fault::EndEntityUsedAsCa,
            Fault::ExtensionValueInvalid,
            Fault::InvalidCertValidity,
            Fault::InvalidCrlNumber,
            Fault::InvalidNetworkMaskConstraint,
            Fault::InvalidSerialNumber,
            Fault::InvalidCrlSignatureForPublicKey,
            Fault::InvalidSignatureForPublicKey,
            Fault::IssuerNotCrlSigner,
            Fault::MalformedDnsIdentifier,
            Fault::MalformedExtensions,
            Fault::MalformedNameConstraint,
            Fault::MaximumNameConstraintComparisonsExceeded,
            Fault::MaximumPathBuildCallsExceeded,
            Fault::MaximumPathDepthExceeded,
            Fault::MaximumSignatureChecksExceeded,
            Fault::NameConstraintViolation,
            Fault::PathLenConstraintViolated,
            Fault::RequiredEkuNotFound,
            Fault::SignatureAlgorithmMismatch,
            Fault::TrailingData(webpki::DerTypeId::Certificate),
            Fault::UnknownIssuer,
            Fault::UnknownRevocationStatus,
            Fault::UnsupportedCertVersion,
            Fault::UnsupportedCriticalExtension,
            Fault::UnsupportedCrlIssuingDistributionPoint,
            Fault::UnsupportedCrlVersion,
            Fault::UnsupportedDeltaCrl,
            Fault::UnsupportedIndirectCrl,
            Fault::UnsupportedNameType,
            Fault::UnsupportedRevocationReason,
            Fault::UnsupportedRevocationReasonsPartitioning,
            Fault::UnsupportedCrlSignatureAlgorithm,
            Fault::UnsupportedSignatureAlgorithm,
            Fault::UnsupportedCrlSignatureAlgorithmForPublicKey,
            Fault::UnsupportedSignatureAlgorithmForPublicKey,
        ];
        for fault in faults {
            let wrapped = CertificateError::Other(OtherError(Arc::new(fault.clone())));
            assert_sentence(&fault, &describe_certificate_fault(&wrapped));
        }
    }

    #[test]
    #[allow(deprecated)]
    fn every_fault_of_a_revocation_list_is_a_sentence() {
        use CertRevocationListError as Fault;
        for fault in [
            Fault::BadSignature,
            Fault::UnsupportedSignatureAlgorithm,
            Fault::InvalidCrlNumber,
            Fault::InvalidRevokedCertSerialNumber,
            Fault::IssuerInvalidForCrl,
            Fault::ParseError,
            Fault::UnsupportedCrlVersion,
            Fault::UnsupportedCriticalExtension,
            Fault::UnsupportedDeltaCrl,
            Fault::UnsupportedIndirectCrl,
            Fault::UnsupportedRevocationReason,
        ] {
            assert_sentence(&fault, describe_revocation_list_fault(&fault));
        }
    }

    #[test]
    fn names_and_times_are_those_of_the_certificate() {
        let presented: Vec<String> = (1..=6).map(|number| format!("DnsName(\"{number}.test\")")).collect();
        let text = describe_other_name("a.test", &presented);
        assert!(
            text.starts_with("it is for 1.test, 2.test, 3.test, 4.test and 2 more, not for a.test: "),
            "{text}"
        );
        assert!(describe_other_name("a.test", &[]).contains("no names (subjectAltName)"));
        for (seconds, expected) in [
            (1, "1 second"),
            (119, "119 seconds"),
            (7_100, "118 minutes"),
            (90_000, "25 hours"),
            (864_000, "10 days"),
        ] {
            assert_eq!(days_between(at(5), at(5 + seconds)), expected);
        }
    }
}
