//! Subject of a certificate as text (RFC 4514). Reads only as much DER (X.690) as that needs; the
//! certificate itself was verified before.

use std::fmt::Write as _;

use super::der::{CertificateParts, OBJECT_IDENTIFIER, SEQUENCE, SET, element, expect};

const COMMON_NAME: &[u8] = &[0x55, 4, 3];
/// Attribute types with a short name: their object identifiers in DER (RFC 4514 §3).
const SHORT_NAMES: &[(&[u8], &str)] = &[
    (COMMON_NAME, "CN"),
    (&[0x55, 4, 5], "serialNumber"),
    (&[0x55, 4, 6], "C"),
    (&[0x55, 4, 7], "L"),
    (&[0x55, 4, 8], "ST"),
    (&[0x55, 4, 9], "STREET"),
    (&[0x55, 4, 10], "O"),
    (&[0x55, 4, 11], "OU"),
    (&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 1], "emailAddress"),
    (&[0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 1], "UID"),
    (&[0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 25], "DC"),
];

/// Types of text in names: UTF8String, NumericString, PrintableString, T61String, IA5String.
const TEXT_TYPES: [u8; 5] = [0x0c, 0x12, 0x13, 0x14, 0x16];

/// Returns the subject of a certificate in DER, the most specific part first: `CN=a,O=Example`. The
/// result is visible ASCII; all other bytes are escaped. `None`: this is not a certificate.
pub fn certificate_subject(certificate: &[u8]) -> Option<String> {
    name_text(CertificateParts::parse(certificate)?.subject)
}

/// Returns the issuer of a certificate in DER, as [`certificate_subject`] writes a subject.
pub fn certificate_issuer(certificate: &[u8]) -> Option<String> {
    let (issuer, _) = expect(SEQUENCE, CertificateParts::parse(certificate)?.issuer)?;
    name_text(issuer)
}

/// Writes the content of a name in DER.
pub(super) fn name_text(mut name: &[u8]) -> Option<String> {
    let mut parts = Vec::new();
    while !name.is_empty() {
        let (tag, set, after) = element(name)?;
        if tag != SET {
            return None;
        }
        parts.push(relative_name(set)?);
        name = after;
    }
    parts.reverse();
    Some(parts.join(","))
}

/// Returns the common name of a subject, the content of a name in DER: its last one, if it is UTF-8 text.
pub(super) fn common_name(mut subject: &[u8]) -> Option<&str> {
    let mut found = None;
    while !subject.is_empty() {
        let (mut set, after) = expect(SET, subject)?;
        subject = after;
        while !set.is_empty() {
            let (_, attribute, after) = element(set)?;
            set = after;
            let (kind, value) = expect(OBJECT_IDENTIFIER, attribute)?;
            if kind == COMMON_NAME {
                let (value_type, value, _) = element(value)?;
                let is_text = TEXT_TYPES.contains(&value_type);
                found = std::str::from_utf8(value).ok().filter(|_| is_text);
            }
        }
    }
    found
}

/// Returns the common name of a subject, the content of a name in DER, escaped.
pub(super) fn escaped_common_name(subject: &[u8]) -> Option<String> {
    common_name(subject).map(|name| escaped(name.as_bytes()))
}

/// Returns one level of a name: its attributes, joined by `+`.
fn relative_name(mut set: &[u8]) -> Option<String> {
    let mut attributes = Vec::new();
    while !set.is_empty() {
        let (_, attribute, after) = element(set)?;
        let (tag, kind, value) = element(attribute)?;
        if tag != OBJECT_IDENTIFIER {
            return None;
        }
        let (value_type, value, _) = element(value)?;
        let name = SHORT_NAMES.iter().find(|(identifier, _)| *identifier == kind);
        attributes.push(match name {
            Some((_, name)) if TEXT_TYPES.contains(&value_type) => format!("{name}={}", escaped(value)),
            Some((_, name)) => format!("{name}={}", hexadecimal(value_type, value)),
            None => format!("{}={}", dotted(kind), hexadecimal(value_type, value)),
        });
        set = after;
    }
    Some(attributes.join("+"))
}

