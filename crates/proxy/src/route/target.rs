//! The form in which a request's target is routed and forwarded, by the rule of its listener or route. A
//! target whose path servers interpret in different ways is refused: the route would depend on one
//! interpretation, and the server might use another. An encoded slash is such a case only if its two
//! interpretations have different routes.

use std::borrow::Cow;

use wire::RefusalKind;

use crate::plan::PathRule;

use crate::uri::{normalise_into, split_target};

/// A target that is not plain, and its normal form.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CheckedTarget<'a> {
    received: &'a str,
    /// The form in which it is routed.
    pub(crate) normal: &'a str,
    /// True if the path starts with a slash and is not in its normal form, or has empty segments.
    is_irregular: bool,
    ambiguity: Ambiguity,
}

/// Ambiguity of a normal path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ambiguity {
    None,
    /// Servers may decode its encoded slashes or not, and have nothing else to interpret.
    EncodedSlash,
    Other,
}

/// Checks a target. `None`: it is plain, so it is routed and forwarded as it is.
///
/// A target that needs no change costs one check of each byte up to its query.
#[inline]
pub(crate) fn check_target<'a>(target: &'a str, buffer: &'a mut String) -> Option<CheckedTarget<'a>> {
    if is_plain(target.as_bytes()) { None } else { Some(CheckedTarget::new(target, buffer)) }
}

impl<'a> CheckedTarget<'a> {
    #[cold]
    fn new(received: &'a str, buffer: &'a mut String) -> Self {
        let (path, query) = split_target(received);
        if !path.starts_with('/') || path.len() + query.len() > received.len() {
            // `*`, an authority, or an absolute form without a path.
            return Self { received, normal: received, is_irregular: false, ambiguity: Ambiguity::None };
        }
        let authority = &received[..received.len() - path.len() - query.len()];
        buffer.clear();
        buffer.push_str(authority);
        normalise_into(path, buffer);
        let normal_path = &buffer[authority.len()..];
        let is_unchanged = normal_path == path;
        let is_irregular = !is_unchanged || normal_path.contains("//");
        let ambiguity = Ambiguity::from_path(normal_path);
        if is_unchanged {
            return Self { received, normal: received, is_irregular, ambiguity };
        }
        buffer.push_str(query);
        Self { received, normal: buffer, is_irregular, ambiguity }
    }

    /// Returns the target to forward by a rule, as far as it does not depend on the route.
    ///
    /// # Errors
    /// The rule refuses it.
    pub(crate) fn form(&self, rule: PathRule) -> Result<&'a str, RefusalKind> {
        match (rule, self.ambiguity) {
            (PathRule::Raw, _) => Ok(self.received),
            (_, Ambiguity::Other) | (PathRule::Strict, Ambiguity::EncodedSlash) => {
                Err(RefusalKind::AmbiguousPath)
            }
            (PathRule::Strict, Ambiguity::None) if self.is_irregular => Err(RefusalKind::AmbiguousPath),
            _ => Ok(self.normal),
        }
    }

    /// Returns the target to forward to the `route` of its normal form, whose rule is `rule`. `pick` returns
    /// the route of another target.
    ///
    /// # Errors
    /// The rule refuses the target, or the target has another route if a server decodes its encoded slashes.
    #[cold]
    pub(crate) fn forwarded(
        &self,
        rule: PathRule,
        route: Option<usize>,
        pick: impl FnOnce(&str) -> Option<usize>,
    ) -> Result<&'a str, RefusalKind> {
        let form = self.form(rule)?;
        let has_two_routes = || pick(&self.decoded()) != route;
        if rule != PathRule::Raw && self.ambiguity == Ambiguity::EncodedSlash && has_two_routes() {
            return Err(RefusalKind::EncodedSlash);
        }
        Ok(form)
    }

    /// Returns the normal form with its encoded slashes decoded.
    fn decoded(&self) -> String {
        let (path, query) = split_target(self.normal);
        let authority = &self.normal[..self.normal.len() - path.len() - query.len()];
        [authority, &decode_slashes(path), query].concat()
    }
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

