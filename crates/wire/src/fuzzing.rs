//! Properties that hold for any bytes at all, as functions that panic when one does not.
//!
//! For tests and fuzz targets only: the corpora under `fuzz/corpus` are replayed through these
//! functions by the tests of this crate, so that a case that was once found stays found. Nothing in
//! a product calls them.

use crate::h1::{explain_request, explain_response};
use crate::{
    BodyDecoder, Framing, HEADERS_CAP, Limits, Parsed, Refusal, RefusalKind, RequestHead,
    RequestKind, ResponseHead, Version, encode, header_slots, parse_request, parse_response,
};

/// What a request parser must hold for any bytes.
///
/// - However the bytes are cut, a part of them is incomplete or gets the answer of the whole.
/// - What is accepted has nothing that the second, independent reader would refuse.
/// - What is accepted and written again is accepted again, with the same meaning.
///
/// # Panics
/// When one of them does not hold.
pub fn request_head(bytes: &[u8]) {
    for limits in [Limits::default(), TIGHT] {
        for_each_part(bytes, &|part| {
            let mut slots = header_slots();
            outcome(parse_request(part, &limits, &mut slots))
        });
        let mut slots = header_slots();
        let Ok(Parsed::Complete { head, bytes: used }) = parse_request(bytes, &limits, &mut slots)
        else {
            continue;
        };
        let mut lines = &bytes[..used];
        while let Some(rest) = lines.strip_prefix(b"\r\n") {
            lines = rest;
        }
        assert_eq!(explain_request(lines, HEADERS_CAP), None);
        check_request(&head);
    }
}

/// What a response parser must hold for any bytes: as [`request_head`].
///
/// # Panics
/// When one of them does not hold.
pub fn response_head(bytes: &[u8]) {
    for kind in [RequestKind::Head, RequestKind::Connect, RequestKind::Other] {
        for limits in [Limits::default(), TIGHT] {
            for_each_part(bytes, &|part| {
                let mut slots = header_slots();
                outcome(parse_response(part, &limits, kind, &mut slots))
            });
            let mut slots = header_slots();
            let Ok(Parsed::Complete { head, bytes: used }) =
                parse_response(bytes, &limits, kind, &mut slots)
            else {
                continue;
            };
            assert_eq!(explain_response(&bytes[..used], HEADERS_CAP), None);
            check_response(&head, kind);
        }
    }
}

/// What a decoder of chunks must hold for any bytes: content, end and refusal do not depend on how
/// the bytes are cut, and are those of a decoder that reads whole lines. The first byte seeds the
/// cuts.
///
/// # Panics
/// When one of them does not hold.
pub fn chunked_body(bytes: &[u8]) {
    let Some((&seed, bytes)) = bytes.split_first() else {
        return;
    };
    for limits in [Limits::default(), TIGHT] {
        let whole = decode_in_parts(bytes, &limits, |_| usize::MAX);
        let single = decode_in_parts(bytes, &limits, |_| 1);
        assert_eq!(whole, single, "one byte at a time");
        let some = decode_in_parts(bytes, &limits, |at| 1 + (at * 31 + usize::from(seed)) % 17);
        assert_eq!(whole, some, "in small parts");
        check_skip(bytes, &limits, &whole, usize::from(seed));
    }
    let loose = Limits { chunk_line_bytes_max: 1 << 20, ..Limits::default() };
    let whole = decode_in_parts(bytes, &loose, |_| usize::MAX);
    match (whole.refusal, by_lines(bytes)) {
        // Only one of the two has limits, and only one tells kinds apart.
        (Some(_), Lines::Refused) | (Some(RefusalKind::TrailersTooLarge), _) => {}
        (Some(RefusalKind::ChunkLineTooLong | RefusalKind::ChunkExtensionsTooLarge), _) => {}
        // A line is refused by its first bad byte, and by a reader of lines once it is whole.
        (Some(_), Lines::Incomplete) => {}
        (None, Lines::Incomplete) => assert!(!whole.end),
        (None, Lines::Whole { content, used }) => {
            assert_eq!((whole.content, whole.consumed, whole.end), (content, used, true));
        }
        (found, lines) => panic!("{found:?} but by lines {lines:?}"),
    }
}

