//! Response vectors: each is fed complete, cut at every byte, and with other bytes after it.

use super::*;

/// Checks one response against its result in one line: a refusal as its code, a head as `version
/// status framing persistence`.
#[track_caller]
fn check(kind: RequestKind, bytes: impl AsRef<[u8]>, expect: &str) {
    let bytes = bytes.as_ref();
    let shown = String::from_utf8_lossy(bytes).into_owned();
    assert_eq!(line(kind, bytes), expect, "{shown:?}");
    for at in 0..bytes.len() {
        let part = line(kind, &bytes[..at]);
        assert!(part == "incomplete" || part == expect, "{shown:?} at {at}: {part}");
    }
    if expect != "incomplete" {
        let longer = [bytes, b"\r\n\r\nHTTP/1.1 200 OK\r\n\r\n"].concat();
        assert_eq!(line(kind, &longer), expect, "{shown:?} and more");
    }
    crate::fuzzing::response_head(bytes);
}

fn line(kind: RequestKind, bytes: &[u8]) -> String {
    let mut slots = header_slots();
    match parse_response(bytes, &Limits::default(), kind, &mut slots) {
        Ok(Parsed::Incomplete) => "incomplete".to_owned(),
        Ok(Parsed::Complete { head, .. }) => render(&head),
        Err(refusal) => {
            assert_eq!(refusal.status(), 502);
            refusal.kind().code().to_owned()
        }
    }
}

fn render(head: &ResponseHead<'_, '_>) -> String {
    let version = if head.version == Version::Http11 { "1.1" } else { "1.0" };
    let framing = match head.framing {
        Framing::None => "none".to_owned(),
        Framing::Length(length) => length.to_string(),
        Framing::Chunked => "chunked".to_owned(),
        Framing::UntilClose => "until_close".to_owned(),
    };
    let persistence = if head.keep_alive { "keep" } else { "close" };
    let mut text = format!("{version} {} {framing} {persistence}", head.status);
    if let Some(protocol) = head.upgrade {
        text.push_str(&format!(" upgrade={protocol}"));
    }
    text
}