impl Ambiguity {
    /// Returns the ambiguity of a normal path. Servers interpret in different ways: a backslash, which some
    /// treat as a slash; an encoded slash, backslash or NUL; a dot or one of those encoded twice or overlong;
    /// and parameters of an empty or a dot segment, which some servers remove before they process dots.
    fn from_path(path: &str) -> Self {
        let bytes = path.as_bytes();
        let mut has_encoded_slash = false;
        for at in memchr::memchr2_iter(b'%', b'\\', bytes) {
            let rest = &path[at + 1..];
            if bytes[at] == b'%' && rest.starts_with("2F") {
                has_encoded_slash = true;
            } else if bytes[at] == b'\\' || is_ambiguous_escape(rest) {
                return Self::Other;
            }
        }
        let decoded = if has_encoded_slash { decode_slashes(path) } else { Cow::Borrowed(path) };
        // A normal path has dot segments only where an encoded slash ends or starts them.
        let is_ambiguous = |segment| matches!(segment, "." | "..") || has_dot_segment_parameters(segment);
        match has_encoded_slash {
            _ if decoded.split('/').skip(1).any(is_ambiguous) => Self::Other,
            true => Self::EncodedSlash,
            false => Self::None,
        }
    }
}

/// Decodes the encoded slashes of a normal path, whose triplets are in upper case.
fn decode_slashes(path: &str) -> Cow<'_, str> {
    Cow::Owned(path.replace("%2F", "/"))
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
        let mut buffer = String::new();
        let checked = check_target(target, &mut buffer);
        checked.map_or(Ok(target), |checked| checked.form(rule)).ok().map(str::to_owned)
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
            "/pub/x%2F..%2fadmin",
            "/pub/.%2f/admin",
            "/a%2F..;x%2Fadmin",
            "/a%2F;/admin",
            "/a%2F%252e%2Fadmin",
            "/a%2F%5Cadmin",
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
    fn an_encoded_slash_is_forwarded_if_both_interpretations_have_the_same_route() {
        let forwarded = |target: &str, rule| {
            let mut buffer = String::new();
            let checked = check_target(target, &mut buffer).unwrap();
            // One route for all that is below /api, another one for the rest.
            let pick = |target: &str| Some(usize::from(!split_target(target).0.starts_with("/api/")));
            checked.forwarded(rule, pick(checked.normal), pick).map(str::to_owned)
        };
        let same = [
            ("/api/v4/projects/group%2fproj", "/api/v4/projects/group%2Fproj"),
            ("/@scope%2Fpkg?a=%2f", "/@scope%2Fpkg?a=%2f"),
            ("/api/queues/%2F/q", "/api/queues/%2F/q"),
            ("http://h/api/a%2Fb", "http://h/api/a%2Fb"),
            ("/api/x%2F", "/api/x%2F"),
            ("/api/a.%2F.b", "/api/a.%2F.b"),
        ];
        for (target, expected) in same {
            assert_eq!(forwarded(target, PathRule::Normalise).as_deref(), Ok(expected), "{target}");
            assert_eq!(forwarded(target, PathRule::Raw).as_deref(), Ok(target), "{target}");
            assert_eq!(forwarded(target, PathRule::Strict), Err(RefusalKind::AmbiguousPath), "{target}");
        }
        for other in ["/api%2Fx", "/api%2f%2fx?y", "http://h/api%2Fx", "/%61pi%2Fx"] {
            assert_eq!(forwarded(other, PathRule::Normalise), Err(RefusalKind::EncodedSlash), "{other}");
            assert_eq!(forwarded(other, PathRule::Raw).as_deref(), Ok(other), "{other}");
        }
        assert_eq!(forwarded("/api/..%2Fx", PathRule::Normalise), Err(RefusalKind::AmbiguousPath));
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
