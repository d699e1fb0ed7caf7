//! Splits a request target, and computes the forms of its path and its host for matching.
//! `proxy::route::rewrite` determines the forwarded target; nothing here decides about routes.

/// Returns the path and the query (with its `?`, or empty) of a target.
///
/// For an absolute-form target they are the part after the authority, with `/` for an empty path.
/// The path of `*` and of an authority-form target is the target itself.
#[inline]
pub fn split_target(target: &str) -> (&str, &str) {
    let path_and_query = if target.starts_with('/') { target } else { after_authority(target) };
    match memchr::memchr(b'?', path_and_query.as_bytes()) {
        Some(0) => ("/", path_and_query),
        Some(at) => path_and_query.split_at(at),
        None if path_and_query.is_empty() => ("/", ""),
        None => (path_and_query, ""),
    }
}

/// Returns the part after `http://authority`; any other text unchanged.
#[cold]
fn after_authority(target: &str) -> &str {
    match target.split_once("://") {
        Some((scheme, rest))
            if scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https") =>
        {
            &rest[rest.find(['/', '?']).unwrap_or(rest.len())..]
        }
        _ => target,
    }
}

/// Returns the path for matching: percent-encoded unreserved characters are decoded, other triplets
/// are in upper case, and a stray `%` becomes `%25`. Dot segments are removed (RFC 3986 §5.2.4 and
/// §6.2.2), then empty segments. A path that does not start with `/` is unchanged.
///
/// `buffer` is only written to if the path is not normal already.
#[inline]
pub fn normalise<'a>(path: &'a str, buffer: &'a mut String) -> &'a str {
    if is_normal(path) {
        return path;
    }
    buffer.clear();
    normalise_into(path, buffer);
    merge_slashes(buffer);
    buffer
}

/// Returns whether a path is certainly in its normal form. It may miss some: `/.well-known` is
/// normal, but reported as not.
///
/// Without an early exit, so that the compiler processes sixteen bytes at once.
#[inline]
pub fn is_normal(path: &str) -> bool {
    let path = path.as_bytes();
    let Some(rest) = path.get(1..) else {
        return true;
    };
    let suspicious = path.iter().zip(rest).fold(0, |bad, (&first, &second)| {
        let is_suspicious = u8::from(second == b'/') | u8::from(second == b'.');
        bad | (u8::from(first == b'/') & is_suspicious) | u8::from(second == b'%')
    });
    suspicious == 0 || path[0] != b'/'
}

/// Appends the normal form of a path that starts with `/`, by RFC 3986: empty segments count as
/// segments, so `/a//../b` becomes `/a/b`.
#[inline]
pub fn normalise_into(path: &str, out: &mut String) {
    let start = out.len();
    let mut ends_in_dots = false;
    for segment in path.split('/').skip(1) {
        let segment_start = out.len();
        out.push('/');
        decode_unreserved(segment, out);
        ends_in_dots = matches!(&out[segment_start + 1..], "." | "..");
        if ends_in_dots {
            let is_parent = out.len() - segment_start == 3;
            out.truncate(segment_start);
            if is_parent {
                let parent = out[start..].rfind('/').unwrap_or(0);
                out.truncate(start + parent);
            }
        }
    }
    if ends_in_dots || out.len() == start {
        out.push('/');
    }
}

/// Removes empty segments.
#[inline]
fn merge_slashes(path: &mut String) {
    let mut previous = None;
    path.retain(|byte| {
        let is_kept = byte != '/' || previous != Some('/');
        previous = Some(byte);
        is_kept
    });
}

/// Returns a normal path without its parameters (`;…` up to the end of a segment), which some
/// servers ignore. A path without parameters is returned as it is.
#[inline]
pub fn without_parameters<'a>(path: &'a str, buffer: &'a mut String) -> &'a str {
    if memchr::memchr(b';', path.as_bytes()).is_none() {
        return path;
    }
    let mut stripped = String::with_capacity(path.len());
    for segment in path.split('/').skip(1) {
        stripped.push('/');
        stripped.push_str(segment.split(';').next().unwrap_or_default());
    }
    // The remainder of `..;x` is a dot segment.
    buffer.clear();
    normalise_into(&stripped, buffer);
    merge_slashes(buffer);
    buffer
}

