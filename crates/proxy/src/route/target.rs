//! The form in which a request's target is routed and forwarded, by the listener's rule. A target
//! whose path servers read in different ways is refused: a route would be chosen by one of the
//! readings, and the server might act on another.

use crate::plan::PathRule;

use super::path::{normalise_into, split_target};

/// The target to route by and to forward, `target` itself or its normal form in `room`, and whether
/// it is known to be plain (see [`is_plain`]). `None`: the listener's rule refuses it.
///
/// A target that needs no change costs one look at each byte up to its query.
#[inline]
pub(crate) fn forwarded<'a>(
    target: &'a str,
    rule: PathRule,
    room: &'a mut String,
) -> Option<(&'a str, bool)> {
    if is_plain(target.as_bytes()) {
        return Some((target, true));
    }
    let form = if rule == PathRule::Raw { Some(target) } else { checked(target, rule, room) };
    form.map(|form| (form, false))
}

const SLASH: u8 = 1;
const DOT: u8 = 2;
const SPECIAL: u8 = 4;
const QUERY: u8 = 8;

/// The bytes of a path that need a second look, alone or behind a slash.
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

/// Whether a target is in origin-form and its path certainly has one reading: no `%`, `\` and `;`,
/// and no `/.` and `//`.
#[inline]
pub(crate) fn is_plain(target: &[u8]) -> bool {
    let mut before = 0;
    for &byte in target {
        let class = CLASS[usize::from(byte)];
        if class != 0 {
            if class == QUERY {
                break;
            }
            if class == SPECIAL || before == SLASH {
                return false;
            }
        }
        before = class;
    }
    target.first() == Some(&b'/')
}

#[cold]
fn checked<'a>(target: &'a str, rule: PathRule, room: &'a mut String) -> Option<&'a str> {
    let (path, query) = split_target(target);
    if !path.starts_with('/') || path.len() + query.len() > target.len() {
        // `*`, an authority, or an absolute form without a path.
        return Some(target);
    }
    let authority = &target[..target.len() - path.len() - query.len()];
    room.clear();
    room.push_str(authority);
    normalise_into(path, room);
    let normal = &room[authority.len()..];
    let is_same = normal == path;
    if is_ambiguous(normal) || rule == PathRule::Strict && (!is_same || normal.contains("//")) {
        return None;
    }
    if is_same {
        return Some(target);
    }
    room.push_str(query);
    Some(room)
}

/// Whether servers read a normal path in different ways: a backslash, which some take for a slash; an
/// encoded slash, backslash or NUL; a dot or one of those encoded twice, or in too many bytes; and
/// parameters of an empty or a dot segment, which some servers remove before they look at dots.
fn is_ambiguous(path: &str) -> bool {
    let bytes = path.as_bytes();
    let encoded = memchr::memchr2_iter(b'%', b'\\', bytes)
        .any(|at| bytes[at] == b'\\' || is_ambiguous_triplet(&path[at + 1..]));
    encoded || path.split('/').skip(1).any(has_parameters_of_dots)
}

/// Whether a `%` with this behind it is one of those.
fn is_ambiguous_triplet(mut rest: &str) -> bool {
    const HIDDEN: [&str; 4] = ["2F", "5C", "00", "2E"];
    // Two, three and four bytes for what has one (RFC 3629 §3).
    const OVERLONG: [&str; 5] = ["C0%A", "C0%8", "C1%9", "E0%80", "F0%80"];
    while let Some(twice) = rest.strip_prefix("25") {
        rest = twice;
    }
    let starts =
        |start: &str| rest.get(..start.len()).is_some_and(|text| text.eq_ignore_ascii_case(start));
    HIDDEN.iter().chain(&OVERLONG).any(|start| starts(start))
}

fn has_parameters_of_dots(segment: &str) -> bool {
    let end = segment.find(';').or_else(|| segment.find("%3B"));
    end.is_some_and(|end| matches!(&segment[..end], "" | "." | ".."))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(target: &str, rule: PathRule) -> Option<String> {
        forwarded(target, rule, &mut String::new()).map(|(form, _)| form.to_owned())
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
        for (target, wanted) in table {
            assert_eq!(form(target, PathRule::Normalise).as_deref(), Some(wanted), "{target}");
            assert_eq!(form(target, PathRule::Raw).as_deref(), Some(target), "{target}");
            let strictly = form(target, PathRule::Strict);
            let is_strict = wanted == target && !target.starts_with("/a//");
            assert_eq!(strictly.as_deref(), is_strict.then_some(target), "{target}");
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
    fn a_plain_target_is_found_with_one_look() {
        for plain in ["/", "/a/b.c?d=%2F//..", "/a-b_c~d:x@y,z", "/a./b", "/a?"] {
            assert!(is_plain(plain.as_bytes()), "{plain}");
        }
        for other in ["//", "/a//b", "/.a", "/a/..", "/a%20", "/a;b", "/a\\b", "*", "h:1", ""] {
            assert!(!is_plain(other.as_bytes()), "{other}");
        }
    }
}
