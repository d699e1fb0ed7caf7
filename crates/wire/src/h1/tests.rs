//! Request vectors: each is fed complete, cut at every byte, and with other bytes after it.

use super::*;

/// Checks one request against its result in one line: a refusal as `status code`, a head as `method
/// target version host framing persistence`.
#[track_caller]
pub(super) fn check(bytes: impl AsRef<[u8]>, expect: &str) {
    check_with(&Limits::default(), bytes.as_ref(), expect);
}

#[track_caller]
fn check_with(limits: &Limits, bytes: &[u8], expect: &str) {
    let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(200)]).into_owned();
    assert_eq!(line(limits, bytes), expect, "{shown:?}");
    let accepted = expect != "incomplete" && !expect.starts_with(|c: char| c.is_ascii_digit());
    for at in 0..bytes.len() {
        let part = line(limits, &bytes[..at]);
        assert!(part == "incomplete" || part == expect, "{shown:?} at {at}: {part}");
        if accepted && part == "incomplete" {
            assert!(head_may_be_complete(&bytes[at..]), "{shown:?} is over unseen at {at}");
        }
    }
    if expect != "incomplete" {
        let longer = [bytes, b"\r\n\r\nGET / HTTP/1.1\r\n\r\n"].concat();
        assert_eq!(line(limits, &longer), expect, "{shown:?} and more");
    }
    crate::fuzzing::request_head(bytes);
}

fn line(limits: &Limits, bytes: &[u8]) -> String {
    let mut slots = header_slots();
    match parse_request(bytes, limits, &mut slots) {
        Ok(Parsed::Incomplete) => "incomplete".to_owned(),
        Ok(Parsed::Complete { head, .. }) => render(&head),
        Err(refusal) => format!("{} {}", refusal.status(), refusal.kind().code()),
    }
}

fn render(head: &RequestHead<'_, '_>) -> String {
    let mut text = format!(
        "{} {} {} {} {} {}",
        head.method,
        head.target,
        if head.version == Version::Http11 { "1.1" } else { "1.0" },
        head.host.unwrap_or("-"),
        framing(head.framing),
        if head.keep_alive { "keep" } else { "close" },
    );
    if head.expect_continue {
        text.push_str(" expect");
    }
    if let Some(protocol) = head.upgrade {
        text.push_str(&format!(" upgrade={protocol}"));
    }
    text
}

fn framing(framing: Framing) -> String {
    match framing {
        Framing::None => "none".to_owned(),
        Framing::Length(length) => length.to_string(),
        Framing::Chunked => "chunked".to_owned(),
        Framing::UntilClose => "until_close".to_owned(),
    }
}

/// Returns a request with `Host: a` and these field lines.
pub(super) fn with_fields(lines: &str) -> String {
    format!("POST / HTTP/1.1\r\nHost: a\r\n{lines}\r\n")
}

#[test]
fn plain_requests() {
    check("GET / HTTP/1.1\r\nHost: a\r\n\r\n", "GET / 1.1 a none keep");
    check("GET / HTTP/1.1\r\nhOST:a\r\n\r\n", "GET / 1.1 a none keep");
    check("GET / HTTP/1.1\r\nHost: \t a \t \r\n\r\n", "GET / 1.1 a none keep");
    check("GET / HTTP/1.0\r\n\r\n", "GET / 1.0 - none close");
    check("GET /a?b=c&d=%20 HTTP/1.0\r\nHost: a\r\n\r\n", "GET /a?b=c&d=%20 1.0 a none close");
    check("get / HTTP/1.1\r\nHost: a\r\n\r\n", "get / 1.1 a none keep");
    check("M-SEARCH!#$%&'*+.^_`|~ / HTTP/1.0\r\n\r\n", "M-SEARCH!#$%&'*+.^_`|~ / 1.0 - none close");
    check("GET // HTTP/1.1\r\nHost: a\r\nX:\r\nY: \x09\r\n\r\n", "GET // 1.1 a none keep");
    check(b"GET / HTTP/1.1\r\nHost: a\r\nX: \xff\t\x80\r\n\r\n", "GET / 1.1 a none keep");
    check("GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n", "GET / 1.1 a 3 keep");
    check("GET / HTTP/1.1\r\nHost: a\r\n", "incomplete");
}

