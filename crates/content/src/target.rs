//! Path of a request target: decodes it once, and refuses everything that could name a file outside
//! of the root. Pure.
//!
//! The rules are those of file names and not of URLs: after decoding, a segment is the name of a file,
//! so it can contain no slash, is never `.` or `..`, and is never empty. Nothing is normalised: a client
//! has resolved its dot segments before (RFC 3986 §5.2.4), and a second reading of the same bytes is
//! what traversals live on.

/// Decoded path of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FilePath<'t> {
    /// Path from the root, without slashes at its ends; empty: the root.
    pub(crate) path: Vec<u8>,
    /// True if the target ends in a slash.
    pub(crate) is_directory: bool,
    /// Path as received, still encoded.
    pub(crate) raw: &'t str,
    /// Query with its question mark, or nothing.
    pub(crate) query: &'t str,
}

/// Reason why a target names no file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PathError {
    /// The encoding is not valid, or a name contains NUL.
    BadRequest,
    /// No file that is served can have this path.
    NotFound,
}

impl PathError {
    pub(crate) fn status(self) -> u16 {
        match self {
            Self::BadRequest => 400,
            Self::NotFound => 404,
        }
    }
}

/// First segment that may be hidden without being refused (RFC 8615).
const WELL_KNOWN: &[u8] = b".well-known";

/// Parses a target in origin form or absolute form. Names that start with a dot are refused unless
/// `allows_hidden`.
pub(crate) fn parse(target: &str, allows_hidden: bool) -> Result<FilePath<'_>, PathError> {
    let target = origin_form(target);
    let (raw, query) = target.split_at(target.find('?').unwrap_or(target.len()));
    let Some(rest) = raw.strip_prefix('/') else {
        return Err(PathError::BadRequest);
    };
    let mut path = decode(rest.as_bytes())?;
    let is_directory = path.is_empty() || path.ends_with(b"/");
    if path.ends_with(b"/") {
        path.pop();
        if path.is_empty() {
            return Err(PathError::NotFound);
        }
    }
    if !path.is_empty() {
        for (index, segment) in path.split(|&byte| byte == b'/').enumerate() {
            let is_hidden = segment.starts_with(b".") && !(index == 0 && segment == WELL_KNOWN);
            if matches!(segment, b"" | b"." | b"..") || (is_hidden && !allows_hidden) {
                return Err(PathError::NotFound);
            }
        }
    }
    Ok(FilePath { path, is_directory, raw, query })
}

/// Removes the scheme and the authority of a target in absolute form.
fn origin_form(target: &str) -> &str {
    if target.starts_with('/') {
        return target;
    }
    let Some(scheme_end) = target.find("://") else { return target };
    let rest = &target[scheme_end + 3..];
    match rest.find(['/', '?']) {
        Some(path) if rest.as_bytes()[path] == b'/' => &rest[path..],
        // An empty path is the root; its query changes nothing.
        _ => "/",
    }
}

/// Decodes the percent-encoding, once.
fn decode(raw: &[u8]) -> Result<Vec<u8>, PathError> {
    let mut path = Vec::with_capacity(raw.len());
    let mut rest = raw;
    while let [byte, after @ ..] = rest {
        rest = after;
        if *byte != b'%' {
            path.push(checked(*byte)?);
            continue;
        }
        let [high, low, after @ ..] = rest else { return Err(PathError::BadRequest) };
        let (Some(high), Some(low)) = (hex_digit(*high), hex_digit(*low)) else {
            return Err(PathError::BadRequest);
        };
        let decoded = high << 4 | low;
        if decoded == b'/' {
            // A name contains no slash, and an encoded one does not separate names.
            return Err(PathError::NotFound);
        }
        path.push(checked(decoded)?);
        rest = after;
    }
    Ok(path)
}

/// Returns whether a target can have a name as a segment.
pub(crate) fn is_served_name(name: &[u8]) -> bool {
    !matches!(name, b"" | b"." | b"..") && name.iter().all(|&byte| checked(byte).is_ok())
}

/// Refuses bytes that no name of a served file contains.
fn checked(byte: u8) -> Result<u8, PathError> {
    match byte {
        0 => Err(PathError::BadRequest),
        b'\\' | ..0x20 | 0x7f => Err(PathError::NotFound),
        _ => Ok(byte),
    }
}

fn hex_digit(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).map(|value| value as u8)
}

