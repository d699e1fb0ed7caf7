//! Tests of the encoders, and that parsing their output gives the original meaning.

use super::encode::*;
use super::*;

fn encode_to_string(write: impl FnOnce(&mut Vec<u8>)) -> String {
    let mut out = Vec::new();
    write(&mut out);
    String::from_utf8(out).unwrap()
}

#[test]
fn single_parts() {
    assert_eq!(encode_to_string(|out| status_line(out, Version::Http11, 200)), "HTTP/1.1 200 OK\r\n");
    assert_eq!(encode_to_string(|out| status_line(out, Version::Http10, 200)), "HTTP/1.0 200 OK\r\n");
    assert_eq!(encode_to_string(|out| status_line(out, Version::Http11, 404)), "HTTP/1.1 404 Not Found\r\n");
    assert_eq!(encode_to_string(|out| status_line(out, Version::Http11, 299)), "HTTP/1.1 299 \r\n");
    assert_eq!(encode_to_string(|out| interim(out, 100)), "HTTP/1.1 100 Continue\r\n\r\n");
    assert_eq!(encode_to_string(|out| field(out, "A", b"b c")), "A: b c\r\n");
    assert_eq!(encode_to_string(|out| field_u64(out, "A", u64::MAX)), "A: 18446744073709551615\r\n");
    assert_eq!(encode_to_string(last_chunk), "0\r\n\r\n");
    let lines = "GET /a HTTP/1.1\r\nHost: b\r\nX: y\r\n\r\n";
    let headers = [("Host", "b"), ("X", "y")];
    assert_eq!(encode_to_string(|out| request_head(out, "GET", "/a", headers)), lines);
}

#[test]
fn chunk_sizes() {
    for (len, expect) in [(1, "1"), (9, "9"), (10, "a"), (15, "f"), (16, "10"), (4_096, "1000")] {
        assert_eq!(encode_to_string(|out| chunk_head(out, len)), format!("{expect}\r\n"));
    }
    for shift in 0..64 {
        for len in [1u64 << shift, (1u64 << shift).wrapping_sub(1).max(1), u64::MAX >> shift] {
            assert_eq!(encode_to_string(|out| chunk_head(out, len)), format!("{len:x}\r\n"));
        }
    }
}

/// Each status with its phrase is a response that is parsed back.
#[test]
fn statuses_round_trip() {
    for version in [Version::Http10, Version::Http11] {
        for status in 100..=999 {
            let text = encode_to_string(|out| {
                status_line(out, version, status);
                field_u64(out, "Content-Length", 7);
                end_of_head(out);
            });
            let mut slots = header_slots();
            let parsed = parse_response(text.as_bytes(), &Limits::default(), RequestKind::Other, &mut slots);
            let Ok(Parsed::Complete { head, bytes }) = parsed else {
                panic!("{text:?}: {parsed:?}");
            };
            assert_eq!(bytes, text.len());
            assert_eq!((head.version, head.status, head.reason), (version, status, reason(status)));
        }
    }
}

#[test]
fn requests_round_trip() {
    let headers = [("Host", &b"a:81"[..]), ("Content-Length", b"42"), ("X", b"\xff \t!"), ("Y", b"")];
    let mut out = Vec::new();
    request_head(&mut out, "PUT", "/%41?b", headers);
    let mut slots = header_slots();
    let Ok(Parsed::Complete { head, bytes }) = parse_request(&out, &Limits::default(), &mut slots) else {
        panic!("{out:?}");
    };
    assert_eq!((head.method, head.target, head.host), ("PUT", "/%41?b", Some("a:81")));
    assert_eq!((head.framing, bytes), (Framing::Length(42), out.len()));
    let read: Vec<_> = head.headers.iter().map(|header| (header.name, header.value)).collect();
    assert_eq!(read, headers);
}

#[test]
fn invalid_parts_are_rejected() {
    let byte = |part, at, byte| Err(EncodeError::Byte { part, at, byte });
    assert_eq!(check_method("M-SEARCH"), Ok(()));
    assert_eq!(check_method(""), Err(EncodeError::Empty { part: MessagePart::Method }));
    assert_eq!(check_method("GET "), byte(MessagePart::Method, 3, b' '));
    assert_eq!(check_target("/a?b=c"), Ok(()));
    assert_eq!(check_target(""), Err(EncodeError::Empty { part: MessagePart::Target }));
    assert_eq!(check_target("/a b"), byte(MessagePart::Target, 2, b' '));
    assert_eq!(check_target("/a#b"), byte(MessagePart::Target, 2, b'#'));
    assert_eq!(check_target("/\r\n"), byte(MessagePart::Target, 1, b'\r'));
    assert_eq!(check_target("/\u{e9}"), byte(MessagePart::Target, 1, 0xc3));
    assert_eq!(check_field_name("X-Y"), Ok(()));
    assert_eq!(check_field_name(""), Err(EncodeError::Empty { part: MessagePart::FieldName }));
    assert_eq!(check_field_name("X:"), byte(MessagePart::FieldName, 1, b':'));
    assert_eq!(check_field_value(b""), Ok(()));
    assert_eq!(check_field_value(b"a\tb \xff"), Ok(()));
    assert_eq!(check_field_value(b"a\r\nX: y"), byte(MessagePart::FieldValue, 1, b'\r'));
    assert_eq!(check_field_value(b"\n"), byte(MessagePart::FieldValue, 0, b'\n'));
    assert_eq!(check_field_value(b"a\0"), byte(MessagePart::FieldValue, 1, 0));
    assert_eq!(check_field_name("X Y"), byte(MessagePart::FieldName, 1, b' '));
    let error = check_field_name("X Y").unwrap_err().to_string();
    assert!(error.contains("' '") && error.contains("byte 1"), "{error}");
}
