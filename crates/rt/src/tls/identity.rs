//! Parts of a client's certificate that identify it, as texts. The certificate was verified before.

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv6Addr};

use super::der::{CertificateParts, SEQUENCE, SUBJECT_ALT_NAME, element, expect};
use super::distinguished_name::escaped_common_name;

/// Tags of the names of a certificate (GeneralName, RFC 5280 §4.2.1.6), and their names in OpenSSL.
const NAME_KINDS: [(u8, &str); 3] = [(0x81, "email"), (0x82, "DNS"), (0x86, "URI")];
const IP_ADDRESS: u8 = 0x87;

/// Returns the serial number of a certificate in DER, in hexadecimal. `None`: this is not a certificate.
pub fn certificate_serial(certificate: &[u8]) -> Option<String> {
    let serial = CertificateParts::parse(certificate)?.serial;
    // A leading zero only keeps the number positive.
    let digits = match serial {
        [0, rest @ ..] if !rest.is_empty() => rest,
        all => all,
    };
    let mut text = String::new();
    for byte in digits {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02X}");
    }
    Some(text)
}

/// Returns the common name of the subject of a certificate in DER, escaped as in its subject.
pub fn certificate_common_name(certificate: &[u8]) -> Option<String> {
    escaped_common_name(CertificateParts::parse(certificate)?.subject)
}

/// Returns the start and the end of the validity of a certificate in DER, in seconds since 1970.
pub fn certificate_times(certificate: &[u8]) -> Option<(u64, u64)> {
    CertificateParts::parse(certificate)?.validity_s
}

/// Returns the alternative names of a certificate in DER (subjectAltName), with their kinds as in OpenSSL:
/// `DNS:a.example`, `IP:10.0.0.1`, `URI:spiffe://a/b`, `email:a@b`. Other kinds, and names that are not
/// visible ASCII or contain a comma, are left out.
pub fn certificate_alternative_names(certificate: &[u8]) -> Vec<String> {
    let extension =
        CertificateParts::parse(certificate).and_then(|parts| parts.extension(SUBJECT_ALT_NAME).ok()?);
    let mut rest = extension.and_then(|value| expect(SEQUENCE, value)).map_or(&[][..], |(list, _)| list);
    let mut names = Vec::new();
    while let Some((tag, value, after)) = element(rest) {
        names.extend(alternative_name(tag, value));
        rest = after;
    }
    names
}

fn alternative_name(tag: u8, value: &[u8]) -> Option<String> {
    if tag == IP_ADDRESS {
        let address = match *value {
            [a, b, c, d] => IpAddr::from([a, b, c, d]),
            _ => Ipv6Addr::from(<[u8; 16]>::try_from(value).ok()?).into(),
        };
        return Some(format!("IP:{address}"));
    }
    let (_, kind) = NAME_KINDS.iter().find(|(known, _)| *known == tag)?;
    let text = std::str::from_utf8(value).ok()?;
    text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b',').then(|| format!("{kind}:{text}"))
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair, SanType, SerialNumber};

    use super::*;

    #[test]
    fn names_and_number_are_those_of_the_certificate() {
        let mut params = CertificateParams::default();
        params.serial_number = Some(SerialNumber::from(vec![0x8a, 0x01, 0xff]));
        params.subject_alt_names = vec![
            SanType::DnsName("client.example".try_into().unwrap()),
            SanType::URI("spiffe://a/b".try_into().unwrap()),
            SanType::URI("urn:a,b".try_into().unwrap()),
            SanType::IpAddress("10.0.0.1".parse().unwrap()),
            SanType::IpAddress("2001:db8::1".parse().unwrap()),
            SanType::Rfc822Name("a@b.example".try_into().unwrap()),
        ];
        let certificate = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        let der = certificate.der();
        assert_eq!(certificate_serial(der).as_deref(), Some("8A01FF"));
        let expected =
            ["DNS:client.example", "URI:spiffe://a/b", "IP:10.0.0.1", "IP:2001:db8::1", "email:a@b.example"];
        assert_eq!(certificate_alternative_names(der), expected);
        assert_eq!(certificate_common_name(der).as_deref(), Some("rcgen self signed cert"));
        assert!(certificate_times(der).is_some_and(|(start_s, end_s)| start_s < end_s));
        assert_eq!(certificate_serial(&der[..20]), None);
        assert!(certificate_alternative_names(&der[..der.len() - 300]).is_empty());
    }
}
