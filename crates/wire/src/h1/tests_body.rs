//! Body vectors: each is fed complete, byte by byte, and cut at every pair of positions.

use super::*;

/// Outcome of a body: content, remaining input and trailers; or the reason of the refusal.
type DecodeResult = Result<(Vec<u8>, Vec<u8>, Vec<u8>), RefusalKind>;

fn decode(limits: &Limits, framing: Framing, parts: &[&[u8]]) -> DecodeResult {
    let mut decoder = BodyDecoder::new(framing, limits);
    let mut content = Vec::new();
    let mut left = Vec::new();
    for part in parts {
        let mut at = 0;
        loop {
            let rest = &part[at..];
            let step = decoder.decode(rest).map_err(|refusal| refusal.kind())?;
            content.extend_from_slice(&rest[step.data]);
            at += step.consumed;
            assert_eq!(step.end, decoder.is_done());
            if step.end || step.consumed == 0 {
                break;
            }
        }
        left.extend_from_slice(&part[at..]);
    }
    decoder.handle_eof().map_err(|refusal| refusal.kind())?;
    Ok((content, left, decoder.trailers().to_vec()))
}

#[track_caller]
fn check_in_parts(limits: &Limits, framing: Framing, bytes: &[u8], expect: &DecodeResult) {
    let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(200)]).into_owned();
    assert_eq!(&decode(limits, framing, &[bytes]), expect, "{shown:?}");
    let single: Vec<&[u8]> = bytes.chunks(1).collect();
    assert_eq!(&decode(limits, framing, &single), expect, "{shown:?} byte by byte");
    if bytes.len() > 128 {
        return;
    }
    for first in 0..=bytes.len() {
        for second in first..=bytes.len() {
            let parts = [&bytes[..first], &bytes[first..second], &bytes[second..]];
            let got = decode(limits, framing, &parts);
            assert_eq!(&got, expect, "{shown:?} at {first} and {second}");
        }
    }
    if framing == Framing::Chunked {
        let seeded = [b"\x07", bytes].concat();
        crate::fuzzing::chunked_body(&seeded);
    }
}

#[track_caller]
fn check(bytes: &str, content: &str, left: &str, trailers: &str) {
    let expect = Ok((content.into(), left.into(), trailers.into()));
    check_in_parts(&Limits::default(), Framing::Chunked, bytes.as_bytes(), &expect);
}

#[track_caller]
fn check_refused(bytes: &str, kind: RefusalKind) {
    check_in_parts(&Limits::default(), Framing::Chunked, bytes.as_bytes(), &Err(kind));
}

#[test]
fn chunks() {
    check("0\r\n\r\n", "", "", "");
    check("000\r\n\r\nGET", "", "GET", "");
    check("5\r\nhello\r\n0\r\n\r\n", "hello", "", "");
    check("1\r\na\r\n2\r\nbc\r\n0\r\n\r\nrest", "abc", "rest", "");
    check("A\r\n0123456789\r\na\r\n0123456789\r\n0\r\n\r\n", "01234567890123456789", "", "");
    check("0000000000000000000001\r\na\r\n0\r\n\r\n", "a", "", "");
    check("2\r\n\r\n\r\n0\r\n\r\n", "\r\n", "", "");
}