#[test]
fn empty_lines_before_the_request() {
    check("\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", "GET / 1.1 a none keep");
    check("\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", "GET / 1.1 a none keep");
    let many = |lines: usize| "\r\n".repeat(lines) + "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    check(many(8), "GET / 1.1 a none keep");
    check(many(9), "400 empty_lines");
    check("\r\n\r\n", "incomplete");
    check("\r\n\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", "400 bare_lf");
    check("\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", "400 bare_lf");
    check("\rGET / HTTP/1.1\r\nHost: a\r\n\r\n", "400 bare_cr");
    check(" \r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", "400 invalid_method");
    let mut slots = header_slots();
    let bytes = b"\r\nGET / HTTP/1.0\r\n\r\nrest";
    match parse_request(bytes, &Limits::default(), &mut slots) {
        Ok(Parsed::Complete { bytes: used, .. }) => assert_eq!(&bytes[used..], b"rest"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn line_ends() {
    for bytes in [
        "GET / HTTP/1.1\nHost: a\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nX: y\nZ: z\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nX:\nZ: z\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\n\n",
        "GET / HTTP/1.1\nHost: a\n\n",
        "GET / HTTP/1.0\n\n",
        "GET / HTTP/1.0\n\r\n",
        "GET / HTTP/1.0\r\n\n",
    ] {
        check(bytes, "400 bare_lf");
    }
    for bytes in [
        "GET / HTTP/1.1\rHost: a\r\n\r\n",
        "GET / HTTP/1.1\r\r\nHost: a\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\rX: y\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nX:\ry\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\n\rX: y\r\n\r\n",
    ] {
        check(bytes, "400 bare_cr");
    }
}

#[test]
fn request_lines() {
    for (bytes, expect) in [
        ("GET / HTTP/2.0\r\n\r\n", "505 unsupported_version"),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "505 unsupported_version"),
        ("GET / HTTP/0.9\r\n\r\n", "400 invalid_version"),
        ("GET / HTTP/01.01\r\n\r\n", "400 invalid_version"),
        ("GET / HTTP/1.2\r\n\r\n", "505 unsupported_version"),
        ("GET / HTTP/3\r\n\r\n", "505 unsupported_version"),
        ("GET / http/1.1\r\nHost: a\r\n\r\n", "400 invalid_version"),
        ("GET / HTTP/1,1\r\nHost: a\r\n\r\n", "400 invalid_version"),
        ("GET / HTTP/11.1\r\nHost: a\r\n\r\n", "400 invalid_version"),
        ("GET / HTTP/1.x\r\nHost: a\r\n\r\n", "400 invalid_version"),
        ("GET / HTTP/1\r\nHost: a\r\n\r\n", "400 invalid_version"),
        ("GET / HTTP/1.10\r\nHost: a\r\n\r\n", "400 invalid_request_line"),
        ("GET / HTTP/1.1 \r\nHost: a\r\n\r\n", "400 invalid_request_line"),
        ("GET /\r\nHost: a\r\n\r\n", "400 invalid_request_line"),
        ("GET / \r\nHost: a\r\n\r\n", "400 invalid_version"),
        ("GET\r\n\r\n", "400 invalid_request_line"),
        ("GET\t/ HTTP/1.1\r\nHost: a\r\n\r\n", "400 invalid_method"),
        (" GET / HTTP/1.1\r\nHost: a\r\n\r\n", "400 invalid_method"),
        ("G(T / HTTP/1.1\r\nHost: a\r\n\r\n", "400 invalid_method"),
        ("G\u{e9}T / HTTP/1.1\r\nHost: a\r\n\r\n", "400 invalid_method"),
        ("\u{16}\u{3}\u{1}\u{2}", "400 invalid_method"),
        ("GET  / HTTP/1.1\r\nHost: a\r\n\r\n", "400 invalid_target"),
        ("GET /  HTTP/1.1\r\nHost: a\r\n\r\n", "400 invalid_version"),
        ("GET /a b HTTP/1.1\r\nHost: a\r\n\r\n", "400 invalid_version"),
        ("GET /\u{e9} HTTP/1.1\r\nHost: a\r\n\r\n", "400 invalid_target"),
        ("GET /\u{7f} HTTP/1.1\r\nHost: a\r\n\r\n", "400 invalid_target"),
        ("GET /\0 HTTP/1.1\r\nHost: a\r\n\r\n", "400 invalid_target"),
        ("GET /\t HTTP/1.1\r\nHost: a\r\n\r\n", "400 invalid_target"),
        ("GET /a#b HTTP/1.1\r\nHost: a\r\n\r\n", "400 invalid_target"),
    ] {
        check(bytes, expect);
    }
}

#[test]
fn target_forms() {
    for (bytes, expect) in [
        ("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", "OPTIONS * 1.1 a none keep"),
        ("OPTIONS * HTTP/1.1\r\nHost:\r\n\r\n", "OPTIONS * 1.1  none keep"),
        ("GET * HTTP/1.1\r\nHost: a\r\n\r\n", "400 target_form"),
        ("OPTIONS *x HTTP/1.1\r\nHost: a\r\n\r\n", "400 target_form"),
        ("CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n", "CONNECT a:443 1.1 a:443 none keep"),
        ("CONNECT a:443 HTTP/1.1\r\nHost: A\r\n\r\n", "CONNECT a:443 1.1 a:443 none keep"),
        ("CONNECT [::1]:80 HTTP/1.0\r\n\r\n", "CONNECT [::1]:80 1.0 [::1]:80 none close"),
        ("CONNECT a:443 HTTP/1.1\r\nHost: b:443\r\n\r\n", "400 host_mismatch"),
        ("CONNECT a:443 HTTP/1.1\r\nHost: a:80\r\n\r\n", "400 host_mismatch"),
        ("CONNECT a:8443 HTTP/1.1\r\nHost: a:8443\r\n\r\n", "CONNECT a:8443 1.1 a:8443 none keep"),
        ("CONNECT a:8443 HTTP/1.1\r\nHost: a\r\n\r\n", "400 host_mismatch"),
        ("CONNECT a:443 HTTP/1.1\r\nHost:\r\n\r\n", "400 host_invalid"),
        ("CONNECT a HTTP/1.1\r\nHost: a\r\n\r\n", "400 target_form"),
        ("CONNECT a: HTTP/1.1\r\nHost: a\r\n\r\n", "400 target_form"),
        ("CONNECT / HTTP/1.1\r\nHost: a\r\n\r\n", "400 target_form"),
        ("CONNECT http://a/ HTTP/1.1\r\nHost: a\r\n\r\n", "400 target_form"),
        ("CONNECT u@a:1 HTTP/1.1\r\nHost: a\r\n\r\n", "400 target_form"),
        ("GET a:443 HTTP/1.1\r\nHost: a\r\n\r\n", "400 target_form"),
        ("GET a HTTP/1.1\r\nHost: a\r\n\r\n", "400 target_form"),
        ("GET http://a/b HTTP/1.1\r\nHost: a\r\n\r\n", "GET http://a/b 1.1 a none keep"),
        ("GET HTTP://A:80?q HTTP/1.1\r\nHost: a\r\n\r\n", "GET HTTP://A:80?q 1.1 A:80 none keep"),
        ("GET https://a HTTP/1.1\r\nHost: a:443\r\n\r\n", "GET https://a 1.1 a none keep"),
        ("GET http://a/ HTTP/1.0\r\n\r\n", "GET http://a/ 1.0 a none close"),
        ("GET http://a/ HTTP/1.1\r\n\r\n", "400 host_missing"),
        ("GET http://a/ HTTP/1.1\r\nHost: b\r\n\r\n", "400 host_mismatch"),
        ("GET http://a:81/ HTTP/1.1\r\nHost: a\r\n\r\n", "400 host_mismatch"),
        ("GET http://a/ HTTP/1.1\r\nHost:\r\n\r\n", "400 host_invalid"),
        ("GET http:///b HTTP/1.1\r\nHost: a\r\n\r\n", "400 invalid_target"),
        ("GET http://u@a/ HTTP/1.1\r\nHost: a\r\n\r\n", "400 invalid_target"),
        ("GET http:a HTTP/1.1\r\nHost: a\r\n\r\n", "400 target_form"),
        ("GET ftp://a/ HTTP/1.1\r\nHost: a\r\n\r\n", "400 target_form"),
    ] {
        check(bytes, expect);
    }
}

#[test]
fn hosts() {
    for host in ["a", "a.b-c_d~", "1.2.3.4:80", "[::1]", "[1:2::3.4.5.6]:65535", "a:", "a:00080"] {
        let expect = format!("GET / 1.1 {host} none keep");
        check(format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n"), &expect);
    }
    for host in [
        "",
        "a b",
        "a,b c",
        "a/b",
        "a@b",
        "a:b",
        "a:1:2",
        "a:65536",
        "a:000080",
        "::1",
        "[::1",
        "[]",
        "[a]",
        "[::1]x",
        "[::1%25eth0]",
        ":80",
        "a%62",
        "a\\b",
        "a?b",
        "\u{e9}",
        "a\"",
        "http://a",
    ] {
        check(format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n"), "400 host_invalid");
        check(format!("GET / HTTP/1.0\r\nHost: {host}\r\n\r\n"), "400 host_invalid");
    }
    check("GET / HTTP/1.1\r\n\r\n", "400 host_missing");
    check("GET / HTTP/1.1\r\nX-Host: a\r\n\r\n", "400 host_missing");
    check("GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", "400 host_repeated");
    check("GET / HTTP/1.1\r\nHost: a\r\nhost: b\r\n\r\n", "400 host_repeated");
    check("GET / HTTP/1.0\r\nHost: a\r\nHost: a\r\n\r\n", "400 host_repeated");
}

#[test]
fn field_lines() {
    for (lines, expect) in [
        ("X : y\r\n", "400 space_in_field_name"),
        ("X\t: y\r\n", "400 space_in_field_name"),
        ("X y: z\r\n", "400 space_in_field_name"),
        ("Content-Length : 5\r\n", "400 space_in_field_name"),
        (" X: y\r\n", "400 obs_fold"),
        ("X: y\r\n z\r\n", "400 obs_fold"),
        ("X: y\r\n\tz\r\n", "400 obs_fold"),
        ("X:\r\n y\r\n", "400 obs_fold"),
        (": y\r\n", "400 empty_field_name"),
        ("X\r\n", "400 invalid_field_name"),
        ("X(: y\r\n", "400 invalid_field_name"),
        ("X\0: y\r\n", "400 invalid_field_name"),
        ("\u{e9}: y\r\n", "400 invalid_field_name"),
        ("X\u{e9}: y\r\n", "400 invalid_field_name"),
        ("X: \0\r\n", "400 invalid_field_value"),
        ("X: a\0b\r\n", "400 invalid_field_value"),
        ("X: \u{b}\r\n", "400 invalid_field_value"),
        ("X: abcdefghijklmnopqrstuvwxyz0123456789\u{7f}\r\n", "400 invalid_field_value"),
    ] {
        check(with_fields(lines), expect);
    }
    check("GET / HTTP/1.1\r\n Host: a\r\n\r\n", "400 obs_fold");
}