/// Encodes a name for a URL path: everything but unreserved characters (RFC 3986 §2.3).
pub(crate) fn encode_segment(name: &[u8], out: &mut String) {
    for &byte in name {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push('%');
            for nibble in [byte >> 4, byte & 15] {
                out.push(char::from(b"0123456789ABCDEF"[usize::from(nibble)]));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(target: &str) -> Result<(String, bool), u16> {
        let parsed = parse(target, false).map_err(PathError::status)?;
        Ok((String::from_utf8_lossy(&parsed.path).into_owned(), parsed.is_directory))
    }

    #[test]
    fn ordinary_targets_name_their_files() {
        for (target, expected, is_directory) in [
            ("/", "", true),
            ("/?a=/../b", "", true),
            ("/a.txt", "a.txt", false),
            ("/a/b/", "a/b", true),
            ("/a%20b", "a b", false),
            ("/%C3%A9.txt", "é.txt", false),
            ("/a..b", "a..b", false),
            ("/a;b=c", "a;b=c", false),
            ("/.well-known/acme", ".well-known/acme", false),
            ("http://h/a", "a", false),
            ("http://h?x", "", true),
            ("HTTPS://h:1", "", true),
            // Decoded once: the name contains a percent sign.
            ("/%2541", "%41", false),
        ] {
            assert_eq!(path(target), Ok((expected.to_owned(), is_directory)), "{target}");
        }
        let parsed = parse("/a%20b/?x=1?", false).unwrap();
        assert_eq!((parsed.raw, parsed.query), ("/a%20b/", "?x=1?"));
    }

    /// Traversals in every encoding: none of them is a path.
    const TRAVERSALS: &[(&str, u16)] = &[
        ("/..", 404),
        ("/../", 404),
        ("/../etc/passwd", 404),
        ("/a/../../etc/passwd", 404),
        ("/./a", 404),
        ("/a/.", 404),
        ("/%2e%2e/etc/passwd", 404),
        ("/%2E%2E/etc/passwd", 404),
        ("/.%2e/etc/passwd", 404),
        ("/%2e./etc/passwd", 404),
        ("/..%2fetc/passwd", 404),
        ("/..%2Fetc/passwd", 404),
        ("/%2e%2e%2fetc%2fpasswd", 404),
        ("/a%2f..%2f..%2fetc/passwd", 404),
        ("/..%5cetc%5cpasswd", 404),
        ("/..\\..\\etc\\passwd", 404),
        ("/a%00.txt", 400),
        ("/%00", 400),
        ("/..%00/", 400),
        ("/%", 400),
        ("/%2", 400),
        ("/%zz", 400),
        ("/%u002e%u002e/", 400),
        ("//etc/passwd", 404),
        ("/a//b", 404),
        ("//", 404),
        ("/%0d%0aX: y", 404),
        ("/%7f", 404),
        ("/.git/config", 404),
        ("/a/.env", 404),
        ("/.well-known/.env", 404),
        ("/a/.well-known/x", 404),
        ("http://h/../etc/passwd", 404),
        ("http://h//etc/passwd", 404),
        ("http://h/%2e%2e/etc/passwd", 404),
        ("*", 400),
        ("etc/passwd", 400),
        ("", 400),
    ];

    #[test]
    fn traversals_are_refused_in_every_encoding() {
        for &(target, status) in TRAVERSALS {
            assert_eq!(path(target), Err(status), "{target}");
        }
        // Encoded twice, or overlong in UTF-8: these are names, and no file has them.
        for target in ["/%252e%252e/x", "/%c0%ae%c0%ae/x", "/%e0%80%ae%e0%80%ae/x", "/%c0%af"] {
            let parsed = parse(target, true).unwrap();
            assert!(parsed.path.split(|&byte| byte == b'/').all(|segment| segment != b".."), "{target}");
        }
    }

    #[test]
    fn hidden_names_can_be_allowed_and_dot_segments_cannot() {
        assert!(parse("/.git/config", true).is_ok());
        for target in ["/..", "/.", "/a/..", "/%2e%2e/a", "/..%2fa"] {
            assert!(parse(target, true).is_err(), "{target}");
        }
    }

    #[test]
    fn an_encoded_name_is_decoded_to_itself() {
        let name: Vec<u8> = (0x20..=0xff).filter(|byte| !b"/\\\x7f".contains(byte)).collect();
        let mut target = "/a".to_owned();
        encode_segment(&name, &mut target);
        assert_eq!(parse(&target, false).unwrap().path[1..], name);
    }
}