#[test]
fn extensions() {
    check("1;x\r\na\r\n0;y=z\r\n\r\n", "a", "", "");
    check("1;x=\"; 5\"\r\na\r\n0\r\n\r\n", "a", "", "");
    check("1 \t;x = y ; z\r\na\r\n0\r\n\r\n", "a", "", "");
    check("1;a=\"\\\"\u{e9};\";b=\"\"\r\na\r\n0\r\n\r\n", "a", "", "");
    for invalid in [
        "",
        "=",
        "=a",
        "a=",
        "a;",
        ";a",
        "a b",
        "a=b c",
        "bad[=x",
        "a=[",
        "a=\"b",
        "a=\"b\"c",
        "\u{e9}",
        "a ",
        "a=b ",
        "a=\"b\" ",
        "\"a\"",
        "a=\"b\\\"",
    ] {
        let bytes = format!("1;{invalid}\r\na\r\n0\r\n\r\n");
        check_refused(&bytes, RefusalKind::ChunkExtensionInvalid);
    }
    check_refused("1;a\nb\r\na\r\n0\r\n\r\n", RefusalKind::BareLf);
    check_refused("1;a\rb\r\na\r\n0\r\n\r\n", RefusalKind::BareCr);
    check_refused("1;a=b\r\r\n\"\r\na\r\n0\r\n\r\n", RefusalKind::BareCr);
    check_refused("1;a=\"\n\"\r\na\r\n0\r\n\r\n", RefusalKind::BareLf);
    check_refused("1;a\0\r\na\r\n0\r\n\r\n", RefusalKind::ChunkExtensionInvalid);
    check_refused("1;a\u{7f}\r\na\r\n0\r\n\r\n", RefusalKind::ChunkExtensionInvalid);
}

#[test]
fn malformed_chunks() {
    use RefusalKind::{
        BareCr, BareLf, ChunkDataUnterminated, ChunkSizeInvalid, ChunkSizeOverflow, Truncated,
    };
    for (bytes, kind) in [
        ("\r\n", ChunkSizeInvalid),
        ("\n", ChunkSizeInvalid),
        ("x\r\n", ChunkSizeInvalid),
        ("-1\r\n", ChunkSizeInvalid),
        ("+1\r\na\r\n0\r\n\r\n", ChunkSizeInvalid),
        (" 1\r\na\r\n0\r\n\r\n", ChunkSizeInvalid),
        ("1 \r\na\r\n0\r\n\r\n", ChunkSizeInvalid),
        ("1 1\r\na\r\n0\r\n\r\n", ChunkSizeInvalid),
        ("0x1\r\na\r\n0\r\n\r\n", ChunkSizeInvalid),
        ("1_0\r\na\r\n0\r\n\r\n", ChunkSizeInvalid),
        (";x\r\n", ChunkSizeInvalid),
        ("1\na\r\n0\r\n\r\n", BareLf),
        ("1\ra\r\n0\r\n\r\n", BareCr),
        ("1\r\na\n0\r\n\r\n", ChunkDataUnterminated),
        ("1\r\nab\r\n0\r\n\r\n", ChunkDataUnterminated),
        ("1\r\na\r0\r\n\r\n", ChunkDataUnterminated),
        ("1\r\na0\r\n\r\n", ChunkDataUnterminated),
        ("10000000000000000\r\n", ChunkSizeOverflow),
        ("fffffffffffffffff\r\n", ChunkSizeOverflow),
        ("ffffffffffffffff\r\na", Truncated),
        ("0\n\r\n", BareLf),
        ("0\r\n\n", BareLf),
        ("0\r\n\r\r\n", BareCr),
        ("", Truncated),
        ("5\r\nhell", Truncated),
        ("5\r\nhello", Truncated),
        ("5\r\nhello\r\n", Truncated),
        ("5\r\nhello\r\n0\r\n", Truncated),
        ("0\r\n\r", Truncated),
        ("0\r\nX: y\r\n", Truncated),
    ] {
        check_refused(bytes, kind);
    }
}

