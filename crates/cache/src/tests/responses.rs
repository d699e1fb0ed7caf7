//! Stored heads, answers to conditions and ranges, and invalidation.

use super::*;

#[test]
fn heads_keep_only_fields_of_the_content() {
    let head = StoredHead::new(
        200,
        &headers(&[
            ("Content-Type", "text/plain"),
            ("Connection", "X-Hop, close"),
            ("X-Hop", "1"),
            ("Keep-Alive", "timeout=5"),
            ("Transfer-Encoding", "chunked"),
            ("Content-Length", "5"),
            ("Age", "3"),
            ("Set-Cookie", "a=b"),
            ("Proxy-Authenticate", "Basic"),
            ("Cache-Control", "no-cache=\"X-Private, x-other\", max-age=1"),
            ("X-Private", "1"),
            ("x-other", "1"),
            ("X-Kept", "a: b"),
            ("X-Empty", ""),
        ]),
    );
    let names: Vec<&str> = head.fields().map(|(name, _)| name).collect();
    assert_eq!(names, ["Content-Type", "Cache-Control", "X-Kept", "X-Empty"]);
    assert_eq!(head.get("x-kept"), Some(&b"a: b"[..]));
    assert_eq!(head.get("x-empty"), Some(&b""[..]));
    assert!(head.field_lines().ends_with(b"X-Kept: a: b\r\nX-Empty: \r\n"));
}

#[test]
fn a_304_replaces_fields_but_not_those_of_the_content() {
    let head = StoredHead::new(
        200,
        &headers(&[
            ("Content-Type", "text/plain"),
            ("X-A", "1"),
            ("X-A", "2"),
            ("ETag", "\"a\""),
            ("X-B", "1"),
        ]),
    );
    let updated = head.update_by_304(&headers(&[
        ("Content-Type", "text/html"),
        ("Content-Length", "0"),
        ("x-a", "3"),
        ("Connection", "X-B"),
        ("X-B", "2"),
        ("X-C", "4"),
    ]));
    let fields: Vec<_> =
        updated.fields().map(|(name, value)| (name, String::from_utf8_lossy(value))).collect();
    let expected =
        [("Content-Type", "text/plain"), ("ETag", "\"a\""), ("X-B", "1"), ("x-a", "3"), ("X-C", "4")];
    assert_eq!(fields, expected.map(|(name, value)| (name, value.into())));
    assert_eq!(updated.status(), 200);
}

#[test]
fn a_stored_response_answers_conditions_and_ranges() {
    let cache = cache(MIB);
    let object = store(
        &cache,
        "k",
        &[("Cache-Control", "max-age=60"), ("ETag", "\"a\""), ("Last-Modified", DATE)],
        b"0123456789",
    );
    let later = NOW.plus_seconds(100);
    let part = |start, end, text: &str| StoredAnswer::Part {
        range: content::ranges::ByteRange { start, end },
        content_range: text.to_owned(),
    };
    for (fields, expected) in [
        (&[][..], StoredAnswer::Complete),
        (&[("If-None-Match", "\"a\"")], StoredAnswer::NotModified),
        (&[("If-None-Match", "W/\"a\"")], StoredAnswer::NotModified),
        (&[("If-None-Match", "\"b\"")], StoredAnswer::Complete),
        (&[("If-Modified-Since", DATE)], StoredAnswer::NotModified),
        (&[("If-Match", "\"b\"")], StoredAnswer::PreconditionFailed),
        (&[("Range", "bytes=2-4")], part(2, 5, "bytes 2-4/10")),
        (&[("Range", "bytes=-3")], part(7, 10, "bytes 7-9/10")),
        (&[("Range", "bytes=10-")], StoredAnswer::Unsatisfiable { content_range: "bytes */10".to_owned() }),
        (&[("Range", "bytes=0-1,4-5")], StoredAnswer::Complete),
        (&[("Range", "bytes=2-4"), ("If-Range", "\"a\"")], part(2, 5, "bytes 2-4/10")),
        (&[("Range", "bytes=2-4"), ("If-Range", "\"b\"")], StoredAnswer::Complete),
        (&[("Range", "bytes=2-4"), ("If-None-Match", "\"a\"")], StoredAnswer::NotModified),
    ] {
        assert_eq!(answer(&object, "GET", &headers(fields), later), expected, "{fields:?}");
    }
    assert_eq!(answer(&object, "HEAD", &headers(&[("Range", "bytes=2-4")]), later), StoredAnswer::Complete);
    // Without Last-Modified, the date of the response counts for If-Modified-Since only.
    let dated = store(&cache, "d", &[("Cache-Control", "max-age=60"), ("Date", DATE)], b"0123456789");
    let earlier = "Sun, 06 Nov 1994 08:49:36 GMT";
    for (fields, expected) in [
        (&[("If-Modified-Since", DATE)][..], StoredAnswer::NotModified),
        (&[("If-Modified-Since", earlier)], StoredAnswer::Complete),
        (&[("If-Unmodified-Since", earlier)], StoredAnswer::Complete),
        (&[("Range", "bytes=2-4"), ("If-Range", DATE)], StoredAnswer::Complete),
        (&[("Range", "bytes=2-4")], part(2, 5, "bytes 2-4/10")),
    ] {
        assert_eq!(answer(&dated, "GET", &headers(fields), later), expected, "{fields:?}");
    }
    let ranged =
        store(&cache, "r", &[("Cache-Control", "max-age=60"), ("Content-Range", "bytes 0-1/2")], b"0123");
    assert_eq!(answer(&ranged, "GET", &headers(&[("Range", "bytes=2-3")]), later), StoredAnswer::Complete);
    let fields: Vec<_> = validation_fields(object.storable()).collect();
    assert_eq!(fields, [("If-None-Match", &b"\"a\""[..]), ("If-Modified-Since", DATE.as_bytes())]);
}

#[test]
fn unsafe_methods_invalidate_targets_of_their_origin() {
    for (method, status, expected) in [
        ("POST", 200, true),
        ("DELETE", 302, true),
        ("PUT", 404, false),
        ("GET", 200, false),
        ("OPTIONS", 200, false),
    ] {
        assert_eq!(invalidates(CacheMethod::of(method), status), expected, "{method} {status}");
    }
    for (location, expected) in [
        ("/a?b", Some("/a?b")),
        ("http://a.example/b", Some("/b")),
        ("http://A.example:80/b#c", Some("/b")),
        ("http://a.example", Some("/")),
        ("//a.example/c", Some("/c")),
        ("https://a.example/b", None),
        ("http://b.example/b", None),
        ("http://a.example:8080/b", None),
        ("http://a.example.evil.example/b", None),
        ("relative", None),
        ("", None),
    ] {
        let fields = headers(&[("Location", location)]);
        let targets: Vec<_> = invalidated_targets(&fields, "http", "a.example").collect();
        assert_eq!(targets, expected.into_iter().collect::<Vec<_>>(), "{location}");
    }
}
