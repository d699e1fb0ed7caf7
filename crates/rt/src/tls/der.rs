//! Elements of DER (X.690), as certificates and OCSP responses have them.

const BOOLEAN: u8 = 0x01;
pub(super) const INTEGER: u8 = 0x02;
pub(super) const OCTET_STRING: u8 = 0x04;
pub(super) const OBJECT_IDENTIFIER: u8 = 0x06;
pub(super) const ENUMERATED: u8 = 0x0a;
pub(super) const GENERALIZED_TIME: u8 = 0x18;
pub(super) const UTC_TIME: u8 = 0x17;
pub(super) const SEQUENCE: u8 = 0x30;
pub(super) const SET: u8 = 0x31;
pub(super) const BIT_STRING: u8 = 0x03;
pub(super) const SUBJECT_ALT_NAME: &[u8] = &[0x55, 0x1d, 17];
/// Explicit context-specific tag 0.
pub(super) const CONTEXT_0: u8 = 0xa0;
/// Explicit context-specific tag 3.
const CONTEXT_3: u8 = 0xa3;

/// Splits the first element off: its tag, its content, and the bytes behind it.
pub(super) fn element(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = bytes.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        0x81..=0x84 => {
            let (digits, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            (digits.iter().fold(0, |length, &digit| length << 8 | usize::from(digit)), rest)
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((tag, content, rest))
}

/// Splits an element with this tag off: its content, and the bytes behind it.
pub(super) fn expect(tag: u8, bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (found, content, rest) = element(bytes)?;
    (found == tag).then_some((content, rest))
}

/// Fault in the list of a certificate's extensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MalformedExtensions;

/// Parts of a certificate (RFC 5280 §4.1).
pub(super) struct CertificateParts<'a> {
    pub(super) serial: &'a [u8],
    pub(super) issuer: &'a [u8],
    /// Start and end of the validity, in seconds since 1970; `None`: a time is not valid.
    pub(super) validity_s: Option<(u64, u64)>,
    /// Content of the subject's name.
    pub(super) subject: &'a [u8],
    /// Public key of the subject (SubjectPublicKeyInfo), with its tag.
    pub(super) public_key: &'a [u8],
    /// Extensions; empty without any, as in version 1.
    extensions: &'a [u8],
}

impl<'a> CertificateParts<'a> {
    /// Parses a certificate in DER; `None`: this is not one.
    pub(super) fn parse(certificate: &'a [u8]) -> Option<Self> {
        let (certificate, _) = expect(SEQUENCE, certificate)?;
        let (mut rest, _) = expect(SEQUENCE, certificate)?;
        if let Some((_, after)) = expect(CONTEXT_0, rest) {
            rest = after;
        }
        let (serial, rest) = expect(INTEGER, rest)?;
        let (_, rest) = expect(SEQUENCE, rest)?;
        let (_, after_issuer) = expect(SEQUENCE, rest)?;
        let issuer = &rest[..rest.len() - after_issuer.len()];
        let (validity, rest) = expect(SEQUENCE, after_issuer)?;
        let (subject, rest) = expect(SEQUENCE, rest)?;
        let (_, mut after_key) = expect(SEQUENCE, rest)?;
        let public_key = &rest[..rest.len() - after_key.len()];
        let mut extensions = &[][..];
        while !after_key.is_empty() {
            let (tag, content, after) = element(after_key)?;
            if tag == CONTEXT_3 {
                // A second list, or bytes behind it, would be read by others.
                let (list, end) = expect(SEQUENCE, content)?;
                if !end.is_empty() || !extensions.is_empty() {
                    return None;
                }
                extensions = list;
            }
            after_key = after;
        }
        let validity_s = parse_validity(validity);
        Some(Self { serial, issuer, validity_s, subject, public_key, extensions })
    }

    /// Returns the value of an extension by its object identifier; `None`: the certificate has no such
    /// extension.
    ///
    /// # Errors
    /// The list of the extensions is malformed, or has the extension twice: no absence follows from it.
    pub(super) fn extension(&self, identifier: &[u8]) -> Result<Option<&'a [u8]>, MalformedExtensions> {
        let mut rest = self.extensions;
        let mut found = None;
        while !rest.is_empty() {
            let (extension, after) = expect(SEQUENCE, rest).ok_or(MalformedExtensions)?;
            rest = after;
            let (name, mut value) = expect(OBJECT_IDENTIFIER, extension).ok_or(MalformedExtensions)?;
            if let Some((_, after_critical)) = expect(BOOLEAN, value) {
                value = after_critical;
            }
            let (value, end) = expect(OCTET_STRING, value).ok_or(MalformedExtensions)?;
            let is_repeated = name == identifier && found.replace(value).is_some();
            if is_repeated || !end.is_empty() {
                return Err(MalformedExtensions);
            }
        }
        Ok(found)
    }
}

fn parse_validity(validity: &[u8]) -> Option<(u64, u64)> {
    let (start_s, validity) = parse_time(validity)?;
    let (end_s, _) = parse_time(validity)?;
    Some((start_s, end_s))
}

