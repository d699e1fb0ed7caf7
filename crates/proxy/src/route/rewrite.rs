//! Target rewriting: the target for the server, and the `Location` of a redirect. Field changes are
//! applied where heads are written.

use crate::plan::RouteChange;
use crate::template::append_encoded;
use crate::uri::{is_normal, normalise_into, split_target, strip_prefix_segments, without_port};

/// Returns whether any of `changes` affects the target.
pub(crate) fn changes_target(changes: &[RouteChange]) -> bool {
    changes
        .iter()
        .any(|change| matches!(change, RouteChange::ReplacePrefix { .. } | RouteChange::ReplacePath(_)))
}

/// Appends the target for the server, in origin-form, with the first change to it that applies; a
/// config has at most one.
///
/// A replaced prefix is that of the normal path, as it was matched. So `/x/../api/a` loses its
/// `/api` too, and dot segments cannot escape. Without such a change the path is unchanged. `*` and
/// authority-form targets are never changed. It allocates only for a path that is not normal.
pub(crate) fn rewrite_target(changes: &[RouteChange], target: &str, out: &mut Vec<u8>) {
    let (original_path, query) = split_target(target);
    let mut buffer = String::new();
    let mut path = original_path;
    if path.starts_with('/') && changes_target(changes) && !is_normal(path) {
        normalise_into(path, &mut buffer);
        path = &buffer;
    }
    let (start, rest) =
        changes.iter().find_map(|change| replace_path(change, path)).unwrap_or(("", original_path));
    for part in [start, rest, query] {
        out.extend_from_slice(part.as_bytes());
    }
}

/// Returns the two parts of the new path; `None` if `change` does not apply.
fn replace_path<'a>(change: &'a RouteChange, path: &'a str) -> Option<(&'a str, &'a str)> {
    match change {
        RouteChange::ReplacePath(replacement) if path.starts_with('/') => Some((replacement, "")),
        RouteChange::ReplacePrefix { prefix, replacement } if path.starts_with('/') => {
            let rest = strip_prefix_segments(path, prefix)?;
            let replacement = if rest.is_empty() { replacement } else { replacement.trim_end_matches('/') };
            Some((replacement, rest))
        }
        _ => None,
    }
}

pub(crate) fn https_location(host: &str, target: &str) -> Vec<u8> {
    let (path, query) = split_target(target);
    let mut out = b"https://".to_vec();
    append_encoded(without_port(host).as_bytes(), b"/\\?#@", &mut out);
    out.push(b'/');
    if path.starts_with('/') {
        append_encoded(path.trim_start_matches(['/', '\\']).as_bytes(), b"\\", &mut out);
    }
    append_encoded(query.as_bytes(), b"", &mut out);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rewritten(prefix: &str, replacement: &str, target: &str) -> String {
        let change = RouteChange::ReplacePrefix { prefix: prefix.into(), replacement: replacement.into() };
        let mut out = b"GET ".to_vec();
        rewrite_target(&[change], target, &mut out);
        String::from_utf8(out).unwrap().split_off(4)
    }

    #[test]
    fn a_prefix_is_replaced_at_segments() {
        let table = [
            ("/api", "/v1", "/api/x?y=/api", "/v1/x?y=/api"),
            ("/api", "/v1", "/api", "/v1"),
            ("/api", "/v1/", "/api", "/v1/"),
            ("/api", "/v1/", "/api/x", "/v1/x"),
            ("/api/", "/v1", "/api/x", "/v1/x"),
            ("/api", "/", "/api", "/"),
            ("/api", "/", "/api/x", "/x"),
            ("/", "/v1", "/x", "/v1/x"),
            ("/", "/v1", "/", "/v1/"),
            ("/api", "/v1", "/x/../api/a", "/v1/a"),
            ("/api", "/v1", "/api/../api/x", "/v1/x"),
            ("/api", "/v1", "/%61pi/a%2fb", "/v1/a%2Fb"),
            ("/api", "/v1", "http://h:1/api/x?q", "/v1/x?q"),
            ("/api", "/v1", "/other", "/other"),
            ("/", "/v1", "*", "*"),
            ("/", "/v1", "h:443", "h:443"),
        ];
        for (prefix, replacement, target, expected) in table {
            assert_eq!(rewritten(prefix, replacement, target), expected, "{prefix} {replacement} {target}");
        }
    }

    #[test]
    fn a_replaced_path_keeps_the_query() {
        let mut out = Vec::new();
        rewrite_target(&[RouteChange::ReplacePath("/x".into())], "/a/b?c=d", &mut out);
        assert_eq!(out, b"/x?c=d");
    }

    #[test]
    fn without_a_change_the_path_stays_as_it_was_sent() {
        let mut out = Vec::new();
        let change = RouteChange::RemoveRequestHeader("x".into());
        rewrite_target(&[change], "http://h/a//%2e?q", &mut out);
        assert_eq!(out, b"/a//%2e?q");
    }

    #[test]
    fn a_location_with_https_cannot_be_bent() {
        for (host, target, expected) in [
            ("a:80", "/x?y=1", "https://a/x?y=1"),
            ("[::1]:80", "/", "https://[::1]/"),
            ("a", "/b\\c?d\r\n", "https://a/b%5Cc?d%0D%0A"),
            ("a", "//evil/x", "https://a/evil/x"),
            ("a", "*", "https://a/"),
            ("good@evil", "/", "https://good%40evil/"),
        ] {
            assert_eq!(String::from_utf8(https_location(host, target)).unwrap(), expected, "{host} {target}");
        }
    }
}
