//! Reads what there is of a request line in bytes that are no valid head: for logs, never for a decision.

use super::explain::is_token;
use super::head::Version;

/// Maximum length of a method that is taken for one.
const METHOD_BYTES_MAX: usize = 32;

/// Returns method, target and version of the request line at the start of `bytes`, as far as they have been received. The
/// target may be empty, incomplete or invalid; a version that is not HTTP/1.0 counts as HTTP/1.1. `None`: the bytes do not
/// start with a method and a space.
pub fn salvage_request_line(bytes: &[u8]) -> Option<(&[u8], &[u8], Version)> {
    let start = bytes.iter().position(|byte| !matches!(byte, b'\r' | b'\n'))?;
    let bytes = &bytes[start..];
    let line_end = bytes.iter().position(|byte| matches!(byte, b'\r' | b'\n')).unwrap_or(bytes.len());
    let line = &bytes[..line_end];
    let method_end = line.iter().take(METHOD_BYTES_MAX + 1).position(|&byte| byte == b' ')?;
    let (method, rest) = (&line[..method_end], &line[method_end + 1..]);
    if method.is_empty() || !method.iter().all(|&byte| is_token(byte)) {
        return None;
    }
    // A target with a space is invalid, so that the last space starts the version.
    let version_at = rest.windows(6).rposition(|bytes| bytes == b" HTTP/");
    let (target, version) = version_at.map_or((rest, &b""[..]), |at| (&rest[..at], &rest[at + 1..]));
    let version = if version == b"HTTP/1.0" { Version::Http10 } else { Version::Http11 };
    Some((method, target, version))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_line_is_read_as_far_as_it_goes() {
        type Salvaged = Option<(&'static str, &'static str)>;
        let table: [(&[u8], Salvaged); 13] = [
            (b"GET /a HTTP/1.1\r\nbad header\r\n\r\n", Some(("GET", "/a"))),
            (b"GET /a b HTTP/1.1\r\n", Some(("GET", "/a b"))),
            (b"\r\nPOST /x HTTP/9.9\n", Some(("POST", "/x"))),
            (b"GET /half", Some(("GET", "/half"))),
            (b"GET ", Some(("GET", ""))),
            (b"GET", None),
            (b"G@T / HTTP/1.1\r\n", None),
            (b" / HTTP/1.1\r\n", None),
            (b"\x16\x03\x01\x02 ", None),
            (b"", None),
            (b"\r\n", None),
            (b"M-SEARCH * HTTP/1.1\r\n", Some(("M-SEARCH", "*"))),
            (b"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA /", None),
        ];
        for (bytes, expected) in table {
            let read = salvage_request_line(bytes).map(|(method, target, _)| (method, target));
            let expected = expected.map(|(method, target)| (method.as_bytes(), target.as_bytes()));
            assert_eq!(read, expected, "{}", bytes.escape_ascii());
        }
        let version = |bytes| salvage_request_line(bytes).unwrap().2;
        assert_eq!(version(b"GET / HTTP/1.0\r\n"), Version::Http10);
        assert_eq!(version(b"GET / HTTP/1.1\r\n"), Version::Http11);
    }
}