/// One request of a connection, as [`requests`] understood it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The method.
    pub method: String,
    /// The target.
    pub target: String,
    /// The version.
    pub version: Version,
    /// The content, as far as it arrived.
    pub content: Vec<u8>,
    /// Whether the content is whole.
    pub whole: bool,
}

/// Reads a connection to its end as a server does: the requests that were accepted, up to the one
/// that ends the connection or is refused. For comparing with another server.
#[must_use]
pub fn requests(mut bytes: &[u8]) -> Vec<Request> {
    let limits = Limits::default();
    let mut found = Vec::new();
    loop {
        let mut slots = header_slots();
        let Ok(Parsed::Complete { head, bytes: used }) = parse_request(bytes, &limits, &mut slots)
        else {
            return found;
        };
        let body = decode(&bytes[used..], head.framing, &limits, |_| usize::MAX);
        found.push(Request {
            method: head.method.to_owned(),
            target: head.target.to_owned(),
            version: head.version,
            content: body.content,
            whole: body.end,
        });
        let tunnel = head.method == "CONNECT" || head.upgrade.is_some();
        if !body.end || !head.keep_alive || tunnel {
            return found;
        }
        bytes = &bytes[used + body.consumed..];
    }
}

/// So small that a few bytes meet every limit.
const TIGHT: Limits = Limits {
    head_bytes_max: 96,
    headers_max: 2,
    target_bytes_max: 12,
    chunk_line_bytes_max: 12,
    chunk_extension_bytes_max: 16,
    trailer_bytes_max: 24,
    interim_responses_max: 1,
};

/// What a parse came to, without what it borrowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Incomplete,
    Complete(usize),
    Refused(RefusalKind),
}

fn outcome<T>(parsed: Result<Parsed<T>, Refusal>) -> Outcome {
    match parsed {
        Ok(Parsed::Incomplete) => Outcome::Incomplete,
        Ok(Parsed::Complete { bytes, .. }) => Outcome::Complete(bytes),
        Err(refusal) => Outcome::Refused(refusal.kind()),
    }
}

/// Compares the outcome of each part from the start with that of the whole.
fn for_each_part(bytes: &[u8], parse: &impl Fn(&[u8]) -> Outcome) {
    let whole = parse(bytes);
    // All cuts of a short input, and a spread of them for a long one: the work stays bounded.
    for at in (0..bytes.len()).step_by(1 + bytes.len() / 512) {
        let part = parse(&bytes[..at]);
        match (part, whole) {
            (Outcome::Complete(_), _) => assert_eq!(part, whole, "the first {at} bytes"),
            (Outcome::Incomplete, Outcome::Complete(used)) => {
                assert!(at < used, "incomplete at {at} of {used}");
            }
            (Outcome::Incomplete, _) => {}
            (Outcome::Refused(_), _) => assert_eq!(part, whole, "the first {at} bytes"),
        }
    }
}

fn check_request(head: &RequestHead<'_, '_>) {
    assert_ne!(head.framing, Framing::UntilClose);
    assert!(head.version == Version::Http10 || head.host.is_some());
    assert_eq!(encode::check_method(head.method), Ok(()));
    assert_eq!(encode::check_target(head.target), Ok(()));
    check_fields(head.headers);

    let mut again = Vec::new();
    let fields = head.headers.iter().map(|header| (header.name, header.value));
    encode::request_head(&mut again, head.method, head.target, fields);
    let mut slots = header_slots();
    match parse_request(&again, &LOOSE, &mut slots) {
        Ok(Parsed::Complete { head: copy, bytes }) => {
            assert_eq!(bytes, again.len());
            assert_eq!((copy.method, copy.target), (head.method, head.target));
            assert_eq!(copy.headers, head.headers);
            assert_eq!((copy.host, copy.framing), (head.host, head.framing));
            assert!(head.version == Version::Http10 || copy == *head);
        }
        // It is written as HTTP/1.1, where a Host must be.
        Err(refusal) if refusal.kind() == RefusalKind::HostMissing => {
            assert_eq!(head.version, Version::Http10);
        }
        other => panic!("written again: {other:?}"),
    }
}

