//! Request vectors of the fields with semantics: framing, connection, expectation.

use super::tests::{check, with_fields};

#[test]
fn content_lengths() {
    check(with_fields("Content-Length: 0\r\n"), "POST / 1.1 a 0 keep");
    check(with_fields("content-length:\t7 \r\n"), "POST / 1.1 a 7 keep");
    let max = "18446744073709551615";
    check(with_fields(&format!("Content-Length: {max}\r\n")), &format!("POST / 1.1 a {max} keep"));
    for value in [
        "",
        "+5",
        "-5",
        "5 5",
        "0x5",
        "5.0",
        "5;",
        "five",
        "18446744073709551616",
        "5,",
        ",5",
        "1e3",
        "007",
        "00",
        "\u{b2}",
    ] {
        check(with_fields(&format!("Content-Length: {value}\r\n")), "400 content_length_invalid");
    }
    for lines in [
        "Content-Length: 5\r\nContent-Length: 5\r\n",
        "Content-Length: 5\r\nX: y\r\ncontent-length: 6\r\n",
        "Content-Length: 5, 5\r\n",
        "Content-Length: 5,6\r\n",
    ] {
        check(with_fields(lines), "400 content_length_repeated");
    }
}

#[test]
fn transfer_encodings() {
    check(with_fields("Transfer-Encoding: chunked\r\n"), "POST / 1.1 a chunked keep");
    check(with_fields("transfer-encoding:\tCHUNKED\t\r\n"), "POST / 1.1 a chunked keep");
    for value in [
        "",
        "identity",
        "xchunked",
        "chunkedx",
        "chunked, chunked",
        "chunked, gzip",
        "chunked;q=1",
        "gzip",
        "\"chunked\"",
        "chunked chunked",
        "chunked,",
        ",chunked",
        "gzip, chunked, chunked",
        "chunked\u{b5}",
    ] {
        check(with_fields(&format!("Transfer-Encoding: {value}\r\n")), "400 transfer_encoding_invalid");
    }
    for value in ["gzip, chunked", "gzip,,chunked", "identity, chunked", "x,y , Chunked"] {
        check(with_fields(&format!("Transfer-Encoding: {value}\r\n")), "501 transfer_encoding_unsupported");
    }
    let repeated = "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n";
    check(with_fields(repeated), "400 transfer_encoding_repeated");
    check("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", "400 transfer_encoding_on_http10");
    for lines in [
        "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
        "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        "Content-Length: 0\r\nTransfer-Encoding: chunked\r\n",
    ] {
        check(with_fields(lines), "400 framing_conflict");
    }
}

#[test]
fn connect_has_no_content() {
    let connect = |lines: &str| format!("CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n{lines}\r\n");
    check(connect("Content-Length: 5\r\n"), "400 body_on_connect");
    check(connect("Transfer-Encoding: chunked\r\n"), "400 body_on_connect");
    check(connect("Content-Length: 0\r\n"), "CONNECT a:1 1.1 a:1 0 keep");
}

#[test]
fn connections() {
    for (lines, expect) in [
        ("", "POST / 1.1 a none keep"),
        ("Connection: close\r\n", "POST / 1.1 a none close"),
        ("Connection: CLOSE\r\n", "POST / 1.1 a none close"),
        ("Connection: close, keep-alive\r\n", "POST / 1.1 a none close"),
        ("Connection: keep-alive,\tClose \r\n", "POST / 1.1 a none close"),
        ("Connection: keep-alive\r\nConnection: close\r\n", "POST / 1.1 a none close"),
        ("Connection: closed\r\n", "POST / 1.1 a none keep"),
        ("Connection: x-close, clos e\r\n", "POST / 1.1 a none keep"),
        ("Connection: ,,\r\n", "POST / 1.1 a none keep"),
        ("Connection: upgrade\r\nUpgrade: websocket\r\n", "POST / 1.1 a none keep upgrade=websocket"),
        (
            "Upgrade: h2c\r\nUpgrade: x\r\nConnection: keep-alive, Upgrade\r\n",
            "POST / 1.1 a none keep upgrade=h2c",
        ),
        ("Upgrade: websocket\r\n", "POST / 1.1 a none keep"),
        ("Connection: upgrade\r\n", "POST / 1.1 a none keep"),
    ] {
        check(with_fields(lines), expect);
    }
    for (lines, expect) in [
        ("Connection: keep-alive\r\n", "GET / 1.0 - none keep"),
        ("Connection: Keep-Alive, close\r\n", "GET / 1.0 - none close"),
        ("Connection: upgrade\r\nUpgrade: websocket\r\n", "GET / 1.0 - none close"),
        ("Content-Length: 4\r\n", "GET / 1.0 - 4 close"),
    ] {
        check(format!("GET / HTTP/1.0\r\n{lines}\r\n"), expect);
    }
    // Each option costs a comparison for each field of the head, also an empty one.
    for member in ["a,", ",,", "aa"] {
        let list = |bytes: usize| format!("Connection: {}\r\n", member.repeat(bytes / 2));
        check(with_fields(&list(1_024)), "POST / 1.1 a none keep");
        check(with_fields(&list(1_026)), "431 too_many_fields");
        check(with_fields(&list(600).repeat(2)), "431 too_many_fields");
    }
}

#[test]
fn expectations() {
    let body = |lines: &str| with_fields(&format!("Content-Length: 4\r\n{lines}"));
    check(body("Expect: 100-continue\r\n"), "POST / 1.1 a 4 keep expect");
    check(body("Expect: 100-Continue\r\n"), "POST / 1.1 a 4 keep expect");
    check(body("Expect: 100-continue\r\nExpect: 100-continue\r\n"), "POST / 1.1 a 4 keep expect");
    check(with_fields("Expect: 100-continue\r\n"), "POST / 1.1 a none keep");
    check(with_fields("Content-Length: 0\r\nExpect: 100-continue\r\n"), "POST / 1.1 a 0 keep");
    check(body("Expect: 101-continue\r\n"), "417 expectation_failed");
    check(body("Expect:\r\n"), "417 expectation_failed");
    check(body("Expect: 100-continue, x\r\n"), "417 expectation_failed");
    check("POST / HTTP/1.0\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n", "POST / 1.0 - 4 close");
}