#[test]
fn trailers() {
    check("0\r\nX: y\r\n\r\nrest", "", "rest", "X: y\r\n");
    check("1\r\na\r\n0\r\nX: y\r\nZ:\r\n\r\n", "a", "", "X: y\r\nZ:\r\n");
    for bytes in ["0\r\nX : y\r\n\r\n", "0\r\n X: y\r\n\r\n", "0\r\nX\r\n\r\n", "0\r\n: y\r\n\r\n"] {
        check_refused(bytes, RefusalKind::TrailerInvalid);
    }
    check_refused("0\r\nX: \0\r\n\r\n", RefusalKind::TrailerInvalid);
    check_refused("0\r\nX: y\r\n z\r\n\r\n", RefusalKind::TrailerInvalid);
    check_refused("0\r\nX: y\n\r\n", RefusalKind::BareLf);
    check_refused("0\r\nX: y\rz\r\n\r\n", RefusalKind::BareCr);
    check("0\r\nContent-Length: 5\r\n\r\nrest", "", "rest", "");
    check("0\r\nX: y\r\nCONTENT-length: x\r\nZ: y\r\n\r\n", "", "", "X: y\r\nZ: y\r\n");
    check("0\r\nContent-Length-X: 5\r\n\r\n", "", "", "Content-Length-X: 5\r\n");
    check_refused("0\r\nContent-Length : 5\r\n\r\n", RefusalKind::TrailerInvalid);
    let many = "Content-Length: 1\r\n".repeat(HEADERS_CAP + 1);
    check_refused(&format!("0\r\n{many}\r\n"), RefusalKind::TrailersTooLarge);
    check_refused("0\r\nX: y\r\ntransfer-encoding: chunked\r\n\r\n", RefusalKind::TrailerForbidden);
    check_refused("0\r\nHOST: b\r\n\r\n", RefusalKind::TrailerForbidden);
    // The classic: a second request behind the first empty line, where a careless reader stops.
    check_refused("0\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", RefusalKind::TrailerInvalid);
}

#[test]
fn limits() {
    let limits = Limits {
        chunk_line_bytes_max: 10,
        chunk_extension_bytes_max: 12,
        trailer_bytes_max: 12,
        headers_max: 2,
        ..Limits::default()
    };
    let ok = |content: &str, trailers: &str| Ok((content.into(), Vec::new(), trailers.into()));
    for (bytes, expect) in [
        ("00000001\r\na\r\n0\r\n\r\n", ok("a", "")),
        ("000000001\r\na\r\n0\r\n\r\n", Err(RefusalKind::ChunkLineTooLong)),
        ("1;abcdef\r\na\r\n0\r\n\r\n", ok("a", "")),
        ("1;abcdefg\r\na\r\n0\r\n\r\n", Err(RefusalKind::ChunkLineTooLong)),
        ("1;aaaaaa", Err(RefusalKind::Truncated)),
        ("1;aaaaa\r\na\r\n1;bbbbb\r\na\r\n0\r\n\r\n", ok("aa", "")),
        ("1;aaaaa\r\na\r\n1;bbbbbb\r\na\r\n0\r\n\r\n", Err(RefusalKind::ChunkExtensionsTooLarge)),
        ("0\r\nX: 345678\r\n\r\n", ok("", "X: 345678\r\n")),
        ("0\r\nX: 3456789a\r\n\r\n", Err(RefusalKind::TrailersTooLarge)),
        ("0\r\nX: y\r\nX: y\r\n\r\n", ok("", "X: y\r\nX: y\r\n")),
        ("0\r\nX:\r\nX:\r\nX:\r\n\r\n", Err(RefusalKind::TrailersTooLarge)),
        ("0\r\nX: y\r\nX: y\r\nZ", Err(RefusalKind::TrailersTooLarge)),
    ] {
        check_in_parts(&limits, Framing::Chunked, bytes.as_bytes(), &expect);
    }
    // A line that arrives completely is also subject to the limit.
    let short = Limits { chunk_line_bytes_max: 5, ..limits };
    let expect = ok("a", "");
    check_in_parts(&short, Framing::Chunked, b"001\r\na\r\n0\r\n\r\n", &expect);
    let expect = Err(RefusalKind::ChunkLineTooLong);
    check_in_parts(&short, Framing::Chunked, b"0001\r\na\r\n0\r\n\r\n", &expect);
    assert_eq!(RefusalKind::TrailersTooLarge.status(), 431);
}

#[test]
fn bodies_without_chunks() {
    let limits = Limits::default();
    let ok = |content: &str, left: &str| Ok((content.into(), left.into(), Vec::new()));
    for (framing, bytes, expect) in [
        (Framing::None, "", ok("", "")),
        (Framing::None, "rest", ok("", "rest")),
        (Framing::Length(0), "rest", ok("", "rest")),
        (Framing::Length(5), "hello", ok("hello", "")),
        (Framing::Length(5), "hellorest", ok("hello", "rest")),
        (Framing::Length(5), "hell", Err(RefusalKind::Truncated)),
        (Framing::Length(u64::MAX), "hell", Err(RefusalKind::Truncated)),
        (Framing::UntilClose, "", ok("", "")),
        (Framing::UntilClose, "hello\r\n", ok("hello\r\n", "")),
    ] {
        check_in_parts(&limits, framing, bytes.as_bytes(), &expect);
    }
}