fn check_response(head: &ResponseHead<'_, '_>, kind: RequestKind) {
    assert!((100..=999).contains(&head.status));
    assert!(!(head.informational() && head.switching()));
    assert!(head.status >= 200 || (head.framing == Framing::None && head.keep_alive));
    assert!(head.framing != Framing::UntilClose || !head.keep_alive);
    assert!(kind != RequestKind::Head || head.framing == Framing::None);
    check_fields(head.headers);

    let mut again = Vec::new();
    encode::status_line(&mut again, head.version, head.status);
    for header in head.headers {
        encode::field(&mut again, header.name, header.value);
    }
    encode::end_of_head(&mut again);
    let mut slots = header_slots();
    match parse_response(&again, &LOOSE, kind, &mut slots) {
        Ok(Parsed::Complete { head: copy, bytes }) => {
            assert_eq!(bytes, again.len());
            assert_eq!(ResponseHead { reason: head.reason, ..copy }, *head);
        }
        other => panic!("written again: {other:?}"),
    }
}

/// What is written again has our reason phrase and a space after each colon: it may be longer.
const LOOSE: Limits = Limits {
    head_bytes_max: 1 << 20,
    headers_max: HEADERS_CAP,
    target_bytes_max: 1 << 20,
    chunk_line_bytes_max: 1 << 20,
    chunk_extension_bytes_max: 1 << 20,
    trailer_bytes_max: 1 << 20,
    interim_responses_max: u32::MAX,
};

fn check_fields(headers: &[crate::Header<'_>]) {
    for header in headers {
        assert_eq!(encode::check_field_name(header.name), Ok(()));
        assert_eq!(encode::check_field_value(header.value), Ok(()));
        assert_eq!(header.value.trim_ascii(), header.value);
    }
}

/// What a decoder made of a body.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Body {
    content: Vec<u8>,
    consumed: usize,
    end: bool,
    trailers: Vec<u8>,
    refusal: Option<RefusalKind>,
}

fn decode_in_parts(bytes: &[u8], limits: &Limits, part: impl Fn(usize) -> usize) -> Body {
    let mut body = decode(bytes, Framing::Chunked, limits, part);
    if body.refusal.is_some() {
        // Content before a refusal is lost or not, depending on the cuts: that is promised.
        body.content.clear();
        body.consumed = 0;
    }
    body
}

fn decode(bytes: &[u8], framing: Framing, limits: &Limits, part: impl Fn(usize) -> usize) -> Body {
    let mut decoder = BodyDecoder::new(framing, limits);
    let mut body = Body {
        content: Vec::new(),
        consumed: 0,
        end: decoder.is_done(),
        trailers: Vec::new(),
        refusal: None,
    };
    while !body.end && body.consumed < bytes.len() {
        let rest = &bytes[body.consumed..];
        let input = &rest[..part(body.consumed).min(rest.len())];
        match decoder.decode(input) {
            Ok(step) => {
                assert!(step.consumed > 0, "no progress at {}", body.consumed);
                assert!(step.data.end <= step.consumed);
                body.content.extend_from_slice(&input[step.data]);
                body.consumed += step.consumed;
                body.end = step.end;
            }
            Err(refusal) => {
                assert_eq!(decoder.decode(rest), Err(refusal), "a refusal stays");
                assert_eq!(decoder.handle_eof(), Err(refusal), "a refusal stays");
                body.refusal = Some(refusal.kind());
                return body;
            }
        }
    }
    assert_eq!(decoder.is_done(), body.end);
    body.trailers = decoder.trailers().to_vec();
    if !body.end {
        let closed = decoder.handle_eof().map_err(|refusal| refusal.kind());
        assert_eq!(closed, Err(RefusalKind::Truncated));
    }
    body
}

/// Skipping is decoding without the content.
fn check_skip(bytes: &[u8], limits: &Limits, whole: &Body, seed: usize) {
    let mut decoder = BodyDecoder::new(Framing::Chunked, limits);
    let (first, second) = bytes.split_at(seed.min(bytes.len()));
    let skipped = decoder.skip(first).and_then(|one| {
        let two = decoder.skip(second)?;
        Ok((one.consumed + two.consumed, one.data_bytes + two.data_bytes, two.end))
    });
    match skipped {
        Ok(counts) => {
            let expected = (whole.consumed, whole.content.len() as u64, whole.end);
            assert_eq!((counts, None), (expected, whole.refusal));
        }
        Err(refusal) => assert_eq!(Some(refusal.kind()), whole.refusal),
    }
}

/// What a decoder that looks at whole lines, and has no limits, makes of a chunked body.
#[derive(Debug)]
enum Lines {
    Incomplete,
    Refused,
    Whole { content: Vec<u8>, used: usize },
}