/// Returns the rest of `path` below `prefix`: empty, or starting with `/`. Empty segments and
/// parameters of the path are ignored, as in matching; those of the rest are kept.
#[inline]
pub fn strip_prefix_segments<'a>(path: &'a str, prefix: &str) -> Option<&'a str> {
    let mut rest = path;
    for prefix_segment in prefix.trim_end_matches('/').split('/').skip(1) {
        loop {
            let inner = rest.strip_prefix('/')?;
            let end = memchr::memchr(b'/', inner.as_bytes()).unwrap_or(inner.len());
            let (segment, after) = inner.split_at(end);
            let segment_name = segment.split(';').next().unwrap_or_default();
            rest = after;
            if segment == prefix_segment || segment_name == prefix_segment {
                break;
            }
            if !segment_name.is_empty() {
                return None;
            }
        }
    }
    let is_below = !rest.is_empty() || !prefix.ends_with('/');
    let empty = rest.bytes().take_while(|&byte| byte == b'/').count().saturating_sub(1);
    is_below.then_some(&rest[empty..])
}

/// Appends `text` with each triplet of an unreserved character decoded and any other in upper case.
/// A `%` that starts no triplet becomes `%25`; otherwise it could form one with the following text.
#[inline]
fn decode_unreserved(mut text: &str, out: &mut String) {
    while let Some(at) = memchr::memchr(b'%', text.as_bytes()) {
        out.push_str(&text[..at]);
        let Some(byte) = decode_triplet(&text.as_bytes()[at..]) else {
            out.push_str("%25");
            text = &text[at + 1..];
            continue;
        };
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.extend(text[at..at + 3].chars().map(|digit| digit.to_ascii_uppercase()));
        }
        text = &text[at + 3..];
    }
    out.push_str(text);
}

/// Decodes `%XX` at the start of `text`.
#[inline]
pub fn decode_triplet(text: &[u8]) -> Option<u8> {
    let &[b'%', high, low, ..] = text else {
        return None;
    };
    let digit = |byte: u8| char::from(byte).to_digit(16);
    u8::try_from(digit(high)? * 16 + digit(low)?).ok()
}

/// Returns whether `path` is `prefix` or lies below it. `/` is above everything, including `*` and
/// `host:port`.
#[inline]
pub fn is_below(path: &str, prefix: &str) -> bool {
    if prefix == "/" {
        return true;
    }
    match path.strip_prefix(prefix) {
        Some(rest) => rest.is_empty() || rest.starts_with('/') || prefix.ends_with('/'),
        None => false,
    }
}

/// Returns a host in the form for comparison: lower case, without the port and the final dot.
///
/// `buffer` is only written to if there is upper case.
#[inline]
pub fn normalise_host<'a>(host: &'a str, buffer: &'a mut String) -> &'a str {
    let host = without_port(host);
    let host = host.strip_suffix('.').unwrap_or(host);
    // No `any`: without an early end it takes a few vector instructions.
    if host.bytes().fold(0, |count, byte| count + u32::from(byte.is_ascii_uppercase())) == 0 {
        return host;
    }
    buffer.clear();
    buffer.push_str(host);
    buffer.make_ascii_lowercase();
    buffer
}

/// Returns an authority without its port: `[::1]` for `[::1]:80`.
#[inline]
pub fn without_port(authority: &str) -> &str {
    // Authorities are short, and most have the port at their end.
    match authority.bytes().rposition(|byte| byte == b':' || byte == b']') {
        Some(at) if authority.as_bytes()[at] == b':' => &authority[..at],
        _ => authority,
    }
}

