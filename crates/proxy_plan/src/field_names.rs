//! Fields with the identity of a client or its original request. Values from untrusted peers are
//! neither forwarded nor used. Only names are checked, never values.

use wire::Header;

/// The fields of this kind whose names do not start with `X-Forwarded`.
/// Returns whether a removal of `pattern` removes this field. A final `*` matches all names with
/// that prefix.
pub fn matches_removal(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        None => pattern.eq_ignore_ascii_case(name),
        Some(prefix) => name.get(..prefix.len()).is_some_and(|own| own.eq_ignore_ascii_case(prefix)),
    }
}

#[cfg(any(test, feature = "fixtures"))]
pub const IDENTITY_FIELDS: [&str; 8] = [
    "forwarded",
    "x-real-ip",
    "x-client-ip",
    "x-rewrite-url",
    "true-client-ip",
    "x-original-url",
    "cf-connecting-ip",
    "x-cluster-client-ip",
];

/// Returns whether only a trusted peer may send a field: `Forwarded`, all that start with
/// `X-Forwarded`, other fields with a client's address, and fields that replace the request's
/// target.
#[inline(always)]
pub fn is_identity_field(name: &str) -> bool {
    // The first letters of all of them: most fields begin with another one.
    let first = name.as_bytes().first().map_or(0, |byte| byte | 0x20);
    matches!(first, b'f' | b'x' | b't' | b'c') && is_name_of_identity(name)
}

fn is_name_of_identity(name: &str) -> bool {
    let is = |other: &str| name.eq_ignore_ascii_case(other);
    match name.len() {
        // By length first: most fields are none of these.
        9 => is("forwarded") || is("x-real-ip"),
        11 => is("x-client-ip") || is("x-forwarded"),
        13 if is("x-rewrite-url") => true,
        14 if is("true-client-ip") || is("x-original-url") => true,
        16 if is("cf-connecting-ip") => true,
        19 if is("x-cluster-client-ip") => true,
        12.. => name.as_bytes()[..12].eq_ignore_ascii_case(b"x-forwarded-"),
        _ => false,
    }
}

/// Returns whether two field names are the same without case, for servers that treat an underscore as
/// a hyphen, too.
pub fn is_same_field(name: &str, other: &str) -> bool {
    let folded = |byte: u8| if byte == b'_' { b'-' } else { byte.to_ascii_lowercase() };
    name.len() == other.len() && name.bytes().map(folded).eq(other.bytes().map(folded))
}

/// Returns whether a field name has an underscore, which CGI and its successors treat as a hyphen.
///
/// Checks eight bytes at a time, because it runs for each field of each request.
#[inline]
pub fn has_underscore(name: &str) -> bool {
    const ONES: u64 = 0x0101_0101_0101_0101;
    let name = name.as_bytes();
    let has_match = |word: &[u8; 8]| {
        // A byte is 0 where there is an underscore, and only then does the subtraction borrow.
        let different = u64::from_ne_bytes(*word) ^ (ONES * u64::from(b'_'));
        different.wrapping_sub(ONES) & !different & (ONES << 7) != 0
    };
    match name.last_chunk() {
        Some(last) => has_match(last) || name.as_chunks().0.iter().any(has_match),
        None => name.contains(&b'_'),
    }
}

/// Returns whether a `Connection` field names this field, so that it is hop-by-hop (RFC 9110
/// §7.6.1). Fields that framing and routing rely on cannot be removed that way.
pub fn is_connection_option(headers: &[Header<'_>], name: &str) -> bool {
    const PROTECTED: [&str; 3] = ["host", "content-length", "transfer-encoding"];
    wire::connection_options(headers).any(|option| option.eq_ignore_ascii_case(name.as_bytes()))
        && !PROTECTED.iter().any(|protected| protected.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identity_fields_are_known_in_any_case() {
        let prefixed =
            ["X-Forwarded", "X-Forwarded-", "X-Forwarded-For", "x-forwarded-x", "X-FORWARDED-USER"];
        for name in IDENTITY_FIELDS.iter().chain(&prefixed) {
            assert!(is_identity_field(name) && is_identity_field(&name.to_ascii_uppercase()), "{name}");
        }
        for name in ["", "host", "x-forwardedfor", "x-forwarder-for", "x-real-ips", "user-agent"] {
            assert!(!is_identity_field(name), "{name}");
        }
    }

    #[test]
    fn field_names_are_the_same_with_either_separator() {
        assert!(is_same_field("X-Ssl_DN", "x-ssl-dn") && is_same_field("", ""));
        assert!(!is_same_field("x-ssl-dn", "x-ssl-d") && !is_same_field("x-ssl-dn", "x-ssl-dm"));
    }

    #[test]
    fn an_underscore_is_detected_anywhere() {
        for length in 1..40 {
            let name = "a-".repeat(length)[..length].to_owned();
            assert!(!has_underscore(&name), "{name}");
            for at in 0..length {
                let mut name = name.clone();
                name.replace_range(at..=at, "_");
                assert!(has_underscore(&name), "{name}");
            }
        }
    }
}
