//! Tests at each limit of a head, and one beyond it; and of the texts of refusals.

use super::*;

const SMALL: Limits = Limits {
    head_bytes_max: 128,
    headers_max: 3,
    target_bytes_max: 20,
    chunk_line_bytes_max: 64,
    chunk_extension_bytes_max: 64,
    trailer_bytes_max: 64,
    interim_responses_max: 2,
};

fn request(limits: &Limits, bytes: &[u8]) -> Result<bool, RefusalKind> {
    let mut slots = header_slots();
    match parse_request(bytes, limits, &mut slots) {
        Ok(parsed) => Ok(parsed != Parsed::Incomplete),
        Err(refusal) => Err(refusal.kind()),
    }
}

/// Returns the result of a request that arrives byte by byte: the first that is not "incomplete".
fn parse_byte_by_byte(limits: &Limits, bytes: &[u8]) -> (usize, Result<bool, RefusalKind>) {
    (0..=bytes.len())
        .map(|at| (at, request(limits, &bytes[..at])))
        .find(|(_, result)| *result != Ok(false))
        .unwrap_or((bytes.len(), Ok(false)))
}

#[test]
fn head_bytes() {
    let padded = |len: usize| {
        let start = "GET / HTTP/1.1\r\nHost: a\r\nX: ";
        format!("{start}{}\r\n\r\n", "x".repeat(len - start.len() - 4)).into_bytes()
    };
    assert_eq!(parse_byte_by_byte(&SMALL, &padded(128)), (128, Ok(true)));
    assert_eq!(parse_byte_by_byte(&SMALL, &padded(129)), (128, Err(RefusalKind::HeadTooLarge)));
    assert_eq!(request(&SMALL, &padded(129)), Err(RefusalKind::HeadTooLarge));
    assert_eq!(request(&SMALL, &padded(9_000)), Err(RefusalKind::HeadTooLarge));
    assert_eq!(request(&Limits::default(), &padded(16_384)), Ok(true));
    assert_eq!(request(&Limits::default(), &padded(16_385)), Err(RefusalKind::HeadTooLarge));
    // The skipped empty line counts.
    let led = [b"\r\n", &padded(126)[..]].concat();
    assert_eq!(parse_byte_by_byte(&SMALL, &led), (128, Ok(true)));
    let led = [b"\r\n", &padded(127)[..]].concat();
    assert_eq!(request(&SMALL, &led), Err(RefusalKind::HeadTooLarge));
}

#[test]
fn a_body_behind_the_head_does_not_count() {
    let bytes = [b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", &[0u8; 4_096][..]].concat();
    assert_eq!(request(&SMALL, &bytes), Ok(true));
}

#[test]
fn target_bytes() {
    let target =
        |len: usize| format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "x".repeat(len - 1)).into_bytes();
    assert_eq!(request(&SMALL, &target(20)), Ok(true));
    assert_eq!(request(&SMALL, &target(21)), Err(RefusalKind::TargetTooLong));
    // The refusal comes as soon as it is too long, and not once the head is full.
    assert_eq!(parse_byte_by_byte(&SMALL, &target(30)), (25, Err(RefusalKind::TargetTooLong)));
    assert_eq!(request(&SMALL, &target(500)), Err(RefusalKind::TargetTooLong));
    assert_eq!(request(&Limits::default(), &target(8_192)), Ok(true));
    assert_eq!(request(&Limits::default(), &target(60_000)), Err(RefusalKind::TargetTooLong));
    // An overlong target hides errors behind it.
    let mut bad = target(30);
    bad.truncate(bad.len() - 2);
    bad.extend_from_slice(b"X : y\r\n\r\n");
    assert_eq!(request(&SMALL, &bad), Err(RefusalKind::TargetTooLong));
    // A long method is not a long target.
    assert_eq!(parse_byte_by_byte(&SMALL, &[b'M'; 200]), (128, Err(RefusalKind::HeadTooLarge)));
}

#[test]
fn field_counts() {
    let fields = |count: usize| {
        let more = "a:b\r\n".repeat(count - 1);
        format!("GET / HTTP/1.1\r\nHost: a\r\n{more}\r\n").into_bytes()
    };
    assert_eq!(request(&SMALL, &fields(3)), Ok(true));
    assert_eq!(request(&SMALL, &fields(4)), Err(RefusalKind::TooManyFields));
    assert_eq!(request(&Limits::default(), &fields(100)), Ok(true));
    assert_eq!(request(&Limits::default(), &fields(101)), Err(RefusalKind::TooManyFields));
    let endless = Limits { headers_max: usize::MAX, ..Limits::default() };
    assert_eq!(request(&endless, &fields(HEADERS_CAP)), Ok(true));
    assert_eq!(request(&endless, &fields(HEADERS_CAP + 1)), Err(RefusalKind::TooManyFields));
}

#[test]
fn interim_responses() {
    assert_eq!(SMALL.check_interim(2), Ok(()));
    let refusal = SMALL.check_interim(3).unwrap_err();
    assert_eq!((refusal.kind(), refusal.status()), (RefusalKind::TooManyInterim, 502));
}

#[test]
fn heads_that_may_be_complete() {
    for (new_bytes, expect) in [
        (&b""[..], false),
        (b"\n", true),
        (b"\r\n", true),
        (b"\n\r", true),
        (b"x\n", false),
        (b"x\r\n", false),
        (b"Host: a\r\nX: y\r\n", false),
        (b"Host: a\r\n\r\n", true),
        (b"a\n\nb", true),
        (b"a\r\n\rb\n", false),
        (b"a\r\nb\r\n\r\nc", true),
    ] {
        assert_eq!(head_may_be_complete(new_bytes), expect, "{new_bytes:?}");
    }
}

/// Each row has a unique code that suits a metric, an error status, a section, and one clause.
#[test]
fn the_table_of_refusals() {
    let mut codes = std::collections::BTreeSet::new();
    for (at, &kind) in RefusalKind::ALL.iter().enumerate() {
        assert_eq!(kind as usize, at);
        let code = kind.code();
        assert!(codes.insert(code), "{code} twice");
        assert!(code.bytes().all(|byte| byte.is_ascii_lowercase() || b"_01".contains(&byte)), "{code}");
        assert!(matches!(kind.status(), 400 | 414 | 417 | 431 | 501 | 502 | 505), "{code}");
        assert_ne!(encode::reason(kind.status()), "", "{code}");
        assert!(kind.section().starts_with("RFC "), "{code}");
        assert!(!kind.doc().ends_with('.'), "{code}");
        let name = format!("{kind:?}").to_lowercase();
        assert_eq!(name, code.replace('_', ""), "{code}");
    }
    let refusal = Refusal::from_client(RefusalKind::BareLf);
    let kind = refusal.kind();
    assert_eq!(refusal.to_string(), format!("{} ({})", kind.doc(), kind.section()));
    assert_eq!(Refusal::from_server(RefusalKind::BareLf).status(), 502);
}