/// Returns whether a name in lower case matches a host, or one like `*.example.org`.
#[inline]
pub fn matches_host_pattern(expected: &str, host: &str) -> bool {
    match expected.strip_prefix('*') {
        Some(suffix) => host.len() > suffix.len() && host.ends_with(suffix),
        None => host == expected,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn normalised(path: &str) -> String {
        normalise(path, &mut String::new()).to_owned()
    }

    #[test]
    fn tricky_paths_have_one_form() {
        let table = [
            ("/", "/"),
            ("/a", "/a"),
            ("/a/", "/a/"),
            ("//", "/"),
            ("//a///b//", "/a/b/"),
            ("//..", "/"),
            ("/admin//../x", "/admin/x"),
            ("/a/b/c/./../../g", "/a/g"),
            ("/..", "/"),
            ("/../../a", "/a"),
            ("/a/..", "/"),
            ("/a/../", "/"),
            ("/a/.", "/a/"),
            ("/a/./", "/a/"),
            ("/a//../b", "/a/b"),
            ("/%2e%2E/a", "/a"),
            ("/a/.%2e/b", "/b"),
            ("/a/%2e%2e%2fb", "/a/..%2Fb"),
            ("/a%2fb", "/a%2Fb"),
            ("/a%5cb", "/a%5Cb"),
            ("/%41%7e%2D", "/A~-"),
            ("/%20", "/%20"),
            ("/%", "/%25"),
            ("/%4", "/%254"),
            ("/%%34%31", "/%2541"),
            ("/%zz", "/%25zz"),
            ("/...", "/..."),
            ("/.well-known/x", "/.well-known/x"),
            ("/a.b/c..d", "/a.b/c..d"),
            ("*", "*"),
            ("a:80", "a:80"),
        ];
        for (path, expected) in table {
            assert_eq!(normalised(path), expected, "{path}");
        }
    }

    #[test]
    fn a_normal_path_is_not_copied() {
        for path in ["/", "/a/b.c", "/a-b_c~d", "/x:y@z/;p=1", ""] {
            let mut buffer = String::new();
            assert_eq!(normalise(path, &mut buffer), path);
            assert!(buffer.is_empty() && buffer.capacity() == 0, "{path}");
        }
    }

    #[test]
    fn the_normal_form_is_normal() {
        let alphabet = ["/", "/", ".", "..", "%", "%2e", "%2F", "%25", "4", "1", "a", "%41", "é"];
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..20_000 {
            let mut path = String::from("/");
            for _ in 0..random.usize(0..12) {
                path.push_str(alphabet[random.usize(0..alphabet.len())]);
            }
            let normal_form = normalised(&path);
            assert_eq!(normalised(&normal_form), normal_form, "{path}");
            assert!(normal_form.starts_with('/') && !normal_form.contains("//"), "{path}");
            assert!(!normal_form.split('/').any(|part| part == "." || part == ".."), "{path}: {normal_form}");
        }
    }

    #[test]
    fn every_form_of_a_target_is_taken_apart() {
        let table = [
            ("/a?b=c?d", ("/a", "?b=c?d")),
            ("/", ("/", "")),
            ("http://h", ("/", "")),
            ("HTTPS://h:1/a/b?c", ("/a/b", "?c")),
            ("http://h?c", ("/", "?c")),
            ("*", ("*", "")),
            ("h:443", ("h:443", "")),
            ("/x?u=http://y/", ("/x", "?u=http://y/")),
        ];
        for (target, expected) in table {
            assert_eq!(split_target(target), expected, "{target}");
        }
    }

    #[test]
    fn a_prefix_ends_at_a_segment() {
        let below = [("/api", "/api"), ("/api/x", "/api"), ("/api/", "/api/"), ("/api/x", "/api/")];
        assert!(below.iter().all(|(path, prefix)| is_below(path, prefix)));
        let not_below = [("/apix", "/api"), ("/ap", "/api"), ("/api", "/api/"), ("/x/api", "/api")];
        assert!(!not_below.iter().any(|(path, prefix)| is_below(path, prefix)));
        assert!(is_below("*", "/") && is_below("/x", "/"));
    }

    #[test]
    fn parameters_and_empty_segments_do_not_count() {
        let strip = |path: &str| without_parameters(path, &mut String::new()).to_owned();
        let table = [
            ("/a/b", "/a/b"),
            ("/a;x=1/b;y", "/a/b"),
            ("/;/admin", "/admin"),
            ("/a/..;/b", "/b"),
            ("/a/;x/", "/a/"),
        ];
        for (path, expected) in table {
            assert_eq!(strip(path), expected, "{path}");
        }
        let rests = [
            ("/api/x", "/api", Some("/x")),
            ("/api", "/api", Some("")),
            ("/api", "/api/", None),
            ("/api/", "/api/", Some("/")),
            ("//api//x//y", "/api", Some("/x//y")),
            ("/api;v=1/x;y", "/api", Some("/x;y")),
            ("/apix", "/api", None),
            ("/a/b", "/a/b/c", None),
            ("//a//b", "/", Some("/a//b")),
        ];
        for (path, prefix, expected) in rests {
            assert_eq!(strip_prefix_segments(path, prefix), expected, "{path} below {prefix}");
        }
    }

    #[test]
    fn hosts_are_compared_bare() {
        let table = [
            ("Example.ORG:8080", "example.org"),
            ("example.org.", "example.org"),
            ("a.:80", "a"),
            ("[::1]:80", "[::1]"),
            ("[::A]", "[::a]"),
            ("", ""),
        ];
        for (host, expected) in table {
            assert_eq!(normalise_host(host, &mut String::new()), expected, "{host}");
        }
    }
}
