//! Decisions and heads by requests, responses and plans.

use super::*;
use crate::request_view::fixtures::FORWARDING;

const GZIP: CodingDecision = CodingDecision::Coded(Coding::Gzip);

fn plan() -> CompressionPlan {
    CompressionPlan {
        codings: vec![Coding::Zstd, Coding::Gzip],
        levels: [4, 3, 6],
        types: None,
        bytes_min: 100,
        encoder_bytes_max: 1 << 20,
        with_credentials: false,
        decodes: false,
    }
}

fn coding_request(fields: &str) -> CodingRequest {
    let bytes = format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
    let mut slots = wire::header_slots();
    let parsed = wire::parse_request(bytes.as_bytes(), &wire::Limits::default(), &mut slots).unwrap();
    let wire::Parsed::Complete { head, .. } = parsed else { panic!("incomplete") };
    let view = RequestView { head: &head, is_trusted: false, forwarding: &FORWARDING, certificate: None };
    CodingRequest::of(&view)
}

fn with_head<R>(bytes: &str, kind: RequestKind, use_head: impl FnOnce(&ResponseHead<'_, '_>) -> R) -> R {
    let mut slots = wire::header_slots();
    let parsed = wire::parse_response(bytes.as_bytes(), &wire::Limits::default(), kind, &mut slots);
    let wire::Parsed::Complete { head, .. } = parsed.unwrap() else { panic!("incomplete") };
    use_head(&head)
}

fn decide_as(request: &str, status: u16, fields: &str, kind: RequestKind) -> CodingDecision {
    let response = format!("HTTP/1.1 {status} X\r\n{fields}\r\n");
    let request = coding_request(request);
    with_head(&response, kind, |head| decide(head, (kind, Version::Http11), request, &plan()))
}

const ACCEPTS: &str = "Accept-Encoding: gzip\r\n";
const HTML: &str = "Content-Type: text/html; charset=utf-8\r\nContent-Length: 100\r\n";

#[test]
fn only_content_that_may_change_gets_a_coding() {
    use CodingDecision::{Unchanged, Varies};
    let chunked = "Content-Type: Text/HTML\r\nTransfer-Encoding: chunked\r\n";
    for (request, status, fields, expected) in [
        (ACCEPTS, 200, HTML, GZIP),
        (ACCEPTS, 404, HTML, GZIP),
        (ACCEPTS, 200, chunked, GZIP),
        (ACCEPTS, 200, "Content-Type: text/html\r\n", GZIP),
        ("", 200, HTML, Varies),
        ("Accept-Encoding: br\r\n", 200, HTML, Varies),
        ("Accept-Encoding: gzip;q=0, *\r\n", 200, HTML, CodingDecision::Coded(Coding::Zstd)),
        ("Accept-Encoding: gzip, zstd;q=0.9\r\n", 200, HTML, GZIP),
        ("Accept-Encoding: gzip, identity;q=0.5\r\nCache-Control: No-Transform\r\n", 200, HTML, Varies),
        (ACCEPTS, 200, "Content-Type: text/html\r\nContent-Length: 99\r\n", Unchanged),
        (ACCEPTS, 200, "Content-Type: image/png\r\nContent-Length: 100\r\n", Unchanged),
        (ACCEPTS, 200, "Content-Length: 100\r\n", Unchanged),
        (ACCEPTS, 206, HTML, Unchanged),
        (ACCEPTS, 205, "Content-Type: text/html\r\nContent-Length: 0\r\n", Unchanged),
        (ACCEPTS, 204, "Content-Type: text/html\r\n", Unchanged),
        (ACCEPTS, 304, "", Varies),
    ] {
        assert_eq!(decide_as(request, status, fields, RequestKind::Other), expected, "{request}{fields}");
    }
    for field in
        ["Content-Encoding: br", "Cache-Control: max-age=1, no-transform", "Content-Range: bytes 0-1/2"]
    {
        let fields = format!("{HTML}{field}\r\n");
        assert_eq!(decide_as(ACCEPTS, 200, &fields, RequestKind::Other), Unchanged, "{field}");
    }
    assert_eq!(decide_as(ACCEPTS, 200, HTML, RequestKind::Head), GZIP);
    assert_eq!(decide_as(ACCEPTS, 200, "Content-Type: text/html\r\n", RequestKind::Head), GZIP);
    let short = "Content-Type: text/html\r\nContent-Length: 9\r\n";
    assert_eq!(decide_as(ACCEPTS, 200, short, RequestKind::Head), Unchanged);
    let old = with_head(&format!("HTTP/1.1 200 X\r\n{HTML}\r\n"), RequestKind::Other, |head| {
        decide(head, (RequestKind::Other, Version::Http10), coding_request(ACCEPTS), &plan())
    });
    assert_eq!(old, Varies);
}

#[test]
fn what_may_repeat_a_secret_has_no_coding() {
    let json = "Content-Type: application/json\r\nContent-Length: 100\r\n";
    let style = "Content-Type: text/css\r\nContent-Length: 100\r\n";
    let image = "Content-Type: image/svg+xml\r\nContent-Length: 100\r\n";
    for field in ["Cookie: a=b", "Authorization: Bearer x"] {
        let request = format!("{ACCEPTS}{field}\r\n");
        for (fields, expected) in
            [(HTML, CodingDecision::Varies), (json, CodingDecision::Varies), (style, GZIP), (image, GZIP)]
        {
            assert_eq!(decide_as(&request, 200, fields, RequestKind::Other), expected, "{field} {fields}");
        }
        let allowed = CompressionPlan { with_credentials: true, ..plan() };
        let decision = with_head(&format!("HTTP/1.1 200 X\r\n{json}\r\n"), RequestKind::Other, |head| {
            decide(head, (RequestKind::Other, Version::Http11), coding_request(&request), &allowed)
        });
        assert_eq!(decision, GZIP);
    }
}