fn by_lines(bytes: &[u8]) -> Lines {
    let mut content = Vec::new();
    let mut at = 0;
    loop {
        let Some(line) = line(&bytes[at..]) else {
            return Lines::Incomplete;
        };
        at += line.len();
        let Some(size) = chunk_size(line) else {
            return Lines::Refused;
        };
        if size == 0 {
            break;
        }
        let Some(end) = usize::try_from(size).ok().and_then(|size| at.checked_add(size)) else {
            return Lines::Incomplete;
        };
        let Some(data) = bytes.get(at..end) else {
            return Lines::Incomplete;
        };
        content.extend_from_slice(data);
        match bytes.get(end..end + 2) {
            None => return Lines::Incomplete,
            Some(b"\r\n") => at = end + 2,
            Some(_) => return Lines::Refused,
        }
    }
    loop {
        let Some(line) = line(&bytes[at..]) else {
            return Lines::Incomplete;
        };
        at += line.len();
        if line == b"\r\n" {
            return Lines::Whole { content, used: at };
        }
        if !is_trailer(line) {
            return Lines::Refused;
        }
    }
}

fn line(bytes: &[u8]) -> Option<&[u8]> {
    let end = bytes.iter().position(|&byte| byte == b'\n')?;
    Some(&bytes[..=end])
}

fn chunk_size(line: &[u8]) -> Option<u64> {
    let line = line.strip_suffix(b"\r\n")?;
    let (size, extension) = match line.iter().position(|&byte| byte == b';') {
        Some(at) => {
            let blank = |byte: &u8| b" \t".contains(byte);
            let end = line[..at].iter().rposition(|byte| !blank(byte)).map_or(0, |last| last + 1);
            (&line[..end], Some(&line[at + 1..]))
        }
        None => (line, None),
    };
    let plain = size.iter().all(u8::is_ascii_hexdigit);
    let clean = extension.is_none_or(|extension| {
        extension.iter().all(|&byte| byte == b'\t' || !byte.is_ascii_control())
            && are_extensions(extension)
    });
    let size = std::str::from_utf8(size).ok()?;
    if plain && clean { u64::from_str_radix(size, 16).ok() } else { None }
}

/// Whether a text is chunk extensions, without the first `;`: split at semicolons and equals signs
/// outside of quotes.
fn are_extensions(text: &[u8]) -> bool {
    let token = |text: &[u8]| {
        let fine = |byte: &u8| byte.is_ascii_graphic() && !b"\"(),/:;<=>?@[\\]{}".contains(byte);
        !text.is_empty() && text.iter().all(fine)
    };
    let mut rest = text;
    loop {
        rest = rest.trim_ascii_start();
        let name_end = rest.iter().position(|byte| b"=; \t".contains(byte)).unwrap_or(rest.len());
        if !token(&rest[..name_end]) {
            return false;
        }
        let mut behind = &rest[name_end..];
        if let Some(value) = behind.trim_ascii_start().strip_prefix(b"=") {
            let value = value.trim_ascii_start();
            let end = if value.starts_with(b"\"") {
                let mut at = 1;
                while value.get(at).is_some_and(|&byte| byte != b'"') {
                    at += if value[at] == b'\\' { 2 } else { 1 };
                }
                at + 1
            } else {
                let end = value.iter().position(|byte| b"; \t".contains(byte));
                let end = end.unwrap_or(value.len());
                if !token(&value[..end]) {
                    return false;
                }
                end
            };
            let Some(after) = value.get(end..) else { return false };
            behind = after;
        }
        match behind.trim_ascii_start() {
            // Blanks may only stand before a semicolon.
            [] => return behind.is_empty(),
            [b';', after @ ..] => rest = after,
            _ => return false,
        }
    }
}

fn is_trailer(line: &[u8]) -> bool {
    let mut slots = [httparse::EMPTY_HEADER; 1];
    let whole = [line, b"\r\n"].concat();
    let Ok(httparse::Status::Complete((_, [field]))) = httparse::parse_headers(&whole, &mut slots)
    else {
        return false;
    };
    let forbidden = ["content-length", "transfer-encoding", "host"];
    line.ends_with(b"\r\n") && !forbidden.iter().any(|name| field.name.eq_ignore_ascii_case(name))
}
