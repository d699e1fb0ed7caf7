//! The form in which a request's target is routed and forwarded, by the listener's rule. A target
//! whose path servers interpret in different ways is refused: the route would depend on one
//! interpretation, and the server might use another.

use crate::plan::PathRule;

use crate::uri::{normalise_into, split_target};

/// Returns the target to route and to forward: `target` itself or its normal form in `buffer`. Also
/// returns whether it is known to be plain (see [`is_plain`]). `None`: the listener's rule refuses
/// it.
///
/// A target that needs no change costs one check of each byte up to its query.
#[inline]
pub(crate) fn forwarded_target<'a>(
    target: &'a str,
    rule: PathRule,
    buffer: &'a mut String,
) -> Option<(&'a str, bool)> {
    if is_plain(target.as_bytes()) {
        return Some((target, true));
    }
    let form = if rule == PathRule::Raw { Some(target) } else { normalise_checked(target, rule, buffer) };
    form.map(|form| (form, false))
}

const SLASH: u8 = 1;
const DOT: u8 = 2;
const SPECIAL: u8 = 4;
const QUERY: u8 = 8;

/// The bytes of a path that need a second check, alone or behind a slash.
const CLASS: [u8; 256] = {
    let mut class = [0; 256];
    class[b'/' as usize] = SLASH;
    class[b'.' as usize] = DOT;
    class[b'%' as usize] = SPECIAL;
    class[b'\\' as usize] = SPECIAL;
    class[b';' as usize] = SPECIAL;
    class[b'?' as usize] = QUERY;
    class
};

/// Returns whether a target is in origin-form and its path certainly has one interpretation: no
/// `%`, `\` and `;`, and no `/.` and `//`.
#[inline]
pub(crate) fn is_plain(target: &[u8]) -> bool {
    let mut previous_class = 0;
    for &byte in target {
        let class = CLASS[usize::from(byte)];
        if class != 0 {
            if class == QUERY {
                break;
            }
            if class == SPECIAL || previous_class == SLASH {
                return false;
            }
        }
        previous_class = class;
    }
    target.first() == Some(&b'/')
}

#[cold]
fn normalise_checked<'a>(target: &'a str, rule: PathRule, buffer: &'a mut String) -> Option<&'a str> {
    let (path, query) = split_target(target);
    if !path.starts_with('/') || path.len() + query.len() > target.len() {
        // `*`, an authority, or an absolute form without a path.
        return Some(target);
    }
    let authority = &target[..target.len() - path.len() - query.len()];
    buffer.clear();
    buffer.push_str(authority);
    normalise_into(path, buffer);
    let normal = &buffer[authority.len()..];
    let is_unchanged = normal == path;
    if is_ambiguous(normal) || rule == PathRule::Strict && (!is_unchanged || normal.contains("//")) {
        return None;
    }
    if is_unchanged {
        return Some(target);
    }
    buffer.push_str(query);
    Some(buffer)
}

/// Returns whether servers interpret a normal path in different ways. Such paths have a backslash,
/// which some treat as a slash; an encoded slash, backslash or NUL; a dot or one of those encoded
/// twice or overlong; or parameters of an empty or a dot segment, which some servers remove before
/// they process dots.
fn is_ambiguous(path: &str) -> bool {
    let bytes = path.as_bytes();
    let encoded = memchr::memchr2_iter(b'%', b'\\', bytes)
        .any(|at| bytes[at] == b'\\' || is_ambiguous_escape(&path[at + 1..]));
    encoded || path.split('/').skip(1).any(has_dot_segment_parameters)
}

/// Returns whether a `%` followed by `rest` is one of those.
fn is_ambiguous_escape(mut rest: &str) -> bool {
    const HIDDEN: [&str; 4] = ["2F", "5C", "00", "2E"];
    // Two, three and four bytes for a one-byte character (RFC 3629 §3).
    const OVERLONG: [&str; 5] = ["C0%A", "C0%8", "C1%9", "E0%80", "F0%80"];
    while let Some(inner) = rest.strip_prefix("25") {
        rest = inner;
    }
    let starts_rest =
        |start: &str| rest.get(..start.len()).is_some_and(|text| text.eq_ignore_ascii_case(start));
    HIDDEN.iter().chain(&OVERLONG).any(|start| starts_rest(start))
}

fn has_dot_segment_parameters(segment: &str) -> bool {
    let end = segment.find(';').or_else(|| segment.find("%3B"));
    end.is_some_and(|end| matches!(&segment[..end], "" | "." | ".."))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(target: &str, rule: PathRule) -> Option<String> {
        forwarded_target(target, rule, &mut String::new()).map(|(form, _)| form.to_owned())
    }

    #[test]
    fn a_target_is_forwarded_in_its_normal_form() {
        let table = [
            ("/admin/../x", "/x"),
            ("/admin//../x?a/../b", "/admin/x?a/../b"),
            ("/%61dmin/%7euser", "/admin/~user"),
            ("/a//b/", "/a//b/"),
            ("/a%20b%2c", "/a%20b%2C"),
            ("/a/%2e%2E/b?%2e", "/b?%2e"),
            ("/50%", "/50%25"),
            ("/a;v=1/b", "/a;v=1/b"),
            ("http://h:1/a/../b?c", "http://h:1/b?c"),
            ("http://h", "http://h"),
            ("http://h?a/../b", "http://h?a/../b"),
            ("*", "*"),
            ("h:443", "h:443"),
            ("/a?b=%2F..%2F\\", "/a?b=%2F..%2F\\"),
        ];
        for (target, expected) in table {
            assert_eq!(form(target, PathRule::Normalise).as_deref(), Some(expected), "{target}");
            assert_eq!(form(target, PathRule::Raw).as_deref(), Some(target), "{target}");
            let strict_form = form(target, PathRule::Strict);
            let is_strict = expected == target && !target.starts_with("/a//");
            assert_eq!(strict_form.as_deref(), is_strict.then_some(target), "{target}");
        }
    }

    #[test]
    fn what_servers_read_in_different_ways_is_refused() {
        let table = [
            "/pub/..;/admin",
            "/pub/.;x/admin",
            "/;/admin",
            "/pub/..%3B/admin",
            "/pub/..%2Fadmin",
            "/pub%2fadmin",
            "/pub\\..\\admin",
            "/pub/..%5cadmin",
            "/pub/%252e%252E/admin",
            "/pub/%%32e./admin",
            "/pub/%25252e/admin",
            "/pub%252Fadmin",
            "/pub/%c0%ae%c0%ae/admin",
            "/pub/..%c0%afadmin",
            "/admin%00.png",
            "http://h/pub/..;/admin",
        ];
        for target in table {
            assert_eq!(form(target, PathRule::Normalise), None, "{target}");
            assert_eq!(form(target, PathRule::Strict), None, "{target}");
            assert_eq!(form(target, PathRule::Raw).as_deref(), Some(target), "{target}");
        }
    }

    #[test]
    fn a_plain_target_is_found_with_one_check() {
        for plain in ["/", "/a/b.c?d=%2F//..", "/a-b_c~d:x@y,z", "/a./b", "/a?"] {
            assert!(is_plain(plain.as_bytes()), "{plain}");
        }
        for other in ["//", "/a//b", "/.a", "/a/..", "/a%20", "/a;b", "/a\\b", "*", "h:1", ""] {
            assert!(!is_plain(other.as_bytes()), "{other}");
        }
    }
}
