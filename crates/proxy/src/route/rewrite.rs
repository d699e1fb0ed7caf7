//! What becomes of a target: rewritten for the server, or the `Location` of a redirect. Field
//! changes are not made here, but where heads are written.

use crate::plan::Change;

use super::path::{is_normal, normalise_into, rest_below, split_target, without_port};

/// Whether any of `changes` is one to the target.
pub(crate) fn rewrites(changes: &[Change]) -> bool {
    changes
        .iter()
        .any(|change| matches!(change, Change::ReplacePrefix { .. } | Change::ReplacePath(_)))
}

/// Appends the target for the server, in origin-form, with the first change to it that applies; a
/// config has one at the most.
///
/// A replaced prefix is that of the normal path, as it was matched, so `/x/../api/a` loses its
/// `/api` too and nothing escapes by dot segments. Without such a change the path stays as it is
/// given. `*` and authority-form targets are never changed. It allocates only for a path that is not
/// normal.
pub(crate) fn rewrite_target(changes: &[Change], target: &str, out: &mut Vec<u8>) {
    let (given, query) = split_target(target);
    let mut room = String::new();
    let mut path = given;
    if path.starts_with('/') && rewrites(changes) && !is_normal(path) {
        normalise_into(path, &mut room);
        path = &room;
    }
    let (start, rest) =
        changes.iter().find_map(|change| replaced(change, path)).unwrap_or(("", given));
    for part in [start, rest, query] {
        out.extend_from_slice(part.as_bytes());
    }
}

/// The two parts of the new path; `None` when `change` is none to this one.
fn replaced<'a>(change: &'a Change, path: &'a str) -> Option<(&'a str, &'a str)> {
    match change {
        Change::ReplacePath(with) if path.starts_with('/') => Some((with, "")),
        Change::ReplacePrefix { prefix, with } if path.starts_with('/') => {
            let rest = rest_below(path, prefix)?;
            let with = if rest.is_empty() { with } else { with.trim_end_matches('/') };
            Some((with, rest))
        }
        _ => None,
    }
}

/// The `Location` of a redirect: `{host}` is the request's host without its port, `{path}` its path
/// as it is given, `{query}` its query with the `?`, or nothing.
///
/// Neither can end the field or lead to another host than the template names: what is not visible
/// ASCII is percent-encoded, and a path starts with exactly one slash and has no backslash, which
/// browsers take for one.
pub(crate) fn location(template: &str, host: Option<&str>, target: &str) -> Vec<u8> {
    let (path, query) = split_target(target);
    let mut out = Vec::with_capacity(template.len() + target.len());
    let mut rest = template;
    while let Some(at) = rest.find('{') {
        out.extend_from_slice(&rest.as_bytes()[..at]);
        let (name, after) = rest[at + 1..].split_once('}').unwrap_or(("", ""));
        match name {
            "host" => append_visible(without_port(host.unwrap_or_default()), b"/\\?#@", &mut out),
            "path" => {
                out.push(b'/');
                if let Some(path) = path.strip_prefix('/') {
                    append_visible(path.trim_start_matches(['/', '\\']), b"\\", &mut out);
                }
            }
            "query" => append_visible(query, b"", &mut out),
            _ => {}
        }
        rest = after;
    }
    out.extend_from_slice(rest.as_bytes());
    out
}

/// Appends `text`, percent-encoding what is not visible ASCII and the `unsafe_bytes`.
fn append_visible(text: &str, unsafe_bytes: &[u8], out: &mut Vec<u8>) {
    for &byte in text.as_bytes() {
        if byte.is_ascii_graphic() && !unsafe_bytes.contains(&byte) {
            out.push(byte);
        } else {
            let digit = |half: u8| b"0123456789ABCDEF"[usize::from(half)];
            out.extend_from_slice(&[b'%', digit(byte >> 4), digit(byte & 15)]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rewritten(prefix: &str, with: &str, target: &str) -> String {
        let change = Change::ReplacePrefix { prefix: prefix.into(), with: with.into() };
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
        for (prefix, with, target, wanted) in table {
            assert_eq!(rewritten(prefix, with, target), wanted, "{prefix} {with} {target}");
        }
    }

    #[test]
    fn a_replaced_path_keeps_the_query() {
        let mut out = Vec::new();
        rewrite_target(&[Change::ReplacePath("/x".into())], "/a/b?c=d", &mut out);
        assert_eq!(out, b"/x?c=d");
    }

    #[test]
    fn without_a_change_the_path_stays_as_it_was_sent() {
        let mut out = Vec::new();
        let change = Change::RemoveRequestHeader("x".into());
        rewrite_target(&[change], "http://h/a//%2e?q", &mut out);
        assert_eq!(out, b"/a//%2e?q");
    }

    #[test]
    fn a_location_cannot_be_bent() {
        let table = [
            ("https://{host}{path}{query}", "a:80", "/x?y=1", "https://a/x?y=1"),
            ("https://{host}:8443{path}", "[::1]:80", "/", "https://[::1]:8443/"),
            ("{path}", "a", "//evil.example/x", "/evil.example/x"),
            ("{path}", "a", "/\\evil.example", "/evil.example"),
            ("{path}", "a", "/b\\c", "/b%5Cc"),
            ("https://good{path}", "a", "@evil.example:80", "https://good/"),
            ("https://{host}{path}", "good@evil", "/", "https://good%40evil/"),
            ("https://{host}/", "a\r\nset-cookie: x", "/", "https://a%0D%0Aset-cookie/"),
            ("/fixed", "a", "/x?y", "/fixed"),
            ("/a{query}", "a", "/x\r\n?y\n", "/a?y%0A"),
        ];
        for (template, host, target, wanted) in table {
            let got = String::from_utf8(location(template, Some(host), target)).unwrap();
            assert_eq!(got, wanted, "{template} {host} {target}");
        }
    }
}