#[test]
fn content_is_decoded_only_for_a_client_that_does_not_accept_its_coding() {
    use CodingDecision::{Decoded, Unchanged, Varies};
    let plan = CompressionPlan { decodes: true, ..plan() };
    let decide_coded = |request: &str, fields: &str, kind| {
        let response = format!("HTTP/1.1 200 X\r\nContent-Length: 9\r\n{fields}\r\n");
        let request = coding_request(request);
        with_head(&response, kind, |head| decide(head, (kind, Version::Http11), request, &plan))
    };
    let coded = "Content-Encoding: X-Gzip\r\n";
    for (request, fields, expected) in [
        ("", coded, Decoded(Coding::Gzip)),
        ("Accept-Encoding: br\r\n", coded, Decoded(Coding::Gzip)),
        ("Accept-Encoding: gzip;q=0\r\n", coded, Decoded(Coding::Gzip)),
        ("Accept-Encoding: gzip\r\n", coded, Varies),
        ("Accept-Encoding: *\r\n", coded, Varies),
        ("Accept-Encoding: br, identity;q=0\r\n", coded, Varies),
        ("Cache-Control: no-transform\r\n", coded, Varies),
        ("", "Content-Encoding: br\r\n", Decoded(Coding::Brotli)),
        ("", "Content-Encoding: deflate\r\n", Unchanged),
        ("", "Content-Encoding: gzip, br\r\n", Unchanged),
        ("", "Content-Encoding: gzip\r\nContent-Encoding: br\r\n", Unchanged),
        ("", "Content-Encoding: gzip\r\nCache-Control: no-transform\r\n", Unchanged),
    ] {
        assert_eq!(decide_coded(request, fields, RequestKind::Other), expected, "{request}{fields}");
    }
    assert_eq!(decide_coded("", coded, RequestKind::Head), Decoded(Coding::Gzip));
    let fields = "Content-Length: 9\r\nContent-Encoding: gzip\r\nETag: \"a\"\r\nX-A: 1\r\n";
    let expected = "ETag: W/\"a\"\nX-A: 1\nVary: Accept-Encoding\n";
    assert_eq!(fields_of(200, fields, "", Decoded(Coding::Gzip)), expected);
}

/// Returns the fields of a response as its client gets them, in lines.
fn fields_of(status: u16, fields: &str, request: &str, decision: CodingDecision) -> String {
    let response = format!("HTTP/1.1 {status} X\r\n{fields}\r\n");
    with_head(&response, RequestKind::Other, |head| {
        let tag = response_tag(head, decision, coding_request(request));
        let line =
            |header: &Header<'_>| format!("{}: {}\n", header.name, String::from_utf8_lossy(header.value));
        response_fields(head, decision, tag.as_deref()).iter().map(line).collect()
    })
}

#[test]
fn fields_of_the_bytes_go_with_them() {
    let fields = "Content-Type: text/html\r\nContent-Length: 0\r\nETag: \"a\"\r\nAccept-Ranges: bytes\r\n\
                  Content-MD5: x\r\nDigest: x\r\nContent-Digest: x\r\nRepr-Digest: x\r\nVary: Origin\r\n";
    let expected = "Content-Type: text/html\nETag: W/\"a\"\nVary: Origin\nContent-Encoding: gzip\n\
                    Vary: Accept-Encoding\n";
    assert_eq!(fields_of(200, fields, "", GZIP), expected);
    let weak = "ETag: W/\"a\"\r\nVary: *\r\n";
    assert_eq!(fields_of(200, weak, "", GZIP), "ETag: W/\"a\"\nVary: *\nContent-Encoding: gzip\n");
    let listed = "Content-Length: 0\r\nETag: \"a\"\r\nVary: origin, accept-encoding\r\n";
    let same = "Content-Length: 0\nETag: \"a\"\nVary: origin, accept-encoding\n";
    assert_eq!(fields_of(200, listed, "", CodingDecision::Varies), same);
}

#[test]
fn a_client_that_knows_the_weak_tag_gets_it_again() {
    let known = "If-None-Match: W/\"a\"\r\n";
    let not_modified = fields_of(304, "ETag: \"a\"\r\n", known, CodingDecision::Varies);
    assert_eq!(not_modified, "ETag: W/\"a\"\nVary: Accept-Encoding\n");
    let strong = fields_of(304, "ETag: \"a\"\r\n", "If-None-Match: \"a\"\r\n", CodingDecision::Varies);
    assert_eq!(strong, "ETag: \"a\"\nVary: Accept-Encoding\n");
    let headers = [
        Header { name: "Host", value: b"a" },
        Header { name: "If-None-Match", value: b"W/\"a\", \"b\"" },
        Header { name: "if-none-match", value: b"\"c\"" },
    ];
    let request = coding_request(known);
    assert_eq!(request.forwarded_tags(&headers), Some(vec![(1, b"W/\"a\", \"a\", \"b\"".to_vec())]));
    assert_eq!(coding_request("").forwarded_tags(&headers), None);
}