#[test]
fn done_at_once() {
    let limits = Limits::default();
    assert!(BodyDecoder::new(Framing::None, &limits).is_done());
    assert!(BodyDecoder::new(Framing::Length(0), &limits).is_done());
    assert!(!BodyDecoder::new(Framing::Length(1), &limits).is_done());
    assert!(!BodyDecoder::new(Framing::UntilClose, &limits).is_done());
}

#[test]
fn skipping_counts() {
    let limits = Limits::default();
    let mut body = BodyDecoder::new(Framing::Length(10), &limits);
    let expect = |consumed, data_bytes, end| Ok(Skipped { consumed, data_bytes, end });
    assert_eq!(body.skip(b"0123"), expect(4, 4, false));
    assert_eq!(body.skip(b"456789rest"), expect(6, 6, true));
    assert_eq!(body.skip(b"rest"), expect(0, 0, true));

    let mut body = BodyDecoder::new(Framing::Chunked, &limits);
    assert_eq!(body.skip(b""), expect(0, 0, false));
    assert_eq!(body.skip(b"3\r\nabc\r\n4\r\nab"), expect(13, 5, false));
    assert_eq!(body.skip(b"cd\r\n0\r\nX: y\r\n\r\nrest"), expect(15, 2, true));
    assert_eq!(body.trailers(), b"X: y\r\n");

    let mut body = BodyDecoder::new(Framing::UntilClose, &limits);
    assert_eq!(body.skip(b"0123"), expect(4, 4, false));
    assert_eq!(body.handle_eof(), Ok(()));
    assert_eq!(body.skip(b""), expect(0, 0, true));
}

/// Random bodies in random chunks with random cuts, from a seed, are decoded unchanged.
#[test]
fn random_bodies() {
    for seed in 0..256u64 {
        let mut random = Lcg(seed);
        let content: Vec<u8> = (0..random.below(400)).map(|_| random.below(256) as u8).collect();
        let mut bytes = Vec::new();
        let mut rest = &content[..];
        while !rest.is_empty() {
            let (chunk, more) = rest.split_at(1 + random.below(rest.len()));
            encode::chunk_head(&mut bytes, chunk.len() as u64);
            bytes.extend_from_slice(chunk);
            encode::chunk_end(&mut bytes);
            rest = more;
        }
        encode::last_chunk(&mut bytes);
        let mut parts = Vec::new();
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let (part, more) = rest.split_at(1 + random.below(rest.len().min(40)));
            parts.push(part);
            rest = more;
        }
        let got = decode(&Limits::default(), Framing::Chunked, &parts);
        assert_eq!(got, Ok((content, Vec::new(), Vec::new())), "seed {seed}");
    }
}

/// A linear congruential generator (Knuth's MMIX constants): enough to vary a test, and repeatable.
struct Lcg(u64);

impl Lcg {
    /// Returns a number below `bound`; 0 if `bound` is 0.
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound.max(1)
    }
}

#[test]
fn bypassed_bytes_count() {
    let limits = Limits::default();
    let mut body = BodyDecoder::new(Framing::Length(10), &limits);
    assert_eq!(body.decode(b"abc").unwrap().consumed, 3);
    assert_eq!(body.remaining_length(), Some(7));
    assert!(!body.record_bypassed(5));
    assert_eq!(body.remaining_length(), Some(2));
    assert!(body.record_bypassed(2) && body.is_done());
    assert_eq!(body.remaining_length(), None);
    for framing in [Framing::None, Framing::Chunked, Framing::UntilClose] {
        assert_eq!(BodyDecoder::new(framing, &limits).remaining_length(), None);
    }
}