#[test]
fn status_lines() {
    for (bytes, expect) in [
        ("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "1.1 200 0 keep"),
        ("HTTP/1.1 200 \r\nContent-Length: 0\r\n\r\n", "1.1 200 0 keep"),
        ("HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n", "1.1 200 0 keep"),
        ("HTTP/1.1 200 a\tb  \u{e9}!\r\nContent-Length: 0\r\n\r\n", "1.1 200 0 keep"),
        ("HTTP/1.1 999 x\r\nContent-Length: 0\r\n\r\n", "1.1 999 0 keep"),
        ("HTTP/1.1 099 x\r\nContent-Length: 0\r\n\r\n", "invalid_status_line"),
        ("HTTP/1.1 000 x\r\nContent-Length: 0\r\n\r\n", "invalid_status_line"),
        ("HTTP/1.1 20 OK\r\n\r\n", "invalid_status_line"),
        ("HTTP/1.1 2000 OK\r\n\r\n", "invalid_status_line"),
        ("HTTP/1.1 2x0 OK\r\n\r\n", "invalid_status_line"),
        ("HTTP/1.1 +20 OK\r\n\r\n", "invalid_status_line"),
        ("HTTP/1.1  200 OK\r\n\r\n", "invalid_status_line"),
        ("HTTP/1.1\t200 OK\r\n\r\n", "invalid_status_line"),
        ("HTTP/1.1 200\tOK\r\n\r\n", "invalid_status_line"),
        ("HTTP/1.1 200 a\0\r\n\r\n", "invalid_status_line"),
        ("HTTP/1.1\r\n\r\n", "invalid_status_line"),
        ("\r\nHTTP/1.1 200 OK\r\n\r\n", "invalid_status_line"),
        ("\nHTTP/1.1 200 OK\r\n\r\n", "invalid_status_line"),
        ("HTTP/2.0 200 OK\r\n\r\n", "unsupported_version"),
        ("HTTP/1.2 200 OK\r\n\r\n", "unsupported_version"),
        ("http/1.1 200 OK\r\n\r\n", "invalid_version"),
        ("ICY 200 OK\r\n\r\n", "invalid_version"),
        ("200 OK\r\n\r\n", "invalid_version"),
        ("HTTP/1.1 200 OK\n\r\n", "bare_lf"),
        ("HTTP/1.1 200\n\r\n", "bare_lf"),
        ("HTTP/1.1 200 OK\r\n\n", "bare_lf"),
        ("HTTP/1.1 200 OK\r\nX: y\n\r\n", "bare_lf"),
        ("HTTP/1.1 200 OK\rX\r\n\r\n", "bare_cr"),
        ("HTTP/1.1 200\rX\r\n\r\n", "bare_cr"),
        ("HTTP/1.1 200 OK\r\nX: y\rz\r\n\r\n", "bare_cr"),
        ("HTTP/1.1 200 OK\r\nX : y\r\n\r\n", "space_in_field_name"),
        ("HTTP/1.1 200 OK\r\nX: y\r\n z\r\n\r\n", "obs_fold"),
        ("HTTP/1.1 200 OK\r\nX: \0\r\n\r\n", "invalid_field_value"),
        ("HTTP/1.1 200 OK\r\n: y\r\n\r\n", "empty_field_name"),
        ("HTTP/1.1 200 OK\r\nX\r\n\r\n", "invalid_field_name"),
        ("HTTP/1.1 200 OK\r\nX: y\r\n", "incomplete"),
    ] {
        check(RequestKind::Other, bytes, expect);
    }
}

#[test]
fn framings() {
    for (lines, expect) in [
        ("", "1.1 200 until_close close"),
        ("Connection: keep-alive\r\n", "1.1 200 until_close close"),
        ("Content-Length: 12\r\n", "1.1 200 12 keep"),
        ("Transfer-Encoding: chunked\r\n", "1.1 200 chunked keep"),
        ("Transfer-Encoding: chunked\r\nConnection: close\r\n", "1.1 200 chunked close"),
        ("Content-Length: 1\r\nConnection: keep-alive, close\r\n", "1.1 200 1 close"),
        // Neither is relevant in a response.
        ("Content-Length: 1\r\nHost: a\r\nHost: b/\r\nExpect: x\r\n", "1.1 200 1 keep"),
        ("Content-Length: 1\r\nContent-Length: 1\r\n", "content_length_repeated"),
        ("Content-Length: 1, 1\r\n", "content_length_repeated"),
        ("Content-Length: -1\r\n", "content_length_invalid"),
        ("Content-Length: 1\r\nTransfer-Encoding: chunked\r\n", "framing_conflict"),
        ("Transfer-Encoding: gzip\r\n", "transfer_encoding_invalid"),
        ("Transfer-Encoding: gzip, chunked\r\n", "transfer_encoding_unsupported"),
        ("Transfer-Encoding: chunked, chunked\r\n", "transfer_encoding_invalid"),
    ] {
        check(RequestKind::Other, format!("HTTP/1.1 200 OK\r\n{lines}\r\n"), expect);
    }
    for (lines, expect) in [
        ("", "1.0 200 until_close close"),
        ("Content-Length: 12\r\n", "1.0 200 12 close"),
        ("Content-Length: 12\r\nConnection: Keep-Alive\r\n", "1.0 200 12 keep"),
        ("Connection: Keep-Alive\r\n", "1.0 200 until_close close"),
        ("Transfer-Encoding: chunked\r\n", "transfer_encoding_on_http10"),
    ] {
        check(RequestKind::Other, format!("HTTP/1.0 200 OK\r\n{lines}\r\n"), expect);
    }
}

#[test]
fn responses_without_a_body() {
    use RequestKind::{Connect, Head, Other};
    for (kind, start, expect) in [
        (Head, "HTTP/1.1 200 OK\r\n", "1.1 200 none keep"),
        (Head, "HTTP/1.1 404 No\r\nContent-Length: 9\r\n", "1.1 404 none keep"),
        (Head, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n", "1.1 200 none keep"),
        (Head, "HTTP/1.0 200 OK\r\nContent-Length: 9\r\n", "1.0 200 none close"),
        (Other, "HTTP/1.1 100 Continue\r\n", "1.1 100 none keep"),
        (Other, "HTTP/1.0 100 Continue\r\nConnection: close\r\n", "1.0 100 none keep"),
        (Other, "HTTP/1.1 103 Early Hints\r\nContent-Length: 9\r\n", "1.1 103 none keep"),
        (Other, "HTTP/1.1 204 No\r\nContent-Length: 9\r\n", "1.1 204 none keep"),
        (Other, "HTTP/1.1 204 No\r\nTransfer-Encoding: chunked\r\n", "1.1 204 none keep"),
        (Other, "HTTP/1.1 304 No\r\nContent-Length: 9\r\n", "1.1 304 none keep"),
        (Other, "HTTP/1.1 205 Reset\r\nContent-Length: 9\r\n", "1.1 205 9 keep"),
        (Connect, "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n", "1.1 200 none keep"),
        (Connect, "HTTP/1.1 204 OK\r\n", "1.1 204 none keep"),
        (Connect, "HTTP/1.1 407 No\r\nContent-Length: 9\r\n", "1.1 407 9 keep"),
        (Connect, "HTTP/1.1 502 No\r\n", "1.1 502 until_close close"),
        (Connect, "HTTP/1.1 304 No\r\n", "1.1 304 none keep"),
        (
            Other,
            "HTTP/1.1 101 Switch\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n",
            "1.1 101 none keep upgrade=websocket",
        ),
        // A conflict is refused even without a body: another reader may see one.
        (Head, "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n", "content_length_repeated"),
        (Other, "HTTP/1.1 304 No\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n", "framing_conflict"),
    ] {
        check(kind, format!("{start}\r\n"), expect);
    }
}

#[test]
fn kinds_of_status() {
    let head = |status| ResponseHead {
        version: Version::Http11,
        status,
        reason: "",
        headers: &[],
        framing: Framing::None,
        keep_alive: true,
        upgrade: None,
        has_connection_options: false,
        received: b"",
    };
    assert!(head(100).is_informational() && !head(100).is_switching_protocols());
    assert!(!head(101).is_informational() && head(101).is_switching_protocols());
    assert!(head(103).is_informational() && head(199).is_informational());
    assert!(!head(200).is_informational() && !head(200).is_switching_protocols());
    assert_eq!(RequestKind::from_method("HEAD"), RequestKind::Head);
    assert_eq!(RequestKind::from_method("CONNECT"), RequestKind::Connect);
    assert_eq!(RequestKind::from_method("head"), RequestKind::Other);
}

#[test]
fn reason_phrases() {
    let mut slots = header_slots();
    let bytes = b"HTTP/1.1 418 I'm a teapot\r\n\r\n";
    match parse_response(bytes, &Limits::default(), RequestKind::Other, &mut slots) {
        Ok(Parsed::Complete { head, .. }) => assert_eq!(head.reason, "I'm a teapot"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn fields_of_this_hop() {
    let mut slots = header_slots();
    let bytes = b"HTTP/1.1 200 OK\r\nX: 1\r\nConnection: close, X ,,\r\nx: 2\r\nconnection: Y\r\n\r\n";
    let Ok(Parsed::Complete { head, .. }) =
        parse_response(bytes, &Limits::default(), RequestKind::Other, &mut slots)
    else {
        panic!("it is complete");
    };
    let options: Vec<_> = connection_options(head.headers).collect();
    assert_eq!(options, [&b"close"[..], b"X", b"Y"]);
    assert_eq!(field_value(head.headers, "X"), Some(&b"1"[..]));
    assert_eq!(field_value(head.headers, "Z"), None);
    for name in
        ["TE", "Trailer", "upgrade", "Connection", "keep-alive", "Proxy-Connection", "Transfer-Encoding"]
    {
        assert!(is_hop_by_hop(name), "{name}");
    }
    for name in ["", "a", "t", "Te-", "expires", "user-agent", "Content-Length", "X-Forwarded-Proto", "Host"]
    {
        assert!(!is_hop_by_hop(name), "{name}");
    }
}