/// Escapes a value (RFC 4514 §2.4).
fn escaped(value: &[u8]) -> String {
    let mut text = String::new();
    let last = value.len().saturating_sub(1);
    for (index, &byte) in value.iter().enumerate() {
        let is_space_at_an_end = byte == b' ' && (index == 0 || index == last);
        match byte {
            b'"' | b'+' | b',' | b';' | b'<' | b'>' | b'\\' => text.extend(['\\', char::from(byte)]),
            b'#' if index == 0 => text.push_str("\\#"),
            b' ' if is_space_at_an_end => text.push_str("\\ "),
            b' '..=b'~' => text.push(char::from(byte)),
            // Writing to a String cannot fail.
            _ => drop(write!(text, "\\{byte:02X}")),
        }
    }
    text
}

/// Writes a value that has no text form (RFC 4514 §2.4).
fn hexadecimal(tag: u8, value: &[u8]) -> String {
    let mut text = format!("#{tag:02X}");
    let length = value.len();
    // Values in names are short; only the last bytes of a length are needed.
    let _ = match length {
        0..=0x7f => write!(text, "{length:02X}"),
        0x80..=0xff => write!(text, "81{length:02X}"),
        _ => write!(text, "82{length:04X}"),
    };
    for byte in value {
        let _ = write!(text, "{byte:02X}");
    }
    text
}

/// Writes the object identifier that an algorithm identifier in DER starts with.
pub(super) fn dotted_encoded(algorithm: &[u8]) -> String {
    expect(OBJECT_IDENTIFIER, algorithm)
        .map_or_else(|| "unknown".to_owned(), |(identifier, _)| dotted(identifier))
}

/// Writes an object identifier with dots (X.690 §8.19).
fn dotted(identifier: &[u8]) -> String {
    let mut numbers = Vec::new();
    let mut number: u64 = 0;
    for &byte in identifier {
        number = number << 7 | u64::from(byte & 0x7f);
        if byte & 0x80 == 0 {
            numbers.push(number);
            number = 0;
        }
    }
    let Some(&first) = numbers.first() else { return String::new() };
    let top = (first / 40).min(2);
    let mut text = format!("{top}.{}", first - 40 * top);
    for number in &numbers[1..] {
        let _ = write!(text, ".{number}");
    }
    text
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DnType, DnValue, KeyPair};

    use super::*;

    fn subject_of(attributes: &[(DnType, &str)]) -> Option<String> {
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        for (kind, value) in attributes {
            params.distinguished_name.push(kind.clone(), DnValue::Utf8String((*value).to_owned()));
        }
        let certificate = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        certificate_subject(certificate.der())
    }

    #[test]
    fn the_most_specific_part_is_first() {
        let attributes = [
            (DnType::CountryName, "DE"),
            (DnType::OrganizationName, "A, B"),
            (DnType::CommonName, "client 1"),
        ];
        assert_eq!(subject_of(&attributes).as_deref(), Some("CN=client 1,O=A\\, B,C=DE"));
        assert_eq!(subject_of(&[]).as_deref(), Some(""));
    }

    #[test]
    fn a_value_cannot_break_a_field() {
        let attributes = [(DnType::CommonName, "#a\r\nX: ü\\ ")];
        assert_eq!(subject_of(&attributes).as_deref(), Some("CN=\\#a\\0D\\0AX: \\C3\\BC\\\\\\ "));
        let other = [(DnType::CustomDnType(vec![2, 5, 4, 12]), "x")];
        assert_eq!(subject_of(&other).as_deref(), Some("2.5.4.12=#0C0178"));
    }

    #[test]
    fn what_is_no_certificate_has_no_subject() {
        for bytes in
            [&b""[..], b"\x30", b"\x30\x05\x30", b"\x30\x03\x30\x01\x00", b"\x30\x84\xff\xff\xff\xff"]
        {
            assert_eq!(certificate_subject(bytes), None, "{bytes:?}");
        }
    }
}