/// Splits a time off: seconds since 1970, and the bytes behind it.
pub(super) fn parse_time(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (tag, content, rest) = element(bytes)?;
    let text = std::str::from_utf8(content).ok()?.strip_suffix('Z')?;
    let (century, text) = match tag {
        // Years from 50 are in the 20th century (RFC 5280 §4.1.2.5.1).
        UTC_TIME if text >= "50" => ("19", text),
        UTC_TIME => ("20", text),
        GENERALIZED_TIME => text.split_at_checked(2)?,
        _ => return None,
    };
    if text.len() != 12 || !text.bytes().chain(century.bytes()).all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let number = |at: usize| text[at..at + 2].parse::<u64>().unwrap_or_default();
    let year = century.parse::<u64>().ok()? * 100 + number(0);
    let (month, day) = (number(2), number(4));
    let (hour, minute, second) = (number(6), number(8), number(10));
    let is_date = (1970..=9999).contains(&year) && (1..=12).contains(&month) && (1..=31).contains(&day);
    if !is_date || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    Some((days_since_1970(year, month, day) * 86_400 + hour * 3_600 + minute * 60 + second, rest))
}

/// Returns the number of days from 1970 to a date of the Gregorian calendar.
fn days_since_1970(year: u64, month: u64, day: u64) -> u64 {
    // Years begin in March, so that the leap day is their last one.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days_to_1970 = 719_468;
    year * 365 + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 1 - days_to_1970
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(tag: u8, text: &str) -> Option<u64> {
        let bytes = [&[tag, text.len() as u8], text.as_bytes()].concat();
        parse_time(&bytes).map(|(seconds, _)| seconds)
    }

    #[test]
    fn times_are_seconds_since_1970() {
        assert_eq!(time(GENERALIZED_TIME, "19700101000000Z"), Some(0));
        assert_eq!(time(GENERALIZED_TIME, "20000229235959Z"), Some(951_868_799));
        assert_eq!(time(UTC_TIME, "261123205444Z"), Some(1_795_467_284));
        assert_eq!(time(UTC_TIME, "991231000000Z"), Some(946_598_400));
        assert_eq!(time(GENERALIZED_TIME, "21000301000000Z"), Some(4_107_542_400));
        for invalid in
            ["20261323205444Z", "20261123245444Z", "2026112320544Z", "20261123205444", "2026112320544xZ"]
        {
            assert_eq!(time(GENERALIZED_TIME, invalid), None, "{invalid}");
        }
    }

    /// Certificate with these bytes as its list of extensions.
    fn certificate(extensions: &[u8]) -> Vec<u8> {
        let wrap = |tag: u8, content: &[u8]| {
            assert!(content.len() < 128);
            [&[tag, content.len() as u8], content].concat()
        };
        let time = wrap(UTC_TIME, b"261123205444Z");
        let fields = [
            wrap(INTEGER, &[1]),
            wrap(SEQUENCE, &[]),
            wrap(SEQUENCE, &[]),
            wrap(SEQUENCE, &[&time[..], &time].concat()),
            wrap(SEQUENCE, &[]),
            wrap(SEQUENCE, &[]),
            wrap(CONTEXT_3, &wrap(SEQUENCE, extensions)),
        ];
        wrap(SEQUENCE, &wrap(SEQUENCE, &fields.concat()))
    }

    #[test]
    fn only_a_valid_list_of_extensions_proves_an_absence() {
        let names: &[u8] = &[SEQUENCE, 8, OBJECT_IDENTIFIER, 3, 0x55, 0x1d, 17, OCTET_STRING, 1, 7];
        let critical: &[u8] = &[SEQUENCE, 11, 6, 3, 0x55, 0x1d, 19, BOOLEAN, 1, 255, OCTET_STRING, 1, 9];
        let find = |list: &[&[u8]]| {
            let certificate = certificate(&list.concat());
            let parts = CertificateParts::parse(&certificate).unwrap();
            parts.extension(SUBJECT_ALT_NAME).map(|value| value.map(<[u8]>::to_vec))
        };
        assert_eq!(find(&[]), Ok(None));
        assert_eq!(find(&[critical]), Ok(None));
        assert_eq!(find(&[critical, names]), Ok(Some(vec![7])));
        // Before and behind the extension: no sequence, no identifier, no value, bytes behind it, twice.
        let not_a_sequence: &[u8] = &[SET, 0];
        let no_identifier: &[u8] = &[SEQUENCE, 0];
        let no_value: &[u8] = &[SEQUENCE, 5, OBJECT_IDENTIFIER, 3, 0x55, 0x1d, 19];
        let two_values: &[u8] =
            &[SEQUENCE, 11, OBJECT_IDENTIFIER, 3, 0x55, 0x1d, 19, OCTET_STRING, 1, 7, OCTET_STRING, 1, 7];
        let truncated: &[u8] = &[SEQUENCE, 9, OBJECT_IDENTIFIER];
        for fault in [not_a_sequence, no_identifier, no_value, two_values, truncated] {
            assert_eq!(find(&[fault]), Err(MalformedExtensions), "{fault:?}");
            assert_eq!(find(&[names, fault]), Err(MalformedExtensions), "{fault:?}");
        }
        assert_eq!(find(&[names, names]), Err(MalformedExtensions));
    }

    #[test]
    fn an_element_ends_within_the_bytes() {
        assert_eq!(element(&[2, 1, 7, 9]), Some((2, &[7][..], &[9][..])));
        assert_eq!(element(&[4, 0x81, 2, 1, 2]), Some((4, &[1, 2][..], &[][..])));
        for invalid in
            [&[][..], &[2], &[2, 2, 1], &[4, 0x80], &[4, 0x85, 0, 0, 0, 0, 0], &[4, 0x84, 255, 255]]
        {
            assert_eq!(element(invalid), None);
        }
    }
}
